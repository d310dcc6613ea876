# SPDX-License-Identifier: Apache-2.0
"""NACKs that a NIC sends: which transmission of a packet they answer."""

from __future__ import annotations

from mrc.headers import CcState, Neth, Seth
from mrc.opcodes import NackReason
from mrc.requester import Requester, Transmission

MS = 1_000_000


def sent(requester: Requester[None], now_ns: int) -> Transmission[None]:
    """What is sent at this time; there must be something."""
    item = requester.poll(now_ns)
    assert isinstance(item, Transmission)
    return item


def trimmed(psn: int) -> Neth:
    return Neth(nack_reason=NackReason.TRIMMED_LASTHOP, nack_psn=psn)


def with_a_slow_sample() -> Requester[None]:
    """PSN 0 is acknowledged after 10 ms; PSN 1 was sent at 20 ms."""
    requester: Requester[None] = Requester()
    requester.post(None, 3)
    assert sent(requester, 0).psn == 0
    requester.on_sack(Seth(cack_psn=0), CcState(), 10 * MS)
    assert sent(requester, 20 * MS).psn == 1
    return requester


def test_a_packet_that_is_trimmed_twice_is_sent_a_third_time() -> None:
    requester = with_a_slow_sample()
    for at_ms in (21, 22, 23):  # each NACK comes 1 ms after its packet was sent
        requester.on_nack(trimmed(1), at_ms * MS)
        again = sent(requester, at_ms * MS)
        assert (again.psn, again.rtx) == (1, 1)
    assert requester.counters["nack_trimmed_lasthop"] == 3
    assert requester.counters["nacks_stale"] == 0


def test_a_second_nack_for_the_same_transmission_is_stale() -> None:
    requester = with_a_slow_sample()
    requester.on_nack(trimmed(1), 25 * MS)
    assert sent(requester, 25 * MS).rtx == 1
    requester.on_nack(trimmed(1), 26 * MS)  # nothing has ever been answered within 1 ms
    assert requester.counters["nacks_stale"] == 1
    assert sent(requester, 26 * MS).psn == 2, "and no third transmission"
