# SPDX-License-Identifier: Apache-2.0
"""The NIC agent beside a running fabric: carrier, its hold on the NICs, its events, its end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from controller.ev_events import EvCause, EvEvent, EvState, LinkEvent
from controller.nic_agent.client import SOCKET
from controller.nic_agent.registers import Op
from controller.p4rt import connect, load_program
from controller.policy import Policy, Spray
from mrc.agent_client import AgentClient, AgentError
from tests.net.nic_agents import (
    WITHIN_S,
    client,
    cut,
    exchange,
    heard,
    restart_agent,
    status,
    wait_until,
    wait_until_ready,
)
from tests.net.running import apply, running
from topologies.emulation import NIC_AGENT, Emulation, EmulationError
from topologies.processes import REPOSITORY, ProcessError

pytestmark = pytest.mark.net

MINI = REPOSITORY / "topologies" / "mini.yaml"
NIC, PLANE, WIRE = "n0-0", 1, "n0-0|p1t0-0"


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulation]:
    run_dir = tmp_path_factory.mktemp("nics") / "run"
    with running(MINI, run_dir) as emulation:
        yield emulation
        agent = emulation._processes[NIC_AGENT]
        assert agent.running
    assert not agent.running
    assert not run_dir.exists()


def test_a_cut_wire_is_in_the_mask_at_once_and_out_of_it_again(mini: Emulation) -> None:
    wait_until_ready(mini)
    assert exchange(mini, NIC, Op.READ_DOWN_PLANES) == 0
    with cut(mini, WIRE):
        seconds = wait_until(
            lambda: exchange(mini, NIC, Op.READ_DOWN_PLANES) == 1 << PLANE, "the plane is left out"
        )
        of_nic = status(mini)[NIC]
        assert of_nic["down_planes"] == of_nic["down_planes_in_force"] == 1 << PLANE
        print(
            f"\n{seconds * 1e3:.1f} ms from the cut's end to the answer that the mask is in force; "
            f"writing it took {of_nic['mask_write_us']:.0f} us"
        )
        others = {name: nic["down_planes"] for name, nic in status(mini).items() if name != NIC}
        assert set(others.values()) == {0}
    wait_until(lambda: exchange(mini, NIC, Op.READ_DOWN_PLANES) == 0, "the plane is back")


def test_a_cut_is_an_event(mini: Emulation) -> None:
    wait_until_ready(mini)

    def cut_and_restore() -> None:
        with cut(mini, WIRE):
            pass

    back = LinkEvent(NIC, PLANE, up=True)
    found = heard(mini, cut_and_restore, lambda event: event == back)
    assert [event for event in found if isinstance(event, LinkEvent)] == [
        LinkEvent(NIC, PLANE, up=False),
        back,
    ]


def test_a_change_of_a_path_is_an_event(mini: Emulation) -> None:
    wait_until_ready(mini)
    group, plane, uplink = 1, 0, 1
    index = group << 3 | plane
    path = index << 1 | uplink  # one bit tells mini's two uplinks apart
    generation = exchange(mini, NIC, Op.READ_PATH, index, path << 32) >> 8 & 0xFF

    def deny_and_allow() -> None:
        for state in (EvState.DENIED, EvState.GOOD):
            path_ev = plane << 13 | uplink << 3
            value = path << 32 | path_ev << 16 | generation << 8 | state << 6
            exchange(mini, NIC, Op.WRITE_PATH, index, value)

    found = heard(
        mini,
        deny_and_allow,
        lambda event: isinstance(event, EvEvent) and event.after is EvState.GOOD,
    )
    changes = [(e.nic, e.group, e.plane, e.uplink, e.before, e.after, e.cause) for e in found
               if isinstance(e, EvEvent)]  # fmt: skip
    assert changes == [
        (NIC, group, plane, uplink, EvState.GOOD, EvState.DENIED, EvCause.CONTROLLER),
        (NIC, group, plane, uplink, EvState.DENIED, EvState.GOOD, EvCause.CONTROLLER),
    ]


def test_a_push_takes_the_nics_and_the_agent_has_them_again(mini: Emulation) -> None:
    wait_until_ready(mini)
    with cut(mini, WIRE):
        apply(mini, Policy(spray=Spray(mode="round_robin")))
        wait_until_ready(mini)
        assert exchange(mini, NIC, Op.READ_DOWN_PLANES) == 1 << PLANE
    apply(mini, Policy())
    wait_until_ready(mini)
    wait_until(lambda: exchange(mini, NIC, Op.READ_DOWN_PLANES) == 0, "the plane is back")


def test_a_wire_cut_while_another_controller_holds_the_nic_is_in_the_mask_afterwards(
    mini: Emulation,
) -> None:
    wait_until_ready(mini)
    device = mini.inventory.devices[NIC]

    async def hold_and_cut() -> None:
        async with connect(NIC, device.address, device.device_id) as link:
            await link.become_primary()
            with pytest.raises(AgentError, match="another controller holds the NIC"):
                await client(mini).exchange(NIC, Op.READ_DOWN_PLANES, 0)
            await asyncio.to_thread(mini.wires.cut, WIRE)
            # As a push that finds the program missing does: all registers are 0 again.
            await link.set_program(load_program("nic"))

    asyncio.run(hold_and_cut())
    try:
        wait_until_ready(mini)
        assert exchange(mini, NIC, Op.READ_DOWN_PLANES) == 1 << PLANE
    finally:
        mini.wires.restore(WIRE)
        apply(mini, Policy())
    wait_until_ready(mini)


def test_a_nic_that_was_killed_is_held_again(mini: Emulation) -> None:
    wait_until_ready(mini)
    mini.kill(NIC)
    wait_until(lambda: not status(mini)[NIC]["attached"], "the agent misses the NIC")
    asyncio.run(mini.restart(NIC))
    apply(mini, Policy())
    wait_until_ready(mini)
    assert exchange(mini, NIC, Op.READ_DOWN_PLANES) == 0


def test_an_agent_that_was_killed_is_missed_and_another_takes_its_place(mini: Emulation) -> None:
    wait_until_ready(mini)
    mini.kill(NIC_AGENT)
    assert mini.killed == [NIC_AGENT]
    with pytest.raises(AgentError):
        status(mini)
    with cut(mini, WIRE):  # unseen by any agent
        restart_agent(mini)
        assert mini.killed == []
        assert exchange(mini, NIC, Op.READ_DOWN_PLANES) == 1 << PLANE
    wait_until(lambda: exchange(mini, NIC, Op.READ_DOWN_PLANES) == 0, "the plane is back")
    with pytest.raises(EmulationError, match=f"{NIC_AGENT} is running: `kill {NIC_AGENT}` first"):
        asyncio.run(mini.restart(NIC_AGENT))


def test_an_agent_comes_back_while_a_nic_is_dead(mini: Emulation) -> None:
    wait_until_ready(mini)
    mini.kill(NIC)
    mini.kill(NIC_AGENT)
    assert mini.killed == [NIC, NIC_AGENT]
    asyncio.run(mini.restart(NIC_AGENT))
    others = {name: nic for name, nic in status(mini).items() if name != NIC}
    assert all(nic["attached"] for nic in others.values())
    asyncio.run(mini.restart(NIC))
    apply(mini, Policy())
    wait_until_ready(mini)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_the_agent_and_its_socket(mini: Emulation, number: signal.Signals) -> None:
    """However many there are, and whoever listens without reading."""
    wait_until_ready(mini)
    process = mini._processes[NIC_AGENT]
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(mini.run_dir.path / SOCKET))
        silent.send(b'{"command": "subscribe"}\n')
        started = time.monotonic()
        while process.running and time.monotonic() < started + WITHIN_S:
            os.kill(process.pid, number)
            time.sleep(0.01)
    assert not process.running
    assert time.monotonic() < started + 2.0
    with pytest.raises(ProcessError, match="ended with code 0"):
        process.check()
    assert not (mini.run_dir.path / SOCKET).exists()
    restart_agent(mini)


def test_a_second_agent_for_the_same_fabric_is_refused(mini: Emulation) -> None:
    wait_until_ready(mini)
    command = [sys.executable, "-m", "controller.nic_agent", "--run-dir", str(mini.run_dir.path)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert second.returncode == 1
    assert second.stderr.startswith("nic_agent: ")
    assert second.stderr.endswith("another NIC agent listens on it\n")
    wait_until_ready(mini)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"command": "dance"}, "command = 'dance': allowed are subscribe, exchange, status"),
        ({"command": "exchange", "nic": "n9", "op": 1, "index": 0, "value": 0}, "nic = 'n9'"),
        ({"command": "exchange", "nic": NIC, "op": 256, "index": 0, "value": 0}, "op = 256"),
        ({"command": "exchange", "nic": NIC, "op": 1, "index": -1, "value": 0}, "index = -1"),
        ({"command": "exchange", "nic": NIC, "op": 1, "index": 0}, "value = None"),
    ],
)
def test_bad_requests_are_refused_in_words(
    mini: Emulation, request_: dict[str, Any], error: str
) -> None:
    command = AgentClient(mini.run_dir.path / SOCKET)
    name, parameters = request_["command"], {k: v for k, v in request_.items() if k != "command"}
    with pytest.raises(AgentError, match=error):
        asyncio.run(command.call(name, parameters))
