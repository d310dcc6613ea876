# SPDX-License-Identifier: GPL-2.0-only
"""nic.p4: EV states: what feedback does to paths, and what is sent afterwards (ev_state.p4)."""

from __future__ import annotations

import itertools

import pytest

from controller.addressing import path_ev
from controller.drops import DropReason
from controller.ev_events import EvCause
from mrc.opcodes import Opcode
from ptf_tests.ev_sender import (
    BAD,
    DENIED,
    GOOD,
    LASTHOP,
    NO_PKT_BUFFER,
    OTHER_PLANE,
    OWN_QP,
    PATHS,
    PEER_QP,
    SKIP,
    TRIMMED,
    A,
    Sender,
    retire,
)
from ptf_tests.nic_world import (
    HOST,
    HOST_PORT,
    PEER,
    from_host,
    set_down_planes,
)
from ptf_tests.packets import (
    mrc,
    nack_of,
)


class TestSkip:
    def test_marked_path_is_passed_over_once(self, one_plane: Sender) -> None:
        one_plane.sack(A, m=1)
        one_plane.events((OWN_QP, A, GOOD, SKIP, EvCause.SKIP_ONCE))
        assert one_plane.rotation(12) == [PATHS[1], *PATHS[1:], *PATHS]
        one_plane.events((PEER_QP, A, SKIP, GOOD, EvCause.ROTATION))

    def test_trimmed_path_is_passed_over_once(self, one_plane: Sender) -> None:
        psn = one_plane.on(A)
        one_plane.nack(A, psn, TRIMMED)
        one_plane.events((OWN_QP, A, GOOD, SKIP, EvCause.TRIMMED))
        assert one_plane.rotation(6) == [*PATHS[1:], PATHS[1]]
        one_plane.events((PEER_QP, A, SKIP, GOOD, EvCause.ROTATION))

    @pytest.mark.parametrize("reason", [LASTHOP, NO_PKT_BUFFER, 0x06, 0x0A, 0x0B, 0x19])
    def test_other_nacks_are_no_penalty(self, one_plane: Sender, reason: int) -> None:
        one_plane.nack(A, one_plane.on(A), reason)
        one_plane.events()
        assert one_plane.cell(A) == (GOOD, 0, 0)

    def test_second_mark_changes_nothing(self, one_plane: Sender) -> None:
        one_plane.sack(A, m=1)
        one_plane.sack(A, m=1)
        one_plane.events((OWN_QP, A, GOOD, SKIP, EvCause.SKIP_ONCE))

    def test_unmarked_sack_changes_nothing(self, one_plane: Sender) -> None:
        one_plane.sack(A)
        one_plane.sack(A, m=3)
        one_plane.events()
        assert one_plane.rotation(6) == PATHS

    def test_only_path_is_used_all_the_same(self, sender: Sender) -> None:
        sender.install({0: [A]}, retirable=0)
        sender.sack(A, m=1)
        assert sender.rotation(2) == [A, A]
        sender.events(
            (OWN_QP, A, GOOD, SKIP, EvCause.SKIP_ONCE), (PEER_QP, A, SKIP, GOOD, EvCause.ROTATION)
        )

    def test_every_path_marked(self, one_plane: Sender) -> None:
        """One path becomes GOOD again per packet."""
        for ev in PATHS:
            one_plane.sack(ev, m=1)
        one_plane.events(*((OWN_QP, ev, GOOD, SKIP, EvCause.SKIP_ONCE) for ev in PATHS))
        sent = one_plane.rotation(6)
        assert set(sent) <= set(PATHS)
        one_plane.events(*((PEER_QP, ev, SKIP, GOOD, EvCause.ROTATION) for ev in PATHS))

    @pytest.mark.parametrize(
        "ev",
        [OTHER_PLANE[0], path_ev(0, 6), path_ev(0, 1023)],
        ids=["plane", "uplink", "last uplink"],
    )
    def test_path_that_the_group_does_not_use(self, one_plane: Sender, ev: int) -> None:
        """Feedback that names one is ignored."""
        for m, probe in itertools.product(range(4), (False, True)):
            one_plane.sack(ev, m=m, probe=probe)
        one_plane.nack(ev, one_plane.next_psn(), TRIMMED)
        one_plane.events()
        assert one_plane.cell(ev) == (GOOD, 0, 0)
        assert one_plane.inactive(ev >> 13) == 0


