# SPDX-License-Identifier: Apache-2.0
"""Reading counters again and again while a fabric works.

    recorder = Recorder(inventory, plane_lines(fabric))
    async with recorder.recording(every_s=0.1):
        ...
        recorder.mark("cut p0t0-0|p0t1-1")
    series = recorder.series("packets by plane")

Connections stay open between readings, each device is asked for the cells that are needed and no
others, and all at the same time. A device that does not answer leaves a gap; the next reading
asks it again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import numpy as np
from finsy import P4Schema
from finsy.proto import p4r

from controller.inventory import Inventory
from controller.p4rt import (
    CONNECT_TIMEOUT_S,
    DeviceConnection,
    DeviceError,
    connect,
    load_programs,
)
from controller.timeseries import Event, Floats, Line, Readings, Series, rates

MIN_READINGS = 2


class RecorderError(Exception):
    """There is nothing to draw; the message says why."""


class Recorder:
    """Readings of all cells of some lines. Times count from when recording began."""

    def __init__(self, inventory: Inventory, lines: Sequence[Line]) -> None:
        self._inventory = inventory
        self._lines = tuple(lines)
        self._cells = tuple(dict.fromkeys(cell for line in lines for cell in line.cells))
        self._devices = tuple(dict.fromkeys(cell.device for cell in self._cells))
        columns: dict[str, list[int]] = {name: [] for name in self._devices}
        for column, cell in enumerate(self._cells):
            columns[cell.device].append(column)
        self._columns = columns
        self._began = time.monotonic()
        self._at_s: list[Floats] = []
        self._packets: list[Floats] = []
        self._events: list[Event] = []
        self.unread: dict[str, str] = {}
        """Devices that did not answer once or more, with the last reason."""

    @property
    def now_s(self) -> float:
        """Seconds since recording began."""
        return time.monotonic() - self._began

    def mark(self, text: str) -> Event:
        """Note that something happens now."""
        event = Event(self.now_s, text)
        self._events.append(event)
        return event

    @asynccontextmanager
    async def recording(
        self,
        every_s: float,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        on_reading: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[None]:
        """Take a reading every `every_s` seconds (and a first and a last one) within the block.

        Raises DeviceError when a device cannot be read at the beginning.
        """
        schemas = load_programs()
        async with AsyncExitStack() as stack:
            links = [
                await stack.enter_async_context(self._connect(name, connect_timeout_s))
                for name in self._devices
            ]
            asks = [
                self._question(name, schemas[self._inventory.devices[name].program])
                for name in self._devices
            ]
            self._began = time.monotonic()
            await self._read(links, asks)
            if self.unread:
                raise DeviceError("; ".join(f"{name}: {why}" for name, why in self.unread.items()))
            reading = asyncio.create_task(self._repeat(links, asks, every_s, on_reading))
            try:
                yield
            finally:
                reading.cancel()
                # An error of the reading itself is the caller's to hear of.
                (outcome,) = await asyncio.gather(reading, return_exceptions=True)
            if isinstance(outcome, Exception):
                raise outcome
            # Not at once: the rate over a short time is mostly chance.
            await asyncio.sleep(every_s)
            await self._read(links, asks)
            on_reading()

    def series(self, title: str) -> Series:
        """All that was read so far. Raises RecorderError before the second reading."""
        if len(self._at_s) < MIN_READINGS or np.isnan(np.array(self._at_s)).all():
            raise RecorderError(f"{title}: fewer than {MIN_READINGS} readings were taken")
        readings = Readings(
            self._lines,
            self._devices,
            self._cells,
            np.array(self._at_s),
            np.array(self._packets),
        )
        return rates(readings, title, self._events)

    def _connect(
        self, name: str, timeout_s: float
    ) -> AbstractAsyncContextManager[DeviceConnection]:
        device = self._inventory.devices[name]
        return connect(name, device.address, device.device_id, timeout_s)

    def _question(self, name: str, schema: P4Schema) -> list[p4r.Entity]:
        return [
            p4r.Entity(
                counter_entry=p4r.CounterEntry(
                    counter_id=schema.counters[cell.counter].id, index=p4r.Index(index=cell.index)
                )
            )
            for cell in (self._cells[column] for column in self._columns[name])
        ]

    async def _repeat(
        self,
        links: Sequence[DeviceConnection],
        asks: Sequence[list[p4r.Entity]],
        every_s: float,
        on_reading: Callable[[], None],
    ) -> None:
        due = self._began
        while True:
            # Behind schedule: the readings that were missed are not made up for.
            due = max(due + every_s, time.monotonic() + every_s / 2)
            await asyncio.sleep(due - time.monotonic())
            await self._read(links, asks)
            on_reading()

    async def _read(
        self, links: Sequence[DeviceConnection], asks: Sequence[list[p4r.Entity]]
    ) -> None:
        at_s = np.full(len(self._devices), np.nan)
        packets = np.full(len(self._cells), np.nan)

        async def one(number: int, link: DeviceConnection, ask: list[p4r.Entity]) -> None:
            name = self._devices[number]
            try:
                found = [entity.counter_entry async for entity in link.read(*ask)]
            except DeviceError as error:
                self.unread[name] = str(error)
                return
            at_s[number] = self.now_s
            # Answers need not come in the order of the questions.
            counted = {
                (entry.counter_id, entry.index.index): entry.data.packet_count for entry in found
            }
            for column, entity in zip(self._columns[name], ask, strict=True):
                entry = entity.counter_entry
                packets[column] = counted[entry.counter_id, entry.index.index]

        await asyncio.gather(
            *(one(number, *pair) for number, pair in enumerate(zip(links, asks, strict=True)))
        )
        # In one step, so that cancelling leaves no half a reading.
        self._at_s.append(at_s)
        self._packets.append(packets)
