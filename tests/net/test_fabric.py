# SPDX-License-Identifier: Apache-2.0
"""A whole fabric: every EV goes where the controller says, and the demonstration judges rightly."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

from controller import addressing as addr
from controller.addressing import DeviceKind, EntropyValue
from controller.counters import FabricCounters
from controller.fabric import Fabric
from controller.path import Trace, trace
from mrc.agent_client import AgentClient
from mrc.messages import Digest, RegisterRequest, WriteRequest
from mrc.pattern import pattern_sha256
from tests.net.running import counters, running
from topologies.demo import Demonstration
from topologies.emulation import Emulation
from topologies.processes import REPOSITORY
from topologies.schema import load_topology
from topologies.wires import Fault

pytestmark = pytest.mark.net

MINI = REPOSITORY / "topologies" / "mini.yaml"
FABRIC = Fabric.from_topology(load_topology(MINI))
HOSTS = [host.name for host in FABRIC.devices(DeviceKind.HOST)]
PAIRS = [(src, dst) for src in HOSTS for dst in HOSTS if src != dst]

PAYLOAD = 256
PACKETS = 3
LENGTH = PACKETS * PAYLOAD
RKEY, VA = 0x4D524300, 0x5000_0000_0000
ARRIVAL_TIMEOUT_S = 5.0


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulation]:
    """mini, with the same memory region at every host, so that a stray packet finds a place."""
    with running(MINI, tmp_path_factory.mktemp("mini") / "run") as emulation:
        yield emulation


def test_nobody_sends_unasked(mini: Emulation) -> None:
    time.sleep(2.0)  # in which kernels would solicit routers and report multicast listening
    assert devices_seen(counters(mini)) == {}


@pytest.mark.parametrize(("src", "dst"), PAIRS)
def test_every_ev_takes_its_path_into_the_right_memory(mini: Emulation, src: str, dst: str) -> None:
    for plane in range(FABRIC.planes):
        for uplink in range(FABRIC.uplinks):
            # The tag names no path: neither its part in the flow label nor the one in the port.
            ev = EntropyValue(plane, uplink, tag=(plane + 2 * uplink + 1) << 16 | 0xC000 + uplink)
            before = counters(mini)
            digests = asyncio.run(write(mini, src, dst, ev))
            seen = counters(mini) - before
            way = trace(FABRIC, src, dst, ev)
            assert way.end is not None
            assert way.end.name == dst
            assert devices_seen(seen) == expected(way)
            for host, digest in digests.items():
                if host == dst:
                    assert digest.missing == []
                    assert digest.sha256 == pattern_sha256(ev.pack(), LENGTH)
                else:
                    assert digest.bytes_placed == 0, f"{host} got what was for {dst}"


async def write(emulation: Emulation, src: str, dst: str, ev: EntropyValue) -> dict[str, Digest]:
    """Write a message on one EV; the memory of all hosts when it has arrived."""
    agents = {name: AgentClient(host.control) for name, host in emulation.inventory.hosts.items()}
    for agent in agents.values():
        await agent.register(RegisterRequest(length=LENGTH, va=VA, rkey=RKEY))
    try:
        sender = FABRIC.host(src)
        nic, port = FABRIC.neighbour(sender, addr.HOST_PORT)
        await agents[src].write(
            WriteRequest(
                address=emulation.inventory.hosts[dst].address,
                mac=addr.mac_text(FABRIC.mac(nic, port)),
                qp=7,
                va=VA,
                rkey=RKEY,
                length=LENGTH,
                payload=PAYLOAD,
                seed=ev.pack(),
                path_ev=ev.path_ev,
                source_port=ev.source_port,
            )
        )
        deadline = time.monotonic() + ARRIVAL_TIMEOUT_S
        while (await agents[dst].read_digest(RKEY)).missing and time.monotonic() < deadline:
            await asyncio.sleep(0.002)
        return {name: await agent.read_digest(RKEY) for name, agent in agents.items()}
    finally:
        for agent in agents.values():
            await agent.deregister(RKEY)


Seen = dict[str, tuple[dict[int, int], dict[int, int]]]


def devices_seen(counted: FabricCounters) -> Seen:
    """(packets in by port, packets out by port) of every device that saw any; none dropped one.

    Without what the NIC agent has asked the NICs.
    """
    seen: Seen = {}
    for name, device in counted.devices.items():
        assert not device.drops.any(), name
        into, out = (
            {
                int(port): int(array[port, 0])
                for port in np.flatnonzero(array[:, 0])
                if port != addr.CPU_PORT
            }
            for array in (device.port_in, device.port_out)
        )
        if into or out:
            seen[name] = into, out
    return seen


def expected(way: Trace) -> Seen:
    """What the counters must show for the packets of one message on this way."""
    return {
        hop.device.name: ({hop.in_port: PACKETS}, {hop.out_port: PACKETS})
        for hop in way.hops
        if hop.out_port is not None
    }


@pytest.mark.parametrize(("src", "dst"), [("h0-0", "h1-1"), ("h0-0", "h0-1")])
def test_mrcctl_path_names_the_switches_of_the_trace(mini: Emulation, src: str, dst: str) -> None:
    ev = EntropyValue(1, 1)
    shown = subprocess.run(
        [sys.executable, "-m", "controller", "path", src, dst, "--ev", hex(ev.pack())],
        cwd=REPOSITORY,
        env={**os.environ, "MRC_RUN_DIR": str(mini.run_dir.path)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    switches = [device.name for device in trace(FABRIC, src, dst, ev).switches]
    places = [shown.index(name) for name in switches]
    assert places == sorted(places)
    others = {device.name for device in FABRIC.devices(DeviceKind.T0, DeviceKind.T1)} - set(
        switches
    )
    assert [name for name in others if name in shown] == []


def test_mininets_own_link_command_cuts_the_wire(mini: Emulation) -> None:
    mini.net.configLinkStatus("p0t0-0", "p0t1-1", "down")
    try:
        assert mini.wires.faults["p0t0-0|p0t1-1"] is Fault.CUT
        for interface in ("p0t0-0-eth4", "p0t1-1-eth1"):
            shown = subprocess.run(
                ["ip", "-oneline", "link", "show", "dev", interface],
                check=True,
                capture_output=True,
            ).stdout
            assert b"NO-CARRIER" in shown
            assert b",UP" in shown
    finally:
        mini.net.configLinkStatus("p0t0-0", "p0t1-1", "up")
    assert set(mini.wires.faults.values()) == {Fault.NONE}


# ---- the demonstration --------------------------------------------------------------------------


def test_demonstration_finds_no_fault_in_a_sound_fabric(mini: Emulation) -> None:
    assert Demonstration(mini, print).run() == []


def test_demonstration_finds_a_black_hole(mini: Emulation) -> None:
    wire = mini.wires.between("p0t0-0", "p0t1-1")
    mini.wires.blackhole(wire)
    try:
        faults = Demonstration(mini, print).run()
    finally:
        mini.wires.restore(wire)
    text = "\n".join(faults)
    assert "links that are bad without a cut: ['p0t0-0 - p0t1-1']" in text
    assert "nothing went from T0 group 0 to 1 over plane 0, T1 1" in text
    assert "nothing went from T0 group 1 to 0 over plane 0, T1 1" in text
    assert "plane 1" not in text.replace("plane 0, T1 1", "")
