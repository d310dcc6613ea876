# SPDX-License-Identifier: Apache-2.0
"""Reliable MRC writes between hosts of a running fabric, repeated as long as an experiment needs.

    async with connected(emulation, flows, packets=300) as connections:
        await gather(*(c.write(rate=100) for c in connections))

What arrived is compared with what was sent, message by message (SHA-256).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import Any

from controller import addressing as addr
from controller.fabric import Device, Fabric
from controller.peers import Peer, add_peers, delete_peers
from mrc.agent_client import AgentClient
from mrc.connecting import ConnectingEnd, QpEnd, connect
from mrc.messages import RegionInfo, RegisterRequest, WriteResult
from topologies.emulation import Emulation

PAYLOAD = 256
BURST = 4  # packets at once, of the 64 that a queue holds


@dataclass(frozen=True)
class Flow:
    """From one host to another, by name."""

    src: str
    dst: str

    def __str__(self) -> str:
        return f"{self.src} to {self.dst}"


@dataclass
class Sent:
    """What became of the messages of one flow."""

    writes: list[WriteResult] = field(default_factory=list)
    damaged: int = 0
    """Messages that differ in the receiver's memory from what was sent."""

    @property
    def packets(self) -> int:
        """Each counted once."""
        return sum(write.packets for write in self.writes)

    @property
    def seconds(self) -> float:
        """From the first packet of each message to its last acknowledgement."""
        return sum(write.duration_ns for write in self.writes) / 1e9

    @property
    def rate(self) -> float:
        """Packets per second that were acknowledged."""
        return self.packets / self.seconds if self.seconds else 0.0

    @property
    def retransmissions(self) -> Counter[str]:
        """By cause: gap, timeout, nack_<reason>."""
        return self._sum("retransmissions")

    @property
    def nacks(self) -> Counter[str]:
        """By reason."""
        return self._sum("nacks")

    @property
    def marked(self) -> int:
        """SACKs that reported a mark."""
        return sum(write.delivery.marked for write in self.writes if write.delivery)

    @property
    def srtt_s(self) -> float | None:
        """The smoothed round trip at the end of the last message, in seconds."""
        delivery = self.writes[-1].delivery if self.writes else None
        return None if delivery is None or delivery.srtt_ns is None else delivery.srtt_ns / 1e9

    def _sum(self, name: str) -> Counter[str]:
        total: Counter[str] = Counter()
        for write in self.writes:
            if write.delivery is not None:
                total.update(getattr(write.delivery, name))
        return total


class Connection:
    """A flow with its queue pair, and a region at the receiver that holds one message."""

    def __init__(self, flow: Flow, here: QpEnd, there: QpEnd, region: RegionInfo) -> None:
        self.flow = flow
        self.sent = Sent()
        self._here = here
        self._there = there
        self._region = region
        self._seed = 0

    async def write(self, rate: float) -> None:
        """One message, `rate` packets per second; returns when all of it is acknowledged.

        Raises AgentError.
        """
        self._seed += 1
        request = self._here.write_request(
            self._region,
            payload=PAYLOAD,
            rate=rate,
            burst=BURST,
            seed=self._seed,
        )
        result = await self._here.agent.write(request)
        self.sent.writes.append(result)
        digest = await self._there.agent.read_digest(self._region.rkey)
        self.sent.damaged += digest.sha256 != result.sha256

    async def srtt_s(self) -> float | None:
        """The smoothed round trip now, in seconds; None before the first acknowledgement."""
        for qp in (await self._here.agent.stats())["qps"]:
            if qp["qp"] == self._here.qp and qp.get("srtt_ns") is not None:
                return float(qp["srtt_ns"]) / 1e9
        return None

    async def close(self) -> None:
        """Forget the queue pair and the region."""
        await self._here.destroy()
        await self._there.destroy()
        await self._there.agent.deregister(self._region.rkey)


@asynccontextmanager
async def connected(
    emulation: Emulation, flows: Sequence[Flow], packets: int, **parameters: Any
) -> AsyncIterator[list[Connection]]:
    """Queue pairs for flows whose messages have so many packets, and their end.

    Both NICs learn of each, so that they answer trimmed packets. `parameters` are those of
    `mrc.messages.ConnectQpRequest`. Raises AgentError and DeviceError.
    """
    agents = {
        name: AgentClient(emulation.inventory.hosts[name].control)
        for name in dict.fromkeys(host for flow in flows for host in (flow.src, flow.dst))
    }
    connections: list[Connection] = []
    peers: dict[str, list[Peer]] = {}
    try:
        for flow in flows:
            here, there = await connect(
                *(
                    ConnectingEnd(agents[host], next_hop_mac(emulation.fabric, host))
                    for host in (flow.src, flow.dst)
                ),
                **parameters,
            )
            region = await agents[flow.dst].register(RegisterRequest(length=packets * PAYLOAD))
            connections.append(Connection(flow, here, there, region))
            for host, end in ((flow.src, here), (flow.dst, there)):
                peer = Peer(int(IPv6Address(end.peer_address)), end.qp, end.peer_qp)
                peers.setdefault(nic_of(emulation.fabric, host).name, []).append(peer)
        await asyncio.gather(
            *(add_peers(emulation.inventory, nic, of_nic) for nic, of_nic in peers.items())
        )
        yield connections
        await asyncio.gather(
            *(
                delete_peers(emulation.inventory, nic, [peer.key for peer in of_nic])
                for nic, of_nic in peers.items()
            )
        )
    finally:
        for connection in connections:
            await connection.close()


class Load:
    """Messages on several connections, one after the other on each, as `sending` makes them."""

    def __init__(self, connections: Sequence[Connection], rate: float) -> None:
        self._rate = rate
        self._stopping = asyncio.Event()
        self._writing = asyncio.gather(*(self._write(connection) for connection in connections))

    async def last(self, seconds: float) -> None:
        """Let it go on for so long. Raises what ended a connection."""
        done, _ = await asyncio.wait([self._writing], timeout=seconds)
        if done:
            self._writing.result()

    async def stop(self) -> None:
        """End the messages that are under way, and begin no others. Raises AgentError."""
        self._stopping.set()
        await self._writing

    async def _write(self, connection: Connection) -> None:
        while not self._stopping.is_set():
            await connection.write(self._rate)


@asynccontextmanager
async def sending(connections: Sequence[Connection], rate: float) -> AsyncIterator[Load]:
    """Load within the block, `rate` packets per second on each connection."""
    load = Load(connections, rate)
    try:
        yield load
    finally:
        await load.stop()


def next_hop_mac(fabric: Fabric, host: str) -> str:
    """The MAC address of a host's NIC, as text."""
    nic, port = fabric.neighbour(fabric.host(host), addr.HOST_PORT)
    return addr.mac_text(fabric.mac(nic, port))


def nic_of(fabric: Fabric, host: str) -> Device:
    """The NIC of a host."""
    nic, _ = fabric.neighbour(fabric.host(host), addr.HOST_PORT)
    return nic
