# SPDX-License-Identifier: Apache-2.0
"""The sending half of a QP: which packet to send next, and when to send one again.

A pure state machine (section 4.3): `poll` says what to send now and `deadline` when to ask again at
the latest; times are nanoseconds of any clock that does not go backwards.

What tells that a packet is lost, in the order in which it is found:

- a NACK;
- a gap: a SACK reports the PSN as missing, beyond the guard against reordering
  (`RequesterParameters`). A SACK that was itself overtaken by a newer one proves no gap;
- nothing was heard for a round trip: a reliability probe asks, and its answer shows the gaps;
- the local ACK timeout.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Generic, NamedTuple, TypeVar

from mrc.headers import Aeth, CcState, Neth, Seth
from mrc.layout import Header
from mrc.opcodes import AethSyndrome, NackReason, SackMark
from mrc.options import DEFAULT_OPTIONS, WireOptions
from mrc.qp import QpError, RequesterParameters, unwrapped, wrapped
from mrc.values import SACK_BITMAP_BITS, ordered_bitmap, split_entropy

_TRIMMED = frozenset({NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP})
PROBES_PER_TIMEOUT = 16
_MAX_PROBE_DOUBLINGS = 6
_RCVD_MODULUS = 1 << 24

Content = TypeVar("Content")


@dataclass(slots=True)
class Posted(Generic[Content]):
    """A message handed to `post`: `content` is the caller's, `packets` its length in PSNs."""

    content: Content
    packets: int
    sent: int = 0  # packets sent at least once
    unacknowledged: int = 0
    first_loss_ns: int | None = None
    last_retransmission_ns: int | None = None
    retransmissions: Counter[str] = field(default_factory=Counter)  # by cause

    @property
    def complete(self) -> bool:
        """Whether every packet has been acknowledged."""
        return self.unacknowledged == 0


class Transmission(NamedTuple, Generic[Content]):
    """Packet `number` of a message, to be sent now."""

    message: Posted[Content]
    number: int
    psn: int
    rtx: int
    ack_request: int


class Probe(NamedTuple):
    """A reliability probe to be sent now."""

    probe_id: int


@dataclass(slots=True)
class _Sent(Generic[Content]):
    """A PSN in flight. `order` numbers transmissions; the first one's time and order are kept."""

    message: Posted[Content]
    number: int
    sent_ns: int
    order: int
    first_ns: int
    first_order: int
    again: bool = False
    lost: bool = False  # waits to be sent again
    cause: str = ""


