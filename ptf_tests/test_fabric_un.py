# SPDX-License-Identifier: Apache-2.0
"""fabric.p4: uN (`my_sid`) and the static /48s (`usid_fib`)."""

from __future__ import annotations

import pytest

from controller.addressing import UsidKind, carrier, host_address, shift, t1_port, usid
from controller.drops import DropReason
from ptf_tests.bench import Bench, Drop, Fate, Forward
from ptf_tests.device import Count
from ptf_tests.packets import NEXT_HEADER_IPV6, ethernet, ipv6, udp
from ptf_tests.world import (
    BLOCK,
    HOSTS,
    OTHER_T0,
    OTHER_T0_USID,
    PLANE,
    PORTS,
    T0,
    T0_USID,
    T1,
    T1_USID,
    arriving,
    down_port,
    downlink_usid,
    leaving,
    locator_block,
    my_sid,
    t0_usid,
    t1_usid,
    up_port,
    usid_route,
)

HOST = host_address(T0, 1)
PEER = host_address(OTHER_T0, 2)
INNER = ipv6(HOST, PEER, udp(HOST, PEER, 0xC000, 4791, b"not looked at"), 17, hop_limit=9)


def carried(destination: int, hop_limit: int = 64) -> bytes:
    """The inner packet with an outer header to this carrier."""
    return ipv6(HOST, destination, INNER, NEXT_HEADER_IPV6, hop_limit=hop_limit)


def hop(port_in: int, destination: int, port_out: int) -> Forward:
    """What uN does: shift, hop limit minus one, the next link's MACs."""
    return Forward(
        port_in,
        ethernet(arriving(port_in), carried(destination)),
        port_out,
        ethernet(leaving(port_out), carried(shift(destination), hop_limit=63)),
    )


def dropped(port_in: int, destination: int, reason: DropReason) -> Drop:
    """A carrier that ends here."""
    return Drop(port_in, ethernet(arriving(port_in), carried(destination)), reason)


class TestPathOfACarrier:
    """Each switch on the way finds its own uSID in front and sends to the next one."""

    def test_first_t0_sends_a_hosts_packet_to_every_t1(self, t0: Bench) -> None:
        last = OTHER_T0_USID, downlink_usid(2)
        t0.check(
            *(
                hop(down_port(1), carrier(BLOCK, T0_USID, t1_usid(u), *last), up_port(u))
                for u in range(HOSTS)
            )
        )

    def test_t1_sends_to_every_t0(self, t1: Bench) -> None:
        t1.check(
            *(
                hop(t1_port(T0), carrier(BLOCK, T1_USID, t0_usid(i), downlink_usid(2)), t1_port(i))
                for i in range(8)
            )
        )

    def test_last_t0_sends_to_every_host(self, t0: Bench) -> None:
        t0.check(
            *(
                hop(up_port(T1), carrier(BLOCK, T0_USID, downlink_usid(d)), down_port(d))
                for d in range(HOSTS)
            )
        )

    def test_t0_local_carrier_turns_at_the_t0(self, t0: Bench) -> None:
        t0.check(hop(down_port(0), carrier(BLOCK, T0_USID, downlink_usid(3)), down_port(3)))

    def test_self_probe_of_a_t0_link_comes_back_on_its_port(self, t0: Bench) -> None:
        t0.check(hop(down_port(2), carrier(BLOCK, T0_USID, downlink_usid(2)), down_port(2)))

    def test_self_probe_of_a_t1_link_comes_back_on_its_port(self, t1: Bench) -> None:
        port = t1_port(T0)
        t1.check(hop(port, carrier(BLOCK, T1_USID, T0_USID, downlink_usid(2)), port))


