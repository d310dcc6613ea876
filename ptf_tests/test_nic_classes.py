# SPDX-License-Identifier: Apache-2.0
"""nic.p4: control and trimmed packets overtake data that waits for a port, in both directions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from controller.addressing import nic_plane_port, own_carrier, path_ev
from mrc.opcodes import Opcode
from ptf_tests.device import Count
from ptf_tests.nic_world import (
    DOWNLINK,
    EV_CHOSEN,
    HOST,
    HOST_PORT,
    PEER,
    arriving,
    cross_t1,
    expected_frame,
    from_host,
    group_cfg,
    leaving,
    peer,
    plane_set,
    slots,
    traffic_class,
)
from ptf_tests.packets import NEXT_HEADER_IPV6, ethernet, ipv6, mrc, trimmed
from ptf_tests.queues import CONTROL, DATA, Queued
from ptf_tests.test_nic_nack import OWN_QP, PEER_QP, carried, cut, nack
from ptf_tests.test_nic_nack import data as trimmable
from ptf_tests.world import BLOCK, CODE_POINTS

RATE, UNHINDERED = 4, 1_000_000  # packets/s
WAITING = 4
EV = path_ev(3, 7)
PLANE_PORT = nic_plane_port(3)
DATA_DSCPS = (CODE_POINTS.no_trim, CODE_POINTS.trimmable, CODE_POINTS.trimmable_retx, 33)


@pytest.fixture
def slow(queued_nic: Queued) -> Iterator[Queued]:
    """The data queues of the host's port and of one plane port are slow, their others are not."""
    for port in (HOST_PORT, PLANE_PORT):
        queued_nic.control.set_rate(port, RATE, DATA)
        queued_nic.control.set_rate(port, UNHINDERED, CONTROL)
    yield queued_nic
    for port in (HOST_PORT, PLANE_PORT):
        queued_nic.control.set_rate(port, UNHINDERED, DATA)


def sent(dscp: int, opcode: Opcode = Opcode.WRITE_ONLY) -> tuple[bytes, bytes]:
    """A host's packet, and the frame that must leave."""
    packet = mrc(opcode, HOST, PEER, dscp=dscp, flow_label=EV_CHOSEN | EV)
    return from_host(packet), expected_frame(packet, EV)


def received(packet: bytes) -> tuple[bytes, bytes]:
    """The frame that brings a packet, and the one that must go up."""
    outer = ipv6(PEER, own_carrier(BLOCK, 3, DOWNLINK), packet, NEXT_HEADER_IPV6)
    return ethernet(arriving(PLANE_PORT), outer), ethernet(leaving(HOST_PORT), packet)


def overtakes(
    slow: Queued,
    port_in: int,
    data: Sequence[tuple[bytes, bytes]],
    urgent: tuple[bytes, bytes],
    urgent_in: int | None = None,
) -> None:
    """The urgent packet comes last, from a plane or the host, and leaves before the data."""
    for frame, _ in data:
        slow.bench.send(port_in, frame)
    slow.bench.send(port_in if urgent_in is None else urgent_in, urgent[0])
    out = [frame for _, frame in slow.bench.receive(len(data) + 1)]
    # One is out before the queue is slow, and another may go while the urgent one is on its way.
    assert out.index(urgent[1]) <= 2
    out.remove(urgent[1])
    assert out == [frame for _, frame in data]


def test_control_from_the_host(slow: Queued) -> None:
    data = [sent(CODE_POINTS.trimmable)] * WAITING
    overtakes(slow, HOST_PORT, data, sent(CODE_POINTS.control, Opcode.SACK))


@pytest.mark.parametrize(
    "dscp", [CODE_POINTS.control, CODE_POINTS.trimmed, CODE_POINTS.trimmed_lasthop]
)
def test_control_to_the_host(slow: Queued, dscp: int) -> None:
    data = [received(mrc(Opcode.WRITE_ONLY, PEER, HOST, dscp=4))] * WAITING
    urgent = mrc(Opcode.SACK, PEER, HOST, dscp=dscp)
    if dscp != CODE_POINTS.control:
        urgent = trimmed(mrc(Opcode.WRITE_ONLY, PEER, HOST), dscp)
    overtakes(slow, PLANE_PORT, data, received(urgent))


def test_nack(slow: Queued, spray_group: int) -> None:
    device = slow.bench.device
    device.modify(cross_t1(spray_group))
    device.insert(
        peer(PEER, OWN_QP, PEER_QP),
        *plane_set([3]),
        *slots(spray_group, {3: [EV]}),
        group_cfg(spray_group, 1, random=False),
    )
    data = [sent(CODE_POINTS.trimmable)] * WAITING
    answer = carried(cut(trimmable())), expected_frame(nack(), EV)
    overtakes(slow, HOST_PORT, data, answer, nic_plane_port(6))


@pytest.mark.parametrize("dscp", DATA_DSCPS)
def test_all_else_is_data_and_stays_in_order(slow: Queued, dscp: int) -> None:
    data = [sent(CODE_POINTS.trimmable)] * 2
    last = sent(dscp, Opcode.SACK)
    for frame, _ in (*data, last):
        slow.bench.send(HOST_PORT, frame)
    assert [frame for _, frame in slow.bench.receive(3)] == [frame for _, frame in (*data, last)]


def test_every_entry_counts_its_packets(queued_nic: Queued) -> None:
    bench = queued_nic.bench
    frames = [sent(CODE_POINTS.control)[0], sent(CODE_POINTS.trimmable)[0]]
    for frame in frames:
        bench.send(HOST_PORT, frame)
    bench.receive(2)
    entry = traffic_class(CODE_POINTS.control, "control_class")
    assert bench.device.hits(entry) == Count(1, len(frames[0]))
