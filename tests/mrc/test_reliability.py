# SPDX-License-Identifier: Apache-2.0
"""Requester and responder over a simulated network: whatever it does, the memory is right."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc.qp import QpError, RequesterParameters, ResponderParameters
from tests.mrc.simulated import MS, PAYLOAD, Faults, Network, near_wrap

CHANCES = st.sampled_from([0.0, 0.0, 0.01, 0.1, 0.3])
FAULTS = st.builds(
    Faults,
    loss=CHANCES,
    duplication=CHANCES,
    trimming=CHANCES,
    marking=CHANCES,
    delay_ns=st.sampled_from([1000, MS, 5 * MS]),
    jitter_ns=st.sampled_from([0, MS, 30 * MS]),
)
PATIENT = RequesterParameters(linear_cnt=7, exp_cnt=25)  # never gives up


@settings(max_examples=150, deadline=None)
@given(
    forward=FAULTS,
    backward=FAULTS,
    seed=st.integers(0, 1 << 32),
    lengths=st.lists(st.integers(1, 200 * PAYLOAD), min_size=1, max_size=4),
    first_psn=st.sampled_from([0, 1, 77, near_wrap(100), near_wrap(20)]),
    mpr=st.sampled_from([1, 3, 64, 128, 1024]),
    threshold=st.sampled_from([1, 2, 16, 64]),
    gap_ns=st.sampled_from([1000, MS // 10, 2 * MS]),
)
def test_every_message_is_written_once_whatever_the_network_does(
    forward: Faults,
    backward: Faults,
    seed: int,
    lengths: list[int],
    first_psn: int,
    mpr: int,
    threshold: int,
    gap_ns: int,
) -> None:
    network = Network(
        forward,
        backward,
        seed=seed,
        gap_ns=gap_ns,
        first_psn=first_psn,
        requester_parameters=RequesterParameters(mpr=mpr, linear_cnt=7, exp_cnt=25),
        responder_parameters=ResponderParameters(mpr, threshold),
    )
    for length in lengths:
        network.post(length)
    network.run()
    network.assert_written()
    packets = sum(-(-length // PAYLOAD) for length in lengths)
    assert len(network.sent_psns) == packets + network.retransmissions.total()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    jitter_ns=st.integers(0, 10 * MS),
    sack_loss=st.sampled_from([0.0, 0.1, 0.3]),
    duplication=CHANCES,
    marking=CHANCES,
    gap_ns=st.sampled_from([1000, MS // 10, MS]),
    threshold=st.sampled_from([1, 16, 64]),
    first_psn=st.sampled_from([0, near_wrap(400)]),
)
def test_nothing_is_sent_again_when_no_data_is_lost(
    seed: int,
    jitter_ns: int,
    sack_loss: float,
    duplication: float,
    marking: float,
    gap_ns: int,
    threshold: int,
    first_psn: int,
) -> None:
    """Reordering below the guard, lost and reordered SACKs, duplicates: no path is to blame."""
    network = Network(
        Faults(duplication=duplication, marking=marking, jitter_ns=jitter_ns),
        Faults(loss=sack_loss, jitter_ns=jitter_ns),
        seed=seed,
        gap_ns=gap_ns,
        first_psn=first_psn,
        responder_parameters=ResponderParameters(sack_gen_threshold=threshold),
    )
    network.post(400 * PAYLOAD + 1)
    network.run()
    network.assert_written()
    assert network.retransmissions == Counter()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    loss=st.sampled_from([0.005, 0.05, 0.2]),
    jitter_ns=st.integers(0, 10 * MS),
    sack_loss=st.sampled_from([0.0, 0.2]),
)
def test_only_what_was_lost_is_sent_again(
    seed: int, loss: float, jitter_ns: int, sack_loss: float
) -> None:
    network = Network(
        Faults(loss=loss, jitter_ns=jitter_ns),
        Faults(loss=sack_loss, jitter_ns=jitter_ns),
        seed=seed,
        requester_parameters=PATIENT,
    )
    network.post(1000 * PAYLOAD)
    network.run()
    network.assert_written()
    sent = Counter(network.sent_psns)
    assert {psn: n - 1 for psn, n in sent.items() if n > 1} == dict(network.lost_psns)


def test_a_trimmed_packet_is_sent_again_by_its_nack() -> None:
    network = Network(Faults(trimming=0.2), seed=3)
    network.post(1000 * PAYLOAD)
    network.run()
    network.assert_written()
    trimmed = network.trimmed_psns.total()
    assert trimmed > 150
    assert network.retransmissions == {"nack_trimmed": trimmed}
    assert network.requester.nacked_path_evs == {0x2001: trimmed}
    assert network.requester.counters["timeouts"] == 0


def test_nacks_that_overtake_a_long_queue_are_believed() -> None:
    """A trimmed header does not queue: its NACK comes far sooner than any SACK has ever come."""
    queue = Faults(trimming=0.4, delay_ns=300 * MS, jitter_ns=5 * MS, trimmed_delay_ns=MS // 2)
    network = Network(queue, Faults(delay_ns=MS // 2), seed=7)
    network.post(2000 * PAYLOAD)
    network.run()
    network.assert_written()
    assert network.retransmissions == {"nack_trimmed": network.trimmed_psns.total()}


def test_a_lost_packet_is_found_by_the_gap_and_not_by_the_timeout() -> None:
    network = Network(Faults(loss=0.02), seed=5)
    network.post(2000 * PAYLOAD)
    network.run()
    network.assert_written()
    assert network.retransmissions == {"gap": network.lost_psns.total()}
    assert network.requester.counters["timeouts"] == 0
    # 2,001 packet times of 0.1 ms, and little more: the window never closed for long.
    assert network.now_ns < 600 * MS


def test_marks_are_echoed_for_their_path() -> None:
    network = Network(Faults(marking=0.1), seed=1)
    network.post(500 * PAYLOAD)
    network.run()
    network.assert_written()
    assert network.requester.counters["marked"] == network.requester.marked_path_evs[0x2001] > 20
    assert network.responder.counters["ce_echoed"] == network.requester.counters["marked"]


@pytest.mark.parametrize("dead_from_ns", [0, 5 * MS])
def test_a_dead_peer_fails_the_qp_within_the_retry_time(dead_from_ns: int) -> None:
    parameters = RequesterParameters(timeout=14, linear_cnt=3, exp_cnt=2)
    network = Network(requester_parameters=parameters, peer_dead_from_ns=dead_from_ns)
    network.post(3000 * PAYLOAD)
    network.run()
    assert network.requester.error is QpError.RETRY_COUNTER
    assert not network.messages[0][1].complete
    base = 1024 << 14
    assert parameters.retry_time_ns() == base * (3 + 2 + 4)
    # From the last acknowledgement, or from the first packet; a round trip for the last SACK.
    assert base * 9 <= network.now_ns <= base * 9 + dead_from_ns + 3 * MS
    timeouts = network.requester.counters["timeouts"]
    assert timeouts == 5
    # The oldest packet only is tried again: what is not known to be lost is not sent again.
    assert network.retransmissions == {"timeout": 4}


def test_the_retry_counter_starts_again_with_every_progress() -> None:
    """One packet in two is lost, and the window is one packet: many timeouts, never two limits."""
    network = Network(
        Faults(loss=0.5),
        Faults(loss=0.3),
        seed=11,
        requester_parameters=RequesterParameters(mpr=1, timeout=10, linear_cnt=7, exp_cnt=10),
    )
    network.post(100 * PAYLOAD)
    network.run()
    network.assert_written()
    assert network.requester.counters["timeouts"] > 17


def test_a_refused_write_fails_the_qp_and_writes_nothing() -> None:
    network = Network()
    network.post(10 * PAYLOAD)
    message, posted = network.messages[0]
    message.rkey ^= 1
    network.run()
    assert network.requester.error is QpError.REMOTE_ACCESS
    assert not posted.complete
    assert network.memory.refused["rkey"] == network.responder.counters["refused"] > 0
    assert network.memory.region(message.rkey ^ 1).digest().bytes_placed == 0
