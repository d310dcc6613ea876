# SPDX-License-Identifier: Apache-2.0
"""The entries by which NICs send copies of some traffic classes, and drop those that come second.

Tables of p4src/include/copies.p4 and duplicates.p4; nothing of it where the policy has no
`redundancy`. A bundle is slot i of every plane of a spray group, side by side, so that the paths
of copies follow the same weights and denials as those of other packets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from finsy import P4MulticastGroupEntry, P4TableAction, P4TableEntry, P4TableMatch

from controller import addressing as addr
from controller.canonical import DesiredEntry
from controller.fabric import Device
from controller.overlay import Overlay
from controller.policy import Redundancy
from mrc.options import DEFAULT_OPTIONS, CodePoints

FIRST_GROUP = 0x100
"""Multicast group of the planes of a mask: this + mask (COPY_GROUPS)."""
MAX_COPIES = 3
PLANE_BITS = 16
"""Of a bundle, for each plane."""


def copy_entries(
    overlay: Overlay, nic: Device, nic_entries: Sequence[P4TableEntry]
) -> list[DesiredEntry]:
    """What a NIC needs for the policy's redundancy, given its other entries."""
    classes = overlay.policy.redundancy
    if not classes:
        return []
    over_planes = [
        *_multicast_groups(overlay.fabric.planes),
        *_turns(overlay.fabric.planes),
        *_macs(nic_entries),
        *_bundles(nic_entries),
    ]
    return [
        *_duplicate_classes(classes, DEFAULT_OPTIONS.code_points),
        *(over_planes if any(item.mode == "planes" for item in classes) else ()),
        *_copy_classes(classes),
    ]


def _copy_classes(classes: Sequence[Redundancy]) -> Iterator[P4TableEntry]:
    for item in classes:
        yield P4TableEntry(
            "copy_classes",
            match=P4TableMatch(dscp=item.dscp),
            action=P4TableAction("over_planes", copies=item.copies)
            if item.mode == "planes"
            else P4TableAction("in_network"),
        )


def _duplicate_classes(
    classes: Sequence[Redundancy], code_points: CodePoints
) -> Iterator[P4TableEntry]:
    actions = {item.dscp: "first_only" for item in classes}
    actions[code_points.trimmed] = actions[code_points.trimmed_lasthop] = "trimmed_copy"
    for dscp, action in actions.items():
        yield P4TableEntry(
            "duplicate_classes", match=P4TableMatch(dscp=dscp), action=P4TableAction(action)
        )


def _multicast_groups(planes: int) -> Iterator[P4MulticastGroupEntry]:
    """One for each set of 2 or 3 planes."""
    for copies in range(2, min(planes, MAX_COPIES) + 1):
        for chosen in combinations(range(planes), copies):
            yield P4MulticastGroupEntry(
                FIRST_GROUP + sum(1 << plane for plane in chosen),
                replicas=[addr.nic_plane_port(plane) for plane in chosen],
            )


def _turns(planes: int) -> Iterator[P4TableEntry]:
    """For each set of live planes, and each plane that may be first: the three to use."""
    for mask in range(1, 1 << planes):
        for turn in range(planes):
            in_turn = [(turn + step) % planes for step in range(planes)]
            live = [plane for plane in in_turn if mask >> plane & 1][:MAX_COPIES]
            first, second, third = (live + [live[0]] * MAX_COPIES)[:MAX_COPIES]
            yield P4TableEntry(
                "copy_turns",
                match=P4TableMatch(live_planes=mask, turn=turn),
                action=P4TableAction(
                    "take_planes",
                    count=len(live),
                    first_plane=first,
                    second_plane=second,
                    third_plane=third,
                    next=(first + 1) % planes,
                ),
            )


def _macs(nic_entries: Sequence[P4TableEntry]) -> Iterator[P4TableEntry]:
    """The links to the planes, which egress must know for copies."""
    for entry in nic_entries:
        if entry.table_id == "link_macs" and entry["egress_port"] != addr.NIC_HOST_PORT:
            assert isinstance(entry.action, P4TableAction)
            action = P4TableAction("set_copy_macs", **entry.action.args)
            yield P4TableEntry("copy_macs", match=entry.match, action=action)


def _bundles(nic_entries: Sequence[P4TableEntry]) -> Iterator[P4TableEntry]:
    """Slot i of all planes of a group as its bundle i; a plane without slots is never asked for."""
    bundles: dict[tuple[int, int, int], tuple[int, int]] = {}
    for entry in nic_entries:
        if entry.table_id == "slots":
            assert isinstance(entry.action, P4TableAction)
            where = (entry["group_id"], entry["generation"], entry["slot"])
            shift = PLANE_BITS * entry["plane"]
            path_evs, alternates = bundles.get(where, (0, 0))
            bundles[where] = (
                path_evs | entry.action.args["path_ev"] << shift,
                alternates | entry.action.args["second"] << shift,
            )
    for (group, generation, index), (path_evs, alternates) in bundles.items():
        yield P4TableEntry(
            "bundles",
            match=P4TableMatch(group_id=group, generation=generation, index=index),
            action=P4TableAction("use_bundle", path_evs=path_evs, alternates=alternates),
        )
