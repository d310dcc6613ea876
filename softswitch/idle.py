# SPDX-License-Identifier: Apache-2.0
"""Notifications of idle entries (P4Runtime 1.4, section 16.4 "Table Idle Timeout Notification").

The tables are looked at when the first time-out may have passed, so that an idle switch sleeps.
What has timed out by then goes out in one message per table; the time-outs then run again. All
methods run in the event loop's thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from finsy.proto import p4r

from softswitch.entities_idle import IdleTimeouts

SCAN_INTERVAL_S = 0.01
"""Time-outs are not told apart, and not looked for, more exactly than this."""

LEAST_REST = 20
"""Between two looks is at least this many times what one took: tables may have many entries."""


class Timer(Protocol):
    """A pending call, as asyncio.TimerHandle."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """The part of an asyncio event loop that this needs; seconds."""

    def time(self) -> float: ...
    def call_at(self, when: float, callback: Callable[[], object], /) -> Timer: ...


class IdleMonitor:
    """Watches the tables of the program that runs; `send` gets each StreamMessageResponse."""

    def __init__(
        self, tables: Sequence[IdleTimeouts], clock: Clock, send: Callable[[Any], None]
    ) -> None:
        self._tables = tables
        self._clock = clock
        self._send = send
        self._timer: Timer | None = None
        self._due = 0.0
        self._interval = SCAN_INTERVAL_S
        self._watching = True
        for table in tables:
            table.changed = self._look_in

    def start(self) -> None:
        """Look at the tables, now and whenever it is time."""
        self._watching = True
        self._look_in(0.0)

    def stop(self) -> None:
        """Look no more until `start`."""
        self._watching = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_in(self, seconds: float) -> None:
        if not self._watching:
            return
        due = self._clock.time() + max(seconds, self._interval)
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = self._clock.call_at(due, self._look)

    def _look(self) -> None:
        self._timer = None
        started = self._clock.time()
        waits = []
        for table in self._tables:
            entries, seconds = table.expired()
            if entries:
                response = p4r.StreamMessageResponse()
                response.idle_timeout_notification.table_entry.extend(entries)
                response.idle_timeout_notification.timestamp = time.time_ns()
                self._send(response)
            if seconds is not None:
                waits.append(seconds)
        took = self._clock.time() - started
        self._interval = max(SCAN_INTERVAL_S, LEAST_REST * took)
        if waits:
            self._look_in(min(waits))
