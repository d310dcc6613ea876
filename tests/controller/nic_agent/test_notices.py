# SPDX-License-Identifier: Apache-2.0
"""Whom a NIC's agent tells of its ports, when, on which planes: against a NIC that only sends."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import NamedTuple, cast

import pytest

from controller.addressing import EntropyValue, host_address
from controller.fabric import Fabric
from controller.nic_agent import notices
from controller.nic_agent.notices import Notices, NoticeSchedule, way
from controller.nic_agent.registers import Op
from controller.nic_agent.session import NicSession, NicUnavailableError
from mrc.headers import Erth
from mrc.opcodes import EndpointOp
from mrc.packet import Packet, parse_packet
from topologies.schema import Topology

FABRIC = Fabric.from_topology(
    Topology(name="four", planes=4, t0_per_plane=3, t1_per_plane=2, hosts_per_t0_group=2)
)
NIC = "n0-0"
OWN = host_address(0, 0)
OTHERS = [host_address(group, host) for group in range(3) for host in range(2)][1:]


class TestSchedule:
    def test_nothing_happens_as_long_as_all_is_well(self) -> None:
        schedule = NoticeSchedule()
        schedule.change(0, 5.0)
        assert (schedule.next_s, schedule.due(1e9)) == (inf, 0)

    def test_three_at_once_and_one_each_second(self) -> None:
        schedule = NoticeSchedule()
        schedule.change(0b10, 5.0)
        assert schedule.due(5.0) == 3
        for now_s in (6.0, 7.0, 8.0):
            assert schedule.next_s == now_s
            assert schedule.due(now_s - 0.01) == 0
            assert schedule.due(now_s) == 1
        schedule.change(0b10, 8.2)
        assert schedule.due(8.2) == 0

    def test_another_port_goes_down(self) -> None:
        schedule = NoticeSchedule()
        schedule.change(0b10, 5.0)
        schedule.due(5.0)
        schedule.change(0b11, 5.5)
        assert schedule.due(5.5) == 3
        assert schedule.next_s == 6.5

    def test_recovery_three_and_one_more(self) -> None:
        schedule = NoticeSchedule()
        schedule.change(0b10, 5.0)
        schedule.due(5.0)
        schedule.change(0, 5.5)
        assert schedule.due(5.5) == 3
        assert schedule.next_s == 6.5
        assert schedule.due(6.5) == 1
        assert schedule.next_s == inf

    def test_what_could_not_be_sent_is_sent_again(self) -> None:
        schedule = NoticeSchedule()
        schedule.change(0b10, 5.0)
        assert schedule.due(5.0) == 3
        schedule.again(3, 5.1)
        assert schedule.due(5.1) == 3
        assert schedule.due(6.1) == 1


class TestWay:
    @pytest.mark.parametrize("down", range(15))
    def test_each_live_plane_in_turn_and_then_other_uplinks(self, down: int) -> None:
        live = [plane for plane in range(4) if not down >> plane & 1]
        found = [way(4, down, 3, turn) for turn in range(3 * len(live))]
        expected = [EntropyValue(plane, uplink) for uplink in range(3) for plane in live]
        assert found == expected

    def test_no_plane_alive(self) -> None:
        assert way(4, 0b1111, 3, 7) is None


class Said(NamedTuple):
    """One notice."""

    peer: int
    plane: int
    uplink: int
    mask: int
    at_s: float


class FakeNic:
    """Sends what it is handed, as long as it can be reached; knows these peers."""

    def __init__(self, *peers: int) -> None:
        self.name = NIC
        self.ready = asyncio.Event()
        self.ready.set()
        self.reachable = True
        self.known = set(peers)
        self.down = 0
        self.said: list[Said] = []

    async def peers(self) -> set[int]:
        await asyncio.sleep(0.001)
        return set(self.known)

    async def packet_out(self, payload: bytes, *, op: int, index: int, value: int) -> None:
        if not self.reachable:
            raise NicUnavailableError("the NIC is gone")
        assert (op, index, value) == (Op.INJECT, 0, 0)
        packet = parse_packet(payload[14:], verify=True)
        assert isinstance(packet, Packet)
        assert packet.ipv6.source == OWN.to_bytes(16, "big")
        (erth,) = packet.headers
        assert isinstance(erth, Erth) and erth.op == EndpointOp.PORT_STATUS_UPDATE
        path = EntropyValue.from_wire(packet.ipv6.flow_label & 0xFFFF, 0)
        peer = int.from_bytes(packet.ipv6.destination, "big")
        self.said.append(
            Said(peer, path.plane, path.uplink, erth.port_status_mask, time.monotonic())
        )

    def to(self, peer: int) -> list[Said]:
        return [one for one in self.said if one.peer == peer]


@contextmanager
def telling(nic: FakeNic) -> Iterator[Notices]:
    """Notices at work, within a running loop."""
    found = Notices(FABRIC, cast(NicSession, nic), lambda: nic.down)
    task = asyncio.create_task(found.run())
    try:
        yield found
        assert not task.done()
    finally:
        task.cancel()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.002)


@pytest.fixture
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "REPEAT_S", 0.2)
    monkeypatch.setattr(notices, "RETRY_S", 0.02)


FASTER = pytest.mark.usefixtures("faster")


@FASTER
def test_each_peer_hears_it_on_three_planes_and_then_again_and_again() -> None:
    async def work() -> None:
        peers = OTHERS[1:3]
        nic = FakeNic(*peers, OWN)
        with telling(nic) as agent:
            await asyncio.sleep(0.05)
            assert nic.said == []
            nic.down = 0b0100
            agent.hear()
            # Before it has asked the NIC, everybody.
            await until(lambda: len(nic.said) == 15)
            assert Counter(one.peer for one in nic.said) == dict.fromkeys(OTHERS, 3)
            for peer in OTHERS:
                assert [one.plane for one in nic.to(peer)] == [0, 1, 3]
                assert {one.mask for one in nic.to(peer)} == {0b1011}
            await until(lambda: len(nic.said) == 19)
            assert [one.peer for one in nic.said[15:]] == peers * 2
            first, second = nic.said[14].at_s, nic.said[17].at_s
            assert 0.38 < second - first < 1.0
            assert agent.sent == 19

    asyncio.run(work())


@FASTER
def test_all_up_again_is_said_three_times_and_once_later() -> None:
    async def work() -> None:
        nic = FakeNic(OTHERS[3])
        nic.down = 0b0001
        with telling(nic) as agent:
            await until(lambda: len(nic.to(OTHERS[3])) == 3)
            nic.down = 0
            agent.hear()
            await asyncio.sleep(0.7)
        said = nic.to(OTHERS[3])
        assert [one.mask for one in said] == [0b1110] * 3 + [0b1111] * 4
        assert len({one.plane for one in said[3:6]}) == 3

    asyncio.run(work())


@FASTER
def test_who_becomes_a_peer_is_told_with_the_next_notices() -> None:
    async def work() -> None:
        nic = FakeNic(OTHERS[0])
        nic.down = 0b0001
        with telling(nic):
            await until(lambda: len(nic.said) == 16)
            nic.known.add(OTHERS[4])
            before = len(nic.to(OTHERS[4]))
            await until(lambda: len(nic.to(OTHERS[4])) == before + 2)
        assert len(nic.said) <= 16 + 4
        assert [one.peer for one in nic.said[-2:]] == [OTHERS[0], OTHERS[4]]

    asyncio.run(work())


@FASTER
def test_without_peers_in_its_table_all_others_are_told_each_time() -> None:
    async def work() -> None:
        nic = FakeNic()
        nic.down = 0b1000
        with telling(nic):
            await until(lambda: len(nic.said) == 4 * len(OTHERS))
        assert Counter(one.peer for one in nic.said) == dict.fromkeys(OTHERS, 4)

    asyncio.run(work())


@FASTER
def test_in_the_own_t0_group_there_is_one_path_in_each_plane() -> None:
    async def work() -> None:
        nic = FakeNic()
        nic.down = 0b0111
        with telling(nic):
            await until(lambda: len(nic.said) == 3 * len(OTHERS))
        assert {one.uplink for one in nic.to(OTHERS[0])} == {0}
        assert [one.uplink for one in nic.to(OTHERS[1])] == [0, 1, 0]
        assert {one.plane for one in nic.said} == {3}

    asyncio.run(work())


@FASTER
def test_with_all_ports_down_nothing_can_be_said() -> None:
    async def work() -> None:
        nic = FakeNic()
        nic.down = 0b1111
        with telling(nic) as agent:
            await asyncio.sleep(0.3)
            assert nic.said == []
            nic.down = 0b1110
            agent.hear()
            await until(lambda: len(nic.said) == 3 * len(OTHERS))
        assert {(one.plane, one.mask) for one in nic.said} == {(0, 0b0001)}

    asyncio.run(work())


@FASTER
def test_a_nic_that_cannot_be_reached_tells_its_peers_as_soon_as_it_can() -> None:
    async def work() -> None:
        nic = FakeNic(OTHERS[0])
        nic.reachable = False
        nic.down = 0b0001
        with telling(nic):
            await asyncio.sleep(0.05)
            nic.ready.clear()  # another controller holds it
            await asyncio.sleep(0.05)
            nic.reachable = True
            await asyncio.sleep(0.05)
            assert nic.said == []
            nic.ready.set()
            await until(lambda: len(nic.to(OTHERS[0])) == 3)

    asyncio.run(work())