class TestRetire:
    def test_loss_retires_at_once(self, one_plane: Sender) -> None:
        """The retransmission itself does not take the path any more."""
        retire(one_plane, A)
        assert one_plane.inactive() == 1
        assert A not in one_plane.rotation(24)
        one_plane.events()

    def test_loss_of_a_skipped_path(self, one_plane: Sender) -> None:
        psn = one_plane.on(A)
        one_plane.sack(A, m=1)
        assert one_plane.write(psn, rtx=True) != A
        one_plane.events(
            (OWN_QP, A, GOOD, SKIP, EvCause.SKIP_ONCE), (PEER_QP, A, SKIP, BAD, EvCause.LOSS)
        )

    def test_always_skip(self, one_plane: Sender) -> None:
        one_plane.sack(A, m=2)
        one_plane.events((OWN_QP, A, GOOD, BAD, EvCause.ALWAYS_SKIP))
        assert A not in one_plane.rotation(12)

    def test_always_skip_of_a_skipped_path(self, one_plane: Sender) -> None:
        one_plane.sack(A, m=1)
        one_plane.sack(A, m=2)
        one_plane.events(
            (OWN_QP, A, GOOD, SKIP, EvCause.SKIP_ONCE), (OWN_QP, A, SKIP, BAD, EvCause.ALWAYS_SKIP)
        )

    @pytest.mark.parametrize("reason", [TRIMMED, LASTHOP, NO_PKT_BUFFER])
    def test_nack_excuses(self, one_plane: Sender, reason: int) -> None:
        psn = one_plane.on(A)
        one_plane.nack(A, psn, reason)
        one_plane.write(psn, rtx=True)
        trimmed = (OWN_QP, A, GOOD, SKIP, EvCause.TRIMMED)
        one_plane.events(*[trimmed] * (reason == TRIMMED))
        assert one_plane.cell(A)[0] != BAD
        assert one_plane.inactive() == 0

    def test_nack_of_another_qp_does_not_excuse(self, one_plane: Sender) -> None:
        psn = one_plane.on(A)
        other = nack_of(A << 16 | 0xC0DF, psn, LASTHOP)
        one_plane.answer(Opcode.NACK, other)
        one_plane.write(psn, rtx=True)
        one_plane.events((PEER_QP, A, GOOD, BAD, EvCause.LOSS))

    def test_retransmission_of_an_unknown_psn(self, one_plane: Sender) -> None:
        one_plane.write(one_plane.next_psn(), rtx=True)
        one_plane.events()

    def test_psn_over_the_wrap(self, one_plane: Sender) -> None:
        """PSN 2^24 - 1 and PSN 0 are remembered beside each other; 1,024 later replaces."""
        first, second = one_plane.write(0xFFFFFF), one_plane.write(0)
        one_plane.write(1024)
        one_plane.write(0, rtx=True)
        one_plane.events()
        one_plane.write(0xFFFFFF, rtx=True)
        one_plane.events((PEER_QP, first, GOOD, BAD, EvCause.LOSS))
        assert one_plane.cell(second)[0] == GOOD

    def test_lost_again_on_another_path(self, one_plane: Sender) -> None:
        """The memory holds the EV of the last time a PSN was sent."""
        psn = one_plane.on(A)
        second = one_plane.write(psn, rtx=True)
        third = one_plane.write(psn, rtx=True)
        assert len({A, second, third}) == 3
        one_plane.events(
            (PEER_QP, A, GOOD, BAD, EvCause.LOSS), (PEER_QP, second, GOOD, BAD, EvCause.LOSS)
        )

    def test_share_stays_in_its_plane(self, two_planes: Sender) -> None:
        retire(two_planes, *PATHS[:3])
        sent = two_planes.rotation(24)
        assert [ev >> 13 for ev in sent] in ([0, 1] * 12, [1, 0] * 12)
        assert not {*PATHS[:3]} & {*sent}

    def test_four_candidates_retired(self, one_plane: Sender) -> None:
        """Slot and alternates all retired: the path last found good is taken."""
        retire(one_plane, *PATHS[:5])
        assert {*one_plane.rotation(12)} == {PATHS[5]}
        assert one_plane.inactive() == 5

    def test_loss_on_a_plane_whose_port_is_down(self, two_planes: Sender) -> None:
        """It says nothing of the path, which is used again when the port is up."""
        psn = two_planes.on(A)
        set_down_planes(two_planes.bench.device, 1)
        try:
            assert two_planes.write(psn, rtx=True) in OTHER_PLANE
        finally:
            set_down_planes(two_planes.bench.device, 0)
        two_planes.events()
        assert A in two_planes.rotation(12)


