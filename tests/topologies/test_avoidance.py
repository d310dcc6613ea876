# SPDX-License-Identifier: Apache-2.0
"""What senders did about a plane that their peer lost, from packets that a test makes up."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from topologies.experiments.avoidance import back, left, plane_shares, towards
from topologies.experiments.capture import ENDPOINT_REQUEST, Packets

WRITE, SACK = 0xC7, 0xDC
HOST, PEER, OTHER = 0 << 16 | 1, 1 << 16 | 0, 1 << 16 | 1
PLANE, LOST_S, BACK_S, END_S = 1, 10.0, 20.0, 30.0
DOWN, UP = 0b1101, 0b1111  # masks of four planes

Sent = tuple[float, int, int, int, int, int]
"""Time, source, destination, plane, opcode, mask of a notice."""


def write(at_s: float, plane: int, to: int = PEER, opcode: int = WRITE) -> Sent:
    return at_s, HOST, to, plane, opcode, -1


def notice(at_s: float, mask: int, source: int = PEER) -> Sent:
    return at_s, source, HOST, 0, ENDPOINT_REQUEST, mask


def packets(sent: Iterable[Sent]) -> Packets:
    rows = np.array(sorted(sent), dtype=np.float64).reshape(-1, 6)
    at_s, (src, dst, plane, opcode, ports) = rows[:, 0], rows[:, 1:].T.astype(np.int64)
    none = np.zeros(len(rows), dtype=np.int64)
    return Packets(at_s, none, src, dst, plane << 13, opcode, none, none, none > 0, ports)


TOLD = [notice(10.01, DOWN), notice(11.0, DOWN), notice(20.01, UP)]
TAKEN = [notice(10.02, DOWN), notice(11.01, DOWN), notice(20.03, UP)]


def test_what_was_sent_before_the_notice_was_taken_in_is_told_apart() -> None:
    sent = [write(9.0, 1), write(10.005, 1), write(10.015, 1), write(10.5, 2), write(25.0, 1)]
    found = left(towards(HOST, PEER, packets(sent + TOLD), packets(TAKEN)), PLANE, LOST_S, BACK_S)
    assert (found.told_s, found.taken_s) == (10.01, 10.02)
    assert (found.unaware, found.last_s, found.later) == (2, 10.015, 0)


def test_packets_after_it_are_later() -> None:
    sent = [write(10.021, 1), write(15.0, 1, opcode=SACK), write(16.0, 1, to=OTHER)]
    found = left(towards(HOST, PEER, packets(sent + TOLD), packets(TAKEN)), PLANE, LOST_S, BACK_S)
    assert (found.unaware, found.last_s, found.later) == (0, 15.0, 2)


def test_without_a_notice_all_are_unaware() -> None:
    sent = [write(11.0, 1), write(19.0, 1)]
    of_another = [notice(10.02, DOWN, source=OTHER)]
    found = left(towards(HOST, PEER, packets(sent), packets(of_another)), PLANE, LOST_S, BACK_S)
    assert (found.told_s, found.taken_s, found.unaware, found.later) == (None, None, 2, 0)


def test_the_way_back() -> None:
    sent = [write(20.02, 0), write(20.04, 2), write(20.05, 3), write(20.06, 1), write(21.0, 0)]
    found = back(towards(HOST, PEER, packets(sent + TOLD), packets(TAKEN)), PLANE, BACK_S, END_S)
    assert (found.told_s, found.taken_s) == (20.01, 20.03)
    assert (found.first_s, found.passed) == (20.06, 2)


def test_a_plane_that_is_never_used_again() -> None:
    sent = [write(21.0, 0), write(22.0, 2)]
    found = back(towards(HOST, PEER, packets(sent + TOLD), packets(TAKEN)), PLANE, BACK_S, END_S)
    assert (found.first_s, found.passed) == (None, 2)


def test_shares_are_those_of_writes() -> None:
    sent = [write(1.0, 0), write(1.1, 0), write(1.2, 2), write(1.3, 3), write(1.4, 1, opcode=SACK)]
    of = towards(HOST, PEER, packets(sent), packets([]))
    assert plane_shares(of, 4, 0.0, 2.0) == [0.5, 0.0, 0.25, 0.25]
    assert np.isnan(plane_shares(of, 4, 2.0, 3.0)).all()
