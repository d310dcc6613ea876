# SPDX-License-Identifier: Apache-2.0
"""Every header against bytes written by hand, with each field at its extreme or distinct value."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc.wire import (
    Aeth,
    Bth,
    CcOpaque,
    CcState,
    Eeth,
    Erth,
    Ethernet,
    Header,
    ImmDt,
    Ipv6,
    Meth,
    Neth,
    Peth,
    Reth,
    Seth,
    Tseth,
    Udp,
    WireError,
    WireOptions,
)
from tests.mrc.strategies import headers

ALL: list[type[Header]] = [
    Ethernet,
    Ipv6,
    Udp,
    Bth,
    Meth,
    Tseth,
    Reth,
    ImmDt,
    Aeth,
    Seth,
    CcState,
    CcOpaque,
    Neth,
    Peth,
    Erth,
    Eeth,
]  # fmt: skip

# (bytes, header): written from section 3; one bit set at a time where fields share a byte.
VECTORS: list[tuple[str, Header]] = [
    (
        "0200 0000 0001 0200 0000 0002 86dd",
        Ethernet(bytes.fromhex("020000000001"), bytes.fromhex("020000000002")),
    ),
    # version 6, DSCP 46 = 0b101110, ECN 0b11: traffic class 0xbb
    (
        "6bbabcde 0102 11 40" + "11" * 16 + "22" * 16,
        Ipv6(
            dscp=46,
            ecn=3,
            flow_label=0xABCDE,
            payload_length=0x102,
            next_header=17,
            hop_limit=64,
            source=b"\x11" * 16,
            destination=b"\x22" * 16,
        ),
    ),
    ("c000 12b7 0102 abcd", Udp(0xC000, 4791, 0x102, 0xABCD)),
    ("c7 80 ffff 00 000000 00 000000", Bth(opcode=0xC7, se=1)),
    ("c7 40 ffff 00 000000 00 000000", Bth(opcode=0xC7, m=1)),
    ("c7 20 ffff 00 000000 00 000000", Bth(opcode=0xC7, pad=2)),
    ("c7 0f ffff 00 000000 00 000000", Bth(opcode=0xC7, tver=15)),
    ("c7 00 1234 00 000000 00 000000", Bth(opcode=0xC7, pkey=0x1234)),
    ("c7 00 ffff ab 123456 00 789abc", Bth(0xC7, reserved=0xAB, dqp=0x123456, psn=0x789ABC)),
    ("c7 00 ffff 00 000000 80 000000", Bth(opcode=0xC7, ack_request=1)),
    ("c7 00 ffff 00 000000 40 000000", Bth(opcode=0xC7, r=1)),
    ("c7 00 ffff 00 000000 20 000000", Bth(opcode=0xC7, rtx=1)),
    ("c7 00 ffff 00 000000 10 000000", Bth(opcode=0xC7, ts=1)),
    ("c7 00 ffff 00 000000 0f 000000", Bth(opcode=0xC7, reserved2=15)),
    ("1234 5678", Meth(rqmsn=0x1234, msn=0x5678)),
    ("1234 8001", Tseth(tx_timestamp=0x1234, tsr=1)),
    ("1234 7ff2", Tseth(tx_timestamp=0x1234, reserved=0x7FF, ftype=2)),
    (
        "0123456789abcdef 89abcdef fedcba98",
        Reth(va=0x0123456789ABCDEF, rkey=0x89ABCDEF, dma_length=0xFEDCBA98),
    ),
    ("cafef00d", ImmDt(0xCAFEF00D)),
    ("61 abcdef", Aeth(syndrome=0x61, msn=0xABCDEF)),
    # SETH bytes 0-1: type[15:12] nxt[11:7] m[6:5] res[4:2] pr[1] res[0]
    ("f000" + "00" * 26, Seth(type=15)),
    ("0f80" + "00" * 26, Seth(nxt=31)),
    ("0020" + "00" * 26, Seth(m=1)),
    ("0040" + "00" * 26, Seth(m=2)),
    ("001c" + "00" * 26, Seth(reserved=7)),
    ("0002" + "00" * 26, Seth(pr=1)),
    ("0001" + "00" * 26, Seth(reserved2=1)),
    (
        "0000 8000 01234567 89ab cdef 12 345678 3 4 56 7fff 0123456789abcdef",
        Seth(
            ack_psn_offset=-0x8000,
            entropy=0x01234567,
            spdcid=0x89AB,
            dpdcid=0xCDEF,
            reserved3=0x12,
            cack_psn=0x345678,
            cc_type=3,
            cc_fl=4,
            mpr=0x56,
            sack_offset=0x7FFF,
            sack_bitmap=0x0123456789ABCDEF,
        ),
    ),
    ("1234 8000 00 000000", CcState(tx_timestamp=0x1234, reserved=1)),
    ("0000 7fff 80 000000", CcState(ooo_count=0x7FFF, restore_cwnd=1)),
    ("0000 0000 7f abcdef", CcState(rcv_cwnd_pen=0x7F, rcvd_bytes=0xABCDEF)),
    ("0123456789abcdef", CcOpaque(bytes.fromhex("0123456789abcdef"))),
    # NETH bytes 0-1: type[15:12] nxt[11:7] res[6:0]; cc_type is 2 unless said otherwise
    ("f000" + "00" * 14 + "20000000", Neth(type=15)),
    ("0f80" + "00" * 14 + "20000000", Neth(nxt=31)),
    ("007f" + "00" * 14 + "20000000", Neth(reserved=127)),
    (
        "0000 19 ab 01234567 89ab cdef 12 345678 56 78 9abc",
        Neth(
            nack_reason=0x19,
            vendor_info=0xAB,
            entropy=0x01234567,
            spdcid=0x89AB,
            dpdcid=0xCDEF,
            reserved2=0x12,
            nack_psn=0x345678,
            cc_type=5,
            cc_fl=6,
            reserved3=0x78,
            tx_timestamp=0x9ABC,
        ),
    ),
    ("f000 00 00" + "00" * 10 + "0001", Peth(type=15)),
    ("0f80 00 00" + "00" * 10 + "0001", Peth(nxt=31)),
    (
        "007f 12 34 5678 9abc def0 1234 5678 8002",
        Peth(
            reserved=127,
            reserved2=0x12,
            vendor_info=0x34,
            probe_id=0x5678,
            reserved3=0x9ABC,
            spdcid=0xDEF0,
            dpdcid=0x1234,
            tx_timestamp=0x5678,
            tsr=1,
            ftype=2,
        ),
    ),
    # ERTH byte 1: nxt's last bit, five reserved bits, op in bits 1:0
    ("f003" + "00" * 12 + "0001", Erth(type=15, op=3)),
    ("0f80" + "00" * 12 + "0001", Erth(nxt=31, op=0)),
    ("007d" + "00" * 12 + "0001", Erth(reserved=31, op=1)),
    (
        "0000 12 34 80000001 56789abc def0 7ff1",
        Erth(
            op=0,
            reserved2=0x12,
            vendor_info=0x34,
            port_status_mask=0x80000001,
            reserved3=0x56789ABC,
            tx_timestamp=0xDEF0,
            reserved4=0x7FF,
        ),
    ),
    # EETH byte 1: nxt's last bit, a reserved bit, two reserved, op in bits 3:2, two reserved
    ("f00c" + "00" * 34, Eeth(type=15, op=3)),
    ("0f80" + "00" * 34, Eeth(nxt=31, op=0)),
    ("0040" + "00" * 34, Eeth(reserved=1, op=0)),
    ("0030" + "00" * 34, Eeth(reserved2=3, op=0)),
    ("0003" + "00" * 34, Eeth(reserved3=3, op=0)),
    (
        "0004 1234" + "55" * 24 + "abcd" + "66" * 6,
        Eeth(
            reserved4=0x1234,
            reserved5=b"\x55" * 24,
            tx_timestamp=0xABCD,
            reserved6=b"\x66" * 6,
        ),
    ),
]


@pytest.mark.parametrize(("text", "header"), VECTORS)
def test_hand_written_vector(text: str, header: Header) -> None:
    data = bytes.fromhex(text.replace(" ", ""))
    assert len(data) == header.SIZE
    assert header.pack() == data
    assert type(header).unpack(data) == header


def test_disputed_bits_move_with_their_option() -> None:
    m_first = WireOptions(bth_m_first=True)
    assert Bth(opcode=0xC7, m=1).pack(m_first)[1] == 0x80
    assert Bth(opcode=0xC7, se=1).pack(m_first)[1] == 0x40
    assert Bth.unpack(Bth(opcode=0xC7, m=1).pack(m_first), 0, m_first).m == 1
    op_high = WireOptions(eeth_op_high=True)
    assert Eeth(op=1).pack(op_high)[1] == 0x10
    assert Eeth(op=0, reserved2=1).pack(op_high)[1] == 0x04
    assert Eeth.unpack(Eeth(op=2).pack(op_high), 0, op_high).op == 2


@pytest.mark.parametrize("kind", ALL)
def test_every_shorter_buffer_is_refused(kind: type[Header]) -> None:
    data = kind().pack()
    for length in range(len(data)):
        with pytest.raises(WireError, match=f"{kind.NAME} needs {kind.SIZE} bytes from byte 0 on"):
            kind.unpack(data[:length])
    with pytest.raises(WireError, match="from byte 1 on"):
        kind.unpack(data, 1)
    assert kind.unpack(b"\xff" + data, 1) == kind()


def test_values_that_do_not_fit_are_named_with_the_range() -> None:
    with pytest.raises(WireError, match=r"BTH.psn = 16777216: allowed are 0..16777215"):
        Bth(psn=1 << 24).pack()
    with pytest.raises(WireError, match=r"BTH.pad = -1: allowed are 0..3"):
        Bth(pad=-1).pack()
    with pytest.raises(WireError, match=r"SETH.sack_offset = 32768: allowed are -32768..32767"):
        Seth(sack_offset=0x8000).pack()
    with pytest.raises(WireError, match=r"IPv6.source has 4 bytes, must have 16"):
        Ipv6(source=b"\0\0\0\0").pack()


@given(st.data())
def test_round_trip_of_any_values_and_any_bytes(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(ALL))
    options = WireOptions(
        bth_m_first=data.draw(st.booleans()), eeth_op_high=data.draw(st.booleans())
    )
    header = data.draw(headers(kind))
    assert kind.unpack(header.pack(options), 0, options) == header
    raw = data.draw(st.binary(min_size=kind.SIZE, max_size=kind.SIZE))
    assert kind.unpack(raw, 0, options).pack(options) == raw
    assert kind.unpack(memoryview(bytearray(raw)), 0, options) == kind.unpack(raw, 0, options)


def test_headers_are_values() -> None:
    first = Bth(psn=1)
    assert replace(first, psn=2) != first
    assert hash(Bth(psn=1)) == hash(first)
    with pytest.raises(AttributeError):
        first.psn = 3  # type: ignore[misc]
