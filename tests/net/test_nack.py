# SPDX-License-Identifier: Apache-2.0
"""Real congestion: every packet that is trimmed is answered by the receiving NIC, to its sender."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from controller import addressing as addr
from controller.peers import Peer, PeersReport, add_peers, delete_peers, read_peers
from mrc.agent_client import AgentClient
from mrc.connecting import ConnectingEnd, QpEnd, connect
from mrc.messages import RegisterRequest, WriteResult
from tests.net.test_incast import (
    HOSTS,
    INCAST_RATE,
    PACKETS,
    PAYLOAD,
    RECEIVER,
    SENDERS,
    UPLINK_RATE,
    Outcome,
    quiet,
    send,
    slow,  # noqa: F401 (a fixture)
)
from topologies.emulation import Emulation
from topologies.losses import uncounted_losses

pytestmark = pytest.mark.net

Flow = tuple[str, str]  # sender, receiver
PATIENCE_S = 120.0
ENOUGH = 0.1  # of all packets must have been trimmed, or there was no congestion
TURNED_ROUND, NO_PEER, NOT_NACKABLE = range(3)


def nic_of(host: str) -> str:
    return f"n{host[1:]}"


@contextmanager
def peers_of(emulation: Emulation, flows: Sequence[Flow], known: Sequence[Flow]) -> Iterator[None]:
    """The receivers' NICs know the senders of these flows; `send` numbers the QPs of all."""
    for number, (sender, receiver) in enumerate(flows):
        if (sender, receiver) in known:
            source = emulation.fabric.host_address(emulation.fabric.host(sender))
            peer = Peer(source, 100 + number, 7000 + number)
            asyncio.run(add_peers(emulation.inventory, nic_of(receiver), [peer]))
    try:
        yield
    finally:
        for receiver in {receiver for _, receiver in known}:
            asyncio.run(delete_peers(emulation.inventory, nic_of(receiver), None))


def nacks(emulation: Emulation, hosts: Sequence[str]) -> dict[str, int]:
    """NACKs that have arrived at each host."""

    async def read(host: str) -> int:
        stats = await AgentClient(emulation.inventory.hosts[host].control).stats()
        return int(stats["opcodes"].get("NACK", 0))

    return {host: asyncio.run(read(host)) for host in hosts}


def reports(emulation: Emulation, flows: Sequence[Flow]) -> dict[str, PeersReport]:
    """What each receiver's NIC says."""
    return {
        receiver: asyncio.run(read_peers(emulation.inventory, nic_of(receiver)))
        for receiver in dict.fromkeys(receiver for _, receiver in flows)
    }


def run(
    emulation: Emulation, flows: Sequence[Flow], known: Sequence[Flow], rate: float
) -> tuple[Outcome, dict[str, int], list[int]]:
    """Send on all flows: the outcome, NACKs by sender, trimmed packets at the NICs by fate.

    Asserts what holds in every case: who was trimmed and is known was answered, packet for packet.
    """
    senders = [sender for sender, _ in flows]
    with peers_of(emulation, flows, known):
        earlier, before = nacks(emulation, senders), reports(emulation, flows)
        outcome = send(emulation, flows, rate)
        answered = {
            sender: count - earlier[sender] for sender, count in nacks(emulation, senders).items()
        }
        after = reports(emulation, flows)
    fates = [
        sum(after[name].trimmed[fate] - before[name].trimmed[fate] for name in after)
        for fate in range(3)
    ]
    missing = {flow: PACKETS - found.arrived for flow, found in outcome.flows.items()}
    lost = sum(missing.values())
    assert lost > ENOUGH * PACKETS * len(flows), "no congestion"
    assert outcome.drops() == {}, "all that is missing was trimmed"
    assert uncounted_losses(emulation.fabric, outcome.counted) == {}
    trimmed = sum(
        outcome.total(emulation, "trim_packets", to_hosts=ports) for ports in (True, False)
    )
    assert trimmed == lost == sum(fates)

    assert answered == {
        sender: missing[sender, receiver] if (sender, receiver) in known else 0
        for sender, receiver in flows
    }
    by_address = {
        (receiver, count.peer.source): count.packets
        for receiver, report in after.items()
        for count in report.peers
    }
    fabric = emulation.fabric
    assert by_address == {
        (receiver, fabric.host_address(fabric.host(sender))): missing[sender, receiver]
        for sender, receiver in known
    }
    assert fates == [
        sum(missing[flow] for flow in known),
        sum(missing[flow] for flow in flows if flow not in known),
        0,
    ]
    assert sum(outcome.trimmed.values()) == fates[NO_PEER], "headers that arrived at the hosts"
    return outcome, answered, fates


def test_incast_is_answered_packet_for_packet(slow: Emulation) -> None:  # noqa: F811
    flows = [(sender, RECEIVER) for sender in SENDERS]
    outcome, answered, _ = run(slow, flows, flows, INCAST_RATE)
    # Whose packets find the queue full is chance: two senders may be spared.
    assert sum(count > 0 for count in answered.values()) >= len(SENDERS) - 2
    assert outcome.total(slow, "trim_packets", to_hosts=False) == 0


