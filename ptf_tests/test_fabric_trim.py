# SPDX-License-Identifier: Apache-2.0
"""fabric.p4: at full egress queues packets are trimmed to their headers, or dropped and counted."""

from __future__ import annotations

import pytest

from controller.addressing import DT6_USID, carrier, shift
from controller.drops import DropReason
from mrc.headers import Meth, Tseth
from mrc.opcodes import WRITE_OPCODES, Opcode
from mrc.packet import TrimmedPacket, parse_packet
from ptf_tests.bench import Bench, Drop, Forward
from ptf_tests.packets import (
    CE,
    ECT_0,
    ETHERNET_BYTES,
    IPV6_BYTES,
    NEXT_HEADER_IPV6,
    NEXT_HEADER_ROUTING,
    NOT_ECT,
    UDP_BYTES,
    ethernet,
    ipv6,
    mrc,
    srh,
    tcp,
    trimmed,
    udp,
)
from ptf_tests.queues import CONTROL, Queued
from ptf_tests.world import (
    BLOCK,
    CAPACITY,
    CODE_POINTS,
    DOWNLINK,
    HOST,
    PEER,
    T0_USID,
    TO_DOWNLINK,
    TO_UPLINK,
    TRIM,
    UPLINK,
    arriving,
    down_port,
    ipv6_route,
    leaving,
    local_dt6,
    next_hop,
    port_to_host,
    port_to_switch,
    traffic_class,
    up_port,
)

FULL = 0xFFFF
TRIMMED = ("trim_packets",)
KEPT = 20  # BTH, METH, TSETH
WAYS = {UPLINK: (down_port(0), TO_UPLINK), DOWNLINK: (up_port(1), TO_DOWNLINK)}
TRIM_DSCP = {UPLINK: CODE_POINTS.trimmed, DOWNLINK: CODE_POINTS.trimmed_lasthop}


def data(
    dscp: int = CODE_POINTS.trimmable,
    *,
    opcode: Opcode = Opcode.WRITE_MIDDLE,
    ecn: int = NOT_ECT,
    payload: bytes = bytes(range(256)) * 4,
    destination_port: int = 4791,
) -> bytes:
    """A host's packet."""
    return mrc(
        opcode,
        HOST,
        PEER,
        payload,
        dscp=dscp,
        ecn=ecn,
        flow_label=0x2405,
        hop_limit=9,
        destination_port=destination_port,
    )


def arrived(port: int, packet: bytes) -> bytes:
    """The frame that carries a host's packet to the T0, on its way to ``port``."""
    port_in, destination = WAYS[port]
    return ethernet(arriving(port_in), outer(packet, destination, 64))


def outer(packet: bytes, destination: int, hop_limit: int) -> bytes:
    """The packet behind an outer header with its DSCP, ECN and flow label, as the NIC makes it."""
    word = int.from_bytes(packet[:4])
    return ipv6(
        HOST,
        destination,
        packet,
        NEXT_HEADER_IPV6,
        dscp=word >> 22 & 63,
        ecn=word >> 20 & 3,
        flow_label=word & 0xFFFFF,
        hop_limit=hop_limit,
    )


def left(port: int, packet: bytes) -> bytes:
    """The frame that carries a host's packet on."""
    return ethernet(leaving(port), outer(packet, shift(WAYS[port][1]), 63))


def whole(port: int, packet: bytes) -> Forward:
    """The packet goes on as it is."""
    return Forward(WAYS[port][0], arrived(port, packet), port, left(port, packet))


def cut(port: int, packet: bytes, kept: int = KEPT) -> Forward:
    """The packet goes on, trimmed."""
    rest = trimmed(packet, TRIM_DSCP[port], kept)
    return Forward(WAYS[port][0], arrived(port, packet), port, left(port, rest), TRIMMED)


def tail_drop(port: int, packet: bytes) -> Drop:
    """The packet is dropped where it would have gone to ``port``."""
    cell = ("dropped_packets", port)
    return Drop(WAYS[port][0], arrived(port, packet), DropReason.TAIL_DROP, (cell,))


