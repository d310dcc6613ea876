# SPDX-License-Identifier: Apache-2.0
"""fabric.p4: plain IPv6 (`ipv6_fib`)."""

from __future__ import annotations

import pytest

from controller.addressing import group_prefix, host_address
from controller.drops import DropReason
from ptf_tests.bench import Bench, Drop, Fate, Forward
from ptf_tests.device import Count
from ptf_tests.packets import (
    NEXT_HEADER_TCP,
    NEXT_HEADER_UDP,
    NO_NEXT_HEADER,
    ethernet,
    ipv6,
    tcp,
    udp,
)
from ptf_tests.world import (
    OTHER_T0,
    PORTS,
    T0,
    arriving,
    down_port,
    ipv6_route,
    leaving,
    locator_block,
    my_sid,
    next_hop,
    up_port,
)

HOST = host_address(T0, 1)
PEER = host_address(OTHER_T0, 2)
ADDRESS_BITS = 128


def plain(destination: int, hop_limit: int = 64) -> bytes:
    """A UDP packet of the host."""
    datagram = udp(HOST, destination, 0xC000, 4791, b"plain")
    return ipv6(HOST, destination, datagram, NEXT_HEADER_UDP, hop_limit=hop_limit)


def routed(destination: int, port_out: int, port_in: int = down_port(1)) -> Forward:
    """A plain packet that is sent on."""
    return Forward(
        port_in,
        ethernet(arriving(port_in), plain(destination)),
        port_out,
        ethernet(leaving(port_out), plain(destination, hop_limit=63)),
    )


class TestLongestPrefix:
    """The longest prefix that holds the destination decides."""

    def test_every_prefix_length(self, fabric: Bench) -> None:
        # 129 nested prefixes. An address that leaves the longest one at bit n belongs to length n.
        def port(length: int) -> int:
            return PORTS[length % len(PORTS)]

        def prefix(length: int) -> int:
            rest = ADDRESS_BITS - length
            return PEER >> rest << rest

        routes = [ipv6_route(prefix(n), n, next_hop("forward", port(n))) for n in range(129)]
        fabric.device.insert(*routes)
        fates: list[Fate] = [routed(PEER, port(ADDRESS_BITS))]
        for length in range(ADDRESS_BITS):
            outside = PEER ^ 1 << (ADDRESS_BITS - 1 - length)
            fates.append(routed(outside, port(length)))
        fabric.check(*fates)
        size = len(fates[0].packet)
        assert [fabric.device.hits(route) for route in routes] == [Count(1, size)] * 129

    def test_shorter_one_takes_over_when_the_longer_is_deleted(self, fabric: Bench) -> None:
        prefix, length = group_prefix(OTHER_T0)
        group = ipv6_route(prefix, length, next_hop("forward", up_port(0)))
        host = ipv6_route(PEER, ADDRESS_BITS, next_hop("forward", up_port(1)))
        fabric.device.insert(group, host)
        fabric.check(routed(PEER, up_port(1)))
        fabric.device.delete(host)
        fabric.check(routed(PEER, up_port(0)))

    def test_modified_route_goes_elsewhere(self, fabric: Bench) -> None:
        prefix, length = group_prefix(OTHER_T0)
        fabric.device.insert(ipv6_route(prefix, length, next_hop("forward", up_port(0))))
        fabric.check(routed(PEER, up_port(0)))
        fabric.device.modify(ipv6_route(prefix, length, next_hop("forward", up_port(3))))
        fabric.check(routed(PEER, up_port(3)))


def test_no_route(fabric: Bench) -> None:
    prefix, length = group_prefix(OTHER_T0)
    fabric.device.insert(ipv6_route(prefix, length, next_hop("forward", up_port(0))))
    stranger = ethernet(arriving(1), plain(host_address(OTHER_T0 + 1, 0)))
    fabric.check(Drop(1, stranger, DropReason.NO_ROUTE), routed(PEER, up_port(0)))


def test_carriers_are_not_routed_by_prefix(fabric: Bench) -> None:
    # A default route must not catch a carrier that my_sid refuses.
    fabric.device.insert(locator_block(), my_sid(0x2405), ipv6_route(0, 0, next_hop("forward", 2)))
    carrier = 0xFCBBBB00_2406_0000_0000_0000_0000_0000
    fabric.drops(1, ethernet(arriving(1), plain(carrier)), DropReason.NOT_MY_SID)


@pytest.mark.parametrize("hop_limit", [0, 1])
def test_hop_limit_used_up(fabric: Bench, hop_limit: int) -> None:
    fabric.device.insert(ipv6_route(0, 0, next_hop("forward", 2)))
    fabric.drops(1, ethernet(arriving(1), plain(PEER, hop_limit)), DropReason.HOP_LIMIT)


def test_any_next_header(fabric: Bench) -> None:
    fabric.device.insert(ipv6_route(0, 0, next_hop("forward", 2)))
    payloads = {
        NEXT_HEADER_TCP: tcp(HOST, PEER, 1, 2, b"stream"),
        NEXT_HEADER_UDP: udp(HOST, PEER, 1, 2, b"datagram"),
        NO_NEXT_HEADER: b"",
        253: b"experiment",  # RFC 3692
        0: bytes.fromhex("3b00010400000000"),  # hop-by-hop options, padding only
    }
    fabric.check(
        *(
            Forward(
                1,
                ethernet(arriving(1), ipv6(HOST, PEER, payload, kind)),
                2,
                ethernet(leaving(2), ipv6(HOST, PEER, payload, kind, hop_limit=63)),
            )
            for kind, payload in payloads.items()
        )
    )
