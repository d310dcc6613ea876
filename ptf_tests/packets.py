# SPDX-License-Identifier: GPL-2.0-only
"""Packets for the tests, built by Scapy, as bytes: what goes in and what must come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from scapy.contrib import roce
from scapy.layers.inet import TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrSegmentRouting
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from controller.addressing import UDP_PORT_DEFAULT, mac_text
from controller.addressing import ipv6 as address_text
from mrc.opcodes import ICRC_BYTES, IMMEDIATE_OPCODES, WRITE_OPCODES, Opcode
from mrc.packet import parse_packet
from mrc.scapy_layers import (
    MRC_AETH,
    MRC_BTH,
    MRC_CC_STATE,
    MRC_EETH,
    MRC_ERTH,
    MRC_METH,
    MRC_NETH,
    MRC_PETH,
    MRC_RETH,
    MRC_SETH,
    MRC_TSETH,
    MRC_ImmDt,
)

ETHERNET_BYTES = 14
IPV6_BYTES = 40
SRH_BYTES = 8
SEGMENT_BYTES = 16
UDP_BYTES = 8
NEXT_HEADER_TCP = 6
NEXT_HEADER_UDP = 17
NEXT_HEADER_IPV6 = 41
NEXT_HEADER_ROUTING = 43
NEXT_HEADER_ICMPV6 = 58
NO_NEXT_HEADER = 59

# RFC 6040 figure 4: (outer, inner) -> inner after decapsulation; None is a drop.
NOT_ECT, ECT_1, ECT_0, CE = range(4)
ECN_AFTER_DECAPSULATION: dict[tuple[int, int], int | None] = {
    (NOT_ECT, NOT_ECT): NOT_ECT,
    (NOT_ECT, ECT_0): ECT_0,
    (NOT_ECT, ECT_1): ECT_1,
    (NOT_ECT, CE): CE,
    (ECT_0, NOT_ECT): NOT_ECT,
    (ECT_0, ECT_0): ECT_0,
    (ECT_0, ECT_1): ECT_1,
    (ECT_0, CE): CE,
    (ECT_1, NOT_ECT): NOT_ECT,
    (ECT_1, ECT_0): ECT_1,
    (ECT_1, ECT_1): ECT_1,
    (ECT_1, CE): CE,
    (CE, NOT_ECT): None,
    (CE, ECT_0): CE,
    (CE, ECT_1): CE,
    (CE, CE): CE,
}


class Macs(NamedTuple):
    """An Ethernet header's addresses."""

    destination: int
    source: int


def ethernet(macs: Macs, payload: bytes, ether_type: int = 0x86DD) -> bytes:
    """A frame."""
    header = Ether(dst=mac_text(macs.destination), src=mac_text(macs.source), type=ether_type)
    return bytes(header) + payload


def ipv6(
    source: int,
    destination: int,
    payload: bytes,
    next_header: int,
    *,
    dscp: int = 0,
    ecn: int = 0,
    flow_label: int = 0,
    hop_limit: int = 64,
    version: int = 6,
) -> bytes:
    """An IPv6 packet."""
    header = IPv6(
        version=version,
        src=address_text(source),
        dst=address_text(destination),
        nh=next_header,
        tc=dscp << 2 | ecn,
        fl=flow_label,
        hlim=hop_limit,
        plen=len(payload),
    )
    return bytes(header) + payload


def with_flow_label(packet: bytes, flow_label: int) -> bytes:
    """The IPv6 packet with another flow label."""
    return packet[:1] + (packet[1] << 16 & 0xF00000 | flow_label).to_bytes(3, "big") + packet[4:]


def srh(
    segments: Sequence[int],
    segments_left: int,
    *,
    next_header: int = 41,
    last_entry: int | None = None,
    hdr_ext_len: int | None = None,
    routing_type: int = 4,
    tag: int = 0xBEEF,
) -> bytes:
    """A segment routing header; ``segments`` in the header's order, the last one to visit first."""
    return bytes(
        IPv6ExtHdrSegmentRouting(
            nh=next_header,
            len=2 * len(segments) if hdr_ext_len is None else hdr_ext_len,
            type=routing_type,
            segleft=segments_left,
            lastentry=len(segments) - 1 if last_entry is None else last_entry,
            tag=tag,
            addresses=[address_text(segment) for segment in segments],
        )
    )


