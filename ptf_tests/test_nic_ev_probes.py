# SPDX-License-Identifier: GPL-2.0-only
"""nic.p4: answered probes bring paths and planes back (ev_state.p4, feedback.p4)."""

from __future__ import annotations

from controller.ev_events import EvCause
from mrc.opcodes import Opcode
from ptf_tests.ev_sender import (
    BAD,
    GOOD,
    OWN_QP,
    PATHS,
    SKIP,
    A,
    Sender,
    retire,
)
from ptf_tests.nic_world import (
    EV_CHOSEN,
    HOST,
    HOST_PORT,
    PEER,
    expected_frame,
    from_host,
    plane_port,
)
from ptf_tests.packets import (
    ev_probe_answer_of,
    ev_probe_of,
    mrc,
)


class TestProbes:
    def test_answers_bring_a_path_back(self, one_plane: Sender) -> None:
        retire(one_plane, A)
        for successes in (1, 2):
            one_plane.sack(A, probe=True)
            assert one_plane.cell(A) == (BAD, 0, successes)
        one_plane.sack(A, probe=True)
        one_plane.events((OWN_QP, A, BAD, GOOD, EvCause.PROBE))
        assert one_plane.inactive() == 0
        assert A in one_plane.rotation(6)

    def test_marked_answer_brings_it_to_skip(self, one_plane: Sender) -> None:
        retire(one_plane, A)
        one_plane.sack(A, probe=True)
        one_plane.sack(A, probe=True)
        one_plane.sack(A, m=1, probe=True)
        one_plane.events((OWN_QP, A, BAD, SKIP, EvCause.PROBE_MARKED))

    def test_marked_answer_on_a_good_path(self, one_plane: Sender) -> None:
        one_plane.sack(A, m=1, probe=True)
        one_plane.events((OWN_QP, A, GOOD, SKIP, EvCause.PROBE_MARKED))

    def test_always_skip_resets_the_count(self, one_plane: Sender) -> None:
        retire(one_plane, A)
        one_plane.sack(A, probe=True)
        one_plane.sack(A, m=2, probe=True)
        assert one_plane.cell(A) == (BAD, 0, 0)
        one_plane.events()

    def test_late_feedback_does_not_count(self, one_plane: Sender) -> None:
        retire(one_plane, A)
        one_plane.sack(A)
        one_plane.sack(A, m=1)
        one_plane.events()
        assert one_plane.cell(A) == (BAD, 0, 0)

    def test_ev_probe_is_found_by_its_request_id(self, sender: Sender) -> None:
        sender.install({0: PATHS}, probe_successes=1)
        retire(sender, A)
        probe = mrc(
            Opcode.ENDPOINT_REQUEST,
            HOST,
            PEER,
            headers=ev_probe_of(0x4711),
            flow_label=EV_CHOSEN | A,
        )
        sender.bench.forwards(HOST_PORT, from_host(probe), plane_port(A), expected_frame(probe, A))
        sender.answer(Opcode.ENDPOINT_RESPONSE, ev_probe_answer_of(0x4712))
        sender.events()
        sender.answer(Opcode.ENDPOINT_RESPONSE, ev_probe_answer_of(0x4711))
        sender.events((2, A, BAD, GOOD, EvCause.PROBE))
