# SPDX-License-Identifier: Apache-2.0
"""Frames that the agent has a NIC send as if they came from its host."""

from __future__ import annotations

from mrc.headers import Bth, Erth, Ethernet, Ipv6, Udp
from mrc.opcodes import ECN_ECT0, ECN_NOT_ECT, ENDPOINT_QP, EV_CHOSEN, EndpointOp, Opcode
from mrc.options import DEFAULT_OPTIONS, WireOptions
from mrc.packet import Packet
from mrc.probing import HOST_REQUEST_IDS

AGENT_REQUEST_IDS = 1 << 16
"""Request ids from HOST_REQUEST_IDS up to here are the agent's: answers go up to the host too."""
PROBE_PORT = 0xC000
"""UDP source port of the agent's requests: the low half of their EV."""

_NO_MAC = bytes(6)  # the NIC writes both


class RequestIds:
    """Request ids for one NIC, in turn."""

    def __init__(self) -> None:
        self._next = HOST_REQUEST_IDS

    def take(self) -> int:
        """The next one."""
        taken, self._next = self._next, self._next + 1
        if self._next == AGENT_REQUEST_IDS:
            self._next = HOST_REQUEST_IDS
        return taken


def ev_probe(
    source: bytes,
    destination: bytes,
    path_ev: int,
    request_id: int,
    options: WireOptions = DEFAULT_OPTIONS,
) -> bytes:
    """An EV probe on exactly this path (Endpoint Request op 1, section 3.11), as a frame."""
    ipv6 = Ipv6(
        dscp=options.code_points.no_trim,
        ecn=ECN_ECT0,
        flow_label=EV_CHOSEN << 16 | path_ev,
        source=source,
        destination=destination,
    )
    return _endpoint_request(ipv6, request_id, Erth(op=EndpointOp.EV_PROBE), options)


def port_status_update(
    source: bytes,
    destination: bytes,
    path_ev: int,
    request_id: int,
    port_status_mask: int,
    options: WireOptions = DEFAULT_OPTIONS,
) -> bytes:
    """A notice on exactly this path: bit p of the mask, plane p can be reached (op 0), as a frame.

    In the control class, because packets are lost as long as it waits, and no congestion trims it.
    """
    ipv6 = Ipv6(
        dscp=options.code_points.control,
        ecn=ECN_NOT_ECT,
        flow_label=EV_CHOSEN << 16 | path_ev,
        source=source,
        destination=destination,
    )
    request = Erth(op=EndpointOp.PORT_STATUS_UPDATE, port_status_mask=port_status_mask)
    return _endpoint_request(ipv6, request_id, request, options)


def _endpoint_request(ipv6: Ipv6, request_id: int, request: Erth, options: WireOptions) -> bytes:
    packet = Packet(
        ipv6,
        Udp(PROBE_PORT, options.udp_ports[0]),
        Bth(opcode=Opcode.ENDPOINT_REQUEST, dqp=ENDPOINT_QP, psn=request_id),
        (request,),
    )
    return Ethernet(_NO_MAC, _NO_MAC).pack() + packet.build(options)
