# SPDX-License-Identifier: Apache-2.0
"""How each device is doing: reachable, under whose control, with the right program and entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from finsy import P4Schema

from controller.canonical import DesiredEntry, count_by_table, held_entries, wanted_entries
from controller.counters import DeviceCounters, read_device
from controller.devices import visit_all
from controller.inventory import Inventory
from controller.p4rt import CONNECT_TIMEOUT_S, DeviceConnection
from controller.reconcile import plan_device


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """One device; everything after ``error`` is None when it could not be read."""

    device: str
    error: str | None = None
    primary: int | None = None  # election id of the controller that holds it
    program_ok: bool | None = None
    entries: Mapping[str, int] | None = None  # by table
    pending: int | None = None  # updates that a push would write
    counters: DeviceCounters | None = None

    @property
    def ok(self) -> bool:
        """Reachable, with the right program and exactly the wanted entries."""
        return self.error is None and bool(self.program_ok) and self.pending == 0


async def read_status(
    inventory: Inventory,
    desired: Mapping[str, Sequence[DesiredEntry]],
    *,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
) -> list[DeviceStatus]:
    """Status of all devices in inventory order; ``desired`` has the wanted entries by name."""

    async def one(name: str, link: DeviceConnection, schema: P4Schema) -> DeviceStatus:
        primary = await link.primary()
        if not await link.has_program(schema):
            return DeviceStatus(name, primary=primary, program_ok=False)
        held = held_entries(await link.read_tables(), schema)
        plan = plan_device(wanted_entries(desired[name], schema), held, schema)
        return DeviceStatus(
            name,
            primary=primary,
            program_ok=True,
            entries=count_by_table(held, schema),
            pending=plan.size,
            counters=await read_device(link, schema),
        )

    found, errors = await visit_all(inventory, one, connect_timeout_s=connect_timeout_s)
    return [
        found[name] if name in found else DeviceStatus(name, error=errors[name])
        for name in inventory.devices
    ]
