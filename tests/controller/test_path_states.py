# SPDX-License-Identifier: Apache-2.0
"""Which paths are denied and allowed, and what becomes of it when a NIC fails meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path as File

import pytest

from controller.addressing import EntropyValue
from controller.ev_events import EvState
from controller.fabric import Fabric
from controller.nic_agent.client import NicAgentClient
from controller.nic_agent.registers import Op
from controller.nic_entries import path_index
from controller.overlay import Overlay, bind
from controller.path_states import (
    Change,
    Known,
    NicStates,
    Path,
    PathStateError,
    Targets,
    apply,
    plan_allowance,
    plan_denial,
    read_states,
    used_paths,
)
from controller.policy import Deny, Policy, Spray
from mrc.agent_client import AgentError
from topologies.schema import load_topology

LAB = Fabric.from_topology(load_topology(File(__file__).parents[2] / "topologies" / "lab.yaml"))
NIC = LAB.device("n0-0")
GOOD, SKIP, BAD, DENIED = EvState
GENERATION = 3


def overlay(**policy: object) -> Overlay:
    return bind(Policy.model_validate(policy), LAB)


def states(nic: str = "n0-0", **denied: tuple[Path, ...]) -> NicStates:
    """All paths GOOD but those under the names of other states."""
    of = {path: EvState[name] for name, paths in denied.items() for path in paths}
    device = LAB.device(nic)
    paths = {path: Known(of.get(path, GOOD), GENERATION) for path in used_paths(overlay(), device)}
    return NicStates(device, paths, down=0, assumed_down={}, peers_down={})


class FakeAgent(NicAgentClient):
    """Registers of NICs in memory; `fails`: the writes, counted from 0, that are not answered."""

    def __init__(self, fails: tuple[int, ...] = ()) -> None:
        super().__init__(File("/nowhere"))
        self.cells: dict[tuple[str, int], int] = {}
        self.writes = 0
        self.fails = fails

    async def exchange(self, nic: str, op: int, index: int, value: int = 0) -> int:
        await asyncio.sleep(0)
        if op == Op.WRITE_PATH:
            self.writes += 1
            if self.writes - 1 in self.fails:
                raise AgentError(f"{nic} does not answer")
            assert value >> 8 & 0xFF == GENERATION
            self.cells[nic, value >> 32] = value >> 6 & 3
            return value
        if op == Op.READ_PATH:
            return GENERATION << 8 | self.cells.get((nic, value >> 32), 0) << 6
        return 0


# ---- which paths there are ----------------------------------------------------------------------


def test_used_paths_are_those_in_the_slots() -> None:
    paths = used_paths(overlay(), NIC)
    # 4 planes x 4 uplinks to the other T0 group, a path per plane within the own one.
    assert [path for path in paths if path.group == 1] == [
        Path(1, plane, uplink) for plane in range(4) for uplink in range(4)
    ]
    assert [path.plane for path in paths if path.group == 0] == [0, 1, 2, 3]


def test_what_a_policy_denies_is_not_used() -> None:
    paths = used_paths(overlay(deny=Deny(planes=(2,), switches=("p0t1-3",))), NIC)
    assert {path.plane for path in paths} == {0, 1, 3}
    assert Path(1, 0, 3) not in paths
    assert Path(1, 1, 3) in paths


def test_none_where_flows_are_hashed() -> None:
    assert used_paths(overlay(spray=Spray(mode="ecmp")), NIC) == []


def test_states_are_read_of_every_nic() -> None:
    agent = FakeAgent()
    agent.cells["n0-1", path_index(LAB, 1, 2, 3)] = DENIED
    found = asyncio.run(read_states(agent, LAB, overlay(), ["n0-0", "n0-1"]))
    assert [each.nic.name for each in found] == ["n0-0", "n0-1"]
    assert found[0].all_good
    assert not found[1].all_good
    assert found[1].paths[Path(1, 2, 3)] == Known(DENIED, GENERATION)
    assert len([each for each in found[1].paths.values() if each.state is GOOD]) == 19


# ---- deny and allow -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("p1t1-2", [Path(1, 1, 2)]),
        ("1/2", [Path(1, 1, 2)]),
        ("p1t0-0,p1t1-2", [Path(1, 1, 2)]),
        ("p1t1-2|p1t0-1", [Path(1, 1, 2)]),
    ],
)
def test_targets(target: str, expected: list[Path]) -> None:
    changes = plan_denial(LAB, [states()], Targets.parse(LAB, [target]), 1)
    assert changes == [Change("n0-0", path, Known(GOOD, GENERATION), DENIED) for path in expected]


def test_as_many_paths_as_the_policy_wants_stay() -> None:
    three = Targets.parse(LAB, ["0/0", "0/1", "0/2"])
    assert len(plan_denial(LAB, [states()], three, 1)) == 3
    with pytest.raises(PathStateError, match="by plane 0 1 would be left; allowed: at least 2"):
        plan_denial(LAB, [states()], three, 2)


def test_denied_ones_do_not_count_as_left_but_assumed_bad_ones_do() -> None:
    """They come back by themselves; until then the NIC uses them where nothing else is left."""
    two = Targets.parse(LAB, ["0/0", "0/1"])
    others = (Path(1, 0, 2), Path(1, 0, 3))
    assert len(plan_denial(LAB, [states(ASSUMED_BAD=others)], two, 1)) == 2
    with pytest.raises(PathStateError, match="0 would be left"):
        plan_denial(LAB, [states(DENIED=others)], two, 1)


def test_one_nic_that_cannot_keeps_all_from_it() -> None:
    with pytest.raises(PathStateError, match="n1-1: of its 4 paths to T0 group 0"):
        blocked = tuple(Path(0, 0, uplink) for uplink in (1, 2, 3))
        targets = Targets.parse(LAB, ["0/0"])
        plan_denial(LAB, [states(), states("n1-1", DENIED=blocked)], targets, 1)


def test_what_is_denied_is_left_as_it_is() -> None:
    denied = states(DENIED=(Path(1, 0, 1),))
    assert plan_denial(LAB, [denied], Targets.parse(LAB, ["0/1"]), 1) == []


def test_only_denied_paths_are_allowed() -> None:
    nic = states(DENIED=(Path(1, 0, 1), Path(1, 2, 0)), ASSUMED_BAD=(Path(1, 3, 3),))
    everything = plan_allowance(LAB, [nic], None)
    assert [change.path for change in everything] == [Path(1, 0, 1), Path(1, 2, 0)]
    assert {change.wanted for change in everything} == {GOOD}
    one = plan_allowance(LAB, [nic], Targets.parse(LAB, ["p2t1-0", "p3t1-3"]))
    assert [change.path for change in one] == [Path(1, 2, 0)]


def test_changes_are_written() -> None:
    agent = FakeAgent()
    asyncio.run(apply(agent, LAB, plan_denial(LAB, [states()], Targets.parse(LAB, ["p1t1-2"]), 1)))
    assert agent.cells == {("n0-0", path_index(LAB, 1, 1, 2)): DENIED}


def test_the_ev_in_what_is_written_is_the_paths() -> None:
    written = []

    class Agent(FakeAgent):
        async def exchange(self, nic: str, op: int, index: int, value: int = 0) -> int:
            written.append((nic, op, index, value >> 16 & 0xFFFF))
            return value

    asyncio.run(apply(Agent(), LAB, [Change("n0-0", Path(1, 1, 2), Known(GOOD, 0), DENIED)]))
    assert written == [("n0-0", Op.WRITE_PATH, 1 << 3 | 1, EntropyValue(1, 2).path_ev)]


def test_a_failure_in_the_midst_puts_back_what_was_written() -> None:
    agent = FakeAgent(fails=(2,))
    changes = plan_denial(LAB, [states()], Targets.parse(LAB, ["0/0", "1/0", "2/0"]), 1)
    assert len(changes) == 3
    with pytest.raises(AgentError, match="n0-0 does not answer; nothing is changed"):
        asyncio.run(apply(agent, LAB, changes))
    assert set(agent.cells.values()) == {GOOD}


def test_what_cannot_be_put_back_is_said() -> None:
    agent = FakeAgent(fails=(1, 2))
    changes = plan_denial(LAB, [states(), states("n0-1")], Targets.parse(LAB, ["0/0"]), 1)
    with pytest.raises(AgentError, match="could not be put back in n0-0"):
        asyncio.run(apply(agent, LAB, changes))
