# SPDX-License-Identifier: Apache-2.0
"""Scenarios of copies, digests, the controller's packets and parser errors, and random entries."""

from __future__ import annotations

import random
from typing import Any

from tests.softswitch.controller_port import CPU_PORT
from tests.softswitch.p4rt import RawClient
from tests.softswitch.scenarios import (
    FIRST_BYTES,
    Packet,
    Scenario,
    multicast,
    mutated,
    nothing,
    probe,
    session,
)


def digest_packet(source: random.Random) -> Packet:
    """A probe with any addresses: equal digests would count as repetitions."""
    return probe(source, 32)


def combined_packet(source: random.Random) -> Packet:
    """A probe that asks for few or many things."""
    port, data = probe(source)
    changed = bytearray(data)
    for at in (14, 17):  # op, a
        if len(changed) > at:
            wanted = source.getrandbits(8) & source.choice((0xFF, source.getrandbits(8)))
            changed[at] = wanted & 0x7F if source.random() < 0.8 else wanted
    return port, bytes(changed)


def controller_packet(source: random.Random) -> Packet:
    """From the wires, and from the controller with a header in front."""
    data = source.randbytes(12) + source.choice((b"\x12\x34", source.randbytes(2)))
    data = mutated(source, data + source.randbytes(source.randrange(60)))
    if source.random() < 0.6:
        return source.randrange(1, 5), data
    port = source.choice((1, 2, 3, 4, CPU_PORT, 511, 77))
    flags = source.choice((0, 0x40, source.getrandbits(7)))
    return CPU_PORT, (port << 7 | flags).to_bytes(2) + data


def errors_packet(source: random.Random) -> Packet:
    """For errors.p4: headers of a few bytes, cut anywhere behind the 14 that a socket needs."""
    kind = source.randrange(16) | source.choice((0, 0, 0x10, 0xF0))
    data = bytes([kind, source.choice((0, 8, 16, 4, 3, 80, 255))]) + source.randbytes(2)
    low = source.choice((0, 7, 8, 9, 15, source.randrange(16)))
    high = source.choice((0, 1, source.getrandbits(12)))
    data += (low << 12 | high).to_bytes(2) + source.randbytes(3)
    for _ in range(source.randrange(5)):
        data += bytes([source.choice((0, 1, 2, 3, 255)), source.randrange(256)])
    data += source.randbytes(source.randrange(12))
    return source.randrange(1, 5), data.ljust(FIRST_BYTES, b"\0")[: source.randrange(14, 40)]


def combined_updates(client: RawClient) -> list[Any]:
    """Sessions 4 to 6 and groups 1 to 3; sessions 7 and groups 4 to 7 are missing."""
    del client
    return [
        session(4, (2, 3)),
        session(5, (3, 1), (4, 9)),
        session(6, (CPU_PORT, 2)),
        multicast(1, (1, 1), (2, 2), (3, 3)),
        multicast(2, (4, 2), (CPU_PORT, 5)),
        multicast(3, (2, 0)),
    ]


def controller_updates(client: RawClient) -> list[Any]:
    """An entry for each action; clones go to the controller, group 1 too."""
    actions: tuple[tuple[Any, ...], ...] = (
        *(("punt", 5), ("copy", 6), ("forward", 3), ("spread", 1), ("drop",)),
        *(("forward", CPU_PORT), ("spread", 9), ("copy", 127), ("punt", 0), ("forward", 511)),
    )
    updates = [session(5, (CPU_PORT, 1)), multicast(1, (2, 7), (CPU_PORT, 8), (4, 9))]
    for kind, action in enumerate(actions):
        updates.append(client.insert("decide", {"kind": kind, "whole": 1}, *action))
    return updates


def _any(program: str, *names: str) -> Scenario:
    """A program with random entries in these tables and profiles."""
    return Scenario(f"{program}-any", nothing, probe, program, any_entries=names)


COPIES = (
    Scenario("digest", nothing, digest_packet),
    Scenario("combined", combined_updates, combined_packet),
    Scenario("controller", controller_updates, controller_packet),
    Scenario("errors", nothing, errors_packet, any_entries=("by_parts", "by_checksum")),
    _any("keys", "by_exact", "by_optional", "by_everything", "by_range", "keyless"),
    _any("match", "by_lpm", "by_ternary", "by_range"),
    _any("selector", "marks", "choices", "marking", "choosing"),
    _any("control", "choose", "again"),
)
