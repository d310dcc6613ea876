# SPDX-License-Identifier: Apache-2.0
"""The fast path gives and takes the same bytes as the general codec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc.wire import (
    IMMEDIATE_OPCODES,
    WRITE_OPCODES,
    Bth,
    ImmDt,
    Ipv6,
    Meth,
    Packet,
    Reth,
    TrimmedPacket,
    Udp,
    WireError,
    WireOptions,
    WriteStream,
    parse_packet,
    parse_write,
)
from tests.mrc.strategies import OPTIONS, headers, packets
from tests.mrc.vectors import VECTORS, vector_bytes


@given(st.data())
def test_a_stream_builds_what_the_codec_builds(data: st.DataObject) -> None:
    options = data.draw(OPTIONS)
    dscp = data.draw(st.sampled_from([0, 4, 5, 46]))
    ipv6 = data.draw(headers(Ipv6, version=6, next_header=17, dscp=dscp))
    meth = data.draw(headers(Meth))
    before = data.draw(st.binary(max_size=54))
    rkey, length, immediate = (data.draw(st.integers(0, 0xFFFFFFFF)) for _ in range(3))
    port, dqp = data.draw(st.integers(0, 0xFFFF)), data.draw(st.integers(0, 0xFFFFFF))
    stream = WriteStream(
        ipv6=ipv6,
        source_port=port,
        dqp=dqp,
        rkey=rkey,
        dma_length=length,
        meth=meth,
        immediate=immediate,
        before=before,
        options=options,
    )
    for _ in range(4):  # several from the same templates
        opcode = data.draw(st.sampled_from(sorted(WRITE_OPCODES)))
        psn, rtx = data.draw(st.integers(0, 0xFFFFFF)), data.draw(st.integers(0, 1))
        va = data.draw(st.integers(0, (1 << 64) - 1))
        payload = data.draw(st.binary(max_size=9))
        chain = (meth, Reth(va, rkey, length))
        packet = Packet(
            ipv6,
            Udp(port, options.udp_ports[0]),
            Bth(opcode=opcode, dqp=dqp, psn=psn, rtx=rtx),
            (*chain, ImmDt(immediate)) if opcode in IMMEDIATE_OPCODES else chain,
            payload,
        )
        assert stream.packet(opcode, psn, va, payload, rtx) == before + packet.build(options)


@given(st.data())
def test_parsing_agrees_with_the_codec(data: st.DataObject) -> None:
    options = data.draw(OPTIONS)
    packet = data.draw(packets(options))
    raw = bytearray(
        packet.build(options, with_checksum=data.draw(st.booleans()))
        + data.draw(st.binary(max_size=3))
    )
    if data.draw(st.booleans()):  # damaged somewhere
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    raw = raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw
    try:
        expected = parse_packet(raw, options)
    except WireError as error:
        with pytest.raises(WireError) as caught:
            parse_write(memoryview(raw), options)
        assert str(caught.value) == str(error)
        return
    if isinstance(expected, TrimmedPacket) or expected.bth.opcode not in WRITE_OPCODES:
        with pytest.raises(WireError, match=r"not a WRITE|trimmed"):
            parse_write(memoryview(raw), options)
        return
    view = parse_write(memoryview(raw), options)
    by_type = {type(item): item for item in expected.headers}
    assert view.meth == by_type[Meth]
    assert Reth(view.va, view.rkey, view.dma_length) == by_type[Reth]
    assert view.immediate == getattr(by_type.get(ImmDt), "immediate", None)
    assert bytes(view.payload) == expected.payload
    assert (view.source, view.flow_label, view.ecn) == (
        expected.ipv6.source,
        expected.ipv6.flow_label,
        expected.ipv6.ecn,
    )
    assert view.source_port == expected.udp.source_port
    assert (view.opcode, view.dqp, view.psn, view.rtx) == (
        expected.bth.opcode,
        expected.bth.dqp,
        expected.bth.psn,
        expected.bth.rtx,
    )


@pytest.mark.parametrize("name", [name for name in VECTORS if name.startswith("WRITE")])
def test_vectors(name: str) -> None:
    text, packet = VECTORS[name]
    view = parse_write(memoryview(vector_bytes(text)))
    assert bytes(view.payload) == packet.payload
    assert view.psn == packet.bth.psn


def test_out_of_range_values_are_refused() -> None:
    stream = WriteStream(
        ipv6=Ipv6(), source_port=1, dqp=1, rkey=1, dma_length=8, meth=Meth(), options=WireOptions()
    )
    with pytest.raises(WireError, match="PSN 16777216 or VA 0: allowed are 24 and 64 bits"):
        stream.packet(0xCA, 1 << 24, 0, b"")
    with pytest.raises(WireError, match=r"BTH.opcode = 0x06"):
        stream.packet(0x06, 0, 0, b"")