def udp(
    source: int, destination: int, source_port: int, destination_port: int, payload: bytes
) -> bytes:
    """UDP with its checksum, for an IPv6 packet between these addresses."""
    packet = IPv6(src=address_text(source), dst=address_text(destination)) / UDP(
        sport=source_port, dport=destination_port
    )
    return bytes(packet / Raw(payload))[IPV6_BYTES:]


def tcp(
    source: int, destination: int, source_port: int, destination_port: int, payload: bytes
) -> bytes:
    """TCP with its checksum, for an IPv6 packet between these addresses."""
    packet = IPv6(src=address_text(source), dst=address_text(destination)) / TCP(
        sport=source_port, dport=destination_port
    )
    return bytes(packet / Raw(payload))[IPV6_BYTES:]


def _mrc_headers(opcode: Opcode) -> Packet:
    """BTH and the headers of this opcode, no two of them with the same content."""
    bth = MRC_BTH(opcode=opcode, dqp=0x123456, psn=0xABCDEF, ts=int(opcode in WRITE_OPCODES))
    if opcode in WRITE_OPCODES:
        write = MRC_METH(rqmsn=7, msn=0x4321) / MRC_TSETH(tx_timestamp=0xBEEF)
        write = write / MRC_RETH(va=0x7F00_1234_5678_9ABC, rkey=0xFEEDC0DE, dma_length=1 << 20)
        return (
            bth / write / MRC_ImmDt(immediate=0x600DF00D)
            if opcode in IMMEDIATE_OPCODES
            else bth / write
        )
    rest: dict[Opcode, Packet] = {
        Opcode.ACKNOWLEDGE: MRC_AETH(msn=0x99),
        Opcode.ENDPOINT_REQUEST: MRC_ERTH(port_status_mask=0xF0F0, tx_timestamp=0x1111),
        Opcode.ENDPOINT_RESPONSE: MRC_EETH(tx_timestamp=0x2222),
        Opcode.SACK: MRC_SETH(m=1, entropy=0x6A5B4C3D, cack_psn=0xABCDEF, sack_bitmap=0x8001)
        / MRC_CC_STATE(tx_timestamp=0x3333, ooo_count=5),
        Opcode.NACK: MRC_NETH(nack_reason=1, entropy=0x6A5B4C3D, nack_psn=0xABCDEF),
        Opcode.PROBE_REQUEST: MRC_PETH(probe_id=0x4444, tx_timestamp=0x5555),
    }
    return bth / rest[opcode]


def mrc(
    opcode: Opcode,
    source: int,
    destination: int,
    payload: bytes = bytes(range(1, 38)),
    *,
    source_port: int = 0xC0DE,
    destination_port: int = UDP_PORT_DEFAULT,
    dscp: int = 0,
    ecn: int = 0,
    flow_label: int = 0,
    hop_limit: int = 64,
    headers: Packet | None = None,
) -> bytes:
    """A host's MRC packet, UDP checksum and ICRC included; only WRITE opcodes carry the payload.

    ``headers``: BTH and what follows it, instead of the opcode's usual ones.
    """
    packet = IPv6(
        src=address_text(source),
        dst=address_text(destination),
        tc=dscp << 2 | ecn,
        fl=flow_label,
        hlim=hop_limit,
    )
    packet = (
        packet / UDP(sport=source_port, dport=destination_port) / (headers or _mrc_headers(opcode))
    )
    return bytes(packet / Raw(payload) if opcode in WRITE_OPCODES else packet)


def write_of(psn: int, *, rtx: bool = False) -> Packet:
    """The headers of a WRITE with this PSN; ``rtx``: sent again."""
    headers = _mrc_headers(Opcode.WRITE_ONLY)
    headers.psn, headers.rtx = psn, int(rtx)
    return headers


def write_to(qp: int, psn: int, tx_timestamp: int | None, opcode: Opcode) -> Packet:
    """The headers of a WRITE to a QP; without a time stamp it has no TSETH."""
    stamped = tx_timestamp is not None
    headers = MRC_BTH(opcode=opcode, dqp=qp, psn=psn, ts=int(stamped), se=1, ack_request=1)
    headers = headers / MRC_METH(rqmsn=7, msn=0x4321)
    if stamped:
        headers = headers / MRC_TSETH(tx_timestamp=tx_timestamp)
    headers = headers / MRC_RETH(va=0x7F00_1234_5678_9ABC, rkey=0xFEEDC0DE, dma_length=1 << 20)
    return headers / MRC_ImmDt(immediate=9) if opcode in IMMEDIATE_OPCODES else headers


