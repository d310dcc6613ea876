# SPDX-License-Identifier: Apache-2.0
"""One whole packet per opcode as hex, written by hand from section 3 of the fact digest.

Each line is one header or a part of one. Only UDP checksum and ICRC cannot be written by hand: they
are what Scapy's UDP and `scapy.contrib.roce` compute for the other bytes, not what this codec does.
"""

from __future__ import annotations

from mrc.wire import (
    Aeth,
    Bth,
    CcState,
    Eeth,
    Erth,
    Header,
    ImmDt,
    Ipv6,
    Meth,
    Neth,
    Packet,
    Peth,
    Reth,
    Seth,
    Tseth,
    Udp,
)

SOURCE = bytes.fromhex("fd4d5243 00000000 00000000 00000001")  # fd4d:5243::0:1
DESTINATION = bytes.fromhex("fd4d5243 00000000 00000000 00010002")  # fd4d:5243::1:2
DATA_DSCP, DATA_ECN, DATA_LABEL = 4, 2, 0x02405  # TRIMMABLE, ECT(0), path EV 0x2405
CONTROL_DSCP = 46


def _packet(
    *headers: Header,
    bth: Bth,
    length: int,
    checksum: int,
    icrc: str,
    payload: bytes = b"",
    control: bool = False,
) -> Packet:
    return Packet(
        ipv6=Ipv6(
            dscp=CONTROL_DSCP if control else DATA_DSCP,
            ecn=0 if control else DATA_ECN,
            flow_label=0xE2405 if control else DATA_LABEL,
            payload_length=length,
            source=SOURCE,
            destination=DESTINATION,
        ),
        udp=Udp(0xC000, 4791, length, checksum),
        bth=bth,
        headers=headers,
        payload=payload,
        icrc=bytes.fromhex(icrc),
    )