class Requester(Generic[Content]):
    """Window of one QP. `counters`: sacks, marked, probes, nacks by reason, what was ignored."""

    def __init__(
        self,
        first_psn: int = 0,
        parameters: RequesterParameters | None = None,
        options: WireOptions = DEFAULT_OPTIONS,
    ) -> None:
        self.counters: Counter[str] = Counter()
        self.marked_path_evs: Counter[int] = Counter()  # from SACKs
        self.nacked_path_evs: Counter[int] = Counter()
        self.error: QpError | None = None
        self.parameters = parameters or RequesterParameters()
        self._options = options
        self._una = first_psn  # lowest sequence number that is not acknowledged
        self._next = first_psn  # the next new one
        self._sent: dict[int, _Sent[Content]] = {}
        self._lost: list[int] = []  # heap of sequence numbers
        self._posted: deque[Posted[Content]] = deque()  # not wholly sent
        self._order = 0
        # Newest of the first transmissions that are known to have arrived.
        self._latest_ns = self._latest_order = -1
        self._rcvd_bytes = 0  # of the newest SACK
        self._retries = 0
        self._progress_ns = 0  # last new acknowledgement, or timeout
        self._quiet_since_ns = 0  # last packet sent or heard
        self._probe_id = 0
        self._probe_ns: int | None = None  # when the last one was sent, if it is unanswered
        self._unanswered = 0
        self._srtt_ns: float | None = None
        self._rttvar_ns = self.parameters.initial_rtt_ns / 2
        self._min_rtt_ns: int | None = None

    @property
    def outstanding(self) -> int:
        """PSNs that are sent and not acknowledged."""
        return len(self._sent)

    @property
    def next_psn(self) -> int:
        """PSN of the next new packet."""
        return wrapped(self._next)

    @property
    def srtt_ns(self) -> float | None:
        """Smoothed round trip; None before the first sample."""
        return self._srtt_ns

    @property
    def reorder_guard_ns(self) -> float:
        """By how much a later packet may overtake an earlier one that is not lost."""
        return self.parameters.reorder_ns + 4 * self._rttvar_ns

    def post(self, content: Content, packets: int) -> Posted[Content]:
        """Append a message of at least one packet."""
        message = Posted(content, packets, unacknowledged=packets)
        self._posted.append(message)
        return message

    def fail(self, error: QpError) -> None:
        """Give up: nothing is sent any more. The first reason stays."""
        if self.error is None:
            self.error = error
            self._sent.clear()
            self._lost.clear()
            self._posted.clear()

    # ------------------------------------------------------------------------------- sending

    def poll(self, now_ns: int) -> Transmission[Content] | Probe | None:
        """What to send now: the oldest lost packet, else a new one, else a probe that is due."""
        if self.error is not None:
            return None
        self._check_timeout(now_ns)
        while self._lost:
            sequence = heappop(self._lost)
            record = self._sent.get(sequence)
            if record is not None and record.lost:
                return self._send_again(sequence, record, now_ns)
        if self._posted and self._next < self._una + self.parameters.mpr:
            return self._send_new(self._posted[0], now_ns)
        if self._sent and now_ns >= self._probe_due_ns():
            return self._send_probe(now_ns)
        return None

    def deadline(self) -> int | None:
        """When `poll` has something to do if nothing is heard before; None: never."""
        if not self._sent:
            return None
        return min(self._probe_due_ns(), self._timeout_due_ns())

    def _send_new(self, message: Posted[Content], now_ns: int) -> Transmission[Content]:
        sequence, number = self._next, message.sent
        self._next += 1
        self._order += 1
        if not self._sent:
            self._progress_ns = now_ns
        self._sent[sequence] = _Sent(message, number, now_ns, self._order, now_ns, self._order)
        self._quiet_since_ns = now_ns
        message.sent += 1
        last = message.sent == message.packets
        if last:
            self._posted.popleft()
        window_full = self._next == self._una + self.parameters.mpr
        return Transmission(message, number, wrapped(sequence), 0, int(last or window_full))

    def _send_again(
        self, sequence: int, record: _Sent[Content], now_ns: int
    ) -> Transmission[Content]:
        self._order += 1
        record.sent_ns, record.order = now_ns, self._order
        record.lost, record.again = False, True
        self._quiet_since_ns = now_ns
        record.message.last_retransmission_ns = now_ns
        record.message.retransmissions[record.cause] += 1
        return Transmission(record.message, record.number, wrapped(sequence), 1, 0)

    def _send_probe(self, now_ns: int) -> Probe:
        self._probe_id = self._probe_id + 1 & 0xFFFF
        self._probe_ns = now_ns
        self._unanswered += 1
        self._quiet_since_ns = now_ns
        self.counters["probes"] += 1
        return Probe(self._probe_id)

    def _probe_due_ns(self) -> int:
        rtt = self.parameters.initial_rtt_ns if self._srtt_ns is None else self._srtt_ns
        wait = int(rtt + self.reorder_guard_ns)
        # Seldomer while nobody answers, but often enough that the timeout comes as the last resort.
        longest = self.parameters.ack_timeout_ns(self._retries) // PROBES_PER_TIMEOUT
        later = min(wait << min(self._unanswered, _MAX_PROBE_DOUBLINGS), longest)
        return self._quiet_since_ns + max(wait, later)

    def _timeout_due_ns(self) -> int:
        since = max(self._sent[self._una].sent_ns, self._progress_ns)
        return since + self.parameters.ack_timeout_ns(self._retries)

    def _check_timeout(self, now_ns: int) -> None:
        if not self._sent or now_ns < self._timeout_due_ns():
            return
        self._progress_ns = now_ns
        record = self._sent[self._una]
        if record.lost:
            return  # the caller has not sent it yet: not the peer's fault
        self.counters["timeouts"] += 1
        self._count_retry()
        if self.error is None:
            # The oldest one only. Its SACK tells about the others.
            self._lose(self._una, record, "timeout", now_ns)

    def _count_retry(self) -> None:
        self._retries += 1
        if self.parameters.exhausted(self._retries):
            self.fail(QpError.RETRY_COUNTER)

    def _lose(self, sequence: int, record: _Sent[Content], cause: str, now_ns: int) -> None:
        record.lost = True
        record.cause = cause
        heappush(self._lost, sequence)
        if record.message.first_loss_ns is None:
            record.message.first_loss_ns = now_ns

    # ------------------------------------------------------------------------------- receiving

    def on_sack(self, seth: Seth, state: Header, now_ns: int) -> None:
        """Take a SACK; `state` is the header behind the SETH."""
        cack = unwrapped(seth.cack_psn, self._una - 1)
        if cack >= self._next:
            self.counters["sacks_invalid"] += 1  # of what was never sent
            return
        self.counters["sacks"] += 1
        self._quiet_since_ns = now_ns
        if seth.m == SackMark.SKIP_ONCE:
            self.counters["marked"] += 1
            self.marked_path_evs[split_entropy(seth.entropy, self._options)[0]] += 1
        answered_ns = self._measure(seth, cack, now_ns)

        before = len(self._sent)
        while self._una <= cack:
            self._acknowledge(self._una, now_ns)
            self._una += 1
        base = cack + seth.sack_offset
        bitmap = ordered_bitmap(seth.sack_bitmap, self._options)
        if base < self._una:
            bitmap >>= self._una - base
        remaining = bitmap
        while remaining:
            lowest = remaining & -remaining
            self._acknowledge(max(base, self._una) + lowest.bit_length() - 1, now_ns)
            remaining ^= lowest
        if len(self._sent) < before:
            self._progress_ns = now_ns
            self._retries = 0
        if self._is_newest(state) and cack == self._una - 1:
            self._find_gaps(base, answered_ns, now_ns)
        while self._una < self._next and self._una not in self._sent:
            self._una += 1  # acknowledged by a bitmap alone, which a responder of ours never does

    def on_nack(self, neth: Neth, now_ns: int) -> None:
        """Take a NACK: send its PSN again, or give up, as its reason says (section 3.9)."""
        try:
            reason = NackReason(neth.nack_reason)
        except ValueError:
            self.counters["nacks_unknown"] += 1
            return
        sequence = unwrapped(neth.nack_psn, self._una)
        record = self._sent.get(sequence)
        if record is None or self._about_earlier(record, now_ns):
            self.counters["nacks_stale"] += 1
            return
        if not record.again:
            # A NIC answers trimmed headers by itself, sooner than any end point answers data.
            self._note_least(now_ns - record.sent_ns)
        self.counters[f"nack_{reason.name.lower()}"] += 1
        self.nacked_path_evs[split_entropy(neth.entropy, self._options)[0]] += 1
        self._quiet_since_ns = now_ns
        if reason is NackReason.UNEXP_EVENT:
            self.fail(QpError.REMOTE_OPERATION)
            return
        if reason in _TRIMMED:
            # Congestion, not failure: it does not count as a retry, or an incast would end QPs.
            self._progress_ns = now_ns
        else:
            self._count_retry()
        if self.error is None and not record.lost:
            self._lose(sequence, record, f"nack_{reason.name.lower()}", now_ns)

    def on_acknowledge(self, aeth: Aeth) -> None:
        """Take a transport acknowledgement. Only NAKs mean anything here: SACKs acknowledge."""
        if aeth.syndrome == AethSyndrome.ACK:
            self.counters["acks"] += 1
        elif aeth.syndrome == AethSyndrome.NAK_REMOTE_ACCESS:
            self.fail(QpError.REMOTE_ACCESS)
        else:
            self.fail(QpError.REMOTE_OPERATION)

    def _acknowledge(self, sequence: int, now_ns: int) -> None:
        record = self._sent.pop(sequence, None)
        if record is None:
            return
        record.message.unacknowledged -= 1
        if record.first_ns > self._latest_ns:
            self._latest_ns = record.first_ns
        if record.first_order > self._latest_order:
            self._latest_order = record.first_order

    def _measure(self, seth: Seth, cack: int, now_ns: int) -> int | None:
        """A sample of the round trip, if this SACK gives one; when an answered probe was sent."""
        if seth.pr:
            if self._probe_ns is None or seth.ack_psn_offset & 0xFFFF != self._probe_id:
                return None
            answered_ns, self._probe_ns = self._probe_ns, None
            self._unanswered = 0
            self._sample(now_ns - answered_ns)
            return answered_ns
        record = self._sent.get(cack + seth.ack_psn_offset)
        if record is not None and not record.again:  # else nobody knows which one it answers
            self._sample(now_ns - record.sent_ns)
        return None

    def _sample(self, rtt_ns: int) -> None:
        """RFC 6298's estimators."""
        self._note_least(rtt_ns)
        if self._srtt_ns is None:
            self._srtt_ns = rtt_ns
            self._rttvar_ns = rtt_ns / 2
        else:
            self._rttvar_ns += (abs(self._srtt_ns - rtt_ns) - self._rttvar_ns) / 4
            self._srtt_ns += (rtt_ns - self._srtt_ns) / 8

    def _note_least(self, answered_ns: int) -> None:
        """Nothing is answered sooner than the quickest answer up to now."""
        if self._min_rtt_ns is None or answered_ns < self._min_rtt_ns:
            self._min_rtt_ns = answered_ns

    def _about_earlier(self, record: _Sent[Content], now_ns: int) -> bool:
        """Whether a NACK that comes now is to an earlier transmission of the packet.

        Sure only well below the shortest round trip: to ignore a NACK by mistake costs a path.
        """
        least = self._min_rtt_ns
        return record.again and least is not None and 2 * (now_ns - record.sent_ns) < least

    def _is_newest(self, state: Header) -> bool:
        """Whether no SACK before this one was sent after it. What has arrived only grows."""
        if not isinstance(state, CcState):
            return False  # nothing is known about other congestion states
        ahead = (state.rcvd_bytes - self._rcvd_bytes) % _RCVD_MODULUS
        if ahead >= _RCVD_MODULUS // 2:
            return False
        self._rcvd_bytes = state.rcvd_bytes
        return True

    def _find_gaps(self, base: int, answered_ns: int | None, now_ns: int) -> None:
        """Lose what the SACK whose bitmap begins at `base` reports as missing, beyond the guard.

        What it reports as arrived has just been acknowledged.
        """
        guard_ns = self.reorder_guard_ns
        latest_ns = self._latest_ns - guard_ns
        latest_order = self._latest_order - self.parameters.reorder_packets
        probe_ns = -1.0 if answered_ns is None else answered_ns - guard_ns
        newest_ns = max(latest_ns, probe_ns)
        start = max(base, self._una)
        end = min(base + SACK_BITMAP_BITS, self._next)
        candidates = [] if start == self._una else [self._una]  # missing, wherever the bitmap is
        for sequence in (*candidates, *range(start, end)):
            record = self._sent.get(sequence)
            if record is None or record.lost:
                continue
            if record.sent_ns <= probe_ns or (
                record.sent_ns <= latest_ns and record.order <= latest_order
            ):
                self._lose(sequence, record, "gap", now_ns)
            elif record.first_ns > newest_ns:
                return  # and so are all that follow
