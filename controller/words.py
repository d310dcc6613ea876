# SPDX-License-Identifier: Apache-2.0
"""Table entries as people write them: addresses, uSIDs, MACs and masks instead of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from finsy import (
    P4IndirectAction,
    P4MulticastGroupEntry,
    P4Schema,
    P4TableAction,
    P4TableEntry,
)

from controller.addressing import ipv6, mac_text
from controller.canonical import (
    MULTICAST_GROUPS,
    MULTICAST_TABLE_ID,
    DesiredEntry,
    Key,
    Value,
    to_entity,
    to_message,
)

Format = Callable[[int], str]


def _hex16(value: int) -> str:
    return f"{value:#06x}"


# By name of match field or action parameter; everything else is a decimal number.
_FORMATS: Mapping[str, Format] = {
    "block": lambda value: f"{ipv6(value << 96)}/32",
    "locator_node": lambda value: f"{ipv6(value << 80)}/48",
    "dst_addr": ipv6,
    "src_addr": ipv6,
    "outer_dst": ipv6,
    "template": ipv6,
    "dst_mac": mac_text,
    "src_mac": mac_text,
    "local_sid": _hex16,
    "path_ev": _hex16,
    "ether_type": _hex16,
    "down_planes": bin,
    "planes": oct,  # 3 bits a pick: the first pick is the last digit
}


def format_value(name: str, value: int) -> str:
    """A field's or parameter's value in the notation that suits its name."""
    return _FORMATS.get(name, str)(value)


def table_word(entry: DesiredEntry) -> str:
    """The table that an entry belongs to."""
    return MULTICAST_GROUPS if isinstance(entry, P4MulticastGroupEntry) else entry.table_id


def entry_action_words(entry: DesiredEntry) -> str:
    """What an entry does: its action, or the ports of a multicast group."""
    if isinstance(entry, P4MulticastGroupEntry):
        return f"ports {entry.replicas_str()}"
    return action_words(entry.action)


def match_words(entry: DesiredEntry) -> dict[str, str]:
    """The match fields of an entry by name: exact values, and prefixes as address/length."""
    if isinstance(entry, P4MulticastGroupEntry):
        return {"group_id": str(entry.multicast_group_id)}
    return {name: _field_words(name, value) for name, value in (entry.match or {}).items()}


def _field_words(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        address, length = value
        return f"{format_value(name, address)}/{length}"
    return format_value(name, value)


def params_words(action: P4TableAction) -> dict[str, str]:
    """An action's parameters by name."""
    return {name: format_value(name, value) for name, value in action.args.items()}


def action_words(action: P4TableAction | P4IndirectAction | None) -> str:
    """``forward(port=3, dst_mac=…)``; the members of a one-shot set with their weights."""
    if isinstance(action, P4TableAction):
        params = ", ".join(f"{name}={value}" for name, value in params_words(action).items())
        return f"{action.name}({params})"
    if action is None:
        return "no action"
    if action.action_set is None:
        return (
            f"member {action.member_id}" if action.group_id is None else f"group {action.group_id}"
        )
    return " | ".join(f"{weight} * {action_words(member)}" for weight, member in action.action_set)


def in_words(key: Key, schema: P4Schema, value: Value | None = None) -> str:
    """A whole entry: ``usid_fib locator_node=fcbb:bb00:2001::/48 -> forward(port=3, …)``."""
    entry: DesiredEntry
    if key.table_id == MULTICAST_TABLE_ID:
        entry = P4MulticastGroupEntry.decode(to_entity(key, value), schema)
    else:
        entry = P4TableEntry.decode_entry(to_message(key, value), schema)
    match = " ".join(f"{name}={text}" for name, text in match_words(entry).items())
    words = f"{table_word(entry)} {match or 'any'}"
    return words if value is None else f"{words} -> {entry_action_words(entry)}"
