# SPDX-License-Identifier: Apache-2.0
"""Commands for parser value sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from finsy.proto import p4r

from softswitch.control.context import MODIFY, Answer, Context, Handler
from softswitch.control.entries import field_match, key_data, key_text
from softswitch.control.words import CommandError, aligned, full_name, hexadecimal, number
from softswitch.p4info import MatchField, MatchKind, ValueSetInfo


def _value_set(context: Context, given: str) -> ValueSetInfo:
    sets = {info.name: info for info in context.view.value_sets.values()}
    return sets[full_name(given, sets, "value set")]


def _members(context: Context, info: ValueSetInfo) -> list[Any]:
    query = p4r.ValueSetEntry(value_set_id=info.id)
    (entity,) = context.read(value_set_entry=query)
    return list(entity.value_set_entry.members)


def _write(context: Context, info: ValueSetInfo, members: Sequence[Any]) -> None:
    entry = p4r.ValueSetEntry(value_set_id=info.id, members=members)
    context.write(MODIFY, value_set_entry=entry)


def _member(info: ValueSetInfo, words: Sequence[str]) -> Any:
    """A member of a word for each key, or of one number: its bits, from the first key on."""
    where = f"value set {info.name}"
    if len(words) == 1 and len(info.fields) > 1:
        left = sum(field.width for field in info.fields)
        value = number(words[0], left, where)
        split = []
        for field in info.fields:
            left -= field.width
            split.append(hex(value >> left & (1 << field.width) - 1))
        words = split
    if len(words) != len(info.fields):
        raise CommandError(f"{where} has {len(info.fields)} keys, not {len(words)}")
    matches = (
        field_match(field, _whole(field, word), f"{where}, {field.name}")
        for field, word in zip(info.fields, words, strict=True)
    )
    return p4r.ValueSetMember(match=[match for match in matches if match is not None])


def _whole(field: MatchField, word: str) -> str:
    """A plain value of a key that is not exact, in the form of a key: only this value."""
    match field.kind:
        case MatchKind.LPM if "/" not in word:
            return f"{word}/{field.width}"
        case MatchKind.TERNARY | MatchKind.OPTIONAL if "&&&" not in word:
            return f"{word}&&&{hexadecimal((1 << field.width) - 1, field.width)}"
        case MatchKind.RANGE if "->" not in word:
            return f"{word}->{word}"
        case _:
            return word


def show_pvs(context: Context, words: list[str]) -> Answer:
    """All value sets."""
    data = [
        {
            "name": info.name,
            "values": len(_members(context, info)),
            "size": info.size,
            "keys": [{"match": f.kind.name.lower(), "width": f.width} for f in info.fields],
        }
        for info in context.view.value_sets.values()
    ]
    rows = [
        [
            str(item["name"]),
            f"{item['values']} of {item['size'] or 'any number of'} values",
            ", ".join(f"{f.kind.name.lower()}/{f.width}" for f in info.fields),
        ]
        for item, info in zip(data, context.view.value_sets.values(), strict=True)
    ]
    return Answer(aligned(rows) or "the program has no value set", data)


def pvs_get(context: Context, words: list[str]) -> Answer:
    """The values of a set."""
    info = _value_set(context, words[0])
    data = [key_data(info.fields, member.match) for member in _members(context, info)]
    lines = ["  ".join(map(key_text, keys)) for keys in data]
    return Answer("\n".join(lines) or f"{info.name} is empty", data)


def pvs_add(context: Context, words: list[str]) -> Answer:
    """Put a value in; it may be there already, as in BMv2."""
    info = _value_set(context, words[0])
    member, members = _member(info, words[1:]), _members(context, info)
    if member not in members:
        _write(context, info, [*members, member])
    return Answer(f"{' '.join(words[1:])} is in {info.name}", None)


def pvs_remove(context: Context, words: list[str]) -> Answer:
    """Take a value out."""
    info = _value_set(context, words[0])
    member, members = _member(info, words[1:]), _members(context, info)
    if member not in members:
        raise CommandError(f"{' '.join(words[1:])} is not in {info.name}")
    _write(context, info, [m for m in members if m != member])
    return Answer(f"{' '.join(words[1:])} is not in {info.name} any more", None)


def pvs_clear(context: Context, words: list[str]) -> Answer:
    """Empty a set."""
    info = _value_set(context, words[0])
    _write(context, info, [])
    return Answer(f"{info.name} is empty", None)


HANDLERS: dict[str, Handler] = {
    "show_pvs": show_pvs,
    "pvs_get": pvs_get,
    "pvs_add": pvs_add,
    "pvs_remove": pvs_remove,
    "pvs_clear": pvs_clear,
}
