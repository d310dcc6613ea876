# SPDX-License-Identifier: Apache-2.0
"""The packet replication engine: multicast groups and clone sessions (P4Runtime 1.4, 9.5).

A replica with backups goes to the first of its ports that is up; when none is, to its own port, so
that the egress pipeline sees it before it is lost there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from finsy.proto import p4r

from softswitch.boundary import PipelineLike
from softswitch.errors import NotFound
from softswitch.p4info import PORT_BITS, decode_unsigned, encode_unsigned
from softswitch.status import (
    ALREADY_EXISTS,
    NOT_FOUND,
    OUT_OF_RANGE,
    Failure,
    Undo,
    invalid,
)
from softswitch.wire import ENTITY_REPLICATION, message_field

# v1model.p4: mcast_grp and egress_rid are bit<16>, ports bit<9>; clone sessions as in BMv2.
MAX_GROUP_ID = 0xFFFF
MAX_SESSION_ID = 0x7FFF
_MAX_INSTANCE = 0xFFFF

Choices = tuple[tuple[int, int], ...]
"""A replica's (port, replication id), then those of its backups in the order of preference."""

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
    entries: dict[int, _Stored] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A group or session: the message as it is read, and its replicas."""

    message: Any
    replicas: tuple[Choices, ...]


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
            set=lambda m, r: pipeline.set_clone_session(
                m.session_id, r, m.packet_length_bytes, m.class_of_service
            ),
            delete=pipeline.delete_clone_session,
        )
        self._port_is_up = pipeline.port_is_up

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
            replicas = _replicas(copy, f"{kind.name} {number}")
            self._put(kind, number, _Stored(copy, replicas))
        if undo is not None:
            undo.append(lambda: self._put(kind, number, before))

    def _put(self, kind: _Kind, number: int, entry: _Stored | None) -> None:
        if entry is None:
            kind.delete(number)
            del kind.entries[number]
            return
        kind.set(entry.message, [self._choose(choices) for choices in entry.replicas])
        kind.entries[number] = entry

    def _choose(self, choices: Choices) -> tuple[int, int]:
        if len(choices) == 1:
            return choices[0]
        return next((choice for choice in choices if self._is_up(choice[0])), choices[0])

    def _is_up(self, port: int) -> bool:
        try:
            return self._port_is_up(port)
        except NotFound:
            return False

    def port_changed(self, port: int) -> None:
        """A port went up or down: replicas with backups follow."""
        for kind in (self._groups, self._sessions):
            for number, entry in kind.entries.items():
                if any(len(c) > 1 and port in dict(c) for c in entry.replicas):
                    self._put(kind, number, entry)

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
                content = message_field(kind.number, stored.message.SerializeToString())
                yield message_field(ENTITY_REPLICATION, content)

    def export(self) -> Iterator[Any]:
        """PacketReplicationEngineEntry messages of everything here."""
        for entry in self._groups.entries.values():
            yield p4r.PacketReplicationEngineEntry(multicast_group_entry=entry.message)
        for entry in self._sessions.entries.values():
            yield p4r.PacketReplicationEngineEntry(clone_session_entry=entry.message)

    def clear(self) -> None:
        """Remove everything from the data plane."""
        for kind in (self._groups, self._sessions):
            for number in tuple(kind.entries):
                self._put(kind, number, None)


def _replicas(entry: Any, where: str) -> tuple[Choices, ...]:
    """The replicas of an entry; makes the ports in it canonical."""
    if isinstance(entry, p4r.CloneSessionEntry) and entry.packet_length_bytes < 0:
        raise invalid(f"{where}: packet_length_bytes {entry.packet_length_bytes} is negative")
    replicas = []
    for replica in entry.replicas:
        which = replica.WhichOneof("port_kind")
        if which == "port":
            port = _canonical_port(replica, where)
        elif which == "egress_port":
            port = replica.egress_port
            if port >> PORT_BITS:
                raise invalid(f"{where}: port {port} does not fit in {PORT_BITS} bits")
        else:
            raise invalid(f"{where}: a replica without a port")
        choices = [(port, _instance(replica, where))]
        for backup in replica.backup_replicas:
            choices.append((_canonical_port(backup, where), _instance(backup, where)))
            if choices[-1][0] == port:
                raise invalid(f"{where}: port {port} is its own backup")
        replicas.append(tuple(choices))
    pairs = [pair for choices in replicas for pair in choices]
    if len(set(pairs)) != len(pairs):
        raise invalid(f"{where}: a pair of port and instance is given twice")
    return tuple(replicas)


def _canonical_port(replica: Any, where: str) -> int:
    port = decode_unsigned(replica.port, PORT_BITS, f"{where}: port")
    replica.port = encode_unsigned(port)
    return port


def _instance(replica: Any, where: str) -> int:
    if replica.instance > _MAX_INSTANCE:
        raise invalid(f"{where}: instance {replica.instance} is above {_MAX_INSTANCE}")
    return int(replica.instance)
