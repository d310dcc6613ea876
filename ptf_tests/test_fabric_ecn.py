# SPDX-License-Identifier: Apache-2.0
"""fabric.p4: ECN marks at egress queues that fill."""

from __future__ import annotations

import pytest

from controller.addressing import shift
from controller.drops import DropReason
from mrc.opcodes import Opcode
from ptf_tests.bench import Bench, Drop, Forward
from ptf_tests.device import Count
from ptf_tests.packets import (
    CE,
    ECN_AFTER_DECAPSULATION,
    ECT_0,
    ECT_1,
    NEXT_HEADER_IPV6,
    NOT_ECT,
    ethernet,
    ipv6,
    mrc,
)
from ptf_tests.queues import CONTROL, Queued
from ptf_tests.statistics import assert_drawn
from ptf_tests.world import (
    CAPACITY,
    CODE_POINTS,
    DOWNLINK,
    ECN_MAX,
    ECN_MIN,
    HOST,
    PEER,
    TO_DOWNLINK,
    TO_UPLINK,
    TRIM,
    UPLINK,
    arriving,
    down_port,
    ipv6_route,
    leaving,
    next_hop,
    port_to_switch,
    up_port,
)

MARKED = ("ecn_marked_packets",)


def frame(
    outer: int, *, inner: int | None = None, dscp: int = CODE_POINTS.trimmable, hop_limit: int = 64
) -> bytes:
    """The IPv6 packet in a carrier to the uplink, with these ECN fields (None: both the same)."""
    packet = mrc(Opcode.WRITE_MIDDLE, HOST, PEER, dscp=dscp, ecn=outer if inner is None else inner)
    return ipv6(
        HOST, TO_UPLINK, packet, NEXT_HEADER_IPV6, dscp=dscp, ecn=outer, hop_limit=hop_limit
    )


def forward(
    outer: int, after: int, *, inner: int | None = None, dscp: int = CODE_POINTS.trimmable
) -> Forward:
    """From a host to the uplink; ``outer`` ECN becomes ``after``, the inner one stays."""
    port_in = down_port(0)
    inner = outer if inner is None else inner
    shifted = bytearray(frame(after, inner=inner, dscp=dscp, hop_limit=63))
    shifted[24:40] = shift(TO_UPLINK).to_bytes(16)
    return Forward(
        port_in,
        ethernet(arriving(port_in), frame(outer, inner=inner, dscp=dscp)),
        UPLINK,
        ethernet(leaving(UPLINK), bytes(shifted)),
        MARKED if after != outer else (),
    )


class TestThresholds:
    """Never up to the lower one, always from the upper one on, and in between by chance."""

    @pytest.mark.parametrize("ecn", [ECT_0, ECT_1])
    @pytest.mark.parametrize("depth", [0, 1, ECN_MIN - 1, ECN_MIN])
    def test_below(self, queued: Queued, ecn: int, depth: int) -> None:
        queued.check(UPLINK, depth, forward(ecn, ecn))

    @pytest.mark.parametrize("ecn", [ECT_0, ECT_1])
    @pytest.mark.parametrize("depth", [ECN_MAX, ECN_MAX + 1, TRIM - 1])
    def test_above(self, queued: Queued, ecn: int, depth: int) -> None:
        queued.check(UPLINK, depth, forward(ecn, CE))

    @pytest.mark.parametrize("depth", [ECN_MIN + 3, ECN_MIN + 5, ECN_MAX - 3])
    def test_chance_grows_linearly_in_between(self, queued: Queued, depth: int) -> None:
        port_in = down_port(0)
        packet = ethernet(arriving(port_in), frame(ECT_0))
        outcomes = {forward(ECT_0, after).expected: after for after in (ECT_0, CE)}
        counts = {ECT_0: 0, CE: 0}
        before = queued.bench.counters()
        for _ in range(150):
            queued.control.set_depth(UPLINK, depth)
            queued.bench.send(port_in, packet)
            ((port, received),) = queued.bench.receive(1)
            assert port == UPLINK
            counts[outcomes[received]] += 1
        assert_drawn(counts, {ECT_0: ECN_MAX - depth, CE: depth - ECN_MIN})
        cell = ("ecn_marked_packets", UPLINK)
        counted = queued.bench.counters()[cell].packets - before[cell].packets
        assert counted == counts[CE]

    def test_equal_thresholds_are_a_step(self, queued: Queued) -> None:
        queued.bench.device.modify(port_to_switch(ecn_min_threshold=15, ecn_max_threshold=15))
        queued.check(UPLINK, 14, forward(ECT_0, ECT_0))
        queued.check(UPLINK, 15, forward(ECT_0, CE))

    def test_thresholds_of_zero_mark_everything(self, queued: Queued) -> None:
        queued.bench.device.modify(port_to_switch(ecn_min_threshold=0, ecn_max_threshold=0))
        queued.check(UPLINK, 0, forward(ECT_0, CE))

    def test_highest_thresholds_mark_nothing(self, queued: Queued) -> None:
        off = {"ecn_min_threshold": 0xFFFF, "ecn_max_threshold": 0xFFFF}
        queued.bench.device.modify(port_to_switch(**off))
        queued.check(UPLINK, TRIM - 1, forward(ECT_0, ECT_0))


