# SPDX-License-Identifier: Apache-2.0
"""The requests that the agent has NICs send."""

from __future__ import annotations

from controller.addressing import EntropyValue, host_address
from controller.nic_agent.frames import (
    AGENT_REQUEST_IDS,
    PROBE_PORT,
    RequestIds,
    ev_probe,
    port_status_update,
)
from mrc.headers import Erth
from mrc.opcodes import EndpointOp, Opcode
from mrc.options import DEFAULT_OPTIONS
from mrc.packet import Packet, parse_packet
from mrc.probing import HOST_REQUEST_IDS


def test_request_ids_are_never_the_hosts() -> None:
    ids = RequestIds()
    taken = [ids.take() for _ in range(AGENT_REQUEST_IDS)]
    assert taken[0] == HOST_REQUEST_IDS
    assert set(taken) == set(range(HOST_REQUEST_IDS, 1 << 16))
    assert taken[AGENT_REQUEST_IDS // 2] == HOST_REQUEST_IDS


def test_an_ev_probe_is_an_endpoint_request_on_the_path() -> None:
    source, target = (host_address(group, 1).to_bytes(16, "big") for group in (0, 1))
    path_ev = EntropyValue(2, 600).path_ev
    frame = ev_probe(source, target, path_ev, 0x8123)
    assert frame[:14] == bytes(12) + b"\x86\xdd"
    packet = parse_packet(frame[14:], verify=True)
    assert isinstance(packet, Packet)
    assert (packet.ipv6.source, packet.ipv6.destination) == (source, target)
    assert packet.ipv6.flow_label == 0xE0000 | path_ev
    assert packet.udp.source_port == PROBE_PORT
    assert (packet.bth.opcode, packet.bth.dqp, packet.bth.psn) == (
        Opcode.ENDPOINT_REQUEST, 2, 0x8123,
    )  # fmt: skip
    assert packet.headers == (Erth(op=EndpointOp.EV_PROBE),)


def test_a_notice_is_a_control_packet_with_the_mask() -> None:
    source, target = (host_address(group, 1).to_bytes(16, "big") for group in (0, 1))
    path_ev = EntropyValue(3, 5).path_ev
    frame = port_status_update(source, target, path_ev, 0xFFFF, 0b1011)
    assert frame[:14] == bytes(12) + b"\x86\xdd"
    assert len(frame) == 14 + 40 + 8 + 12 + 16 + 4  # and no other length: peer_ports.p4
    packet = parse_packet(frame[14:], verify=True)
    assert isinstance(packet, Packet)
    assert (packet.ipv6.source, packet.ipv6.destination) == (source, target)
    assert (packet.ipv6.dscp, packet.ipv6.ecn) == (DEFAULT_OPTIONS.code_points.control, 0)
    assert packet.ipv6.flow_label == 0xE0000 | path_ev
    assert (packet.bth.opcode, packet.bth.dqp, packet.bth.psn) == (
        Opcode.ENDPOINT_REQUEST, 2, 0xFFFF,
    )  # fmt: skip
    assert packet.headers == (Erth(op=EndpointOp.PORT_STATUS_UPDATE, port_status_mask=0b1011),)
