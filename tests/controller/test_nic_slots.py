# SPDX-License-Identifier: Apache-2.0
"""Slots, their alternates and the floor of each plane."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
from finsy import P4TableEntry
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from controller.apportion import Counts
from controller.entries import desired_entries
from controller.fabric import Fabric
from controller.nic_slots import alternates, choose_slots
from controller.policy import Deny, PathWeight, Policy, PolicyError, Spray
from tests.controller.strategies import fabric_of, shipped

rows_of_uplinks = st_numpy.arrays(
    np.int64,
    st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 4, 8, 32])),
    elements=st.integers(0, 9),
)


@given(rows_of_uplinks)
def test_alternates_are_others_of_the_row(uplinks: Counts) -> None:
    found, different = alternates(uplinks)
    assert found.shape == (*uplinks.shape, 4)
    assert np.array_equal(found[:, :, 0], uplinks)
    for row, paths, slots in zip(uplinks, different, found, strict=True):
        allowed = set(row.tolist())
        assert paths == len(allowed)
        for own, *others in slots.tolist():
            if paths == 1:
                assert others == [own] * 3
                continue
            assert own not in others
            assert set(others) <= allowed
            assert len(set(others)) == min(3, paths - 1)


def test_what_a_path_carried_spreads() -> None:
    """Eight slots of path 0 among eight others: each of these is the first alternate of one."""
    uplinks = np.array([[0] * 8 + list(range(1, 9))])
    found, _ = alternates(uplinks)
    assert sorted(found[0, :8, 1].tolist()) == list(range(1, 9))


def test_policies_of_other_groups_do_not_move_slots() -> None:
    weights = np.ones((3, 2, 64))
    before = choose_slots(weights, [0, 1, 3], 8, seed=5)
    weights[1] = 0  # T0 group 1 is not reached any more
    after = choose_slots(weights, [0, 1, 3], 8, seed=5)
    assert np.array_equal(before.evs[:2], after.evs[:2])
    assert np.array_equal(before.evs[4:], after.evs[2:])
    assert after.row.tolist() == [[0, 0], [0, 1], [2, 0], [2, 1]]


def test_spray_groups_to_one_t0_group_have_the_same_paths() -> None:
    """They share the states of their paths, and its floor."""
    chosen = choose_slots(np.ones((2, 1, 64)), [2, 2], 8, seed=5)
    assert np.array_equal(chosen.evs[0], chosen.evs[1])


def table_entries(fabric: Fabric, name: str, policy: Policy) -> list[P4TableEntry]:
    """What is in the tables of a device."""
    entries = desired_entries(fabric, name, policy)
    return [entry for entry in entries if isinstance(entry, P4TableEntry)]


def config(policy: Policy, name: str = "n0-0", fabric: Any = None) -> dict[int, dict[str, int]]:
    """The arguments of `group_cfg`, by spray group."""
    entries = table_entries(fabric or shipped("lab"), name, policy)
    return {
        entry["group_id"]: entry.action.args  # type: ignore[union-attr]
        for entry in entries
        if entry.table_id == "group_cfg"
    }


@pytest.mark.parametrize(
    ("ev_min_active", "retirable"), [(1, [3] * 4), (2, [2] * 4), (4, [0] * 4), (4096, [0] * 4)]
)
def test_ev_min_active_is_the_floor(ev_min_active: int, retirable: list[int]) -> None:
    """Four uplinks; in the own T0 group there is one path per plane, which is never retired."""
    found = config(Policy(spray=Spray(ev_min_active=ev_min_active, probe_successes=7)))
    assert list(found[1]["retirable"].to_bytes(8, "little")) == retirable + [0] * 4
    assert found[0]["retirable"] == 0
    assert {args["probe_successes"] for args in found.values()} == {7}


def test_floor_counts_paths_that_are_used() -> None:
    policy = Policy(
        path_weights=(PathWeight(plane=1, uplink=0, weight=0),),
        deny=Deny(planes=(2,), links=(("p3t0-1", "p3t1-1"), ("p3t0-0", "p3t1-2"))),
    )
    found = config(policy)[1]
    assert list(found["retirable"].to_bytes(8, "little")) == [3, 2, 0, 1, 0, 0, 0, 0]
    assert found["planes"] == 0b1011
    few_slots = config(Policy(spray=Spray(slots_per_plane=2)))[1]
    assert list(few_slots["retirable"].to_bytes(8, "little"))[:4] == [1] * 4


def test_floor_at_full_size_fits_its_byte() -> None:
    fabric = fabric_of(1, 2, 512, 1)
    found = config(Policy(spray=Spray(slots_per_plane=512)), fabric=fabric)
    assert found[1]["retirable"] == 255


def test_too_many_paths_are_refused() -> None:
    assert config(Policy(), fabric=fabric_of(1, 512, 256, 1))[511]["uplink_bits"] == 8
    with pytest.raises(
        PolicyError,
        match=r"n0-0: 513 T0 groups with 256 uplinks; allowed: states of 1048576 paths, which is "
        r"8 x groups x uplinks \(a power of two\)",
    ):
        desired_entries(fabric_of(1, 513, 256, 1), "n0-0", Policy())
    with pytest.raises(PolicyError, match="512 T0 groups with 257 uplinks"):
        desired_entries(fabric_of(1, 512, 257, 1), "n0-0", Policy())


def test_groups_that_share_states_are_configured_one_after_the_other() -> None:
    policy = Policy(deny=Deny(links=(("n1-0", "p2t0-1"),)))
    entries = table_entries(shipped("lab"), "n0-0", policy)
    cfg = [entry for entry in entries if entry.table_id == "group_cfg"]
    assert [entry["group_id"] for entry in cfg] == [0, 1, 2]
    assert [entry.action.args["path_group"] for entry in cfg] == [0, 1, 1]  # type: ignore[union-attr]


def test_full_size_in_time() -> None:
    fabric = shipped("full-131k")
    started = time.perf_counter()
    entries = table_entries(fabric, "n511-255", Policy())
    seconds = time.perf_counter() - started
    used = Counter(entry.table_id for entry in entries)
    assert (used["slots"], used["group_cfg"]) == (511 * 8 * 32 + 8, 512)
    print(f"full-131k: {len(entries):,} entries of a NIC in {seconds:.2f} s")
    assert seconds < 10
