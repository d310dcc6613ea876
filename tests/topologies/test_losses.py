# SPDX-License-Identifier: Apache-2.0
"""Where packets vanished, from port counters alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from controller.addressing import CPU_PORT, DeviceKind
from controller.counters import DeviceCounters, FabricCounters
from controller.fabric import Fabric
from topologies.losses import uncounted_losses
from topologies.schema import Topology

FABRIC = Fabric.from_topology(
    Topology(name="tiny", planes=1, t0_per_plane=2, t1_per_plane=1, hosts_per_t0_group=1)
)
WAY = (("n0-0", 1, 2), ("p0t0-0", 1, 2), ("p0t1-0", 1, 2), ("p0t0-1", 2, 1), ("n1-0", 2, 1))


def counted(passed: Iterable[tuple[str, int, int, int, int]], drops: int = 0) -> FabricCounters:
    """Counters from (device, port in, packets in, port out, packets out)."""
    devices = {}
    for device in FABRIC.devices(DeviceKind.T0, DeviceKind.T1, DeviceKind.NIC):
        arrays = [np.zeros((size, 2), dtype=np.int64) for size in (32, 512, 512)]
        devices[device.name] = DeviceCounters(
            np.zeros(2, dtype=np.int64), arrays[0], arrays[1], arrays[2]
        )
    for name, into, packets_in, out, packets_out in passed:
        devices[name].port_in[into, 0] = packets_in
        devices[name].port_out[out, 0] = packets_out
    devices["p0t0-1"].drops[3, 0] = drops
    return FabricCounters(devices)


def test_nothing_is_lost_where_all_agrees() -> None:
    whole = counted((name, into, 10, out, 10) for name, into, out in WAY)
    assert uncounted_losses(FABRIC, whole) == {}


def test_queue_wire_and_counted_drop_are_told_apart() -> None:
    packets = (100, 100, 90, 83, 80, 80)  # 10 between T0 and T1, 7 in the T1, 3 dropped by a T0
    read = counted(
        (
            ("n0-0", 1, packets[0], 2, packets[1]),
            ("p0t0-0", 1, packets[1], 2, packets[1]),
            ("p0t1-0", 1, packets[2], 2, packets[3]),
            ("p0t0-1", 2, packets[3], 1, packets[4]),
            ("n1-0", 2, packets[4], 1, packets[5]),
        ),
        drops=3,
    )
    assert uncounted_losses(FABRIC, read) == {
        "in p0t1-0's queues": 7,
        "between p0t0-0 and p0t1-0": 10,
    }


def test_answers_to_a_controller_are_no_losses() -> None:
    whole = counted((name, into, 10, out, 10) for name, into, out in WAY)
    whole.devices["n0-0"].port_out[CPU_PORT, 0] = 7
    assert uncounted_losses(FABRIC, whole) == {}


def test_what_a_controller_sends_by_a_nic_is_one() -> None:
    whole = counted((name, into, 10, out, 10) for name, into, out in WAY)
    whole.devices["n0-0"].port_in[CPU_PORT, 0] = 7
    assert uncounted_losses(FABRIC, whole) == {"in n0-0's queues": 7}
