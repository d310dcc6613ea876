# SPDX-License-Identifier: Apache-2.0
"""A data plane without ports, and packets for the feature programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from softswitch.dataplane import Dataplane
from softswitch.values import DataplaneOptions
from tests.softswitch.scenarios import PROGRAMS

CPU_PORT = 510
FIELDS = {"op": 8, "x": 3, "y": 13, "a": 8, "b": 16, "c": 32, "d": 64, "e": 128, "i": 8, "j": 16}


def program(name: str) -> bytes:
    """The BMv2 JSON of a feature program."""
    return (PROGRAMS / f"{name}.json").read_bytes()


@contextmanager
def loaded(name: str, **options: Any) -> Iterator[Dataplane]:
    """A data plane with a feature program."""
    dataplane = Dataplane(DataplaneOptions(cpu_port=CPU_PORT, **options))
    try:
        dataplane.load(program(name))
        yield dataplane
    finally:
        dataplane.close()


def probe(payload: bytes = b"", macs: bytes = bytes(12), **fields: int) -> bytes:
    """Ethernet and probe_t (see programs/include/probe.p4); fields that are not named are 0."""
    unknown = set(fields) - set(FIELDS)
    assert not unknown, f"no fields {unknown}"
    value = 0
    for name, bits in FIELDS.items():
        value = value << bits | fields.get(name, 0) & (1 << bits) - 1
    return macs + bytes(2) + value.to_bytes(sum(FIELDS.values()) // 8) + payload


def field(packet: bytes, name: str) -> int:
    """The raw bits of a field of probe_t."""
    value = int.from_bytes(packet[14 : 14 + sum(FIELDS.values()) // 8])
    for last, bits in reversed(FIELDS.items()):
        if last == name:
            return value & (1 << bits) - 1
        value >>= bits
    raise KeyError(name)
