# SPDX-License-Identifier: Apache-2.0
"""Reliable writes of three senders to one: trimmed packets, NACKs, and links that stay full."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Iterator

import pytest

from controller import addressing as addr
from controller.peers import FATES, Peer, add_peers, delete_peers, read_peers
from controller.queue_pairs import close_qps, open_qps
from tests.net.running import counters, running
from tests.net.test_reliable import Written, write
from topologies.emulation import Emulation
from topologies.losses import uncounted_losses

pytestmark = pytest.mark.net

NIC_T0 = 200  # packets/s of each link between NIC and T0
SENDERS = ("h0-0", "h0-1", "h1-1")
RECEIVER = "h1-0"
INCAST_PACKETS = 500
INCAST_RATE = 250.0  # of each sender; the receiver's two links carry 400 in all
QUIET_S = 1.0  # what still waits in queues is out


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulation]:
    """mini with one T1 per plane and slow links to the NICs."""
    topology = tmp_path_factory.mktemp("slow") / "topology.yaml"
    topology.write_text(
        "name: slow\nplanes: 2\nt0_per_plane: 2\nt1_per_plane: 1\nhosts_per_t0_group: 2\n"
        f"link_rates: {{nic_t0: {NIC_T0}}}\n"
    )
    with running(topology, topology.parent / "run") as emulation:
        yield emulation


@pytest.mark.parametrize("by", FATES[:2])
def test_an_incast_is_trimmed_and_sent_again_by_nacks(slow: Emulation, by: str) -> None:
    """Three senders offer twice what the receiver's links carry; its NIC, or its host, says so."""
    inventory, fabric = slow.inventory, slow.fabric
    nic, _ = fabric.neighbour(fabric.host(RECEIVER), addr.HOST_PORT)

    async def trimmed() -> int:
        return (await read_peers(inventory, nic.name)).trimmed[FATES.index(by)]

    async def incast() -> tuple[list[Written], int]:
        qps = await open_qps(inventory, fabric, [(name, RECEIVER) for name in SENDERS])
        known = (await read_peers(inventory, nic.name)).peers
        assert {count.peer for count in known} == {
            Peer(int(ipaddress.IPv6Address(qp.here.address)), qp.there.qp, qp.here.qp) for qp in qps
        }
        if by == "peer unknown":
            await delete_peers(inventory, nic.name, None)
        earlier = await trimmed()
        written = await asyncio.gather(
            *(
                write(qp.here, qp.there.agent, seed, INCAST_PACKETS, rate=INCAST_RATE)
                for seed, qp in enumerate(qps)
            )
        )
        await asyncio.sleep(QUIET_S)
        found = await trimmed() - earlier
        if by == "peer unknown":
            await add_peers(inventory, nic.name, [count.peer for count in known])
        await close_qps(inventory, qps)
        assert (await read_peers(inventory, nic.name)).peers == ()
        assert (await qps[0].there.agent.stats())["qps"] == []
        return written, found

    before = counters(slow)
    written, found = asyncio.run(incast())
    counted = counters(slow) - before

    causes: Counter[str] = Counter()
    for seed, each in enumerate(written):
        each.assert_arrived(seed, INCAST_PACKETS)
        causes += Counter(each.delivery.retransmissions)
    seconds = max(each.result.duration_ns for each in written) / 1e9
    packets = len(SENDERS) * INCAST_PACKETS
    print(f"incast, {by}: {packets} packets in {seconds:.2f} s, {found} trimmed, {dict(causes)}")
    assert found > packets / 10, "no congestion"
    assert uncounted_losses(fabric, counted) == {}
    # Two queues whose delays differ by up to 0.3 s: a few packets may seem lost for it.
    by_nacks = causes.pop("nack_trimmed_lasthop")
    assert found - packets / 100 <= by_nacks <= found
    assert causes.total() <= packets / 100
    # The links are used as well as if nothing had to be sent again.
    assert seconds < 1.5 * packets / (2 * NIC_T0)
