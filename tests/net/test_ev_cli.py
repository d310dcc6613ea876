# SPDX-License-Identifier: Apache-2.0
"""`mrcctl ev` and `mrcctl watch` on a running fabric."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner, Result

from controller.cli import app
from controller.counters import t1_packets
from controller.ev_events import EvEvent, EvState
from controller.policy import Policy
from mrc.agent_client import AgentClient
from mrc.messages import RegisterRequest, WriteRequest
from tests.net.nic_agents import (
    black_hole,
    cut,
    restart_agent,
    wait_until,
    wait_until_ready,
)
from tests.net.running import apply, counters, running
from topologies.emulation import NIC_AGENT, Emulation
from topologies.experiments.traffic import PAYLOAD, Flow, connected, next_hop_mac, sending
from topologies.processes import REPOSITORY

pytestmark = pytest.mark.net

MINI = REPOSITORY / "topologies" / "mini.yaml"
NIC, HOST, PEER = "n0-0", "h0-0", "h1-0"
WIRE = "p1t0-0|p1t1-0"
PACKETS = 200


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulation]:
    with pytest.MonkeyPatch.context() as patch:
        run_dir = tmp_path_factory.mktemp("ev") / "run"
        patch.setenv("MRC_RUN_DIR", str(run_dir))
        with running(MINI, run_dir) as emulation:
            wait_until_ready(emulation)
            yield emulation


@pytest.fixture
def mini(fabric: Emulation) -> Iterator[Emulation]:
    """All paths are good, before and after."""
    yield fabric
    wait_until_ready(fabric)
    mrcctl("ev", "allow", "--all")
    wait_until(lambda: set(states().values()) == {"GOOD"}, "all paths are good")


def mrcctl(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def states() -> dict[tuple[str, int, int, int], str]:
    """(NIC, group, plane, uplink) -> state, as the command says."""
    found = json.loads(mrcctl("ev", "show", "--json").output)
    return {
        (nic["nic"], path["group"], path["plane"], path["uplink"]): path["state"]
        for nic in found
        for path in nic["paths"]
    }


def sent_over_t1s(emulation: Emulation) -> NDArray[np.float64]:
    """Packets of one WRITE from HOST to PEER by plane and T1; all arrive."""
    fabric, hosts = emulation.fabric, emulation.inventory.hosts

    async def write() -> None:
        sender, receiver = (AgentClient(hosts[name].control) for name in (HOST, PEER))
        region = await receiver.register(RegisterRequest(length=PACKETS * PAYLOAD))
        request = WriteRequest(
            address=hosts[PEER].address,
            mac=next_hop_mac(fabric, HOST),
            qp=7,
            va=region.va,
            rkey=region.rkey,
            length=PACKETS * PAYLOAD,
            seed=1,
            payload=PAYLOAD,
            rate=2000.0,
        )
        await sender.write(request)
        async with asyncio.timeout(5):
            while (await receiver.read_digest(region.rkey)).missing:
                await asyncio.sleep(0.05)
        await receiver.deregister(region.rkey)

    before = counters(emulation)
    asyncio.run(write())
    packets = t1_packets(fabric, counters(emulation) - before)
    assert packets.sum() == PACKETS
    return packets


@contextmanager
def watching(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`mrcctl watch` in a process of its own, which has subscribed."""
    command = [sys.executable, "-m", "controller", "watch", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as process:
        try:
            assert process.stderr is not None
            assert "until Ctrl-C" in process.stderr.readline()
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it had printed when Ctrl-C ended it."""
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=10)
    assert process.returncode == 0, errors
    return output, errors


# ---- ev -----------------------------------------------------------------------------------------


def test_all_paths_are_good_at_first(mini: Emulation) -> None:
    found = states()
    # 4 NICs; to the other T0 group 2 planes x 2 uplinks, within the own one a path per plane.
    assert len(found) == 4 * (4 + 2)
    assert set(found.values()) == {"GOOD"}
    lines = mrcctl("ev", "show").output.splitlines()
    assert lines[1].split() == ["n0-0", "6", "6", "0", "0", "0", "none"]
    assert len(lines) == 1 + 4 + 1  # header, NICs, legend: nothing to tell of any of them


def test_a_denied_path_is_left_and_an_allowed_one_carries_again(mini: Emulation) -> None:
    assert (sent_over_t1s(mini) > 0).all()
    output = mrcctl("ev", "deny", "p1t0-0,p1t1-0", "--nic", HOST).output
    assert output == "denied 1 path: 1 of n0-0\n"
    assert {path for path, state in states().items() if state != "GOOD"} == {(NIC, 1, 1, 0)}
    assert (sent_over_t1s(mini) > 0).tolist() == [[True, True], [False, True]]
    shown = mrcctl("ev", "show", HOST).output
    assert "1      DG" in shown
    assert "1 of 2" in shown
    assert "nothing to do" in mrcctl("ev", "deny", "1/0", "--nic", NIC).output
    assert mrcctl("ev", "allow", "1/0").output == "allowed 1 path: 1 of n0-0\n"
    assert (sent_over_t1s(mini) > 0).all()


def test_a_t1_is_denied_for_all(mini: Emulation) -> None:
    output = mrcctl("ev", "deny", "p0t1-1").output
    assert output.startswith("denied 4 paths: ")
    denied = {path[2:] for path, state in states().items() if state == "DENIED"}
    assert denied == {(0, 1)}
    assert mrcctl("ev", "allow", "--all").output.startswith("allowed 4 paths: ")
    assert set(states().values()) == {"GOOD"}


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["p0t1-0", "p0t1-1"], "of its 2 paths to T0 group 1 by plane 0 0 would be left"),
        (["p1t0-0"], "Whole planes are denied by a policy's deny"),
        (["n0-0,p0t0-0"], "n0-0: of its "),
        (["p0t1-0,p0t1-1"], "p0t1-0 and p0t1-1 are not wired to each other"),
        (["p0t1-7"], "did you mean"),
        (["n0-0"], "n0-0 is not a switch"),
        (["2/0"], "mini has planes 0 to 1"),
        (["x/0"], "a path is plane/uplink, as in 0/1"),
        (["p0t0-0,p0t1-0,p0t0-1"], "a link is named by its two ends"),
        ([], "name what to deny"),
        (["0/0", "--to", "5"], "T0 groups are 0 to 1"),
        (["0/0", "--nic", "p0t0-0"], "p0t0-0 is a T0; allowed: NICs and hosts"),
    ],
)
def test_what_cannot_be_denied_changes_nothing(
    mini: Emulation, targets: list[str], message: str
) -> None:
    assert message in mrcctl("ev", "deny", *targets, code=1).stderr
    assert set(states().values()) == {"GOOD"}


def test_the_last_path_is_refused_when_another_one_is_denied_already(mini: Emulation) -> None:
    mrcctl("ev", "deny", "0/0", "--nic", NIC)
    error = mrcctl("ev", "deny", "0/1", code=1).stderr
    assert "n0-0: of its 2 paths to T0 group 1 by plane 0 0 would be left" in error
    assert [path for path, state in states().items() if state == "DENIED"] == [(NIC, 1, 0, 0)]


def test_a_nic_that_fails_in_the_midst_leaves_nothing_denied(mini: Emulation) -> None:
    mini.kill("n1-1")
    try:
        error = mrcctl("ev", "deny", "p0t1-1", code=1).stderr
        assert "n1-1" in error
    finally:
        asyncio.run(mini.restart("n1-1"))
        apply(mini, Policy())
        wait_until_ready(mini)
    assert set(states().values()) == {"GOOD"}


def test_paths_that_carry_no_state_are_refused(mini: Emulation) -> None:
    policy = mini.run_dir.path / "hash.yaml"
    policy.write_text("version: 1\nspray: {mode: ecmp}\n")
    try:
        mrcctl("policy", "apply", str(policy))
        assert "the policy hashes flows" in mrcctl("ev", "show", code=1).stderr
    finally:
        policy.write_text("version: 1\n")
        mrcctl("policy", "apply", str(policy))


# ---- watch --------------------------------------------------------------------------------------


def test_watch_names_the_link_that_swallows_packets(mini: Emulation) -> None:
    async def traffic() -> None:
        flows = [Flow("h0-0", "h1-0"), Flow("h0-1", "h1-1"), Flow("h1-0", "h0-1")]
        async with (
            connected(mini, flows, 150, sack_gen_threshold=4) as connections,
            sending(connections, 300.0) as load,
        ):
            await load.last(0.5)
            with black_hole(mini, WIRE):
                await load.last(2.0)

    with watching() as process:
        asyncio.run(traffic())
        output, _ = ended(process)
    lost = [line for line in output.splitlines() if "good -> assumed bad" in line]
    assert lost, output
    for line in lost:
        assert "p1t0-0 > p1t1-0 > p1t0-1" in line or "p1t0-1 > p1t1-0 > p1t0-0" in line
        assert "a packet was sent again that no NACK had reported" in line
    ranking = output[output.index("what they have in common") :].splitlines()[2:]
    # Two T0s: all paths across the one link of the T1 cross the other one, too.
    assert [line.split()[0] for line in ranking[:3]] == [WIRE, "p1t0-1|p1t1-0", "p1t1-0"]


def test_watch_tells_of_carrier_and_of_what_the_controller_does(mini: Emulation) -> None:
    with watching("--nic", "h0-0") as process:
        with cut(mini, "n0-0|p1t0-0"):
            time.sleep(0.2)
        mrcctl("ev", "deny", "0/1")
        mrcctl("ev", "allow", "0/1")
        time.sleep(0.5)
        output, _ = ended(process)
    told = [line.split(" ", 1)[1] for line in output.splitlines()]
    assert told == [
        "n0-0: n0-0|p1t0-0 has no carrier: plane 1",
        "n0-0: n0-0|p1t0-0 has carrier again: plane 1",
        "n0-0: p0t0-0 > p0t1-1 > p0t0-1, to T0 group 1: good -> denied (by the controller)",
        "n0-0: p0t0-0 > p0t1-1 > p0t0-1, to T0 group 1: denied -> good (by the controller)",
        "path was assumed to be bad",
    ]


def test_watch_goes_on_with_the_next_agent(mini: Emulation) -> None:
    with watching("--json") as process:
        mini.kill(NIC_AGENT)
        time.sleep(0.5)
        restart_agent(mini)
        time.sleep(1.0)
        mrcctl("ev", "deny", "0/1", "--nic", NIC)
        time.sleep(0.5)
        output, errors = ended(process)
    assert "the NIC agent has gone; waiting for it" in errors
    assert "the NIC agent is back" in errors
    (event,) = [EvEvent.from_json(json.loads(line)) for line in output.splitlines()]
    assert (event.nic, event.group, event.plane, event.uplink) == (NIC, 1, 0, 1)
    assert event.after is EvState.DENIED


def test_without_an_agent_both_say_so(mini: Emulation) -> None:
    mini.kill(NIC_AGENT)
    try:
        for command in (["ev", "show"], ["watch", "--for", "1"]):
            assert "nic-agent.sock" in mrcctl(*command, code=1).stderr
    finally:
        restart_agent(mini)
