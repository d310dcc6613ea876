# SPDX-License-Identifier: Apache-2.0
"""nic.p4: what comes in from the planes: own carriers are opened, own packets are handed up."""

from __future__ import annotations

from operator import attrgetter

import pytest

from controller.addressing import (
    carrier,
    host_address,
    nic_plane_port,
    own_carrier,
    t0_local_carrier,
)
from controller.drops import DropReason
from mrc.opcodes import Opcode
from ptf_tests.bench import Bench, Drop, Fate, Forward
from ptf_tests.device import Count
from ptf_tests.nic_world import (
    DOWNLINK,
    GROUP,
    HOST,
    HOST_PORT,
    PEER,
    PLANES,
    arriving,
    leaving,
    link,
    own_address,
    own_sid,
)
from ptf_tests.packets import (
    ECN_AFTER_DECAPSULATION,
    NEXT_HEADER_IPV6,
    NEXT_HEADER_ROUTING,
    NEXT_HEADER_TCP,
    NEXT_HEADER_UDP,
    NO_NEXT_HEADER,
    assert_checksums,
    ethernet,
    ipv6,
    mrc,
    srh,
    tcp,
)
from ptf_tests.world import BLOCK, DSCPS

EV = 0x6A5B


def inner(*, ecn: int = 0, target: int = HOST) -> bytes:
    """The peer's packet to the host, as the NIC there has sent it."""
    return mrc(Opcode.WRITE_ONLY, PEER, target, ecn=ecn, dscp=4, flow_label=EV, hop_limit=64)


def outer(destination: int, payload: bytes, *, ecn: int = 0, hop_limit: int = 61) -> bytes:
    """An outer header after three switches; its DSCP need not be the inner one any more."""
    return ipv6(
        PEER,
        destination,
        payload,
        NEXT_HEADER_IPV6,
        ecn=ecn,
        dscp=8,
        flow_label=EV,
        hop_limit=hop_limit,
    )


def delivered(plane: int, packet: bytes, expected: bytes) -> Forward:
    """In from a plane, up to the host."""
    port = nic_plane_port(plane)
    return Forward(
        port,
        ethernet(arriving(port), packet),
        HOST_PORT,
        ethernet(leaving(HOST_PORT), expected),
    )


def dropped(plane: int, packet: bytes, reason: DropReason) -> Drop:
    """In from a plane, and no further."""
    port = nic_plane_port(plane)
    return Drop(port, ethernet(arriving(port), packet), reason)


def own(plane: int, downlink: int = DOWNLINK) -> int:
    """What is left of a carrier to this NIC, or to another one of the T0 group."""
    return own_carrier(BLOCK, plane, downlink)


class TestOwnCarrier:
    """The outer address must be this NIC's, of the plane that the port belongs to."""

    @pytest.mark.parametrize("plane", PLANES)
    def test_own_carrier_on_its_plane(self, host_nic: Bench, plane: int) -> None:
        host_nic.check(delivered(plane, outer(own(plane), inner()), inner()))

    @pytest.mark.parametrize("plane", PLANES)
    def test_carrier_of_every_other_plane(self, host_nic: Bench, plane: int) -> None:
        host_nic.check(
            *(
                dropped(plane, outer(own(other), inner()), DropReason.NOT_OWN_CARRIER)
                for other in PLANES
                if other != plane
            )
        )

    @pytest.mark.parametrize("downlink", [0, 2, 3, 1023])
    def test_carrier_of_another_nic(self, host_nic: Bench, downlink: int) -> None:
        packet = outer(own(2, downlink), inner())
        host_nic.check(dropped(2, packet, DropReason.NOT_OWN_CARRIER))

    def test_every_other_bit_of_the_address(self, host_nic: Bench) -> None:
        host_nic.check(
            *(
                dropped(3, outer(own(3) ^ 1 << bit, inner()), DropReason.NOT_OWN_CARRIER)
                for bit in range(128)
            )
        )

    def test_carrier_that_has_not_ended(self, host_nic: Bench) -> None:
        # The T0 should have consumed more; this looks like mis-cabling.
        packet = outer(t0_local_carrier(BLOCK, 2, GROUP, DOWNLINK), inner())
        host_nic.check(dropped(2, packet, DropReason.NOT_OWN_CARRIER))

    def test_encapsulated_to_the_plain_address(self, host_nic: Bench) -> None:
        host_nic.check(dropped(2, outer(HOST, inner()), DropReason.NOT_OWN_CARRIER))

    def test_outer_hop_limit_does_not_matter_at_the_end(self, host_nic: Bench) -> None:
        host_nic.check(
            *(delivered(0, outer(own(0), inner(), hop_limit=n), inner()) for n in (0, 1, 255))
        )