# IPv6, DATA: version 6, traffic class 4 << 2 | 2 = 0x12, flow label 0x02405
#   CONTROL: traffic class 46 << 2 = 0xb8, flow label 0xe2405 ("EV chosen")
# UDP: source port 0xc000, destination port 4791 = 0x12b7, length = IPv6 payload length
VECTORS: dict[str, tuple[str, Packet]] = {
    "WRITE_FIRST": (
        """
        61202405 0034 11 40                     # 8 + 12 + 4 + 16 + 8 + 4 = 52 bytes
        fd4d5243 00000000 00000000 00000001
        fd4d5243 00000000 00000000 00010002
        c000 12b7 0034 291c
        c6 00 ffff 00 000011 00 ffffff          # opcode; SE, M, pad, TVer; P_Key; QP; flags; PSN
        0000 0102                               # METH: RQMSN, MSN
        0000123456789abc deadbeef 00002008      # RETH: VA, R_Key, DMALen
        0001020304050607                        # payload
        c8e10679
        """,
        _packet(
            Meth(rqmsn=0, msn=0x0102),
            Reth(va=0x123456789ABC, rkey=0xDEADBEEF, dma_length=0x2008),
            bth=Bth(opcode=0xC6, dqp=0x11, psn=0xFFFFFF),
            payload=bytes(range(8)),
            length=52,
            checksum=0x291C,
            icrc="c8e10679",
        ),
    ),
    "WRITE_MIDDLE": (
        """
        61202405 0038 11 40                     # + TSETH, 4 bytes
        fd4d5243 00000000 00000000 00000001
        fd4d5243 00000000 00000000 00010002
        c000 12b7 0038 8f52
        c7 00 ffff 00 000011 10 000000          # ts is bit 4 of byte 8
        0000 0102
        beef 0001                               # TSETH: timestamp; tsr 0, ftype 1
        0000123456789ac4 deadbeef 00002008
        08090a0b0c0d0e0f
        81f0f811
        """,
        _packet(
            Meth(rqmsn=0, msn=0x0102),
            Tseth(tx_timestamp=0xBEEF, tsr=0, ftype=1),
            Reth(va=0x123456789AC4, rkey=0xDEADBEEF, dma_length=0x2008),
            bth=Bth(opcode=0xC7, dqp=0x11, ts=1, psn=0),
            payload=bytes(range(8, 16)),
            length=56,
            checksum=0x8F52,
            icrc="81f0f811",
        ),
    ),
    "WRITE_LAST": (
        """
        61202405 0034 11 40
        fd4d5243 00000000 00000000 00000001
        fd4d5243 00000000 00000000 00010002
        c000 12b7 0034 4631
        c8 30 ffff 00 000011 00 000001          # pad 3 is 0b11 in bits 5:4 of byte 1
        0000 0102
        0000123456789acc deadbeef 00002008
        68656c6c6f 000000                       # "hello" and three bytes of padding
        8cc9ec77
        """,
        _packet(
            Meth(rqmsn=0, msn=0x0102),
            Reth(va=0x123456789ACC, rkey=0xDEADBEEF, dma_length=0x2008),
            bth=Bth(opcode=0xC8, pad=3, dqp=0x11, psn=1),
            payload=b"hello",
            length=52,
            checksum=0x4631,
            icrc="8cc9ec77",
        ),
    ),
    "WRITE_LAST_IMM": (
        """
        61202405 0034 11 40                     # 8 + 12 + 4 + 16 + 4 + 4 + 4
        fd4d5243 00000000 00000000 00000001
        fd4d5243 00000000 00000000 00010002
        c000 12b7 0034 623a
        c9 00 ffff 00 abcdef 00 000001
        0007 0103
        0000000000001000 00000001 00001004
        cafef00d                                # ImmDt
        61626364
        ba4638a8
        """,
        _packet(
            Meth(rqmsn=7, msn=0x0103),
            Reth(va=0x1000, rkey=1, dma_length=0x1004),
            ImmDt(immediate=0xCAFEF00D),
            bth=Bth(opcode=0xC9, dqp=0xABCDEF, psn=1),
            payload=b"abcd",
            length=52,
            checksum=0x623A,
            icrc="ba4638a8",
        ),
    ),
    "WRITE_ONLY": (
        """
        61202405 0030 11 40                     # 8 + 12 + 4 + 16 + 1 + 3 + 4
        fd4d5243 00000000 00000000 00000001
        fd4d5243 00000000 00000000 00010002
        c000 12b7 0030 d117
        ca 30 ffff 00 000011 a0 000002          # ack request is bit 7, rtx bit 5 of byte 8
        0000 0104
        ffffffffffffffff 00000001 00000001
        7a 000000
        d2d80475
        """,
        _packet(
            Meth(rqmsn=0, msn=0x0104),
            Reth(va=0xFFFFFFFFFFFFFFFF, rkey=1, dma_length=1),
            bth=Bth(opcode=0xCA, pad=3, dqp=0x11, ack_request=1, rtx=1, psn=2),
            payload=b"z",
            length=48,
            checksum=0xD117,
            icrc="d2d80475",
        ),
    ),
    "WRITE_ONLY_IMM": (
        """
        61202405 0038 11 40                     # 8 + 12 + 4 + 4 + 16 + 4 + 2 + 2 + 4
        fd4d5243 00000000 00000000 00000001
        fd4d5243 00000000 00000000 00010002
        c000 12b7 0038 1d16
        cb 20 ffff 00 000011 10 000003
        0008 0105
        1234 8001                               # tsr is bit 15 of TSETH's second half
        0000000000002000 00000001 00000002
        00000009
        7879 0000
        295c4031
        """,
        _packet(
            Meth(rqmsn=8, msn=0x0105),
            Tseth(tx_timestamp=0x1234, tsr=1, ftype=1),
            Reth(va=0x2000, rkey=1, dma_length=2),
            ImmDt(immediate=9),
            bth=Bth(opcode=0xCB, pad=2, dqp=0x11, ts=1, psn=3),
            payload=b"xy",
            length=56,
            checksum=0x1D16,
            icrc="295c4031",
        ),
    ),
    "ACKNOWLEDGE": (
        """
        6b8e2405 001c 11 40                     # 8 + 12 + 4 + 4
        fd4d5243 00000000 00000000 00000001
        fd4d5243 00000000 00000000 00010002
        c000 12b7 001c 9330
        d1 00 ffff 00 000011 00 000003
        1f 000105                               # AETH: syndrome, MSN
        b20f577e
        """,
        _packet(
            Aeth(syndrome=0x1F, msn=0x105),
            bth=Bth(opcode=0xD1, dqp=0x11, psn=3),
            length=28,
            checksum=0x9330,
            icrc="b20f577e",
            control=True,
        ),
    ),
    "ENDPOINT_REQUEST": (
        """
        6b8e2405 0028 11 40                     # 8 + 12 + 16 + 4
        fd4d5243 00000000 00000000 00000001
        fd4d5243 00000000 00000000 00010002
        c000 12b7 0028 8b2d
        d8 00 ffff 00 000002 00 00abcd          # QP 2; request id in PSN[15:0]
        0001 00 00                              # op 1 (EV probe) in byte 1, bits 1:0
        00000000 00000000                       # port status mask, reserved
        1234 0001                               # timestamp; tsr 0, ftype 1
        a48fc7fc
        """,
        _packet(
            Erth(op=1, tx_timestamp=0x1234),
            bth=Bth(opcode=0xD8, dqp=2, psn=0xABCD),
            length=40,
            checksum=0x8B2D,
            icrc="a48fc7fc",
            control=True,
        ),
    ),
    "ENDPOINT_RESPONSE": (
        """
        6b8e2405 003c 11 40                     # 8 + 12 + 36 + 4
        fd4d5243 00000000 00000000 00000001
        fd4d5243 00000000 00000000 00010002
        c000 12b7 003c 2759
        d9 00 ffff 00 000002 00 00abcd
        0004 0000                               # op 1 in byte 1, bits 3:2
        000000000000000000000000000000000000000000000000
        1234 000000000000                       # reflected timestamp at byte 28
        dc3bf2fa
        """,
        _packet(
            Eeth(op=1, tx_timestamp=0x1234),
            bth=Bth(opcode=0xD9, dqp=2, psn=0xABCD),
            length=60,
            checksum=0x2759,
            icrc="dc3bf2fa",
            control=True,
        ),
    ),
    "SACK": (
        """
        6b8e2405 003c 11 40                     # 8 + 12 + 28 + 8 + 4
        fd4d5243 00000000 00000000 00000001
        fd4d5243 00000000 00000000 00010002
        c000 12b7 003c d23a
        dc 00 ffff 00 000022 00 000100
        0020 fffe                               # m = 01 (SKIP_ONCE) in bits 6:5; offset -2
        2405c000 0011 0022                      # entropy (label ++ port), two contexts
        00 000100                               # cack_psn
        00 08 0001                              # cc_type, cc_fl; MPR 8 x 128; base +1
        8000000000000006
        1234 0005                               # CC_STATE: timestamp, ooo_count
        83 000010                               # restore_cwnd 1, penalty 3; 16 x 256 bytes
        70617328
        """,
        _packet(
            Seth(
                m=1,
                ack_psn_offset=-2,
                entropy=0x2405C000,
                spdcid=0x11,
                dpdcid=0x22,
                cack_psn=0x100,
                mpr=8,
                sack_offset=1,
                sack_bitmap=0x8000000000000006,
            ),
            CcState(
                tx_timestamp=0x1234, ooo_count=5, restore_cwnd=1, rcv_cwnd_pen=3, rcvd_bytes=16
            ),
            bth=Bth(opcode=0xDC, dqp=0x22, psn=0x100),
            length=60,
            checksum=0xD23A,
            icrc="70617328",
            control=True,
        ),
    ),
    "NACK": (
        """
        6b8e2405 002c 11 40                     # 8 + 12 + 20 + 4
        fd4d5243 00000000 00000000 00000001
        fd4d5243 00000000 00000000 00010002
        c000 12b7 002c 7b71
        dd 00 ffff 00 000022 00 00000f
        0000 02 00                              # reason TRIMMED_LASTHOP, vendor info
        2405c000 0011 0022
        00 00000f                               # nack_psn
        20 00 5678                              # cc_type 2; reflected timestamp
        2505b34f
        """,
        _packet(
            Neth(
                nack_reason=2,
                entropy=0x2405C000,
                spdcid=0x11,
                dpdcid=0x22,
                nack_psn=15,
                cc_type=2,
                tx_timestamp=0x5678,
            ),
            bth=Bth(opcode=0xDD, dqp=0x22, psn=15),
            length=44,
            checksum=0x7B71,
            icrc="2505b34f",
            control=True,
        ),
    ),
    "PROBE_REQUEST": (
        """
        6b8e2405 0028 11 40                     # 8 + 12 + 16 + 4
        fd4d5243 00000000 00000000 00000001
        fd4d5243 00000000 00000000 00010002
        c000 12b7 0028 2615
        de 00 ffff 00 000022 00 000000
        0000 00 00
        0abc 0000 0022 0011                     # probe id, reserved, contexts
        1234 0001
        a9cdc296
        """,
        _packet(
            Peth(probe_id=0xABC, spdcid=0x22, dpdcid=0x11, tx_timestamp=0x1234),
            bth=Bth(opcode=0xDE, dqp=0x22, psn=0),
            length=40,
            checksum=0x2615,
            icrc="a9cdc296",
            control=True,
        ),
    ),
}


def vector_bytes(text: str) -> bytes:
    """The bytes of a vector: comments and white space left out."""
    return bytes.fromhex("".join(line.partition("#")[0] for line in text.splitlines()))
