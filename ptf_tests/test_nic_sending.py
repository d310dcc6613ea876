# SPDX-License-Identifier: Apache-2.0
"""nic.p4: how a host's packet is sent on the path that its EV names."""

from __future__ import annotations

from operator import attrgetter

import pytest
from finsy import P4TableAction

from controller.addressing import (
    carrier,
    group_prefix,
    host_address,
    nic_plane_port,
    path_ev,
    t0_local_carrier,
    t1_probe_carrier,
)
from controller.addressing import (
    ipv6 as address_text,
)
from controller.drops import DropReason
from mrc.opcodes import Opcode
from ptf_tests.bench import Bench, Drop, Forward
from ptf_tests.device import Count, entry
from ptf_tests.nic_world import (
    DOWNLINK,
    EV_CHOSEN,
    GROUP,
    HOST,
    HOST_PORT,
    NEIGHBOUR,
    OTHER_GROUP,
    PEER,
    PLANES,
    SPRAY_GROUP,
    arriving,
    cross_t1,
    expected_frame,
    from_host,
    group_cfg,
    inner_of,
    leaving,
    link,
    own_address,
    plane_port,
    plane_set,
    slots,
    t0_local,
)
from ptf_tests.packets import (
    NEXT_HEADER_IPV6,
    NEXT_HEADER_TCP,
    NO_NEXT_HEADER,
    assert_checksums,
    ethernet,
    ipv6,
    mrc,
    tcp,
)
from ptf_tests.world import BLOCK, DSCPS, locator_block

EV = path_ev(plane=5, uplink=700, path_tag=3)


def chosen(packet: bytes, ev: int) -> Forward:
    """A packet whose flow label says "EV chosen": it must go out on exactly this one."""
    return Forward(HOST_PORT, from_host(packet), plane_port(ev), expected_frame(packet, ev))


def write(
    target: int = PEER,
    flow_label: int = EV_CHOSEN | EV,
    *,
    dscp: int = 0,
    ecn: int = 0,
    hop_limit: int = 64,
    source_port: int = 0xC000,
    destination_port: int = 4791,
) -> bytes:
    """A WRITE packet of the host."""
    return mrc(
        Opcode.WRITE_ONLY,
        HOST,
        target,
        flow_label=flow_label,
        dscp=dscp,
        ecn=ecn,
        hop_limit=hop_limit,
        source_port=source_port,
        destination_port=destination_port,
    )


