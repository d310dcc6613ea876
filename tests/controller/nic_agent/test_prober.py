# SPDX-License-Identifier: Apache-2.0
"""What the agent probes, against a NIC that is only registers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import cast

import pytest

from controller.addressing import EntropyValue, host_address
from controller.ev_events import EvCause, EvEvent, EvState, PlaneChange
from controller.fabric import Fabric
from controller.nic_agent.bad_paths import BadPath, DownPlane
from controller.nic_agent.prober import Prober, Turns
from controller.nic_agent.registers import Op
from controller.nic_agent.session import NicSession, NicUnavailableError
from controller.nic_entries import path_index
from mrc.headers import Erth
from mrc.opcodes import EndpointOp
from mrc.packet import Packet, parse_packet
from topologies.schema import Topology

FABRIC = Fabric.from_topology(
    Topology(name="four", planes=2, t0_per_plane=3, t1_per_plane=4, hosts_per_t0_group=2)
)
NIC = "n0-0"
SUCCESSES = 3


class FakeNic:
    """Registers that take every probe as answered as long as `works`."""

    def __init__(self, *bad: BadPath, down: tuple[DownPlane, ...] = ()) -> None:
        self.name = NIC
        self.ready = asyncio.Event()
        self.ready.set()
        self.works = True
        self.reachable = True
        self.bad = dict.fromkeys(bad, 0)  # with the answers so far
        self.down = set(down)
        self.frames: list[Packet] = []
        self.asked: Counter[int] = Counter()

    async def exchange(self, op: int, index: int, value: int = 0) -> int:
        self._reach()
        self.asked[op] += 1
        if op == Op.READ_ASSUMED:
            return sum(1 << what.plane for what in self.down if what.group == index)
        here = [path for path in self.bad if path[:2] == (index >> 3, index & 7)]
        if op == Op.READ_INACTIVE:
            return len(here)
        assert op == Op.READ_PATH
        for path in here:
            if path_index(FABRIC, *path) == value >> 32:
                return EvState.ASSUMED_BAD << 6 | self.bad[path]
        return 0

    async def packet_out(self, payload: bytes, *, op: int, index: int, value: int) -> None:
        self._reach()
        assert (op, index, value) == (Op.INJECT, 0, 0)
        packet = parse_packet(payload[14:], verify=True)
        assert isinstance(packet, Packet)
        assert packet.headers == (Erth(op=EndpointOp.EV_PROBE),)
        self.frames.append(packet)
        path = path_of(packet)
        if not self.works:
            return
        self.down.discard(DownPlane(*path[:2]))
        if path in self.bad:
            self.bad[path] += 1
            if self.bad[path] == SUCCESSES:
                del self.bad[path]

    def _reach(self) -> None:
        if not self.reachable:
            raise NicUnavailableError("the NIC is gone")


def path_of(packet: Packet) -> BadPath:
    path = EntropyValue.from_wire(packet.ipv6.flow_label & 0xFFFF, 0)
    return BadPath(int.from_bytes(packet.ipv6.destination[8:14], "big"), path.plane, path.uplink)


def prober(nic: FakeNic, down_planes: int = 0, turns: Turns | None = None) -> Prober:
    return Prober(FABRIC, cast(NicSession, nic), lambda: down_planes, turns or Turns(10_000.0))


async def until(holds: Callable[[], bool], *probers: Prober) -> None:
    """Let them work until it holds."""
    tasks = [asyncio.create_task(prober.run()) for prober in probers]
    try:
        async with asyncio.timeout(5):
            while not holds():
                assert not any(task.done() for task in tasks)
                await asyncio.sleep(0.001)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def event(path: BadPath, after: EvState, cause: EvCause) -> EvEvent:
    return EvEvent(
        NIC, *path, EvState.GOOD, after, cause, PlaneChange.UNCHANGED, generation=0, qp=1, time_us=1
    )


def test_an_event_begins_the_probing_and_the_registers_end_it() -> None:
    async def work() -> None:
        path = BadPath(1, 1, 3)
        nic = FakeNic(path)
        probing = prober(nic)
        probing.hear(event(path, EvState.ASSUMED_BAD, EvCause.LOSS))
        await until(lambda: probing.bad.paths == [], probing)
        assert [path_of(packet) for packet in nic.frames] == [path] * SUCCESSES
        assert probing.sent == SUCCESSES
        assert len({packet.bth.psn for packet in nic.frames}) == SUCCESSES
        # One after the other by different hosts behind the T0.
        targets = [int.from_bytes(packet.ipv6.destination, "big") for packet in nic.frames]
        assert targets == [host_address(1, downlink) for downlink in (0, 1, 0)]
        assert {packet.ipv6.source for packet in nic.frames} == {
            host_address(0, 0).to_bytes(16, "big")
        }

    asyncio.run(work())


def test_in_its_own_t0_group_a_nic_probes_the_other_hosts() -> None:
    async def work() -> None:
        nic = FakeNic(BadPath(0, 1, 0))
        probing = prober(nic)
        probing.scan()
        await until(lambda: not nic.bad, probing)
        other = host_address(0, 1).to_bytes(16, "big")
        assert {packet.ipv6.destination for packet in nic.frames} == {other}

    asyncio.run(work())


def test_a_scan_finds_everything_and_reads_no_paths_of_good_planes() -> None:
    async def work() -> None:
        bad = [BadPath(0, 0, 0), BadPath(2, 1, 0), BadPath(2, 1, 3)]
        nic = FakeNic(*bad, down=(DownPlane(1, 0),))
        nic.works = False
        probing = prober(nic)
        probing.scan()
        await until(lambda: len(nic.frames) >= 4, probing)
        assert sorted(probing.bad.paths) == bad
        assert probing.bad.planes == [DownPlane(1, 0)]
        assert nic.asked[Op.READ_INACTIVE] == FABRIC.groups * FABRIC.planes
        assert nic.asked[Op.READ_ASSUMED] < 20
        # 4 paths of 2 planes, and looks at what was probed
        assert 2 * FABRIC.uplinks <= nic.asked[Op.READ_PATH] <= 2 * FABRIC.uplinks + 20

    asyncio.run(work())


def test_a_plane_that_is_down_comes_back_by_the_path_that_works() -> None:
    async def work() -> None:
        plane = DownPlane(1, 1)
        nic = FakeNic(down=(plane,))
        nic.works = False
        probing = prober(nic)
        probing.scan()
        await until(lambda: len(nic.frames) >= 3, probing)
        assert {path_of(packet)[:2] for packet in nic.frames} == {plane}
        assert [path_of(packet).uplink for packet in nic.frames[:3]] == [0, 1, 0]
        nic.works = True
        await until(lambda: probing.bad.planes == [], probing)

    asyncio.run(work())


def test_a_plane_without_carrier_is_not_probed() -> None:
    async def work() -> None:
        nic = FakeNic(BadPath(1, 0, 2), BadPath(1, 1, 2))
        probing = prober(nic, down_planes=0b10)
        probing.scan()
        await until(lambda: list(nic.bad) == [BadPath(1, 1, 2)], probing)
        assert {path_of(packet).plane for packet in nic.frames} == {0}

    asyncio.run(work())


def test_a_nic_that_cannot_be_reached_is_probed_as_soon_as_it_can() -> None:
    async def work() -> None:
        nic = FakeNic(BadPath(1, 0, 2))
        nic.reachable = False
        probing = prober(nic)
        probing.scan()
        task = asyncio.create_task(probing.run())
        await asyncio.sleep(0.05)
        nic.ready.clear()
        await asyncio.sleep(0.15)
        nic.reachable = True
        await asyncio.sleep(0.15)
        assert nic.asked.total() == 0, "another controller holds it"
        nic.ready.set()
        await until(lambda: not nic.bad)
        assert not task.done()
        task.cancel()

    asyncio.run(work())


@pytest.mark.parametrize("nics", [1, 3])
def test_the_rate_of_all_probes_has_a_limit(nics: int) -> None:
    async def work() -> None:
        turns = Turns(100.0)
        bad = [BadPath(group, 0, uplink) for group in (1, 2) for uplink in range(4)]
        fakes = [FakeNic(*bad) for _ in range(nics)]
        probers = [prober(fake, turns=turns) for fake in fakes]
        for fake, probing in zip(fakes, probers, strict=True):
            fake.works = False
            probing.scan()
        tasks = [asyncio.create_task(probing.run()) for probing in probers]
        await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()
        sent = [probing.sent for probing in probers]
        assert 30 <= sum(sent) <= 52
        assert min(sent) >= sum(sent) / nics / 2

    asyncio.run(work())