def nack_to(
    qp: int, own_qp: int, psn: int, reason: int, entropy: int, tx_timestamp: int | None
) -> Packet:
    """The headers of a NIC's NACK to a QP of the sender's."""
    neth = MRC_NETH(
        nack_reason=reason,
        entropy=entropy,
        spdcid=own_qp & 0xFFFF,
        dpdcid=qp & 0xFFFF,
        nack_psn=psn,
        cc_type=2,
        tx_timestamp=tx_timestamp or 0,
    )
    return MRC_BTH(opcode=Opcode.NACK, dqp=qp, psn=psn) / neth


def sack_of(entropy: int, m: int, *, answers_probe: bool = False) -> Packet:
    """The headers of a SACK for a packet with this entropy."""
    seth = MRC_SETH(m=m, pr=int(answers_probe), entropy=entropy, cack_psn=1)
    return MRC_BTH(opcode=Opcode.SACK, dqp=0x777) / seth / MRC_CC_STATE()


def nack_of(entropy: int, psn: int, reason: int) -> Packet:
    """The headers of a NACK of this PSN."""
    neth = MRC_NETH(nack_reason=reason, entropy=entropy, nack_psn=psn)
    return MRC_BTH(opcode=Opcode.NACK, dqp=0x777) / neth


def ev_probe_of(request: int) -> Packet:
    """The headers of an EV probe."""
    return MRC_BTH(opcode=Opcode.ENDPOINT_REQUEST, dqp=2, psn=request) / MRC_ERTH(op=1)


def ev_probe_answer_of(request: int) -> Packet:
    """The headers of its answer."""
    return MRC_BTH(opcode=Opcode.ENDPOINT_RESPONSE, dqp=2, psn=request) / MRC_EETH(op=1)


def port_status_of(mask: int, request: int = 0x5151) -> Packet:
    """The headers of a port status update: bit p of ``mask``, plane p can be reached."""
    erth = MRC_ERTH(op=0, port_status_mask=mask, tx_timestamp=0x1212)
    return MRC_BTH(opcode=Opcode.ENDPOINT_REQUEST, dqp=2, psn=request) / erth


def assert_checksums(packet: bytes) -> None:
    """UDP checksum and ICRC of an MRC packet are right: by the codec, and by Scapy's own layers."""
    parse_packet(packet, verify=True)
    ip, datagram = IPv6(packet[:IPV6_BYTES]), packet[IPV6_BYTES:]
    header = UDP(datagram[:UDP_BYTES])
    bth = roce.BTH(datagram[UDP_BYTES:])
    bth.icrc = None
    assert bytes(ip / header / bth)[-ICRC_BYTES:] == packet[-ICRC_BYTES:]
    header.chksum = None
    assert bytes(ip / header / Raw(datagram[UDP_BYTES:])) == packet


def flow(
    source: int,
    destination: int,
    *,
    label: int = 0,
    kind: int = NEXT_HEADER_UDP,
    source_port: int = 0xC000,
    destination_port: int = 4791,
    text: bytes = b"data",
    dscp: int = 0,
    hop_limit: int = 64,
) -> bytes:
    """An IPv6 packet of a UDP or TCP flow."""
    layer4 = tcp if kind == NEXT_HEADER_TCP else udp
    payload = layer4(source, destination, source_port, destination_port, text)
    return ipv6(
        source, destination, payload, kind, flow_label=label, dscp=dscp, hop_limit=hop_limit
    )


def trimmed(packet: bytes, dscp: int, kept: int = 20) -> bytes:
    """What trimming leaves of a host's MRC packet: ``kept`` bytes behind the UDP header.

    Lengths and UDP checksum are Scapy's for the shorter packet.
    """
    ip, ports = IPv6(packet[:IPV6_BYTES]), UDP(packet[IPV6_BYTES : IPV6_BYTES + UDP_BYTES])
    body = packet[IPV6_BYTES + UDP_BYTES :][:kept]
    short = IPv6(src=ip.src, dst=ip.dst, tc=dscp << 2 | ip.tc & 3, fl=ip.fl, hlim=ip.hlim)
    return bytes(short / UDP(sport=ports.sport, dport=ports.dport) / Raw(body))
