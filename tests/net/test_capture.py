# SPDX-License-Identifier: Apache-2.0
"""Taps on wires: every packet that one end sends, when it was sent, and what is in it."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from mrc.headers import Bth, Ethernet, Ipv6, Meth, Reth, Udp
from mrc.opcodes import Opcode
from topologies.experiments.capture import Capture, CaptureError
from topologies.netns import Namespace
from topologies.wires import End, Wires

pytestmark = pytest.mark.net

LEFT = End("left", "left-eth1", "02:00:00:00:00:01", 4600)
RIGHT = End("right", "right-eth2", "02:00:00:00:00:02", 4600)
HERE = socket.inet_pton(socket.AF_INET6, "fd4d:5243::3:5")
THERE = socket.inet_pton(socket.AF_INET6, "fd4d:5243::4:1")
CARRIER = socket.inet_pton(socket.AF_INET6, "fcbb:bb00:2400:4401:2401:6400::")


@pytest.fixture
def wires() -> Iterator[Wires]:
    made = Wires([(LEFT, RIGHT)])
    try:
        yield made
    finally:
        made.close()


def frame(psn: int, *, rtx: int = 0, outer: bool = False, next_header: int = 17) -> bytes:
    inner = Ipv6(
        flow_label=0x2009, next_header=next_header, source=HERE, destination=THERE
    ).pack() + b"".join(
        header.pack()
        for header in (
            Udp(source_port=0xC000),
            Bth(opcode=Opcode.WRITE_MIDDLE, dqp=0x123456, psn=psn, rtx=rtx),
            Meth(),
            Reth(),
        )
    )
    around = Ipv6(next_header=41, source=HERE, destination=CARRIER).pack() if outer else b""
    return Ethernet(bytes(6), bytes(6)).pack() + around + inner + bytes(300)


def test_what_an_end_sends_is_captured_with_its_time_and_the_rest_is_not(wires: Wires) -> None:
    here = Namespace.current()
    with (
        here.open_socket(socket.AF_PACKET, socket.SOCK_RAW) as left,
        here.open_socket(socket.AF_PACKET, socket.SOCK_RAW) as right,
    ):
        left.bind((LEFT.interface, 0))
        right.bind((RIGHT.interface, 0))
        with Capture(wires, [RIGHT.interface, LEFT.interface]) as capture:
            assert len(capture.packets()) == 0
            began = time.monotonic()
            left.send(frame(1))
            between = time.monotonic()
            left.send(frame(0xFFFFFF, rtx=1, outer=True))
            right.send(frame(3))
            left.send(frame(4, next_header=58))
            ended = time.monotonic()
            packets = capture.packets()
    here.close()
    assert packets.end.tolist() == [1, 1, 0]
    assert packets.psn.tolist() == [1, 0xFFFFFF, 3]
    assert packets.rtx.tolist() == [False, True, False]
    assert set(packets.qp.tolist()) == {0x123456}
    assert set(packets.path_ev.tolist()) == {0x2009}
    assert set(packets.opcode.tolist()) == {Opcode.WRITE_MIDDLE}
    assert set(packets.src.tolist()) == {3 << 16 | 4}
    assert set(packets.dst.tolist()) == {4 << 16 | 0}
    # Time stamps are of another clock, which is set against ours to a fraction of a millisecond.
    first, second, third = packets.at_s.tolist()
    assert began - 0.001 <= first <= between + 0.001 <= second + 0.002
    assert second <= third <= ended + 0.001


def test_many_packets_are_all_there(wires: Wires) -> None:
    here = Namespace.current()
    with here.open_socket(socket.AF_PACKET, socket.SOCK_RAW) as left:
        left.bind((LEFT.interface, 0))
        with Capture(wires, [LEFT.interface]) as capture:
            for number in range(3000):
                left.send(frame(number))
                if number == 1000:
                    capture.drain()
            packets = capture.packets()
    here.close()
    assert packets.psn.tolist() == list(range(3000))


def test_an_interface_that_is_no_wires_end_is_refused(wires: Wires) -> None:
    with pytest.raises(CaptureError, match="no wire ends in nobody-eth1"):
        Capture(wires, [LEFT.interface, "nobody-eth1"])


def test_packets_that_the_kernel_had_no_room_for_are_not_passed_over(
    wires: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topologies.experiments.capture._BUFFER_BYTES", 4096)
    here = Namespace.current()
    with here.open_socket(socket.AF_PACKET, socket.SOCK_RAW) as left:
        left.bind((LEFT.interface, 0))
        with Capture(wires, [LEFT.interface]) as capture:
            for number in range(100):
                left.send(frame(number))
            with pytest.raises(CaptureError, match=f"packets on {LEFT.interface} not captured"):
                capture.packets()
    here.close()
