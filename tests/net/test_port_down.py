# SPDX-License-Identifier: Apache-2.0
"""A plane port of a NIC goes down: its agent tells the peers, and their NICs know."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from controller.addressing import DeviceKind
from controller.nic_agent.notices import AT_A_CHANGE
from controller.nic_agent.registers import read_peer_down
from controller.peers import Peer, add_peers, delete_peers
from mrc.agent_client import AgentClient
from tests.net.nic_agents import (
    client,
    cut,
    restart_agent,
    status,
    wait_until,
    wait_until_ready,
)
from tests.net.running import running
from topologies.emulation import NIC_AGENT, Emulation
from topologies.processes import REPOSITORY

pytestmark = pytest.mark.net

MINI = REPOSITORY / "topologies" / "mini.yaml"
NIC, HOST, PLANE = "n0-0", "h0-0", 1
WIRE = f"{NIC}|p{PLANE}t0-0"
PEER_NIC, PEER_HOST = "n1-0", "h1-0"
NOTICE_LIFE_S = 5.0


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulation]:
    with running(MINI, tmp_path_factory.mktemp("ports") / "run") as emulation:
        wait_until_ready(emulation)
        yield emulation


@pytest.fixture
def mini(fabric: Emulation) -> Iterator[Emulation]:
    """No NIC knows of a port that is down, before and after."""
    yield fabric
    wait_until_ready(fabric)
    wait_until(lambda: not any(known(fabric).values()), "all NICs have heard that all is well")


def known(emulation: Emulation) -> dict[str, int]:
    """What the other NICs hold about NIC, by their names: a mask of planes."""
    fabric = emulation.fabric
    address = fabric.host_address(fabric.device(NIC))

    async def read() -> dict[str, int]:
        agent = client(emulation)
        return {
            nic.name: (await read_peer_down(partial(agent.exchange, nic.name), address)).planes
            for nic in fabric.devices(DeviceKind.NIC)
            if nic.name != NIC
        }

    return asyncio.run(read())


def said(emulation: Emulation) -> int:
    return int(status(emulation)[NIC]["notices"])


def probing(emulation: Emulation, host: str) -> dict[str, Any]:
    """What the agent of a host counts of endpoint operations."""
    agent = AgentClient(emulation.inventory.hosts[host].control)
    found: dict[str, Any] = asyncio.run(agent.stats())["probing"]
    return found


def test_every_other_nic_learns_of_a_port_that_is_down_and_that_it_is_up_again(
    mini: Emulation,
) -> None:
    with cut(mini, WIRE):
        seconds = wait_until(
            lambda: set(known(mini).values()) == {1 << PLANE}, "all NICs know of the dead port"
        )
        print(f"\n{1e3 * seconds:.1f} ms until all NICs knew, and were seen to")
        assert known(mini).keys() == {
            nic.name for nic in mini.fabric.devices(DeviceKind.NIC) if nic.name != NIC
        }
    wait_until(lambda: set(known(mini).values()) == {0}, "all NICs know that it is up again")


def test_hosts_answer_notices_and_the_answers_are_the_nics(mini: Emulation) -> None:
    before, own = probing(mini, PEER_HOST), probing(mini, HOST)
    start = said(mini)
    with cut(mini, WIRE):
        wait_until(lambda: said(mini) > start, "notices have been sent")
        hosts = mini.fabric.host_count - 1

        def answered() -> bool:
            now = probing(mini, HOST)
            new = now.get("answers_for_nic", 0) - own.get("answers_for_nic", 0)
            return bool(new >= AT_A_CHANGE * hosts)

        wait_until(answered, "all hosts have answered all notices")
    after = probing(mini, PEER_HOST)
    told, answers = (
        after[name] - before.get(name, 0) for name in ("port_status_updates", "requests_answered")
    )
    assert AT_A_CHANGE <= told == answers
    assert probing(mini, HOST).get("answers_unknown", 0) == own.get("answers_unknown", 0)


def test_only_peers_are_told_again_and_again(mini: Emulation) -> None:
    address = mini.fabric.host_address(mini.fabric.device(PEER_NIC))
    peer = Peer(address, 100, 200)
    asyncio.run(add_peers(mini.inventory, NIC, [peer]))
    wait_until_ready(mini)
    try:
        with cut(mini, WIRE):
            wait_until(lambda: known(mini)[PEER_NIC] == 1 << PLANE, "the peer knows")
            time.sleep(0.3)
            before = said(mini)
            time.sleep(2.3)
            assert 1 <= said(mini) - before <= 3
    finally:
        asyncio.run(delete_peers(mini.inventory, NIC, [peer.key]))
        wait_until_ready(mini)


def test_an_agent_that_died_does_no_lasting_harm(mini: Emulation) -> None:
    with cut(mini, WIRE):
        wait_until(lambda: set(known(mini).values()) == {1 << PLANE}, "all NICs know")
        mini.kill(NIC_AGENT)
        killed_s = time.monotonic()
    # The new one finds the port up, and has nothing to say.
    restart_agent(mini)
    assert said(mini) == 0
    wait_until(lambda: not any(known(mini).values()), "the NICs have forgotten")
    assert 3.0 < time.monotonic() - killed_s < NOTICE_LIFE_S + 4.0


def test_an_agent_that_starts_with_a_port_down_says_so(mini: Emulation) -> None:
    mini.kill(NIC_AGENT)
    with cut(mini, WIRE):
        restart_agent(mini)
        wait_until(lambda: set(known(mini).values()) == {1 << PLANE}, "all NICs know")
