# SPDX-License-Identifier: GPL-2.0-only
"""nic.p4: the floor of active paths, and planes that are dead as a whole (ev_state.p4)."""

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
    PLANE_BACK,
    PLANE_DOWN,
    SKIP,
    A,
    Sender,
    leave_plane,
    retire,
)
from ptf_tests.nic_world import set_down_planes


class TestFloor:
    def test_last_path_is_kept(self, one_plane: Sender) -> None:
        """And its plane, being the only one, too: however often it fails."""
        retire(one_plane, *PATHS[:5])
        for _ in range(3):
            assert one_plane.lose(PATHS[5]) == PATHS[5]
        one_plane.events()
        assert (one_plane.inactive(), one_plane.assumed_down()) == (5, 0)

    def test_ev_min_active(self, sender: Sender) -> None:
        sender.install({0: PATHS}, retirable=2)
        retire(sender, *PATHS[:2])
        sender.lose(PATHS[2])
        assert sender.cell(PATHS[2]) == (GOOD, 1, 0)
        sender.events()

    def test_always_skip_at_the_floor_is_skip_once(self, sender: Sender) -> None:
        sender.install({0: PATHS}, retirable=0)
        sender.sack(A, m=2)
        sender.events((OWN_QP, A, GOOD, SKIP, EvCause.ALWAYS_SKIP))

    def test_dead_plane_is_left(self, two_planes: Sender) -> None:
        leave_plane(two_planes)
        assert {*two_planes.rotation(12)} == {*OTHER_PLANE}
        two_planes.events()

    def test_ack_between_two_losses(self, two_planes: Sender) -> None:
        """The plane is not dead."""
        retire(two_planes, *PATHS[:5])
        two_planes.lose(PATHS[5])
        two_planes.sack(PATHS[5])
        two_planes.lose(PATHS[5])
        two_planes.events()
        assert two_planes.assumed_down() == 0

    def test_probe_brings_the_plane_back(self, two_planes: Sender) -> None:
        leave_plane(two_planes)
        two_planes.sack(PATHS[5])  # late, and no probe
        assert two_planes.assumed_down() == 1
        two_planes.sack(PATHS[5], probe=True)
        two_planes.plane_events((OWN_QP, PATHS[5], GOOD, GOOD, EvCause.PROBE, PLANE_BACK))
        assert PATHS[5] in two_planes.rotation(4)

    def test_retired_path_brings_the_plane_back_when_it_is_good(self, two_planes: Sender) -> None:
        leave_plane(two_planes)
        for _ in range(2):
            two_planes.sack(A, probe=True)
        assert two_planes.assumed_down() == 1
        two_planes.sack(A, probe=True)
        two_planes.plane_events((OWN_QP, A, BAD, GOOD, EvCause.PROBE, PLANE_BACK))

    def test_last_plane_is_kept(self, two_planes: Sender) -> None:
        leave_plane(two_planes)
        retire(two_planes, *OTHER_PLANE[:5])
        for _ in range(3):
            two_planes.lose(OTHER_PLANE[5])
        two_planes.events()
        assert two_planes.assumed_down() == 1

    def test_always_skip_between_two_losses(self, two_planes: Sender) -> None:
        """Neither."""
        retire(two_planes, *PATHS[:5])
        two_planes.lose(PATHS[5])
        two_planes.sack(PATHS[5], m=2)
        two_planes.events((OWN_QP, PATHS[5], GOOD, SKIP, EvCause.ALWAYS_SKIP))
        assert two_planes.cell(PATHS[5]) == (SKIP, 0, 0)
        two_planes.lose(PATHS[5])
        assert two_planes.cell(PATHS[5])[1] == 1, "suspect, and no more than that"
        assert two_planes.assumed_down() == 0

    def test_marked_answer_brings_the_plane_back(self, two_planes: Sender) -> None:
        leave_plane(two_planes)
        two_planes.sack(PATHS[5], m=1, probe=True)
        two_planes.plane_events((OWN_QP, PATHS[5], GOOD, SKIP, EvCause.PROBE_MARKED, PLANE_BACK))

    def test_denied_path_does_not_bring_the_plane_back(self, two_planes: Sender) -> None:
        leave_plane(two_planes)
        two_planes.set_state(A, DENIED)
        two_planes.events((0, A, BAD, DENIED, EvCause.CONTROLLER))
        for _ in range(3):
            two_planes.sack(A, probe=True)
        two_planes.events()
        assert two_planes.assumed_down() == 1

    def test_plane_of_a_single_path(self, sender: Sender) -> None:
        """As in the own T0 group: the path stays, and the second loss is the plane's."""
        sender.install({0: [A], 1: [OTHER_PLANE[0]]}, retirable=0)
        sender.lose(A)
        sender.events()
        assert sender.lose(A) == OTHER_PLANE[0]
        sender.plane_events((PEER_QP, A, GOOD, GOOD, EvCause.LOSS, PLANE_DOWN))
        assert sender.rotation(4) == [OTHER_PLANE[0]] * 4
        sender.sack(A, probe=True)
        sender.plane_events((OWN_QP, A, GOOD, GOOD, EvCause.PROBE, PLANE_BACK))
        assert {*sender.rotation(4)} == {A, OTHER_PLANE[0]}

    def test_assumption_gives_way_to_ports_that_are_down(self, two_planes: Sender) -> None:
        """When the last live port is that of a plane assumed to be down, it is used."""
        leave_plane(two_planes)
        device = two_planes.bench.device
        set_down_planes(device, 0b10)
        try:
            assert {*two_planes.rotation(6)} == {PATHS[5]}
        finally:
            set_down_planes(device, 0)
        assert {*two_planes.rotation(6)} == {*OTHER_PLANE}
        two_planes.events()
