# SPDX-License-Identifier: Apache-2.0
"""What a fabric counted during an experiment: sums over switches and devices."""

from __future__ import annotations

import asyncio
import time

import numpy as np

from controller.addressing import CPU_PORT, DeviceKind
from controller.counters import FabricCounters, read_fabric
from controller.drops import DropReason
from controller.fabric import Fabric
from controller.p4rt import DeviceError
from topologies.emulation import Emulation

QUIET_S = 0.5
QUIET_TIMEOUT_S = 20.0


async def counters(emulation: Emulation) -> FabricCounters:
    """All counters of all devices. Raises DeviceError."""
    found = await read_fabric(emulation.inventory)
    if found.errors:
        listed = "; ".join(f"{name}: {error}" for name, error in found.errors.items())
        raise DeviceError(f"counters could not be read: {listed}")
    return found


async def counters_at_rest(emulation: Emulation) -> FabricCounters:
    """All counters, when nothing is on its way: they have not changed for a while.

    Raises DeviceError, also when that is never so.
    """
    deadline = time.monotonic() + QUIET_TIMEOUT_S
    before = await counters(emulation)
    while time.monotonic() < deadline:
        await asyncio.sleep(QUIET_S)
        now = await counters(emulation)
        since = now - before
        if not any(
            ports[:CPU_PORT].any()
            for device in since.devices.values()
            for ports in (device.port_in, device.port_out)
        ):
            return now
        before = now
    raise DeviceError(f"packets are still on their way after {QUIET_TIMEOUT_S:g} s")


def at_queues(fabric: Fabric, counted: FabricCounters, name: str, *, to_hosts: bool) -> int:
    """Sum of one of QUEUE_COUNTERS over the switches' ports to NICs, or to switches."""
    packets = 0
    for switch in fabric.devices(DeviceKind.T0, DeviceKind.T1):
        counts = counted.devices[switch.name].queues[name][:, 0]
        hosts = fabric.hosts_per_group if switch.kind is DeviceKind.T0 else 0
        packets += int(counts[1 : hosts + 1].sum() if to_hosts else counts[hosts + 1 :].sum())
    return packets


def drops(counted: FabricCounters) -> dict[str, int]:
    """Packets dropped by reason, over all devices."""
    sums = np.sum([device.drops[:, 0] for device in counted.devices.values()], axis=0)
    return {DropReason(reason).name: int(sums[reason]) for reason in np.flatnonzero(sums).tolist()}
