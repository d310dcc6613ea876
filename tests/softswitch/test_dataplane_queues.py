# SPDX-License-Identifier: Apache-2.0
"""Egress queues: depth, rate and priority of each, changed while packets flow."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from softswitch.dataplane import Dataplane
from softswitch.errors import InvalidArgument
from softswitch.values import DataplaneOptions, PacketIn, QueueSetting
from tests.softswitch.dataplanes import field, probe, program

# The program sends to port `x` (three bits), so the CPU port's number has to be small.
PORT = 5
LOW, HIGH = 0, 3  # `op` of a packet; 3 has priority 1
TIMEOUT_S = 5.0


@pytest.fixture
def dataplane() -> Iterator[Dataplane]:
    """A running switch whose packets come back from the queues of the CPU port."""
    dataplane = Dataplane(DataplaneOptions(cpu_port=PORT, priority_queues=2))
    try:
        dataplane.load(program("intrinsic"))
        dataplane.start()
        yield dataplane
    finally:
        dataplane.close()


def send(dataplane: Dataplane, number: int, op: int = LOW) -> None:
    dataplane.packet_out(probe(op=op, x=PORT, i=number))


def received(dataplane: Dataplane, count: int, timeout_s: float = TIMEOUT_S) -> list[bytes]:
    """The next `count` packets, or those that came in time."""
    packets: list[bytes] = []
    end = time.monotonic() + timeout_s
    while len(packets) < count and (left := end - time.monotonic()) > 0:
        event = dataplane.next_event(left)
        if isinstance(event, PacketIn):
            packets.append(event.data)
    return packets


def numbers(packets: list[bytes]) -> list[int]:
    return [field(packet, "i") for packet in packets]


def until_waiting(dataplane: Dataplane, count: int, priority: int = 0) -> None:
    """The thread has taken over what was sent."""
    end = time.monotonic() + TIMEOUT_S
    while dataplane.queue(PORT, priority).waiting != count:
        assert time.monotonic() < end, dataplane.queue(PORT, priority)
        time.sleep(0.001)


def test_high_priority_overtakes(dataplane: Dataplane) -> None:
    dataplane.set_queue(QueueSetting(PORT, 0, rate=10))
    for number in range(4):
        send(dataplane, number)
    until_waiting(dataplane, 3)  # the first was due at once
    for number in range(100, 103):
        send(dataplane, number, HIGH)
    assert numbers(received(dataplane, 7)) == [0, 100, 101, 102, 1, 2, 3]


def test_each_priority_has_its_own_rate(dataplane: Dataplane) -> None:
    dataplane.set_queue(QueueSetting(PORT, 1, rate=2))
    for number in range(3):
        send(dataplane, number, HIGH)
    until_waiting(dataplane, 2, priority=1)
    for number in range(100, 104):
        send(dataplane, number)
    # A queue that waits for its time does not hold up a lower one.
    assert numbers(received(dataplane, 7)) == [0, 100, 101, 102, 103, 1, 2]


def test_rate_spaces_packets(dataplane: Dataplane) -> None:
    dataplane.set_queue(QueueSetting(PORT, rate=50))
    started = time.monotonic()
    for number in range(11):
        send(dataplane, number)
    assert numbers(received(dataplane, 11)) == list(range(11))
    assert time.monotonic() - started >= 10 / 50


def test_tail_drop_and_depths(dataplane: Dataplane) -> None:
    dataplane.set_queue(QueueSetting(PORT, 0, depth=4, rate=5))
    send(dataplane, 0)
    assert numbers(received(dataplane, 1)) == [0]
    for number in range(1, 10):
        send(dataplane, number)
    end = time.monotonic() + TIMEOUT_S
    while dataplane.queue(PORT, 0).dropped < 5:
        assert time.monotonic() < end
        time.sleep(0.001)
    state = dataplane.queue(PORT, 0)
    assert (state.waiting, state.depth, state.rate, state.dropped) == (4, 4, 5, 5)
    packets = received(dataplane, 4)
    assert numbers(packets) == [1, 2, 3, 4]
    # enq_qdepth and deq_qdepth, as the program copies them into the source address.
    assert [packet[11] for packet in packets] == [0, 1, 2, 3]
    assert [packet[10] for packet in packets] == [3, 2, 1, 0]
    assert dataplane.queue(PORT, 1).dropped == 0


def test_taking_the_rate_away_releases_what_waits(dataplane: Dataplane) -> None:
    dataplane.set_queue(QueueSetting(rate=1))
    for number in range(6):
        send(dataplane, number)
    until_waiting(dataplane, 5)
    dataplane.set_queue(QueueSetting(rate=0))
    assert numbers(received(dataplane, 6, timeout_s=3)) == list(range(6))
    assert dataplane.queue(PORT, 0).rate == 0


def test_a_rate_for_all_ports_holds_for_those_that_come(dataplane: Dataplane) -> None:
    dataplane.set_queue(QueueSetting(depth=7, rate=1000))
    state = dataplane.queue(PORT + 1, 1)
    assert (state.waiting, state.depth, state.rate, state.dropped) == (0, 7, 1000, 0)


def test_reading_a_queue_that_cannot_be(dataplane: Dataplane) -> None:
    with pytest.raises(InvalidArgument, match="port 65536; allowed: 0 to 65535"):
        dataplane.queue(65536, 0)
    with pytest.raises(InvalidArgument, match="priority 2; allowed: 0 to 1"):
        dataplane.queue(PORT, 2)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (QueueSetting(PORT, 2, rate=1), "priority 2; allowed: 0 to 1"),
        (QueueSetting(None, 1, rate=1), "belongs to one port"),
        (QueueSetting(65536, rate=1), "port 65536; allowed: 0 to 65535"),
        (QueueSetting(PORT, depth=0), "queue depth 0; allowed: 1 to"),
        (QueueSetting(PORT, rate=-1), "queue rate -1; allowed: 0 to"),
    ],
)
def test_bad_settings(dataplane: Dataplane, setting: QueueSetting, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        dataplane.set_queue(setting)
