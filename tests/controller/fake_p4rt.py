# SPDX-License-Identifier: Apache-2.0
"""A P4Runtime server in threads of the test, for faults that no real switch produces on call.

It keeps table entries as messages, answers arbitration like BMv2's server (the highest election id
that is connected is primary) or, with `remembered`, as P4Runtime asks (the highest ever counts),
and refuses what a test tells it to refuse.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from finsy.proto import U128, p4r, p4r_grpc, rpc_code, rpc_status

from controller.canonical import Key, from_message


@dataclass(eq=False)
class Stream:
    """A client's stream and what it offered."""

    election_id: int


@dataclass(eq=False)
class FakeSwitch(p4r_grpc.P4RuntimeServicer):  # type: ignore[misc]
    """One device. ``refuse`` returns a message for updates that are to fail."""

    device_id: int = 1
    refuse: Callable[[p4r.Update], str | None] = lambda update: None
    refuse_program: str = ""
    pad: bool = False  # read back byte strings with leading zeros
    remembered: int | None = None  # highest election id ever, for servers that remember it
    config: p4r.ForwardingPipelineConfig | None = None
    entries: dict[Key, p4r.TableEntry] = field(default_factory=dict)
    groups: dict[int, p4r.Entity] = field(default_factory=dict)  # multicast
    writes: list[p4r.WriteRequest] = field(default_factory=list)
    programs_loaded: int = 0
    streams: list[Stream] = field(default_factory=list)
    counters: list[p4r.Entity] = field(default_factory=list)
    cell: Callable[[int, int], int] = lambda counter_id, index: 0  # packets, asked for by index
    lock: threading.Lock = field(default_factory=threading.Lock)

    def primary(self) -> int:
        return max((stream.election_id for stream in self.streams), default=-1)

    def StreamChannel(self, requests: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        mine: Stream | None = None
        try:
            for request in requests:
                wanted = U128.decode(request.arbitration.election_id)
                with self.lock:
                    taken = any(s.election_id == wanted for s in self.streams if s is not mine)
                    if not taken:
                        if mine is None:
                            mine = Stream(wanted)
                            self.streams.append(mine)
                        mine.election_id = wanted
                    primary = self.primary()
                    too_low = self.remembered is not None and wanted < self.remembered
                    if self.remembered is not None:
                        primary = self.remembered = max(self.remembered, primary)
                if taken:
                    context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Election id already exists")
                code = rpc_code.OK if wanted == primary else rpc_code.ALREADY_EXISTS
                if too_low and all(s.election_id != primary for s in self.streams):
                    code = rpc_code.NOT_FOUND
                answer = p4r.MasterArbitrationUpdate(
                    device_id=self.device_id,
                    election_id=U128.encode(primary),
                    status=rpc_status.Status(code=code),
                )
                yield p4r.StreamMessageResponse(arbitration=answer)
        finally:
            if mine is not None:
                with self.lock:
                    self.streams.remove(mine)

    def _check_primary(self, request: Any, context: Any) -> None:
        if not self.streams or U128.decode(request.election_id) != self.primary():
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "Not primary")

    def _check_program(self, context: Any) -> None:
        if self.config is None:
            context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                "No forwarding pipeline config set for this device",
            )

    def GetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._check_program(context)
        assert self.config is not None
        config = p4r.ForwardingPipelineConfig(p4info=self.config.p4info, cookie=self.config.cookie)
        return p4r.GetForwardingPipelineConfigResponse(config=config)

    def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._check_primary(request, context)
        if self.refuse_program:
            context.abort(grpc.StatusCode.UNKNOWN, self.refuse_program)
        self.config = request.config
        self.entries.clear()
        self.groups.clear()
        self.programs_loaded += 1
        return p4r.SetForwardingPipelineConfigResponse()

    def Write(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._check_primary(request, context)
        self._check_program(context)
        self.writes.append(request)
        errors = [self._update(update) for update in request.updates]
        if any(error.canonical_code != rpc_code.OK for error in errors):
            status = rpc_status.Status(code=rpc_code.UNKNOWN, message="Some updates failed")
            for error in errors:
                status.details.add().Pack(error)
            details = ("grpc-status-details-bin", status.SerializeToString())
            context.set_trailing_metadata((details,))
            context.abort(grpc.StatusCode.UNKNOWN, status.message)
        return p4r.WriteResponse()

    def _update(self, update: p4r.Update) -> p4r.Error:
        message = self.refuse(update)
        if message is not None:
            return p4r.Error(canonical_code=rpc_code.RESOURCE_EXHAUSTED, message=message)
        if update.entity.HasField("packet_replication_engine_entry"):
            return self._update_group(update)
        entry = update.entity.table_entry
        if update.type == p4r.Update.DELETE:
            key = Key(entry.table_id, self._match(entry), entry.priority)
            if self.entries.pop(key, None) is None:
                return p4r.Error(canonical_code=rpc_code.NOT_FOUND, message="no such entry")
            return p4r.Error()
        key, _ = from_message(entry)
        if update.type == p4r.Update.INSERT and key in self.entries:
            return p4r.Error(canonical_code=rpc_code.ALREADY_EXISTS, message="entry exists")
        if update.type == p4r.Update.MODIFY and key not in self.entries:
            return p4r.Error(canonical_code=rpc_code.NOT_FOUND, message="no such entry")
        self.entries[key] = entry
        return p4r.Error()

    def _update_group(self, update: p4r.Update) -> p4r.Error:
        group = update.entity.packet_replication_engine_entry.multicast_group_entry
        number = group.multicast_group_id
        if (update.type == p4r.Update.INSERT) == (number in self.groups):
            code = rpc_code.NOT_FOUND if number not in self.groups else rpc_code.ALREADY_EXISTS
            return p4r.Error(canonical_code=code, message=f"multicast group {number}")
        if update.type == p4r.Update.DELETE:
            del self.groups[number]
        else:
            self.groups[number] = update.entity
        return p4r.Error()

    @staticmethod
    def _match(entry: p4r.TableEntry) -> Any:
        with_action = p4r.TableEntry(match=entry.match, action=p4r.TableAction(action=p4r.Action()))
        return from_message(with_action)[0].match

    def Read(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        self._check_program(context)
        for wanted in request.entities:
            if wanted.HasField("table_entry"):
                # Ten to an answer, so that clients meet answers in several parts.
                found = [self._entity(e) for e in self.entries.values() if self._asked(wanted, e)]
                for start in range(0, len(found), 10):
                    yield p4r.ReadResponse(entities=found[start : start + 10])
            elif wanted.HasField("packet_replication_engine_entry"):
                yield p4r.ReadResponse(entities=self.groups.values())
            elif wanted.counter_entry.HasField("index"):
                answer = p4r.Entity()
                answer.CopyFrom(wanted)
                entry = answer.counter_entry
                entry.data.packet_count = self.cell(entry.counter_id, entry.index.index)
                yield p4r.ReadResponse(entities=[answer])
            else:
                kind = wanted.WhichOneof("entity")
                number = getattr(wanted, kind).counter_id
                found = [
                    entity for entity in self.counters if getattr(entity, kind).counter_id == number
                ]
                yield p4r.ReadResponse(entities=found)

    @staticmethod
    def _asked(wanted: p4r.Entity, entry: p4r.TableEntry) -> bool:
        return wanted.table_entry.table_id in (0, entry.table_id)

    def _entity(self, entry: p4r.TableEntry) -> p4r.Entity:
        entity = p4r.Entity(table_entry=entry)
        if self.pad:
            for match in entity.table_entry.match:
                if match.HasField("exact"):
                    match.exact.value = b"\x00" + match.exact.value
        return entity


@contextmanager
def serve(switch: FakeSwitch) -> Iterator[str]:
    """Run the switch on a free port of 127.0.0.1 and yield its address."""
    threads = ThreadPoolExecutor(8)
    server = grpc.server(threads)
    p4r_grpc.add_P4RuntimeServicer_to_server(switch, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
        threads.shutdown()
