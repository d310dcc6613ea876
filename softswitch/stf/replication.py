# SPDX-License-Identifier: Apache-2.0
"""Multicast nodes and groups and mirroring sessions as simple_switch_CLI makes them.

A node is a replication id with ports; nodes are numbered in the order in which they were made. A
group replicates to its nodes in the order in which they were associated, within a node by port.
A session sends to a port or to whatever its group holds at the time.
"""

from __future__ import annotations

from collections.abc import Sequence

from softswitch.boundary import PipelineLike
from softswitch.errors import AlreadyExists, InvalidArgument, NotFound


class Replication:
    """Nodes, groups and sessions of one switch, which is kept up to date."""

    def __init__(self, switch: PipelineLike) -> None:
        self._switch = switch
        self._nodes: list[tuple[int, list[int]]] = []
        self._groups: dict[int, list[int]] = {}
        self._sessions: dict[int, int] = {}

    def create_group(self, group: int) -> None:
        """A group without nodes."""
        if group in self._groups:
            raise AlreadyExists(f"multicast group {group} is there already")
        self._groups[group] = []
        self._write(group)

    def create_node(self, replication_id: int, ports: Sequence[int]) -> int:
        """A node that is in no group yet; its number."""
        self._nodes.append((replication_id, sorted(set(ports))))
        return len(self._nodes) - 1

    def update_node(self, node: int, ports: Sequence[int]) -> None:
        """Other ports for a node."""
        replication_id, _ = self._node(node)
        self._nodes[node] = replication_id, sorted(set(ports))
        for group, nodes in self._groups.items():
            if node in nodes:
                self._write(group)

    def associate(self, group: int, node: int) -> None:
        """Put a node into a group."""
        self._node(node)
        if group not in self._groups:
            raise NotFound(f"there is no multicast group {group}")
        if any(node in nodes for nodes in self._groups.values()):
            raise InvalidArgument(f"node {node} is in a group already")
        self._groups[group].append(node)
        self._write(group)

    def mirror_to_port(self, session: int, port: int) -> None:
        """Make or replace a session that copies to one port."""
        self._sessions.pop(session, None)
        self._switch.set_clone_session(session, [(port, 0)], 0)

    def mirror_to_group(self, session: int, group: int) -> None:
        """Make or replace a session that copies to a group, which may not be there yet."""
        self._sessions[session] = group
        self._switch.set_clone_session(session, self._replicas(group), 0)

    def delete_session(self, session: int) -> None:
        """Remove a session."""
        self._switch.delete_clone_session(session)
        self._sessions.pop(session, None)

    def describe(self, session: int) -> str:
        """The group of a session and what it holds, for messages."""
        if session not in self._sessions:
            return "no multicast group"
        group = self._sessions[session]
        copies = ", ".join(f"port {port} id {rid}" for port, rid in self._replicas(group))
        return f"multicast group {group} ({copies or 'empty'})"

    def _node(self, node: int) -> tuple[int, list[int]]:
        if not 0 <= node < len(self._nodes):
            raise NotFound(f"there is no multicast node {node}")
        return self._nodes[node]

    def _replicas(self, group: int) -> list[tuple[int, int]]:
        return [
            (port, self._nodes[node][0])
            for node in self._groups.get(group, [])
            for port in self._nodes[node][1]
        ]

    def _write(self, group: int) -> None:
        replicas = self._replicas(group)
        self._switch.set_multicast_group(group, replicas)
        for session, target in self._sessions.items():
            if target == group:
                self._switch.set_clone_session(session, replicas, 0)
