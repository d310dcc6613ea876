# SPDX-License-Identifier: Apache-2.0
"""fabric.p4: a T0 sends a carrier on by two T1s (`replicate`)."""

from __future__ import annotations

import pytest
from finsy import P4MulticastGroupEntry, P4TableAction, P4TableEntry

from controller.addressing import carrier, host_address, replicate_usid
from controller.drops import DropReason
from mrc.opcodes import Opcode
from ptf_tests.bench import Bench
from ptf_tests.device import Count, Entity, entry
from ptf_tests.packets import NEXT_HEADER_IPV6, ethernet, ipv6, mrc
from ptf_tests.packets import write_of as write_headers
from ptf_tests.queues import Queued
from ptf_tests.world import (
    BLOCK,
    HOSTS,
    OTHER_T0,
    OTHER_T0_USID,
    T0,
    T0_USID,
    arriving,
    down_port,
    downlink_usid,
    leaving,
    t1_usid,
    up_port,
)

IN = down_port(0)
HOST = host_address(T0, 0)
PEER = host_address(OTHER_T0, 2)
UPLINKS = range(HOSTS)  # the world's T0 has as many uplinks as hosts
CAPACITY = 20
REST = OTHER_T0_USID, downlink_usid(2)


def replicate(uplink: int, *others: int, capacity: int = 0) -> list[Entity]:
    """The local uSID of an uplink, and the group by which it goes to another one as well."""
    group = 1 + uplink if others else 0
    action = P4TableAction(
        "replicate",
        multicast_group=group,
        first_port=up_port(uplink),
        second_port=up_port(others[0] if others else uplink),
        capacity=capacity,
    )
    entries: list[Entity] = []
    if others:
        ports = [up_port(each) for each in (uplink, *others)]
        entries.append(P4MulticastGroupEntry(group, replicas=ports))
    entries.append(entry("local_sid", {"local_sid": replicate_usid(uplink)}, action))
    return entries


def uplink_entry(uplink: int) -> P4TableEntry:
    """The T1 behind an uplink."""
    macs = leaving(up_port(uplink))
    action = P4TableAction(
        "to_t1", t1=t1_usid(uplink), dst_mac=macs.destination, src_mac=macs.source
    )
    return entry("replica_uplinks", {"egress_port": up_port(uplink)}, action)


def packet_for(*usids: int, hop_limit: int = 64, ecn: int = 2) -> bytes:
    """A host's WRITE in a carrier."""
    inner = mrc(Opcode.WRITE_ONLY, HOST, PEER, headers=write_headers(1), ecn=ecn, flow_label=0x2008)
    destination = carrier(BLOCK, *usids)
    return ipv6(
        HOST, destination, inner, NEXT_HEADER_IPV6, hop_limit=hop_limit, ecn=ecn, flow_label=0x2008
    )


def sends_on(bench: Bench, uplink: int, *expected: int, dropped: tuple[int, ...] = ()) -> None:
    """A carrier with the local uSID of `uplink` leaves by these uplinks, each copy with the uSID of
    its T1 and the link's MACs; the queues of `dropped` had no room."""
    packet = ethernet(arriving(IN), packet_for(T0_USID, replicate_usid(uplink), *REST))
    before = bench.counters()
    bench.send(IN, packet)
    received = dict(bench.receive(len(expected), before))
    assert received == {
        up_port(each): ethernet(
            leaving(up_port(each)), packet_for(t1_usid(each), *REST, hop_limit=63)
        )
        for each in expected
    }
    cells = [("port_in", IN), *(("port_out", up_port(each)) for each in expected)]
    cells += [("dropped_copies", up_port(each)) for each in dropped]
    bench.expect_counters(before, dict.fromkeys(cells, Count(1, len(packet))))
    bench.expect_nothing()


@pytest.fixture
def replicating(t0: Bench) -> Bench:
    """Every uplink with the next one."""
    for uplink in UPLINKS:
        t0.device.insert(*replicate(uplink, (uplink + 1) % HOSTS))
    t0.device.insert(*map(uplink_entry, UPLINKS))
    return t0


@pytest.mark.parametrize("uplink", UPLINKS)
def test_by_its_uplink_and_by_the_next_one(replicating: Bench, uplink: int) -> None:
    sends_on(replicating, uplink, uplink, (uplink + 1) % HOSTS)


