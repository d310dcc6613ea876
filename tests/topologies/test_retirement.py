# SPDX-License-Identifier: Apache-2.0
"""What senders did about a dead path, from packets that a test makes up."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from topologies.experiments.capture import Packets
from topologies.experiments.retirement import Window, retirement, senders, shares

WRITE, SACK, PROBE = 0xC7, 0xDC, 0xD8
HOST, OTHER = 0 << 16 | 1, 1 << 16 | 0
DEAD, LIVE = 0x0008, 0x2008
WINDOW = Window(10.0, 20.0)


@dataclass(frozen=True)
class Sent:
    """One packet from HOST to OTHER."""

    at_s: float
    psn: int
    path_ev: int = LIVE
    rtx: bool = False
    opcode: int = WRITE
    src: int = HOST
    dst: int = OTHER
    qp: int = 0x100


def packets(*sent: Sent) -> Packets:
    in_order = sorted(sent, key=lambda one: one.at_s)

    def column(name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array([getattr(one, name) for one in in_order], dtype=np.int64)

    return Packets(
        at_s=np.array([one.at_s for one in in_order]),
        end=np.zeros(len(sent), dtype=np.int64),
        src=column("src"),
        dst=column("dst"),
        path_ev=column("path_ev"),
        opcode=column("opcode"),
        qp=column("qp"),
        psn=column("psn"),
        rtx=np.array([one.rtx for one in in_order], dtype=np.bool_),
        ports=np.full(len(sent), -1, dtype=np.int64),
    )


def at_host(*sent: Sent) -> Packets:
    """As the host sends them, a moment earlier and without a path."""
    return packets(*(replace(one, at_s=one.at_s - 0.001, path_ev=0) for one in sent))


BEFORE = Sent(9.0, 1, DEAD)
LOST = Sent(10.5, 2, DEAD)
LOST_TOO = Sent(10.6, 4, DEAD)
ARRIVED = Sent(10.55, 3)
AGAIN = Sent(11.0, 2, LIVE, rtx=True)
AFTERWARDS = Sent(11.5, 5)


def test_a_sender_that_leaves_the_path_at_its_first_loss() -> None:
    sent = (BEFORE, LOST, ARRIVED, LOST_TOO, AGAIN, AFTERWARDS)
    found = retirement((HOST, 1), DEAD, WINDOW, at_host(*sent), packets(*sent), packets(BEFORE))
    assert (found.host, found.group) == (HOST, 1)
    assert (found.before, found.lost, found.later, found.others) == (1, 2, 0, 0)
    assert found.first_lost_s == 10.5
    assert found.retired_s == pytest.approx(10.999)
    assert found.last_s == 10.6


def test_a_write_behind_the_retransmission_is_counted_whenever_it_leaves() -> None:
    late = Sent(11.0005, 6, DEAD)
    sent = (BEFORE, LOST, AGAIN, late)
    found = retirement((HOST, 1), DEAD, WINDOW, at_host(*sent), packets(*sent), packets(BEFORE))
    assert found.later == 1
    # One that the host gave to the NIC before, and that left after it, is not.
    given = at_host(BEFORE, LOST, replace(late, at_s=10.9), AGAIN)
    found = retirement((HOST, 1), DEAD, WINDOW, given, packets(*sent), packets(BEFORE))
    assert found.later == 0
    assert found.lost == 2


def test_probes_may_use_the_path_and_other_packets_are_counted_apart() -> None:
    probe, sack = Sent(12.0, 0, DEAD, opcode=PROBE), Sent(12.5, 9, DEAD, opcode=SACK)
    sent = (BEFORE, LOST, AGAIN, probe, sack)
    found = retirement((HOST, 1), DEAD, WINDOW, at_host(*sent), packets(*sent), packets(BEFORE))
    assert (found.lost, found.later, found.others) == (1, 0, 1)
    assert found.last_s == 12.5


def test_what_the_t1_sent_on_after_it_was_killed_is_not_lost() -> None:
    in_flight = Sent(10.0001, 2, DEAD)
    sent = (BEFORE, in_flight)
    found = retirement(
        (HOST, 1), DEAD, WINDOW, at_host(*sent), packets(*sent), packets(BEFORE, in_flight)
    )
    assert (found.lost, found.first_lost_s, found.retired_s) == (0, None, None)


def test_the_retransmission_of_what_was_lost_elsewhere_retires_nothing_here() -> None:
    elsewhere = Sent(10.7, 3, LIVE, rtx=True)
    sent = (BEFORE, LOST, ARRIVED, elsewhere)
    found = retirement((HOST, 1), DEAD, WINDOW, at_host(*sent), packets(*sent), packets(BEFORE))
    assert found.retired_s is None
    assert found.later == 0


def test_another_host_with_the_same_psns_is_another_sender() -> None:
    stranger = replace(AGAIN, src=HOST + 1, at_s=10.52)
    sent = (BEFORE, LOST, stranger, AGAIN)
    found = retirement((HOST, 1), DEAD, WINDOW, at_host(*sent), packets(*sent), packets(BEFORE))
    assert found.retired_s == pytest.approx(10.999)
    assert senders(packets(*sent)) == [(HOST, 1), (HOST + 1, 1)]


def test_the_time_after_the_return_does_not_count() -> None:
    back = Sent(20.5, 7, DEAD)
    sent = (BEFORE, LOST, AGAIN, back)
    found = retirement(
        (HOST, 1), DEAD, WINDOW, at_host(*sent), packets(*sent), packets(BEFORE, back)
    )
    assert (found.lost, found.later, found.last_s) == (1, 0, 10.5)


def test_shares_of_paths() -> None:
    sent = packets(BEFORE, LOST, ARRIVED, AFTERWARDS, Sent(9.0, 0, DEAD, opcode=SACK))
    assert shares(sent, (HOST, 1), [DEAD, LIVE]) == [0.5, 0.5]
    assert np.isnan(shares(sent, (HOST, 3), [DEAD])).all()