PORTS = pytest.mark.parametrize("port", [UPLINK, DOWNLINK], ids=["to-switch", "to-host"])
TRIMMABLE = pytest.mark.parametrize(
    "dscp", [CODE_POINTS.trimmable, CODE_POINTS.trimmable_retx], ids=["first", "retransmission"]
)


class TestTrimming:
    """TRIMMABLE packets lose their payload from the threshold on."""

    @PORTS
    @TRIMMABLE
    @pytest.mark.parametrize("depth", [0, TRIM - 1])
    def test_below_the_threshold_nothing_happens(
        self, queued: Queued, port: int, dscp: int, depth: int
    ) -> None:
        queued.check(port, depth, whole(port, data(dscp)))

    @PORTS
    @TRIMMABLE
    @pytest.mark.parametrize("depth", [TRIM, TRIM + 1, CAPACITY - 1, CAPACITY, CAPACITY + 9, FULL])
    def test_from_the_threshold_on(self, queued: Queued, port: int, dscp: int, depth: int) -> None:
        queued.check(port, depth, cut(port, data(dscp)))

    @PORTS
    def test_is_122_bytes_that_parse(self, queued: Queued, port: int) -> None:
        fate = cut(port, data())
        queued.check(port, TRIM, fate)
        assert len(fate.expected) == 122
        parsed = parse_packet(fate.expected[ETHERNET_BYTES + IPV6_BYTES :])
        assert isinstance(parsed, TrimmedPacket)
        assert parsed.bth is not None and parsed.bth.psn == 0xABCDEF
        assert [type(header) for header in parsed.headers] == [Meth, Tseth]
        assert (parsed.rest, parsed.last_hop) == (b"", port == DOWNLINK)

    @pytest.mark.parametrize("opcode", sorted(WRITE_OPCODES), ids=lambda code: Opcode(code).name)
    @pytest.mark.parametrize("size", [0, 1, 1023, 4096])
    def test_every_write(self, queued: Queued, opcode: int, size: int) -> None:
        queued.check(UPLINK, TRIM, cut(UPLINK, data(opcode=Opcode(opcode), payload=bytes(size))))

    @pytest.mark.parametrize("destination_port", [4791, 4971])
    def test_both_udp_ports(self, queued: Queued, destination_port: int) -> None:
        queued.check(UPLINK, TRIM, cut(UPLINK, data(destination_port=destination_port)))

    def test_without_time_stamp_up_to_the_meth(self, queued: Queued) -> None:
        packet = bytearray(data())
        packet[IPV6_BYTES + UDP_BYTES + 8] &= 0xEF  # BTH.ts
        queued.check(UPLINK, TRIM, cut(UPLINK, bytes(packet), kept=16))

    @pytest.mark.parametrize("opcode", [Opcode.SACK, Opcode.NACK, Opcode.PROBE_REQUEST])
    def test_others_up_to_the_bth(self, queued: Queued, opcode: Opcode) -> None:
        # Should a deployment let these be trimmed, the BTH is what they have in common.
        queued.check(UPLINK, TRIM, cut(UPLINK, data(opcode=opcode), kept=12))

    @pytest.mark.parametrize("ecn", [NOT_ECT, ECT_0, CE])
    def test_keeps_the_ecn_field(self, queued: Queued, ecn: int) -> None:
        # Marks are for data; that this packet met congestion its DSCP says.
        queued.check(UPLINK, TRIM, cut(UPLINK, data(ecn=ecn)))

    def test_udp_checksum_of_zero_stays(self, queued: Queued) -> None:
        packet = bytearray(data())
        packet[IPV6_BYTES + 6 : IPV6_BYTES + 8] = b"\0\0"
        fate = cut(UPLINK, bytes(packet))
        at = ETHERNET_BYTES + IPV6_BYTES + IPV6_BYTES + 6
        expected = fate.expected[:at] + b"\0\0" + fate.expected[at + 2 :]
        queued.check(UPLINK, TRIM, Forward(fate.port_in, fate.packet, UPLINK, expected, TRIMMED))

    def test_udp_checksum_that_comes_out_as_zero_is_sent_as_ffff(self, queued: Queued) -> None:
        # The source port takes up the sum.
        packet = bytearray(data())
        at = IPV6_BYTES
        checksum = int.from_bytes(trimmed(bytes(packet), 8)[at + 6 : at + 8])
        port = int.from_bytes(packet[at : at + 2]) + checksum
        packet[at : at + 2] = ((port & 0xFFFF) + (port >> 16)).to_bytes(2)
        fate = cut(UPLINK, bytes(packet))
        assert fate.expected[ETHERNET_BYTES + 2 * IPV6_BYTES + 6 :][:2] == b"\xff\xff"
        queued.check(UPLINK, TRIM, fate)

    def test_wrong_lengths_in_the_packet_are_corrected(self, queued: Queued) -> None:
        packet = bytearray(data())
        packet[4:6] = b"\0\1"
        packet[IPV6_BYTES + 4 : IPV6_BYTES + 6] = b"\xff\xff"
        queued.check(UPLINK, TRIM, cut(UPLINK, bytes(packet)))

    def test_plain_ipv6(self, queued: Queued) -> None:
        queued.bench.device.insert(ipv6_route(PEER, 128, next_hop("forward", UPLINK)))
        port_in, packet = down_port(0), data()
        short = bytearray(trimmed(packet, CODE_POINTS.trimmed))
        short[7] -= 1  # hop limit
        assert ETHERNET_BYTES + len(short) == 82
        queued.check(
            UPLINK,
            TRIM,
            Forward(
                port_in,
                ethernet(arriving(port_in), packet),
                UPLINK,
                ethernet(leaving(UPLINK), bytes(short)),
                TRIMMED,
            ),
        )

    def test_decapsulated(self, queued: Queued) -> None:
        queued.bench.device.insert(
            local_dt6(), ipv6_route(PEER, 128, next_hop("forward", DOWNLINK))
        )
        port_in, packet = up_port(1), data()
        short = bytearray(trimmed(packet, CODE_POINTS.trimmed_lasthop))
        short[7] -= 1
        frame = ethernet(arriving(port_in), outer(packet, carrier(BLOCK, T0_USID, DT6_USID), 64))
        queued.check(
            DOWNLINK,
            TRIM,
            Forward(port_in, frame, DOWNLINK, ethernet(leaving(DOWNLINK), bytes(short)), TRIMMED),
        )

    @pytest.mark.parametrize("segments", [1, 2, 3, 4])
    def test_srh_stays(self, queued: Queued, segments: int) -> None:
        queued.check(UPLINK, TRIM, _with_srh(segments))


