# SPDX-License-Identifier: Apache-2.0
"""The controller's side of a switch under comparison: packets to and from it, and digests.

Packets have their `packet_in` or `packet_out` header in front, as the program writes and reads it.
"""

from __future__ import annotations

import queue
import time
from collections import defaultdict
from typing import Any

from finsy.proto import p4r

from tests.softswitch.p4rt import INSERT, Stream, update

CPU_PORT = 510
POLL_S = 0.05
LATE_S = 2.0


def digest_updates(info: Any) -> list[Any]:
    """Each digest is switched on, with a list for every message and none held back."""
    config = p4r.DigestEntry.Config(max_list_size=1)
    return [
        update(INSERT, digest_entry=p4r.DigestEntry(digest_id=digest.preamble.id, config=config))
        for digest in info.digests
    ]


class ControllerPort:
    """Packets and digests that came over a stream; `send` puts packets out."""

    def __init__(self, info: Any, stream: Stream) -> None:
        self._stream = stream
        self._headers = {
            header.preamble.alias: [(field.id, field.bitwidth) for field in header.metadata]
            for header in info.controller_packet_metadata
        }
        self._digest_names = {digest.preamble.id: digest.preamble.alias for digest in info.digests}
        self._packets: list[bytes] = []
        self._digests: defaultdict[str, list[str]] = defaultdict(list)

    def send(self, data: bytes) -> None:
        """A packet-out; short ones have zeros for what their header lacks."""
        fields = self._headers.get("packet_out", [])
        bits = sum(width for _, width in fields)
        head = data[: bits // 8].ljust(bits // 8, b"\0")
        value = int.from_bytes(head)
        packet = p4r.PacketOut(payload=data[bits // 8 :])
        for number, width in fields:
            bits -= width
            field = value >> bits & (1 << width) - 1
            packed = field.to_bytes(max(1, (field.bit_length() + 7) // 8))
            packet.metadata.append(p4r.PacketMetadata(metadata_id=number, value=packed))
        self._stream.send(packet=packet)

    def receive(self, count: int, timeout_s: float) -> list[bytes]:
        """At least `count` packets unless they do not come in time; 0: all that come in time."""
        end = time.monotonic() + timeout_s
        while count == 0 or len(self._packets) < count:
            left = end - time.monotonic()
            if not self._read(max(left, 0)) and left <= 0:
                break
        packets, self._packets = self._packets, []
        return packets

    def all_digests(self, count: int) -> dict[str, list[str]]:
        """The digests so far, sorted, after a wait for `count` of them and a little for more.

        BMv2's server hands them to several threads, so that their order is by chance.
        """
        end = time.monotonic() + LATE_S
        while sum(map(len, self._digests.values())) < count and time.monotonic() < end:
            self._read(POLL_S)
        while self._read(POLL_S):
            pass
        return {name: sorted(data) for name, data in self._digests.items()}

    def _read(self, timeout_s: float) -> bool:
        """Take in one message, if there is one in time."""
        try:
            message = self._stream.responses.get(timeout=timeout_s)
        except queue.Empty:
            return False
        if message is None or isinstance(message, Exception):
            raise ConnectionError(f"the stream ended: {message}")
        match message.WhichOneof("update"):
            case "packet":
                self._packets.append(self._raw(message.packet))
            case "digest":
                data = [item.SerializeToString(deterministic=True) for item in message.digest.data]
                name = self._digest_names[message.digest.digest_id]
                self._digests[name] += [item.hex() for item in data]
        return True

    def _raw(self, packet: Any) -> bytes:
        """A packet-in as it left the program."""
        values = {item.metadata_id: int.from_bytes(item.value) for item in packet.metadata}
        head = bits = 0
        for number, width in self._headers.get("packet_in", []):
            head = head << width | values.get(number, 0)
            bits += width
        return head.to_bytes(bits // 8) + bytes(packet.payload)
