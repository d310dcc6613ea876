# SPDX-License-Identifier: Apache-2.0
"""Scenarios of numbers beyond 128 bits, and of stack elements at run-time indices."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from tests.softswitch.p4rt import RawClient
from tests.softswitch.random_entries import edge
from tests.softswitch.scenarios import Packet, Scenario, mutated, nothing

# Bits of wide_t's fields, in order.
WIDE_FIELDS = {
    "op": 8, "by": 16, "x": 4, "a": 129, "y": 3, "b": 256, "s": 200, "t": 136, "c": 320,
    "k": 1024, "m": 2048, "note": 16,
}  # fmt: skip
WIDE_OPS = 26
STACK_OPS = 16
SAMPLES = 6  # values that entries and packets share, so that they meet


def _sample(number: int, bits: int) -> int:
    """A value that is the same for entries and packets."""
    return edge(random.Random(f"{number} {bits}"), bits)


def _field(source: random.Random, name: str, bits: int) -> int:
    if name == "op":
        return source.randrange(WIDE_OPS)
    if name == "by":
        return source.choice((0, 1, 63, 64, 65, 127, 128, 200, 255, source.getrandbits(16)))
    if source.random() < 0.4:
        return _sample(source.randrange(SAMPLES), bits) ^ source.choice((0, 0, 1))
    return edge(source, bits)


def wide_header(fields: Mapping[str, int]) -> bytes:
    """A wide_t; fields that are not given are 0."""
    value = 0
    for name, bits in WIDE_FIELDS.items():
        value = value << bits | fields.get(name, 0) & (1 << bits) - 1
    return value.to_bytes(sum(WIDE_FIELDS.values()) // 8)


def wide_packet(source: random.Random) -> Packet:
    """Ethernet and wide_t with fields that like the ends of their ranges; some end too early."""
    fields = {name: _field(source, name, bits) for name, bits in WIDE_FIELDS.items()}
    data = source.randbytes(12) + b"\x12\x34" + wide_header(fields)
    if source.random() < 0.1:
        data = data[: source.randrange(14, len(data))]
    elif source.random() < 0.2:
        data += source.randbytes(source.randrange(1, 30))
    return source.randrange(1, 5), data


def wide_updates(client: RawClient) -> list[Any]:
    """Entries of all kinds over wide keys. No two that match alike have the same priority."""
    source = random.Random(29)
    updates = []
    seen = set[tuple[int, ...]]()
    for number in range(SAMPLES):
        for y in (0, 7):
            value = _sample(number, 256)
            if (value, y) not in seen:
                seen.add((value, y))
                action = ("put", source.getrandbits(256), source.getrandbits(129), 100 + number)
                updates.append(client.insert("by_exact", {"h.w.b": value, "h.w.y": y}, *action))
    seen.clear()
    for length in (0, 1, 63, 64, 65, 128, 129, 255, 256):
        for number in range(SAMPLES):
            value, x = _sample(number, 256) >> (256 - length) << (256 - length), number % 16
            if (value, length, x) in seen:
                continue
            seen.add((value, length, x))
            match: dict[str, Any] = {"h.w.x": x}
            if length:
                match["h.w.b"] = (value, length)
            updates.append(client.insert("by_lpm", match, "mark", 200 + length))
    for priority in range(1, 50):
        match = {"h.w.op": 19}
        for key, bits in (("h.w.k", 1024), ("h.w.c", 320)):
            top = (1 << bits) - 1
            mask = source.choice((0, 1, 1 << bits - 1, top << 64 & top, top, 0xFF << 200))
            if mask:
                match[key] = (_sample(source.randrange(SAMPLES), bits) & mask, mask)
        updates.append(
            client.insert("by_ternary", match, "mark", 1000 + priority, priority=priority)
        )
    for priority in range(1, 40):
        match = {"h.w.x": source.choice((0, 1, 15, 8))}
        for key, bits in (("h.w.a", 129), ("h.w.by", 16)):
            low, high = sorted((_sample(source.randrange(SAMPLES), bits), edge(source, bits)))
            if (low, high) != (0, (1 << bits) - 1):
                match[key] = (low, high)
        updates.append(client.insert("by_range", match, "mark", 2000 + priority, priority=priority))
    return updates


def stack_packet(source: random.Random) -> Packet:
    """Ethernet, choice_t and items up to one that says it is the last; mostly four."""
    data = source.randbytes(12) + b"\x12\x34"
    data += bytes([source.randrange(STACK_OPS), source.randrange(256), source.randrange(256), 0])
    count = source.choice((1, 2, 3, 4, 4, 4, 4, 4, 5))
    same = source.random() < 0.4
    items: list[bytes] = []
    for number in range(1, count + 1):
        last = number == count
        item = bytes([last << 7 | edge(source, 7), edge(source, 8)])
        item += edge(source, 160).to_bytes(20) + edge(source, 24).to_bytes(3)
        items.append(items[0] if same and items and not last else item)
    data += b"".join(items) + source.randbytes(source.randrange(12))
    return source.randrange(1, 5), mutated(source, data)


WIDE = (
    Scenario("wide", wide_updates, wide_packet),
    Scenario("stacks", nothing, stack_packet),
)
