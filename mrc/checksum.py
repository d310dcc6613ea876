# SPDX-License-Identifier: Apache-2.0
"""The Internet checksum of UDP over IPv6 (RFC 768, RFC 8200 section 8.1)."""

from __future__ import annotations

from mrc.opcodes import NEXT_HEADER_UDP


def udp_checksum(addresses: bytes, datagram: bytes) -> int:
    """Checksum of a UDP datagram whose checksum field is zero.

    `addresses` are the 32 bytes of IPv6 source and destination. Never 0, which would mean "none".
    """
    return finish(ones_sum(addresses) + ones_sum(datagram) + len(datagram) + NEXT_HEADER_UDP)


def ones_sum(data: bytes | bytearray | memoryview) -> int:
    """One's complement sum of the 16-bit words of `data` (odd end padded with 0), modulo 65535.

    2^16 = 1 (mod 65535), so the whole as one big number has the same remainder as the sum of its
    words: two C loops instead of one Python step per word.
    """
    number = int.from_bytes(data, "big")
    if len(data) % 2:
        number <<= 8
    return number % 0xFFFF


def finish(total: int) -> int:
    """The checksum field for a sum of `ones_sum`s."""
    # A remainder of 0 stands for the sum 0xFFFF (a sum of 0 is impossible: the next header is not
    # 0), whose complement, 0, is sent as 0xFFFF.
    return 0xFFFF - total % 0xFFFF
