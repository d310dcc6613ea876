# SPDX-License-Identifier: GPL-2.0-only
"""Scapy layers against the codec, byte for byte both ways, and through a pcap file."""

from __future__ import annotations

import ipaddress
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import scapy.contrib.roce as roce
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scapy.config import conf
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrSegmentRouting
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw
from scapy.utils import rdpcap, wrpcap

from mrc import scapy_layers as layers
from mrc.wire import (
    HEADER_CHAINS,
    CcOpaque,
    Header,
    Opcode,
    Packet,
    Seth,
    WireOptions,
    invariant_crc,
    parse_packet,
)
from tests.mrc.strategies import OPTIONS, packets
from tests.mrc.vectors import VECTORS, vector_bytes

ETHER = {"dst": "02:00:00:00:00:01", "src": "02:00:00:00:00:02"}
CARRIER = "fcbb:bb00:2401:4402:2403:6404::"
NAMES = {layer.codec: layer for layer in layers._LAYERS.values()}


@pytest.fixture(autouse=True)
def default_settings() -> Iterator[None]:
    before = dict(conf.contribs["MRC"])
    yield
    conf.contribs["MRC"] = before


def to_scapy(packet: Packet) -> Any:
    """The same packet in layers, with everything computed left to Scapy."""
    built: Any = IPv6(
        src=str(ipaddress.IPv6Address(packet.ipv6.source)),
        dst=str(ipaddress.IPv6Address(packet.ipv6.destination)),
        tc=packet.ipv6.dscp << 2 | packet.ipv6.ecn,
        fl=packet.ipv6.flow_label,
        hlim=packet.ipv6.hop_limit,
    )
    built /= UDP(sport=packet.udp.source_port, dport=packet.udp.destination_port)
    built /= layers.MRC_BTH(**values(packet.bth, leave_out=("pad",)))
    for item in packet.headers:
        built /= NAMES[type(item)](**values(item))
    return built / Raw(packet.payload) if packet.payload else built