class TestEncapsulation:
    """The outer header, bit by bit, and the host's packet under it."""

    @pytest.mark.parametrize("opcode", Opcode, ids=attrgetter("name"))
    def test_every_opcode(self, host_nic: Bench, opcode: Opcode) -> None:
        packet = mrc(opcode, HOST, PEER, flow_label=EV_CHOSEN | EV)
        fate = chosen(packet, EV)
        host_nic.check(fate)
        # The NIC has changed the flow label and nothing else: both checksums still hold.
        inner = inner_of(fate.expected)
        assert inner == mrc(opcode, HOST, PEER, flow_label=EV)
        assert_checksums(inner)

    @pytest.mark.parametrize("opcode", Opcode, ids=attrgetter("name"))
    def test_every_opcode_within_the_t0_group(self, host_nic: Bench, opcode: Opcode) -> None:
        host_nic.check(chosen(mrc(opcode, HOST, NEIGHBOUR, flow_label=EV_CHOSEN | EV), EV))

    def test_dscp_and_ecn_are_copied_out(self, host_nic: Bench) -> None:
        host_nic.check(
            *(chosen(write(dscp=dscp, ecn=ecn), EV) for dscp in DSCPS for ecn in range(4))
        )

    def test_inner_hop_limit_is_the_hosts(self, host_nic: Bench) -> None:
        host_nic.check(*(chosen(write(hop_limit=hops), EV) for hops in (0, 1, 2, 63, 64, 255)))

    def test_source_address_is_the_hosts(self, host_nic: Bench) -> None:
        other = host_address(GROUP, 2)
        host_nic.check(chosen(mrc(Opcode.WRITE_ONLY, other, PEER, flow_label=EV_CHOSEN | EV), EV))

    @pytest.mark.parametrize("payload_bytes", [0, 1, 2, 3, 4096, 8868])
    def test_payload_length(self, host_nic: Bench, payload_bytes: int) -> None:
        payload = bytes(n % 251 for n in range(payload_bytes))
        host_nic.check(
            chosen(mrc(Opcode.WRITE_MIDDLE, HOST, PEER, payload, flow_label=EV_CHOSEN | EV), EV)
        )

    def test_jumbo_packet_of_the_host(self, host_nic: Bench) -> None:
        bare = len(mrc(Opcode.WRITE_MIDDLE, HOST, PEER, b""))
        packet = mrc(Opcode.WRITE_MIDDLE, HOST, PEER, bytes(9000 - bare), flow_label=EV_CHOSEN | EV)
        assert len(packet) == 9000
        host_nic.check(chosen(packet, EV))

    def test_any_protocol(self, host_nic: Bench) -> None:
        packets = [
            ipv6(
                HOST, PEER, tcp(HOST, PEER, 1, 2, b"x"), NEXT_HEADER_TCP, flow_label=EV_CHOSEN | EV
            ),
            ipv6(HOST, PEER, b"", NO_NEXT_HEADER, flow_label=EV_CHOSEN | EV),
            ipv6(HOST, PEER, b"?" * 99, 253, flow_label=EV_CHOSEN | EV),
        ]
        host_nic.check(*(chosen(packet, EV) for packet in packets))

    def test_both_udp_ports_and_every_source_port_are_kept(self, host_nic: Bench) -> None:
        host_nic.check(
            *(
                chosen(write(source_port=1 << bit, destination_port=port), EV)
                for port in (4791, 4971)
                for bit in range(16)
            )
        )


class TestCarrier:
    """Plane, uplink and downlink in their places."""

    @pytest.mark.parametrize("plane", PLANES)
    @pytest.mark.parametrize("uplink", [0, 1, 1023])
    def test_cross_t1(self, host_nic: Bench, plane: int, uplink: int) -> None:
        ev = path_ev(plane, uplink)
        host_nic.check(chosen(write(PEER, EV_CHOSEN | ev), ev))

    @pytest.mark.parametrize("plane", PLANES)
    @pytest.mark.parametrize("uplink", [0, 1, 1023])
    def test_t0_local_has_no_uplink(self, host_nic: Bench, plane: int, uplink: int) -> None:
        ev = path_ev(plane, uplink)
        host_nic.check(chosen(write(NEIGHBOUR, EV_CHOSEN | ev), ev))

    def test_every_bit_of_the_ev(self, host_nic: Bench) -> None:
        evs = [0, *(1 << bit for bit in range(16)), 0xFFFF]
        host_nic.check(*(chosen(write(PEER, EV_CHOSEN | ev), ev) for ev in evs))

    @pytest.mark.parametrize("target", [PEER, NEIGHBOUR])
    def test_every_bit_of_the_downlink(self, host_nic: Bench, target: int) -> None:
        group = GROUP if target == NEIGHBOUR else OTHER_GROUP
        downlinks = [0, 1, 2, 3, 7, 15, 31, 63, 127, 255, 511, 1022]
        host_nic.check(
            *(chosen(write(host_address(group, d), EV_CHOSEN | EV), EV) for d in downlinks)
        )

    def test_longest_prefix_of_the_destination(self, host_nic: Bench) -> None:
        # One host of the other group is reached like a neighbour.
        prefix, _ = group_prefix(OTHER_GROUP)
        special = prefix | 4
        template = t0_local_carrier(BLOCK, 0, GROUP, 0)
        exception = entry(
            "destinations",
            {"dst_addr": f"{address_text(special)}/128"},
            P4TableAction("t0_local", template=template, group_id=SPRAY_GROUP),
        )
        host_nic.device.insert(exception)
        packet = write(special, EV_CHOSEN | EV)
        expected = expected_frame(packet, EV)
        turned = t0_local_carrier(BLOCK, EV >> 13, GROUP, 3).to_bytes(16, "big")
        host_nic.check(
            Forward(
                HOST_PORT,
                from_host(packet),
                plane_port(EV),
                expected[: 14 + 24] + turned + expected[14 + 40 :],
            ),
            chosen(write(PEER, EV_CHOSEN | EV), EV),
        )


