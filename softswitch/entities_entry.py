# SPDX-License-Identifier: Apache-2.0
"""The entries of one table, and how requests name them (P4Runtime 1.4, sections 9.1 and 9.1.6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r

from softswitch.entities_direct import DEFAULT_HANDLE
from softswitch.entities_match import Key, KeyParser
from softswitch.entities_profile import Group, Member, OneShot
from softswitch.p4info import TableInfo
from softswitch.status import NOT_FOUND, Failure, invalid

Target = Member | Group | OneShot


class Entry:
    """An entry. `wire` is the TableEntry as it is read, which also keeps match and action.

    `target` is what it refers to in the action profile, None for an action of its own; `const` an
    entry that the program itself has.
    """

    __slots__ = ("const", "handle", "target", "wire")

    def __init__(
        self, handle: int, wire: bytes, target: Target | None = None, const: bool = False
    ) -> None:
        self.handle = handle
        self.wire = wire
        self.target = target
        self.const = const


class EntrySet:
    """A table's entries by key; `default` is the TableEntry of its default entry."""

    def __init__(self, info: TableInfo, keys: KeyParser, default: bytes) -> None:
        self.by_key: dict[Key, Entry] = {}
        self.default = default
        self._info = info
        self._keys = keys
        self._where = f"table {info.name!r}"

    def default_entry(self) -> Entry:
        """The default entry."""
        return Entry(DEFAULT_HANDLE, self.default)

    def check_default_key(self, message: Any) -> None:
        """Raise `Failure` when a TableEntry for the default entry has a key."""
        if message.match or message.priority:
            raise invalid(f"{self._where}: the default entry has neither match nor priority")

    def find(self, message: Any) -> tuple[Key, Entry, bool]:
        """Key and entry that a TableEntry names, and whether it did so in canonical form."""
        key, _, canonical = self._keys.parse(message.match, message.priority)
        entry = self.by_key.get(key)
        if entry is None:
            raise Failure(NOT_FOUND, f"{self._where} has no entry with this match")
        return key, entry, canonical

    def with_handle(self, handle: int) -> Entry | None:
        """The entry that has this handle in the data plane."""
        return next((e for e in self.by_key.values() if e.handle == handle), None)

    def named(self, message: Any) -> Entry:
        """The entry that a TableEntry names, which may be the default entry."""
        if not message.is_default_action:
            return self.find(message)[1]
        self.check_default_key(message)
        return self.default_entry()

    def select(self, query: Any) -> Iterator[Entry]:
        """The entries that a TableEntry in a ReadRequest asks for."""
        if query.is_default_action:
            self.check_default_key(query)
            entries: Iterator[Entry] = iter((self.default_entry(),))
        elif query.match:
            key, _, _ = self._keys.parse(query.match, query.priority)
            entries = iter((self.by_key[key],) if key in self.by_key else ())
        else:
            entries = iter(tuple(self.by_key.values()))
        if (
            query.HasField("action")
            or query.priority
            or query.metadata
            or query.controller_metadata
        ):
            return self._filter(entries, query)
        return entries

    def select_by_key(self, query: Any) -> Iterator[Entry]:
        """The same for direct resources: what else but a key a client put in does not count.

        Unlike there, a single entry that is missing is an error.
        """
        query = p4r.TableEntry(
            table_id=query.table_id,
            match=query.match,
            priority=query.priority,
            is_default_action=query.is_default_action,
        )
        if query.match or query.priority:
            self.find(query)
        return self.select(query)

    def _filter(self, entries: Iterator[Entry], query: Any) -> Iterator[Entry]:
        action_id = 0
        if query.HasField("action"):
            if query.action.WhichOneof("type") != "action":
                raise invalid(f"{self._where}: reads can be filtered by action id only")
            action_id = query.action.action.action_id
        for entry in entries:
            message = p4r.TableEntry.FromString(entry.wire)
            if (
                (not query.priority or message.priority == query.priority)
                and (not query.metadata or message.metadata == query.metadata)
                and query.controller_metadata in (0, message.controller_metadata)
                and action_id in (0, message.action.action.action_id)
            ):
                yield entry
