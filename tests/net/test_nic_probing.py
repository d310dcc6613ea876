# SPDX-License-Identifier: Apache-2.0
"""Paths that NICs assume to be bad are probed by their agent until they work again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from controller import addressing as addr
from controller.ev_events import EvCause, Event, EvEvent, EvState, PlaneChange
from controller.nic_agent.bad_paths import BadPath
from controller.nic_agent.registers import Op
from controller.p4rt import connect
from controller.policy import Policy
from tests.net.nic_agents import (
    Path,
    black_hole,
    cell,
    client,
    cut,
    exchange,
    heard,
    restart_agent,
    set_state,
    status,
    wait_until,
    wait_until_ready,
)
from tests.net.running import apply, counters, running
from topologies.emulation import NIC_AGENT, Emulation
from topologies.experiments.traffic import Flow, connected, sending
from topologies.processes import REPOSITORY

pytestmark = pytest.mark.net

MINI = REPOSITORY / "topologies" / "mini.yaml"
NIC, HOST, PEER = "n0-0", "h0-0", "h1-0"
PATH: Path = (1, 1, 0)
WIRE = "p1t0-0|p1t1-0"
"""Of PATH: the first switch's to plane 1's T1 0."""
RATE = 300.0


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulation]:
    with running(MINI, tmp_path_factory.mktemp("probing") / "run") as emulation:
        wait_until_ready(emulation)
        yield emulation


@pytest.fixture
def mini(fabric: Emulation) -> Iterator[Emulation]:
    """Nothing is bad, before and after."""
    yield fabric
    wait_until_ready(fabric)
    wait_until(lambda: probed(fabric) == {}, "nothing is bad any more")


def probed(emulation: Emulation) -> dict[str, list[list[int]]]:
    """What is being probed, by NIC."""
    return {
        name: nic["bad_paths"] + nic["assumed_down"]
        for name, nic in status(emulation).items()
        if nic["bad_paths"] or nic["assumed_down"]
    }


def probes(emulation: Emulation) -> int:
    return int(status(emulation)[NIC]["probes"])


def is_state(emulation: Emulation, path: Path, wanted: EvState) -> None:
    wait_until(lambda: cell(emulation, NIC, path).state is wanted, f"{path} is {wanted.name}")


@pytest.mark.parametrize("path", [PATH, (0, 1, 0)], ids=["cross_t1", "t0_local"])
def test_a_path_that_works_is_good_again_by_as_many_answers_as_the_policy_wants(
    mini: Emulation, path: Path
) -> None:
    before = probes(mini)
    started = time.monotonic()
    found = heard(
        mini,
        lambda: set_state(mini, NIC, path, EvState.ASSUMED_BAD),
        lambda event: isinstance(event, EvEvent) and event.after is EvState.GOOD,
    )
    last = found[-1]
    assert isinstance(last, EvEvent)
    assert (last.nic, last.group, last.plane) == (NIC, *path[:2])
    assert (last.before, last.cause) == (EvState.ASSUMED_BAD, EvCause.PROBE)
    assert cell(mini, NIC, path).state is EvState.GOOD
    wanted = Policy().spray.probe_successes
    assert wanted <= probes(mini) - before <= wanted + 2  # one may be sent before an answer is seen
    print(f"\n{time.monotonic() - started:.2f} s from ASSUMED_BAD to GOOD")


def test_probes_take_exactly_the_path_and_its_answers_count_for_the_nic(mini: Emulation) -> None:
    before = counters(mini)
    set_state(mini, NIC, PATH, EvState.ASSUMED_BAD)
    is_state(mini, PATH, EvState.GOOD)
    wait_until(lambda: probed(mini) == {}, "it is not probed any more")
    seen = counters(mini) - before
    nic = seen.devices[NIC]
    sent = int(nic.port_in[addr.CPU_PORT, 0])
    assert sent >= Policy().spray.probe_successes
    assert int(nic.port_out[addr.nic_plane_port(PATH[1]), 0]) == sent
    assert int(seen.devices["p1t1-0"].port_in[addr.t1_port(0), 0]) == sent
    assert int(nic.port_out[addr.NIC_HOST_PORT, 0]) == sent
    assert int(nic.drops.sum()) == 0


def test_a_path_that_stays_broken_stays_bad_and_is_probed_more_seldom(mini: Emulation) -> None:
    with black_hole(mini, WIRE):
        set_state(mini, NIC, PATH, EvState.ASSUMED_BAD)
        wait_until(lambda: probed(mini) == {NIC: [list(PATH)]}, "it is probed")
        time.sleep(1.5)  # 0.02 + 0.04 .. 1.28 s: now about once a second
        before = probes(mini)
        time.sleep(2.2)
        assert 1 <= probes(mini) - before <= 3
        assert cell(mini, NIC, PATH).state is EvState.ASSUMED_BAD
    seconds = wait_until(lambda: cell(mini, NIC, PATH).state is EvState.GOOD, "it is good")
    assert seconds < 2.0
    print(f"\n{seconds:.2f} s from the wire's return to GOOD")


def test_a_path_that_swallows_writes_is_left_and_comes_back_by_itself(mini: Emulation) -> None:
    """Nothing but data plane, end points and agent acts; the writes go on all the time."""

    def flow() -> None:
        async def send() -> None:
            flows = [Flow(HOST, PEER)]
            async with (
                connected(mini, flows, 150, sack_gen_threshold=4) as connections,
                sending(connections, RATE) as load,
            ):
                await load.last(0.5)
                with black_hole(mini, WIRE):
                    await load.last(2.0)
                await load.last(2.0)
            (connection,) = connections
            assert connection.sent.damaged == 0
            print(f"\nsent again: {dict(connection.sent.retransmissions)}")

        asyncio.run(send())

    of_path: list[EvEvent] = []

    def back(event: Event) -> bool:
        if isinstance(event, EvEvent) and (event.nic, *BadPath.of(event)) == (NIC, *PATH):
            # The end of an earlier test's probing may be told of late.
            of_path.extend([event] if of_path or event.cause is EvCause.LOSS else [])
        return len(of_path) == 2

    heard(mini, flow, back)
    assert [(event.before, event.after, event.cause) for event in of_path] == [
        (EvState.GOOD, EvState.ASSUMED_BAD, EvCause.LOSS),
        (EvState.ASSUMED_BAD, EvState.GOOD, EvCause.PROBE),
    ]
    seconds = (of_path[1].time_us - of_path[0].time_us) / 1e6
    assert seconds > 1.0
    print(f"ASSUMED_BAD for {seconds:.2f} s, the wire swallowed everything for 2 s")


def test_a_denied_path_is_not_probed(mini: Emulation) -> None:
    with black_hole(mini, WIRE):
        set_state(mini, NIC, PATH, EvState.ASSUMED_BAD)
        wait_until(lambda: probed(mini) == {NIC: [list(PATH)]}, "it is probed")
        set_state(mini, NIC, PATH, EvState.DENIED)
        wait_until(lambda: probed(mini) == {}, "it is not probed any more")
    before = probes(mini)
    time.sleep(0.3)
    assert probes(mini) == before
    set_state(mini, NIC, PATH, EvState.GOOD)


def test_a_plane_without_carrier_is_not_probed(mini: Emulation) -> None:
    with cut(mini, "n0-0|p1t0-0"):
        wait_until(lambda: exchange(mini, NIC, Op.READ_DOWN_PLANES) == 2, "the plane is left out")
        before = probes(mini)
        set_state(mini, NIC, PATH, EvState.ASSUMED_BAD)
        wait_until(lambda: probed(mini) == {NIC: [list(PATH)]}, "it is known")
        time.sleep(0.3)
        assert probes(mini) == before
    is_state(mini, PATH, EvState.GOOD)


def test_a_plane_that_is_assumed_to_be_down_comes_back_by_one_answer(mini: Emulation) -> None:
    group, plane = PATH[:2]
    generation = exchange(mini, NIC, Op.READ_ASSUMED, group) >> 8

    def assume() -> None:
        # No event tells of this: the agent learns of it by reading when the NIC is its own again.
        exchange(mini, NIC, Op.WRITE_ASSUMED, group, generation << 8 | 1 << plane)
        apply(mini, Policy())

    found = heard(
        mini,
        assume,
        lambda event: isinstance(event, EvEvent) and event.plane_change is PlaneChange.BACK,
    )
    last = found[-1]
    assert isinstance(last, EvEvent)
    assert (last.nic, last.group, last.plane, last.cause) == (NIC, group, plane, EvCause.PROBE)
    assert exchange(mini, NIC, Op.READ_ASSUMED, group) & 0xFF == 0


def test_what_an_agent_that_was_killed_knew_the_next_one_finds(mini: Emulation) -> None:
    with black_hole(mini, WIRE):
        set_state(mini, NIC, PATH, EvState.ASSUMED_BAD)
        wait_until(lambda: probed(mini) == {NIC: [list(PATH)]}, "it is probed")
        mini.kill(NIC_AGENT)
        restart_agent(mini)
        wait_until(lambda: probed(mini) == {NIC: [list(PATH)]}, "it is probed again")
    is_state(mini, PATH, EvState.GOOD)


def test_what_a_nic_says_while_another_controller_has_it_is_not_missed(mini: Emulation) -> None:
    device = mini.inventory.devices[NIC]

    async def hold() -> None:
        async with connect(NIC, device.address, device.device_id) as link:
            await link.become_primary()
            await asyncio.sleep(0.1)

    with black_hole(mini, WIRE):
        set_state(mini, NIC, PATH, EvState.ASSUMED_BAD)
        wait_until(lambda: probed(mini) == {NIC: [list(PATH)]}, "it is probed")
        asyncio.run(hold())
        wait_until_ready(mini)
        wait_until(lambda: probed(mini) == {NIC: [list(PATH)]}, "it is probed again")
    is_state(mini, PATH, EvState.GOOD)


def test_a_nic_that_is_killed_while_its_paths_are_probed_comes_back_clean(mini: Emulation) -> None:
    with black_hole(mini, WIRE):
        set_state(mini, NIC, PATH, EvState.ASSUMED_BAD)
        wait_until(lambda: probed(mini) == {NIC: [list(PATH)]}, "it is probed")
        mini.kill(NIC)
        wait_until(lambda: not status(mini)[NIC]["attached"], "the agent misses the NIC")
        asyncio.run(mini.restart(NIC))
        apply(mini, Policy())
        wait_until_ready(mini)
        wait_until(lambda: probed(mini) == {}, "the new NIC assumes nothing to be bad")
        assert cell(mini, NIC, PATH).state is EvState.GOOD
    assert asyncio.run(client(mini).status())[NIC]["ready"]
