# SPDX-License-Identifier: Apache-2.0
"""Keys and actions of commands as P4Runtime messages, and entries as answers show them.

Entries are written as a controller would, so P4Runtime reads what commands wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from finsy.proto import p4r

from softswitch.control.words import (
    CommandError,
    full_name,
    hexadecimal,
    natural,
    number,
    readable,
    shown,
)
from softswitch.p4info import ActionInfo, MatchField, MatchKind, TableInfo, encode_unsigned

ARROW = "=>"
MAX_PRIORITY = (1 << 31) - 1
"""P4Runtime's, which BMv2's server subtracts from as well to get BMv2's own."""

_TRUTH = {"true": "1", "false": "0"}


def priority_word(table: TableInfo, words: list[str]) -> int:
    """P4Runtime's priority, from the last word where the table takes one: that is taken off."""
    if not table.needs_priority:
        return 0
    if not words:
        raise CommandError(f"table {table.name} has a ternary or range key: PRIORITY is missing")
    # In simple_switch_CLI the lowest number wins, in P4Runtime the highest.
    return MAX_PRIORITY - natural(words.pop(), "priority", MAX_PRIORITY - 1)


def key_entry(table: TableInfo, words: Sequence[str], priority: int) -> Any:
    """A TableEntry that names an entry by its key."""
    if len(words) != len(table.fields):
        keys = ", ".join(f"{f.name} {f.kind.name.lower()}" for f in table.fields)
        raise CommandError(
            f"table {table.name} has {len(table.fields)} keys ({keys}), not {len(words)}"
        )
    entry = p4r.TableEntry(table_id=table.id, priority=priority)
    for field, word in zip(table.fields, words, strict=True):
        match = field_match(field, word, f"table {table.name}, key {field.name}")
        if match is not None:
            entry.match.append(match)
    return entry


def field_match(field: MatchField, word: str, what: str) -> Any | None:
    """A FieldMatch; None for one that matches everything, which P4Runtime leaves out."""
    width = field.width
    message = p4r.FieldMatch(field_id=field.id)
    match field.kind:
        case MatchKind.EXACT:
            text = _TRUTH.get(word.lower(), word) if width == 1 else word
            message.exact.value = encode_unsigned(number(text, width, what))
        case MatchKind.LPM:
            value, length_word = _two(word, "/", "VALUE/LENGTH", what)
            length = natural(length_word, f"{what}: prefix length", width)
            if not length:
                return None
            bits = number(value, width, what) >> width - length << width - length
            message.lpm.value, message.lpm.prefix_len = encode_unsigned(bits), length
        case MatchKind.TERNARY | MatchKind.OPTIONAL:
            value, mask_word = _two(word, "&&&", "VALUE&&&MASK", what)
            mask = number(mask_word, width, f"{what}, mask")
            if not mask:
                return None
            bits = number(value, width, what) & mask
            if field.kind is MatchKind.TERNARY:
                message.ternary.value = encode_unsigned(bits)
                message.ternary.mask = encode_unsigned(mask)
            elif mask == (1 << width) - 1:
                message.optional.value = encode_unsigned(bits)
            else:
                raise CommandError(f"{what}: an optional key has mask 0 or all bits")
        case MatchKind.RANGE:
            first, last = _two(word, "->", "LOW->HIGH", what)
            low, high = number(first, width, what), number(last, width, what)
            if low == 0 and high == (1 << width) - 1:
                return None
            message.range.low, message.range.high = encode_unsigned(low), encode_unsigned(high)
    return message


def _two(word: str, separator: str, form: str, what: str) -> tuple[str, str]:
    first, found, second = word.partition(separator)
    if not found or not first or not second:
        raise CommandError(f"{what}: {word!r} is not {form}")
    return first, second


def action_message(
    actions: Iterable[ActionInfo], name: str, words: Sequence[str], where: str
) -> Any:
    """An Action with parameters, one of `actions`; `where` is whose these are."""
    known = {action.name: action for action in actions}
    action = known[full_name(name, known, "action", f" of {where}")]
    if words and words[0] == ARROW:
        words = words[1:]
    if len(words) != len(action.params):
        params = ", ".join(f"{p.name} ({p.width} bits)" for p in action.params) or "none"
        raise CommandError(
            f"action {action.name} has {len(action.params)} parameters ({params}), not {len(words)}"
        )
    return p4r.Action(
        action_id=action.id,
        params=[
            p4r.Action.Param(
                param_id=p.id,
                value=encode_unsigned(number(word, p.width, f"{action.name}, parameter {p.name}")),
            )
            for p, word in zip(action.params, words, strict=True)
        ],
    )


# --- answers ------------------------------------------------------------------------------------


def _number(value: bytes) -> int:
    return int.from_bytes(value, "big")


def key_data(fields: Iterable[MatchField], matches: Iterable[Any]) -> list[dict[str, Any]]:
    """FieldMatch messages, in the order of the fields."""
    given = {match.field_id: match for match in matches}
    return [_field_data(field, given.get(field.id)) for field in fields]


def _field_data(field: MatchField, match: Any | None) -> dict[str, Any]:
    width = field.width
    data: dict[str, Any] = {"name": field.name, "match": field.kind.name.lower(), "width": width}
    match field.kind:
        case MatchKind.EXACT:
            assert match is not None
            data["value"] = hexadecimal(_number(match.exact.value), width)
        case MatchKind.LPM:
            value = _number(match.lpm.value) if match is not None else 0
            data["value"] = hexadecimal(value, width)
            data["prefix_len"] = match.lpm.prefix_len if match is not None else 0
        case MatchKind.TERNARY:
            value, mask = (
                (_number(match.ternary.value), _number(match.ternary.mask)) if match else (0, 0)
            )
            data["value"], data["mask"] = hexadecimal(value, width), hexadecimal(mask, width)
        case MatchKind.OPTIONAL:
            value = _number(match.optional.value) if match else 0
            data["value"] = hexadecimal(value, width)
            data["mask"] = hexadecimal((1 << width) - 1 if match else 0, width)
        case MatchKind.RANGE:
            low, high = (
                (_number(match.range.low), _number(match.range.high))
                if match
                else (0, (1 << width) - 1)
            )
            data["low"], data["high"] = hexadecimal(low, width), hexadecimal(high, width)
    return data


def key_text(data: dict[str, Any]) -> str:
    """One key of `key_data`, as a command takes it and as people read it."""
    width = data["width"]
    if "low" in data:
        low, high = (int(data[end], 16) for end in ("low", "high"))
        return f"{data['low']}->{data['high']} ({readable(low, width)}->{readable(high, width)})"
    value = int(data["value"], 16)
    if "prefix_len" in data:
        end = f"/{data['prefix_len']}"
        return f"{data['value']}{end} ({readable(value, width)}{end})"
    if "mask" in data:
        return f"{data['value']}&&&{data['mask']}"
    return shown(value, width)


def action_data(actions: Iterable[ActionInfo], action: Any) -> dict[str, Any] | None:
    """An Action message; None when it is unset."""
    info = next((a for a in actions if a.id == action.action_id), None)
    if info is None:
        return None
    values = {param.param_id: _number(param.value) for param in action.params}
    return {
        "action": info.name,
        "params": [
            {"name": p.name, "width": p.width, "value": hexadecimal(values[p.id], p.width)}
            for p in info.params
        ],
    }


def action_text(data: dict[str, Any] | None) -> str:
    """An action of `action_data`."""
    if data is None:
        return "no action"
    params = (
        f"{p['name']}={shown(int(p['value'], 16), p['width'])}" for p in data.get("params", ())
    )
    return f"{data['action']}({', '.join(params)})"
