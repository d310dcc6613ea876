# SPDX-License-Identifier: Apache-2.0
"""Protobuf wire format for the answers to reads, put together from stored bytes.

Entities are kept as serialised messages. A read appends what changes (a counter's value) to them
and frames them into ReadResponse messages without building a message object per entity: fields of a
serialised message may follow in any order (protobuf encoding, "Message Structure"). Field numbers
are those of p4/v1/p4runtime.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

# Well below gRPC's default limit of 4 MiB for one received message.
RESPONSE_BYTES = 1 << 20

ENTITY_TABLE_ENTRY = 2
ENTITY_MEMBER = 3
ENTITY_GROUP = 4
ENTITY_METER = 5
ENTITY_DIRECT_METER = 6
ENTITY_COUNTER = 7
ENTITY_DIRECT_COUNTER = 8
ENTITY_REPLICATION = 9
ENTITY_VALUE_SET = 10
ENTITY_REGISTER = 11
ENTITY_DIGEST = 12


def varint(number: int) -> bytes:
    """A non-negative integer in base-128."""
    if number < 0x80:
        return bytes((number,))
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def message_field(number: int, content: bytes) -> bytes:
    """A field of type message, string or bytes; `number` below 16."""
    return bytes((number << 3 | 2,)) + varint(len(content)) + content


def integer_field(number: int, value: int) -> bytes:
    """A field of an integer type, left out when it is 0 as proto3 does; `number` below 16."""
    return bytes((number << 3,)) + varint(value) if value else b""


def counter_data(packets: int, bytes_: int) -> bytes:
    """The content of a CounterData message."""
    return integer_field(1, bytes_) + integer_field(2, packets)


def responses(entities: Iterable[bytes]) -> Iterator[bytes]:
    """Serialised ReadResponse messages of at most about `RESPONSE_BYTES` holding these entities.

    There is always one: simple clients take the first answer without asking whether there is any.
    """
    parts: list[bytes] = []
    size = 0
    sent = False
    for entity in entities:
        parts.append(b"\x0a")
        parts.append(varint(len(entity)))
        parts.append(entity)
        size += len(entity) + 4
        if size >= RESPONSE_BYTES:
            yield b"".join(parts)
            parts.clear()
            size = 0
            sent = True
    if parts or not sent:
        yield b"".join(parts)
