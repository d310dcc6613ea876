# SPDX-License-Identifier: Apache-2.0
"""Where packets went missing without a drop being counted, from the ports' counters.

A P4 program counts what it drops. It cannot see what a full queue or receive ring loses: that shows
as a device that took in more than it sent out and dropped, or a wire whose ends disagree.
"""

from __future__ import annotations

from controller.addressing import CPU_PORT, DeviceKind
from controller.counters import FabricCounters
from controller.fabric import Fabric


def uncounted_losses(fabric: Fabric, counted: FabricCounters) -> dict[str, int]:
    """Packets lost unseen, by place, for the places that lost any.

    `counted` is a difference of two readings, both taken while nothing was on its way. Hosts are
    not looked at, as they have no such counters. What a controller asks of a device is answered,
    and not counted as it comes in; what it has a NIC send is.
    """
    lost: dict[str, int] = {}
    for name, device in counted.devices.items():
        in_queues = int(device.port_in[:, 0].sum() - device.port_out[:CPU_PORT, 0].sum())
        lost[f"in {name}'s queues"] = in_queues - int(device.drops[:, 0].sum())
    links = fabric.links
    for row, port, peer_row, peer_port in zip(
        *(array.tolist() for array in (links.a, links.a_port, links.b, links.b_port)), strict=True
    ):
        a, b = fabric.device_at(row), fabric.device_at(peer_row)
        if DeviceKind.HOST in (a.kind, b.kind):
            continue
        for source, out, target, into in ((a, port, b, peer_port), (b, peer_port, a, port)):
            sent = int(counted.devices[source.name].port_out[out, 0])
            received = int(counted.devices[target.name].port_in[into, 0])
            lost[f"between {source.name} and {target.name}"] = sent - received
    return {place: packets for place, packets in lost.items() if packets}
