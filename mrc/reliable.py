# SPDX-License-Identifier: Apache-2.0
"""The agent's QPs: reliable writes, and the answering of what others write.

This is the shell around `mrc.requester` and `mrc.responder`: the socket, the clock, the pacing. A
QP sends one write after the other; those of different QPs are sent at the same time.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mrc.headers import Aeth, Bth, Ethernet, Meth, Neth, Peth, Seth
from mrc.memory import Memory
from mrc.messages import (
    ConnectQpRequest,
    CreateQpRequest,
    Delivery,
    MessageError,
    QpInfo,
    WriteRequest,
    WriteResult,
    ipv6_bytes,
    mac_bytes,
)
from mrc.opcodes import EV_CHOSEN, Opcode
from mrc.options import DEFAULT_OPTIONS, WireOptions
from mrc.pacing import Pacer
from mrc.packet import Packet, TrimmedPacket
from mrc.pattern import Pattern
from mrc.qp import (
    MPR_UNIT,
    Peering,
    QpError,
    QpState,
    RequesterParameters,
    ResponderParameters,
)
from mrc.rawsocket import RawSocket
from mrc.requester import Posted, Probe, Requester, Transmission
from mrc.responder import Responder
from mrc.values import timestamp
from mrc.writes import WriteStream, WriteView
from mrc.writing import payload_bytes, send_patiently, write_opcode

_FIRST_QP = 0x100
_LAST_QP = (1 << 24) - 1
_SOURCE_PORTS = 0xC000  # of QPs; the low 14 bits are the QP number's
_U16 = 0xFFFF


class QpFailedError(RuntimeError):
    """The QP went into ERROR in the middle of a write, or was there before; says why."""


@dataclass(slots=True)
class _Write:
    """A message being written: its data, and what makes packets of it."""

    request: WriteRequest
    payload: int
    total: int
    first: WriteStream
    again: WriteStream  # retransmissions have a DSCP of their own
    pattern: Pattern
    repeated: Pattern  # reading old data in between would make the other go back and forth

    def data(self, number: int, rtx: int) -> bytes | memoryview:
        offset = number * self.payload
        size = min(self.payload, self.request.length - offset)
        return (self.repeated if rtx else self.pattern).read(offset, size)

    def frame(self, item: Transmission[_Write], data: bytes | memoryview) -> bytes:
        stream = self.again if item.rtx else self.first
        return stream.packet(
            write_opcode(item.number, self.total, self.request.immediate is not None),
            item.psn,
            self.request.va + item.number * self.payload,
            data,
            item.rtx,
            item.ack_request,
        )


@dataclass(slots=True)
class _Connection:
    """What a QP has once it knows its peer."""

    peering: Peering
    ethernet: bytes  # header towards the next hop
    requester: Requester[_Write]
    responder: Responder
    msn: int = 0
    rqmsn: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    heard: asyncio.Event = field(default_factory=asyncio.Event)


class QueuePairs:
    """All QPs of an agent. `ignored` counts what came for none of them."""

    def __init__(
        self,
        raw: RawSocket,
        address: bytes,
        memory: Memory,
        options: WireOptions = DEFAULT_OPTIONS,
    ) -> None:
        self.ignored: Counter[str] = Counter()
        self._raw = raw
        self._address = address
        self._memory = memory
        self._options = options
        self._qps: dict[int, _Connection | None] = {}  # by our number; None until connected
        self._next_qp = _FIRST_QP

    # ------------------------------------------------------------------------------- life cycle

    def create(self, request: CreateQpRequest) -> QpInfo:
        """Make a QP; MessageError when the number is taken."""
        qp = request.qp
        if qp is None:
            while self._next_qp in self._qps:
                self._next_qp += 1
            qp = self._next_qp
        if qp in self._qps or qp > _LAST_QP:
            raise MessageError(f"qp = {qp}: there is one; destroy it first")
        self._qps[qp] = None
        return QpInfo(qp, socket.inet_ntop(socket.AF_INET6, self._address))

    def connect(self, request: ConnectQpRequest) -> None:
        """Tell a new QP its peer; MessageError when it has one or does not exist."""
        if self._known(request.qp) is not None:
            raise MessageError(f"qp = {request.qp}: is connected; destroy it and create another")
        port = request.source_port
        peering = Peering(
            address=self._address,
            qp=request.qp,
            peer_address=ipv6_bytes(request.address),
            peer_qp=request.peer_qp,
            source_port=_SOURCE_PORTS | request.qp & 0x3FFF if port is None else port,
        )
        mpr = request.mpr * MPR_UNIT
        requester = RequesterParameters(
            mpr=mpr,
            reorder_ns=request.reorder_ns,
            reorder_packets=request.reorder_packets,
            timeout=request.timeout,
            linear_cnt=request.linear_cnt,
            exp_cnt=request.exp_cnt,
        )
        responder = ResponderParameters(mpr, request.sack_gen_threshold)
        self._qps[request.qp] = _Connection(
            peering,
            Ethernet(mac_bytes(request.mac), self._raw.mac).pack(),
            Requester(request.first_psn, requester, self._options),
            Responder(peering, self._memory, request.peer_first_psn, responder, self._options),
        )

    def destroy(self, qp: int) -> None:
        """Forget a QP; a write on it fails."""
        connection = self._known(qp)
        del self._qps[qp]
        if connection is not None:
            connection.requester.fail(QpError.CANCELLED)
            connection.heard.set()

    def _known(self, qp: int) -> _Connection | None:
        if qp not in self._qps:
            known = ", ".join(map(str, self._qps)) or "none"
            raise MessageError(f"qp = {qp}: there are {known}; create_qp makes one")
        return self._qps[qp]

    # ------------------------------------------------------------------------------- receiving

    def on_write(self, write: WriteView) -> bool:
        """Take a WRITE packet if it is for one of our QPs; False: it is not."""
        if write.dqp not in self._qps:
            return False
        connection = self._of_peer(write.dqp, write.source)
        if connection is not None:
            self._answer(connection, connection.responder.on_write(write))
        return True

    def on_trimmed(self, packet: TrimmedPacket) -> bool:
        """Take what a switch left of a WRITE if it is for one of our QPs; False: it is not."""
        if packet.bth is None or packet.bth.dqp not in self._qps:
            return False
        connection = self._of_peer(packet.bth.dqp, packet.ipv6.source)
        if connection is not None:
            self._answer(connection, connection.responder.on_trimmed(packet))
        return True

    def on_control(self, packet: Packet) -> None:
        """Take a SACK, NACK, acknowledgement or reliability probe."""
        now_ns = time.monotonic_ns()
        connection = self._of_peer(packet.bth.dqp, packet.ipv6.source)
        if connection is None:
            return
        header = packet.headers[0]
        if isinstance(header, Peth):
            self._answer(connection, connection.responder.on_probe(packet))
            return
        if isinstance(header, Seth):
            connection.requester.on_sack(header, packet.headers[1], now_ns)
        elif isinstance(header, Neth):
            connection.requester.on_nack(header, now_ns)
        elif isinstance(header, Aeth):
            connection.requester.on_acknowledge(header)
        connection.heard.set()

    def _of_peer(self, qp: int, source: bytes) -> _Connection | None:
        """The QP `qp` if `source` is its peer; else counts why not."""
        connection = self._qps.get(qp)
        if connection is None:
            self.ignored["not_connected" if qp in self._qps else "unknown_qp"] += 1
        elif connection.peering.peer_address != source:
            self.ignored["not_the_peer"] += 1
            return None
        return connection

    def _answer(self, connection: _Connection, packet: Packet | None) -> None:
        if packet is None:
            return
        try:
            sent = self._raw.send(connection.ethernet + packet.build(self._options))
        except BlockingIOError:
            sent = False  # as good as lost on its way: the requester asks again
        if not sent:
            connection.responder.counters["answers_lost"] += 1

    # ------------------------------------------------------------------------------- sending

    async def write(self, request: WriteRequest) -> WriteResult:
        """Write the message and wait until all of it is acknowledged.

        MessageError when the request does not fit the QP, QpFailedError when the QP fails. A
        cancelled write leaves the QP in ERROR, as its packets cannot be called back.
        """
        assert request.own_qp is not None  # WriteRequest checks it
        connection = self._known(request.own_qp)
        if connection is None:
            raise MessageError(f"own_qp = {request.own_qp}: is not connected; connect_qp does it")
        peering = connection.peering
        for name, given, known in (
            ("address", ipv6_bytes(request.address), peering.peer_address),
            ("mac", mac_bytes(request.mac), connection.ethernet[:6]),
            ("qp", request.qp, peering.peer_qp),
            ("source_port", request.source_port or peering.source_port, peering.source_port),
        ):
            if given != known:
                words = f"{name} = {getattr(request, name)!r}"
                raise MessageError(f"{words}: QP {request.own_qp} is connected to another")
        async with connection.turn:
            if connection.requester.error is not None:
                raise QpFailedError(_failure(connection, 0, 0))
            try:
                return await self._deliver(connection, request)
            except asyncio.CancelledError:
                connection.requester.fail(QpError.CANCELLED)
                raise

    async def _deliver(self, connection: _Connection, request: WriteRequest) -> WriteResult:
        requester = connection.requester
        before = requester.counters.copy()
        marked, nacked = requester.marked_path_evs.copy(), requester.nacked_path_evs.copy()
        meth, first_psn = self._number(connection, request), requester.next_psn
        write = self._open(connection, request, meth)
        message = requester.post(write, write.total)
        digest = hashlib.sha256()
        pacer = Pacer(request.rate, request.burst)
        granted = errors = 0
        started = time.monotonic_ns()
        while not message.complete:
            if granted == 0:
                granted = await pacer.grant()
                continue  # much may have come meanwhile
            item = requester.poll(time.monotonic_ns())
            if requester.error is not None:
                raise QpFailedError(_failure(connection, message.unacknowledged, write.total))
            if item is None:
                await _until_heard(connection, requester.deadline())
                continue
            granted -= 1
            if isinstance(item, Probe):
                errors += not await send_patiently(self._raw, self._probe_frame(connection, item))
                continue
            data = write.data(item.number, item.rtx)
            if not item.rtx:
                digest.update(data)
            errors += not await send_patiently(
                self._raw, connection.ethernet + write.frame(item, data)
            )
        return WriteResult(
            packets=write.total,
            bytes=request.length,
            send_errors=errors,
            duration_ns=time.monotonic_ns() - started,
            sha256=digest.hexdigest(),
            payload=write.payload,
            first_psn=first_psn,
            msn=meth.msn,
            rqmsn=meth.rqmsn,
            delivery=_delivery(
                requester,
                message,
                started,
                requester.counters - before,
                requester.marked_path_evs - marked,
                requester.nacked_path_evs - nacked,
            ),
        )

    def _number(self, connection: _Connection, request: WriteRequest) -> Meth:
        """The message's numbers; the QP's move on."""
        meth = Meth(0 if request.immediate is None else connection.rqmsn, connection.msn)
        connection.msn = connection.msn + 1 & _U16
        if request.immediate is not None:
            connection.rqmsn = connection.rqmsn + 1 & _U16
        return meth

    def _open(self, connection: _Connection, request: WriteRequest, meth: Meth) -> _Write:
        payload = payload_bytes(self._raw, request)
        points = self._options.code_points

        def stream(dscp: int, flow_label: int) -> WriteStream:
            return WriteStream(
                ipv6=connection.peering.data_header(dscp, flow_label),
                source_port=connection.peering.source_port,
                dqp=connection.peering.peer_qp,
                rkey=request.rkey,
                dma_length=request.length,
                meth=meth,
                immediate=request.immediate or 0,
                options=self._options,
            )

        chosen = 0 if request.path_ev is None else EV_CHOSEN << 16 | request.path_ev
        return _Write(
            request=request,
            payload=payload,
            total=-(-request.length // payload),
            first=stream(points.trimmable if request.dscp is None else request.dscp, chosen),
            again=stream(points.trimmable_retx if request.dscp is None else request.dscp, 0),
            pattern=Pattern(request.seed),
            repeated=Pattern(request.seed),
        )

    def _probe_frame(self, connection: _Connection, probe: Probe) -> bytes:
        """A reliability probe; the NIC chooses its path (section 3.10)."""
        peering = connection.peering
        header = Peth(
            probe_id=probe.probe_id,
            spdcid=peering.qp & _U16,
            dpdcid=peering.peer_qp & _U16,
            tx_timestamp=timestamp(time.monotonic_ns()),
        )
        packet = Packet(
            peering.data_header(self._options.code_points.no_trim, 0),
            peering.udp(self._options),
            Bth(opcode=Opcode.PROBE_REQUEST, dqp=peering.peer_qp),
            (header,),
        )
        return connection.ethernet + packet.build(self._options)

    # ------------------------------------------------------------------------------- statistics

    def stats(self) -> Iterator[Mapping[str, Any]]:
        """State and counters of every QP, for `stats`."""
        for qp, connection in self._qps.items():
            if connection is None:
                yield {"qp": qp, "state": QpState.INIT}
                continue
            requester, responder = connection.requester, connection.responder
            yield {
                "qp": qp,
                "state": QpState.RTS if requester.error is None else QpState.ERROR,
                "error": requester.error,
                "address": socket.inet_ntop(socket.AF_INET6, connection.peering.peer_address),
                "peer_qp": connection.peering.peer_qp,
                "source_port": connection.peering.source_port,
                "next_psn": requester.next_psn,
                "outstanding": requester.outstanding,
                "srtt_ns": requester.srtt_ns,
                "reorder_guard_ns": requester.reorder_guard_ns,
                "requester": dict(requester.counters),
                "cack_psn": responder.cack_psn,
                "responder": dict(responder.counters),
            }


async def _until_heard(connection: _Connection, deadline_ns: int | None) -> None:
    """Wait until something has come for the QP, or the time has."""
    connection.heard.clear()
    wait_s = None if deadline_ns is None else (deadline_ns - time.monotonic_ns()) / 1e9
    try:
        async with asyncio.timeout(wait_s):
            await connection.heard.wait()
    except TimeoutError:
        pass


def _failure(connection: _Connection, missing: int, total: int) -> str:
    words = f"QP {connection.peering.qp} is in ERROR: {connection.requester.error}"
    if total:
        words += f", {missing} of {total} packets were not acknowledged"
    return f"{words}; destroy it and create another"


def _delivery(
    requester: Requester[_Write],
    message: Posted[_Write],
    started_ns: int,
    counted: Counter[str],
    marked: Counter[int],
    nacked: Counter[int],
) -> Delivery:
    """What happened between `started_ns` and now."""

    def since_start(time_ns: int | None) -> int | None:
        return None if time_ns is None else time_ns - started_ns

    srtt_ns = requester.srtt_ns
    return Delivery(
        retransmissions=dict(message.retransmissions),
        first_loss_ns=since_start(message.first_loss_ns),
        last_retransmission_ns=since_start(message.last_retransmission_ns),
        sacks=counted["sacks"],
        marked=counted["marked"],
        probes=counted["probes"],
        timeouts=counted["timeouts"],
        nacks={
            name.removeprefix("nack_"): count
            for name, count in counted.items()
            if name.startswith("nack_")
        },
        marked_path_evs={str(ev): count for ev, count in marked.items()},
        nacked_path_evs={str(ev): count for ev, count in nacked.items()},
        srtt_ns=None if srtt_ns is None else round(srtt_ns),
        reorder_guard_ns=round(requester.reorder_guard_ns),
    )
