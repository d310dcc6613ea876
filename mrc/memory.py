# SPDX-License-Identifier: Apache-2.0
"""Memory regions, and the receiving of WRITE packets into them in any order."""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from mrc.layout import ChecksumError, IcrcError, WireError
from mrc.messages import Digest, MessageError, RegionInfo, RegisterRequest
from mrc.opcodes import ECN_CE, Opcode
from mrc.options import DEFAULT_OPTIONS, WireOptions
from mrc.writes import WriteView, parse_write

_FIRST_VA = 0x1000_0000_0000
_PAGE_BYTES = 4096
_KEPT_IMMEDIATES = 1024
_STARTS = frozenset({Opcode.WRITE_FIRST, Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM})
_WHOLES = frozenset({Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM})


class Region:
    """Registered memory: its bytes, and for each of them whether it has arrived."""

    def __init__(self, va: int, rkey: int, length: int) -> None:
        self.va = va
        self.rkey = rkey
        self.data = bytearray(length)
        # A byte per byte: exact for any packet size and order, and marking, counting and finding
        # gaps are single C calls. Twice the memory is the price.
        self._arrived = bytearray(length)
        self._placed = 0

    def place(self, offset: int, payload: memoryview) -> None:
        """Write `payload`, which must lie within the region."""
        end = offset + len(payload)
        self.data[offset:end] = payload
        self._arrived[offset:end] = b"\1" * len(payload)
        self._placed += len(payload)

    def info(self) -> RegionInfo:
        """Where it lies."""
        return RegionInfo(self.va, self.rkey, len(self.data))

    def digest(self) -> Digest:
        """SHA-256 of the region as it is now, and what has arrived."""
        return Digest(
            sha256=hashlib.sha256(self.data).hexdigest(),
            length=len(self.data),
            bytes_placed=self._placed,
            bytes_present=self._arrived.count(1),
            missing=self._missing(),
        )

    def _missing(self) -> list[list[int]]:
        gaps = []
        start = self._arrived.find(0)
        while start >= 0:
            end = self._arrived.find(1, start)
            if end < 0:
                end = len(self._arrived)
            gaps.append([start, end - start])
            start = self._arrived.find(0, end)
        return gaps


@dataclass(slots=True)
class SourceQp:
    """What one sender's QP has delivered here. A WRITE names no source QP; its UDP port does."""

    packets: int = 0
    bytes: int = 0
    retransmitted: int = 0
    ce_marked: int = 0
    path_evs: Counter[int] = field(default_factory=Counter)  # EV[31:16] -> packets


class Immediate(NamedTuple):
    """Immediate data that arrived, with the message numbers that it came with."""

    source: bytes
    source_port: int
    qp: int
    rqmsn: int
    msn: int
    immediate: int
    rtx: int


class Memory:
    """The regions of this host, and the counters of what was written or refused."""

    def __init__(self, options: WireOptions = DEFAULT_OPTIONS) -> None:
        self.refused: Counter[str] = Counter()
        self.sources: dict[tuple[bytes, int, int], SourceQp] = {}  # (address, our QP, UDP port)
        self.immediates: deque[Immediate] = deque(maxlen=_KEPT_IMMEDIATES)
        self.immediates_received = 0
        self._options = options
        self._regions: dict[int, Region] = {}
        self._next_va = _FIRST_VA

    def register(self, request: RegisterRequest) -> Region:
        """Make a region; MessageError when the R_Key is taken."""
        rkey = request.rkey
        if rkey is None:
            rkey = secrets.randbits(32)
            while rkey in self._regions:
                rkey = secrets.randbits(32)
        elif rkey in self._regions:
            raise MessageError(f"rkey = {rkey}: is registered; deregister it first")
        va = self._next_va if request.va is None else request.va
        if request.va is None:  # a page between regions, so that overruns hit nothing
            self._next_va += -(-request.length // _PAGE_BYTES) * _PAGE_BYTES + _PAGE_BYTES
        region = self._regions[rkey] = Region(va, rkey, request.length)
        return region

    def deregister(self, rkey: int) -> None:
        """Forget a region; later packets for it are refused."""
        del self._regions[self.region(rkey).rkey]

    def region(self, rkey: int) -> Region:
        """The region of `rkey`; MessageError when there is none."""
        try:
            return self._regions[rkey]
        except KeyError:
            known = ", ".join(str(key) for key in self._regions) or "none"
            raise MessageError(f"rkey = {rkey}: registered are {known}") from None

    def regions(self) -> list[Region]:
        """All regions, oldest first."""
        return list(self._regions.values())

    def receive(self, packet: memoryview) -> None:
        """Take a WRITE packet, from its IPv6 header on: place it, or count why not."""
        write = self.parse(packet)
        if write is not None:
            self.place(write)

    def parse(self, packet: memoryview) -> WriteView | None:
        """The WRITE packet in `packet`; None, and counted, when it is not whole or not one."""
        try:
            return parse_write(packet, self._options)
        except IcrcError:
            self.refused["icrc"] += 1
        except ChecksumError:
            self.refused["udp_checksum"] += 1
        except WireError:
            self.refused["malformed"] += 1
        return None

    def place(self, write: WriteView) -> str | None:
        """Write the packet's payload where it belongs; or the reason why not, which is counted."""
        region = self._regions.get(write.rkey)
        if region is None:
            self.refused["rkey"] += 1
            return "rkey"
        offset = write.va - region.va
        size = len(write.payload)
        if offset < 0 or offset + size > len(region.data):
            self.refused["bounds"] += 1
            return "bounds"
        if not _length_possible(write, offset, size, len(region.data)):
            self.refused["dma_length"] += 1
            return "dma_length"
        region.place(offset, write.payload)
        self._count(write, size)
        return None

    def _count(self, write: WriteView, size: int) -> None:
        key = (write.source, write.dqp, write.source_port)
        source = self.sources.get(key)
        if source is None:
            source = self.sources[key] = SourceQp()
        source.packets += 1
        source.bytes += size
        source.retransmitted += write.rtx
        source.ce_marked += write.ecn == ECN_CE
        source.path_evs[write.flow_label & 0xFFFF] += 1
        if write.immediate is not None:
            self.immediates_received += 1
            self.immediates.append(
                Immediate(
                    write.source,
                    write.source_port,
                    write.dqp,
                    write.meth.rqmsn,
                    write.meth.msn,
                    write.immediate,
                    write.rtx,
                )
            )


def _length_possible(write: WriteView, offset: int, size: int, region_bytes: int) -> bool:
    """Whether the message's length agrees with this packet and fits the region (section 3.6)."""
    if not 0 < size <= write.dma_length <= region_bytes:
        return False
    if write.opcode in _WHOLES and size != write.dma_length:
        return False
    return write.opcode not in _STARTS or offset + write.dma_length <= region_bytes
