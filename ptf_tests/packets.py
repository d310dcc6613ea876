# SPDX-License-Identifier: GPL-2.0-only
"""Packets for the tests, built by Scapy, as bytes: what goes in and what must come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from scapy.layers.inet import TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrSegmentRouting
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from controller.addressing import ipv6 as address_text
from controller.addressing import mac_text

ETHERNET_BYTES = 14
IPV6_BYTES = 40
SRH_BYTES = 8
SEGMENT_BYTES = 16
NEXT_HEADER_ICMPV6 = 58


class Macs(NamedTuple):
    """An Ethernet header's addresses."""

    destination: int
    source: int


def ethernet(macs: Macs, payload: bytes, ether_type: int = 0x86DD) -> bytes:
    """A frame."""
    header = Ether(
        dst=mac_text(macs.destination), src=mac_text(macs.source), type=ether_type
    )
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