class TestDecapsulation:
    """The inner packet goes up as the peer sent it, but for ECN."""

    @pytest.mark.parametrize("opcode", Opcode, ids=attrgetter("name"))
    def test_every_opcode(self, host_nic: Bench, opcode: Opcode) -> None:
        packet = mrc(opcode, PEER, HOST, flow_label=EV)
        fate = delivered(5, outer(own(5), packet), packet)
        host_nic.check(fate)
        assert_checksums(fate.expected[14:])

    @pytest.mark.parametrize("payload_bytes", [0, 1, 3, 4096, 8868])
    def test_payload_sizes(self, host_nic: Bench, payload_bytes: int) -> None:
        payload = bytes(n % 251 for n in range(payload_bytes))
        packet = mrc(Opcode.WRITE_MIDDLE, PEER, HOST, payload)
        host_nic.check(delivered(5, outer(own(5), packet), packet))

    def test_any_protocol(self, host_nic: Bench) -> None:
        packets = [
            ipv6(PEER, HOST, tcp(PEER, HOST, 1, 2, b"x"), NEXT_HEADER_TCP),
            ipv6(PEER, HOST, b"", NO_NEXT_HEADER),
            ipv6(PEER, HOST, b"?" * 99, 253),
        ]
        host_nic.check(*(delivered(1, outer(own(1), packet), packet) for packet in packets))

    def test_every_inner_dscp_and_flow_label_is_kept(self, host_nic: Bench) -> None:
        packets = [
            mrc(Opcode.SACK, PEER, HOST, dscp=n, flow_label=n * 0x4111 & 0xFFFFF) for n in DSCPS
        ]
        host_nic.check(*(delivered(1, outer(own(1), packet), packet) for packet in packets))

    def test_all_combinations_of_ecn(self, host_nic: Bench) -> None:
        fates: list[Fate] = []
        for (outer_ecn, inner_ecn), merged in ECN_AFTER_DECAPSULATION.items():
            packet = outer(own(4), inner(ecn=inner_ecn), ecn=outer_ecn)
            if merged is None:
                fates.append(dropped(4, packet, DropReason.ECN_NOT_ECT))
            else:
                fates.append(delivered(4, packet, inner(ecn=merged)))
                assert_checksums(inner(ecn=merged))
        assert len(fates) == 16
        host_nic.check(*fates)

    def test_inner_destination_of_another_host(self, host_nic: Bench) -> None:
        packet = outer(own(2), inner(target=host_address(GROUP, 2)))
        host_nic.check(dropped(2, packet, DropReason.NOT_OWN_ADDRESS))

    def test_every_bit_of_the_inner_destination(self, host_nic: Bench) -> None:
        host_nic.check(
            *(
                dropped(2, outer(own(2), inner(target=HOST ^ 1 << bit)), DropReason.NOT_OWN_ADDRESS)
                for bit in range(128)
            )
        )

    def test_self_probes_come_back(self, host_nic: Bench) -> None:
        probe = mrc(Opcode.ENDPOINT_REQUEST, HOST, HOST)
        host_nic.check(*(delivered(plane, outer(own(plane), probe), probe) for plane in PLANES))

    @pytest.mark.parametrize("version", [0, 4, 5, 7, 15])
    def test_inside_is_not_ipv6(self, host_nic: Bench, version: int) -> None:
        packet = outer(own(2), ipv6(PEER, HOST, b"", NO_NEXT_HEADER, version=version))
        host_nic.check(dropped(2, packet, DropReason.NOT_IPV6))

    @pytest.mark.parametrize("version", [0, 4, 5, 7, 15])
    def test_outside_is_not_ipv6(self, host_nic: Bench, version: int) -> None:
        packet = ipv6(PEER, own(2), inner(), NEXT_HEADER_IPV6, version=version)
        host_nic.check(dropped(2, packet, DropReason.NOT_IPV6))


