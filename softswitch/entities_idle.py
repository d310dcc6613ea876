# SPDX-License-Identifier: Apache-2.0
"""Idle time-outs of a table's entries (P4Runtime 1.4, section 9.1.8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from softswitch.boundary import TableLike
from softswitch.counted import key_only
from softswitch.entities_direct import DEFAULT_HANDLE
from softswitch.entities_entry import Entry
from softswitch.p4info import TableInfo
from softswitch.status import invalid
from softswitch.wire import integer_field, message_field

_TIME_SINCE_LAST_HIT = 10  # a field of TableEntry
_ELAPSED_NS = 1

MOST_EXPIRED = 1024
"""Entries of one IdleTimeoutNotification, so that it stays far below gRPC's 4 MiB."""


class IdleTimeouts:
    """The time-outs of one table. `supported` is what the P4Info says.

    `changed` is called with a time-out, in seconds, that begins to run.
    """

    def __init__(self, info: TableInfo, table: TableLike) -> None:
        self.supported = info.idle_timeout
        self.changed: Callable[[float], None] | None = None
        self._table = table
        self._where = f"table {info.name!r}"
        self._entries: dict[int, Entry] = {}  # those with a time-out, by handle

    def check(self, message: Any) -> None:
        """Raise `Failure` when a TableEntry to be written has what its table does not have."""
        if message.HasField("time_since_last_hit"):
            raise invalid(f"{self._where}: time_since_last_hit is read-only")
        if message.idle_timeout_ns < 0:
            raise invalid(f"{self._where}: idle_timeout_ns {message.idle_timeout_ns} is negative")
        if message.idle_timeout_ns and not self.supported:
            raise invalid(f"{self._where} does not support idle timeouts")
        if message.idle_timeout_ns and message.is_default_action:
            raise invalid(f"{self._where}: the default entry cannot have an idle timeout")

    def check_read(self, query: Any) -> None:
        """Raise `Failure` when a read asks for times that there are not."""
        if not query.HasField("time_since_last_hit"):
            return
        if not self.supported:
            raise invalid(
                f"{self._where} does not support idle timeouts, so it has no time_since_last_hit"
            )
        if query.is_default_action:
            raise invalid(f"{self._where}: the default entry has no time_since_last_hit")

    def set(self, entry: Entry, timeout_ns: int) -> None:
        """Let an entry's time-out run from now on; 0: it has none."""
        if not timeout_ns and entry.handle not in self._entries:
            return
        self._table.set_timeout(entry.handle, timeout_ns)
        if timeout_ns:
            self.begun(entry, timeout_ns / 1e9)
        else:
            del self._entries[entry.handle]

    def begun(self, entry: Entry, seconds: float) -> None:
        """A time-out that the data plane has of an entry begins to run."""
        self._entries[entry.handle] = entry
        if self.changed is not None:
            self.changed(seconds)

    def forget(self, entry: Entry) -> None:
        """The entry is about to be deleted."""
        self._entries.pop(entry.handle, None)

    def field(self, entry: Entry) -> bytes:
        """The field time_since_last_hit of a TableEntry."""
        assert entry.handle != DEFAULT_HANDLE
        elapsed = integer_field(_ELAPSED_NS, self._table.idle_ns(entry.handle))
        return message_field(_TIME_SINCE_LAST_HIT, elapsed)

    def expired(self) -> tuple[list[Any], float | None]:
        """TableEntry messages of entries whose time-outs have passed, and run again now.

        Also in how many seconds there may be more; None: when `changed` says so.
        """
        if not self._entries:
            return [], None
        handles, seconds = self._table.expired(MOST_EXPIRED)
        more = ("controller_metadata", "metadata", "idle_timeout_ns")
        return [key_only(self._entries[handle].wire, *more) for handle in handles], seconds
