# SPDX-License-Identifier: Apache-2.0
"""mrcctl on a whole running fabric: measuring, faults on the map, policy changes under traffic."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from controller.addressing import NIC_HOST_PORT, mac_text
from controller.cli import app
from controller.counters import t1_packets
from controller.quality import link_quality, path_quality
from controller.samples import load_samples
from mrc.agent_client import AgentClient
from mrc.messages import RegisterRequest, WriteRequest
from tests.net.running import counters, running
from topologies.emulation import Emulation

MINI = Path(__file__).parents[2] / "topologies" / "mini.yaml"
# Weights alone; then each takes away what the one before it allowed, and the other way round.
CHANGES = [
    "plane_weights: {0: 3, 1: 1}\npath_weights: [{plane: 0, uplink: 0, weight: 0.25}]",
    "plane_weights: {0: 1, 1: 3}\npath_weights: [{plane: 1, uplink: 1, weight: 7}]",
    "deny: {planes: [0]}",
    "deny: {links: [[p0t0-0, p0t1-1]]}",
    "deny: {planes: [1]}",
    "deny: {links: [[h1-1, p0t0-1]], switches: [p1t1-0]}",
]
MESSAGE_BYTES = 1 << 20
WRITES_PER_S = 1000.0

pytestmark = pytest.mark.net


@pytest.fixture(scope="module")
def emulation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulation]:
    # Unix sockets' paths are short: pytest's directory of the module is too long for the agents'.
    with pytest.MonkeyPatch.context() as patch:
        run_dir = tmp_path_factory.mktemp("run")
        patch.setenv("MRC_RUN_DIR", str(run_dir))
        with running(MINI, run_dir) as fabric:
            yield fabric


def mrcctl(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def test_a_second_push_writes_nothing_and_status_is_ok(emulation: Emulation) -> None:
    assert "0 updates on 12 devices" in mrcctl("push").output
    mrcctl("status")


def test_every_path_and_link_answers(emulation: Emulation) -> None:
    assert "no probe was lost" in mrcctl("probe", "--count", "5").output
    samples = load_samples(emulation.run_dir.path / "samples.npz")
    assert not link_quality(samples, emulation.fabric).loss.any()
    for source in range(2):
        quality = path_quality(samples, emulation.fabric, source, 1 - source)
        assert (quality.sent == 4 * 5).all()
        assert not quality.loss.any()


def test_a_cut_link_is_the_only_bad_one_on_the_map(emulation: Emulation) -> None:
    wire = emulation.wires.between("p1t0-0", "p1t1-1")
    emulation.wires.cut(wire)
    try:
        mrcctl("probe", "--count", "5", "--timeout", "0.5")
    finally:
        emulation.wires.restore(wire)
    samples = load_samples(emulation.run_dir.path / "samples.npz")
    links = link_quality(samples, emulation.fabric).loss
    assert np.argwhere(links > 0).tolist() == [[1, 0, 1]]
    assert links[1, 0, 1] == 1.0
    paths = path_quality(samples, emulation.fabric, 0, 1).loss
    assert np.argwhere(paths > 0).tolist() == [[1, 1]]
    # No --rtt: three times the median is noise on a busy machine; loss is what was broken.
    output = mrcctl("heatmap", "--plane", "1", "--rtt", "1000", "1000").output
    assert output.count("✖") == 2, "the link, and the legend"


@pytest.mark.parametrize("mode", ["random", "round_robin"])
def test_policies_change_under_traffic_without_a_loss(
    emulation: Emulation, tmp_path: Path, mode: str
) -> None:
    """Every packet of a message that is sent meanwhile arrives: no half-written group was used."""
    policies = []
    for number, change in enumerate(CHANGES):
        policy = tmp_path / f"{number}.yaml"
        spray = f"{{mode: {mode}, slots_per_plane: {1 << number % 5}}}"
        policy.write_text(f"version: 1\nspray: {spray}\n{change}\n")
        policies.append(policy)

    async def run() -> tuple[int, int]:
        sending = asyncio.create_task(_write(emulation, "h0-0", "h1-1"))
        changes = 0
        while not sending.done():
            result = await asyncio.to_thread(_apply, policies[changes % len(policies)])
            assert result.exit_code == 0, result.output
            changes += 1
        missing = await sending
        return missing, changes

    before = counters(emulation)
    missing, changes = asyncio.run(run())
    drops = {
        name: device.drops[:, 0].nonzero()[0].tolist()
        for name, device in (counters(emulation) - before).devices.items()
        if device.drops[:, 0].any()
    }
    assert changes >= 4
    assert drops == {}
    assert missing == 0
    assert "0 updates" in mrcctl("push").output


def test_a_denied_link_carries_nothing(emulation: Emulation, tmp_path: Path) -> None:
    policy = tmp_path / "deny.yaml"
    policy.write_text("version: 1\ndeny: {links: [[p0t0-0, p0t1-1]]}\n")
    mrcctl("policy", "apply", str(policy))
    assert "denied" in mrcctl("path", "h0-0", "h1-0").output
    before = counters(emulation)
    assert asyncio.run(_write(emulation, "h0-0", "h1-0", 256 << 10)) == 0
    packets = t1_packets(emulation.fabric, counters(emulation) - before)
    assert packets[0, 1] == 0
    assert (packets[[0, 1, 1], [0, 0, 1]] > 0).all()


def _apply(policy: Path) -> Result:
    return CliRunner().invoke(app, ["policy", "apply", str(policy)])


async def _write(emulation: Emulation, src: str, dst: str, length: int = MESSAGE_BYTES) -> int:
    """Write a message and return how many of its bytes did not arrive."""
    fabric, hosts = emulation.fabric, emulation.inventory.hosts
    sender, receiver = AgentClient(hosts[src].control), AgentClient(hosts[dst].control)
    region = await receiver.register(RegisterRequest(length=length))
    nic, port = fabric.neighbour(fabric.device(src), 0)
    assert port == NIC_HOST_PORT
    request = WriteRequest(
        address=hosts[dst].address,
        mac=mac_text(fabric.mac(nic, port)),
        qp=7,
        va=region.va,
        rkey=region.rkey,
        length=length,
        seed=1,
        payload=256,
        rate=WRITES_PER_S,
        burst=4,
    )
    await sender.write(request)
    try:
        for _ in range(50):  # the last packets are still on their way
            digest = await receiver.read_digest(region.rkey)
            if digest.bytes_present == length:
                break
            await asyncio.sleep(0.1)
        return length - digest.bytes_present
    finally:
        await receiver.deregister(region.rkey)
