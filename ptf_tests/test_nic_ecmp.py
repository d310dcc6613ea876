# SPDX-License-Identifier: Apache-2.0
"""nic.p4: the ECMP baseline: no carrier, one plane per flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter

import pytest
from finsy import P4TableAction

from controller.addressing import host_address, nic_plane_port, path_ev
from controller.drops import DropReason
from mrc.opcodes import Opcode
from ptf_tests import packets
from ptf_tests.bench import Bench, Forward
from ptf_tests.hashes import crc32_of
from ptf_tests.nic_world import (
    EV_CHOSEN,
    HOST,
    HOST_PORT,
    OTHER_GROUP,
    PEER,
    PLANE_SET,
    PLANES,
    PORTS,
    destination,
    from_host,
    leaving,
    link,
    plane_set,
    set_down_planes,
)
from ptf_tests.packets import (
    NEXT_HEADER_ICMPV6,
    NEXT_HEADER_TCP,
    NEXT_HEADER_UDP,
    ethernet,
    mrc,
    with_flow_label,
)

FLOWS = 256
TO_ECMP = destination(OTHER_GROUP, P4TableAction("ecmp", plane_set=PLANE_SET))


@pytest.fixture
def ecmp(nic: Bench) -> Bench:
    """All eight planes; also with plane 2 down."""
    nic.device.insert(TO_ECMP, *map(link, PORTS), *plane_set([*PLANES], [0, 0b100]))
    return nic


flow = partial(packets.flow, source=HOST, destination=PEER)


def sent_plain(packet: bytes, plane: int) -> bytes:
    """What leaves: the packet itself, the plane in its flow label."""
    marked = with_flow_label(packet, path_ev(plane, 0))
    return ethernet(leaving(nic_plane_port(plane)), marked)


def planes_of(bench: Bench, packets: Sequence[bytes]) -> dict[int, int]:
    """Number of packets by plane. Each left as it is, but for the flow label."""
    out = bench.spread(HOST_PORT, [from_host(packet) for packet in packets])
    counts = {port - nic_plane_port(0): len(frames) for port, frames in out.items()}
    for port, frames in out.items():
        plane = port - nic_plane_port(0)
        allowed = {sent_plain(packet, plane) for packet in packets}
        assert allowed.issuperset(frames)
    assert sum(counts.values()) == len(packets)
    return counts


@pytest.mark.parametrize("opcode", Opcode, ids=attrgetter("name"))
def test_every_opcode_is_sent_without_a_carrier(ecmp: Bench, opcode: Opcode) -> None:
    assert len(planes_of(ecmp, [mrc(opcode, HOST, PEER)] * 3)) == 1


def test_one_flow_stays_on_one_plane(ecmp: Bench) -> None:
    packets = [flow(text=bytes([n]) * n, dscp=n, hop_limit=n) for n in range(50)]
    assert len(planes_of(ecmp, packets)) == 1


def test_plane_is_the_crc32_of_the_flow(ecmp: Bench) -> None:
    # Ports, next header, flow label, destination, source: not fabric.p4's order.
    fates = []
    for n in range(128):
        label, port = n * 0x3C6EF & 0xDFFFF, 0xC000 + n * n  # never "EV chosen"
        fields = [
            (port, 16),
            (4791, 16),
            (NEXT_HEADER_UDP, 8),
            (label, 20),
            (PEER, 128),
            (HOST, 128),
        ]
        plane = crc32_of(fields) % len(PLANES)
        packet = flow(label=label, source_port=port)
        fates.append(
            Forward(HOST_PORT, from_host(packet), nic_plane_port(plane), sent_plain(packet, plane))
        )
    ecmp.check(*fates)


@pytest.mark.parametrize(
    "vary",
    [
        pytest.param(lambda n: flow(source=HOST + n), id="source address"),
        pytest.param(lambda n: flow(destination=PEER + n), id="destination address"),
        pytest.param(lambda n: flow(label=n), id="flow label"),
        pytest.param(lambda n: flow(source_port=0xC000 + n), id="UDP source port"),
        pytest.param(lambda n: flow(destination_port=4791 + n), id="UDP destination port"),
        pytest.param(lambda n: flow(source_port=n, kind=NEXT_HEADER_TCP), id="TCP source port"),
        pytest.param(lambda n: flow(label=n, kind=NEXT_HEADER_ICMPV6), id="ICMPv6 flow label"),
    ],
)
def test_flows_spread_over_all_planes(ecmp: Bench, vary: Callable[[int], bytes]) -> None:
    counts = planes_of(ecmp, [vary(n) for n in range(FLOWS)])
    # The hash is no random number, so no statistics: every plane gets at least half its share.
    assert sorted(counts) == [*PLANES]
    assert min(counts.values()) >= FLOWS / len(PLANES) / 2


def test_flow_without_ports_does_not_follow_its_predecessors(ecmp: Bench) -> None:
    icmp = flow(kind=NEXT_HEADER_ICMPV6, text=b"icmp")
    packets = [packet for n in range(100) for packet in (flow(source_port=n), icmp)]
    out = ecmp.spread(HOST_PORT, [from_host(packet) for packet in packets])
    with_icmp = [port for port, frames in out.items() if any(f[20] == 58 for f in frames)]
    assert len(with_icmp) == 1


def test_plane_that_is_down_is_avoided(ecmp: Bench) -> None:
    packets = [flow(source_port=0xC000 + n) for n in range(FLOWS)]
    set_down_planes(ecmp.device, 0b100)
    assert sorted(planes_of(ecmp, packets)) == [0, 1, 3, 4, 5, 6, 7]
    set_down_planes(ecmp.device, 0)
    assert sorted(planes_of(ecmp, packets)) == [*PLANES]


def test_all_planes_down(ecmp: Bench) -> None:
    set_down_planes(ecmp.device, 0xFF)
    ecmp.drops(HOST_PORT, from_host(flow()), DropReason.NO_LIVE_PLANE)


def test_no_plane_set(nic: Bench) -> None:
    nic.device.insert(TO_ECMP, *map(link, PORTS))
    nic.drops(HOST_PORT, from_host(flow()), DropReason.NO_LIVE_PLANE)


def test_no_destination(ecmp: Bench) -> None:
    packet = flow(destination=host_address(OTHER_GROUP + 1, 0))
    ecmp.drops(HOST_PORT, from_host(packet), DropReason.NO_DESTINATION)


def test_chosen_ev_still_chooses_the_plane(ecmp: Bench) -> None:
    # The destination decides that there is no carrier; plane and flow label are the host's choice.
    fates = []
    for plane in PLANES:
        ev, port = path_ev(plane, 77, 5), nic_plane_port(plane)
        expected = ethernet(leaving(port), mrc(Opcode.WRITE_ONLY, HOST, PEER, flow_label=ev))
        packet = mrc(Opcode.WRITE_ONLY, HOST, PEER, flow_label=EV_CHOSEN | ev)
        fates.append(Forward(HOST_PORT, from_host(packet), port, expected))
    ecmp.check(*fates)