def _with_srh(segments: int) -> Forward:
    port_in, packet = down_port(0), data()
    header = srh([TO_DOWNLINK + n for n in range(segments)], 0)
    frames = [
        ethernet(
            macs,
            ipv6(
                HOST,
                destination,
                header + inner,
                NEXT_HEADER_ROUTING,
                dscp=dscp,
                hop_limit=hops,
            ),
        )
        for macs, destination, inner, dscp, hops in (
            (arriving(port_in), TO_UPLINK, packet, CODE_POINTS.trimmable, 64),
            (leaving(UPLINK), shift(TO_UPLINK), trimmed(packet, 8), CODE_POINTS.trimmed, 63),
        )
    ]
    assert len(frames[1]) == 122 + 8 + 16 * segments
    return Forward(port_in, frames[0], UPLINK, frames[1], TRIMMED)


class TestTrimSize:
    """Packets are trimmed where their headers fit, and dropped at the capacity where not."""

    def test_headers_that_fit_exactly(self, queued: Queued) -> None:
        queued.bench.device.modify(port_to_switch(packet_trim_size=122))
        queued.check(UPLINK, TRIM, cut(UPLINK, data()))

    def test_headers_that_are_one_byte_too_long(self, queued: Queued) -> None:
        queued.bench.device.modify(port_to_switch(packet_trim_size=121))
        queued.check(UPLINK, CAPACITY - 1, whole(UPLINK, data()))
        queued.check(UPLINK, CAPACITY, tail_drop(UPLINK, data()))

    def test_srh_counts(self, queued: Queued) -> None:
        fate = _with_srh(2)
        queued.bench.device.modify(port_to_switch(packet_trim_size=len(fate.expected)))
        queued.check(UPLINK, TRIM, fate)
        queued.bench.device.modify(port_to_switch(packet_trim_size=len(fate.expected) - 1))
        dropped = Drop(
            fate.port_in, fate.packet, DropReason.TAIL_DROP, (("dropped_packets", UPLINK),)
        )
        queued.check(UPLINK, CAPACITY, dropped)


