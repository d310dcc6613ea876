# SPDX-License-Identifier: Apache-2.0
"""The packet replication engine: multicast groups and clone sessions (P4Runtime 1.4, 9.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from finsy.proto import p4r

from softswitch.boundary import PipelineLike
from softswitch.p4info import PORT_BITS, decode_unsigned, encode_unsigned
from softswitch.status import (
    ALREADY_EXISTS,
    NOT_FOUND,
    OUT_OF_RANGE,
    UNIMPLEMENTED,
    Failure,
    Undo,
    invalid,
)
from softswitch.wire import ENTITY_REPLICATION, message_field

# v1model.p4: mcast_grp and egress_rid are bit<16>, ports bit<9>; clone sessions as in BMv2.
MAX_GROUP_ID = 0xFFFF
MAX_SESSION_ID = 0x7FFF
_MAX_INSTANCE = 0xFFFF

_MULTICAST = 1  # field numbers in PacketReplicationEngineEntry
_CLONE = 2


@dataclass(slots=True)
class _Kind:
    """Multicast groups or clone sessions: what differs between the two."""

    name: str
    id_field: str
    limit: int
    number: int
    set: Callable[[Any, list[tuple[int, int]]], None]
    delete: Callable[[int], None]
    entries: dict[int, Any] = field(default_factory=dict)


class ReplicationStore:
    """Multicast groups and clone sessions, kept as the messages that made them."""

    def __init__(self, pipeline: PipelineLike) -> None:
        self._groups = _Kind(
            name="multicast group",
            id_field="multicast_group_id",
            limit=MAX_GROUP_ID,
            number=_MULTICAST,
            set=lambda m, r: pipeline.set_multicast_group(m.multicast_group_id, r),
            delete=pipeline.delete_multicast_group,
        )
        self._sessions = _Kind(
            name="clone session",
            id_field="session_id",
            limit=MAX_SESSION_ID,
            number=_CLONE,
            set=lambda m, r: pipeline.set_clone_session(m.session_id, r, m.packet_length_bytes),
            delete=pipeline.delete_clone_session,
        )

    def _kind(self, message: Any) -> tuple[_Kind, Any]:
        which = message.WhichOneof("type")
        if which == "multicast_group_entry":
            return self._groups, message.multicast_group_entry
        if which == "clone_session_entry":
            return self._sessions, message.clone_session_entry
        raise invalid("packet replication: neither a multicast group nor a clone session is given")

    def write(self, update_type: int, message: Any, undo: Undo | None) -> None:
        """INSERT, MODIFY or DELETE a PacketReplicationEngineEntry."""
        kind, entry = self._kind(message)
        number = getattr(entry, kind.id_field)
        if not number:
            raise invalid(f"{kind.name}: id 0 is only for reading all of them")
        if number > kind.limit:
            raise Failure(OUT_OF_RANGE, f"{kind.name}: id {number} is above {kind.limit}")
        before = kind.entries.get(number)
        if update_type == p4r.Update.INSERT:
            if before is not None:
                raise Failure(ALREADY_EXISTS, f"{kind.name} {number} exists; use MODIFY")
        elif before is None:
            raise Failure(NOT_FOUND, f"there is no {kind.name} {number}")
        if update_type == p4r.Update.DELETE:
            self._put(kind, number, None)
        else:
            copy = type(entry)()
            copy.CopyFrom(entry)
            self._put(kind, number, copy)
        if undo is not None:
            undo.append(lambda: self._put(kind, number, before))

    def _put(self, kind: _Kind, number: int, entry: Any | None) -> None:
        if entry is None:
            kind.delete(number)
            del kind.entries[number]
            return
        kind.set(entry, _replicas(entry, f"{kind.name} {number}"))
        kind.entries[number] = entry

    def read(self, query: Any) -> Iterator[bytes]:
        """Serialised Entity messages of one group or session, or of all of its kind (id 0).

        Raises `Failure` NOT_FOUND for one that does not exist.
        """
        kind, entry = self._kind(query)
        number = getattr(entry, kind.id_field)
        if number and number not in kind.entries:
            raise Failure(NOT_FOUND, f"there is no {kind.name} {number}")
        for key, stored in kind.entries.items():
            if number in (0, key):
                content = message_field(kind.number, stored.SerializeToString())
                yield message_field(ENTITY_REPLICATION, content)

    def export(self) -> Iterator[Any]:
        """PacketReplicationEngineEntry messages of everything here."""
        for entry in self._groups.entries.values():
            yield p4r.PacketReplicationEngineEntry(multicast_group_entry=entry)
        for entry in self._sessions.entries.values():
            yield p4r.PacketReplicationEngineEntry(clone_session_entry=entry)

    def clear(self) -> None:
        """Remove everything from the data plane."""
        for kind in (self._groups, self._sessions):
            for number in tuple(kind.entries):
                self._put(kind, number, None)


def _replicas(entry: Any, where: str) -> list[tuple[int, int]]:
    """(port, replication id) of every replica; makes the ports in `entry` canonical."""
    if isinstance(entry, p4r.CloneSessionEntry):
        if entry.class_of_service:
            raise Failure(UNIMPLEMENTED, f"{where}: class_of_service is not supported; leave it 0")
        if entry.packet_length_bytes < 0:
            raise invalid(f"{where}: packet_length_bytes {entry.packet_length_bytes} is negative")
    replicas: list[tuple[int, int]] = []
    for replica in entry.replicas:
        if replica.backup_replicas:
            raise Failure(UNIMPLEMENTED, f"{where}: backup replicas are not supported")
        which = replica.WhichOneof("port_kind")
        if which == "port":
            port = decode_unsigned(replica.port, PORT_BITS, f"{where}: port")
            replica.port = encode_unsigned(port)
        elif which == "egress_port":
            port = replica.egress_port
            if port >> PORT_BITS:
                raise invalid(f"{where}: port {port} does not fit in {PORT_BITS} bits")
        else:
            raise invalid(f"{where}: a replica without a port")
        if replica.instance > _MAX_INSTANCE:
            raise invalid(f"{where}: instance {replica.instance} is above {_MAX_INSTANCE}")
        replicas.append((port, replica.instance))
    if len(set(replicas)) != len(replicas):
        raise invalid(f"{where}: a pair of port and instance is given twice")
    return replicas
