# SPDX-License-Identifier: Apache-2.0
"""Numbers of the MRC wire format: opcodes, reasons, marks and protocol constants."""

from __future__ import annotations

from enum import IntEnum

ETHER_TYPE_IPV6 = 0x86DD
NEXT_HEADER_UDP = 17
NEXT_HEADER_IPV6 = 41
NEXT_HEADER_ROUTING = 43

ENDPOINT_QP = 0x2  # reserved QP number of the endpoint operations (section 3.11)
DEFAULT_PKEY = 0xFFFF
PSN_MODULUS = 1 << 24
ICRC_BYTES = 4

ECN_NOT_ECT = 0
ECN_ECT1 = 1
ECN_ECT0 = 2
ECN_CE = 3

# Top four bits of the 20-bit flow label, host to NIC only: "send on exactly the EV in the low 16
# bits". The NIC clears them. Ours; the specification has no such mark (dataplane.md).
EV_CHOSEN = 0xE


class Opcode(IntEnum):
    """BTH byte 0 (section 3.2): the twelve opcodes of MRC, all 0b110 in the top three bits."""

    WRITE_FIRST = 0xC6
    WRITE_MIDDLE = 0xC7
    WRITE_LAST = 0xC8
    WRITE_LAST_IMM = 0xC9
    WRITE_ONLY = 0xCA
    WRITE_ONLY_IMM = 0xCB
    ACKNOWLEDGE = 0xD1
    ENDPOINT_REQUEST = 0xD8
    ENDPOINT_RESPONSE = 0xD9
    SACK = 0xDC
    NACK = 0xDD
    PROBE_REQUEST = 0xDE


WRITE_OPCODES = frozenset(range(Opcode.WRITE_FIRST, Opcode.WRITE_ONLY_IMM + 1))
IMMEDIATE_OPCODES = frozenset({Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY_IMM})


class NackReason(IntEnum):
    """NETH.nack_reason (section 3.9, Table 7-3 of the specification)."""

    TRIMMED = 0x01
    TRIMMED_LASTHOP = 0x02
    NO_BITMAP = 0x06
    NO_PKT_BUFFER = 0x07
    NO_RESOURCE = 0x0A
    PSN_OOR_WINDOW = 0x0B
    UNEXP_EVENT = 0x19


class SackMark(IntEnum):
    """SETH.m (section 3.8): what the responder says about the path named by the entropy."""

    NONE = 0
    SKIP_ONCE = 1
    ALWAYS_SKIP = 2


class EndpointOp(IntEnum):
    """ERTH.op and EETH.op (section 3.11)."""

    PORT_STATUS_UPDATE = 0
    EV_PROBE = 1


class AethSyndrome(IntEnum):
    """AETH.syndrome (section 3.7): the credit field is always 0x1F, and there is no RNR NAK."""

    ACK = 0x1F
    NAK_INVALID_REQUEST = 0x61
    NAK_REMOTE_ACCESS = 0x62
    NAK_REMOTE_OPERATIONAL = 0x63


def describe_opcodes() -> str:
    """The legal opcodes in words, for error messages."""
    return ", ".join(f"0x{opcode:02X} {opcode.name}" for opcode in Opcode)
