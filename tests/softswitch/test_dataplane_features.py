# SPDX-License-Identifier: Apache-2.0
"""Exact answers where BMv2's cannot be recorded: chance, digests, truncated and repeated copies."""

from __future__ import annotations

import pytest

from softswitch.errors import DataplaneError
from softswitch.values import Digest
from tests.softswitch.dataplanes import field, loaded, probe

HEADERS = 14 + 37


def test_random_keeps_its_bounds_and_follows_the_seed() -> None:
    drawn = []
    for _ in range(2):
        with loaded("random", seed=5) as dataplane:
            drawn.append([dataplane.process(1, probe())[0][1] for _ in range(2000)])
    assert drawn[0] == drawn[1]
    values = {name: [field(p, name) for p in drawn[0]] for name in "abcdy"}
    assert set(values["a"]) == {10, 11, 12}
    assert set(values["b"]) == {7}
    assert min(values["d"]) >= 0x100000000
    assert max(values["d"]) <= 0x1000003E7
    assert len(set(values["d"])) > 800
    for name, bits in (("c", 32), ("y", 13)):
        top = 1 << bits
        assert min(values[name]) < top // 50
        assert max(values[name]) > top - top // 50
        assert abs(sum(values[name]) / 2000 / top - 0.5) < 0.04
    for choice in (10, 11, 12):
        assert 570 < values["a"].count(choice) < 770


def test_digests_hold_the_fields_even_of_dropped_packets() -> None:
    with loaded("random") as dataplane:
        assert len(dataplane.process(1, probe(op=1, x=7))) == 0
        wide = (1 << 128) - 3
        dataplane.process(2, probe(op=2, e=wide, j=-2, macs=bytes(6) + b"\x01\x02\x03\x04\x05\x06"))
        dataplane.process(2, probe(op=3))
        first, second = dataplane.next_event(0), dataplane.next_event(0)
        assert isinstance(first, Digest)
        assert isinstance(second, Digest)
        assert first.fields[0] == 1
        assert second.fields == [wide, 0x010203040506, 0xFFFE]
        assert first.name != second.name
        assert dataplane.next_event(0) is None


def test_a_port_may_be_twice_in_a_group() -> None:
    with loaded("multicast") as dataplane:
        dataplane.set_multicast_group(2, [(4, 2), (4, 5), (1, 2)])
        left = dataplane.process(3, probe(x=2, a=9, payload=b"tail"))
        assert [port for port, _ in left] == [4, 4, 1]
        assert [field(packet, "b") for _, packet in left] == [2, 5, 2]
        assert all(packet.endswith(b"tail") for _, packet in left)
        dataplane.delete_multicast_group(2)
        assert dataplane.process(3, probe(x=2)) == []


@pytest.mark.parametrize(("session_length", "expected"), [(0, HEADERS + 20), (40, 40), (500, 71)])
def test_clones_are_cut_to_the_session_s_length(session_length: int, expected: int) -> None:
    with loaded("clone") as dataplane:
        dataplane.set_clone_session(5, [(3, 1)], session_length)
        left = dict(dataplane.process(1, probe(op=1, payload=bytes(20))))
        assert {port: len(packet) for port, packet in left.items()} == {
            2: HEADERS + 20,
            3: expected,
        }
        dataplane.delete_clone_session(5)
        assert [port for port, _ in dataplane.process(1, probe(op=1))] == [2]


def test_registers_are_read_and_written_from_outside() -> None:
    with loaded("state") as dataplane:
        sums = dataplane.registers["ingress.sums"]
        dataplane.process(1, probe(op=3, d=5))
        ((_, packet),) = dataplane.process(1, probe(op=3, d=7))
        assert field(packet, "d") == 5
        assert sums.read(3) == 12
        sums.write(3, (1 << 64) - 1)
        dataplane.process(1, probe(op=3, d=2))
        assert sums.read(3) == 1
        wides = dataplane.registers["ingress.wides"]
        wides.write(1, 1 << 127)
        dataplane.process(1, probe(x=1, e=1))
        assert wides.read(1) == 1 << 127 | 1
        for index in (-1, 16):
            with pytest.raises(DataplaneError, match="allowed: 0 to 15"):
                sums.read(index)
        with pytest.raises(DataplaneError, match="does not fit 64 bits"):
            sums.write(0, 1 << 64)


def test_counters_count_what_arrived() -> None:
    with loaded("state") as dataplane:
        both = dataplane.counters["ingress.both"]
        for size in (0, 10, 100):
            dataplane.process(1, probe(x=6, payload=bytes(size)))
        assert both.read(6) == (3, 3 * HEADERS + 110)
        assert dataplane.counters["egress.leaving"].read(2) == (3, 3 * HEADERS + 110)
        both.write(6, 1, 2)
        assert both.read(6) == (1, 2)
        assert both.read(5) == (0, 0)


def test_resubmit_and_recirculate_end_with_the_program_s_count() -> None:
    with loaded("loops") as dataplane:
        ((_, packet),) = dataplane.process(1, probe(op=3, a=0))
        assert field(packet, "a") == 3
        ((_, packet),) = dataplane.process(1, probe(op=1))
        assert packet[5] == 3
