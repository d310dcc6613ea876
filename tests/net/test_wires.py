# SPDX-License-Identifier: Apache-2.0
"""Wires: what goes in comes out, and each fault looks as it should from both ends."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator

import pytest

from topologies.netns import Namespace, NetnsError
from topologies.wires import End, Fault, WireError, Wires

pytestmark = pytest.mark.net

ETHER_TYPE = 0x88B5  # IEEE 802: local experimental, so that nothing else answers
MTU = 4500
LEFT = End("left", "left-eth1", "02:00:00:00:00:01", MTU)
RIGHT = End("right", "right-eth2", "02:00:00:00:00:02", MTU)
OTHER = End("other", "other-eth3", "02:00:00:00:00:03", MTU)
LAST = End("last", "last-eth4", "02:00:00:00:00:04", MTU)
WIRE = "left|right"


@pytest.fixture
def wires() -> Iterator[Wires]:
    """Two wires: left - right, other - last."""
    made = Wires([(LEFT, RIGHT), (OTHER, LAST)])
    yield made
    made.close()


def tap(end: End) -> socket.socket:
    """A raw socket as a switch opens it."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHER_TYPE))
    opened.bind((end.interface, ETHER_TYPE))
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    opened.settimeout(0.2)
    return opened


def frame(number: int, source: End = LEFT, target: End = RIGHT, size: int = 64) -> bytes:
    """A numbered frame."""
    addresses = bytes.fromhex(target.mac.replace(":", "") + source.mac.replace(":", ""))
    head = addresses + ETHER_TYPE.to_bytes(2, "big") + number.to_bytes(4, "big")
    return head.ljust(size, b"\x5a")


def send(end: socket.socket, frames: list[bytes]) -> None:
    """Send as a switch does: on a full or closed queue the packet is lost and the next one goes."""
    for item in frames:
        try:
            end.send(item)
        except OSError as error:
            assert error.errno in (100, 105), error  # ENETDOWN, ENOBUFS


def received(end: socket.socket) -> list[bytes]:
    """All that comes until nothing has come for a while."""
    frames = []
    while True:
        try:
            frames.append(end.recv(65536))
        except TimeoutError:
            return frames


def test_carries_every_frame_both_ways_whatever_its_addresses(wires: Wires) -> None:
    # The same source address from both sides would confuse a bridge that learns.
    forth = [frame(number, LEFT, RIGHT) for number in range(100)]
    back = [frame(number, LEFT, RIGHT) for number in range(100, 200)]
    with tap(LEFT) as left, tap(RIGHT) as right, tap(OTHER) as other:
        for one, another in zip(forth, back, strict=True):
            left.send(one)
            right.send(another)
        assert received(right) == forth
        assert received(left) == back
        assert received(other) == []


def test_carries_the_largest_packet_and_no_larger(wires: Wires) -> None:
    with tap(LEFT) as left, tap(RIGHT) as right:
        largest = frame(1, size=14 + MTU)
        left.send(largest)
        assert received(right) == [largest]
        with pytest.raises(OSError, match="too long"):
            left.send(frame(2, size=14 + MTU + 5))  # 4 bytes are left for a VLAN tag


def test_kernel_sends_nothing_of_its_own(wires: Wires) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as everything:
        everything.settimeout(2.0)  # router solicitations and MLD reports come within a second
        with pytest.raises(TimeoutError):
            everything.recv(65536)


def test_cut_is_carrier_loss_at_both_ends_only(wires: Wires) -> None:
    here = Namespace.current()
    # The kernel tells of a new carrier up to a second late.
    deadline = time.monotonic() + 10
    while not all(here.is_running(end.interface) for end in (LEFT, RIGHT, OTHER, LAST)):
        assert time.monotonic() < deadline, "no carrier before the cut"
        time.sleep(0.01)
    started = time.monotonic()
    wires.cut(WIRE)
    took = time.monotonic() - started
    assert wires.faults == {WIRE: Fault.CUT, "other|last": Fault.NONE}
    assert [here.is_running(end.interface) for end in (LEFT, RIGHT, OTHER, LAST)] == [
        False,
        False,
        True,
        True,
    ]
    for end in (LEFT, RIGHT):
        shown = here.run(["ip", "link", "show", "dev", end.interface])
        flags = re.findall(r"<(.*?)>", shown)[0].split(",")
        assert "UP" in flags, "the switch's own interface was touched"
        assert "NO-CARRIER" in flags
    assert took < 0.5, "the kernel reports such a loss at once"
    with tap(LEFT) as left, tap(RIGHT) as right, tap(OTHER) as other, tap(LAST) as last:
        send(left, [frame(1)])
        other.send(frame(2, OTHER, LAST))
        assert received(right) == []
        assert received(last) == [frame(2, OTHER, LAST)]
    here.close()


