# SPDX-License-Identifier: Apache-2.0
"""Sending of RDMA WRITE messages."""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass

from mrc.headers import Ethernet, Ipv6, Meth
from mrc.messages import (
    DEFAULT_SOURCE_PORT,
    PATH_MTUS,
    MessageError,
    WriteRequest,
    WriteResult,
    ipv6_bytes,
    mac_bytes,
)
from mrc.opcodes import ECN_ECT0, EV_CHOSEN, PSN_MODULUS, Opcode
from mrc.options import DEFAULT_OPTIONS, WireOptions
from mrc.pacing import Pacer
from mrc.pattern import Pattern
from mrc.rawsocket import RawSocket
from mrc.writes import WriteStream

# Outer and inner IPv6, UDP, BTH, METH, RETH, ImmDt, ICRC: what a packet has besides its payload.
OVERHEAD_BYTES = 40 + 40 + 8 + 12 + 4 + 16 + 4 + 4
_FULL_BUFFER_S = 0.0005


@dataclass(slots=True)
class _Qp:
    """Sender's counters of one QP."""

    psn: int = 0
    msn: int = 0
    rqmsn: int = 0


async def send_patiently(raw: RawSocket, frame: bytes) -> bool:
    """`RawSocket.send`, waiting for room in the socket's buffer."""
    while True:
        try:
            return raw.send(frame)
        except BlockingIOError:
            await asyncio.sleep(_FULL_BUFFER_S)


def payload_bytes(raw: RawSocket, request: WriteRequest) -> int:
    """Payload of each packet but the last; MessageError when it does not fit the interface."""
    mtu = raw.mtu()
    fitting = [size for size in PATH_MTUS if size + OVERHEAD_BYTES <= mtu]
    if not fitting:
        raise MessageError(
            f"{raw.interface} has MTU {mtu}: the smallest payload, {PATH_MTUS[0]} bytes, "
            f"needs {PATH_MTUS[0] + OVERHEAD_BYTES}"
        )
    if request.payload is None:
        return fitting[-1]
    if request.payload not in fitting:
        raise MessageError(
            f"payload = {request.payload}: needs an MTU of {request.payload + OVERHEAD_BYTES} "
            f"(outer header included), {raw.interface} has {mtu}; fitting are {fitting}"
        )
    return request.payload


class Writer:
    """Sends WRITE messages; remembers PSN and message numbers of every QP."""

    def __init__(
        self, raw: RawSocket, address: bytes, options: WireOptions = DEFAULT_OPTIONS
    ) -> None:
        self._raw = raw
        self._address = address
        self._options = options
        self._qps: dict[tuple[bytes, int, int], _Qp] = {}

    async def write(self, request: WriteRequest) -> WriteResult:
        """Send the message, or the asked ranges of it; MessageError when it cannot be sent."""
        payload = payload_bytes(self._raw, request)
        total = -(-request.length // payload)
        numbers = range(total) if request.ranges is None else _packets(request.ranges, payload)
        first_psn, meth = self._number(request, total)
        stream = self._stream(request, meth)
        pattern = Pattern(request.seed)
        rtx = int(request.ranges is not None)
        digest = None if rtx else hashlib.sha256()
        pacer = Pacer(request.rate, request.burst)
        packets = size = errors = granted = 0
        started = time.monotonic_ns()
        for number in numbers:
            if granted == 0:
                granted = await pacer.grant()
            offset = number * payload
            data = pattern.read(offset, min(payload, request.length - offset))
            if digest is not None:
                digest.update(data)
            frame = stream.packet(
                write_opcode(number, total, request.immediate is not None),
                (first_psn + number) % PSN_MODULUS,
                request.va + offset,
                data,
                rtx,
            )
            errors += not await send_patiently(self._raw, frame)
            packets += 1
            size += len(data)
            granted -= 1
        return WriteResult(
            packets=packets,
            bytes=size,
            send_errors=errors,
            duration_ns=time.monotonic_ns() - started,
            sha256=None if digest is None else digest.hexdigest(),
            payload=payload,
            first_psn=first_psn,
            msn=meth.msn,
            rqmsn=meth.rqmsn,
        )

    def _number(self, request: WriteRequest, total: int) -> tuple[int, Meth]:
        """First PSN and message numbers: those asked for, else the QP's next, which move on."""
        key = (ipv6_bytes(request.address), request.qp, _source_port(request))
        qp = self._qps.setdefault(key, _Qp())
        first_psn = qp.psn if request.first_psn is None else request.first_psn
        msn = qp.msn if request.msn is None else request.msn
        if request.immediate is None:
            rqmsn = 0  # unused for plain writes (section 3.4)
        else:
            rqmsn = qp.rqmsn if request.rqmsn is None else request.rqmsn
        if request.ranges is None:
            qp.psn = (first_psn + total) % PSN_MODULUS
            qp.msn = (msn + 1) % (1 << 16)
            if request.immediate is not None:
                qp.rqmsn = (rqmsn + 1) % (1 << 16)
        return first_psn, Meth(rqmsn, msn)

    def _stream(self, request: WriteRequest, meth: Meth) -> WriteStream:
        points = self._options.code_points
        dscp = request.dscp
        if dscp is None:
            dscp = points.trimmable if request.ranges is None else points.trimmable_retx
        chosen = request.path_ev is not None
        return WriteStream(
            ipv6=Ipv6(
                dscp=dscp,
                ecn=ECN_ECT0,
                flow_label=EV_CHOSEN << 16 | (request.path_ev or 0) if chosen else 0,
                source=self._address,
                destination=ipv6_bytes(request.address),
            ),
            source_port=_source_port(request),
            dqp=request.qp,
            rkey=request.rkey,
            dma_length=request.length,
            meth=meth,
            immediate=request.immediate or 0,
            before=Ethernet(mac_bytes(request.mac), self._raw.mac).pack(),
            options=self._options,
        )


def _packets(ranges: list[list[int]], payload: int) -> list[int]:
    """Numbers of the packets that overlap the ranges, ascending, each once."""
    numbers: set[int] = set()
    for offset, length in ranges:
        numbers.update(range(offset // payload, -(-(offset + length) // payload)))
    return sorted(numbers)


def _source_port(request: WriteRequest) -> int:
    return DEFAULT_SOURCE_PORT if request.source_port is None else request.source_port


def write_opcode(number: int, total: int, immediate: bool) -> int:
    """Opcode of packet `number` of `total`."""
    if total == 1:
        return Opcode.WRITE_ONLY_IMM if immediate else Opcode.WRITE_ONLY
    if number == 0:
        return Opcode.WRITE_FIRST
    if number < total - 1:
        return Opcode.WRITE_MIDDLE
    return Opcode.WRITE_LAST_IMM if immediate else Opcode.WRITE_LAST
