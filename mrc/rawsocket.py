# SPDX-License-Identifier: Apache-2.0
"""The agent's way to the wire: one AF_PACKET socket, and the kernel kept out of it.

AF_PACKET, because a kernel delivers packets to its own address without sending them (so a
self-probe would never leave the host) and because flow label and lengths must be ours.
"""

from __future__ import annotations

import array
import errno
import fcntl
import socket
import struct
from collections import Counter

from mrc.opcodes import ETHER_TYPE_IPV6, NEXT_HEADER_UDP
from mrc.options import DEFAULT_OPTIONS, WireOptions

ETHERNET_BYTES = 14
_MAX_FRAME_BYTES = 1 << 16
_RECEIVE_BUFFER_BYTES = 32 << 20  # about 4,000 frames of 4 KiB while the agent is busy

# From the kernel's headers; Python's socket module does not have them.
_SIOCGIFMTU = 0x8921
_SO_ATTACH_FILTER = 26
_SO_RCVBUFFORCE = 33
_SOL_PACKET = 263
_PACKET_STATISTICS = 6

# Classic BPF: load half word, load byte, jump if equal, return.
_LDH, _LDB, _JEQ, _RET = 0x28, 0x30, 0x15, 0x06

# The frame is lost, as it could be anywhere on its way, and the next may get through. ENOBUFS is
# what a cut by an nftables egress rule and a full queue look like from here.
_LOST = {errno.ENOBUFS, errno.ENETDOWN, errno.ENXIO, errno.ENODEV}


class RawSocketError(RuntimeError):
    """The interface or a port cannot be had; says which and why."""


class RawSocket:
    """Sends and receives whole Ethernet frames on one interface.

    Received are IPv6/UDP frames to MRC's ports only. Attributes: `mac` (6 bytes), `sent` and
    `received` frames, `send_errors` (errno name -> frames lost in sending), `kernel_drops`.
    """

    def __init__(self, interface: str, options: WireOptions = DEFAULT_OPTIONS) -> None:
        self.interface = interface
        self.sent = 0
        self.received = 0
        self.send_errors: Counter[str] = Counter()
        self.receive_errors: Counter[str] = Counter()
        self._kernel_drops = 0
        self._buffer = memoryview(bytearray(_MAX_FRAME_BYTES))
        self._blockers: list[socket.socket] = []
        try:
            # Protocol 0 receives nothing until the filter is there and bind names the protocol.
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        except PermissionError as error:
            raise RawSocketError("AF_PACKET sockets need root (CAP_NET_RAW)") from error
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
            _attach_filter(self._socket, _mrc_filter(options.udp_ports))
            self._socket.bind((interface, ETHER_TYPE_IPV6))
            self.mac: bytes = self._socket.getsockname()[4]
            for port in options.udp_ports:
                self._blockers.append(_swallow_udp(port))
        except OSError as error:
            self.close()
            raise RawSocketError(f"interface {interface}: {error}") from error
        except RawSocketError:
            self.close()
            raise

    def fileno(self) -> int:
        """The socket's descriptor, for an event loop's reader."""
        return self._socket.fileno()

    def mtu(self) -> int:
        """The interface's present MTU in bytes."""
        request = struct.pack("16si12x", self.interface.encode(), 0)
        try:
            answer = fcntl.ioctl(self._socket.fileno(), _SIOCGIFMTU, request)
        except OSError as error:
            raise RawSocketError(f"interface {self.interface}: no MTU: {error}") from error
        return int(struct.unpack("16si12x", answer)[1])

    def send(self, frame: bytes) -> bool:
        """Send one frame; False when it is known to be lost (link down, queue full), and counted.

        Raises BlockingIOError when the socket's buffer is full (try again), and other OSErrors,
        such as EMSGSIZE for a frame beyond the MTU.
        """
        try:
            self._socket.send(frame)
        except OSError as error:
            if error.errno not in _LOST:
                raise
            self.send_errors[errno.errorcode[error.errno]] += 1
            return False
        self.sent += 1
        return True

    def receive(self) -> memoryview | None:
        """The next frame, valid until the next call; None when none is waiting."""
        try:
            length = self._socket.recv_into(self._buffer)
        except BlockingIOError:
            return None
        except OSError as error:
            # ENETDOWN is told once when the interface goes down; it resumes by itself.
            if error.errno not in _LOST:
                raise
            self.receive_errors[errno.errorcode[error.errno]] += 1
            return None
        self.received += 1
        return self._buffer[:length]

    def kernel_drops(self) -> int:
        """Frames lost so far because this program did not fetch them in time."""
        answer = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        self._kernel_drops += struct.unpack("II", answer)[1]  # reading resets the kernel's count
        return self._kernel_drops

    def close(self) -> None:
        """Close the sockets; a second call does nothing."""
        self._socket.close()
        for blocker in self._blockers:
            blocker.close()


def _mrc_filter(ports: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    """BPF that passes Ethernet/IPv6/UDP frames whose destination port is one of `ports`."""
    count = len(ports)
    to_reject = [3 + count, 1 + count]  # how far the two first tests jump to the "0" below
    return [
        (_LDH, 0, 0, 12),
        (_JEQ, 0, to_reject[0], ETHER_TYPE_IPV6),
        (_LDB, 0, 0, ETHERNET_BYTES + 6),
        (_JEQ, 0, to_reject[1], NEXT_HEADER_UDP),
        (_LDH, 0, 0, ETHERNET_BYTES + 42),
        *((_JEQ, count - i, 0, port) for i, port in enumerate(ports)),
        (_RET, 0, 0, 0),
        (_RET, 0, 0, _MAX_FRAME_BYTES),
    ]


def _attach_filter(target: socket.socket, program: list[tuple[int, int, int, int]]) -> None:
    code = array.array("B", b"".join(struct.pack("HBBI", *line) for line in program))
    fprog = struct.pack("HP", len(program), code.buffer_info()[0])
    target.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, fprog)


def _swallow_udp(port: int) -> socket.socket:
    """Own `port`, so that the kernel sends no ICMP "port unreachable", and drop all it gets."""
    sink = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    try:
        sink.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        _attach_filter(sink, [(_RET, 0, 0, 0)])
        sink.bind(("::", port))
    except OSError as error:
        sink.close()
        raise RawSocketError(
            f"UDP port {port} in this namespace: {error}; is another agent running here?"
        ) from error
    return sink
