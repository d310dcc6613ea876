# SPDX-License-Identifier: Apache-2.0
"""The ICRC against Scapy's RoCEv2 implementation and against a bit-by-bit CRC."""

from __future__ import annotations

import ipaddress

import pytest
import scapy.contrib.roce as roce
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP, IPOption_NOP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet as ScapyPacket
from scapy.packet import Raw

from mrc.wire import Packet, WireError, WireOptions, invariant_crc
from tests.mrc.strategies import packets
from tests.mrc.vectors import VECTORS, vector_bytes


def bitwise_crc32(data: bytes) -> int:
    """CRC-32 as IEEE 802.3 defines it, one bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked_ipv6(packet: bytes) -> bytes:
    """What the ICRC covers, byte for byte, for an IPv6 packet without its ICRC."""
    masked = bytearray(packet)
    masked[0:4] = b"\x6f\xff\xff\xff"  # traffic class and flow label
    masked[7] = 0xFF  # hop limit
    masked[46:48] = b"\xff\xff"  # UDP checksum
    masked[52] = 0xFF  # BTH byte 4
    return b"\xff" * 8 + masked


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_bit_by_bit(name: str) -> None:
    data = vector_bytes(VECTORS[name][0])
    assert bitwise_crc32(masked_ipv6(data[:-4])).to_bytes(4, "little") == data[-4:]
    assert invariant_crc(data[:-4]) == data[-4:]


def roce_bytes(below: ScapyPacket, transport: bytes) -> bytes:
    """Scapy's RoCEv2 packet with these bytes from the BTH on, its ICRC computed by Scapy."""
    bth = roce.BTH(transport[:12] + bytes(4))
    del bth.icrc
    fields = {name: value for name, value in bth.fields.items() if name != "icrc"}
    return bytes(below / roce.BTH(**fields) / Raw(transport[12:]))


@settings(max_examples=60, deadline=None)
@given(packets(WireOptions()))
def test_ipv6_agrees_with_scapy(packet: Packet) -> None:
    data = packet.build()
    ip = IPv6(
        src=str(ipaddress.IPv6Address(packet.ipv6.source)),
        dst=str(ipaddress.IPv6Address(packet.ipv6.destination)),
        tc=packet.ipv6.dscp << 2 | packet.ipv6.ecn,
        fl=packet.ipv6.flow_label,
        hlim=packet.ipv6.hop_limit,
    )
    udp = UDP(sport=packet.udp.source_port, dport=packet.udp.destination_port)
    theirs = roce_bytes(ip / udp, data[48:-4])
    assert theirs[-4:] == data[-4:]
    assert theirs == data


@settings(max_examples=60, deadline=None)
@given(
    st.binary(min_size=12, max_size=40),
    st.integers(0, 255),
    st.integers(0, 255),
    st.integers(0, 2),
)
def test_ipv4_agrees_with_scapy(transport: bytes, tos: int, ttl: int, options: int) -> None:
    ip = IP(src="10.0.0.1", dst="10.0.0.2", tos=tos, ttl=ttl, options=[IPOption_NOP()] * options)
    data = roce_bytes(ip / UDP(sport=50000, dport=4791), transport)
    assert invariant_crc(data[:-4]) == data[-4:]


def test_fields_that_change_on_the_way_do_not_matter() -> None:
    data = vector_bytes(VECTORS["WRITE_ONLY"][0])
    changed = bytearray(data)
    changed[0:4] = b"\x6b\xbf\xff\xff"
    changed[7] = 1
    changed[46:48] = b"\x12\x34"
    changed[52] = 0x77
    assert invariant_crc(changed[:-4]) == data[-4:]
    for position in (4, 6, 8, 40, 44, 48, 53, 59, 60):
        other = bytearray(data)
        other[position] ^= 1
        assert invariant_crc(other[:-4]) != data[-4:]


def test_too_short_or_not_ip() -> None:
    data = vector_bytes(VECTORS["ACKNOWLEDGE"][0])
    with pytest.raises(WireError, match="60 bytes here; the packet has 59"):
        invariant_crc(data[:59])
    with pytest.raises(WireError, match="starts as IP version 0"):
        invariant_crc(b"")
    with pytest.raises(WireError, match="40 bytes here; the packet has 39"):
        invariant_crc(b"\x45" + bytes(38))
