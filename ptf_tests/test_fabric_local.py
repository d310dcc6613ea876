# SPDX-License-Identifier: Apache-2.0
"""fabric.p4: local functions behind the own uSID (`local_sid`): uA and decapsulation."""

from __future__ import annotations

import pytest

from controller.addressing import (
    DT6_USID,
    carrier,
    group_prefix,
    host_address,
    shift,
    ua_usid,
)
from controller.drops import DropReason
from ptf_tests.bench import Bench, Drop, Fate, Forward
from ptf_tests.device import Count
from ptf_tests.packets import (
    ECN_AFTER_DECAPSULATION,
    NEXT_HEADER_IPV6,
    NEXT_HEADER_ROUTING,
    NEXT_HEADER_UDP,
    ethernet,
    ipv6,
    srh,
    udp,
)
from ptf_tests.world import (
    BLOCK,
    OTHER_T0,
    OTHER_T0_USID,
    PORTS,
    T0,
    T0_USID,
    arriving,
    down_port,
    downlink_usid,
    ipv6_route,
    leaving,
    local_dt6,
    local_ua,
    next_hop,
    t1_usid,
    up_port,
)

IN = down_port(0)
HOST = host_address(T0, 0)
PEER = host_address(OTHER_T0, 2)
DT6 = carrier(BLOCK, T0_USID, DT6_USID)


def inner(hop_limit: int = 64, ecn: int = 0, destination: int = PEER, version: int = 6) -> bytes:
    """The host's packet."""
    datagram = udp(HOST, destination, 0xC000, 4791, b"inner")
    return ipv6(
        HOST,
        destination,
        datagram,
        NEXT_HEADER_UDP,
        hop_limit=hop_limit,
        ecn=ecn,
        dscp=4,
        flow_label=0x6A5B,
        version=version,
    )


def carried(destination: int, hop_limit: int = 64, ecn: int = 0, payload: bytes = b"") -> bytes:
    """The inner packet, or another payload, with an outer header to this carrier."""
    return ipv6(
        HOST,
        destination,
        payload or inner(),
        NEXT_HEADER_IPV6,
        hop_limit=hop_limit,
        ecn=ecn,
        dscp=8,
        flow_label=0x6A5B,
    )


def arrived(packet: bytes) -> bytes:
    """As a frame from the host."""
    return ethernet(arriving(IN), packet)


class TestAdjacency:
    """uA (End.X with NEXT-CSID): out of this port, whatever comes next."""

    def test_sends_out_of_its_port_after_two_shifts(self, t0: Bench) -> None:
        t0.device.insert(*map(local_ua, PORTS))
        rest = OTHER_T0_USID, downlink_usid(2)
        t0.check(
            *(
                Forward(
                    IN,
                    arrived(carried(carrier(BLOCK, T0_USID, ua_usid(port), *rest))),
                    port,
                    ethernet(leaving(port), carried(carrier(BLOCK, *rest), hop_limit=63)),
                )
                for port in PORTS
            )
        )

    def test_does_not_look_at_what_comes_next(self, t0: Bench) -> None:
        # The usid_fib would send this T1's packets to uplink 1; uA says uplink 3.
        t0.device.insert(local_ua(up_port(3)))
        destination = carrier(BLOCK, T0_USID, ua_usid(up_port(3)), t1_usid(1), 0x1234)
        t0.forwards(
            IN,
            arrived(carried(destination)),
            up_port(3),
            ethernet(leaving(up_port(3)), carried(shift(shift(destination)), hop_limit=63)),
        )

    def test_needs_the_own_usid_in_front(self, t0: Bench) -> None:
        t0.device.insert(local_ua(up_port(3)))
        destination = carrier(BLOCK, ua_usid(up_port(3)), OTHER_T0_USID)
        t0.drops(IN, arrived(carried(destination)), DropReason.NOT_MY_SID)

    def test_port_that_is_not_installed(self, t0: Bench) -> None:
        t0.device.insert(local_ua(up_port(3)))
        destination = carrier(BLOCK, T0_USID, ua_usid(up_port(2)), OTHER_T0_USID)
        t0.drops(IN, arrived(carried(destination)), DropReason.UNKNOWN_LOCAL_SID)

    def test_carrier_that_ends_with_it(self, t0: Bench) -> None:
        t0.device.insert(local_ua(up_port(3)))
        destination = carrier(BLOCK, T0_USID, ua_usid(up_port(3)))
        t0.drops(IN, arrived(carried(destination)), DropReason.CARRIER_ENDED)

    def test_counts_its_packets_and_bytes(self, t0: Bench) -> None:
        item = local_ua(up_port(3))
        t0.device.insert(item)
        destination = carrier(BLOCK, T0_USID, ua_usid(up_port(3)), OTHER_T0_USID)
        packet = arrived(carried(destination))
        expected = carried(shift(shift(destination)), hop_limit=63)
        t0.forwards(IN, packet, up_port(3), ethernet(leaving(up_port(3)), expected))
        assert t0.device.hits(item) == Count(1, len(packet))


