# SPDX-License-Identifier: Apache-2.0
"""fabric.p4: queues that really fill, because the port is slower than what comes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from controller.drops import DropReason
from mrc.opcodes import Opcode
from ptf_tests.bench import Counters
from ptf_tests.packets import ETHERNET_BYTES
from ptf_tests.queues import CONTROL, DATA, Queued
from ptf_tests.test_fabric_trim import WAYS, arrived, data, left
from ptf_tests.world import (
    CAPACITY,
    CODE_POINTS,
    ECN_MAX,
    ECN_MIN,
    TRIM,
    UPLINK,
    port_to_switch,
)

RATE = 20  # packets/s: a burst is over before many packets leave
UNHINDERED = 1_000_000
PATIENCE_S = 10.0
DSCP_AT = ETHERNET_BYTES
TRIMMED_BYTES = 122


@pytest.fixture
def slow(queued: Queued) -> Iterator[Queued]:
    """The uplink's data queue is slow, its control queue is not."""
    queued.control.set_rate(UPLINK, RATE, DATA)
    queued.control.set_rate(UPLINK, UNHINDERED, CONTROL)
    yield queued
    deadline = time.monotonic() + PATIENCE_S
    while queued.control.depth(UPLINK) and time.monotonic() < deadline:
        time.sleep(0.02)
    queued.control.set_rate(UPLINK, UNHINDERED, DATA)


def burst(queued: Queued, *packets: bytes) -> float:
    """Send hosts' packets to the uplink at once; when that began."""
    started = time.monotonic()
    for packet in packets:
        queued.bench.send(WAYS[UPLINK][0], arrived(UPLINK, packet))
    return started


def gone_since(started: float) -> int:
    """How many packets may have left a slow queue; tests need this to be a few."""
    gone = 2 + int((time.monotonic() - started) * RATE)
    assert gone < 15, "this machine is too busy for a queue to fill"
    return gone


def settle(queued: Queued, before: Counters, sent: int) -> dict[str, int]:
    """Counters' growth, by name, when everything that was sent is in a queue, out or dropped."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        grown = {
            name: sum(
                now.packets - before[cell].packets
                for cell, now in queued.bench.counters().items()
                if cell[0] == name
            )
            for name in ("port_in", "drops", "trim_packets", "dropped_trim_packets")
        }
        if grown["port_in"] == sent:
            return grown
        time.sleep(0.005)
    raise AssertionError(f"{sent} packets sent, counted: {grown}")


def dscp(frame: bytes) -> int:
    """Of the outer header."""
    return (frame[DSCP_AT] << 8 | frame[DSCP_AT + 1]) >> 6 & 0x3F


def ecn(frame: bytes) -> int:
    """Of the outer header."""
    return frame[DSCP_AT + 1] >> 4 & 3


def numbered(count: int, *, dscp: int = CODE_POINTS.trimmable, ecn: int = 0) -> list[bytes]:
    """Packets that differ in their payload."""
    return [data(dscp, payload=bytes([number]) * 200, ecn=ecn) for number in range(count)]


def test_fills_marks_trims_and_loses_nothing(slow: Queued) -> None:
    sent = CAPACITY + 10
    packets = numbered(sent, ecn=2)
    before = slow.bench.counters()
    started = burst(slow, *packets)
    grown = settle(slow, before, sent)
    depth = slow.control.depth(UPLINK)
    gone = gone_since(started)
    assert TRIM - gone <= depth <= TRIM, "the queue filled up to the threshold"
    out = [frame for port, frame in slow.bench.receive(sent) if port == UPLINK]
    assert len(out) == sent
    headers = [frame for frame in out if dscp(frame) == CODE_POINTS.trimmed]
    assert len(headers) == grown["trim_packets"] >= sent - TRIM - gone
    assert grown["drops"] == 0
    # Headers left at once, before the data that was sent before them.
    first = out.index(headers[0])
    assert first <= gone
    assert out[first : first + len(headers)] == headers
    whole = [frame for frame in out if dscp(frame) == CODE_POINTS.trimmable]
    # In order; the n-th found about n packets in front of it.
    assert [frame[-5] for frame in whole] == sorted(frame[-5] for frame in whole)
    assert not any(ecn(frame) == 3 for frame in whole[:ECN_MIN])
    assert all(ecn(frame) == 3 for frame in whole[ECN_MAX + gone :])
    assert slow.control.depth(UPLINK) == 0
    slow.bench.expect_nothing()


def test_control_overtakes_data(slow: Queued) -> None:
    waiting = numbered(ECN_MAX)
    control = data(CODE_POINTS.control, opcode=Opcode.SACK)
    before = slow.bench.counters()
    started = burst(slow, *waiting)
    settle(slow, before, len(waiting))
    assert slow.control.depth(UPLINK) > 2, "the queue filled"
    burst(slow, control)
    gone = gone_since(started)
    out = [frame for _, frame in slow.bench.receive(len(waiting) + 1)]
    position = out.index(left(UPLINK, control))
    assert position <= gone < len(waiting) - 1
    assert [frame for frame in out if frame != left(UPLINK, control)] == [
        left(UPLINK, packet) for packet in waiting
    ]


def test_no_trim_is_dropped_at_the_capacity_and_counted(slow: Queued) -> None:
    sent = CAPACITY + 20
    packets = numbered(sent, dscp=CODE_POINTS.no_trim)
    before = slow.bench.counters()
    started = burst(slow, *packets)
    grown = settle(slow, before, sent)
    depth = slow.control.depth(UPLINK)
    gone = gone_since(started)
    assert CAPACITY - gone <= depth <= CAPACITY, "the queue was full"
    assert sent - CAPACITY - gone <= grown["drops"] <= sent - CAPACITY
    assert grown["trim_packets"] == 0
    out = [frame for _, frame in slow.bench.receive(sent - grown["drops"])]
    assert out[:CAPACITY] == [left(UPLINK, packet) for packet in packets[:CAPACITY]]
    changes = slow.bench.counters()
    for cell in (("drops", int(DropReason.TAIL_DROP)), ("dropped_packets", UPLINK)):
        assert changes[cell].packets - before[cell].packets == grown["drops"]
    slow.bench.expect_nothing()


def test_trimmed_packets_are_dropped_where_control_is_full_and_counted(slow: Queued) -> None:
    slow.control.set_rate(UPLINK, RATE, CONTROL)
    slow.bench.device.modify(port_to_switch(packet_trim_threshold=0, capacity=8))
    sent = 20
    before = slow.bench.counters()
    started = burst(slow, *numbered(sent))
    grown = settle(slow, before, sent)
    depth = slow.control.depth(UPLINK, CONTROL)
    gone = gone_since(started)
    assert 8 - gone <= depth <= 8, "the control queue was full"
    assert slow.control.depth(UPLINK) == 0
    assert grown["trim_packets"] == sent
    assert sent - 8 - gone <= grown["drops"] == grown["dropped_trim_packets"] <= sent - 8
    out = slow.bench.receive(sent - grown["drops"])
    assert all(len(frame) == TRIMMED_BYTES for _, frame in out)
    slow.bench.expect_nothing()
