# SPDX-License-Identifier: Apache-2.0
"""Packets per second of two host agents that talk over one veth pair, nothing in between.

    unshare -n python -m scripts.bench_agent

Sends a message unpaced, then at rising rates until packets are lost, then reliable ones, and
probes.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mrc.agent_client import AgentClient, AgentError
from mrc.connecting import ConnectingEnd, connect
from mrc.messages import (
    PATH_MTUS,
    ProbeRequest,
    ProbeTarget,
    RegisterRequest,
    WriteRequest,
)
from topologies.netns import Namespace

ADDRESSES = ("fd4d:5243::0:1", "fd4d:5243::1:1")
INTERFACES = ("left", "right")
MAX_START_S = 10.0


async def ready(client: AgentClient) -> None:
    """Wait until the agent answers."""
    deadline = time.monotonic() + MAX_START_S
    while True:
        try:
            await client.stats()
            return
        except AgentError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.02)


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def write_once(
    sender: AgentClient,
    receiver: AgentClient,
    mac: str,
    payload: int,
    packets: int,
    rate: float | None,
    processes: list[subprocess.Popen[bytes]],
) -> None:
    region = await receiver.register(RegisterRequest(length=packets * payload))
    before = [cpu_seconds(process) for process in processes]
    started = time.monotonic()
    sent = await sender.write(
        WriteRequest(
            address=ADDRESSES[1],
            mac=mac,
            qp=17,
            va=region.va,
            rkey=region.rkey,
            length=region.length,
            seed=1,
            payload=payload,
            rate=rate,
        )
    )
    while True:  # until nothing more arrives
        first = (await receiver.stats())["frames_received"]
        await asyncio.sleep(0.05)
        if (await receiver.stats())["frames_received"] == first:
            break
    elapsed = time.monotonic() - started
    digest = await receiver.read_digest(region.rkey)
    after = [cpu_seconds(process) for process in processes]
    await receiver.deregister(region.rkey)
    asked = "unpaced" if rate is None else f"{rate:,.0f}/s"
    print(
        f"{payload} B, {asked}: sent {sent.packets / sent.duration_ns * 1e9:,.0f}/s, "
        f"received {digest.bytes_present / payload / elapsed:,.0f}/s, "
        f"{100 - 100 * digest.bytes_present / region.length:.2f} % lost, CPU per packet "
        + ", ".join(
            f"{(b - a) / packets * 1e6:.1f} us ({side})"
            for a, b, side in zip(before, after, ("sender", "receiver"), strict=True)
        )
    )


async def both_ways(
    clients: list[AgentClient], macs: list[str], payload: int, packets: int, rate: float | None
) -> None:
    """Each agent writes to the other at the same time."""
    regions = [
        await client.register(RegisterRequest(length=packets * payload)) for client in clients
    ]
    requests = [
        WriteRequest(
            address=ADDRESSES[other],
            mac=macs[other],
            qp=17,
            va=regions[other].va,
            rkey=regions[other].rkey,
            length=packets * payload,
            seed=other,
            payload=payload,
            rate=rate,
        )
        for other in (1, 0)
    ]
    sent = await asyncio.gather(
        *(client.write(request) for client, request in zip(clients, requests, strict=True))
    )
    await asyncio.sleep(0.5)
    asked = "unpaced" if rate is None else f"{rate:,.0f}/s"
    for result, client, region in zip(sent, reversed(clients), reversed(regions), strict=True):
        digest = await client.read_digest(region.rkey)
        await client.deregister(region.rkey)
        print(
            f"{payload} B, both ways, {asked}: sent {packets / result.duration_ns * 1e9:,.0f}/s, "
            f"{100 - 100 * digest.bytes_present / region.length:.2f} % lost"
        )


async def reliably(
    clients: list[AgentClient],
    macs: list[str],
    payload: int,
    packets: int,
    rate: float | None,
    processes: list[subprocess.Popen[bytes]],
) -> None:
    """A reliable write, and what it costs."""
    ends = await connect(ConnectingEnd(clients[0], macs[1]), ConnectingEnd(clients[1], macs[0]))
    region = await clients[1].register(RegisterRequest(length=packets * payload))
    before = [cpu_seconds(process) for process in processes]
    sent = await clients[0].write(ends[0].write_request(region, seed=1, rate=rate, payload=payload))
    after = [cpu_seconds(process) for process in processes]
    await clients[1].deregister(region.rkey)
    for end in ends:
        await end.destroy()
    assert sent.delivery is not None
    asked = "unpaced" if rate is None else f"{rate:,.0f}/s"
    print(
        f"{payload} B, reliable, {asked}: delivered {packets / sent.duration_ns * 1e9:,.0f}/s, "
        f"sent again {sum(sent.delivery.retransmissions.values())}, {sent.delivery.sacks} SACKs, "
        f"round trip {(sent.delivery.srtt_ns or 0) / 1e6:.2f} ms, CPU per packet "
        + ", ".join(
            f"{(b - a) / packets * 1e6:.1f} us ({side})"
            for a, b, side in zip(before, after, ("sender", "receiver"), strict=True)
        )
    )


async def measure(clients: list[AgentClient], processes: list[subprocess.Popen[bytes]]) -> None:
    for client in clients:
        await ready(client)
    mac = (await clients[1].stats())["mac"]
    for payload in (PATH_MTUS[0], PATH_MTUS[-1]):
        for rate in (None, 10_000.0, 20_000.0, 30_000.0, 40_000.0):
            await write_once(clients[0], clients[1], mac, payload, 20_000, rate, processes)
    macs = [(await client.stats())["mac"] for client in clients]
    for rate in (None, 10_000.0, 15_000.0, 20_000.0):
        await both_ways(clients, macs, PATH_MTUS[-1], 20_000, rate)
    for payload in (PATH_MTUS[0], PATH_MTUS[-1]):
        for rate in (None, 5_000.0, 10_000.0, 20_000.0):
            await reliably(clients, macs, payload, 20_000, rate, processes)
    targets = [ProbeTarget(address=ADDRESSES[1], mac=mac, path_evs=list(range(500)))]
    for rate in (5_000.0, 10_000.0, 20_000.0):
        result = await clients[0].probe(ProbeRequest(targets=targets, count=20, rate=rate))
        rtts = sorted(rtt for path in result.paths for rtt in path.rtt_ns)
        print(
            f"probes at {rate:,.0f}/s: {len(rtts)} of {20 * 500} answered in "
            f"{result.duration_ns / 1e9:.2f} s, RTT median {rtts[len(rtts) // 2] / 1000:.0f} us, "
            f"99 % {rtts[len(rtts) * 99 // 100] / 1000:.0f} us"
        )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mtu", type=int, default=4500)
    mtu = parser.parse_args().mtu
    spaces = [Namespace.new(), Namespace.new()]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        spaces[0].ip(
            [
                f"link add {INTERFACES[0]} mtu {mtu} type veth peer name {INTERFACES[1]} "
                f"mtu {mtu} netns {spaces[1].path}",
                f"link set {INTERFACES[0]} up",
            ],
            others=[spaces[1]],
        )
        spaces[1].ip([f"link set {INTERFACES[1]} up"])
        with tempfile.TemporaryDirectory() as directory:
            clients = []
            for space, interface, address in zip(spaces, INTERFACES, ADDRESSES, strict=True):
                control = Path(directory) / f"{interface}.sock"
                command = ["nsenter", f"--net={space.outside_path}", "--", sys.executable]
                command += ["-m", "mrc.agent", "--interface", interface]
                command += ["--address", address, "--control", str(control)]
                processes.append(subprocess.Popen(command))
                clients.append(AgentClient(control))
            asyncio.run(measure(clients, processes))
            for process in processes:
                process.terminate()
                process.wait(MAX_START_S)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for space in spaces:
            space.close()


if __name__ == "__main__":
    main()
