# SPDX-License-Identifier: Apache-2.0
"""A switch's control plane for tests: the controller's own P4Runtime connection, synchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import grpc
from finsy import (
    P4ActionProfileGroup,
    P4ActionProfileMember,
    P4CounterEntry,
    P4DirectCounterEntry,
    P4IndirectAction,
    P4PacketIn,
    P4PacketOut,
    P4Schema,
    P4TableAction,
    P4TableEntry,
    P4TableMatch,
)
from finsy.grpcutil import GRPC_EOF
from finsy.proto import p4r

from controller.p4rt import DeviceConnection, load_program

CONNECT_TIMEOUT_S = 20.0
PACKET_IN_TIMEOUT_S = 2.0

Entity = P4TableEntry | P4ActionProfileMember | P4ActionProfileGroup


class Count(NamedTuple):
    """A counter's value."""

    packets: int
    bytes: int


def entry(
    table: str, match: dict[str, Any], action: P4TableAction | P4IndirectAction
) -> P4TableEntry:
    """A table entry by the program's names; an lpm value is ``"<number or address>/<length>"``."""
    return P4TableEntry(table, match=P4TableMatch(match), action=action)


def _match(counter: p4r.Entity, schema: P4Schema) -> P4TableMatch | None:
    """The match fields of a direct counter's entry."""
    return P4TableEntry.decode_entry(counter.direct_counter_entry.table_entry, schema).match


class _Connection(DeviceConnection):
    """Keeps the packet-ins, for which the controller has no use."""

    def __init__(self, name: str, device_id: int, channel: grpc.aio.Channel) -> None:
        super().__init__(name, device_id, channel)
        self.packets: asyncio.Queue[p4r.StreamMessageResponse] = asyncio.Queue()

    async def _discard_messages(self) -> None:
        assert self._stream is not None
        while (message := await self._stream.read()) is not GRPC_EOF:
            if message.WhichOneof("update") == "packet":
                self.packets.put_nowait(message)

    async def send(self, message: p4r.StreamMessageRequest) -> None:
        assert self._stream is not None
        await self._stream.write(message)


class Device:
    """Primary controller of one switch, with one program loaded.

    Everything that ``insert`` adds is deleted by ``clean``.
    """

    def __init__(self, program: str, address: str, device_id: int) -> None:
        """Connect, become primary, load the program. Raises DeviceError, or TimeoutError."""
        self.schema = load_program(program)
        self._runner = asyncio.Runner()
        self._inserted: list[Entity] = []
        try:
            self._connection = self._runner.run(self._open(program, address, device_id))
        except BaseException:
            self._runner.close()
            raise

    async def _open(self, program: str, address: str, device_id: int) -> _Connection:
        options = (("grpc.enable_http_proxy", 0), ("grpc.initial_reconnect_backoff_ms", 50))
        self._channel = grpc.aio.insecure_channel(address, options=options)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await self._channel.channel_ready()
        connection = _Connection(program, device_id, self._channel)
        await connection.become_primary()
        await connection.set_program(self.schema)
        return connection

    def close(self) -> None:
        """End the connection."""
        self._runner.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        await self._connection.close()
        await self._channel.close()

    # ---- tables --------------------------------------------------------------------------------

    def insert(self, *entries: Entity) -> None:
        """Insert entries, in this order."""
        self._write(p4r.Update.INSERT, entries)
        self._inserted += entries

    def modify(self, *entries: Entity) -> None:
        """Give entries that are there another action."""
        self._write(p4r.Update.MODIFY, entries)

    def delete(self, *entries: Entity) -> None:
        """Delete entries that ``insert`` added."""
        self._write(p4r.Update.DELETE, entries)
        for item in entries:
            self._inserted.remove(item)

    def refused(self, item: Entity) -> str:
        """Try to insert an entry that the switch must refuse; the name of its error code."""
        update = p4r.Update(type=p4r.Update.INSERT, entity=item.encode(self.schema))
        (error,) = self._runner.run(self._connection.write([update]))
        return error.code

    def clean(self) -> None:
        """Delete everything that is still there, last first."""
        self.delete(*reversed(self._inserted))

    def _write(self, kind: p4r.Update.Type.ValueType, entries: Sequence[Entity]) -> None:
        updates = [p4r.Update(type=kind, entity=item.encode(self.schema)) for item in entries]
        errors = self._runner.run(self._connection.write(updates)) if updates else []
        assert not errors, f"the switch refused {[(entries[e.index], e) for e in errors]}"

    def _read(self, entities: Iterable[p4r.Entity]) -> list[p4r.Entity]:
        async def collect() -> list[p4r.Entity]:
            return [entity async for entity in self._connection.read(*entities)]

        return self._runner.run(collect())

    def entries(self, table: str) -> list[P4TableEntry]:
        """What the switch holds in this table."""
        request = P4TableEntry(table).encode(self.schema)
        return [P4TableEntry.decode(entity, self.schema) for entity in self._read([request])]

    # ---- counters ------------------------------------------------------------------------------

    def hits(self, item: P4TableEntry) -> Count:
        """The direct counter of an entry."""
        request = P4DirectCounterEntry(table_entry=item).encode(self.schema)
        # An entry that matches everything (::/0) has no match fields, which reads as a wildcard.
        wanted = _match(request, self.schema)
        (found,) = (
            entity for entity in self._read([request]) if _match(entity, self.schema) == wanted
        )
        data = found.direct_counter_entry.data
        return Count(data.packet_count, data.byte_count)

    def counters(self, indices: dict[str, Sequence[int]]) -> dict[tuple[str, int], Count]:
        """Cells of indirect counters, by (counter, index)."""
        requests = [
            P4CounterEntry(name, index=index).encode(self.schema)
            for name, wanted in indices.items()
            for index in wanted
        ]
        values = {}
        for entity in self._read(requests):
            cell = P4CounterEntry.decode(entity, self.schema)
            assert cell.index is not None
            values[cell.counter_id, cell.index] = Count(cell.packet_count, cell.byte_count)
        return values

    # ---- packets -------------------------------------------------------------------------------

    def packet_out(self, payload: bytes, **metadata: int) -> None:
        """Send a packet into the switch's CPU port."""
        message = P4PacketOut(payload, **metadata).encode_update(self.schema)
        self._runner.run(self._connection.send(message))

    def packet_in(self, timeout_s: float = PACKET_IN_TIMEOUT_S) -> P4PacketIn | None:
        """The oldest packet from the CPU port; None when none comes within ``timeout_s``."""

        async def take() -> p4r.StreamMessageResponse | None:
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._connection.packets.get()
            except TimeoutError:
                return None

        message = self._runner.run(take())
        return None if message is None else P4PacketIn.decode(message, self.schema)