class TestSegmentRoutingHeader:
    """An SRH whose last segment is this NIC goes with the outer header."""

    def packet(self, header: bytes, destination: int = own(3)) -> bytes:
        return ipv6(PEER, destination, header + inner(), NEXT_HEADER_ROUTING)

    @pytest.mark.parametrize("count", [1, 2, 3, 4])
    def test_used_up(self, host_nic: Bench, count: int) -> None:
        header = srh([carrier(BLOCK, 0x2400 + n) for n in range(count)], 0)
        host_nic.check(delivered(3, self.packet(header), inner()))

    @pytest.mark.parametrize("left", [1, 2, 255])
    def test_segments_left(self, host_nic: Bench, left: int) -> None:
        header = srh([own(3), own(3)], left)
        host_nic.check(dropped(3, self.packet(header), DropReason.BAD_SRH))

    def test_not_own_carrier(self, host_nic: Bench) -> None:
        header = srh([own(3)], 0)
        packet = self.packet(header, own(2))
        host_nic.check(dropped(3, packet, DropReason.NOT_OWN_CARRIER))

    @pytest.mark.parametrize(
        "header",
        [
            pytest.param(srh([own(3)], 0, hdr_ext_len=3) + bytes(8), id="TLV"),
            pytest.param(srh([own(3)] * 5, 0), id="five segments"),
            pytest.param(srh([], 0, last_entry=0), id="no segment"),
            pytest.param(srh([own(3)], 0, routing_type=3), id="another routing type"),
            pytest.param(srh([own(3)], 0, next_header=NEXT_HEADER_UDP), id="nothing inside"),
            pytest.param(srh([own(3)], 0, next_header=NEXT_HEADER_ROUTING), id="a second one"),
        ],
    )
    def test_malformed(self, host_nic: Bench, header: bytes) -> None:
        host_nic.check(dropped(3, self.packet(header), DropReason.BAD_SRH))

    def test_ecn_is_merged(self, host_nic: Bench) -> None:
        header = srh([own(3)], 0)
        packet = ipv6(PEER, own(3), header + inner(ecn=2), NEXT_HEADER_ROUTING, ecn=3)
        host_nic.check(delivered(3, packet, inner(ecn=3)))


class TestPlainPackets:
    """The ECMP baseline, and what a T0 has decapsulated: no outer header."""

    @pytest.mark.parametrize("plane", PLANES)
    def test_own_address(self, host_nic: Bench, plane: int) -> None:
        host_nic.check(delivered(plane, inner(ecn=3), inner(ecn=3)))

    def test_every_bit_of_the_address(self, host_nic: Bench) -> None:
        host_nic.check(
            *(
                dropped(2, inner(target=HOST ^ 1 << bit), DropReason.NOT_OWN_ADDRESS)
                for bit in range(128)
            )
        )

    def test_second_own_address(self, host_nic: Bench) -> None:
        second = 0x20010DB8 << 96 | 1
        host_nic.check(dropped(2, inner(target=second), DropReason.NOT_OWN_ADDRESS))
        host_nic.device.insert(own_address(second))
        host_nic.check(delivered(2, inner(target=second), inner(target=second)))

    def test_carrier_with_nothing_inside(self, host_nic: Bench) -> None:
        packet = mrc(Opcode.WRITE_ONLY, PEER, own(2))
        host_nic.check(dropped(2, packet, DropReason.NOT_OWN_ADDRESS))

    @pytest.mark.parametrize("ether_type", [0x0800, 0x0806, 0x8100, 0x88CC])
    def test_not_ipv6(self, host_nic: Bench, ether_type: int) -> None:
        port = nic_plane_port(0)
        frame = ethernet(arriving(port), bytes(46), ether_type)
        host_nic.drops(port, frame, DropReason.NOT_IPV6)


def test_host_whose_link_is_unknown(nic: Bench) -> None:
    nic.device.insert(own_sid(1), own_address())
    nic.check(dropped(1, outer(own(1), inner()), DropReason.NO_LINK))


def test_every_entry_counts_its_packets_and_bytes(host_nic: Bench) -> None:
    carried, plain = delivered(6, outer(own(6), inner()), inner()), delivered(0, inner(), inner())
    host_nic.check(carried, carried, plain)
    carried_bytes, plain_bytes = len(carried.packet), len(plain.packet)
    hits = host_nic.device.hits
    assert hits(own_sid(6)) == Count(2, 2 * carried_bytes)
    assert hits(own_sid(0)) == Count(0, 0)
    everything = Count(3, 2 * carried_bytes + plain_bytes)
    assert hits(own_address()) == hits(link(HOST_PORT)) == everything
