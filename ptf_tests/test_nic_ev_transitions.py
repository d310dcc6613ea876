# SPDX-License-Identifier: GPL-2.0-only
"""nic.p4: the EV state diagram as a table: each cause in each state, above the floor and at it."""

from __future__ import annotations

import pytest

from controller.ev_events import EvCause
from ptf_tests.ev_sender import (
    BAD,
    DENIED,
    GOOD,
    LASTHOP,
    NO_PKT_BUFFER,
    OWN_QP,
    PATHS,
    PEER_QP,
    SKIP,
    TRIMMED,
    A,
    Sender,
)

STATES = (GOOD, SKIP, BAD, DENIED)

# From GOOD, SKIP, ASSUMED_BAD and DENIED (docs/dataplane.md has the same table).
ABOVE_FLOOR = {
    EvCause.ACKED: (GOOD, SKIP, BAD, DENIED),
    EvCause.SKIP_ONCE: (SKIP, SKIP, BAD, DENIED),
    EvCause.TRIMMED: (SKIP, SKIP, BAD, DENIED),
    EvCause.ALWAYS_SKIP: (BAD, BAD, BAD, DENIED),
    EvCause.LOSS: (BAD, BAD, BAD, DENIED),
    EvCause.PROBE: (GOOD, SKIP, GOOD, DENIED),
    EvCause.PROBE_MARKED: (SKIP, SKIP, SKIP, DENIED),
}
AT_FLOOR = ABOVE_FLOOR | {
    EvCause.ALWAYS_SKIP: (SKIP, SKIP, BAD, DENIED),
    EvCause.LOSS: (GOOD, SKIP, BAD, DENIED),
}
SACKS = {
    EvCause.ACKED: (0, False),
    EvCause.SKIP_ONCE: (1, False),
    EvCause.ALWAYS_SKIP: (2, False),
    EvCause.PROBE: (0, True),
    EvCause.PROBE_MARKED: (1, True),
}


def put(sender: Sender, state: int) -> None:
    """Path A is in this state."""
    before = sender.cell(A)[0]
    sender.set_state(A, state)
    sender.events(*[(0, A, before, state, EvCause.CONTROLLER)] * (state != before))
    assert sender.inactive() == (state in (BAD, DENIED))


def cause(sender: Sender, what: EvCause, psn: int) -> None:
    """It happens to path A, which took the packet with this PSN."""
    if what in SACKS:
        m, probe = SACKS[what]
        sender.sack(A, m, probe=probe)
    elif what is EvCause.TRIMMED:
        sender.nack(A, psn, TRIMMED)
    else:
        assert sender.write(psn, rtx=True) != A


@pytest.mark.parametrize("state", STATES, ids=["good", "skip", "assumed bad", "denied"])
@pytest.mark.parametrize("floor", [False, True], ids=["above floor", "at floor"])
def test_every_cause(sender: Sender, floor: bool, state: int) -> None:
    """One answered probe is enough here; at the floor a first loss makes the path suspect."""
    sender.install({0: PATHS}, retirable=0 if floor else 5, probe_successes=1)
    for what, states in (AT_FLOOR if floor else ABOVE_FLOOR).items():
        put(sender, GOOD)
        psn = sender.on(A)
        put(sender, state)
        cause(sender, what, psn)
        after = states[state]
        qp = PEER_QP if what is EvCause.LOSS else OWN_QP
        sender.events(*[(qp, A, state, after, what)] * (after != state))
        suspect = floor and what is EvCause.LOSS and state in (GOOD, SKIP)
        assert sender.cell(A) == (after, suspect, 0), (what, state)
        assert sender.inactive() == (after in (BAD, DENIED))
    assert sender.assumed_down() == 0


@pytest.mark.parametrize("reason", [LASTHOP, NO_PKT_BUFFER])
def test_other_nacks_in_every_state(sender: Sender, reason: int) -> None:
    """They say that the path works, and change nothing."""
    sender.install({0: PATHS}, probe_successes=1)
    for state in STATES:
        put(sender, GOOD)
        psn = sender.on(A)
        put(sender, state)
        sender.nack(A, psn, reason)
        sender.events()
        assert sender.cell(A) == (state, 0, 0)


def test_controller_in_every_state(one_plane: Sender) -> None:
    """From each state to each other one, twelve ways; the floor's count follows."""
    for before in STATES:
        for after in STATES:
            put(one_plane, before)
            put(one_plane, after)
            assert one_plane.cell(A) == (after, 0, 0)


def test_turn_of_each_state(one_plane: Sender) -> None:
    """Only SKIP changes by being passed over."""
    for state, after in ((GOOD, GOOD), (SKIP, GOOD), (BAD, BAD), (DENIED, DENIED)):
        put(one_plane, state)
        assert (A in one_plane.rotation(6)) == (state == GOOD)
        one_plane.events(*[(PEER_QP, A, state, after, EvCause.ROTATION)] * (state != after))
        assert one_plane.cell(A)[0] == after


@pytest.mark.parametrize("successes", [1, 2, 15])
def test_number_of_answered_probes(sender: Sender, successes: int) -> None:
    """The last answer decides between GOOD and SKIP; a loss and ALWAYS_SKIP start again."""
    sender.install({0: PATHS}, probe_successes=successes)
    for mark, after, what in ((0, GOOD, EvCause.PROBE), (1, SKIP, EvCause.PROBE_MARKED)):
        put(sender, GOOD)
        psn = sender.on(A)
        put(sender, BAD)
        for setback in (EvCause.LOSS, EvCause.ALWAYS_SKIP):
            for count in range(1, successes):
                sender.sack(A, m=1 - mark, probe=True)
                assert sender.cell(A) == (BAD, 0, count)
            cause(sender, setback, psn)
            assert sender.cell(A) == (BAD, 0, 0)
        for _ in range(successes - 1):
            sender.sack(A, m=1 - mark, probe=True)
        sender.events()
        sender.sack(A, m=mark, probe=True)
        sender.events((OWN_QP, A, BAD, after, what))
