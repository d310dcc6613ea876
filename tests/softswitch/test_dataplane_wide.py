# SPDX-License-Identifier: Apache-2.0
"""Numbers beyond 128 bits from outside: registers, digests, entries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from softswitch.dataplane import Dataplane
from softswitch.errors import InvalidArgument
from softswitch.values import ActionCall, Digest, FieldMatch
from tests.softswitch.dataplanes import loaded
from tests.softswitch.scenarios_wide import WIDE_FIELDS, wide_header


@pytest.fixture
def wide() -> Iterator[Dataplane]:
    with loaded("wide") as dataplane:
        yield dataplane


def process(dataplane: Dataplane, **fields: int) -> dict[str, int]:
    """The fields of wide_t after the switch."""
    ((port, data),) = dataplane.process(1, bytes(14) + wide_header(fields))
    assert port == 2
    value = int.from_bytes(data[14:])
    found = {}
    for name, bits in reversed(WIDE_FIELDS.items()):
        found[name] = value & (1 << bits) - 1
        value >>= bits
    return found


@pytest.mark.parametrize(("register", "op", "field", "bits"), [
    ("ingress.kept", 15, "b", 256),
    ("ingress.narrow", 16, "a", 129),
])  # fmt: skip
def test_registers(wide: Dataplane, register: str, op: int, field: str, bits: int) -> None:
    cells = wide.registers[register]
    top = 1 << bits - 1
    cells.write(3, top | 1)
    assert process(wide, op=op, by=3, **{field: 2})[field] == top | 1
    assert cells.read(3) == top | 3
    assert cells.read(2) == 0
    with pytest.raises(InvalidArgument, match=f"does not fit {bits} bits"):
        cells.write(3, top << 1)


def test_digests(wide: Dataplane) -> None:
    fields = {"a": 1 << 128 | 5, "s": -3, "m": 1 << 2047 | 9, "note": 7}
    process(wide, op=24, **fields)
    event = wide.next_event(0)
    assert isinstance(event, Digest)
    assert event.fields == [fields["a"], (1 << 200) - 3, fields["m"], 7]


def test_the_last_bit_of_a_key_decides(wide: Dataplane) -> None:
    table = wide.tables["ingress.by_ternary"]
    low, high = 1 << 1000, 1 << 1000 | 1 << 1023
    for value, note in ((low, 1), (high, 2)):
        keys = [FieldMatch(value, (1 << 1024) - 1), FieldMatch(0, 1 << 319), FieldMatch(19)]
        table.insert(keys, 1, ActionCall("ingress.mark", (note,)))
    assert process(wide, op=19, k=low)["note"] == 1
    assert process(wide, op=19, k=high, c=5)["note"] == 2
    assert process(wide, op=19, k=high, c=1 << 319, note=9)["note"] == 9
    assert process(wide, op=19, k=low | 2, note=9)["note"] == 9


def test_a_range_ends_where_its_field_does(wide: Dataplane) -> None:
    """Other keys share the word in which a wide one ends."""
    keys = [FieldMatch(5, high=1 << 128), FieldMatch(100, high=200), FieldMatch(15)]
    wide.tables["ingress.by_range"].insert(keys, 1, ActionCall("ingress.mark", (3,)))
    assert process(wide, op=20, a=5, by=100, x=15)["note"] == 3
    assert process(wide, op=20, a=1 << 128, by=200, x=15)["note"] == 3
    assert process(wide, op=20, a=4, by=150, x=15)["note"] == 0
    assert process(wide, op=20, a=(1 << 128) + 1, by=100, x=15)["note"] == 0
    assert process(wide, op=20, a=6, by=201, x=15)["note"] == 0
