# SPDX-License-Identifier: Apache-2.0
"""nic.p4: frames cut after every single byte, from the host and from the planes.

The NIC needs its host's IPv6 header whole on either way; what is missing behind it stays missing.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller.addressing import host_address, nic_plane_port, own_carrier, path_ev
from controller.drops import DropReason
from mrc.opcodes import Opcode
from ptf_tests.bench import Bench, Drop, Fate, Forward
from ptf_tests.nic_world import (
    DOWNLINK,
    EV_CHOSEN,
    HOST,
    HOST_PORT,
    OTHER_GROUP,
    PEER,
    arriving,
    expected_frame,
    from_host,
    leaving,
    plane_port,
)
from ptf_tests.packets import (
    ETHERNET_BYTES,
    IPV6_BYTES,
    NEXT_HEADER_IPV6,
    NEXT_HEADER_ROUTING,
    ethernet,
    ipv6,
    mrc,
    srh,
)
from ptf_tests.world import BLOCK

SHORTEST_FRAME_BYTES = 15  # the Linux kernel does not send shorter ones
PLANE = 4
PORT = nic_plane_port(PLANE)
OWN = own_carrier(BLOCK, PLANE, DOWNLINK)
INNER = mrc(Opcode.WRITE_ONLY, PEER, HOST, b"cut")


def cuts(port_in: int, frame: bytes, port_out: int, expected: bytes, needed: int) -> list[Fate]:
    """The frame cut after every byte: truncated up to ``needed`` bytes, then sent as it is."""
    longer = len(expected) - len(frame)
    fates: list[Fate] = []
    for length in range(SHORTEST_FRAME_BYTES, len(frame) + 1):
        cut = frame[:length]
        if length < needed:
            fates.append(Drop(port_in, cut, DropReason.TRUNCATED))
        else:
            fates.append(Forward(port_in, cut, port_out, expected[: length + longer]))
    return fates


class TestFromTheHost:
    """Sent on as long as the IPv6 header is whole; the length fields are the host's affair."""

    def test_encapsulated(self, host_nic: Bench) -> None:
        ev = path_ev(5, 9)
        packet = mrc(Opcode.WRITE_ONLY, HOST, PEER, b"cut", flow_label=EV_CHOSEN | ev)
        frame, expected = from_host(packet), expected_frame(packet, ev)
        needed = ETHERNET_BYTES + IPV6_BYTES
        host_nic.check(*cuts(HOST_PORT, frame, plane_port(ev), expected, needed))

    def test_hosts_own_carrier(self, host_nic: Bench) -> None:
        packet = ipv6(HOST, OWN, INNER, NEXT_HEADER_IPV6)
        expected = ethernet(leaving(PORT), packet)
        needed = ETHERNET_BYTES + IPV6_BYTES
        host_nic.check(*cuts(HOST_PORT, from_host(packet), PORT, expected, needed))

    def test_length_fields_are_not_checked(self, host_nic: Bench) -> None:
        ev = path_ev(5, 9)
        packet = mrc(Opcode.WRITE_ONLY, HOST, PEER, flow_label=EV_CHOSEN | ev)
        expected = expected_frame(packet, ev)
        fates: list[Fate] = []
        for length in (0, 1, 8888, 0xFFFF):
            field = length.to_bytes(2, "big")
            outer_field = (length + IPV6_BYTES & 0xFFFF).to_bytes(2, "big")
            at, inner_at = ETHERNET_BYTES + 4, ETHERNET_BYTES + IPV6_BYTES + 4
            out = expected[:at] + outer_field + expected[at + 2 : inner_at] + field
            fates.append(
                Forward(
                    HOST_PORT,
                    from_host(packet[:4] + field + packet[6:]),
                    plane_port(ev),
                    out + expected[inner_at + 2 :],
                )
            )
        host_nic.check(*fates)


class TestFromAPlane:
    """Dropped up to the end of the inner IPv6 header, whatever header the cut is in."""

    def from_plane(self, packet: bytes) -> bytes:
        return ethernet(arriving(PORT), packet)

    def test_carrier(self, host_nic: Bench) -> None:
        frame = self.from_plane(ipv6(PEER, OWN, INNER, NEXT_HEADER_IPV6))
        expected = ethernet(leaving(HOST_PORT), INNER)
        needed = ETHERNET_BYTES + 2 * IPV6_BYTES
        host_nic.check(*cuts(PORT, frame, HOST_PORT, expected, needed))

    @pytest.mark.parametrize("count", [1, 2, 3, 4])
    def test_carrier_with_srh(self, host_nic: Bench, count: int) -> None:
        header = srh([OWN] * count, 0)
        frame = self.from_plane(ipv6(PEER, OWN, header + INNER, NEXT_HEADER_ROUTING))
        expected = ethernet(leaving(HOST_PORT), INNER)
        needed = ETHERNET_BYTES + 2 * IPV6_BYTES + len(header)
        host_nic.check(*cuts(PORT, frame, HOST_PORT, expected, needed))

    def test_plain_packet(self, host_nic: Bench) -> None:
        frame = self.from_plane(INNER)
        expected = ethernet(leaving(HOST_PORT), INNER)
        needed = ETHERNET_BYTES + IPV6_BYTES
        host_nic.check(*cuts(PORT, frame, HOST_PORT, expected, needed))

    def test_another_nics_carrier_is_not_its_own_when_cut(self, host_nic: Bench) -> None:
        # With the inner header whole it is the carrier that is wrong, before that the cut.
        frame = self.from_plane(ipv6(PEER, OWN ^ 1 << 80, INNER, NEXT_HEADER_IPV6))
        needed = ETHERNET_BYTES + 2 * IPV6_BYTES
        host_nic.check(
            Drop(PORT, frame[: needed - 1], DropReason.TRUNCATED),
            Drop(PORT, frame[:needed], DropReason.NOT_OWN_CARRIER),
        )

    def test_bytes_behind_the_packet(self, host_nic: Bench) -> None:
        trailer = b"padding of the link"
        frame = self.from_plane(ipv6(PEER, OWN, INNER, NEXT_HEADER_IPV6) + trailer)
        expected = ethernet(leaving(HOST_PORT), INNER + trailer)
        host_nic.forwards(PORT, frame, HOST_PORT, expected)


@pytest.mark.parametrize("port", [HOST_PORT, PORT])
def test_short_frame_of_another_ether_type(host_nic: Bench, port: int) -> None:
    host_nic.drops(port, ethernet(arriving(port), b"x", 0x0800), DropReason.NOT_IPV6)


def test_cut_packets_to_nowhere(host_nic: Bench) -> None:
    stranger = mrc(Opcode.WRITE_ONLY, HOST, host_address(OTHER_GROUP + 1, 0))
    whole = from_host(stranger)
    lengths: Sequence[int] = (ETHERNET_BYTES + IPV6_BYTES, len(whole) - 1)
    host_nic.check(*(Drop(HOST_PORT, whole[:n], DropReason.NO_DESTINATION) for n in lengths))