def test_nothing_is_lost_after_restoring(wires: Wires) -> None:
    with tap(LEFT) as left, tap(RIGHT) as right:
        expected = []
        for turn in range(20):
            wires.cut(WIRE)
            send(left, [frame(1_000_000 + turn)])
            wires.restore(WIRE)
            for number in range(turn * 50, turn * 50 + 50):
                left.send(frame(number))
                expected.append(frame(number))
        assert received(right) == expected
        assert wires.faults[WIRE] is Fault.NONE


def test_black_hole_swallows_both_ways_and_keeps_carrier(wires: Wires) -> None:
    here = Namespace.current()
    wires.blackhole(WIRE)
    with tap(LEFT) as left, tap(RIGHT) as right, tap(OTHER) as other, tap(LAST) as last:
        assert here.is_running(LEFT.interface)
        assert here.is_running(RIGHT.interface)
        for number in range(50):
            left.send(frame(number))  # and no error: the sender cannot know
            right.send(frame(number))
            other.send(frame(number))
        assert received(left) == received(right) == []
        assert len(received(last)) == 50
        wires.restore(WIRE)
        left.send(frame(50))
        right.send(frame(51))
        assert received(right) == [frame(50)]
        assert received(left) == [frame(51)]
    here.close()


@pytest.mark.parametrize("percent", [1.0, 20.0])
def test_loss_is_as_large_as_asked_for_in_each_direction(wires: Wires, percent: float) -> None:
    count = 20_000
    wires.loss(WIRE, percent)
    with tap(LEFT) as left, tap(RIGHT) as right:
        for sender, receiver in ((left, right), (right, left)):
            lost = count
            for start in range(0, count, 2000):
                for number in range(start, start + 2000):
                    sender.send(frame(number))
                lost -= len(received(receiver))
            expected = count * percent / 100
            deviation = (expected * (1 - percent / 100)) ** 0.5
            assert abs(lost - expected) < 5 * deviation  # fails once in 1.7 million runs
        wires.restore(WIRE)
        for number in range(2000):
            left.send(frame(number))
        assert len(received(right)) == 2000


def test_faults_replace_each_other(wires: Wires) -> None:
    wires.cut(WIRE)
    wires.blackhole(WIRE)
    wires.loss(WIRE, 50)
    assert wires.faults[WIRE] is Fault.LOSS
    wires.cut(WIRE)
    wires.restore(WIRE)
    wires.restore(WIRE)
    assert wires.panel.run(["nft", "list", "table", "netdev", "mrc_fabric"]).count("chain") == 0
    with tap(LEFT) as left, tap(RIGHT) as right:
        left.send(frame(1))
        assert received(right) == [frame(1)]


@pytest.mark.parametrize("percent", [0, -1, 100.1, 0.00001])
def test_impossible_losses_are_refused(wires: Wires, percent: float) -> None:
    with pytest.raises(WireError, match="allowed: "):
        wires.loss(WIRE, percent)


def test_wires_are_found_by_their_devices(wires: Wires) -> None:
    assert wires.between("left", "right") == wires.between("right", "left") == WIRE
    with pytest.raises(WireError, match=r"between left and last; allowed: left\|right"):
        wires.between("left", "last")
    assert wires.of_device("left") == wires.of_device("right") == [WIRE]
    with pytest.raises(WireError, match="nobody has no wires; allowed: left, right"):
        wires.of_device("nobody")
    with pytest.raises(WireError, match="no wire nobody"):
        wires.cut("nobody")


def test_a_name_that_is_taken_is_reported_and_nothing_stays() -> None:
    here = Namespace.current()
    here.ip(["link add name last-eth4 type bridge"])
    try:
        with pytest.raises(NetnsError, match=r"File exists[\s\S]*last-eth4"):
            Wires([(LEFT, RIGHT), (OTHER, LAST)])
        assert "left-eth1" not in here.run(["ip", "-br", "link"])
    finally:
        here.ip(["link delete dev last-eth4"])
        here.close()


def test_closing_removes_everything_at_once() -> None:
    here = Namespace.current()
    before = here.run(["ip", "-br", "link"])
    cables = [
        (
            End(f"a{number}", f"a{number}-eth1", f"02:00:00:00:01:{number:02x}", MTU),
            End(f"b{number}", f"b{number}-eth1", f"02:00:00:00:02:{number:02x}", MTU),
        )
        for number in range(52)
    ]
    made = Wires(cables)
    assert here.run(["ip", "-br", "link"]).count("eth1") == 104
    made.close()
    assert here.run(["ip", "-br", "link"]) == before
    here.close()
