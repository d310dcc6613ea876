# SPDX-License-Identifier: Apache-2.0
"""Probes along chosen paths, and the answering of endpoint requests (section 3.11).

An EV probe is an Endpoint Request with op 1 on the path that is to be tested; the peer answers on
the same path. A self-probe is the same request in an outer header of our own that leads back to
this host; its return is the answer. Port status updates (op 0) are for the NIC, which has read them
in passing; the host says that they have arrived.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field, replace

from mrc.headers import Bth, Eeth, Erth, Ethernet, Ipv6, Udp
from mrc.messages import (
    MessageError,
    PathResult,
    ProbeRequest,
    ProbeResult,
    ProbeTarget,
    ipv6_bytes,
    mac_bytes,
)
from mrc.opcodes import (
    ECN_ECT0,
    ECN_NOT_ECT,
    ENDPOINT_QP,
    EV_CHOSEN,
    NEXT_HEADER_IPV6,
    EndpointOp,
    Opcode,
)
from mrc.options import DEFAULT_OPTIONS, WireOptions
from mrc.pacing import Pacer
from mrc.packet import Packet
from mrc.rawsocket import RawSocket
from mrc.values import timestamp
from mrc.writing import send_patiently

HOST_REQUEST_IDS = 1 << 15
"""Request ids (BTH.PSN[15:0]) below this are the host's, the others its NIC agent's."""
_ID_WAIT_S = 0.001


@dataclass(slots=True)
class _Path:
    """One path under test: how its probes look, and what came of them."""

    target: int
    ethernet: Ethernet
    ipv6: Ipv6
    carrier: Ipv6 | None
    path_ev: int | None
    carrier_text: str | None
    sent: int = 0
    late: int = 0
    duplicates: int = 0
    send_errors: int = 0
    rtt_ns: list[int] = field(default_factory=list)

    def result(self) -> PathResult:
        return PathResult(
            target=self.target,
            path_ev=self.path_ev,
            carrier=self.carrier_text,
            sent=self.sent,
            received=len(self.rtt_ns),
            late=self.late,
            duplicates=self.duplicates,
            send_errors=self.send_errors,
            rtt_ns=self.rtt_ns,
        )


class _Run:
    """One `probe` command in progress."""

    def __init__(self, timeout_ns: int) -> None:
        self.timeout_ns = timeout_ns
        self.unanswered = 0  # sent, and neither answered nor lost on the way out
        self.all_sent = False
        self.complete = asyncio.Event()

    def answered(self) -> None:
        self.unanswered -= 1
        if self.all_sent and self.unanswered == 0:
            self.complete.set()


@dataclass(slots=True)
class _Probe:
    """One probe in the table of request ids."""

    run: _Run
    path: _Path
    sent_ns: int
    answered: bool = False


class Prober:
    """Sends probes, matches answers to them, answers others' probes. `counters` is for `stats`."""

    def __init__(
        self, raw: RawSocket, address: bytes, options: WireOptions = DEFAULT_OPTIONS
    ) -> None:
        self.counters: Counter[str] = Counter()
        self._raw = raw
        self._address = address
        self._options = options
        self._by_id: dict[int, _Probe] = {}
        self._next_id = 0

    async def probe(self, request: ProbeRequest) -> ProbeResult:
        """Send all probes and wait until each is answered or its time is over."""
        paths = self._paths(request)
        run = _Run(int(request.timeout_s * 1e9))
        pacer = Pacer(request.rate, request.burst)
        udp = Udp(request.source_port, self._options.udp_ports[0])
        started = time.monotonic_ns()
        granted = 0
        for _ in range(request.count):
            for path in paths:
                if granted == 0:
                    granted = await pacer.grant()
                await self._send(run, path, udp)
                granted -= 1
        run.all_sent = True
        if run.unanswered:
            try:
                async with asyncio.timeout(request.timeout_s):
                    await run.complete.wait()
            except TimeoutError:
                self.counters["timeouts"] += run.unanswered
        duration = time.monotonic_ns() - started
        return ProbeResult(duration, [path.result() for path in paths])

    def on_request(self, frame: memoryview, packet: Packet) -> None:
        """An Endpoint Request has come in: our own self-probe, or one to answer."""
        received_ns = time.monotonic_ns()
        if packet.ipv6.source == self._address:
            self._match(packet, received_ns)
            return
        request = packet.headers[0]
        if not isinstance(request, Erth) or request.op not in set(EndpointOp):
            self.counters["requests_unsupported"] += 1
            return
        answer = Packet(
            Ipv6(
                dscp=self._options.code_points.control,
                ecn=ECN_NOT_ECT,
                flow_label=EV_CHOSEN << 16 | packet.ipv6.flow_label & 0xFFFF,
                source=self._address,
                destination=packet.ipv6.source,
            ),
            # Flow label and source port together are the EV: the answer takes the request's.
            Udp(packet.udp.source_port, packet.udp.destination_port),
            Bth(opcode=Opcode.ENDPOINT_RESPONSE, dqp=ENDPOINT_QP, psn=packet.bth.psn & 0xFFFF),
            (Eeth(op=request.op, tx_timestamp=request.tx_timestamp),),
        )
        ethernet = Ethernet(bytes(frame[6:12]), self._raw.mac)
        try:
            sent = self._raw.send(ethernet.pack() + answer.build(self._options))
        except BlockingIOError:
            sent = False  # best effort: the protocol never repeats it either
        self.counters["requests_answered" if sent else "answers_lost"] += 1
        if request.op == EndpointOp.PORT_STATUS_UPDATE:
            self.counters["port_status_updates"] += 1

    def on_response(self, packet: Packet) -> None:
        """An Endpoint Response has come in."""
        self._match(packet, time.monotonic_ns())

    def _match(self, packet: Packet, received_ns: int) -> None:
        probe = self._by_id.get(packet.bth.psn & 0xFFFF)
        if probe is None or not self._answers(probe, packet):
            of_host = packet.bth.psn & 0xFFFF < HOST_REQUEST_IDS
            self.counters["answers_unknown" if of_host else "answers_for_nic"] += 1
            return
        path = probe.path
        if probe.answered:
            path.duplicates += 1
            self.counters["answers_duplicate"] += 1
            return
        probe.answered = True
        rtt_ns = received_ns - probe.sent_ns
        if rtt_ns > probe.run.timeout_ns:
            path.late += 1
            self.counters["answers_late"] += 1
        else:
            path.rtt_ns.append(rtt_ns)
            self.counters["answers"] += 1
        probe.run.answered()

    def _answers(self, probe: _Probe, packet: Packet) -> bool:
        """Whether the packet can be the answer to this probe."""
        reply = packet.headers[0]
        # The reflected timestamp tells an old answer from that to a later probe of the same id.
        if not isinstance(reply, Erth | Eeth) or reply.tx_timestamp != timestamp(probe.sent_ns):
            return False
        if probe.path.carrier is not None:
            return packet.ipv6.source == self._address
        return isinstance(reply, Eeth) and packet.ipv6.source == probe.path.ipv6.destination

    async def _send(self, run: _Run, path: _Path, udp: Udp) -> None:
        request_id = await self._free_id()
        sent_ns = time.monotonic_ns()
        packet = Packet(
            path.ipv6,
            udp,
            Bth(opcode=Opcode.ENDPOINT_REQUEST, dqp=ENDPOINT_QP, psn=request_id),
            (Erth(op=EndpointOp.EV_PROBE, tx_timestamp=timestamp(sent_ns)),),
        )
        inner = packet.build(self._options)
        frame = path.ethernet.pack()
        if path.carrier is not None:
            frame += replace(path.carrier, payload_length=len(inner)).pack()
        self._by_id[request_id] = _Probe(run, path, sent_ns)
        run.unanswered += 1
        path.sent += 1
        self.counters["probes_sent"] += 1
        if not await send_patiently(self._raw, frame + inner):
            path.send_errors += 1
            self.counters["probes_lost_in_sending"] += 1
            self._by_id[request_id].answered = True
            run.unanswered -= 1

    async def _free_id(self) -> int:
        """A request id that no probe waits for; waits when all are in use."""
        while True:
            now = time.monotonic_ns()
            for _ in range(HOST_REQUEST_IDS):
                request_id = self._next_id
                self._next_id = (request_id + 1) % HOST_REQUEST_IDS
                probe = self._by_id.get(request_id)
                if probe is None or probe.answered or now - probe.sent_ns > probe.run.timeout_ns:
                    return request_id
            await asyncio.sleep(_ID_WAIT_S)

    def _paths(self, request: ProbeRequest) -> list[_Path]:
        dscp = self._options.code_points.no_trim if request.dscp is None else request.dscp
        paths: list[_Path] = []
        for number, target in enumerate(request.targets):
            paths += self._target_paths(number, target, dscp)
        return paths

    def _target_paths(self, number: int, target: ProbeTarget, dscp: int) -> list[_Path]:
        ethernet = Ethernet(mac_bytes(target.mac), self._raw.mac)
        common = {"dscp": dscp, "ecn": ECN_ECT0}
        if target.carrier is not None:
            inner = Ipv6(**common, source=self._address, destination=self._address)
            outer = Ipv6(
                **common,
                next_header=NEXT_HEADER_IPV6,
                source=self._address,
                destination=ipv6_bytes(target.carrier),
            )
            return [_Path(number, ethernet, inner, outer, None, target.carrier)]
        assert target.address is not None and target.path_evs is not None  # ProbeTarget checks it
        destination = ipv6_bytes(target.address)
        if destination == self._address:
            raise MessageError(
                f"targets[{number}]: {target.address} is this host; a loop needs a carrier"
            )
        return [
            _Path(
                number,
                ethernet,
                Ipv6(
                    **common,
                    flow_label=EV_CHOSEN << 16 | path_ev,
                    source=self._address,
                    destination=destination,
                ),
                None,
                path_ev,
                None,
            )
            for path_ev in target.path_evs
        ]
