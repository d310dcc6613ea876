# SPDX-License-Identifier: Apache-2.0
"""Reliable writes across whole fabrics, and what their retransmissions do to the NICs' paths."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from controller import addressing as addr
from controller.addressing import DeviceKind
from controller.counters import FabricCounters
from controller.fabric import Fabric
from mrc.agent_client import AgentClient
from mrc.connecting import ConnectingEnd, QpEnd, connect
from mrc.messages import Delivery, Digest, RegisterRequest, WriteResult
from mrc.pattern import pattern_sha256
from tests.net.nic_agents import restart_agent
from tests.net.running import counters, running
from topologies.emulation import NIC_AGENT, Emulation
from topologies.processes import REPOSITORY
from topologies.schema import load_topology

pytestmark = pytest.mark.net

MINI = REPOSITORY / "topologies" / "mini.yaml"
FABRIC = Fabric.from_topology(load_topology(MINI))
SOURCE, DESTINATION = "h0-0", "h1-1"
RATE = 1000.0  # packets/s of each sender
PAYLOAD = 256
WRITE_TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulation]:
    with running(MINI, tmp_path_factory.mktemp("mini") / "run") as emulation:
        yield emulation


class Written(NamedTuple):
    """What became of a write."""

    result: WriteResult
    delivery: Delivery
    digest: Digest

    @property
    def again(self) -> int:
        """Retransmissions of any cause."""
        return sum(self.delivery.retransmissions.values())

    def assert_arrived(self, seed: int, packets: int) -> None:
        """Every byte once, and the right one."""
        length = packets * PAYLOAD
        assert self.digest.missing == []
        assert self.digest.bytes_placed == length
        assert self.digest.sha256 == self.result.sha256 == pattern_sha256(seed, length)


def connecting(emulation: Emulation, host: str) -> ConnectingEnd:
    nic, port = FABRIC.neighbour(FABRIC.host(host), addr.HOST_PORT)
    agent = AgentClient(emulation.inventory.hosts[host].control)
    return ConnectingEnd(agent, addr.mac_text(FABRIC.mac(nic, port)))


async def write(end: QpEnd, to: AgentClient, seed: int, packets: int, **choices: Any) -> Written:
    """Write so many packets, and see what has arrived."""
    region = await to.register(RegisterRequest(length=packets * PAYLOAD))
    request = end.write_request(
        region, **{"seed": seed, "rate": RATE, "burst": 4, "payload": PAYLOAD, **choices}
    )
    result = await end.agent.write(request, WRITE_TIMEOUT_S)
    digest = await to.read_digest(region.rkey)
    await to.deregister(region.rkey)
    assert result.delivery is not None
    return Written(result, result.delivery, digest)


async def on_new_qp(
    emulation: Emulation, source: str, destination: str, counts: Sequence[int], **choices: Any
) -> list[Written]:
    """Writes of so many packets, one after the other, over a QP of their own."""
    here, there = connecting(emulation, source), connecting(emulation, destination)
    ends = await connect(here, there)
    try:
        return [
            await write(ends[0], there.agent, seed, packets, **choices)
            for seed, packets in enumerate(counts)
        ]
    finally:
        for end in ends:
            await end.destroy()


def test_next_to_nothing_is_sent_twice_on_a_healthy_fabric(mini: Emulation) -> None:
    """Spraying reorders, and no path may be retired for that.

    A switch that a busy machine stops for longer than the reordering guard makes a gap, too.
    """
    hosts = [host.name for host in FABRIC.devices(DeviceKind.HOST)]
    ring = zip(hosts, (*hosts[1:], hosts[0]), strict=True)
    rate = RATE / len(hosts)

    async def all_at_once() -> list[list[Written]]:
        return await asyncio.gather(
            *(on_new_qp(mini, source, target, [1200], rate=rate) for source, target in ring)
        )

    for (written,) in asyncio.run(all_at_once()):
        written.assert_arrived(0, 1200)
        assert written.again <= 2
        assert (written.delivery.timeouts, written.result.send_errors) == (0, 0)


def test_what_a_lossy_wire_drops_is_sent_again(mini: Emulation) -> None:
    wire = mini.wires.between("p0t0-0", "p0t1-1")
    mini.wires.loss(wire, 30)
    try:
        (written,) = asyncio.run(on_new_qp(mini, SOURCE, DESTINATION, [3000]))
    finally:
        mini.wires.restore(wire)
    written.assert_arrived(0, 3000)
    assert written.again > 0
    assert set(written.delivery.retransmissions) == {"gap"}
    print(f"lossy wire: {written.again} of 3000 sent again, {written.delivery}")


def test_the_nic_leaves_a_dead_path_for_good(mini: Emulation) -> None:
    """The first retransmissions retire it; then no packet takes it, and none is lost.

    Without the NICs' agent, whose probes would take it.
    """
    t0, t1 = "p1t0-0", "p1t1-0"
    wire = mini.wires.between(t0, t1)
    mini.wires.blackhole(wire)
    mini.kill(NIC_AGENT)
    try:
        start = counters(mini)
        (first,) = asyncio.run(on_new_qp(mini, SOURCE, DESTINATION, [1000]))
        middle = counters(mini)
        (second,) = asyncio.run(on_new_qp(mini, SOURCE, DESTINATION, [2000]))
        end = counters(mini)
    finally:
        mini.wires.restore(wire)
        restart_agent(mini)
    first.assert_arrived(0, 1000)
    second.assert_arrived(0, 2000)
    lost = to_neighbour(middle - start, t0, t1)
    assert 0 < lost < 1000 / 4 / 2, "a quarter of all would take it if it were not left"
    assert first.again == lost, "what the wire swallowed, and nothing else, is sent again"
    print(
        f"dead path: {lost} packets lost, RTT {(first.delivery.srtt_ns or 0) / 1e6:.1f} ms, "
        f"reordering guard {first.delivery.reorder_guard_ns / 1e6:.1f} ms"
    )
    assert to_neighbour(end - middle, t0, t1) == 0
    assert second.again == 0


def to_neighbour(counted: FabricCounters, a: str, b: str) -> int:
    """Packets that `a` sent to `b`."""
    device = FABRIC.device(a)
    for port in range(1, FABRIC.hosts_per_group + FABRIC.uplinks + 1):
        if FABRIC.neighbour(device, port)[0].name == b:
            return int(counted.devices[a].port_out[port, 0])
    raise AssertionError(f"{a} is not wired to {b}")
