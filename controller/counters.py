# SPDX-License-Identifier: Apache-2.0
"""What the devices counted, as arrays: packets by switch, by port and by reason of a drop.

Counters run from the moment a program was loaded; take the difference of two readings for a period.
Columns of every array are (packets, bytes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from finsy import P4Schema
from finsy.proto import p4r
from numpy.typing import NDArray

from controller.addressing import DeviceKind
from controller.canonical import Key, from_message
from controller.devices import visit_all
from controller.fabric import Fabric
from controller.inventory import Inventory
from controller.p4rt import CONNECT_TIMEOUT_S, DeviceConnection

Counts = NDArray[np.int64]

QUEUE_COUNTERS = {
    "ecn_marked_packets": "Marked",
    "trim_packets": "Trimmed",
    "dropped_trim_packets": "Trim-dropped",
    "dropped_packets": "Tail-dropped",
    "dropped_copies": "Copies-dropped",
}
"""Counters of fabric.p4 by egress port, as SAI names them but for the last one, and how they are
called in tables. Packets that were trimmed and then dropped are in both."""


@dataclass(frozen=True, slots=True)
class DeviceCounters:
    """One device's counters.

    `un` (2,): carriers whose leading uSID was this switch's, zero on a NIC.
    `drops` (reasons, 2) by DropReason; `port_in` and `port_out` (ports, 2) by port number.
    `queues`: (ports, 2) for each of QUEUE_COUNTERS, none on a NIC.
    """

    un: Counts
    drops: Counts
    port_in: Counts
    port_out: Counts
    queues: Mapping[str, Counts] = field(default_factory=dict)

    def __sub__(self, earlier: DeviceCounters) -> DeviceCounters:
        """What was counted since an earlier reading of the same device."""
        return DeviceCounters(
            self.un - earlier.un,
            self.drops - earlier.drops,
            self.port_in - earlier.port_in,
            self.port_out - earlier.port_out,
            {name: counts - earlier.queues[name] for name, counts in self.queues.items()},
        )


@dataclass(frozen=True, slots=True)
class FabricCounters:
    """Counters by device name, and why the others could not be read."""

    devices: Mapping[str, DeviceCounters]
    errors: Mapping[str, str] = field(default_factory=dict)

    def __sub__(self, earlier: FabricCounters) -> FabricCounters:
        """What was counted since an earlier reading, for devices that are in both."""
        both = {
            name: counters - earlier.devices[name]
            for name, counters in self.devices.items()
            if name in earlier.devices
        }
        return FabricCounters(both, {**earlier.errors, **self.errors})


async def read_indirect(link: DeviceConnection, schema: P4Schema, name: str) -> Counts:
    """An indexed counter as an array (size, 2). Raises DeviceError."""
    counter = schema.counters[name]
    result = np.zeros((counter.size, 2), dtype=np.int64)
    wanted = p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=counter.id))
    async for entity in link.read(wanted):
        entry = entity.counter_entry
        result[entry.index.index] = entry.data.packet_count, entry.data.byte_count
    return result


async def read_direct(
    link: DeviceConnection, schema: P4Schema, table: str
) -> dict[Key, tuple[int, int]]:
    """A table's direct counters: (packets, bytes) by entry. Raises DeviceError."""
    entry = p4r.TableEntry(table_id=schema.tables[table].id, counter_data=p4r.CounterData())
    found = {}
    async for entity in link.read(p4r.Entity(table_entry=entry)):
        data = entity.table_entry.counter_data
        key, _ = from_message(entity.table_entry)
        found[key] = (data.packet_count, data.byte_count)
    return found


async def read_device(link: DeviceConnection, schema: P4Schema) -> DeviceCounters:
    """All counters of one device. Raises DeviceError."""
    un = np.zeros(2, dtype=np.int64)
    if schema.tables.get("my_sid") is not None:
        for counts in (await read_direct(link, schema, "my_sid")).values():
            un += counts
    return DeviceCounters(
        un,
        await read_indirect(link, schema, "drops"),
        await read_indirect(link, schema, "port_in"),
        await read_indirect(link, schema, "port_out"),
        {
            name: await read_indirect(link, schema, name)
            for name in QUEUE_COUNTERS
            if schema.counters.get(name) is not None
        },
    )


async def read_fabric(
    inventory: Inventory, *, connect_timeout_s: float = CONNECT_TIMEOUT_S
) -> FabricCounters:
    """Counters of all devices, read concurrently; a device that fails is named in ``errors``."""
    devices, errors = await visit_all(
        inventory,
        lambda _, link, schema: read_device(link, schema),
        connect_timeout_s=connect_timeout_s,
    )
    return FabricCounters(devices, errors)


def t1_packets(fabric: Fabric, counters: FabricCounters) -> NDArray[np.float64]:
    """Carriers by plane and T1 (P, U): how the spray spread; NaN where a T1 was not read."""
    result = np.full((fabric.planes, fabric.uplinks), np.nan)
    for device in fabric.devices(DeviceKind.T1):
        if device.name in counters.devices:
            result[device.plane, device.index] = counters.devices[device.name].un[0]
    return result


def spread(packets: NDArray[np.float64]) -> float:
    """Largest over mean number of packets, 1.0 when all are equal; NaN when there are none."""
    mean = np.nanmean(packets) if np.isfinite(packets).any() else np.nan
    return float(np.nanmax(packets) / mean) if mean > 0 else float("nan")