class TestChoice:
    """What is sent when a slot's own path is not GOOD."""

    def test_one_change_per_packet(self, one_plane: Sender) -> None:
        """A loss comes before the turn of a SKIP path, which stays one for another rotation."""
        psn = one_plane.on(A)
        one_plane.sack(PATHS[1], m=1)
        assert one_plane.write(psn, rtx=True) == PATHS[2]
        one_plane.events(
            (OWN_QP, PATHS[1], GOOD, SKIP, EvCause.SKIP_ONCE),
            (PEER_QP, A, GOOD, BAD, EvCause.LOSS),
        )
        assert PATHS[1] not in one_plane.rotation(6)
        one_plane.events((PEER_QP, PATHS[1], SKIP, GOOD, EvCause.ROTATION))
        assert PATHS[1] in one_plane.rotation(6)

    def test_skip_before_assumed_bad(self, sender: Sender) -> None:
        """And the path that was last found good only while it is."""
        sender.install({0: PATHS[:4]})
        retire(sender, *PATHS[:3])
        assert sender.rotation(4) == [PATHS[3]] * 4
        for _ in range(4):
            sender.sack(PATHS[3], m=1)
            assert sender.write() == PATHS[3]
        sender.rotation(4)
        sender.bench.device.digests(0.1)

    def test_assumed_bad_before_nothing(self, sender: Sender) -> None:
        sender.install({0: PATHS[:2]}, retirable=1)
        retire(sender, A)
        sender.set_state(PATHS[1], DENIED)
        sender.events((0, PATHS[1], GOOD, DENIED, EvCause.CONTROLLER))
        assert sender.rotation(4) == [A] * 4
        sender.events()

    def test_random_slots_leave_retired_paths_out(self, sender: Sender) -> None:
        sender.install({0: PATHS, 1: OTHER_PLANE}, random=True)
        retire(sender, *PATHS[:4])
        # The path last found good is one that still is: the slot whose four candidates are all
        # retired may else take one of them, until another slot of the plane has found a good one.
        sender.on(PATHS[4])
        sent = sender.rotation(120)
        assert {*sent} == {*PATHS[4:], *OTHER_PLANE}
        # Half of the packets, give or take five standard deviations, stay in the plane.
        assert 32 < sum(ev >> 13 == 0 for ev in sent) < 88
        sender.events()
        for _ in range(3):
            sender.sack(A, probe=True)
        sender.events((OWN_QP, A, BAD, GOOD, EvCause.PROBE))
        sender.on(A)

    def test_random_slots_pass_over_a_marked_path_once(self, sender: Sender) -> None:
        sender.install({0: PATHS}, random=True)
        sender.sack(A, m=1)
        sender.events((OWN_QP, A, GOOD, SKIP, EvCause.SKIP_ONCE))
        while sender.cell(A)[0] == SKIP:
            assert sender.write() != A
        sender.events((PEER_QP, A, SKIP, GOOD, EvCause.ROTATION))
        sender.on(A)

    def test_random_slots_of_the_last_path(self, sender: Sender) -> None:
        """Retired paths are drawn, and the one that is left is found."""
        sender.install({0: PATHS}, random=True)
        retire(sender, *PATHS[:5])
        sender.on(PATHS[5])  # from now on it is known to be good
        assert {*sender.rotation(24)} == {PATHS[5]}
        sender.events()