class TestDecapsulation:
    """End.DT6: the outer header goes, the inner packet is routed by its destination."""

    @pytest.fixture
    def dt6(self, t0: Bench) -> Bench:
        prefix, length = group_prefix(OTHER_T0)
        t0.device.insert(local_dt6(), ipv6_route(prefix, length, next_hop("forward", up_port(1))))
        return t0

    def delivered(self, packet: bytes, expected: bytes) -> Forward:
        """Out of the route's port."""
        return Forward(IN, arrived(packet), up_port(1), ethernet(leaving(up_port(1)), expected))

    def test_inner_packet_is_routed(self, dt6: Bench) -> None:
        dt6.check(self.delivered(carried(DT6), inner(hop_limit=63)))

    def test_outer_hop_limit_does_not_matter_to_the_inner_one(self, dt6: Bench) -> None:
        dt6.check(
            self.delivered(carried(DT6, hop_limit=2), inner(hop_limit=63)),
            self.delivered(carried(DT6, payload=inner(hop_limit=2)), inner(hop_limit=1)),
        )

    @pytest.mark.parametrize("hop_limit", [0, 1])
    def test_inner_hop_limit_used_up(self, dt6: Bench, hop_limit: int) -> None:
        dt6.drops(IN, arrived(carried(DT6, payload=inner(hop_limit))), DropReason.HOP_LIMIT)

    @pytest.mark.parametrize("hop_limit", [0, 1])
    def test_outer_hop_limit_used_up(self, dt6: Bench, hop_limit: int) -> None:
        dt6.drops(IN, arrived(carried(DT6, hop_limit)), DropReason.HOP_LIMIT)

    def test_all_combinations_of_ecn(self, dt6: Bench) -> None:
        fates: list[Fate] = []
        for (outer_ecn, inner_ecn), merged in ECN_AFTER_DECAPSULATION.items():
            packet = carried(DT6, ecn=outer_ecn, payload=inner(ecn=inner_ecn))
            if merged is None:
                fates.append(Drop(IN, arrived(packet), DropReason.ECN_NOT_ECT))
            else:
                fates.append(self.delivered(packet, inner(hop_limit=63, ecn=merged)))
        assert len(fates) == 16
        dt6.check(*fates)

    def test_no_route_for_the_inner_packet(self, dt6: Bench) -> None:
        packet = carried(DT6, payload=inner(destination=host_address(OTHER_T0 + 1, 0)))
        dt6.drops(IN, arrived(packet), DropReason.NO_ROUTE)

    def test_nothing_inside(self, dt6: Bench) -> None:
        packet = ipv6(HOST, DT6, udp(HOST, DT6, 1, 2, b"bare"), NEXT_HEADER_UDP)
        dt6.drops(IN, arrived(packet), DropReason.NOT_ENCAPSULATED)

    def test_inside_is_not_ipv6(self, dt6: Bench) -> None:
        packet = carried(DT6, payload=inner(version=4))
        dt6.drops(IN, arrived(packet), DropReason.NOT_IPV6)

    @pytest.mark.parametrize("count", [1, 2, 3, 4])
    def test_used_up_srh_goes_with_the_outer_header(self, dt6: Bench, count: int) -> None:
        segments = [carrier(BLOCK, t1_usid(n)) for n in range(count)]
        packet = ipv6(HOST, DT6, srh(segments, 0) + inner(), NEXT_HEADER_ROUTING)
        dt6.check(self.delivered(packet, inner(hop_limit=63)))

    def test_srh_with_segments_left(self, dt6: Bench) -> None:
        packet = ipv6(HOST, DT6, srh([DT6, DT6], 1) + inner(), NEXT_HEADER_ROUTING)
        dt6.drops(IN, arrived(packet), DropReason.BAD_SRH)

    def test_needs_the_own_usid_in_front(self, dt6: Bench) -> None:
        packet = carried(carrier(BLOCK, DT6_USID))
        dt6.drops(IN, arrived(packet), DropReason.NOT_MY_SID)

    def test_inner_carrier_is_not_routed_again(self, dt6: Bench) -> None:
        # What is inside is routed as plain IPv6; a carrier in a carrier has no route.
        again = ipv6(HOST, carrier(BLOCK, T0_USID, t1_usid(0)), inner(), NEXT_HEADER_IPV6)
        dt6.drops(IN, arrived(carried(DT6, payload=again)), DropReason.NO_ROUTE)

    def test_counts_its_packets_and_bytes(self, dt6: Bench) -> None:
        packet = carried(DT6)
        dt6.check(self.delivered(packet, inner(hop_limit=63)))
        assert dt6.device.hits(local_dt6()) == Count(1, len(arrived(packet)))
