# SPDX-License-Identifier: Apache-2.0
"""Link rates and queue depths of the topology are those of the switches' own queues."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from controller import addressing as addr
from mrc.agent_client import AgentClient
from mrc.messages import Digest, RegisterRequest, WriteRequest
from tests.net.running import running
from topologies.emulation import Emulation

pytestmark = pytest.mark.net

RATE = 200  # packets/s of a T0-T1 link
DEPTH = 40
PAYLOAD = 256


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulation]:
    """The smallest fabric with a T1, its uplinks slow."""
    topology = tmp_path_factory.mktemp("narrow") / "topology.yaml"
    topology.write_text(
        "name: narrow\nplanes: 1\nt0_per_plane: 2\nt1_per_plane: 1\nhosts_per_t0_group: 2\n"
        f"queue_depth: {DEPTH}\nlink_rates: {{t0_t1: {RATE}}}\n"
    )
    with running(topology, topology.parent / "run") as emulation:
        yield emulation


async def write_at_once(emulation: Emulation, dst: str, packets: int) -> tuple[Digest, float]:
    """Send a message from h0-0 in one go; what arrived of it, and in how many seconds."""
    agents = {name: AgentClient(emulation.inventory.hosts[name].control) for name in ("h0-0", dst)}
    region = await agents[dst].register(RegisterRequest(length=packets * PAYLOAD))
    nic, port = emulation.fabric.neighbour(emulation.fabric.host("h0-0"), addr.HOST_PORT)
    started = time.monotonic()
    await agents["h0-0"].write(
        WriteRequest(
            address=emulation.inventory.hosts[dst].address,
            mac=addr.mac_text(emulation.fabric.mac(nic, port)),
            qp=7,
            va=region.va,
            rkey=region.rkey,
            length=region.length,
            payload=PAYLOAD,
            seed=1,
        )
    )
    digest = await agents[dst].read_digest(region.rkey)
    arrived = time.monotonic()
    while digest.missing and time.monotonic() - arrived < 1.0:
        await asyncio.sleep(0.01)
        newer = await agents[dst].read_digest(region.rkey)
        if newer.bytes_present > digest.bytes_present:
            arrived = time.monotonic()
        digest = newer
    await agents[dst].deregister(region.rkey)
    return digest, arrived - started


def test_rate_spaces_packets(narrow: Emulation) -> None:
    packets = DEPTH  # all of them wait in the queue of p0t0-0's uplink
    digest, seconds = asyncio.run(write_at_once(narrow, "h1-0", packets))
    assert digest.missing == []
    assert packets / RATE * 0.8 < seconds < packets / RATE + 1.0


def test_depth_is_where_packets_are_lost(narrow: Emulation) -> None:
    packets = 5 * DEPTH
    digest, seconds = asyncio.run(write_at_once(narrow, "h1-0", packets))
    arrived = digest.bytes_present // PAYLOAD
    # The queue, and what left while the rest came.
    assert DEPTH <= arrived <= DEPTH + 2 + seconds * RATE
    assert arrived < packets


def test_other_links_are_not_slowed(narrow: Emulation) -> None:
    digest, seconds = asyncio.run(write_at_once(narrow, "h0-1", DEPTH))
    assert digest.missing == []
    assert seconds < DEPTH / RATE
