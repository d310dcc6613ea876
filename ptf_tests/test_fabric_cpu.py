# SPDX-License-Identifier: Apache-2.0
"""fabric.p4: punting to the controller, packet-in and packet-out."""

from __future__ import annotations

import pytest
from finsy import P4TableAction

from controller.addressing import CPU_PORT, carrier, host_address
from controller.drops import DropReason
from ptf_tests.bench import Bench, Forward
from ptf_tests.device import Count, entry
from ptf_tests.packets import NEXT_HEADER_IPV6, ethernet, ipv6
from ptf_tests.world import (
    BLOCK,
    PORTS,
    T0,
    T0_USID,
    arriving,
    down_port,
    leaving,
    t1_usid,
    up_port,
)

LLDP = 0x88CC
PACKET_OUT_BYTES = 2  # egress_port(9), pad(7)
PUNT_LLDP = entry("punt", {"ether_type": LLDP}, P4TableAction("to_controller"))
HOST = host_address(T0, 0)


def lldp(port: int, size: int = 46) -> bytes:
    """A frame that a neighbour sends to this port."""
    return ethernet(arriving(port), bytes(n % 256 for n in range(size)), LLDP)


class TestPunt:
    """What the controller wants to see goes to it whole, with the port that it came in by."""

    @pytest.mark.parametrize("port", PORTS)
    def test_packet_in_names_the_port(self, t0: Bench, port: int) -> None:
        t0.device.insert(PUNT_LLDP)
        before = t0.counters()
        frame = lldp(port)
        t0.send(port, frame)
        packet = t0.device.packet_in()
        assert packet is not None
        assert packet.payload == frame
        assert packet["ingress_port"] == port
        size = len(frame)
        t0.expect_counters(
            before, {("port_in", port): Count(1, size), ("port_out", CPU_PORT): Count(1, size)}
        )
        t0.expect_nothing()
        assert t0.device.hits(PUNT_LLDP) == Count(1, size)

    def test_packets_keep_their_order(self, t0: Bench) -> None:
        t0.device.insert(PUNT_LLDP)
        frames = [lldp(1, size) for size in range(1, 33)]
        for frame in frames:
            t0.send(1, frame)
        received = [t0.device.packet_in() for _ in frames]
        assert [packet and packet.payload for packet in received] == frames

    def test_large_frame(self, t0: Bench) -> None:
        t0.device.insert(PUNT_LLDP)
        frame = lldp(1, 9000)
        t0.send(1, frame)
        packet = t0.device.packet_in()
        assert packet is not None
        assert packet.payload == frame

    def test_other_ether_types_are_dropped(self, t0: Bench) -> None:
        t0.device.insert(PUNT_LLDP)
        t0.drops(1, ethernet(arriving(1), bytes(46), LLDP - 1), DropReason.NOT_IPV6)
        assert t0.device.packet_in(timeout_s=0.05) is None

    def test_deleted_entry_punts_no_more(self, t0: Bench) -> None:
        t0.device.insert(PUNT_LLDP)
        t0.device.delete(PUNT_LLDP)
        t0.drops(1, lldp(1), DropReason.NOT_IPV6)
        assert t0.device.packet_in(timeout_s=0.05) is None

    def test_ipv6_is_never_punted(self, t0: Bench) -> None:
        t0.device.insert(entry("punt", {"ether_type": 0x86DD}, P4TableAction("to_controller")))
        frame = ethernet(arriving(1), ipv6(HOST, carrier(BLOCK, T0_USID), b"", NEXT_HEADER_IPV6))
        t0.drops(1, frame, DropReason.CARRIER_ENDED)
        assert t0.device.packet_in(timeout_s=0.05) is None


class TestPacketOut:
    """The controller's packet leaves by the port that it asks for, as it is."""

    @pytest.mark.parametrize("port", PORTS)
    def test_leaves_by_the_port(self, t0: Bench, port: int) -> None:
        before = t0.counters()
        frame = ethernet(leaving(port), bytes(range(46)), LLDP)
        t0.device.packet_out(frame, egress_port=port, pad=0)
        t0.expect(port, frame)
        counted = Count(1, len(frame) + PACKET_OUT_BYTES)
        t0.expect_counters(before, {("port_out", port): counted})
        t0.expect_nothing()

    def test_is_not_forwarded_by_the_tables(self, t0: Bench) -> None:
        # A carrier from the controller is neither shifted nor aged.
        destination = carrier(BLOCK, T0_USID, t1_usid(0))
        frame = ethernet(leaving(3), ipv6(HOST, destination, b"", NEXT_HEADER_IPV6, hop_limit=1))
        t0.device.packet_out(frame, egress_port=3, pad=0)
        t0.expect(3, frame)
        t0.expect_nothing()

    def test_large_frame(self, t0: Bench) -> None:
        frame = ethernet(leaving(2), bytes(n % 251 for n in range(9000)), LLDP)
        t0.device.packet_out(frame, egress_port=2, pad=0)
        t0.expect(2, frame)
        t0.expect_nothing()

    def test_forwarding_goes_on_meanwhile(self, t0: Bench) -> None:
        out = ethernet(leaving(up_port(0)), bytes(46), LLDP)
        t0.device.packet_out(out, egress_port=up_port(0), pad=0)
        t0.expect(up_port(0), out)
        before, after = (
            ipv6(HOST, destination, b"", 59, hop_limit=hop_limit)
            for destination, hop_limit in (
                (carrier(BLOCK, T0_USID, t1_usid(0)), 64),
                (carrier(BLOCK, t1_usid(0)), 63),
            )
        )
        port_in = down_port(0)
        t0.check(
            Forward(
                port_in,
                ethernet(arriving(port_in), before),
                up_port(0),
                ethernet(leaving(up_port(0)), after),
            )
        )
