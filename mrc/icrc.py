# SPDX-License-Identifier: Apache-2.0
"""IBTA's invariant CRC as RoCEv2 and MRC use it (section 3.12, dataplane.md "EV, checksums, ICRC").

CRC-32 (Ethernet's, `zlib.crc32`) over eight bytes of ones in the place of a local route header,
then IP, UDP, BTH and everything up to the ICRC. Fields that may change on the way count as ones:

- IPv6: traffic class, flow label, hop limit; IPv4: type of service, TTL, header checksum;
- UDP: checksum;
- BTH: byte 4 (FECN, BECN and reserved in IBTA's header).

The result goes on the wire least significant byte first.
"""

from __future__ import annotations

from zlib import crc32

from mrc.layout import Buffer, WireError

_IPV6_BYTES = 40
_UDP_BYTES = 8
_BTH_BYTES = 12
_ONES = b"\xff"

# The first twelve bytes never vary for IPv6: the ones, then version 6 and masked class and label.
_IPV6_START = crc32(b"\xff" * 8 + b"\x6f\xff\xff\xff")


def ipv6_flow_crc(ip_udp: Buffer) -> int:
    """CRC state after the IPv6 and UDP headers, `ip_udp` (48 bytes from the IPv6 header on).

    A sender whose lengths, addresses and ports stay the same computes this once per flow.
    """
    state = crc32(ip_udp[4:7], _IPV6_START)
    state = crc32(_ONES, state)
    state = crc32(ip_udp[8:46], state)
    return crc32(b"\xff\xff", state)


def invariant_crc(packet: Buffer) -> bytes:
    """The four ICRC bytes of `packet`, which starts at the IP header and ends before the ICRC.

    IPv6 without extension headers, or IPv4 (with options, if any). WireError when the packet is
    too short to hold IP, UDP and BTH or is of another IP version.
    """
    version = packet[0] >> 4 if len(packet) else 0
    if version == 6:
        udp_end = _IPV6_BYTES + _UDP_BYTES
        _check_length(packet, udp_end + _BTH_BYTES)
        state = ipv6_flow_crc(packet)
    elif version == 4:
        ip_bytes = (packet[0] & 0xF) * 4
        udp_end = ip_bytes + _UDP_BYTES
        _check_length(packet, udp_end + _BTH_BYTES)
        masked = bytearray(packet[:udp_end])
        masked[1] = masked[8] = masked[10] = masked[11] = 0xFF
        masked[-2:] = b"\xff\xff"
        state = crc32(masked, crc32(b"\xff" * 8))
    else:
        raise WireError(
            f"an ICRC needs IPv6 or IPv4 first, the packet starts as IP version {version}"
        )
    state = crc32(packet[udp_end : udp_end + 4], state)
    state = crc32(_ONES, state)
    return crc32(packet[udp_end + 5 :], state).to_bytes(4, "little")


def _check_length(packet: Buffer, needed: int) -> None:
    if len(packet) < needed:
        raise WireError(
            f"an ICRC covers IP, UDP and BTH, {needed} bytes here; the packet has {len(packet)}"
        )
