# SPDX-License-Identifier: Apache-2.0
"""Which packet left which interface when: taps on the wires, with the kernel's time stamps.

    with Capture(emulation.wires, ["n0-0-eth2", "n0-0-eth3"]) as capture:
        ...
        packets = capture.packets()

A tap listens at a wire's inner end, where it sees what the outer end has sent and nothing else. It
knows nothing of programs and counters, and tells the fate of each single packet.
"""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topologies.wires import Wires

_ETH_P_ALL = 0x0003
_SOL_PACKET, _PACKET_STATISTICS, _PACKET_IGNORE_OUTGOING = 263, 6, 23  # <linux/if_packet.h>
# <asm-generic/socket.h>; the control message of a time stamp has the option's number
_SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 33, 35
_TIMESPEC = struct.Struct("@ll")
# The kernel begins to stamp a moment after it was asked to, and gives packets that came before the
# time at which they are read.
_STAMPING_S = 0.2
_BUFFER_BYTES = 64 << 20  # seconds of packets, should nobody read for a while
_SNAP_BYTES = 128

# Offsets from the start of an Ethernet frame.
_OUTER, _IPV6_BYTES, _IN_IPV6, _UDP = 14, 40, 41, 17
WRITES = range(0xC6, 0xCC)
ENDPOINT_REQUEST, ENDPOINT_RESPONSE = ENDPOINT_OPS = (0xD8, 0xD9)


class CaptureError(Exception):
    """Packets that should have been captured were not; the message says how many and where."""


@dataclass(frozen=True)
class Packets:
    """MRC packets (N,), by time. `at_s` on the clock of time.monotonic().

    `end` numbers the interfaces in the order given; `src` and `dst` are hosts as (T0 group << 16 |
    downlink); `path_ev` is the low part of the inner flow label; `ports` is the mask of a port
    status update (bit p: plane p can be reached), -1 in all other packets.
    """

    at_s: NDArray[np.float64]
    end: NDArray[np.int64]
    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    path_ev: NDArray[np.int64]
    opcode: NDArray[np.int64]
    qp: NDArray[np.int64]
    psn: NDArray[np.int64]
    rtx: NDArray[np.bool_]
    ports: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.at_s)

    def where(self, mask: NDArray[np.bool_]) -> Packets:
        """Those of the packets that the mask names."""
        return Packets(*(getattr(self, name)[mask] for name in self.__dataclass_fields__))

    @property
    def key(self) -> NDArray[np.int64]:
        """Numbers (N,) that tell the transmissions of one pair of hosts apart, on any wire."""
        return self.qp << 25 | self.psn << 1 | self.rtx


class Capture:
    """Taps on what some interfaces send, from entering to leaving the context."""

    def __init__(self, wires: Wires, interfaces: Sequence[str]) -> None:
        """`interfaces` are outer ends of wires, as in `n0-0-eth2`. Raises CaptureError."""
        inner_of = {
            end.interface: inner
            for wire in wires.all.values()
            for end, inner in zip(wire.ends, wire.inner, strict=True)
        }
        unknown = [name for name in interfaces if name not in inner_of]
        if unknown:
            raise CaptureError(f"no wire ends in {', '.join(unknown)}")
        self.interfaces = tuple(interfaces)
        self._wires = wires
        self._inner = [inner_of[name] for name in interfaces]
        self._sockets: list[socket.socket] = []
        self._frames: list[bytes] = []
        self._stamps: list[int] = []
        self._ends: list[int] = []
        self._monotonic_ns = 0

    def __enter__(self) -> Capture:
        # Time stamps are of the wall clock.
        self._monotonic_ns = time.monotonic_ns() - time.time_ns()
        try:
            for inner in self._inner:
                self._sockets.append(self._tap(inner))
        except BaseException:
            self._close()
            raise
        time.sleep(_STAMPING_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def packets(self) -> Packets:
        """All MRC packets up to now. Raises CaptureError when the kernel had to let some go."""
        self.drain()
        for number, tap in enumerate(self._sockets):
            # Reading the statistics clears them: an error is said once.
            statistics = tap.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
            _, dropped = struct.unpack("II", statistics)
            if dropped:
                raise CaptureError(f"{dropped} packets on {self.interfaces[number]} not captured")
        return _decoded(self._frames, self._stamps, self._ends, self._monotonic_ns)

    def drain(self) -> None:
        """Take over what the kernel holds, to be called every few seconds."""
        for number, tap in enumerate(self._sockets):
            while True:
                try:
                    frame, control, _, _ = tap.recvmsg(_SNAP_BYTES, 64)
                except BlockingIOError:
                    break
                except OSError as error:
                    if error.errno != errno.ENETDOWN:  # said once, when the wire is cut
                        raise
                    continue
                seconds, nanoseconds = _TIMESPEC.unpack(control[0][2])
                self._frames.append(frame)
                self._stamps.append(seconds * 10**9 + nanoseconds)
                self._ends.append(number)

    def _tap(self, inner: str) -> socket.socket:
        # No protocol until it is bound: or it would take frames of all interfaces.
        tap = self._wires.panel.open_socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        tap.setblocking(False)
        tap.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        tap.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        tap.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        tap.bind((inner, _ETH_P_ALL))
        return tap

    def _close(self) -> None:
        for tap in self._sockets:
            tap.close()
        self._sockets.clear()


def _decoded(
    frames: Sequence[bytes], stamps: Sequence[int], ends: Sequence[int], monotonic_ns: int
) -> Packets:
    """Frames as arrays; what is no MRC packet (with or without an outer header) is left out."""
    if frames:
        padded = b"".join(frame.ljust(_SNAP_BYTES, b"\0") for frame in frames)
        data = np.frombuffer(padded, dtype=np.uint8).reshape(len(frames), _SNAP_BYTES)
    else:
        data = np.zeros((0, _SNAP_BYTES), dtype=np.uint8)
    encapsulated = data[:, _OUTER + 6] == _IN_IPV6
    inner = np.where(encapsulated, _OUTER + _IPV6_BYTES, _OUTER)
    rows = np.arange(len(data))

    def field(offset: int, size: int) -> NDArray[np.int64]:
        """An unsigned number of `size` bytes, `offset` behind the start of the inner header."""
        value = np.zeros(len(data), dtype=np.int64)
        for byte in range(size):
            value = value << 8 | data[rows, inner + offset + byte]
        return value

    bth = _IPV6_BYTES + 8
    order = np.argsort(np.array(stamps, dtype=np.int64), kind="stable")
    order = order[(field(6, 1) == _UDP)[order]]
    opcode = field(bth, 1)
    erth = bth + 12
    is_notice = (opcode == ENDPOINT_REQUEST) & (field(erth + 1, 1) & 3 == 0)
    return Packets(
        at_s=(np.array(stamps, dtype=np.int64)[order] + monotonic_ns) / 1e9,
        end=np.array(ends, dtype=np.int64)[order],
        src=(field(20, 2) << 16 | field(22, 2) - 1)[order],
        dst=(field(36, 2) << 16 | field(38, 2) - 1)[order],
        path_ev=field(2, 2)[order],
        opcode=opcode[order],
        qp=field(bth + 5, 3)[order],
        psn=field(bth + 9, 3)[order],
        rtx=(field(bth + 8, 1) & 0x20 != 0)[order],
        ports=np.where(is_notice, field(erth + 4, 4), -1)[order],
    )
