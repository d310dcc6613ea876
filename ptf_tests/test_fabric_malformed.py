# SPDX-License-Identifier: Apache-2.0
"""fabric.p4: frames that are not IPv6, and frames cut after every single byte.

A cut is noticed where the missing header is needed: a switch forwards by the outer header whatever
became of the rest, byte for byte, and the NIC at the end drops (dataplane.md, "Forwarding").
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.addressing import DT6_USID, carrier, group_prefix, host_address, shift
from controller.drops import DropReason
from mrc.opcodes import Opcode
from ptf_tests.bench import Bench, Drop, Fate, Forward
from ptf_tests.packets import (
    ETHERNET_BYTES,
    IPV6_BYTES,
    NEXT_HEADER_IPV6,
    NEXT_HEADER_ROUTING,
    SEGMENT_BYTES,
    SRH_BYTES,
    ethernet,
    ipv6,
    mrc,
    srh,
)
from ptf_tests.world import (
    BLOCK,
    OTHER_T0,
    OTHER_T0_USID,
    T0,
    T0_USID,
    arriving,
    down_port,
    downlink_usid,
    ipv6_route,
    leaving,
    local_dt6,
    next_hop,
    t1_usid,
    up_port,
)

IN, OUT = down_port(0), up_port(1)
HOST = host_address(T0, 0)
PEER = host_address(OTHER_T0, 2)
INNER = mrc(Opcode.WRITE_ONLY, HOST, PEER, b"cut")
INNER_DECREMENTED = mrc(Opcode.WRITE_ONLY, HOST, PEER, b"cut", hop_limit=63)
REST = OTHER_T0_USID, downlink_usid(2)

# The Linux kernel does not send shorter frames.
SHORTEST_FRAME_BYTES = 15
OUTER_END = ETHERNET_BYTES + IPV6_BYTES
SRH_END = OUTER_END + SRH_BYTES

ByLength = Callable[[int], DropReason | None]


def cuts(packet: bytes, expected: bytes, reason: ByLength) -> list[Fate]:
    """The frame cut after every byte: dropped for a reason, or the same part of ``expected``.

    A forwarded packet that loses headers on the way loses none of the bytes behind the cut.
    """
    frame = ethernet(arriving(IN), packet)
    out = ethernet(leaving(OUT), expected)
    shorter = len(frame) - len(out)
    fates: list[Fate] = []
    for length in range(SHORTEST_FRAME_BYTES, len(frame) + 1):
        why = reason(length)
        if why is None:
            fates.append(Forward(IN, frame[:length], OUT, out[: length - shorter]))
        else:
            fates.append(Drop(IN, frame[:length], why))
    return fates


class TestCut:
    """Frames cut after every byte from the Ethernet header to the end."""

    def test_carrier(self, t0: Bench) -> None:
        destination = carrier(BLOCK, T0_USID, t1_usid(1), *REST)
        t0.check(
            *cuts(
                ipv6(HOST, destination, INNER, NEXT_HEADER_IPV6),
                ipv6(HOST, shift(destination), INNER, NEXT_HEADER_IPV6, hop_limit=63),
                lambda length: DropReason.TRUNCATED if length < OUTER_END else None,
            )
        )

    @pytest.mark.parametrize("count", [1, 4])
    def test_carrier_that_lasts_with_srh(self, t0: Bench, count: int) -> None:
        destination = carrier(BLOCK, T0_USID, t1_usid(1), *REST)
        behind = srh([carrier(BLOCK, *REST)] * count, 1) + INNER
        t0.check(
            *cuts(
                ipv6(HOST, destination, behind, NEXT_HEADER_ROUTING),
                ipv6(HOST, shift(destination), behind, NEXT_HEADER_ROUTING, hop_limit=63),
                lambda length: DropReason.TRUNCATED if length < OUTER_END else None,
            )
        )

    @pytest.mark.parametrize("left", [1, 2, 3, 4])
    def test_segment_that_is_needed(self, t0: Bench, left: int) -> None:
        listed = [carrier(BLOCK, t1_usid(1), *REST)] * 4

        def reason(length: int) -> DropReason | None:
            if length < OUTER_END:
                return DropReason.TRUNCATED
            if length < SRH_END:
                return DropReason.CARRIER_ENDED
            # The segment itself must be there, not those behind it.
            return DropReason.BAD_SRH if length < SRH_END + left * SEGMENT_BYTES else None

        before, after = srh(listed, left) + INNER, srh(listed, left - 1) + INNER
        t0.check(
            *cuts(
                ipv6(HOST, carrier(BLOCK, T0_USID), before, NEXT_HEADER_ROUTING),
                ipv6(HOST, listed[0], after, NEXT_HEADER_ROUTING, hop_limit=63),
                reason,
            )
        )

    @pytest.fixture
    def dt6(self, t0: Bench) -> Bench:
        prefix, length = group_prefix(OTHER_T0)
        t0.device.insert(local_dt6(), ipv6_route(prefix, length, next_hop("forward", OUT)))
        return t0

    def test_decapsulation(self, dt6: Bench) -> None:
        def reason(length: int) -> DropReason | None:
            if length < OUTER_END:
                return DropReason.TRUNCATED
            return DropReason.NOT_ENCAPSULATED if length < OUTER_END + IPV6_BYTES else None

        destination = carrier(BLOCK, T0_USID, DT6_USID)
        packet = ipv6(HOST, destination, INNER, NEXT_HEADER_IPV6)
        dt6.check(*cuts(packet, INNER_DECREMENTED, reason))

    def test_decapsulation_with_srh(self, dt6: Bench) -> None:
        header = srh([carrier(BLOCK, T0_USID)] * 2, 0)
        inner_end = OUTER_END + len(header) + IPV6_BYTES

        def reason(length: int) -> DropReason | None:
            if length < OUTER_END:
                return DropReason.TRUNCATED
            return DropReason.NOT_ENCAPSULATED if length < inner_end else None

        destination = carrier(BLOCK, T0_USID, DT6_USID)
        packet = ipv6(HOST, destination, header + INNER, NEXT_HEADER_ROUTING)
        dt6.check(*cuts(packet, INNER_DECREMENTED, reason))

    def test_plain_ipv6(self, dt6: Bench) -> None:
        dt6.check(
            *cuts(
                INNER,
                INNER_DECREMENTED,
                lambda length: DropReason.TRUNCATED if length < OUTER_END else None,
            )
        )


class TestNotIpv6:
    """Other EtherTypes that nobody asked for, and other versions."""

    @pytest.mark.parametrize(
        "ether_type", [0x0800, 0x0806, 0x8100, 0x88A8, 0x8847, 0x88CC, 0x86DC, 0x0000, 0x05DC]
    )
    def test_ether_type(self, t0: Bench, ether_type: int) -> None:
        t0.drops(IN, ethernet(arriving(IN), bytes(46), ether_type), DropReason.NOT_IPV6)

    @pytest.mark.parametrize("version", [0, 4, 5, 7, 15])
    def test_version(self, t0: Bench, version: int) -> None:
        destination = carrier(BLOCK, T0_USID, t1_usid(1), *REST)
        packet = ipv6(HOST, destination, INNER, NEXT_HEADER_IPV6, version=version)
        t0.drops(IN, ethernet(arriving(IN), packet), DropReason.NOT_IPV6)

    def test_vlan_tag_in_front_of_a_carrier(self, t0: Bench) -> None:
        destination = carrier(BLOCK, T0_USID, t1_usid(1), *REST)
        tagged = b"\x00\x01\x86\xdd" + ipv6(HOST, destination, INNER, NEXT_HEADER_IPV6)
        t0.drops(IN, ethernet(arriving(IN), tagged, 0x8100), DropReason.NOT_IPV6)

    def test_short_frame(self, t0: Bench) -> None:
        t0.drops(IN, ethernet(arriving(IN), b"x", 0x0800), DropReason.NOT_IPV6)


class TestLengthField:
    """The IPv6 payload length is forwarded as it is; the end points check it."""

    @pytest.mark.parametrize("length", [0, 1, 0xFFFF])
    def test_payload_length_that_is_wrong(self, t0: Bench, length: int) -> None:
        destination = carrier(BLOCK, T0_USID, t1_usid(1), *REST)
        before = ipv6(HOST, destination, INNER, NEXT_HEADER_IPV6)
        after = ipv6(HOST, shift(destination), INNER, NEXT_HEADER_IPV6, hop_limit=63)
        field = length.to_bytes(2, "big")
        t0.forwards(
            IN,
            ethernet(arriving(IN), before[:4] + field + before[6:]),
            OUT,
            ethernet(leaving(OUT), after[:4] + field + after[6:]),
        )

    def test_bytes_behind_the_packet(self, t0: Bench) -> None:
        destination = carrier(BLOCK, T0_USID, t1_usid(1), *REST)
        before = ipv6(HOST, destination, INNER, NEXT_HEADER_IPV6)
        after = ipv6(HOST, shift(destination), INNER, NEXT_HEADER_IPV6, hop_limit=63)
        trailer = b"padding of the link"
        t0.forwards(
            IN,
            ethernet(arriving(IN), before + trailer),
            OUT,
            ethernet(leaving(OUT), after + trailer),
        )
