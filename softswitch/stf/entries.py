# SPDX-License-Identifier: Apache-2.0
"""From the names and numbers of an STF test to the tables, keys and actions of a program.

A test may shorten names to their end: `t` for `ingress.t`. Keys have the names of the JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from softswitch.codegen.layout import ActionLayout, KeyField
from softswitch.errors import InvalidArgument, NotFound
from softswitch.stf.commands import ActionText, Match
from softswitch.tables import Table
from softswitch.values import ActionCall, FieldMatch

T = TypeVar("T")

_VALID = "$valid$"
_ESCAPED_INDEX = re.compile(r"\$(\d+)")
"""`extra$0.h` is how P4_14's tests write `extra[0].h`."""


def find(objects: Mapping[str, T], name: str, kind: str) -> T:
    """The object of a name, or the only one whose name ends in it, at a dot if there is one.

    Raises NotFound, or InvalidArgument when several fit equally.
    """
    if name in objects:
        return objects[name]
    for end in (f".{name}", name):
        found = [full for full in objects if full.endswith(end)]
        if len(found) == 1:
            return objects[found[0]]
        if found:
            raise InvalidArgument(f"{kind} {name!r} may be {' or '.join(sorted(found))}")
    raise NotFound(f"no {kind} {name!r}; there are {', '.join(objects) or 'none'}")


def action_call(table: Table, text: ActionText) -> ActionCall:
    """An action with its parameters in the order of its declaration."""
    actions: dict[str, ActionLayout] = {action.name: action for action in table.actions}
    action = find(actions, text.name, f"action of {table.name}")
    given = dict(text.params)
    names = [name for name, _ in action.params]
    if len(given) != len(text.params) or set(given) != set(names):
        what = f"({', '.join(names)}), not ({', '.join(name for name, _ in text.params)})"
        raise InvalidArgument(f"{action.name} takes {what}")
    return ActionCall(action.name, tuple(given[name] for name in names))


def key_matches(table: Table, matches: Sequence[Match]) -> list[FieldMatch]:
    """One match for each key of a table. Keys that the test does not name match anything, and
    exact keys 0."""
    keys = {key.name: key for key in table.layout.keys}
    given: dict[str, Match] = {}
    for match in matches:
        name = _key_name(keys, match.name)
        if name is None:
            raise NotFound(f"{table.name} has no key {match.name!r}; its keys: {', '.join(keys)}")
        given[name] = match
    return [
        _field_match(key, given[key.name]) if key.name in given else _anything(key)
        for key in table.layout.keys
    ]


def _key_name(keys: Mapping[str, KeyField], name: str) -> str | None:
    """The key that a test means."""
    name = _ESCAPED_INDEX.sub(r"[\1]", name)
    candidates = [name, f"{name}$", f"{name}.{_VALID}"]
    if name.endswith(".valid"):
        candidates.append(f"{name.removesuffix('valid')}{_VALID}")
    for candidate in candidates:
        if candidate in keys:
            return candidate
    for key in keys:
        if key.endswith((f".{name}", f".{name}$")) or (name == "valid" and key.endswith(_VALID)):
            return key
    return None


def _anything(key: KeyField) -> FieldMatch:
    match key.match_type:
        case "lpm":
            return FieldMatch(0, prefix_len=0)
        case "ternary":
            return FieldMatch(0, mask=0)
        case "range":
            return FieldMatch(0, high=(1 << key.width) - 1)
        case _:
            return FieldMatch(0)


def _field_match(key: KeyField, match: Match) -> FieldMatch:
    """A match of the kind that the key has."""
    value = match.value
    extra = {"lpm": match.prefix_len, "ternary": match.mask, "range": match.high}
    kind = key.match_type
    if any(given is not None for name, given in extra.items() if name != kind):
        raise InvalidArgument(f"{key.name} is an {kind} key: '/', '&&&' or '..' does not fit it")
    match kind:
        case "lpm":
            return FieldMatch(value.value, prefix_len=_prefix_len(key, match))
        case "ternary":
            return FieldMatch(value.value, mask=_mask(key, match))
    if value.has_wildcard:
        raise InvalidArgument(f"{key.name} is an {kind} key: '*' does not fit it")
    if kind == "range":
        high = value if match.high is None else match.high
        return FieldMatch(value.value, high=high.value)
    return FieldMatch(value.value)


def _prefix_len(key: KeyField, match: Match) -> int:
    """As many bits as digits are written before the `*`; decimal numbers are whole addresses."""
    if match.prefix_len is not None:
        return match.prefix_len
    value = match.value
    if not value.bits_per_digit:
        return key.width
    wildcards = (value.mask ^ ((1 << value.bits) - 1)).bit_count()
    if wildcards and value.mask & ((1 << wildcards) - 1):
        raise InvalidArgument(f"{key.name}: '*' are the last digits of a prefix")
    return value.bits - wildcards


def _mask(key: KeyField, match: Match) -> int:
    """The bits whose digits are written. The last digit may have more bits than the key."""
    if match.mask is not None:
        return match.mask.value
    return match.value.mask & (1 << key.width) - 1