def test_by_one_where_there_is_no_other(t0: Bench) -> None:
    t0.device.insert(*replicate(2), uplink_entry(2))
    sends_on(t0, 2, 2)


def test_uplink_that_is_not_installed(replicating: Bench) -> None:
    packet = packet_for(T0_USID, replicate_usid(HOSTS), *REST)
    replicating.drops(IN, ethernet(arriving(IN), packet), DropReason.UNKNOWN_LOCAL_SID)


def test_needs_the_own_usid_in_front(replicating: Bench) -> None:
    packet = packet_for(replicate_usid(0), *REST)
    replicating.drops(IN, ethernet(arriving(IN), packet), DropReason.NOT_MY_SID)


def test_hop_limit(replicating: Bench) -> None:
    packet = packet_for(T0_USID, replicate_usid(0), *REST, hop_limit=1)
    replicating.drops(IN, ethernet(arriving(IN), packet), DropReason.HOP_LIMIT)


def test_copy_without_a_link_is_dropped_and_counted(t0: Bench) -> None:
    t0.device.insert(*replicate(1, 2), uplink_entry(1))
    packet = ethernet(arriving(IN), packet_for(T0_USID, replicate_usid(1), *REST))
    before = t0.counters()
    t0.send(IN, packet)
    ((port, _),) = t0.receive(1, before)
    assert port == up_port(1)
    cells = [("port_in", IN), ("port_out", up_port(1)), ("drops", DropReason.NO_LINK)]
    t0.expect_counters(before, dict.fromkeys(cells, Count(1, len(packet))))
    t0.expect_nothing()


def test_other_carriers_go_as_before(replicating: Bench) -> None:
    for uplink in UPLINKS:
        replicating.forwards(
            IN,
            ethernet(arriving(IN), packet_for(T0_USID, t1_usid(uplink), *REST)),
            up_port(uplink),
            ethernet(leaving(up_port(uplink)), packet_for(t1_usid(uplink), *REST, hop_limit=63)),
        )


class TestQueues:
    """Copies take places as other packets do, and are made where there is one."""

    @pytest.fixture
    def full(self, queued: Queued) -> Queued:
        """Uplinks 1 and 2 with queues of 20 packets."""
        device = queued.bench.device
        device.insert(*replicate(1, 2, capacity=CAPACITY), uplink_entry(1), uplink_entry(2))
        return queued

    @pytest.mark.parametrize(
        ("depths", "sent"),
        [
            ((0, 0), (1, 2)),
            ((CAPACITY - 1, CAPACITY - 1), (1, 2)),
            ((CAPACITY, CAPACITY - 1), (2,)),
            ((CAPACITY - 1, CAPACITY), (1,)),
        ],
    )
    def test_depths(self, full: Queued, depths: tuple[int, int], sent: tuple[int, ...]) -> None:
        for uplink, depth in zip((1, 2), depths, strict=True):
            full.control.set_depth(up_port(uplink), depth)
        sends_on(full.bench, 1, *sent, dropped=tuple({1, 2} - {*sent}))
        # Who left is the last one admitted: nothing waits any more.
        for uplink, depth in zip((1, 2), depths, strict=True):
            left = 0 if uplink in sent else depth
            assert full.control.depth(up_port(uplink)) == left

    def test_no_room_at_all(self, full: Queued) -> None:
        for uplink in (1, 2):
            full.control.set_depth(up_port(uplink), CAPACITY)
        packet = ethernet(arriving(IN), packet_for(T0_USID, replicate_usid(1), *REST))
        before = full.bench.counters()
        full.bench.send(IN, packet)
        cells = [("port_in", IN), ("drops", DropReason.TAIL_DROP)]
        cells += [("dropped_copies", up_port(uplink)) for uplink in (1, 2)]
        full.bench.expect_counters(before, dict.fromkeys(cells, Count(1, len(packet))))
        full.bench.expect_nothing()

    def test_many(self, full: Queued) -> None:
        for uplink in (1, 2):
            full.control.set_depth(up_port(uplink), 0)
        for _ in range(2 * CAPACITY):
            sends_on(full.bench, 1, 1, 2)
        assert [full.control.depth(up_port(uplink)) for uplink in (1, 2)] == [0, 0]
