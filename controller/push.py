# SPDX-License-Identifier: Apache-2.0
"""Bring running devices to the entries they should have: read, diff, write, all devices at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from finsy import P4Schema

from controller.canonical import DesiredEntry, Entries, held_entries, wanted_entries
from controller.inventory import Device, Inventory
from controller.p4rt import (
    BATCH_UPDATES,
    CONCURRENT_DEVICES,
    CONNECT_TIMEOUT_S,
    DeviceConnection,
    DeviceError,
    connect,
    load_programs,
)
from controller.reconcile import Change, Kind, Plan, plan_device
from controller.words import in_words

# A wrong program makes every entry fail in the same way; the rest is only counted.
ERRORS_SHOWN = 10


@dataclass(slots=True)
class DeviceReport:
    """What a push did to one device."""

    device: str
    reached: bool = False  # we became its controller and know its program
    pipeline_pushed: bool = False
    inserted: int = 0
    modified: int = 0
    deleted: int = 0
    unchanged: int = 0
    skipped: int = 0  # planned, but not written because an earlier stage failed
    seconds: float = 0.0
    write_seconds: float = 0.0
    errors: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the device now holds exactly what was wanted."""
        return not self.errors

    @property
    def written(self) -> int:
        """Number of updates that took effect."""
        return self.inserted + self.modified + self.deleted


@dataclass(frozen=True, slots=True)
class PushReport:
    """What a push did, by device name."""

    devices: Mapping[str, DeviceReport]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether every device now holds exactly what was wanted."""
        return all(report.ok for report in self.devices.values())

    @property
    def written(self) -> int:
        """Number of updates that took effect on all devices."""
        return sum(report.written for report in self.devices.values())


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a device's push is: ``done`` of ``total`` updates; total is 0 until it is known."""

    device: str
    step: str
    done: int = 0
    total: int = 0


OnProgress = Callable[[Progress], None]


async def push(
    inventory: Inventory,
    desired: Mapping[str, Sequence[DesiredEntry]],
    *,
    programs: Mapping[str, P4Schema] | None = None,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    on_progress: OnProgress | None = None,
) -> PushReport:
    """Push ``desired`` (entries by device name) to the devices of ``inventory``, concurrently.

    A device that is not in ``desired`` is left alone; one that cannot be reached does not stop the
    others. A second push of the same entries writes nothing. Raises DeviceError when ``desired``
    names a device that is not running, and when the compiled programs are missing.
    """
    unknown = sorted(desired.keys() - inventory.devices.keys())
    if unknown:
        raise DeviceError(f"not in the running fabric: {', '.join(unknown)}")
    schemas = load_programs() if programs is None else programs
    tell = on_progress or (lambda _: None)
    gate = asyncio.Semaphore(CONCURRENT_DEVICES)
    started = time.monotonic()

    async def one(name: str) -> DeviceReport:
        async with gate:
            device = inventory.devices[name]
            schema = schemas[device.program]
            return await _push_device(name, device, schema, desired[name], connect_timeout_s, tell)

    reports = await asyncio.gather(*(one(name) for name in desired))
    return PushReport({report.device: report for report in reports}, time.monotonic() - started)


async def _push_device(
    name: str,
    device: Device,
    schema: P4Schema,
    desired: Sequence[DesiredEntry],
    connect_timeout_s: float,
    tell: OnProgress,
) -> DeviceReport:
    report = DeviceReport(name)
    started = time.monotonic()
    try:
        wanted = wanted_entries(desired, schema)
        tell(Progress(name, "connecting"))
        async with connect(name, device.address, device.device_id, connect_timeout_s) as link:
            await link.as_primary(lambda: _bring_up(link, schema, wanted, report, tell))
    except (DeviceError, ValueError) as error:
        report.errors.append(str(error))
    report.seconds = time.monotonic() - started
    tell(Progress(name, "done" if report.ok else "failed", report.written, report.written))
    return report


async def _bring_up(
    link: DeviceConnection,
    schema: P4Schema,
    wanted: Entries,
    report: DeviceReport,
    tell: OnProgress,
) -> None:
    """Program and entries; begins anew with what it finds when it is called again."""
    if not await link.has_program(schema):
        tell(Progress(report.device, "loading the program"))
        await link.set_program(schema)
        report.pipeline_pushed = True
    report.reached = True
    await _reconcile(link, schema, wanted, report, tell)


async def _reconcile(
    link: DeviceConnection,
    schema: P4Schema,
    wanted: Entries,
    report: DeviceReport,
    tell: OnProgress,
) -> None:
    tell(Progress(report.device, "reading"))
    plan = plan_device(wanted, held_entries(await link.read_tables(), schema), schema)
    # What an attempt before this one has written was not there.
    report.unchanged = plan.unchanged - report.inserted - report.modified
    started = time.monotonic()
    try:
        await _write_plan(link, schema, plan, report, tell)
    finally:
        report.write_seconds = time.monotonic() - started


async def _write_plan(
    link: DeviceConnection,
    schema: P4Schema,
    plan: Plan,
    report: DeviceReport,
    tell: OnProgress,
) -> None:
    """Write stage after stage. A stage that fails ends it: what comes later relies on it."""
    refused = 0
    before = report.written
    try:
        for stage in plan.stages:
            for start in range(0, len(stage), BATCH_UPDATES):
                batch = stage[start : start + BATCH_UPDATES]
                tell(Progress(report.device, "writing", report.written, plan.size))
                failures = await link.write([change.message() for change in batch])
                failed = {failure.index for failure in failures}
                for index, change in enumerate(batch):
                    if index not in failed:
                        _count(report, change)
                for failure in failures:
                    refused += 1
                    if refused <= ERRORS_SHOWN:
                        words = _words(batch[failure.index], schema)
                        report.errors.append(f"{words}: {failure.code}: {failure.message}")
            if refused:
                break
    finally:
        report.skipped = plan.size - (report.written - before) - refused
    if refused > ERRORS_SHOWN:
        report.errors.append(f"and {refused - ERRORS_SHOWN} more entries were refused")


def _count(report: DeviceReport, change: Change) -> None:
    if change.kind is Kind.INSERT:
        report.inserted += 1
    elif change.kind is Kind.MODIFY:
        report.modified += 1
    else:
        report.deleted += 1


def _words(change: Change, schema: P4Schema) -> str:
    return f"{change.kind.name.lower()} {in_words(change.key, schema, change.value)}"