class TestEvChosen:
    """Flow label [19:16] = 0xE chooses; every other value leaves the choice to the NIC."""

    def test_needs_no_spray_group(self, host_nic: Bench) -> None:
        host_nic.check(chosen(write(), EV))

    def test_plane_that_is_not_in_any_set(self, host_nic: Bench) -> None:
        host_nic.device.insert(
            *plane_set([0]),
            group_cfg(SPRAY_GROUP, 1, random=False),
            *slots(SPRAY_GROUP, {0: [path_ev(0, 0)]}),
        )
        host_nic.check(chosen(write(flow_label=EV_CHOSEN | EV), EV))

    def test_every_other_mark_is_sprayed(self, host_nic: Bench) -> None:
        only = path_ev(2, 33, 1)
        host_nic.device.insert(
            *plane_set([2]),
            group_cfg(SPRAY_GROUP, 1, random=False),
            *slots(SPRAY_GROUP, {2: [only]}),
        )
        fates = [
            chosen(write(flow_label=mark << 16 | EV), EV if mark == 0xE else only)
            for mark in range(16)
        ]
        host_nic.check(*fates)


class TestHostsOwnCarrier:
    """A packet that the host encapsulated goes out unchanged on the plane of its first uSID."""

    @pytest.mark.parametrize("plane", PLANES)
    def test_self_probes(self, host_nic: Bench, plane: int) -> None:
        port = nic_plane_port(plane)
        fates = []
        for probe in (
            t0_local_carrier(BLOCK, plane, GROUP, DOWNLINK),
            t1_probe_carrier(BLOCK, plane, GROUP, 1023, DOWNLINK),
        ):
            inner = mrc(Opcode.ENDPOINT_REQUEST, HOST, HOST, flow_label=0x1234)
            packet = ipv6(
                HOST,
                probe,
                inner,
                NEXT_HEADER_IPV6,
                dscp=46,
                ecn=1,
                flow_label=0xEABCD,
                hop_limit=3,
            )
            fates.append(
                Forward(HOST_PORT, from_host(packet), port, ethernet(leaving(port), packet))
            )
        host_nic.check(*fates)

    def test_other_blocks_are_destinations(self, host_nic: Bench) -> None:
        packet = ipv6(HOST, carrier(BLOCK + 1, 0x2405), b"", NEXT_HEADER_IPV6)
        host_nic.drops(HOST_PORT, from_host(packet), DropReason.NO_DESTINATION)


