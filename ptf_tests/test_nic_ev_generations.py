# SPDX-License-Identifier: GPL-2.0-only
"""nic.p4: another generation of a spray group knows nothing of its paths (ev_state.p4)."""

from __future__ import annotations

from controller.ev_events import EvCause
from ptf_tests.ev_sender import (
    BAD,
    DENIED,
    GOOD,
    OTHER_PLANE,
    OWN_QP,
    PATHS,
    PEER_QP,
    SKIP,
    A,
    Sender,
    leave_plane,
    retire,
)
from ptf_tests.nic_world import (
    cross_t1,
    group_cfg,
    slots,
)

ONE_PLANE = {0: PATHS}
TWO_PLANES = {0: PATHS, 1: OTHER_PLANE}


def test_starts_clean(one_plane: Sender) -> None:
    """Its number may come round again: 255, 0 and again 255."""
    one_plane.begin_generation(ONE_PLANE, 255)
    retire(one_plane, *PATHS[:2])
    one_plane.sack(PATHS[2], m=1)
    one_plane.events((OWN_QP, PATHS[2], GOOD, SKIP, EvCause.SKIP_ONCE))
    one_plane.begin_generation(ONE_PLANE, 0)
    assert one_plane.inactive() == 0
    retire(one_plane, A)
    device = one_plane.bench.device
    one_plane.generation = 255
    device.modify(group_cfg(one_plane.group, 6, generation=255, random=False, planes=[0]))
    one_plane.use_all(ONE_PLANE)
    assert one_plane.inactive() == 0
    assert [one_plane.cell(ev) for ev in PATHS] == [(GOOD, 0, 0)] * 6


def test_assumed_down_plane_is_back(two_planes: Sender) -> None:
    """What the floor of the last generation said of the plane is gone as well."""
    leave_plane(two_planes)
    two_planes.begin_generation(TWO_PLANES)
    assert two_planes.assumed_down() == 0
    assert two_planes.lose(A) != A
    two_planes.events((PEER_QP, A, GOOD, BAD, EvCause.LOSS))


def test_feedback_of_the_last_generation(one_plane: Sender) -> None:
    """A SACK or a loss of its packets begins the new one, and is not held against its paths."""
    psn = one_plane.on(A)
    one_plane.generation += 1
    device = one_plane.bench.device
    device.insert(*slots(one_plane.group, ONE_PLANE, generation=one_plane.generation))
    device.modify(
        group_cfg(
            one_plane.group,
            6,
            generation=one_plane.generation,
            random=False,
            retirable=5,
            planes=[0],
        )
    )
    one_plane.sack(A, m=2)
    one_plane.events((OWN_QP, 0, GOOD, GOOD, EvCause.GENERATION))
    one_plane.write(psn, rtx=True)
    one_plane.events()
    assert one_plane.inactive() == 0


def test_denied_before_anything_is_sent(one_plane: Sender) -> None:
    """The controller's write begins the generation; its event says so by the number."""
    one_plane.generation += 1
    one_plane.set_state(A, DENIED)
    one_plane.events((0, A, GOOD, DENIED, EvCause.CONTROLLER))
    device = one_plane.bench.device
    paths = slots(one_plane.group, ONE_PLANE, generation=one_plane.generation, alternates=True)
    device.insert(*paths)
    device.modify(
        group_cfg(one_plane.group, 6, generation=one_plane.generation, random=False, planes=[0])
    )
    assert {*one_plane.rotation(12)} == {*PATHS[1:]}
    one_plane.events()


def test_spray_groups_that_share_states(sender: Sender, second_spray_group: int) -> None:
    """What one learns the other knows."""
    sender.install(ONE_PLANE)
    retire(sender, A)
    device = sender.bench.device
    device.insert(
        *slots(second_spray_group, ONE_PLANE, generation=sender.generation, alternates=True),
        group_cfg(
            second_spray_group,
            6,
            generation=sender.generation,
            random=False,
            planes=[0],
            shared_states=sender.path_group,
        ),
    )
    device.modify(cross_t1(second_spray_group))
    assert {*sender.rotation(12)} == {*PATHS[1:]}
    sender.events()