class TestShift:
    """The 96 bits after the block move up by 16, zeroes come in at the end."""

    def test_carrier_with_six_usids(self, t0: Bench) -> None:
        destination = carrier(BLOCK, T0_USID, t1_usid(0), 0x2222, 0x3333, 0x4444, 0x5555)
        t0.check(hop(down_port(0), destination, up_port(0)))

    def test_last_usid_may_be_in_the_last_place(self, t0: Bench) -> None:
        # Nothing but zeros between: the shift does not look at them.
        destination = carrier(BLOCK, T0_USID, t1_usid(0), 0, 0, 0, 0x6555)
        t0.check(hop(down_port(0), destination, up_port(0)))

    @pytest.mark.parametrize("plane", [0, 7])
    @pytest.mark.parametrize("index", [0, 1023])
    def test_limits_of_the_fields(self, fabric: Bench, plane: int, index: int) -> None:
        own, following = usid(UsidKind.T0, plane, index), usid(UsidKind.T1, plane, index)
        fabric.device.insert(locator_block(), my_sid(own), usid_route(following, 2))
        fabric.check(hop(1, carrier(BLOCK, own, following, own), 2))


class TestExactMatch:
    """One bit off is another uSID, another route, or no carrier at all."""

    def test_my_sid_compares_every_bit_of_the_usid(self, t0: Bench) -> None:
        t0.check(
            *(
                dropped(
                    down_port(0),
                    carrier(BLOCK, T0_USID ^ 1 << bit, t1_usid(0)),
                    DropReason.NOT_MY_SID,
                )
                for bit in range(16)
            )
        )

    def test_usid_fib_compares_every_bit_of_the_usid(self, fabric: Bench) -> None:
        fabric.device.insert(locator_block(), my_sid(T0_USID), usid_route(T1_USID, 2))
        fates: list[Fate] = [hop(1, carrier(BLOCK, T0_USID, T1_USID), 2)]
        for bit in range(16):
            wrong = T1_USID ^ 1 << bit
            assert wrong >> 13 != UsidKind.LOCAL
            fates.append(dropped(1, carrier(BLOCK, T0_USID, wrong), DropReason.UNKNOWN_USID))
        fabric.check(*fates)

    def test_locator_block_compares_every_bit(self, t0: Bench) -> None:
        # Outside the block it is a plain address, for which there is no route.
        t0.check(
            *(
                dropped(
                    down_port(0),
                    carrier(BLOCK ^ 1 << bit, T0_USID, t1_usid(0)),
                    DropReason.NO_ROUTE,
                )
                for bit in range(32)
            )
        )

    def test_without_a_locator_block_nothing_is_a_carrier(self, fabric: Bench) -> None:
        fabric.device.insert(my_sid(T0_USID), usid_route(T1_USID, 2))
        fabric.check(dropped(1, carrier(BLOCK, T0_USID, T1_USID), DropReason.NO_ROUTE))

    def test_two_locator_blocks_at_a_time(self, fabric: Bench) -> None:
        other = 0xFCBBBB01
        fabric.device.insert(locator_block(), locator_block(other), my_sid(T0_USID))
        fabric.device.insert(my_sid(T0_USID, other), usid_route(T1_USID, 2))
        fabric.check(
            hop(1, carrier(BLOCK, T0_USID, T1_USID), 2),
            # The route is a /48 too: in the other block it does not exist.
            dropped(1, carrier(other, T0_USID, T1_USID), DropReason.UNKNOWN_USID),
        )


