# SPDX-License-Identifier: Apache-2.0
"""Direct resources of a table's entries: counters and meters (P4Runtime 1.4, section 9.1.9).

`undo`, where it is not None, collects how to take an operation back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from softswitch.boundary import TableLike
from softswitch.counted import counted_entry, counted_key
from softswitch.entities_meter import (
    NO_COUNTS,
    check_reset,
    config_content,
    config_message,
    counts_content,
    parse_config,
)
from softswitch.p4info import TableInfo
from softswitch.status import UNIMPLEMENTED, Failure, Undo, invalid
from softswitch.values import MeterConfig, MeterState
from softswitch.wire import counter_data, message_field

# Field numbers in TableEntry, DirectCounterEntry and DirectMeterEntry.
_METER_CONFIG, _COUNTER_DATA, _METER_COUNTER_DATA = 6, 7, 12
_DIRECT_TABLE_ENTRY, _DIRECT_DATA, _DIRECT_COUNTER_DATA = 1, 2, 3

DEFAULT_HANDLE = -1
"""Stands for the default entry, which has a counter but no meter (as in BMv2)."""

Snapshot = tuple[tuple[int, int] | None, MeterState | None]
"""An entry's counter and meter."""


class HasHandle(Protocol):
    """An entry; its handle changes when it is deleted and put back."""

    @property
    def handle(self) -> int: ...


class Stored(HasHandle, Protocol):
    """An entry and the TableEntry that a read gives of it."""

    @property
    def wire(self) -> bytes: ...


