# SPDX-License-Identifier: Apache-2.0
"""Which paths are probed, and when."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from controller.ev_events import EvCause, EvEvent, EvState, PlaneChange
from controller.nic_agent.bad_paths import (
    FIRST_INTERVAL_S,
    LAST_INTERVAL_S,
    UNUSABLE_WAIT_S,
    BadPath,
    BadPaths,
    DownPlane,
)

PATH = BadPath(3, 1, 2)
PLANE = DownPlane(3, 1)
LOST = EvEvent(
    nic="n0-0", group=3, plane=1, uplink=2, before=EvState.GOOD, after=EvState.ASSUMED_BAD,
    cause=EvCause.LOSS, plane_change=PlaneChange.UNCHANGED, generation=0, qp=5, time_us=1,
)  # fmt: skip
BACK = replace(LOST, before=EvState.ASSUMED_BAD, after=EvState.GOOD, cause=EvCause.PROBE)
PLANE_LOST = replace(LOST, after=EvState.GOOD, plane_change=PlaneChange.ASSUMED_DOWN)
PLANE_BACK = replace(BACK, before=EvState.GOOD, plane_change=PlaneChange.BACK)


def heard(*events: EvEvent) -> BadPaths:
    bad = BadPaths()
    for event in events:
        bad.hear(event, 0.0)
    return bad


def probes(bad: BadPaths, until_s: float, *, successes: int = 0) -> list[float]:
    """When probes are sent up to a time, while the registers always say the same."""
    times = []
    while (now := bad.next_s()) <= until_s:
        for what in bad.to_look_at(now):
            bad.looked(what, now, bad=True, successes=successes)
        for what in bad.to_probe(now):
            bad.probed(what, now)
            times.append(now)
    return times


def test_a_bad_path_is_probed_ever_more_seldom() -> None:
    times = probes(heard(LOST), 20.0)
    waits = [b - a for a, b in zip([0.0, *times], times, strict=False)]
    assert waits[:7] == pytest.approx(
        [FIRST_INTERVAL_S, *(FIRST_INTERVAL_S * 2**n for n in range(6))]
    )
    assert waits[10:] == pytest.approx([LAST_INTERVAL_S] * len(waits[10:]))
    assert len(waits) > 15


def test_an_answer_makes_the_probes_follow_one_another_quickly() -> None:
    bad = heard(LOST)
    last = probes(bad, 20.0)[-1]
    assert bad.next_s() == pytest.approx(last + LAST_INTERVAL_S)
    sent = last + LAST_INTERVAL_S
    assert bad.to_probe(sent) == [PATH]
    bad.probed(PATH, sent)
    for successes in (1, 2):
        assert (bad.to_probe(sent + 0.5), bad.next_s()) == ([], sent + FIRST_INTERVAL_S)
        sent = bad.next_s()
        assert bad.to_look_at(sent) == [PATH]
        bad.looked(PATH, sent, bad=True, successes=successes)
        assert bad.to_probe(sent) == [PATH]
        bad.probed(PATH, sent)
    bad.looked(PATH, sent, bad=True, successes=2)  # none more: back off again, from the beginning
    assert bad.next_s() == sent + FIRST_INTERVAL_S


@pytest.mark.parametrize("after", [EvState.GOOD, EvState.SKIP, EvState.DENIED])
def test_probing_ends_with_any_other_state(after: EvState) -> None:
    bad = heard(LOST)
    assert (bad.paths, bad.planes) == ([PATH], [])
    bad.hear(replace(BACK, after=after), 1.0)
    assert (bad.paths, bad.next_s()) == ([], inf)


def test_probing_ends_when_the_registers_say_so() -> None:
    bad = heard(LOST, PLANE_LOST, replace(LOST, uplink=0))
    bad.looked(PATH, 1.0, bad=False, successes=0)
    bad.looked(PLANE, 1.0, bad=False, successes=0)
    assert (bad.paths, bad.planes) == ([PATH._replace(uplink=0)], [])


def test_what_is_bad_already_does_not_begin_anew() -> None:
    bad = heard(LOST)
    before = probes(bad, 2.0)
    bad.hear(replace(LOST, before=EvState.ASSUMED_BAD), 2.0)
    bad.add(PATH, 2.0)
    assert bad.next_s() == pytest.approx(before[-1] + LAST_INTERVAL_S)


def test_another_generation_begins_without_bad_paths() -> None:
    other = replace(LOST, group=4)
    bad = heard(LOST, PLANE_LOST, other)
    bad.hear(replace(PLANE_BACK, cause=EvCause.GENERATION, generation=1), 0.0)
    assert (bad.paths, bad.planes) == ([PATH._replace(group=4)], [])


def test_a_plane_that_is_down_is_probed_until_it_is_back() -> None:
    bad = heard(PLANE_LOST)
    assert (bad.paths, bad.planes) == ([], [PLANE])
    bad.hear(replace(PLANE_LOST, after=EvState.SKIP, plane_change=PlaneChange.UNCHANGED), 1.0)
    assert bad.planes == [PLANE]
    bad.hear(replace(PLANE_BACK, uplink=0), 1.0)
    assert bad.next_s() == inf


def test_a_bad_path_of_a_plane_that_comes_back_is_probed_on() -> None:
    bad = heard(LOST, replace(PLANE_LOST, uplink=0), replace(PLANE_BACK, uplink=0))
    assert (bad.paths, bad.planes) == ([PATH], [])


@pytest.mark.parametrize("uplinks", [3, 4, 256])
def test_all_paths_of_a_plane_are_tried_and_the_suspect_most(uplinks: int) -> None:
    bad = heard(PLANE_LOST)
    tried = []
    for _ in range(2 * uplinks):
        tried.append(bad.uplink(PLANE, uplinks))
        bad.probed(PLANE, 0.0)
    assert set(tried) == set(range(uplinks))
    assert tried[::2] == [2] * uplinks
    assert tried[1:4:2] == [3 % uplinks, 4 % uplinks]
    assert BadPaths().uplink(PATH, uplinks) == PATH.uplink


def test_what_cannot_be_probed_waits_and_is_not_counted() -> None:
    bad = heard(LOST)
    bad.postpone(PATH, 1.0)
    assert bad.next_s() == pytest.approx(1.0 + UNUSABLE_WAIT_S)
    assert (bad.probes(PATH), bad.to_look_at(9.0)) == (0, [])


def test_what_is_not_probed_any_more_stays_so() -> None:
    """The shell may come back from waiting with what an event has ended meanwhile."""
    bad = heard(LOST, BACK)
    bad.probed(PATH, 1.0)
    bad.postpone(PATH, 1.0)
    bad.looked(PATH, 1.0, bad=True, successes=1)
    assert PATH not in bad
    assert bad.next_s() == inf
