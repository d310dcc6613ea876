# SPDX-License-Identifier: Apache-2.0
"""The receiving half of a QP: what has arrived, and what the requester is told about it.

A pure state machine: packets in, packets out, no clock and no socket (section 5).
"""

from __future__ import annotations

from collections import Counter

from mrc.headers import Aeth, Bth, CcState, Neth, Peth, Seth, Tseth
from mrc.layout import Header
from mrc.memory import Memory
from mrc.opcodes import ECN_CE, AethSyndrome, NackReason, Opcode, SackMark
from mrc.options import DEFAULT_OPTIONS, WireOptions
from mrc.packet import Packet, TrimmedPacket
from mrc.qp import Peering, ResponderParameters, unwrapped, wrapped
from mrc.values import SACK_BITMAP_BITS, entropy, ordered_bitmap
from mrc.writes import WriteView

_WORD_BITS = SACK_BITMAP_BITS
_WORD_MASK = (1 << _WORD_BITS) - 1
_RCVD_UNIT_BYTES = 256
_U15, _U16, _U24 = 0x7FFF, 0xFFFF, 0xFFFFFF


class Responder:
    """Window of one QP. `counters`: new, duplicates, sacks, nacks by reason, refused."""

    def __init__(
        self,
        peering: Peering,
        memory: Memory,
        first_psn: int = 0,
        parameters: ResponderParameters | None = None,
        options: WireOptions = DEFAULT_OPTIONS,
    ) -> None:
        self.counters: Counter[str] = Counter()
        self._peering = peering
        self._memory = memory
        self._parameters = parameters or ResponderParameters()
        self._options = options
        self._cack = first_psn - 1  # the last sequence number before the first gap
        self._bits = 0  # bit i: cack + 1 + i has arrived; bit 0 is never set
        self._rcvd_bytes = 0
        self._since_sack = 0
        # Words of 64 sequence numbers, of which a SACK reports one: those with news, and the one
        # that was reported last when there were none.
        self._news: set[int] = set()
        self._reported = 0
        self._turn = False

    @property
    def cack_psn(self) -> int:
        """The last PSN before the first gap."""
        return wrapped(self._cack)

    def on_write(self, write: WriteView) -> Packet | None:
        """Take a WRITE packet; the answer, if one is due."""
        step = unwrapped(write.psn, self._cack) - self._cack - 1
        path_ev = write.flow_label
        if step < 0 or self._bits >> step & 1:
            self.counters["duplicates"] += 1
            return self._sack(path_ev, write.source_port, write.ecn, write.tx_timestamp, step)
        if step >= self._parameters.mpr:
            self.counters["beyond_window"] += 1
            if not self._parameters.nack_beyond_window:
                return None
            reason = NackReason.PSN_OOR_WINDOW
            return self._nack(reason, path_ev, write.source_port, write.psn, write.tx_timestamp)
        if self._memory.place(write) is not None:
            # Nothing is written, so the PSN stays missing; the requester's QP fails on this.
            self.counters["refused"] += 1
            aeth = Aeth(AethSyndrome.NAK_REMOTE_ACCESS, write.meth.msn)
            return self._answer(Opcode.ACKNOWLEDGE, path_ev, write.psn, (aeth,))
        self._take(step, len(write.payload))
        if (
            write.ack_request
            or write.rtx
            or write.ecn == ECN_CE
            or self._since_sack >= self._parameters.sack_gen_threshold
        ):
            # `step` counted from the cumulative PSN as it was before this packet.
            step = unwrapped(write.psn, self._cack) - self._cack - 1
            return self._sack(path_ev, write.source_port, write.ecn, write.tx_timestamp, step)
        return None

    def on_trimmed(self, packet: TrimmedPacket) -> Packet | None:
        """A WRITE has arrived without its payload: the NACK that asks for it again.

        The NIC answers by itself when it knows the QP's peer; this is for when it does not.
        None when too little is left to answer.
        """
        bth = packet.bth
        if bth is None:
            self.counters["trimmed_too_short"] += 1
            return None
        stamp = next((h.tx_timestamp for h in packet.headers if isinstance(h, Tseth)), 0)
        step = unwrapped(bth.psn, self._cack) - self._cack - 1
        path_ev, port = packet.ipv6.flow_label, packet.udp.source_port
        if step < 0 or self._bits >> step & 1:
            self.counters["duplicates"] += 1
            return self._sack(path_ev, port, packet.ipv6.ecn, stamp, step)
        reason = NackReason.TRIMMED_LASTHOP if packet.last_hop else NackReason.TRIMMED
        return self._nack(reason, path_ev, port, bth.psn, stamp)

    def on_probe(self, packet: Packet) -> Packet:
        """Answer a reliability probe: a SACK with its id."""
        probe = packet.headers[0]
        assert isinstance(probe, Peth)  # the caller looked at the opcode
        self.counters["probes"] += 1
        ipv6 = packet.ipv6
        return self._sack(
            ipv6.flow_label,
            packet.udp.source_port,
            ipv6.ecn,
            probe.tx_timestamp,
            probe_id=probe.probe_id,
        )

    def _take(self, step: int, size: int) -> None:
        """Mark the PSN `step` places behind the first gap as arrived."""
        self.counters["new"] += 1
        self._rcvd_bytes += size
        self._since_sack += 1
        if step:
            self._news.add(self._cack + 1 + step >> 6)
            self._bits |= 1 << step
        elif not self._bits:
            self._cack += 1
        else:
            bits = self._bits | 1
            ones = (~bits & bits + 1).bit_length() - 1
            self._bits = bits >> ones
            self._cack += ones

    def _sack(
        self,
        path_ev: int,
        port: int,
        ecn: int,
        stamp: int,
        step: int = 0,
        probe_id: int | None = None,
    ) -> Packet:
        """What is known, as caused by the packet `step` places behind the first gap."""
        self._since_sack = 0
        self.counters["sacks"] += 1
        marked = ecn == ECN_CE
        self.counters["ce_echoed"] += marked
        word = self._next_word()
        first = word * _WORD_BITS
        shift = first - self._cack - 1
        if shift >= 0:
            bitmap = self._bits >> shift & _WORD_MASK
        else:  # the word begins with PSNs that are acknowledged cumulatively
            bitmap = (self._bits << -shift | (1 << -shift) - 1) & _WORD_MASK
        slot = step + 1 if probe_id is None else probe_id
        seth = Seth(
            m=SackMark.SKIP_ONCE if marked else SackMark.NONE,
            pr=probe_id is not None,
            ack_psn_offset=(slot + 0x8000 & _U16) - 0x8000,
            entropy=entropy(path_ev, port, self._options),
            spdcid=self._peering.qp & _U16,
            dpdcid=self._peering.peer_qp & _U16,
            cack_psn=self.cack_psn,
            sack_offset=first - self._cack,
            sack_bitmap=ordered_bitmap(bitmap, self._options),
        )
        state = CcState(
            tx_timestamp=stamp,
            ooo_count=min(self._bits.bit_count(), _U15),
            rcvd_bytes=self._rcvd_bytes // _RCVD_UNIT_BYTES & _U24,
        )
        return self._answer(Opcode.SACK, path_ev, self.cack_psn, (seth, state))

    def _next_word(self) -> int:
        """The word of sequence numbers to report.

        In turn one with news and, going round, any between the first gap and the last arrival: so
        that a lost SACK is made up for, and an old gap is not forgotten among news.
        """
        low = self._cack + 1 >> 6
        high = max(low, self._cack + self._bits.bit_length() >> 6)
        self._news = {word for word in self._news if word >= low}
        self._turn = not self._turn
        if self._turn and self._news:
            word = min(self._news)
        else:
            word = self._reported + 1
            if not low <= word <= high:
                word = low
            self._reported = word
        self._news.discard(word)
        return word

    def _nack(self, reason: NackReason, path_ev: int, port: int, psn: int, stamp: int) -> Packet:
        self.counters[f"nack_{reason.name.lower()}"] += 1
        neth = Neth(
            nack_reason=reason,
            entropy=entropy(path_ev, port, self._options),
            spdcid=self._peering.qp & _U16,
            dpdcid=self._peering.peer_qp & _U16,
            nack_psn=psn,
            tx_timestamp=stamp,
        )
        return self._answer(Opcode.NACK, path_ev, psn, (neth,))

    def _answer(
        self, opcode: Opcode, path_ev: int, psn: int, headers: tuple[Header, ...]
    ) -> Packet:
        return Packet(
            self._peering.control_header(path_ev, self._options),
            self._peering.udp(self._options),
            Bth(opcode=opcode, dqp=self._peering.peer_qp, psn=psn),
            headers,
        )
