# SPDX-License-Identifier: Apache-2.0
"""The P4Runtime entries that a device should hold: a pure function of fabric, device and policy.

Tables and actions are those of p4src/fabric.p4 and p4src/nic.p4. Values are plain numbers, prefixes
(address, length) pairs: what finsy gives when it reads them back, so that both compare equal. What
other entries refer to comes first, so that inserting in order never points at nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from finsy import (
    P4IndirectAction,
    P4MulticastGroupEntry,
    P4TableAction,
    P4TableEntry,
    P4TableMatch,
)
from numpy.typing import NDArray

from controller import addressing as addr
from controller.addressing import DeviceKind
from controller.apportion import Counts, smallest_proportion
from controller.canonical import DesiredEntry
from controller.copy_entries import copy_entries
from controller.fabric import Device, Fabric
from controller.nic_entries import nic_entries
from controller.overlay import Overlay, bind
from controller.policy import Policy, PolicyError
from controller.queue_entries import queue_entries
from controller.replica_entries import replica_entries
from controller.routes import ForwardTable, static_tables

MAX_GROUP_WEIGHT = 64
"""Sum of the weights of an ECMP group whose members do not weigh the same: BMv2 repeats a member as
often as it weighs."""

TABLE_SIZES = {
    "fabric": {
        "locator_block": 4,
        "my_sid": 1024,
        "local_sid": 1024,
        "replica_uplinks": 512,
        "usid_fib": 2048,
        "ipv6_fib": 4096,
        "ecmp_groups": 512,
        "punt": 16,
        "port_config": 512,
        "traffic_classes": 64,
    },
    "nic": {
        "locator_block": 4,
        "destinations": 4096,
        "group_cfg": 1024,
        "plane_sets": 4096,
        "slots": 131072,
        "bundles": 16384,
        "copy_turns": 2048,
        "copy_classes": 64,
        "copy_macs": 16,
        "duplicate_classes": 64,
        "own_sid": 16,
        "own_address": 16,
        "link_macs": 16,
        "traffic_classes": 64,
        "peers": 16384,
    },
}
"""Sizes of the tables in P4; a test compares them with the P4Info."""
ECMP_SELECTOR_SIZE = 2048


def program_of(device: Device) -> str:
    """The P4 program that a device runs: "fabric" or "nic"."""
    if device.kind is DeviceKind.HOST:
        raise ValueError(f"{device.name} is a host and runs no P4 program")
    return "nic" if device.kind is DeviceKind.NIC else "fabric"


def desired_entries(
    fabric: Fabric, device_name: str, policy: Policy | Overlay
) -> list[DesiredEntry]:
    """All entries of one device.

    A `Policy` is bound to the fabric first; who asks for many devices binds it once
    (`overlay.bind`). Raises `FabricError` for an unknown name, `ValueError` for a host and
    `PolicyError` when the policy does not suit the fabric or needs more entries than a table holds.
    """
    device = fabric.device(device_name)
    program = program_of(device)
    overlay = bind(policy, fabric) if isinstance(policy, Policy) else policy
    block = P4TableEntry(
        "locator_block", match=P4TableMatch(block=fabric.block), action=P4TableAction("in_block")
    )
    entries: list[DesiredEntry]
    if program == "nic":
        own = nic_entries(overlay, device)
        entries = [block, *own, *copy_entries(overlay, device, own)]
    else:
        queues = queue_entries(fabric, device, overlay.policy.queues)
        replicas = replica_entries(overlay, device)
        entries = [block, *_switch_entries(overlay, device), *replicas, *queues]
    _check_sizes(device, program, entries)
    return entries


def _check_sizes(device: Device, program: str, entries: Sequence[DesiredEntry]) -> None:
    tables = [entry for entry in entries if not isinstance(entry, P4MulticastGroupEntry)]
    used = Counter(entry.table_id for entry in tables)
    for table, size in TABLE_SIZES[program].items():
        if used[table] > size:
            raise PolicyError(
                f"{device.name}: table {table} would need {used[table]} entries; allowed: at most "
                f"{size} (fewer slots_per_plane, fewer different denials or weights)"
            )
    members = sum(
        len(entry.action.action_set or ())
        for entry in tables
        if isinstance(entry.action, P4IndirectAction)
    )
    if members > ECMP_SELECTOR_SIZE:
        raise PolicyError(
            f"{device.name}: ecmp_selector would need {members} members; allowed: at most "
            f"{ECMP_SELECTOR_SIZE} (fewer different denials or weights)"
        )


def _switch_entries(overlay: Overlay, switch: Device) -> list[P4TableEntry]:
    fabric = overlay.fabric
    tables = static_tables(fabric)
    node = int(tables.my_sid[switch.row])
    entries = [
        P4TableEntry("my_sid", match=P4TableMatch(locator_node=node), action=P4TableAction("un")),
        P4TableEntry(
            "local_sid",
            match=P4TableMatch(local_sid=addr.DT6_USID),
            action=P4TableAction("dt6"),
        ),
    ]
    entries += _forwards(tables.local_sid, switch.row, "local_sid", "local_sid", "ua")
    entries += _forwards(tables.usid_fib, switch.row, "usid_fib", "locator_node", "forward")

    groups: dict[tuple[int, ...], int] = {}
    prefixes = []
    within = tables.ipv6_fib.of(switch.row)
    fib = zip(
        *(
            column[within].tolist()
            for column in (
                tables.ipv6_fib.suffix,
                tables.ipv6_fib.prefix_len,
                tables.ipv6_fib.group,
                tables.ipv6_fib.port,
                tables.ipv6_fib.dst_mac,
                tables.ipv6_fib.src_mac,
            )
        ),
        strict=True,
    )
    for suffix, prefix_len, dst_group, port, dst_mac, src_mac in fib:
        if port:
            action = P4TableAction("forward", port=port, dst_mac=dst_mac, src_mac=src_mac)
        else:
            weights = overlay.path_weights(switch.index, dst_group)[switch.plane]
            if not weights.any():
                continue  # NO_ROUTE: this plane has no path there, and NICs know it
            members = tuple(_ecmp_weights(weights).tolist())
            action = P4TableAction("to_ecmp", group_id=groups.setdefault(members, len(groups) + 1))
        prefixes.append(
            P4TableEntry(
                "ipv6_fib",
                match=P4TableMatch(dst_addr=(addr.HOST_ADDRESS_BASE | suffix, prefix_len)),
                action=action,
            )
        )
    entries += [
        _ecmp_group(tables.uplinks, switch.row, members, group_id)
        for members, group_id in groups.items()
    ]
    return entries + prefixes


def _forwards(
    table: ForwardTable, row: int, name: str, key: str, action: str
) -> list[P4TableEntry]:
    within = table.of(row)
    columns = (table.key, table.port, table.dst_mac, table.src_mac)
    return [
        P4TableEntry(
            name,
            match=P4TableMatch({key: value}),
            action=P4TableAction(action, port=port, dst_mac=dst_mac, src_mac=src_mac),
        )
        for value, port, dst_mac, src_mac in zip(
            *(column[within].tolist() for column in columns), strict=True
        )
    ]


def _ecmp_weights(weights: NDArray[np.float64]) -> Counts:
    """Whole weights of an ECMP group's members by uplink, 0: not a member."""
    positive = weights[weights > 0]
    if np.all(positive == positive[0]):
        return (weights > 0).astype(np.int64)
    counts = smallest_proportion(weights, max(MAX_GROUP_WEIGHT, len(positive)))
    return counts // math.gcd(*counts.tolist())


def _ecmp_group(
    uplinks: ForwardTable, row: int, weights: tuple[int, ...], group_id: int
) -> P4TableEntry:
    within = uplinks.of(row)
    columns = (uplinks.key, uplinks.port, uplinks.dst_mac, uplinks.src_mac)
    members = [
        (weights[uplink], P4TableAction("forward", port=port, dst_mac=dst_mac, src_mac=src_mac))
        for uplink, port, dst_mac, src_mac in zip(
            *(column[within].tolist() for column in columns), strict=True
        )
        if weights[uplink]
    ]
    return P4TableEntry(
        "ecmp_groups",
        match=P4TableMatch(group_id=group_id),
        action=P4IndirectAction(members),
    )
