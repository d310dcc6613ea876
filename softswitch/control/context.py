# SPDX-License-Identifier: Apache-2.0
"""What commands work on, and what they answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from finsy.proto import p4r

from softswitch.control.words import CommandError, full_name
from softswitch.dataplane import Dataplane
from softswitch.entities import EntityStore
from softswitch.p4info import P4InfoView, TableInfo
from softswitch.pipeline import PipelineManager, Running

INSERT: int = p4r.Update.INSERT
MODIFY: int = p4r.Update.MODIFY
DELETE: int = p4r.Update.DELETE


@dataclass(frozen=True, slots=True)
class Answer:
    """The same for people and for programs."""

    text: str
    data: Any


@dataclass(slots=True)
class Node:
    """A node of the multicast engine as simple_switch_CLI has it: replicas of one group."""

    rid: int
    ports: tuple[int, ...]
    group: int | None = None

    @property
    def replicas(self) -> list[tuple[int, int]]:
        """As (port, replication id)."""
        return [(port, self.rid) for port in self.ports]


@dataclass(slots=True)
class Context:
    """A switch as commands see it.

    Entities of the program are written through the store that P4Runtime reads, and belong to it.
    """

    dataplane: Dataplane
    pipeline: PipelineManager
    address: str
    started: float = field(default_factory=time.monotonic)
    _nodes: dict[int, Node] = field(default_factory=dict)
    _nodes_of: Running | None = None

    @property
    def running(self) -> Running:
        """The program that forwards. Raises `CommandError` when there is none."""
        if self.pipeline.running is None:
            raise CommandError("the switch has no program yet; a controller can load one")
        return self.pipeline.running

    @property
    def store(self) -> EntityStore:
        """The entities of that program."""
        return self.running.store

    @property
    def view(self) -> P4InfoView:
        """Names and ids of these entities."""
        return self.store.view

    @property
    def nodes(self) -> dict[int, Node]:
        """Multicast nodes by handle. They go when the program is replaced, as groups do."""
        if self._nodes_of is not self.running:
            self._nodes, self._nodes_of = {}, self.running
        return self._nodes

    def table(self, given: str) -> TableInfo:
        """The table of this name or unique end of a name."""
        tables = {table.name: table for table in self.view.tables.values()}
        return tables[full_name(given, tables, "table")]

    def write(self, kind: int, **entity: Any) -> None:
        """Write one entity, as a P4Runtime controller would. Raises the `Failure` that it gets."""
        update = p4r.Update(type=kind, entity=p4r.Entity(**entity))
        (outcome,) = self.store.write([update])
        if outcome is not None:
            raise outcome

    def read(self, **entity: Any) -> Iterator[Any]:
        """The Entity messages that a P4Runtime controller would read. Raises a `Failure`."""
        found, (outcome,) = self.store.read([p4r.Entity(**entity)])
        if outcome is not None:
            raise outcome
        return map(p4r.Entity.FromString, found)


Handler = Callable[[Context, list[str]], Answer]
"""Carries a command out. Raises `CommandError`, `Failure` or `DataplaneError`."""