class TestNotTrimmed:
    """Everything else passes up to the capacity, and is dropped there."""

    @PORTS
    @pytest.mark.parametrize("dscp", [CODE_POINTS.no_trim, 33], ids=["no-trim", "unknown"])
    def test_no_trim(self, queued: Queued, port: int, dscp: int) -> None:
        packet = data(dscp)
        queued.check(port, TRIM, whole(port, packet))
        queued.check(port, CAPACITY - 1, whole(port, packet))
        queued.check(port, CAPACITY, tail_drop(port, packet))
        assert queued.control.depth(port) == CAPACITY  # it took no place

    @PORTS
    def test_trimming_off(self, queued: Queued, port: int) -> None:
        configure = port_to_switch if port == UPLINK else port_to_host
        queued.bench.device.modify(configure(packet_trim_threshold=0xFFFF))
        queued.check(port, CAPACITY - 1, whole(port, data()))
        queued.check(port, CAPACITY, tail_drop(port, data()))

    @pytest.mark.parametrize("name", ["udp", "tcp", "nothing"])
    def test_not_mrc(self, queued: Queued, name: str) -> None:
        text = bytes(100)
        layer4 = {
            "udp": (udp(HOST, PEER, 1, 53, text), 17),
            "tcp": (tcp(HOST, PEER, 1, 4791, text), 6),
            "nothing": (text, 59),
        }
        payload, next_header = layer4[name]
        packet = ipv6(HOST, PEER, payload, next_header, dscp=CODE_POINTS.trimmable)
        queued.check(UPLINK, CAPACITY - 1, whole(UPLINK, packet))
        queued.check(UPLINK, CAPACITY, tail_drop(UPLINK, packet))

    @pytest.mark.parametrize("kept", range(KEPT))
    def test_ends_inside_the_headers(self, queued: Queued, kept: int) -> None:
        # From the BTH on there is enough to say what was lost.
        packet = data()[: IPV6_BYTES + UDP_BYTES + kept]
        if kept < 12:
            queued.check(UPLINK, TRIM, whole(UPLINK, packet))
            queued.check(UPLINK, CAPACITY, tail_drop(UPLINK, packet))
        else:
            shorter = 16 if kept >= 16 else 12
            queued.check(UPLINK, TRIM, cut(UPLINK, packet, shorter))

    @pytest.mark.parametrize("kept", [*range(0, IPV6_BYTES, 13), IPV6_BYTES, 42, 46, 47])
    def test_ends_before_the_bth(self, queued: Queued, kept: int) -> None:
        carried = outer(data(), TO_UPLINK, 64)[: IPV6_BYTES + kept]
        on = outer(data(), shift(TO_UPLINK), 63)[: IPV6_BYTES + kept]
        port_in = WAYS[UPLINK][0]
        frame = ethernet(arriving(port_in), carried)
        queued.check(UPLINK, TRIM, Forward(port_in, frame, UPLINK, ethernet(leaving(UPLINK), on)))
        cell = ("dropped_packets", UPLINK)
        queued.check(UPLINK, CAPACITY, Drop(port_in, frame, DropReason.TAIL_DROP, (cell,)))

    def test_mrc_behind_an_srh_without_inner_header(self, queued: Queued) -> None:
        port_in = down_port(0)
        datagram = data()[IPV6_BYTES:]
        header = srh([TO_DOWNLINK], 0, next_header=17)
        frames = [
            ethernet(
                macs,
                ipv6(
                    HOST,
                    destination,
                    header + datagram,
                    NEXT_HEADER_ROUTING,
                    dscp=CODE_POINTS.trimmable,
                    hop_limit=hops,
                ),
            )
            for macs, destination, hops in (
                (arriving(port_in), TO_UPLINK, 64),
                (leaving(UPLINK), shift(TO_UPLINK), 63),
            )
        ]
        queued.check(UPLINK, TRIM, Forward(port_in, frames[0], UPLINK, frames[1]))
        cell = ("dropped_packets", UPLINK)
        queued.check(UPLINK, CAPACITY, Drop(port_in, frames[0], DropReason.TAIL_DROP, (cell,)))


