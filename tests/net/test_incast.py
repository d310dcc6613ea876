# SPDX-License-Identifier: Apache-2.0
"""Real congestion: switches with slow ports trim what they cannot queue, and lose none unseen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller import addressing as addr
from controller.addressing import DeviceKind
from controller.counters import FabricCounters
from controller.drops import DropReason
from controller.policy import Policy, load_policy
from mrc.agent_client import AgentClient
from mrc.messages import Digest, RegisterRequest, WriteRequest, WriteResult
from tests.net.running import apply, counters, running
from topologies.emulation import Emulation
from topologies.losses import uncounted_losses

pytestmark = pytest.mark.net

TAIL_DROP = Path(__file__).parents[2] / "topologies" / "policies" / "tail-drop.yaml"

PLANES = 2
HOSTS = 5
NIC_T0, T0_T1 = 200, 400  # packets/s of each link
PAYLOAD = 256
PACKETS = 300  # of each sender
QUEUE_DEPTH = 64
RECEIVER = "h1-0"
SENDERS = (*(f"h0-{n}" for n in range(4)), *(f"h1-{n}" for n in range(1, 4)))
VICTIM = ("h0-4", "h1-4")
INCAST_RATE = 100.0  # packets/s of each sender; the receiver's links carry PLANES * NIC_T0
UPLINK_RATE = 300.0  # of each of HOSTS senders; all uplinks together carry PLANES * T0_T1


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulation]:
    """Two T0 groups of five hosts on two planes of one T1, with slow links."""
    topology = tmp_path_factory.mktemp("slow") / "topology.yaml"
    topology.write_text(
        f"name: slow\nplanes: {PLANES}\nt0_per_plane: 2\nt1_per_plane: 1\n"
        f"hosts_per_t0_group: {HOSTS}\nqueue_depth: {QUEUE_DEPTH}\n"
        f"link_rates: {{nic_t0: {NIC_T0}, t0_t1: {T0_T1}}}\n"
    )
    with running(topology, topology.parent / "run") as emulation:
        yield emulation


@dataclass(frozen=True)
class Flow:
    """What became of one message."""

    result: WriteResult
    digest: Digest

    @property
    def arrived(self) -> int:
        """Packets that arrived whole."""
        return self.digest.bytes_present // PAYLOAD


@dataclass(frozen=True)
class Outcome:
    """What became of all messages: at the hosts, and in the switches' counters."""

    flows: Mapping[tuple[str, str], Flow]
    trimmed: Mapping[str, int]  # at all receivers, by kind
    ce_marked: int
    counted: FabricCounters

    def total(self, emulation: Emulation, name: str, *, to_hosts: bool) -> int:
        """Sum of one of the queue counters over the switches' ports to hosts, or to switches."""
        fabric, packets = emulation.fabric, 0
        for switch in fabric.devices(DeviceKind.T0, DeviceKind.T1):
            counts = self.counted.devices[switch.name].queues[name][:, 0]
            hosts = fabric.hosts_per_group if switch.kind is DeviceKind.T0 else 0
            packets += int(counts[1 : hosts + 1].sum() if to_hosts else counts[hosts + 1 :].sum())
        return packets

    def drops(self) -> dict[str, int]:
        """Packets dropped by reason, over all devices."""
        sums = np.sum([device.drops[:, 0] for device in self.counted.devices.values()], axis=0)
        return {
            DropReason(reason).name: int(sums[reason]) for reason in np.flatnonzero(sums).tolist()
        }


async def send_all(
    emulation: Emulation, flows: Sequence[tuple[str, str]], rate: float
) -> tuple[dict[tuple[str, str], Flow], dict[str, dict[str, Any]]]:
    """A message on each (sender, receiver) at the same time; the receivers' statistics after it."""
    inventory, fabric = emulation.inventory, emulation.fabric
    agents = {
        name: AgentClient(inventory.hosts[name].control) for name in {n for f in flows for n in f}
    }
    length = PACKETS * PAYLOAD

    async def write(number: int, sender: str, receiver: str) -> tuple[int, WriteResult]:
        region = await agents[receiver].register(RegisterRequest(length=length))
        nic, port = fabric.neighbour(fabric.host(sender), addr.HOST_PORT)
        request = WriteRequest(
            address=inventory.hosts[receiver].address,
            mac=addr.mac_text(fabric.mac(nic, port)),
            qp=100 + number,
            va=region.va,
            rkey=region.rkey,
            length=length,
            payload=PAYLOAD,
            seed=number,
            rate=rate,
            burst=4,
        )
        return region.rkey, await agents[sender].write(request)

    written = await asyncio.gather(*(write(number, *flow) for number, flow in enumerate(flows)))
    await quiet(agents)
    result = {}
    for flow, (rkey, sent) in zip(flows, written, strict=True):
        result[flow] = Flow(sent, await agents[flow[1]].read_digest(rkey))
        await agents[flow[1]].deregister(rkey)
    receivers = {receiver for _, receiver in flows}
    return result, {name: await agents[name].stats() for name in receivers}


async def quiet(agents: Mapping[str, AgentClient]) -> None:
    """Wait until nothing has arrived anywhere for a while: what waits in queues, too, is out."""
    last, since = -1, time.monotonic()
    while time.monotonic() - since < 1.0:
        await asyncio.sleep(0.1)
        received = sum([(await agent.stats())["frames_received"] for agent in agents.values()])
        if received != last:
            last, since = received, time.monotonic()