class DirectResources:
    """The counters and meters of one table's entries, by the entries' handles."""

    def __init__(self, info: TableInfo, table: TableLike) -> None:
        self._info = info
        self._table = table
        self._where = f"table {info.name!r}"

    # --- writes -------------------------------------------------------------------------------

    def check(self, message: Any) -> None:
        """Raise `Failure` when a TableEntry to be written has what its table or nobody has."""
        if message.HasField("counter_data"):
            self.check_counter(message.counter_data)
        if message.HasField("meter_config"):
            self._meter_config(message.meter_config)
        if message.HasField("meter_counter_data"):
            self.need_meter()
            check_reset(message.meter_counter_data, self._where)

    def check_counter(self, data: Any) -> None:
        """Raise `Failure` when CounterData cannot be written to this table."""
        self.need_counter()
        if data.packet_count < 0 or data.byte_count < 0:
            raise invalid(f"{self._where}: a counter cannot be negative")

    def need_counter(self) -> None:
        """Raise `Failure` INVALID_ARGUMENT when the table has no direct counter."""
        if not self._info.has_counter:
            raise invalid(f"{self._where} has no direct counter")

    def need_meter(self) -> None:
        """Raise `Failure` INVALID_ARGUMENT when the table has no direct meter."""
        if self._info.meter is None:
            raise invalid(f"{self._where} has no direct meter")

    def need_entry(self, message: Any) -> None:
        """Raise `Failure` for the default entry, which has no meter."""
        if message.is_default_action:
            raise Failure(UNIMPLEMENTED, f"{self._where}: the default entry has no meter")

    def _meter_config(self, message: Any) -> MeterConfig:
        self.need_meter()
        assert self._info.meter is not None
        return parse_config(message, self._info.meter.kind, self._where)

    def initialise(self, entry: HasHandle, message: Any) -> None:
        """Give a new entry what the TableEntry says that `check` has passed."""
        if message.HasField("counter_data"):
            data = message.counter_data
            self.write_counter(entry, data.packet_count, data.byte_count)
        if message.HasField("meter_config"):
            self._table.configure_meter(entry.handle, self._meter_config(message.meter_config))

    def modify(self, entry: HasHandle, message: Any, undo: Undo | None) -> None:
        """MODIFY an entry: a counter that is not given stays, a meter is reset (9.1.9)."""
        if message.HasField("counter_data"):
            self.modify_counter(entry, message.counter_data, undo)
        if self._info.meter is None or entry.handle == DEFAULT_HANDLE:
            return
        before = self._table.read_meter(entry.handle)
        config = None
        if message.HasField("meter_config"):
            config = self._meter_config(message.meter_config)
        if undo is not None:
            undo.append(lambda: self.restore_meter(entry, before))
        if config != before.config:
            self._table.configure_meter(entry.handle, config)
        if message.HasField("meter_counter_data"):
            self._table.count_meter(entry.handle, NO_COUNTS)

    def modify_counter(self, entry: HasHandle, data: Any, undo: Undo | None) -> None:
        """Set a counter to CounterData that `check_counter` has passed."""
        if undo is not None:
            before = self.counter(entry)
            undo.append(lambda: self.write_counter(entry, *before))
        self.write_counter(entry, data.packet_count, data.byte_count)

    def modify_meter(self, entry: HasHandle, message: Any, undo: Undo | None) -> None:
        """MODIFY the meter of an entry as a DirectMeterEntry says."""
        config = self._meter_config(message.config) if message.HasField("config") else None
        reset = message.HasField("counter_data")
        if reset:
            check_reset(message.counter_data, self._where)
        if undo is not None:
            before = self._table.read_meter(entry.handle)
            undo.append(lambda: self.restore_meter(entry, before))
        self._table.configure_meter(entry.handle, config)
        if reset:
            self._table.count_meter(entry.handle, NO_COUNTS)

    def restore_meter(self, entry: HasHandle, state: MeterState) -> None:
        """Give a meter an earlier configuration and counters."""
        self._table.configure_meter(entry.handle, state.config)
        self._table.count_meter(entry.handle, state.counts)

    def write_counter(self, entry: HasHandle, packets: int, bytes_: int) -> None:
        """Set a counter."""
        if entry.handle == DEFAULT_HANDLE:
            self._table.write_default_counter(packets, bytes_)
        else:
            self._table.write_counter(entry.handle, packets, bytes_)

    def snapshot(self, entry: HasHandle) -> Snapshot:
        """What `restore` gives back to an entry that was deleted meanwhile."""
        return (
            self.counter(entry) if self._info.has_counter else None,
            None if self._info.meter is None else self._table.read_meter(entry.handle),
        )

    def restore(self, entry: HasHandle, snapshot: Snapshot) -> None:
        """Give an entry the counter and the meter that it had."""
        counter, meter = snapshot
        if counter is not None:
            self.write_counter(entry, *counter)
        if meter is not None:
            self.restore_meter(entry, meter)

    # --- reads --------------------------------------------------------------------------------

    def counter(self, entry: HasHandle) -> tuple[int, int]:
        """(packets, bytes) of an entry."""
        if entry.handle == DEFAULT_HANDLE:
            return self._table.read_default_counter()
        return self._table.read_counter(entry.handle)

    def asked_for(self, query: Any) -> bool:
        """Whether a read wants any of the resources that the table has."""
        return (query.HasField("counter_data") and self._info.has_counter) or (
            self._info.meter is not None
            and (query.HasField("meter_config") or query.HasField("meter_counter_data"))
        )

    def fields(self, entry: HasHandle, query: Any) -> bytes:
        """The fields of a TableEntry with the resources that a read asks for."""
        content = b""
        if self._info.has_counter and query.HasField("counter_data"):
            content = message_field(_COUNTER_DATA, counter_data(*self.counter(entry)))
        if self._info.meter is None or entry.handle == DEFAULT_HANDLE:
            return content
        with_config, with_counts = (
            query.HasField("meter_config"),
            query.HasField("meter_counter_data"),
        )
        if with_config or with_counts:
            state = self._table.read_meter(entry.handle)
            if with_config and state.config is not None:
                content += message_field(_METER_CONFIG, config_content(state.config))
            if with_counts:
                content += message_field(_METER_COUNTER_DATA, counts_content(state))
        return content

    def only_counters(self, query: Any) -> bool:
        """Whether a read asks for counters and no other resource."""
        return (
            self._info.has_counter
            and query.HasField("counter_data")
            and not (
                self._info.meter is not None
                and (query.HasField("meter_config") or query.HasField("meter_counter_data"))
            )
        )

    def counted(self, entries: Iterable[Stored], *, direct: bool) -> list[bytes]:
        """Serialised Entity messages of entries with counters, or (`direct`) of the counters."""
        found = list(entries)
        if len(found) == 1 and found[0].handle == DEFAULT_HANDLE:
            encode = counted_key if direct else counted_entry
            return [encode(found[0].wire, *self.counter(found[0]))]
        return self._table.counted(
            [entry.handle for entry in found], [entry.wire for entry in found], direct=direct
        )

    def meter_entry(self, entry: HasHandle, key: bytes, *, with_counts: bool) -> bytes:
        """The content of a DirectMeterEntry; `key` is a TableEntry that names the entry."""
        content = message_field(_DIRECT_TABLE_ENTRY, key)
        state = self._table.read_meter(entry.handle)
        if state.config is not None:
            content += message_field(_DIRECT_DATA, config_content(state.config))
        if with_counts:
            content += message_field(_DIRECT_COUNTER_DATA, counts_content(state))
        return content

    def export(self, entry: HasHandle, message: Any) -> bool:
        """Put counter and meter configuration into a TableEntry; False: they are as at first."""
        used = False
        if self._info.has_counter:
            packets, bytes_ = self.counter(entry)
            used = bool(packets or bytes_)
            message.counter_data.packet_count = packets
            message.counter_data.byte_count = bytes_
        if self._info.meter is not None and entry.handle != DEFAULT_HANDLE:
            state = self._table.read_meter(entry.handle)
            if state.config is not None:
                message.meter_config.CopyFrom(config_message(state.config))
                used = True
        return used
