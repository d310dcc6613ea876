# SPDX-License-Identifier: Apache-2.0
"""Frames that the agent has a NIC send as if they came from its host."""

from __future__ import annotations

from mrc.headers import Bth, Erth, Ethernet, Ipv6, Udp
from mrc.opcodes import ECN_ECT0, ENDPOINT_QP, EV_CHOSEN, EndpointOp, Opcode
from mrc.options import DEFAULT_OPTIONS, WireOptions
from mrc.packet import Packet
from mrc.probing import HOST_REQUEST_IDS

AGENT_REQUEST_IDS = 1 << 16
"""Request ids from HOST_REQUEST_IDS up to here are the agent's: answers go up to the host too."""
PROBE_PORT = 0xC000
"""UDP source port of the agent's probes: the low half of their EV."""

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
    packet = Packet(
        Ipv6(
            dscp=options.code_points.no_trim,
            ecn=ECN_ECT0,
            flow_label=EV_CHOSEN << 16 | path_ev,
            source=source,
            destination=destination,
        ),
        Udp(PROBE_PORT, options.udp_ports[0]),
        Bth(opcode=Opcode.ENDPOINT_REQUEST, dqp=ENDPOINT_QP, psn=request_id),
        (Erth(op=EndpointOp.EV_PROBE),),
    )
    return Ethernet(_NO_MAC, _NO_MAC).pack() + packet.build(options)
