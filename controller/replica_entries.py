# SPDX-License-Identifier: Apache-2.0
"""The entries by which a T0 sends a carrier on by two T1s at once (p4src/include/replicate.p4).

A local uSID for each uplink: `replicate` by its T1 and by the next one that is allowed. They are
there whether a policy has such classes or not, as everything that switches forward by.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from finsy import P4MulticastGroupEntry, P4TableAction, P4TableEntry, P4TableMatch

from controller import addressing as addr
from controller.addressing import DeviceKind, UsidKind
from controller.canonical import DesiredEntry
from controller.fabric import Device
from controller.overlay import Overlay

FIRST_GROUP = 1
"""Multicast group of uplink u: this + u."""


def replica_entries(overlay: Overlay, switch: Device) -> list[DesiredEntry]:
    """What a T0 needs for it; nothing for a T1, and for a T0 with one uplink."""
    fabric = overlay.fabric
    if switch.kind is not DeviceKind.T0 or fabric.uplinks < 2:
        return []
    ports = [
        addr.t0_uplink_port(fabric.hosts_per_group, uplink) for uplink in range(fabric.uplinks)
    ]
    return [*_uplinks(overlay, switch, ports), *_replications(overlay, switch, ports)]


def _uplinks(overlay: Overlay, switch: Device, ports: list[int]) -> Iterator[P4TableEntry]:
    """The T1 behind each uplink, for egress."""
    fabric = overlay.fabric
    for uplink, port in enumerate(ports):
        yield P4TableEntry(
            "replica_uplinks",
            match=P4TableMatch(egress_port=port),
            action=P4TableAction(
                "to_t1",
                t1=addr.usid(UsidKind.T1, switch.plane, uplink),
                dst_mac=fabric.mac(*fabric.neighbour(switch, port)),
                src_mac=fabric.mac(switch, port),
            ),
        )


def _replications(overlay: Overlay, switch: Device, ports: list[int]) -> Iterator[DesiredEntry]:
    """Multicast groups and who uses them. Senders do not ask for an uplink that is denied."""
    allowed = overlay.link_allowed[switch.plane, switch.index]
    for uplink, port in enumerate(ports):
        others = np.roll(np.arange(len(ports)), -uplink)[1:]
        second = next((ports[other] for other in others.tolist() if allowed[other]), None)
        group = 0
        if second is not None:
            group = FIRST_GROUP + uplink
            yield P4MulticastGroupEntry(group, replicas=[port, second])
        yield P4TableEntry(
            "local_sid",
            match=P4TableMatch(local_sid=addr.replicate_usid(uplink)),
            action=P4TableAction(
                "replicate",
                multicast_group=group,
                first_port=port,
                second_port=second or port,
                capacity=overlay.fabric.topology.queue_depth,
            ),
        )
