# SPDX-License-Identifier: Apache-2.0
"""Every header of the MRC wire format (section 3 of the fact digest), and those under it.

Field names are the digest's. Bits that it calls reserved, or does not describe, are fields named
`reserved*`, so that unpacking and packing gives the same bytes whatever a sender put there.
"""

from __future__ import annotations

from dataclasses import dataclass

from mrc.layout import Header, bits, header, octets
from mrc.opcodes import (
    DEFAULT_PKEY,
    ETHER_TYPE_IPV6,
    NEXT_HEADER_UDP,
    AethSyndrome,
    EndpointOp,
    Opcode,
)

FTYPE_TIMESTAMP = 0x1  # the only value of `ftype` that the sources give (section 3.5)


@header("Ethernet")
@dataclass(frozen=True, slots=True)
class Ethernet(Header):
    """Ethernet II, without VLAN tag and frame check sequence."""

    destination: bytes = octets(6)
    source: bytes = octets(6)
    ether_type: int = bits(16, ETHER_TYPE_IPV6)


@header("IPv6")
@dataclass(frozen=True, slots=True)
class Ipv6(Header):
    """IPv6 fixed header (RFC 8200); traffic class split into DSCP and ECN."""

    version: int = bits(4, 6)
    dscp: int = bits(6)
    ecn: int = bits(2)
    flow_label: int = bits(20)
    payload_length: int = bits(16)
    next_header: int = bits(8, NEXT_HEADER_UDP)
    hop_limit: int = bits(8, 64)
    source: bytes = octets(16)
    destination: bytes = octets(16)


@header("UDP")
@dataclass(frozen=True, slots=True)
class Udp(Header):
    """UDP (RFC 768). `length` counts header and data in bytes."""

    source_port: int = bits(16)
    destination_port: int = bits(16, 4791)
    length: int = bits(16)
    checksum: int = bits(16)


@header("BTH", swap=("bth_m_first", "se", "m"))
@dataclass(frozen=True, slots=True)
class Bth(Header):
    """Base transport header (section 3.3); `rtx` and `ts` are MRC's additions to IBTA's."""

    opcode: int = bits(8, Opcode.WRITE_ONLY)
    se: int = bits(1)
    m: int = bits(1)
    pad: int = bits(2)
    tver: int = bits(4)
    pkey: int = bits(16, DEFAULT_PKEY)
    reserved: int = bits(8)
    dqp: int = bits(24)
    ack_request: int = bits(1)
    r: int = bits(1)
    rtx: int = bits(1)
    ts: int = bits(1)
    reserved2: int = bits(4)
    psn: int = bits(24)


@header("METH")
@dataclass(frozen=True, slots=True)
class Meth(Header):
    """Message numbers (section 3.4): `msn` of every message, `rqmsn` of WRITE with immediate."""

    rqmsn: int = bits(16)
    msn: int = bits(16)


@header("TSETH")
@dataclass(frozen=True, slots=True)
class Tseth(Header):
    """Timestamp (section 3.5), present in a WRITE when BTH.ts is set; 128 ns units at tsr = 0."""

    tx_timestamp: int = bits(16)
    tsr: int = bits(1)
    reserved: int = bits(11)
    ftype: int = bits(4, FTYPE_TIMESTAMP)


@header("RETH")
@dataclass(frozen=True, slots=True)
class Reth(Header):
    """RDMA address (section 3.6), in every WRITE packet.

    `va` is the packet's own address, `dma_length` the whole message's length in bytes.
    """

    va: int = bits(64)
    rkey: int = bits(32)
    dma_length: int = bits(32)


@header("ImmDt")
@dataclass(frozen=True, slots=True)
class ImmDt(Header):
    """Immediate data of the opcodes 0xC9 and 0xCB."""

    immediate: int = bits(32)


@header("AETH")
@dataclass(frozen=True, slots=True)
class Aeth(Header):
    """Transport acknowledgement (section 3.7)."""

    syndrome: int = bits(8, AethSyndrome.ACK)
    msn: int = bits(24)


@header("SETH")
@dataclass(frozen=True, slots=True)
class Seth(Header):
    """Selective acknowledgement (section 3.8), always followed by 8 bytes of CC state.

    `ack_psn_offset` is signed and relative to `cack_psn`; when `pr` is set its 16 bits hold the
    probe's id instead. The bitmap's base is `cack_psn + sack_offset`.
    """

    type: int = bits(4)
    nxt: int = bits(5)
    m: int = bits(2)
    reserved: int = bits(3)
    pr: int = bits(1)
    reserved2: int = bits(1)
    ack_psn_offset: int = bits(16, signed=True)
    entropy: int = bits(32)
    spdcid: int = bits(16)
    dpdcid: int = bits(16)
    reserved3: int = bits(8)
    cack_psn: int = bits(24)
    cc_type: int = bits(4)
    cc_fl: int = bits(4)
    mpr: int = bits(8)
    sack_offset: int = bits(16, signed=True)
    sack_bitmap: int = bits(64)


