# SPDX-License-Identifier: Apache-2.0
"""Table entries as people write them: addresses, uSIDs, MACs and masks instead of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from finsy import P4Schema

from controller.addressing import ipv6, mac_text
from controller.canonical import EXACT, LPM, OPTIONAL, RANGE, Call, Field, Key, OneShot, Value

Format = Callable[[int], str]


def _hex16(value: int) -> str:
    return f"{value:#06x}"


# By name of match field or action parameter; everything else is a decimal number.
_FORMATS: Mapping[str, Format] = {
    "block": lambda value: f"{ipv6(value << 96)}/32",
    "locator_node": lambda value: f"{ipv6(value << 80)}/48",
    "dst_addr": ipv6,
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


def match_words(key: Key, schema: P4Schema) -> dict[str, str]:
    """The match fields of an entry by name; don't-care fields are left out."""
    table = schema.tables[key.table_id]
    return {
        (name := table.match_fields[field.field_id].alias): _field_words(name, field)
        for field in key.match
    }


def _field_words(name: str, field: Field) -> str:
    value = format_value(name, field.value)
    if field.kind in (EXACT, OPTIONAL):
        return value
    if field.kind == LPM:
        return f"{value}/{field.argument}"
    if field.kind == RANGE:
        return f"{value}..{format_value(name, field.argument)}"
    return f"{value}&{field.argument:#x}"


def call_params(call: Call, schema: P4Schema) -> dict[str, int]:
    """An action's parameters by name."""
    params = schema.actions[call.action_id].params
    return {params[number].name: value for number, value in call.params}


def action_words(value: Value, schema: P4Schema) -> str:
    """``forward(port=3, dst_mac=…)``; the members of a one-shot set with their weights."""
    if isinstance(value, Call):
        params = call_params(value, schema)
        shown = ", ".join(f"{name}={format_value(name, v)}" for name, v in params.items())
        return f"{schema.actions[value.action_id].alias}({shown})"
    if isinstance(value, OneShot):
        return " | ".join(
            f"{choice.weight} * {action_words(choice.call, schema)}" for choice in value.choices
        )
    return f"{value.kind} {value.number}"


def in_words(key: Key, schema: P4Schema, value: Value | None = None) -> str:
    """A whole entry: ``usid_fib locator_node=fcbb:bb00:2001::/48 -> forward(port=3, …)``."""
    match = " ".join(f"{name}={text}" for name, text in match_words(key, schema).items())
    priority = f" priority={key.priority}" if key.priority else ""
    words = f"{schema.tables[key.table_id].alias} {match or 'any'}{priority}"
    return words if value is None else f"{words} -> {action_words(value, schema)}"
