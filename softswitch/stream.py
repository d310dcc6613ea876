# SPDX-License-Identifier: Apache-2.0
"""What flows over StreamChannel besides arbitration: packets, digests, errors (P4Runtime 1.4, 16).

`PacketHeader` packs and unpacks the controller headers, `Outbox` holds what waits to be sent to one
client, `StreamHub` brings the data plane's events to the primaries and their messages to the data
plane.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from finsy.proto import p4r

from softswitch.arbitration import Arbitration, Client
from softswitch.boundary import DataplaneLike
from softswitch.digests import DigestQueue
from softswitch.errors import DataplaneError
from softswitch.p4info import P4InfoView, Value, decode_unsigned, encode_unsigned
from softswitch.status import (
    FAILED_PRECONDITION,
    PERMISSION_DENIED,
    UNIMPLEMENTED,
    Failure,
    failure_of,
    invalid,
)
from softswitch.values import Digest, PacketIn

log = logging.getLogger("softswitch.stream")

# Packets, digests and errors that may wait for a slow client; further ones are dropped (16.1, 9.8).
OUTBOX_MESSAGES = 4096


class PacketHeader:
    """The layout of a `@controller_header`: fields from the most significant bit on.

    A P4Info does not have the fields that the program marks as `@padding`: as on BMv2 they are
    taken to be the last bits, up to a whole byte.
    """

    def __init__(self, fields: tuple[Value, ...], name: str) -> None:
        self._name = name
        self.length = -(-sum(field.width for field in fields) // 8)
        bits = 8 * self.length
        self._fields: dict[int, tuple[Value, int]] = {}
        for field in fields:
            bits -= field.width
            self._fields[field.id] = (field, bits)

    def pack(self, metadata: Any) -> bytes:
        """The header's bytes from repeated PacketMetadata.

        A field that is not given is 0: BMv2's server does the same, and clients leave padding out.
        Raises `Failure` INVALID_ARGUMENT for an unknown field, one given twice or a value that does
        not fit.
        """
        number = 0
        seen: set[int] = set()
        for item in metadata:
            entry = self._fields.get(item.metadata_id)
            if entry is None:
                raise invalid(
                    f"{self._name} has no metadata field {item.metadata_id}; it has "
                    f"{sorted(self._fields)}"
                )
            field, shift = entry
            if field.id in seen:
                raise invalid(f"{self._name}: metadata field {field.name!r} given twice")
            seen.add(field.id)
            value = decode_unsigned(item.value, field.width, f"{self._name}.{field.name}")
            number |= value << shift
        return number.to_bytes(self.length, "big")

    def unpack(self, data: bytes, message: Any) -> bool:
        """Fill a PacketIn from a packet with this header; False when the packet is too short."""
        if len(data) < self.length:
            return False
        number = int.from_bytes(data[: self.length], "big")
        message.payload = data[self.length :]
        for field, shift in self._fields.values():
            value = number >> shift & (1 << field.width) - 1
            message.metadata.add(metadata_id=field.id, value=encode_unsigned(value))
        return True


class Outbox:
    """Messages that wait to be written to one client's stream, in order.

    Arbitration notices always fit; everything else is dropped beyond `OUTBOX_MESSAGES`.
    """

    def __init__(self) -> None:
        self._messages: deque[Any] = deque()
        self._ready = asyncio.Event()
        self.dropped = 0

    def notify(self, message: Any) -> None:
        """Append a message that must not be lost."""
        self._messages.append(message)
        self._ready.set()

    def offer(self, message: Any) -> None:
        """Append a message unless too many are waiting."""
        if len(self._messages) >= OUTBOX_MESSAGES:
            if self.dropped == 0:
                log.warning("a client reads too slowly: dropping packets and digests for it")
            self.dropped += 1
            return
        self.notify(message)

    def close(self) -> None:
        """Nothing follows: `next` gives None once what is there was taken."""
        self.notify(None)

    async def next(self) -> Any | None:
        """Wait for the next message; None after `close`."""
        while not self._messages:
            self._ready.clear()
            await self._ready.wait()
        return self._messages.popleft()


class StreamHub:
    """Connects the primaries' streams with the data plane.

    `outbox_of` finds the outbox of a client; `configure` is called when a program was committed.
    """

    def __init__(
        self,
        arbitration: Arbitration,
        dataplane: DataplaneLike,
        outbox_of: Callable[[Client], Outbox],
    ) -> None:
        self._arbitration = arbitration
        self._dataplane = dataplane
        self._outbox_of = outbox_of
        self._packet_in: PacketHeader | None = None
        self._packet_out: PacketHeader | None = None
        self._digests: Mapping[int, DigestQueue] = {}
        self._digests_by_name: dict[str, DigestQueue] = {}
        self._committed = False
        self.busy = False
        """True while the program is being replaced; packet-outs are refused then."""

    def configure(
        self,
        packet_in: PacketHeader | None,
        packet_out: PacketHeader | None,
        digests: Mapping[int, DigestQueue],
    ) -> None:
        """Use the packet headers and digests of the program that now runs."""
        for queue in self._digests.values():
            queue.reset()
        self._packet_in = packet_in
        self._packet_out = packet_out
        self._digests = digests
        self._digests_by_name = {q.info.name: q for q in digests.values()}
        self._committed = True

    def publish(self, message: Any) -> None:
        """Send a StreamMessageResponse to the primary of every role."""
        for client in self._arbitration.primaries():
            self._outbox_of(client).offer(message)

    # --- from the data plane --------------------------------------------------------------------

    def handle_event(self, event: PacketIn | Digest) -> None:
        """A packet or digest from the data plane."""
        if isinstance(event, Digest):
            queue = self._digests_by_name.get(event.name)
            if queue is not None:
                queue.add(tuple(event.fields))
            return
        if not self._committed:
            return
        message = p4r.StreamMessageResponse()
        packet = message.packet
        packet.SetInParent()
        if self._packet_in is None:
            packet.payload = event.data
        elif not self._packet_in.unpack(event.data, packet):
            log.error(
                "a packet of %d bytes left through the CPU port without the packet_in header",
                len(event.data),
            )
            return
        self.publish(message)

    # --- from a client --------------------------------------------------------------------------

    def handle_message(self, client: Client, message: Any) -> None:
        """A StreamMessageRequest other than arbitration; errors go back as StreamError (16.6)."""
        try:
            which = message.WhichOneof("update")
            if which is None:
                raise invalid("a StreamMessageRequest without an update in it")
            if which not in ("packet", "digest_ack"):
                raise Failure(UNIMPLEMENTED, "this server knows no other kind of stream message")
            if not self._arbitration.is_primary(client):
                raise Failure(
                    PERMISSION_DENIED, "only the primary may send packets and digest acks"
                )
            if not self._committed:
                raise Failure(FAILED_PRECONDITION, "no forwarding pipeline config is set")
            if which == "packet":
                self._send_packet(message.packet)
            else:
                self._acknowledge(message.digest_ack)
        except Failure as failure:
            self._outbox_of(client).offer(_stream_error(failure, message))

    def _send_packet(self, packet: Any) -> None:
        if self.busy:
            raise Failure(FAILED_PRECONDITION, "the pipeline is being replaced; try again")
        header = b""
        if self._packet_out is not None:
            header = self._packet_out.pack(packet.metadata)
        elif packet.metadata:
            raise invalid("the program has no packet_out header, so no metadata can be given")
        try:
            self._dataplane.packet_out(header + packet.payload)
        except DataplaneError as error:
            raise failure_of(error) from error

    def _acknowledge(self, ack: Any) -> None:
        queue = self._digests.get(ack.digest_id)
        if queue is None:
            raise invalid(f"the program has no digest with id {ack.digest_id}")
        queue.acknowledge(ack.list_id)


def packet_headers(view: P4InfoView) -> tuple[PacketHeader | None, PacketHeader | None]:
    """The packet_in and packet_out headers of a P4Info. Raises `Failure` for broken ones."""
    packet_in = PacketHeader(view.packet_in, "packet_in") if view.packet_in else None
    packet_out = PacketHeader(view.packet_out, "packet_out") if view.packet_out else None
    return packet_in, packet_out


def _stream_error(failure: Failure, request: Any) -> Any:
    response = p4r.StreamMessageResponse()
    error = response.error
    error.canonical_code = failure.code
    error.message = failure.message
    which = request.WhichOneof("update")
    if which == "packet":
        error.packet_out.packet_out.CopyFrom(request.packet)
    elif which == "digest_ack":
        error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
    else:
        error.other.SetInParent()
        if which == "other":
            error.other.other.CopyFrom(request.other)
    return response
