# SPDX-License-Identifier: Apache-2.0
"""Digests: lists, acknowledgements and time-outs (P4Runtime 1.4, section 9.8 "DigestEntry").

A message is buffered until `max_list_size` distinct ones are there or the oldest has waited
`max_timeout_ns`; then one DigestList goes out. Until its list is acknowledged, or `ack_timeout_ns`
has passed, a message with the same data is dropped. Time comes from the event loop's clock; all
methods run in its thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from finsy.proto import p4r

from softswitch.p4info import DigestInfo
from softswitch.status import ALREADY_EXISTS, NOT_FOUND, Failure, Undo, invalid
from softswitch.wire import ENTITY_DIGEST, message_field

Fields = tuple[int, ...]

# A client that never acknowledges, with a long ack_timeout_ns, must not fill the memory. Beyond
# this many messages the oldest list counts as acknowledged.
MAX_UNACKNOWLEDGED = 1 << 17


class Timer(Protocol):
    """A pending call, as asyncio.TimerHandle."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """The part of an asyncio event loop that digests need; seconds."""

    def time(self) -> float: ...
    def call_at(self, when: float, callback: Callable[[], object], /) -> Timer: ...


class DigestQueue:
    """One digest: its configuration, its buffer and its unacknowledged lists.

    `send` gets each finished DigestList inside a StreamMessageResponse.
    """

    def __init__(self, info: DigestInfo, clock: Clock, send: Callable[[Any], None]) -> None:
        self.info = info
        self._clock = clock
        self._send = send
        self._config: Any | None = None
        self._buffer: dict[Fields, None] = {}
        self._unacknowledged: dict[int, tuple[float, tuple[Fields, ...]]] = {}
        self._waiting: set[Fields] = set()
        self._next_list_id = 1
        self._flush_timer: Timer | None = None
        self._expiry_timer: Timer | None = None

    # --- configuration ------------------------------------------------------------------------

    def write(self, update_type: int, message: Any, undo: Undo | None) -> None:
        """INSERT, MODIFY or DELETE a DigestEntry: switch the digest on, change it, or off."""
        before = self._config
        if update_type == p4r.Update.INSERT and before is not None:
            raise Failure(ALREADY_EXISTS, f"{self._where} is configured already; use MODIFY")
        if update_type != p4r.Update.INSERT and before is None:
            raise Failure(NOT_FOUND, f"{self._where} is not configured; use INSERT")
        if update_type == p4r.Update.DELETE:
            self._configure(None)
        else:
            config = message.config
            if min(config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns) < 0:
                raise invalid(f"{self._where}: time-outs and list size cannot be negative")
            copy = p4r.DigestEntry.Config()
            copy.CopyFrom(config)
            self._configure(copy)
        if undo is not None:
            undo.append(lambda: self._configure(before))

    def _configure(self, config: Any | None) -> None:
        self._config = config
        if config is None:
            self.reset()
        elif self._buffer and self._is_full():
            self._flush()

    def read(self) -> bytes | None:
        """The serialised Entity message of the configuration; None when there is none."""
        if self._config is None:
            return None
        entry = p4r.DigestEntry(digest_id=self.info.id, config=self._config)
        return message_field(ENTITY_DIGEST, entry.SerializeToString())

    def export(self) -> Iterator[Any]:
        """The DigestEntry message of the configuration, if there is one."""
        if self._config is not None:
            yield p4r.DigestEntry(digest_id=self.info.id, config=self._config)

    # --- messages -----------------------------------------------------------------------------

    def add(self, fields: Fields) -> None:
        """A message from the data plane. Dropped when the digest is off or the data is known."""
        if self._config is None or fields in self._buffer or fields in self._waiting:
            return
        self._buffer[fields] = None
        if self._is_full():
            self._flush()
        elif self._flush_timer is None:
            delay = self._config.max_timeout_ns / 1e9
            self._flush_timer = self._clock.call_at(self._clock.time() + delay, self._flush)

    def acknowledge(self, list_id: int) -> None:
        """A DigestListAck; an unknown list (expired, or of another pipeline) is ignored."""
        entry = self._unacknowledged.pop(list_id, None)
        if entry is not None:
            self._waiting.difference_update(entry[1])

    def reset(self) -> None:
        """Forget buffered and unacknowledged messages and stop all timers."""
        for timer in (self._flush_timer, self._expiry_timer):
            if timer is not None:
                timer.cancel()
        self._flush_timer = self._expiry_timer = None
        self._buffer.clear()
        self._unacknowledged.clear()
        self._waiting.clear()

    def _is_full(self) -> bool:
        config = self._config
        assert config is not None
        if config.max_timeout_ns == 0:
            return True
        return bool(config.max_list_size) and len(self._buffer) >= config.max_list_size

    def _flush(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if not self._buffer:
            return
        config = self._config
        assert config is not None
        messages = tuple(self._buffer)
        self._buffer.clear()
        response = p4r.StreamMessageResponse()
        digest = response.digest
        digest.digest_id = self.info.id
        digest.list_id = self._next_list_id
        digest.timestamp = time.time_ns()
        digest.data.extend([self.info.type.encode(iter(m)) for m in messages])
        self._next_list_id += 1
        if config.ack_timeout_ns:
            expires = self._clock.time() + config.ack_timeout_ns / 1e9
            self._unacknowledged[digest.list_id] = (expires, messages)
            self._waiting.update(messages)
            while len(self._waiting) > MAX_UNACKNOWLEDGED and len(self._unacknowledged) > 1:
                self.acknowledge(next(iter(self._unacknowledged)))
            self._start_expiry()
        self._send(response)

    def _start_expiry(self) -> None:
        if self._expiry_timer is None and self._unacknowledged:
            first = min(expires for expires, _ in self._unacknowledged.values())
            self._expiry_timer = self._clock.call_at(first, self._expire)

    def _expire(self) -> None:
        self._expiry_timer = None
        now = self._clock.time()
        for list_id, (expires, _) in tuple(self._unacknowledged.items()):
            if expires <= now:
                self.acknowledge(list_id)
        self._start_expiry()

    @property
    def _where(self) -> str:
        return f"digest {self.info.name!r}"
