# SPDX-License-Identifier: Apache-2.0
"""Whole packets: hand-written vectors, round trips, cuts at every length, and errors."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc.wire import (
    HEADER_CHAINS,
    Bth,
    CodePoints,
    Erth,
    Ipv6,
    Meth,
    Opcode,
    Packet,
    Reth,
    TrimmedPacket,
    Udp,
    WireError,
    WireOptions,
    parse_packet,
)
from tests.mrc.strategies import OPTIONS, packets
from tests.mrc.vectors import VECTORS, vector_bytes

BTH_START = Ipv6.SIZE + Udp.SIZE


def whole(data: bytes, options: WireOptions | None = None) -> Packet:
    packet = parse_packet(data) if options is None else parse_packet(data, options)
    assert isinstance(packet, Packet)
    return packet


def test_there_is_a_vector_for_every_opcode() -> None:
    assert set(VECTORS) == {opcode.name for opcode in Opcode}
    for name, (text, _) in VECTORS.items():
        assert vector_bytes(text)[BTH_START] == Opcode[name]


@pytest.mark.parametrize("name", VECTORS)
def test_hand_written_vector(name: str) -> None:
    text, packet = VECTORS[name]
    data = vector_bytes(text)
    assert parse_packet(data) == packet
    assert packet.build() == data


@pytest.mark.parametrize("name", VECTORS)
def test_ethernet_padding_behind_the_packet_is_ignored(name: str) -> None:
    text, packet = VECTORS[name]
    assert parse_packet(vector_bytes(text) + bytes(7)) == packet


@pytest.mark.parametrize("name", VECTORS)
def test_every_cut_is_a_clean_error(name: str) -> None:
    data = vector_bytes(VECTORS[name][0])
    for length in range(len(data)):
        with pytest.raises(WireError):
            parse_packet(data[:length])


@pytest.mark.parametrize("name", VECTORS)
def test_every_single_bit_error_from_the_ports_on_is_noticed(name: str) -> None:
    data = vector_bytes(VECTORS[name][0])
    for position in range(Ipv6.SIZE * 8, len(data) * 8):
        damaged = bytearray(data)
        damaged[position // 8] ^= 0x80 >> position % 8
        with pytest.raises(WireError):
            parse_packet(damaged)


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("dscp", [8, 9])
def test_trimmed_anywhere_from_the_bth_on(name: str, dscp: int) -> None:
    packet = VECTORS[name][1]
    data = bytearray(vector_bytes(VECTORS[name][0]))
    data[0:2] = (0x6000 | dscp << 6).to_bytes(2, "big")
    chain = HEADER_CHAINS[packet.bth.opcode, packet.bth.ts]
    for length in range(BTH_START, len(data) + 1):
        cut = parse_packet(data[:length])
        assert isinstance(cut, TrimmedPacket)
        assert cut.last_hop == (dscp == 9)
        assert cut.udp == packet.udp
        assert cut.bth == (packet.bth if length >= BTH_START + Bth.SIZE else None)
        ends = [BTH_START + Bth.SIZE]
        for kind in chain:
            ends.append(ends[-1] + kind.SIZE)
        complete = sum(length >= end for end in ends[1:])
        assert cut.headers == packet.headers[:complete]
        start = max([BTH_START, *(end for end in ends if end <= length)])
        assert cut.rest == data[start:length]
    for length in range(BTH_START):
        with pytest.raises(WireError):
            parse_packet(data[:length])


def test_a_trimming_switch_may_have_shortened_the_lengths_or_not() -> None:
    text, packet = VECTORS["WRITE_MIDDLE"]
    data = bytearray(vector_bytes(text)[: BTH_START + 20])
    data[0:2] = b"\x62\x00"  # DSCP 8
    kept = parse_packet(data)
    data[4:6] = (28).to_bytes(2, "big")
    shortened = parse_packet(data + bytes(6))
    assert isinstance(kept, TrimmedPacket) and isinstance(shortened, TrimmedPacket)
    assert kept.headers == shortened.headers == packet.headers[:2]
    assert kept.rest == shortened.rest == b""


def test_which_code_points_mean_trimmed_is_an_option() -> None:
    options = WireOptions(code_points=CodePoints(trimmed=12, trimmed_lasthop=16))
    data = bytearray(vector_bytes(VECTORS["WRITE_ONLY"][0]))
    data[0:2] = (0x6000 | 12 << 6).to_bytes(2, "big")
    assert isinstance(parse_packet(data, options), TrimmedPacket)
    assert isinstance(parse_packet(data), Packet)


@given(st.data())
def test_built_packets_parse_back(data: st.DataObject) -> None:
    options = data.draw(OPTIONS)
    packet = data.draw(packets(options))
    raw = packet.build(options)
    back = whole(raw, options)
    assert (back.headers, back.payload) == (packet.headers, packet.payload)
    assert back.bth == replace(packet.bth, pad=-len(packet.payload) % 4)
    assert back.ipv6 == replace(packet.ipv6, payload_length=len(raw) - Ipv6.SIZE)
    assert back.udp.source_port == packet.udp.source_port
    assert back.build(options) == raw


@given(st.data())
def test_a_packet_without_udp_checksum_parses_and_rebuilds(data: st.DataObject) -> None:
    options = data.draw(OPTIONS)
    raw = data.draw(packets(options)).build(options, with_checksum=False)
    packet = whole(raw, options)
    assert packet.udp.checksum == 0
    assert packet.build(options, with_checksum=False) == raw


@given(st.binary(max_size=200))
def test_arbitrary_bytes_parse_or_give_a_wire_error(data: bytes) -> None:
    with contextlib.suppress(WireError):
        parse_packet(data, verify=False)


ERRORS: list[tuple[str, dict[int, int], str]] = [
    ("WRITE_ONLY", {0: 0x41}, r"IPv6.version = 4: must be 6"),
    ("WRITE_ONLY", {6: 6}, r"IPv6.next_header = 6: MRC needs 17"),
    ("WRITE_ONLY", {42: 0, 43: 53}, r"destination_port = 53: MRC uses \(4791, 4971\)"),
    ("WRITE_ONLY", {45: 0x2F}, r"UDP.length = 47: must be IPv6.payload_length, 48"),
    ("WRITE_ONLY", {5: 0x2F, 45: 0x2F}, r"UDP.length = 47: must be a multiple of 4"),
    ("WRITE_ONLY", {5: 0x34, 45: 0x34}, r"payload_length = 52, but only 48 bytes follow"),
    ("WRITE_ONLY", {48: 0x04}, r"BTH.opcode = 0x04: MRC's are 0xC6 WRITE_FIRST, .*0xDE"),
    ("WRITE_ONLY", {49: 0x31}, r"BTH.tver = 1: must be 0"),
    ("ACKNOWLEDGE", {56: 0x10}, r"BTH.ts = 1 with ACKNOWLEDGE: only the WRITE opcodes"),
    ("ACKNOWLEDGE", {49: 0x10}, r"BTH.pad = 1, but 0 bytes lie between headers and ICRC"),
    ("ENDPOINT_RESPONSE", {48: 0xD8}, r"ENDPOINT_REQUEST carries no payload, but 20 bytes"),
    ("ENDPOINT_REQUEST", {48: 0xD9}, r"EETH needs 36 bytes from byte 60 on"),
    ("WRITE_ONLY", {60: 1}, r"ICRC = [0-9a-f]{8}: must be [0-9a-f]{8} for these bytes"),
    ("WRITE_ONLY", {46: 0x12, 47: 0x34}, r"UDP.checksum = 0x1234: must be 0x[0-9a-f]{4}"),
]


@pytest.mark.parametrize(("name", "patch", "message"), ERRORS)
def test_errors_name_the_field_and_what_is_allowed(
    name: str, patch: dict[int, int], message: str
) -> None:
    data = bytearray(vector_bytes(VECTORS[name][0]))
    for position, value in patch.items():
        data[position] = value
    with pytest.raises(WireError, match=message):
        parse_packet(data)


def test_building_refuses_headers_of_another_opcode() -> None:
    base = Packet(Ipv6(), Udp(), Bth(opcode=Opcode.WRITE_ONLY), (Meth(), Reth()))
    with pytest.raises(
        WireError, match=r"WRITE_ONLY with BTH.ts = 0 needs .* METH, RETH; got METH"
    ):
        replace(base, headers=(Meth(),)).build()
    with pytest.raises(WireError, match="needs the headers METH, TSETH, RETH"):
        replace(base, bth=Bth(opcode=Opcode.WRITE_ONLY, ts=1)).build()
    with pytest.raises(WireError, match=r"BTH.opcode = 0x00"):
        replace(base, bth=Bth(opcode=0)).build()
    request = Packet(Ipv6(), Udp(), Bth(opcode=Opcode.ENDPOINT_REQUEST), (Erth(),), b"x")
    with pytest.raises(WireError, match="ENDPOINT_REQUEST carries no payload, got 1 bytes"):
        request.build()