class TestDrops:
    """What is not for this switch, or cannot go on, is dropped and counted by reason."""

    def test_another_switchs_carrier(self, t0: Bench) -> None:
        # Mis-cabling: a T0 next door would know where to send this, but must not.
        destination = carrier(BLOCK, t1_usid(0), T0_USID, downlink_usid(0))
        t0.check(dropped(down_port(0), destination, DropReason.NOT_MY_SID))

    def test_carrier_of_another_plane(self, t0: Bench) -> None:
        destination = carrier(BLOCK, usid(UsidKind.T0, PLANE - 1, T0), t1_usid(0))
        t0.check(dropped(down_port(0), destination, DropReason.NOT_MY_SID))

    def test_empty_carrier(self, t0: Bench) -> None:
        t0.check(dropped(down_port(0), carrier(BLOCK), DropReason.NOT_MY_SID))

    def test_unknown_next_usid(self, t0: Bench) -> None:
        destination = carrier(BLOCK, T0_USID, t1_usid(HOSTS), OTHER_T0_USID)
        t0.check(dropped(down_port(0), destination, DropReason.UNKNOWN_USID))

    def test_own_usid_twice(self, t0: Bench) -> None:
        destination = carrier(BLOCK, T0_USID, T0_USID, t1_usid(0))
        t0.check(dropped(down_port(0), destination, DropReason.UNKNOWN_USID))

    @pytest.mark.parametrize("local", [0xE000, 0xE001, 0xFC00, 0xFFFF])
    def test_unknown_local_usid(self, t0: Bench, local: int) -> None:
        destination = carrier(BLOCK, T0_USID, local, t1_usid(0))
        t0.check(dropped(down_port(0), destination, DropReason.UNKNOWN_LOCAL_SID))

    def test_carrier_that_ends_at_the_first_t0(self, t0: Bench) -> None:
        t0.check(dropped(down_port(0), carrier(BLOCK, T0_USID), DropReason.CARRIER_ENDED))

    def test_carrier_that_ends_at_the_t1(self, t1: Bench) -> None:
        t1.check(dropped(t1_port(T0), carrier(BLOCK, T1_USID), DropReason.CARRIER_ENDED))

    def test_carrier_with_a_gap_after_the_active_usid(self, t0: Bench) -> None:
        # RFC 9800 ends a carrier at the first zero, whatever follows.
        destination = carrier(BLOCK, T0_USID, 0, t1_usid(0))
        t0.check(dropped(down_port(0), destination, DropReason.CARRIER_ENDED))


class TestHopLimit:
    """Hop limit 0 and 1 end here, 2 is the last that passes."""

    @pytest.mark.parametrize("hop_limit", [0, 1])
    def test_used_up(self, t0: Bench, hop_limit: int) -> None:
        packet = carried(carrier(BLOCK, T0_USID, t1_usid(0)), hop_limit)
        t0.drops(down_port(0), ethernet(arriving(down_port(0)), packet), DropReason.HOP_LIMIT)

    @pytest.mark.parametrize("hop_limit", [2, 255])
    def test_decremented(self, t0: Bench, hop_limit: int) -> None:
        destination = carrier(BLOCK, T0_USID, t1_usid(0))
        t0.forwards(
            down_port(0),
            ethernet(arriving(down_port(0)), carried(destination, hop_limit)),
            up_port(0),
            ethernet(leaving(up_port(0)), carried(shift(destination), hop_limit - 1)),
        )

    def test_is_checked_before_the_carrier(self, t0: Bench) -> None:
        packet = carried(carrier(BLOCK, OTHER_T0_USID), hop_limit=1)
        t0.drops(down_port(0), ethernet(arriving(down_port(0)), packet), DropReason.HOP_LIMIT)


def test_every_entry_counts_its_packets_and_bytes(t0: Bench) -> None:
    frames = [hop(down_port(0), carrier(BLOCK, T0_USID, t1_usid(u)), up_port(u)) for u in (0, 1, 1)]
    block, own, first, second = (
        locator_block(),
        my_sid(T0_USID),
        usid_route(t1_usid(0), up_port(0)),
        usid_route(t1_usid(1), up_port(1)),
    )
    before = [t0.device.hits(item) for item in (block, own, first, second)]
    assert before == [Count(0, 0)] * 4
    t0.check(*frames)
    size = len(frames[0].packet)
    assert t0.device.hits(block) == t0.device.hits(own) == Count(3, 3 * size)
    assert t0.device.hits(first) == Count(1, size)
    assert t0.device.hits(second) == Count(2, 2 * size)


def test_every_port_reaches_every_port(t0: Bench) -> None:
    routes = {
        **{down_port(d): downlink_usid(d) for d in range(HOSTS)},
        **{up_port(u): t1_usid(u) for u in range(HOSTS)},
    }
    t0.check(
        *(
            hop(port_in, carrier(BLOCK, T0_USID, routes[port_out]), port_out)
            for port_in in PORTS
            for port_out in PORTS
        )
    )
