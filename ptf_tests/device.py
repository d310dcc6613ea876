# SPDX-License-Identifier: Apache-2.0
"""A switch's control plane for tests: synchronous, and with packet-in and packet-out.

(`controller.p4rt.DeviceConnection` is asyncio and discards packets, as a controller should.)
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import grpc
from finsy import (
    P4ActionProfileGroup,
    P4ActionProfileMember,
    P4CounterEntry,
    P4DirectCounterEntry,
    P4IndirectAction,
    P4MulticastGroupEntry,
    P4PacketIn,
    P4PacketOut,
    P4Schema,
    P4TableAction,
    P4TableEntry,
    P4TableMatch,
)
from finsy.p4client import P4RpcStatus
from finsy.p4schema import P4StructType
from finsy.proto import p4r, p4r_grpc, rpc_code

from controller.p4rt import DeviceError, load_program

log = logging.getLogger(__name__)

ELECTION_ID = p4r.Uint128(low=1)
STATUS_DETAILS = "grpc-status-details-bin"
CONNECT_TIMEOUT_S = 20.0
REQUEST_TIMEOUT_S = 10.0
LOAD_TIMEOUT_S = 90.0  # softswitch compiles a program that its cache does not hold
PACKET_IN_TIMEOUT_S = 2.0

Entity = P4TableEntry | P4ActionProfileMember | P4ActionProfileGroup | P4MulticastGroupEntry


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


class Device:
    """Primary controller of one switch, with one program loaded.

    Everything that ``insert`` adds is deleted by ``clean``.
    """

    def __init__(self, program: str, address: str, device_id: int) -> None:
        """Connect, become primary, load the program. Raises DeviceError."""
        self.schema = load_program(program)
        self._device_id = device_id
        self._inserted: list[Entity] = []
        self._requests: SimpleQueue[p4r.StreamMessageRequest | None] = SimpleQueue()
        self._arbitrations: SimpleQueue[p4r.MasterArbitrationUpdate] = SimpleQueue()
        self._packets: SimpleQueue[p4r.StreamMessageResponse] = SimpleQueue()
        self._digests: SimpleQueue[p4r.DigestList] = SimpleQueue()
        self._channel = grpc.insecure_channel(address, options=(("grpc.enable_http_proxy", 0),))
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)
        try:
            grpc.channel_ready_future(self._channel).result(CONNECT_TIMEOUT_S)
            self._stream = self._stub.StreamChannel(iter(self._requests.get, None))
            self._reader = threading.Thread(target=self._read_stream, daemon=True)
            self._reader.start()
            self._become_primary()
            self._load_program()
        except grpc.FutureTimeoutError:
            self._channel.close()
            raise DeviceError(f"nothing answers at {address}") from None
        except grpc.RpcError as error:
            self._channel.close()
            raise DeviceError(f"{program}: {error.code()}: {error.details()}") from None

    def close(self) -> None:
        """End the connection."""
        self._requests.put(None)
        self._stream.cancel()
        self._reader.join()
        self._channel.close()

    def _read_stream(self) -> None:
        try:
            for message in self._stream:
                kind = message.WhichOneof("update")
                if kind == "packet":
                    self._packets.put(message)
                elif kind == "digest":
                    self._digests.put(message.digest)
                elif kind == "arbitration":
                    self._arbitrations.put(message.arbitration)
        except grpc.RpcError as error:
            # An end that is not ours shows in the next request or missing packet.
            if error.code() != grpc.StatusCode.CANCELLED:
                log.error("the stream ended: %s", error)

    def _become_primary(self) -> None:
        offer = p4r.MasterArbitrationUpdate(device_id=self._device_id, election_id=ELECTION_ID)
        self._requests.put(p4r.StreamMessageRequest(arbitration=offer))
        try:
            answer = self._arbitrations.get(timeout=CONNECT_TIMEOUT_S)
        except Empty:
            raise DeviceError("no answer to arbitration") from None
        if answer.status.code != rpc_code.OK:
            raise DeviceError(f"arbitration: {answer.status.message}")

    def _load_program(self) -> None:
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self._device_id,
            election_id=ELECTION_ID,
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=self.schema.get_pipeline_config(),
        )
        self._stub.SetForwardingPipelineConfig(request, timeout=LOAD_TIMEOUT_S)

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
        (code,) = self._write_all(p4r.Update.INSERT, [item])
        return code

    def clean(self) -> None:
        """Delete everything that is still there, last first, and forget packets not asked for."""
        self.delete(*reversed(self._inserted))
        while not self._packets.empty():
            self._packets.get()

    def _write(self, kind: p4r.Update.Type.ValueType, items: Sequence[Entity]) -> None:
        errors = self._write_all(kind, items) if items else []
        assert not errors, f"the switch refused: {errors}"

    def _write_all(self, kind: p4r.Update.Type.ValueType, items: Sequence[Entity]) -> list[str]:
        """Write one batch; the codes of the updates that were refused."""
        request = p4r.WriteRequest(
            device_id=self._device_id,
            election_id=ELECTION_ID,
            updates=[p4r.Update(type=kind, entity=item.encode(self.schema)) for item in items],
        )
        try:
            self._stub.Write(request, timeout=REQUEST_TIMEOUT_S)
        except grpc.RpcError as error:
            metadata = dict(error.trailing_metadata())
            if STATUS_DETAILS not in metadata:
                raise
            status = P4RpcStatus.from_bytes(metadata[STATUS_DETAILS])
            return [detail.canonical_code.name for detail in status.details.values()]
        return []

    def _read(self, entities: Iterable[p4r.Entity]) -> list[p4r.Entity]:
        request = p4r.ReadRequest(device_id=self._device_id, entities=entities)
        answers = self._stub.Read(request, timeout=REQUEST_TIMEOUT_S)
        return [entity for answer in answers for entity in answer.entities]

    def entries(self, table: str) -> list[P4TableEntry]:
        """What the switch holds in this table."""
        request = P4TableEntry(table).encode(self.schema)
        return [P4TableEntry.decode(entity, self.schema) for entity in self._read([request])]

    # ---- counters ------------------------------------------------------------------------------

    def hits(self, item: P4TableEntry) -> Count:
        """The direct counter of an entry."""
        key = P4TableEntry(item.table_id, match=item.match)  # an action would be a filter
        request = P4DirectCounterEntry(table_entry=key).encode(self.schema)
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
        self._requests.put(P4PacketOut(payload, **metadata).encode_update(self.schema))

    def packet_in(self, timeout_s: float = PACKET_IN_TIMEOUT_S) -> P4PacketIn | None:
        """The oldest packet from the CPU port; None when none comes within ``timeout_s``."""
        try:
            message = self._packets.get(timeout=timeout_s)
        except Empty:
            return None
        return P4PacketIn.decode(message, self.schema)

    # ---- digests -------------------------------------------------------------------------------

    def subscribe(self, name: str) -> None:
        """Have the samples of a digest sent: up to 100 at a time, after 10 ms at the latest."""
        config = p4r.DigestEntry.Config(
            max_timeout_ns=10_000_000, max_list_size=100, ack_timeout_ns=100_000_000
        )
        digest = p4r.DigestEntry(digest_id=self.schema.digests[name].id, config=config)
        self._stub.Write(
            p4r.WriteRequest(
                device_id=self._device_id,
                election_id=ELECTION_ID,
                updates=[
                    p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(digest_entry=digest))
                ],
            ),
            timeout=REQUEST_TIMEOUT_S,
        )

    def digests(self, timeout_s: float) -> list[dict[str, int]]:
        """The samples of the next digest list, acknowledged; none if none comes in time."""
        try:
            message = self._digests.get(timeout=timeout_s)
        except Empty:
            return []
        ack = p4r.DigestListAck(digest_id=message.digest_id, list_id=message.list_id)
        self._requests.put(p4r.StreamMessageRequest(digest_ack=ack))
        kind = self.schema.digests[message.digest_id].type_spec
        assert isinstance(kind, P4StructType)
        return [
            {
                name: int.from_bytes(member.bitstring, "big")
                for name, member in zip(kind.members, sample.struct.members, strict=True)
            }
            for sample in message.data
        ]