def send(emulation: Emulation, flows: Sequence[tuple[str, str]], rate: float) -> Outcome:
    """All flows at once, and everything that was counted meanwhile."""
    receivers = {receiver for _, receiver in flows}
    earlier = {
        name: asyncio.run(AgentClient(emulation.inventory.hosts[name].control).stats())
        for name in receivers
    }
    before = counters(emulation)
    result, stats = asyncio.run(send_all(emulation, flows, rate))
    counted = counters(emulation) - before

    def grown(kind: str) -> int:
        return sum(
            stats[name]["ignored"].get(kind, 0) - earlier[name]["ignored"].get(kind, 0)
            for name in receivers
        )

    def marked(values: dict[str, Any]) -> int:
        return sum(source["ce_marked"] for source in values["sources"])

    return Outcome(
        result,
        {kind: grown(kind) for kind in ("trimmed", "trimmed_lasthop")},
        sum(marked(stats[name]) - marked(earlier[name]) for name in receivers),
        counted,
    )


def assert_nothing_lost_unseen(emulation: Emulation, outcome: Outcome) -> None:
    """Each packet that was sent arrived whole or trimmed, or was dropped and counted."""
    sent = sum(flow.result.packets for flow in outcome.flows.values())
    errors = sum(flow.result.send_errors for flow in outcome.flows.values())
    arrived = sum(flow.arrived for flow in outcome.flows.values())
    dropped = sum(outcome.drops().values())
    assert errors == 0
    assert arrived + sum(outcome.trimmed.values()) + dropped == sent == PACKETS * len(outcome.flows)
    assert uncounted_losses(emulation.fabric, outcome.counted) == {}


def test_incast_is_trimmed_and_a_neighbour_does_not_notice(slow: Emulation) -> None:
    flows = [*((sender, RECEIVER) for sender in SENDERS), VICTIM]
    outcome = send(slow, flows, INCAST_RATE)
    incast = {flow: found for flow, found in outcome.flows.items() if flow != VICTIM}

    # The queues of the receiver's two links must have filled: more came than they hold and send.
    seconds = max(flow.result.duration_ns for flow in incast.values()) / 1e9
    offered = sum(flow.result.packets for flow in incast.values())
    overflow = offered - PLANES * (QUEUE_DEPTH + NIC_T0 * seconds)
    assert overflow > 0.1 * offered, f"{offered} packets in {seconds:.1f} s: no congestion"

    assert outcome.trimmed["trimmed_lasthop"] >= 0.8 * overflow
    assert outcome.trimmed["trimmed"] == 0, "nowhere else is congestion"
    trimmed = outcome.total(slow, "trim_packets", to_hosts=True)
    assert trimmed == outcome.trimmed["trimmed_lasthop"]
    assert outcome.drops() == {}
    assert outcome.total(slow, "ecn_marked_packets", to_hosts=True) == 0
    missing = sum(PACKETS - flow.arrived for flow in incast.values())
    assert missing == trimmed
    assert_nothing_lost_unseen(slow, outcome)

    victim = outcome.flows[VICTIM]
    assert victim.arrived == PACKETS, "a flow to another host loses nothing"
    assert PACKETS / (victim.result.duration_ns / 1e9) > 0.95 * INCAST_RATE


def test_full_uplinks_mark_and_trim(slow: Emulation) -> None:
    flows = [(f"h0-{n}", f"h1-{n}") for n in range(HOSTS)]
    outcome = send(slow, flows, UPLINK_RATE)

    seconds = max(flow.result.duration_ns for flow in outcome.flows.values()) / 1e9
    offered = sum(flow.result.packets for flow in outcome.flows.values())
    overflow = offered - PLANES * (QUEUE_DEPTH + T0_T1 * seconds)
    assert overflow > 0.1 * offered, f"{offered} packets in {seconds:.1f} s: no congestion"

    assert outcome.trimmed["trimmed"] >= 0.8 * overflow
    assert outcome.trimmed["trimmed"] == outcome.total(slow, "trim_packets", to_hosts=False)
    assert outcome.drops() == {}
    # Whoever arrives whole has waited in a queue that is full, and most carry a mark.
    arrived = sum(flow.arrived for flow in outcome.flows.values())
    assert outcome.ce_marked > arrived / 2
    assert outcome.total(slow, "ecn_marked_packets", to_hosts=False) >= outcome.ce_marked
    assert outcome.total(slow, "ecn_marked_packets", to_hosts=True) == 0
    assert_nothing_lost_unseen(slow, outcome)


def test_without_trimming_every_loss_is_a_counted_tail_drop(slow: Emulation) -> None:
    apply(slow, load_policy(TAIL_DROP))
    try:
        outcome = send(slow, [(sender, RECEIVER) for sender in SENDERS], INCAST_RATE)
    finally:
        apply(slow, Policy())
    lost = sum(PACKETS - flow.arrived for flow in outcome.flows.values())
    assert lost > 0.1 * PACKETS * len(SENDERS), "no congestion"
    assert outcome.trimmed == {"trimmed": 0, "trimmed_lasthop": 0}
    assert outcome.drops() == {"TAIL_DROP": lost}
    assert outcome.total(slow, "dropped_packets", to_hosts=True) == lost
    assert outcome.total(slow, "ecn_marked_packets", to_hosts=False) == 0
    assert_nothing_lost_unseen(slow, outcome)
