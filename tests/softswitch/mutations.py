# SPDX-License-Identifier: Apache-2.0
"""Random changes to BMv2 JSON and to protobuf messages, for what reads them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field

# ---- JSON ----------------------------------------------------------------------------------------

SCALARS: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 64, 65, 1 << 31, 1 << 63, 1 << 130, 0.5, "", "x"),
    *("0x", "0x00", "-0x01", "0xzz", "$valid$", "scalars", "standard_metadata", "field", "hexstr"),
    *("header", "expression", "bool", "local", "runtime_data", "header_stack", [], {}, [[]], [{}]),
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside of a JSON value."""
    pairs = value.items() if isinstance(value, dict) else ()
    for key, inner in enumerate(value) if isinstance(value, list) else pairs:
        yield (*path, key)
        yield from paths(inner, (*path, key))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    """What is at a path."""
    for key in path:
        value = value[key]
    return value


def changed_json(source: random.Random, program: Any, places: list[tuple[Any, ...]]) -> Any:
    """A copy with one value removed, doubled, replaced, or swapped for another one of its kind.

    `places` are `paths(program)`.
    """
    program = deepcopy(program)
    *way, key = source.choice(places)
    owner = at(program, tuple(way))
    kind = source.randrange(6)
    if kind == 0:
        del owner[key]
    elif kind == 1 and isinstance(owner, list):
        owner.insert(key, deepcopy(owner[key]))
    elif kind == 2:
        owner[key] = deepcopy(at(program, source.choice(places)))
    elif kind == 3 and isinstance(owner[key], int):
        owner[key] += source.choice((-1, 1, 8, 1000, -(1 << 40)))
    elif kind == 4 and isinstance(owner[key], str) and owner[key]:
        owner[key] = owner[key][:-1] + source.choice("0fz.")
    else:
        owner[key] = deepcopy(source.choice(SCALARS))
    return program


# ---- protobuf ------------------------------------------------------------------------------------

_INTS = (0, 1, 2, 3, 7, 64, 128, 255, 256, 511, 65535, 65536, (1 << 31) - 1)
_BYTES = (b"", b"\0", b"\1", b"\0\1", b"\xff", b"\xff\xff", b"\1\0", b"\xff" * 17, b"\7" * 300)
_SIGNED = {
    *(Field.TYPE_INT32, Field.TYPE_SINT32, Field.TYPE_SFIXED32, Field.TYPE_ENUM),
    *(Field.TYPE_INT64, Field.TYPE_SINT64, Field.TYPE_SFIXED64),
}
_WIDE = {Field.TYPE_INT64, Field.TYPE_UINT64, Field.TYPE_FIXED64, Field.TYPE_SFIXED64}
_DEEPEST = 8


def _messages(message: Any, depth: int = 0) -> Iterator[Any]:
    """The message and all that are inside of it."""
    yield message
    if depth == _DEEPEST:
        return
    for field, value in message.ListFields():
        if field.type != Field.TYPE_MESSAGE or field.message_type.GetOptions().map_entry:
            continue
        repeated = field.is_repeated
        for inner in value if repeated else (value,):
            yield from _messages(inner, depth + 1)


def _scalar(source: random.Random, field: Any) -> Any:
    match field.type:
        case Field.TYPE_BYTES:
            return source.choice((*_BYTES, source.randbytes(source.randrange(20))))
        case Field.TYPE_STRING:
            return source.choice(("", "x", "\N{SNOWMAN}", "a" * 300))
        case Field.TYPE_BOOL:
            return source.random() < 0.5
        case Field.TYPE_DOUBLE | Field.TYPE_FLOAT:
            return source.choice((0.0, -1.0, 1e300))
    value = source.choice((*_INTS, source.getrandbits(31)))
    if field.type in _WIDE and source.random() < 0.3:
        value = source.choice(((1 << 63) - 1, source.getrandbits(62)))
    return -value if field.type in _SIGNED and source.random() < 0.3 else value


def change_message(source: random.Random, message: Any) -> None:
    """Change one field somewhere in a message: its value, how often it is there, whether it is."""
    inner = source.choice(list(_messages(message)))
    fields = inner.DESCRIPTOR.fields
    present = [field for field, _ in inner.ListFields()]
    field = source.choice(present if present and source.random() < 0.7 else fields)
    if field.type == Field.TYPE_MESSAGE and field.message_type.GetOptions().map_entry:
        return
    values = getattr(inner, field.name)
    if source.random() < 0.15:
        inner.ClearField(field.name)
    elif field.is_repeated:
        if values and source.random() < 0.4:
            del values[source.randrange(len(values))]
        elif field.type != Field.TYPE_MESSAGE:
            values.append(_scalar(source, field))
        elif values:
            values.add().CopyFrom(source.choice(list(values)))
        else:
            values.add()
    elif field.type == Field.TYPE_MESSAGE:
        values.SetInParent()
    else:
        setattr(inner, field.name, _scalar(source, field))