def values(header: Header, leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    names = [spec.name for spec in header.layout().specs]
    return {name: getattr(header, name) for name in names if name not in leave_out}


def check_same(scapy_packet: Any, packet: Packet) -> None:
    """Every field of every header is equal."""
    layer = scapy_packet[layers.MRC_BTH]
    for item in (packet.bth, *packet.headers):
        assert {name: layer.getfieldval(name) for name in values(item)} == values(item)
        layer = layer.payload
    assert bytes(layer) == packet.payload


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_both_ways(name: str) -> None:
    data, packet = vector_bytes(VECTORS[name][0]), VECTORS[name][1]
    assert bytes(to_scapy(packet)) == data
    dissected = IPv6(data)
    check_same(dissected, packet)
    assert dissected[layers.MRC_BTH].icrc == packet.icrc
    assert dissected.summary().count("MRC_") == 1 + len(packet.headers)
    assert bytes(dissected) == data
    dissected[layers.MRC_BTH].icrc = None  # computed anew
    assert bytes(dissected) == data


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_packet_both_ways_under_any_options(data: st.DataObject) -> None:
    options = data.draw(OPTIONS)
    conf.contribs["MRC"]["options"] = options
    try:
        packet = data.draw(packets(replace(options, udp_ports=(4791, 4971))))
        raw = packet.build(options)
        assert bytes(to_scapy(packet)) == raw
        parsed = parse_packet(raw, replace(options, udp_ports=(4791, 4971)))
        assert isinstance(parsed, Packet)
        check_same(IPv6(raw), parsed)
        assert bytes(IPv6(raw)) == raw
    finally:
        conf.contribs["MRC"]["options"] = WireOptions()


def test_there_is_a_layer_for_every_header() -> None:
    used = {kind for chain in HEADER_CHAINS.values() for kind in chain} | {CcOpaque}
    assert used == set(NAMES)


def test_cc_type_decides_what_follows_a_seth() -> None:
    packet = replace(
        VECTORS["SACK"][1], headers=(Seth(cc_type=1), CcOpaque(b"\x01\x02\x03\x04\x05\x06\x07\x08"))
    )
    assert layers.MRC_CC_OPAQUE in IPv6(packet.build())


def write(**bth: Any) -> Any:
    return (
        IPv6(src="fd4d:5243::1", dst="fd4d:5243::1:2", tc=18)
        / UDP(sport=0xC000)
        / layers.MRC_BTH(opcode=Opcode.WRITE_ONLY_IMM, dqp=17, **bth)
        / layers.MRC_METH(msn=1)
        / layers.MRC_RETH(va=0x1000, rkey=7, dma_length=5)
        / layers.MRC_ImmDt(immediate=9)
        / Raw(b"hello")
    )


def test_a_pcap_dissects_from_ethernet_to_immdt_and_icrc(tmp_path: Path) -> None:
    outer = {"src": "fd4d:5243::1", "dst": CARRIER}
    segments = IPv6ExtHdrSegmentRouting(addresses=["fcbb:bb00:2401::"])
    path = tmp_path / "mrc.pcap"
    wrpcap(
        str(path),
        [
            Ether(**ETHER) / IPv6(**outer) / write(),
            Ether(**ETHER) / IPv6(**outer) / segments / write(),
            Ether(**ETHER) / Dot1Q(vlan=5) / IPv6(**outer) / write(),
            Ether(**ETHER) / write(),
        ],
    )
    carried, routed, tagged, bare = rdpcap(str(path))
    for packet in (carried, routed, tagged, bare):
        assert packet[layers.MRC_ImmDt].immediate == 9
        assert packet[Raw].load == b"hello"
        assert packet[layers.MRC_BTH].pad == 3
        inner = packet[UDP].underlayer
        assert invariant_crc(bytes(inner)[:-4]) == packet[layers.MRC_BTH].icrc
    for packet in (carried, routed, tagged):
        assert layers.SRv6Carrier in packet
        assert packet[IPv6].dst == CARRIER  # the outer one is found first
        assert packet.getlayer(IPv6, 2).dst == "fd4d:5243::1:2"
        assert "p1t0-1 | p1t1-2 | p1t0-3 | downlink 4 (plane 1)" in packet.show(dump=True)
        assert packet[layers.SRv6Carrier].usids().startswith("p1t0-1 | ")
    assert IPv6ExtHdrSegmentRouting in routed
    assert layers.SRv6Carrier not in bare


def test_the_locator_block_is_a_setting() -> None:
    data = bytes(Ether(**ETHER) / IPv6(src="::1", dst="fc00:42:2401::") / write())
    assert layers.SRv6Carrier not in Ether(data)
    conf.contribs["MRC"]["block"] = "fc00:42::/32"
    assert layers.SRv6Carrier in Ether(data)


def test_both_ports_dissect() -> None:
    for port in (4791, 4971):
        packet = write()
        packet[UDP].dport = port
        assert layers.MRC_ImmDt in IPv6(bytes(packet))


def test_ordinary_roce_still_dissects_as_roce() -> None:
    data = bytes(
        Ether(**ETHER)
        / IP(src="10.0.0.1", dst="10.0.0.2")
        / UDP(sport=1)
        / roce.BTH(opcode=0x11, dqpn=3, psn=4)
        / roce.AETH(syndrome=0x1F, msn=3)
    )
    packet = Ether(data)
    assert packet[roce.AETH].msn == 3
    assert layers.MRC_BTH not in packet
    assert bytes(packet) == data
    assert roce.CNPPadding in IPv6(bytes(IPv6() / UDP(dport=4791) / roce.cnp(5)))


def test_trimmed_packets_have_no_trailer_whatever_is_left_of_them() -> None:
    whole = write(padding=b"", icrc=b"")
    whole[IPv6].tc = 8 << 2
    data = bytes(whole)
    assert data.endswith(b"hello")
    packet = IPv6(data)
    assert packet[Raw].load == b"hello"
    assert packet[layers.MRC_BTH].icrc == b""
    assert bytes(packet) == data
    for length in range(48, len(data)):
        cut = IPv6(data[:length])
        assert bytes(cut) == data[:length]
        assert (layers.MRC_BTH in cut) == (length >= 60)
        assert (layers.MRC_METH in cut) == (length >= 64)
        assert (layers.MRC_RETH in cut) == (length >= 80)
        assert (layers.MRC_ImmDt in cut) == (length >= 84)


def test_the_icrc_over_ipv4() -> None:
    packet = IP(src="10.0.0.1", dst="10.0.0.2") / write()[UDP].copy()
    data = bytes(packet)
    assert IP(data)[layers.MRC_BTH].icrc == invariant_crc(data[:-4]) == data[-4:]


def test_the_package_works_without_scapy() -> None:
    script = "import sys; sys.modules['scapy'] = None\nimport mrc.wire, mrc.usid\n"
    subprocess.run([sys.executable, "-c", script], check=True)