@header("CC_STATE")
@dataclass(frozen=True, slots=True)
class CcState(Header):
    """Congestion state after a SETH with cc_type 0 (section 3.8); `rcvd_bytes` counts 256 B."""

    tx_timestamp: int = bits(16)
    reserved: int = bits(1)
    ooo_count: int = bits(15)
    restore_cwnd: int = bits(1)
    rcv_cwnd_pen: int = bits(7)
    rcvd_bytes: int = bits(24)


@header("CC_OPAQUE")
@dataclass(frozen=True, slots=True)
class CcOpaque(Header):
    """The 8 bytes after a SETH with another cc_type than 0, which no source describes."""

    data: bytes = octets(8)


@header("NETH")
@dataclass(frozen=True, slots=True)
class Neth(Header):
    """Negative acknowledgement (section 3.9)."""

    type: int = bits(4)
    nxt: int = bits(5)
    reserved: int = bits(7)
    nack_reason: int = bits(8)
    vendor_info: int = bits(8)
    entropy: int = bits(32)
    spdcid: int = bits(16)
    dpdcid: int = bits(16)
    reserved2: int = bits(8)
    nack_psn: int = bits(24)
    cc_type: int = bits(4, 2)
    cc_fl: int = bits(4)
    reserved3: int = bits(8)
    tx_timestamp: int = bits(16)


@header("PETH")
@dataclass(frozen=True, slots=True)
class Peth(Header):
    """Reliability probe (section 3.10); answered by a SACK with `pr` set and the same id."""

    type: int = bits(4)
    nxt: int = bits(5)
    reserved: int = bits(7)
    reserved2: int = bits(8)
    vendor_info: int = bits(8)
    probe_id: int = bits(16)
    reserved3: int = bits(16)
    spdcid: int = bits(16)
    dpdcid: int = bits(16)
    tx_timestamp: int = bits(16)
    tsr: int = bits(1)
    reserved4: int = bits(11)
    ftype: int = bits(4, FTYPE_TIMESTAMP)


@header("ERTH")
@dataclass(frozen=True, slots=True)
class Erth(Header):
    """Endpoint request (section 3.11); the request id is BTH.PSN[15:0], the QP is 2."""

    type: int = bits(4)
    nxt: int = bits(5)
    reserved: int = bits(5)
    op: int = bits(2, EndpointOp.EV_PROBE)
    reserved2: int = bits(8)
    vendor_info: int = bits(8)
    port_status_mask: int = bits(32)
    reserved3: int = bits(32)
    tx_timestamp: int = bits(16)
    tsr: int = bits(1)
    reserved4: int = bits(11)
    ftype: int = bits(4, FTYPE_TIMESTAMP)


@header("EETH", swap=("eeth_op_high", "reserved2", "op"))
@dataclass(frozen=True, slots=True)
class Eeth(Header):
    """Endpoint response (section 3.11).

    Byte 1 bit 7 belongs to `nxt`; `op` is in bits 3:2, or 5:4 with `WireOptions.eeth_op_high`,
    which makes `op` and `reserved2` change places. Bytes 2 and 3 are not described anywhere.
    """

    type: int = bits(4)
    nxt: int = bits(5)
    reserved: int = bits(1)
    reserved2: int = bits(2)
    op: int = bits(2, EndpointOp.EV_PROBE)
    reserved3: int = bits(2)
    reserved4: int = bits(16)
    reserved5: bytes = octets(24)
    tx_timestamp: int = bits(16)
    reserved6: bytes = octets(6)


def _chains() -> dict[tuple[int, int], tuple[type[Header], ...]]:
    chains: dict[tuple[int, int], tuple[type[Header], ...]] = {}
    writes = (
        Opcode.WRITE_FIRST,
        Opcode.WRITE_MIDDLE,
        Opcode.WRITE_LAST,
        Opcode.WRITE_ONLY,
    )
    for opcode in writes:
        chains[opcode, 0] = (Meth, Reth)
        chains[opcode, 1] = (Meth, Tseth, Reth)
    for opcode in (Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY_IMM):
        chains[opcode, 0] = (Meth, Reth, ImmDt)
        chains[opcode, 1] = (Meth, Tseth, Reth, ImmDt)
    chains[Opcode.ACKNOWLEDGE, 0] = (Aeth,)
    chains[Opcode.ENDPOINT_REQUEST, 0] = (Erth,)
    chains[Opcode.ENDPOINT_RESPONSE, 0] = (Eeth,)
    chains[Opcode.SACK, 0] = (Seth, CcState)
    chains[Opcode.NACK, 0] = (Neth,)
    chains[Opcode.PROBE_REQUEST, 0] = (Peth,)
    return chains


# (opcode, BTH.ts) -> the headers after the BTH, in order (section 3.2). BTH.ts is legal only where
# the specification puts a TSETH, in the WRITE opcodes.
HEADER_CHAINS = _chains()