class TestDrops:
    """What cannot be sent is dropped and counted by reason."""

    def test_no_destination(self, host_nic: Bench) -> None:
        stranger = host_address(OTHER_GROUP + 1, 0)
        host_nic.check(
            Drop(HOST_PORT, from_host(write(stranger)), DropReason.NO_DESTINATION),
            Drop(HOST_PORT, from_host(write(stranger, 0)), DropReason.NO_DESTINATION),
        )

    def test_no_group(self, host_nic: Bench) -> None:
        host_nic.drops(HOST_PORT, from_host(write(flow_label=0)), DropReason.NO_GROUP)

    def test_no_plane_set(self, host_nic: Bench) -> None:
        host_nic.device.insert(group_cfg(SPRAY_GROUP, 1, random=False))
        host_nic.drops(HOST_PORT, from_host(write(flow_label=0)), DropReason.NO_LIVE_PLANE)

    def test_no_slot(self, host_nic: Bench) -> None:
        host_nic.device.insert(*plane_set([0]), group_cfg(SPRAY_GROUP, 1, random=False))
        host_nic.drops(HOST_PORT, from_host(write(flow_label=0)), DropReason.NO_SLOT)

    def test_no_slot_of_this_generation(self, host_nic: Bench) -> None:
        host_nic.device.insert(
            *plane_set([0]),
            *slots(SPRAY_GROUP, {0: [path_ev(0, 0)]}, generation=0),
            group_cfg(SPRAY_GROUP, 1, generation=1, random=False),
        )
        host_nic.drops(HOST_PORT, from_host(write(flow_label=0)), DropReason.NO_SLOT)

    def test_no_link_of_the_chosen_plane(self, nic: Bench) -> None:
        nic.device.insert(cross_t1(), link(nic_plane_port(0)))
        there, gone = path_ev(0, 9), path_ev(1, 9)
        nic.check(
            chosen(write(flow_label=EV_CHOSEN | there), there),
            Drop(HOST_PORT, from_host(write(flow_label=EV_CHOSEN | gone)), DropReason.NO_LINK),
        )

    def test_no_link_of_the_hosts_carrier(self, nic: Bench) -> None:
        nic.device.insert(locator_block(), link(nic_plane_port(0)))
        packet = ipv6(HOST, t0_local_carrier(BLOCK, 1, GROUP, DOWNLINK), b"", NEXT_HEADER_IPV6)
        nic.drops(HOST_PORT, from_host(packet), DropReason.NO_LINK)

    def test_empty_tables(self, nic: Bench) -> None:
        nic.drops(HOST_PORT, from_host(write()), DropReason.NO_DESTINATION)

    @pytest.mark.parametrize("ether_type", [0x0800, 0x0806, 0x8100, 0x88CC])
    def test_not_ipv6(self, host_nic: Bench, ether_type: int) -> None:
        frame = ethernet(arriving(HOST_PORT), bytes(46), ether_type)
        host_nic.drops(HOST_PORT, frame, DropReason.NOT_IPV6)

    @pytest.mark.parametrize("version", [0, 4, 5, 7, 15])
    def test_another_version(self, host_nic: Bench, version: int) -> None:
        packet = ipv6(HOST, PEER, b"", NO_NEXT_HEADER, version=version)
        host_nic.drops(HOST_PORT, from_host(packet), DropReason.NOT_IPV6)


def test_every_entry_counts_its_packets_and_bytes(host_nic: Bench) -> None:
    only = path_ev(2, 33)
    spraying = [
        *plane_set([2]),
        group_cfg(SPRAY_GROUP, 1, random=False),
        *slots(SPRAY_GROUP, {2: [only]}),
    ]
    host_nic.device.insert(*spraying)
    packet = write(flow_label=0)
    frame = from_host(packet)
    sprayed = Forward(HOST_PORT, frame, plane_port(only), expected_frame(packet, only))
    probe = ipv6(HOST, t0_local_carrier(BLOCK, 4, GROUP, DOWNLINK), b"", NEXT_HEADER_IPV6)
    own = from_host(probe)
    host_nic.check(
        *[sprayed] * 3,
        Forward(HOST_PORT, own, nic_plane_port(4), ethernet(leaving(nic_plane_port(4)), probe)),
    )
    three = Count(3, 3 * len(frame))
    used = [cross_t1(), *spraying, link(plane_port(only))]
    assert [host_nic.device.hits(item) for item in used] == [three] * len(used)
    assert host_nic.device.hits(locator_block()) == Count(1, len(own))
    assert host_nic.device.hits(link(nic_plane_port(4))) == Count(1, len(own))
    unused = [t0_local(), own_address(), link(HOST_PORT), link(nic_plane_port(0))]
    assert [host_nic.device.hits(item) for item in unused] == [Count(0, 0)] * len(unused)
