# SPDX-License-Identifier: Apache-2.0
"""Devices that are killed and come back: what goes missing, what stays, what is as before."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller import addressing as addr
from controller.inventory import load_inventory
from controller.policy import Policy
from controller.probing import Selection, choose, run_probes
from tests.net.running import counters, running
from topologies.emulation import Emulation, EmulationError
from topologies.programming import program
from topologies.rundir import start_time
from topologies.wires import Fault

pytestmark = pytest.mark.net

T1 = "p0t1-1"
RATE = 500  # packets/s of the links: options of softswitch, commands to BMv2


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulation]:
    """mini with rates, so that a device that comes back has queues to be set up again."""
    topology = tmp_path_factory.mktemp("fabric") / "topology.yaml"
    topology.write_text(
        "name: rated\nplanes: 2\nt0_per_plane: 2\nt1_per_plane: 2\nhosts_per_t0_group: 1\n"
        f"queue_depth: 40\nlink_rates: {{t0_t1: {RATE}}}\n"
    )
    with running(topology, topology.parent / "run") as emulation:
        yield emulation


def lost_probes(emulation: Emulation) -> set[tuple[int, int]]:
    """(plane, uplink) of the paths from h0-0 to h1-0 on which probes get lost."""
    ways = choose(emulation.fabric, Selection(["h0-0"], ["h1-0"], self_probes=False))
    found = asyncio.run(
        run_probes(emulation.inventory, emulation.fabric, ways, count=5, timeout_s=0.5)
    )
    assert not found.errors
    samples = found.samples
    lost = samples.rtt_s != samples.rtt_s
    return set(zip(samples.plane[lost].tolist(), samples.uplink[lost].tolist(), strict=True))


def carrier(interface: str) -> bool:
    command = ["ip", "-oneline", "link", "show", "dev", interface]
    return b"LOWER_UP" in subprocess.run(command, check=True, capture_output=True).stdout


def test_a_fabric_with_a_killed_device_is_taken_down(tmp_path: Path) -> None:
    # First in this file, as a network namespace holds one fabric.
    topology = tmp_path / "topology.yaml"
    topology.write_text(
        "name: tiny\nplanes: 1\nt0_per_plane: 1\nt1_per_plane: 1\nhosts_per_t0_group: 1\n"
    )
    run_dir = tmp_path / "run"
    with running(topology, run_dir) as emulation:
        children = emulation.run_dir.children()
        emulation.kill("p0t1-0")
        emulation.kill("p0t0-0")
        asyncio.run(emulation.restart("p0t0-0"))
        children += emulation.run_dir.children()
    assert [pid for pid, started in children if start_time(pid) == started] == []
    assert not run_dir.exists()


def test_a_killed_t1_swallows_its_paths_and_comes_back_as_it_was(fabric: Emulation) -> None:
    before = fabric.inventory.devices[T1]
    entries = load_inventory(fabric.run_dir.path).devices
    assert lost_probes(fabric) == set()

    fabric.kill(T1)
    assert fabric.killed == [T1]
    assert start_time(before.pid) is None, "the process is gone and reaped"
    assert lost_probes(fabric) == {(0, 1)}
    device = fabric.fabric.device(T1)
    for port in fabric.fabric.ports.port[fabric.fabric.ports.of(device.row)].tolist():
        peer, peer_port = fabric.fabric.neighbour(device, port)
        assert carrier(fabric.fabric.interface(device, port))
        assert carrier(fabric.fabric.interface(peer, peer_port)), "neighbours see nothing"

    asyncio.run(fabric.restart(T1))
    assert fabric.killed == []
    assert lost_probes(fabric) == {(0, 1)}, "it has no program yet"
    report = asyncio.run(program(fabric, Policy(), [T1]))
    assert report.devices[T1].pipeline_pushed
    assert lost_probes(fabric) == set()

    after = fabric.inventory.devices[T1]
    assert after == before.model_copy(update={"pid": after.pid})
    assert after.pid != before.pid
    assert (after.pid, start_time(after.pid)) in fabric.run_dir.children()
    stored = load_inventory(fabric.run_dir.path).devices
    assert stored == {**entries, T1: after}
    drops = counters(fabric).devices[T1].drops
    assert lost_probes(fabric) == set()
    assert (counters(fabric).devices[T1].drops == drops).all()


def test_queues_of_a_device_that_comes_back_are_set_up_again(fabric: Emulation) -> None:
    """Its packets leave at the link's rate, as before: 40 of a burst wait for 40 / RATE s."""
    fabric.kill(T1)
    asyncio.run(fabric.restart(T1))
    asyncio.run(program(fabric, Policy(), [T1]))
    seconds = 1.0
    ways = choose(
        fabric.fabric,
        Selection(["h0-0"], ["h1-0"], planes=[0], uplinks=[1], self_probes=False),
    )
    before = counters(fabric).devices[T1]
    found = asyncio.run(
        run_probes(
            fabric.inventory, fabric.fabric, ways, count=int(3 * RATE * seconds),
            total_rate=3.0 * RATE, timeout_s=0.5,
        )
    )  # fmt: skip
    assert not found.errors
    port = addr.t1_port(1)
    sent = int((counters(fabric).devices[T1] - before).port_out[port, 0])
    assert sent > 100
    assert sent <= RATE * (seconds + 1.5) + 40


def test_restarting_what_runs_and_killing_what_is_no_device_is_refused(fabric: Emulation) -> None:
    with pytest.raises(EmulationError, match=f"{T1} is running: `kill {T1}` first"):
        asyncio.run(fabric.restart(T1))
    for name in ("h0-0", "p7t1-0", ""):
        with pytest.raises(EmulationError, match=r"allowed: p0t0-0, p0t0-1, p1t0-0"):
            fabric.kill(name)
    assert fabric.killed == []


def test_a_black_hole_keeps_the_process_and_loses_the_same_paths(fabric: Emulation) -> None:
    wires = fabric.wires.of_device(T1)
    assert wires == [f"p0t0-0|{T1}", f"p0t0-1|{T1}"]
    for wire in wires:
        fabric.wires.blackhole(wire)
    try:
        assert lost_probes(fabric) == {(0, 1)}
        assert fabric.killed == []
    finally:
        for wire in wires:
            fabric.wires.restore(wire)
    assert lost_probes(fabric) == set()
    assert set(fabric.wires.faults.values()) == {Fault.NONE}


def test_a_nic_comes_back(fabric: Emulation) -> None:
    fabric.kill("n1-0")
    assert lost_probes(fabric) == {(plane, uplink) for plane in range(2) for uplink in range(2)}
    asyncio.run(fabric.restart("n1-0"))
    asyncio.run(program(fabric, Policy(), ["n1-0"]))
    assert lost_probes(fabric) == set()