class TestControlClass:
    """The other queue: never trimmed, full at the same capacity."""

    CLASS = pytest.mark.parametrize(
        "dscp", [CODE_POINTS.control, CODE_POINTS.trimmed, CODE_POINTS.trimmed_lasthop]
    )

    @PORTS
    @CLASS
    def test_passes_a_full_data_queue(self, queued: Queued, port: int, dscp: int) -> None:
        packet = data(dscp, opcode=Opcode.SACK)
        queued.check(port, CAPACITY, whole(port, packet), control_depth=CAPACITY - 1)

    @PORTS
    @CLASS
    def test_is_dropped_at_its_capacity(self, queued: Queued, port: int, dscp: int) -> None:
        packet = data(dscp)
        queued.check(port, 0, tail_drop(port, packet), control_depth=CAPACITY)

    @PORTS
    def test_last_place_for_a_trimmed_packet(self, queued: Queued, port: int) -> None:
        queued.check(port, CAPACITY, cut(port, data()), control_depth=CAPACITY - 1)

    @PORTS
    def test_no_place_for_a_trimmed_packet(self, queued: Queued, port: int) -> None:
        dropped = Drop(
            WAYS[port][0],
            arrived(port, data()),
            DropReason.TRIM_DROP,
            (("trim_packets", port), ("dropped_trim_packets", port)),
        )
        queued.check(port, TRIM, dropped, control_depth=CAPACITY)
        assert queued.control.depth(port, CONTROL) == CAPACITY

    def test_controllers_packets_are_control(self, queued: Queued) -> None:
        lldp = ethernet(leaving(UPLINK), b"\x02\x07\x04", 0x88CC)
        queued.control.set_depth(UPLINK, CAPACITY)
        queued.control.set_depth(UPLINK, CAPACITY - 1, CONTROL)
        queued.bench.device.packet_out(lldp, egress_port=UPLINK, pad=0)
        queued.bench.expect(UPLINK, lldp)
        assert queued.control.depth(UPLINK, CONTROL) == 0
        assert queued.control.depth(UPLINK) == CAPACITY

    def test_controllers_packet_for_a_full_queue_is_counted(self, queued: Queued) -> None:
        queued.control.set_depth(UPLINK, CAPACITY, CONTROL)
        before = queued.bench.counters()
        lldp = ethernet(leaving(UPLINK), b"\x02\x07\x04", 0x88CC)
        queued.bench.device.packet_out(lldp, egress_port=UPLINK, pad=0)
        queued.bench.expect_nothing()
        grown = {
            cell
            for cell, now in queued.bench.counters().items()
            if now.packets != before[cell].packets
        }
        assert grown == {("drops", DropReason.TAIL_DROP), ("dropped_packets", UPLINK)}


def test_code_points_are_those_of_the_table(queued: Queued) -> None:
    # Another deployment calls 12 TRIMMABLE.
    queued.check(UPLINK, TRIM, whole(UPLINK, data(12)))
    queued.bench.device.insert(traffic_class(12, "data_trim"))
    queued.check(UPLINK, TRIM, cut(UPLINK, data(12)))


def test_port_without_configuration_trims_and_drops_nothing(t0: Bench) -> None:
    t0.check(*(whole(port, data(dscp)) for port in WAYS for dscp in (0, 4, 5, 8, 9, 46)))