class TestUplinkBits:
    """Fewer uplinks than the EV has room for."""

    @pytest.mark.parametrize("uplink", [8, 9, 512, 1023])
    def test_feedback_for_an_uplink_beyond(self, sender: Sender, uplink: int) -> None:
        """Uplink 8 of 8 is not uplink 0 of the next plane."""
        sender.path_group, sender.uplink_bits = 1000, 3
        sender.install({0: PATHS, 1: OTHER_PLANE})
        for plane in range(2):
            ev = path_ev(plane, uplink)
            sender.sack(ev, m=2)
            sender.sack(ev, m=1)
            sender.nack(ev, sender.next_psn(), TRIMMED)
        sender.events()
        for ev in (*PATHS, *OTHER_PLANE):
            assert sender.cell(ev) == (GOOD, 0, 0)
        retire(sender, OTHER_PLANE[0])
        assert sender.inactive(1) == 1


class TestDenied:
    def test_only_the_controller(self, one_plane: Sender) -> None:
        psn = one_plane.on(A)
        one_plane.set_state(A, DENIED)
        one_plane.events((0, A, GOOD, DENIED, EvCause.CONTROLLER))
        assert one_plane.inactive() == 1
        for m, probe in itertools.product(range(3), (False, True)):
            one_plane.sack(A, m=m, probe=probe)
        one_plane.write(psn, rtx=True)
        one_plane.events()
        assert one_plane.cell(A)[0] == DENIED
        assert A not in one_plane.rotation(12)
        one_plane.set_state(A, GOOD)
        one_plane.events((0, A, DENIED, GOOD, EvCause.CONTROLLER))
        assert one_plane.inactive() == 0
        assert A in one_plane.rotation(6)

    def test_everything_denied(self, one_plane: Sender) -> None:
        for ev in PATHS:
            one_plane.set_state(ev, DENIED)
        one_plane.events(*((0, ev, GOOD, DENIED, EvCause.CONTROLLER) for ev in PATHS))
        packet = mrc(Opcode.WRITE_ONLY, HOST, PEER)
        one_plane.bench.drops(HOST_PORT, from_host(packet), DropReason.NO_PATH)

    def test_retired_and_denied(self, one_plane: Sender) -> None:
        """A path that is retired already does not count twice."""
        retire(one_plane, A)
        one_plane.set_state(A, DENIED)
        assert one_plane.inactive() == 1
        one_plane.events((0, A, BAD, DENIED, EvCause.CONTROLLER))

    def test_more_than_the_floor_allows(self, sender: Sender) -> None:
        """The controller may deny below the floor; nothing is retired then."""
        sender.install({0: PATHS}, retirable=2)
        for ev in PATHS[:4]:
            sender.set_state(ev, DENIED)
        sender.events(*((0, ev, GOOD, DENIED, EvCause.CONTROLLER) for ev in PATHS[:4]))
        assert sender.inactive() == 4
        sender.lose(PATHS[4])
        sender.sack(PATHS[5], m=2)
        sender.events((OWN_QP, PATHS[5], GOOD, SKIP, EvCause.ALWAYS_SKIP))
        assert sender.inactive() == 4