def test_headers_of_unknown_senders_go_to_the_host(slow: Emulation) -> None:  # noqa: F811
    flows = [(sender, RECEIVER) for sender in SENDERS]
    _, answered, fates = run(slow, flows, flows[::2], INCAST_RATE)
    assert fates[TURNED_ROUND] > 0 and fates[NO_PEER] > 0
    assert {sender for sender, count in answered.items() if count} <= {*SENDERS[::2]}


def test_without_peers_all_headers_go_to_the_host(slow: Emulation) -> None:  # noqa: F811
    flows = [(sender, RECEIVER) for sender in SENDERS]
    outcome, _, fates = run(slow, flows, [], INCAST_RATE)
    assert outcome.trimmed["trimmed_lasthop"] == fates[NO_PEER]


def test_full_uplinks_are_answered_packet_for_packet(slow: Emulation) -> None:  # noqa: F811
    flows = [(f"h0-{n}", f"h1-{n}") for n in range(HOSTS)]
    outcome, answered, _ = run(slow, flows, flows, UPLINK_RATE)
    assert sum(answered.values()) == outcome.total(slow, "trim_packets", to_hosts=False)
    assert outcome.total(slow, "trim_packets", to_hosts=True) == 0


def test_reliable_writes_are_repaired_by_what_the_nic_answers(slow: Emulation) -> None:  # noqa: F811
    """Seven senders at once, each over a QP: the NIC asks for what was trimmed, not the host."""
    earlier = nacks(slow, SENDERS)
    before = reports(slow, [(SENDERS[0], RECEIVER)])[RECEIVER]
    results, counts, headers = asyncio.run(reliable_incast(slow))
    answered = {sender: count - earlier[sender] for sender, count in nacks(slow, SENDERS).items()}
    after = reports(slow, [(SENDERS[0], RECEIVER)])[RECEIVER]

    total = after.trimmed[TURNED_ROUND] - before.trimmed[TURNED_ROUND]
    assert total > ENOUGH * PACKETS, "no congestion"
    assert after.trimmed[NO_PEER:] == before.trimmed[NO_PEER:]
    assert headers == 0, "none reached the receiver's host"
    assert answered == counts and sum(counts.values()) == total
    repaired = 0
    for sender, result in results.items():
        delivery = result.delivery
        assert delivery is not None
        # A NACK of a packet that was sent again meanwhile counts no more.
        assert delivery.nacks.pop("trimmed_lasthop", 0) <= answered[sender]
        assert delivery.nacks == {}
        repaired += delivery.retransmissions.get("nack_trimmed_lasthop", 0)
    assert repaired > 0.9 * total


async def reliable_incast(
    emulation: Emulation,
) -> tuple[dict[str, WriteResult], dict[str, int], int]:
    """Reliable writes of all senders, which must arrive whole.

    Their results, the NACKs of the NIC by sender, and the trimmed headers that the host was given.
    """
    inventory, fabric = emulation.inventory, emulation.fabric
    receiver = AgentClient(inventory.hosts[RECEIVER].control)

    def mac(host: str) -> str:
        nic, port = fabric.neighbour(fabric.host(host), addr.HOST_PORT)
        return addr.mac_text(fabric.mac(nic, port))

    def trimmed(stats: dict[str, Any]) -> int:
        return sum(stats["ignored"].get(kind, 0) for kind in ("trimmed", "trimmed_lasthop"))

    async def answered() -> dict[int, int]:
        report = await read_peers(inventory, nic_of(RECEIVER))
        return {count.peer.source: count.packets for count in report.peers}

    async def write(sender: str, seed: int) -> WriteResult:
        agent = AgentClient(inventory.hosts[sender].control)
        here, there = await connect(
            ConnectingEnd(agent, mac(sender)), ConnectingEnd(receiver, mac(RECEIVER)), timeout=20
        )
        ends.extend((here, there))
        source = fabric.host_address(fabric.host(sender))
        await add_peers(inventory, nic_of(RECEIVER), [Peer(source, there.qp, here.qp)])
        region = await receiver.register(RegisterRequest(length=PACKETS * PAYLOAD))
        request = here.write_request(region, seed=seed, payload=PAYLOAD, rate=INCAST_RATE)
        result = await agent.write(request, timeout_s=PATIENCE_S)
        digest = await receiver.read_digest(region.rkey)
        assert digest.sha256 == result.sha256 and not digest.missing
        await receiver.deregister(region.rkey)
        return result

    ends: list[QpEnd] = []
    before = trimmed(await receiver.stats())
    try:
        results = await asyncio.gather(*(write(name, n) for n, name in enumerate(SENDERS)))
        await quiet({name: AgentClient(inventory.hosts[name].control) for name in SENDERS})
        by_address = await answered()
    finally:
        await delete_peers(inventory, nic_of(RECEIVER), None)
        for end in ends:
            await end.destroy()
    counts = {name: by_address[fabric.host_address(fabric.host(name))] for name in SENDERS}
    headers = trimmed(await receiver.stats()) - before
    return dict(zip(SENDERS, results, strict=True)), counts, headers
