# SPDX-License-Identifier: Apache-2.0
"""Commands for multicast groups and clone sessions.

P4Runtime's groups are lists of (port, replication id). simple_switch_CLI puts nodes into groups, a
replication id with ports each; here a node is kept beside the group that got its replicas.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from finsy.proto import p4r

from softswitch.control.context import DELETE, INSERT, MODIFY, Answer, Context, Handler, Node
from softswitch.control.words import CommandError, natural
from softswitch.dataplane import MAX_PORT
from softswitch.entities_replication import MAX_GROUP_ID, MAX_SESSION_ID
from softswitch.p4info import encode_unsigned

_MAX_RID = 0xFFFF

Replica = tuple[int, int]
"""Port and replication id."""


def _entry(**kind: Any) -> Any:
    return p4r.PacketReplicationEngineEntry(**kind)


def _messages(replicas: Iterable[Replica]) -> list[Any]:
    return [p4r.Replica(port=encode_unsigned(port), instance=rid) for port, rid in replicas]


def _pair(replica: Any) -> Replica:
    if replica.WhichOneof("port_kind") == "port":
        return int.from_bytes(replica.port, "big"), replica.instance
    return replica.egress_port, replica.instance


def _pairs(message: Any) -> list[Replica]:
    """Of a MulticastGroupEntry or a CloneSessionEntry."""
    return [_pair(replica) for replica in message.replicas]


def _text(replicas: Iterable[Replica]) -> str:
    return ", ".join(f"port {port} rid {rid}" for port, rid in replicas) or "empty"


def _groups(context: Context, group_id: int = 0) -> list[Any]:
    query = _entry(multicast_group_entry=p4r.MulticastGroupEntry(multicast_group_id=group_id))
    return [
        e.packet_replication_engine_entry.multicast_group_entry
        for e in context.read(packet_replication_engine_entry=query)
    ]


def _sessions(context: Context, session_id: int = 0) -> list[Any]:
    query = _entry(clone_session_entry=p4r.CloneSessionEntry(session_id=session_id))
    return [
        e.packet_replication_engine_entry.clone_session_entry
        for e in context.read(packet_replication_engine_entry=query)
    ]


def _write(context: Context, kind: int, **entry: Any) -> None:
    context.write(kind, packet_replication_engine_entry=_entry(**entry))


# --- multicast ----------------------------------------------------------------------------------


def _group_id(word: str) -> int:
    return natural(word, "multicast group", MAX_GROUP_ID, low=1)


def mgrp_create(context: Context, words: list[str]) -> Answer:
    """Make a group."""
    group = _group_id(words[0])
    message = p4r.MulticastGroupEntry(multicast_group_id=group)
    _write(context, INSERT, multicast_group_entry=message)
    return Answer(f"multicast group {group} added", {"group": group})


def mgrp_destroy(context: Context, words: list[str]) -> Answer:
    """Delete a group; its nodes stay."""
    group = _group_id(words[0])
    message = p4r.MulticastGroupEntry(multicast_group_id=group)
    _write(context, DELETE, multicast_group_entry=message)
    for node in context.nodes.values():
        if node.group == group:
            node.group = None
    return Answer(f"multicast group {group} deleted", {"group": group})


def _ports(words: list[str]) -> tuple[int, ...]:
    if "|" in words:
        if words[-1] != "|":
            raise CommandError("there are no link aggregation groups; give ports")
        words = words[:-1]
    ports = tuple(natural(word, "port", MAX_PORT) for word in words)
    if len(set(ports)) != len(ports):
        raise CommandError("a port is given twice")
    return ports


def _node(context: Context, word: str) -> tuple[int, Node]:
    handle = natural(word, "node")
    if handle not in context.nodes:
        raise CommandError(f"there is no node {handle}; mc_node_create makes one")
    return handle, context.nodes[handle]


def _exchange(context: Context, group: int, old: Iterable[Replica], new: Iterable[Replica]) -> None:
    """Put other replicas of a node into its group."""
    (message,) = _groups(context, group)
    gone = set(old)
    kept = [replica for replica in message.replicas if _pair(replica) not in gone]
    changed = p4r.MulticastGroupEntry()
    changed.CopyFrom(message)
    del changed.replicas[:]
    changed.replicas.extend([*kept, *_messages(new)])
    _write(context, MODIFY, multicast_group_entry=changed)


def node_create(context: Context, words: list[str]) -> Answer:
    """Make a node."""
    node = Node(natural(words[0], "rid", _MAX_RID), _ports(words[1:]))
    handle = next(i for i in range(len(context.nodes) + 1) if i not in context.nodes)
    context.nodes[handle] = node
    return Answer(f"node {handle} added", {"node": handle})


def node_update(context: Context, words: list[str]) -> Answer:
    """Other ports for a node."""
    handle, node = _node(context, words[0])
    changed = Node(node.rid, _ports(words[1:]), node.group)
    if node.group is not None:
        _exchange(context, node.group, node.replicas, changed.replicas)
    context.nodes[handle] = changed
    return Answer(f"node {handle} modified", {"node": handle})


def node_associate(context: Context, words: list[str]) -> Answer:
    """Put a node into a group."""
    group = _group_id(words[0])
    handle, node = _node(context, words[1])
    if node.group is not None:
        raise CommandError(f"node {handle} is in multicast group {node.group} already")
    _exchange(context, group, (), node.replicas)
    node.group = group
    return Answer(f"node {handle} is in multicast group {group}", None)


def node_dissociate(context: Context, words: list[str]) -> Answer:
    """Take a node out of a group."""
    group = _group_id(words[0])
    handle, node = _node(context, words[1])
    if node.group != group:
        raise CommandError(f"node {handle} is not in multicast group {group}")
    _exchange(context, group, node.replicas, ())
    node.group = None
    return Answer(f"node {handle} is not in multicast group {group} any more", None)


def node_destroy(context: Context, words: list[str]) -> Answer:
    """Delete a node."""
    handle, node = _node(context, words[0])
    if node.group is not None:
        _exchange(context, node.group, node.replicas, ())
    del context.nodes[handle]
    return Answer(f"node {handle} deleted", {"node": handle})


def dump(context: Context, words: list[str]) -> Answer:
    """Groups, nodes in none, sessions."""
    groups = sorted((g.multicast_group_id, _pairs(g)) for g in _groups(context))
    loose = {handle: n for handle, n in context.nodes.items() if n.group is None}
    sessions = sorted((s.session_id, _pairs(s), s.packet_length_bytes) for s in _sessions(context))
    lines = [f"multicast group {group}: {_text(pairs)}" for group, pairs in groups]
    lines += [
        f"node {handle} in group {node.group}: {_text(node.replicas)}"
        for handle, node in context.nodes.items()
        if node.group is not None
    ]
    lines += [
        f"node {handle} in no group: {_text(node.replicas)}" for handle, node in loose.items()
    ]
    lines += [
        f"clone session {session}: {_text(pairs)}" + (f", first {length} bytes" if length else "")
        for session, pairs, length in sessions
    ]
    data = {
        "groups": [{"group": group, "replicas": _data(pairs)} for group, pairs in groups],
        "nodes": [
            {"node": handle, "rid": n.rid, "ports": list(n.ports), "group": n.group}
            for handle, n in context.nodes.items()
        ],
        "sessions": [
            {"session": session, "replicas": _data(pairs), "truncate": length or None}
            for session, pairs, length in sessions
        ],
    }
    return Answer("\n".join(lines) or "no groups, nodes or sessions", data)


def _data(replicas: Iterable[Replica]) -> list[dict[str, int]]:
    return [{"port": port, "rid": rid} for port, rid in replicas]


# --- clone sessions -----------------------------------------------------------------------------


def _session_id(word: str) -> int:
    return natural(word, "session", MAX_SESSION_ID, low=1)


def mirroring_add(context: Context, words: list[str]) -> Answer:
    """Make or change a session."""
    session = _session_id(words[0])
    message = p4r.CloneSessionEntry(
        session_id=session, replicas=_messages((port, 0) for port in _ports(words[1:]))
    )
    known = {s.session_id for s in _sessions(context)}
    _write(context, MODIFY if session in known else INSERT, clone_session_entry=message)
    return Answer(f"clone session {session}: {_text(_pairs(message))}", None)


def mirroring_delete(context: Context, words: list[str]) -> Answer:
    """Delete a session."""
    session = _session_id(words[0])
    message = p4r.CloneSessionEntry(session_id=session)
    _write(context, DELETE, clone_session_entry=message)
    return Answer(f"clone session {session} deleted", None)


def mirroring_get(context: Context, words: list[str]) -> Answer:
    """Show a session."""
    session = _session_id(words[0])
    (message,) = _sessions(context, session)
    pairs = _pairs(message)
    return Answer(f"clone session {session}: {_text(pairs)}", {"replicas": _data(pairs)})


HANDLERS: dict[str, Handler] = {
    "mc_dump": dump,
    "mc_mgrp_create": mgrp_create,
    "mc_mgrp_destroy": mgrp_destroy,
    "mc_node_create": node_create,
    "mc_node_update": node_update,
    "mc_node_associate": node_associate,
    "mc_node_dissociate": node_dissociate,
    "mc_node_destroy": node_destroy,
    "mirroring_add": mirroring_add,
    "mirroring_delete": mirroring_delete,
    "mirroring_get": mirroring_get,
}