class TestWhatIsMarked:
    """Only data whose ends understand ECN, in the outer header alone."""

    def test_not_ect_is_not(self, queued: Queued) -> None:
        queued.check(UPLINK, TRIM - 1, forward(NOT_ECT, NOT_ECT))

    def test_ce_stays_and_is_not_counted(self, queued: Queued) -> None:
        queued.check(UPLINK, TRIM - 1, forward(CE, CE))

    def test_no_trim_data_is_up_to_the_capacity(self, queued: Queued) -> None:
        packet = forward(ECT_0, CE, dscp=CODE_POINTS.no_trim)
        queued.check(UPLINK, TRIM, packet)
        queued.check(UPLINK, CAPACITY - 1, packet)

    def test_control_class_is_not(self, queued: Queued) -> None:
        packet = forward(ECT_0, ECT_0, dscp=CODE_POINTS.control)
        queued.check(UPLINK, CAPACITY, packet, control_depth=CAPACITY - 1)

    @pytest.mark.parametrize("outer", [ECT_0, ECT_1])
    @pytest.mark.parametrize("inner", [NOT_ECT, ECT_0, ECT_1, CE])
    def test_never_a_mark_that_the_nic_would_drop(
        self, queued: Queued, outer: int, inner: int
    ) -> None:
        assert ECN_AFTER_DECAPSULATION[outer, inner] is not None
        marked = ECN_AFTER_DECAPSULATION[CE, inner] is not None
        assert marked == (inner != NOT_ECT)
        queued.check(UPLINK, TRIM - 1, forward(outer, CE if marked else outer, inner=inner))

    def test_plain_ipv6_is(self, queued: Queued) -> None:
        queued.bench.device.insert(ipv6_route(PEER, 128, next_hop("forward", UPLINK)))
        before, after = (
            mrc(Opcode.WRITE_MIDDLE, HOST, PEER, dscp=4, ecn=ecn, hop_limit=hops)
            for ecn, hops in ((ECT_0, 64), (CE, 63))
        )
        port_in = down_port(0)
        queued.check(
            UPLINK,
            ECN_MAX,
            Forward(
                port_in,
                ethernet(arriving(port_in), before),
                UPLINK,
                ethernet(leaving(UPLINK), after),
                MARKED,
            ),
        )


def to_host(ecn: int) -> Forward:
    """From a T1 to a host."""
    port_in = up_port(1)
    packet = mrc(Opcode.WRITE_MIDDLE, HOST, PEER, dscp=CODE_POINTS.trimmable, ecn=ecn)
    before, after = (
        ipv6(
            HOST,
            destination,
            packet,
            NEXT_HEADER_IPV6,
            dscp=CODE_POINTS.trimmable,
            ecn=ecn,
            hop_limit=hops,
        )
        for destination, hops in ((TO_DOWNLINK, 64), (shift(TO_DOWNLINK), 63))
    )
    return Forward(
        port_in,
        ethernet(arriving(port_in), before),
        DOWNLINK,
        ethernet(leaving(DOWNLINK), after),
    )


@pytest.mark.parametrize("ecn", [NOT_ECT, ECT_0, ECT_1, CE])
def test_last_hop_marks_nothing(queued: Queued, ecn: int) -> None:
    queued.check(DOWNLINK, TRIM - 1, to_host(ecn))


def test_port_without_configuration_marks_and_drops_nothing(t0: Bench) -> None:
    t0.check(forward(ECT_0, ECT_0), to_host(ECT_0))


def test_depths_are_of_one_port_and_queue(queued: Queued) -> None:
    queued.control.set_depth(DOWNLINK, CAPACITY)
    queued.control.set_depth(UPLINK, CAPACITY, CONTROL)
    queued.check(UPLINK, 0, forward(ECT_0, ECT_0), control_depth=CAPACITY)


def test_what_is_dropped_before_takes_no_place(queued: Queued) -> None:
    port_in = down_port(0)
    packet = ethernet(arriving(port_in), frame(ECT_0, hop_limit=1))
    queued.check(UPLINK, 3, Drop(port_in, packet, DropReason.HOP_LIMIT))
    assert queued.control.depth(UPLINK) == 3


def test_each_packet_that_leaves_is_taken_off_the_depth(queued: Queued) -> None:
    # Its number is the last one, so that nothing of what was said to wait is left.
    queued.check(UPLINK, ECN_MIN, forward(ECT_0, ECT_0))
    assert queued.control.depth(UPLINK) == 0
    queued.bench.check(*[forward(ECT_0, ECT_0)] * 5)
    assert queued.control.depth(UPLINK) == 0


def test_configuration_counts_packets_by_port(queued: Queued) -> None:
    before = queued.bench.device.hits(port_to_switch())
    packet = forward(ECT_0, ECT_0)
    queued.bench.check(packet, packet)
    after = queued.bench.device.hits(port_to_switch())
    assert after.packets - before.packets == 2
    assert after == Count(2, 2 * len(packet.packet))
