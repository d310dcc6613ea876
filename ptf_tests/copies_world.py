# SPDX-License-Identifier: Apache-2.0
"""The entries by which the NIC under test sends copies, and drops those that arrive second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from finsy import P4MulticastGroupEntry, P4TableAction, P4TableEntry

from ptf_tests.device import Entity, entry
from ptf_tests.nic_world import PLANES, leaving, plane_port
from ptf_tests.world import CODE_POINTS

CLASS = {2: 10, 3: 11}  # copies -> DSCP
COPY_GROUPS = 0x100
COUNT = len(PLANES)


def copy_class(dscp: int, copies: int) -> P4TableEntry:
    """A traffic class that is sent so many times."""
    return entry("copy_classes", {"dscp": dscp}, P4TableAction("over_planes", copies=copies))


def in_network(dscp: int) -> P4TableEntry:
    """A traffic class that the first T0 is to send by two T1s."""
    return entry("copy_classes", {"dscp": dscp}, P4TableAction("in_network"))


def copy_macs(plane: int) -> P4TableEntry:
    """The link to a plane, for copies."""
    port = plane_port(plane << 13)
    macs = leaving(port)
    action = P4TableAction("set_copy_macs", dst_mac=macs.destination, src_mac=macs.source)
    return entry("copy_macs", {"egress_port": port}, action)


def plane_groups() -> list[P4MulticastGroupEntry]:
    """A multicast group for each 2 and each 3 planes."""
    return [
        P4MulticastGroupEntry(
            COPY_GROUPS + sum(1 << plane for plane in planes),
            replicas=[plane_port(plane << 13) for plane in planes],
        )
        for copies in (2, 3)
        for planes in combinations(PLANES, copies)
    ]


def turns(masks: Iterable[int]) -> list[P4TableEntry]:
    """Which planes carry the copies, by the mask of those alive and the plane whose turn it is."""
    entries = []
    for mask in masks:
        for turn in PLANES:
            live = [p % COUNT for p in range(turn, turn + COUNT) if mask >> p % COUNT & 1]
            first, second, third = (live * 3)[:3]
            action = P4TableAction(
                "take_planes",
                count=min(len(live), 3),
                first_plane=first,
                second_plane=second,
                third_plane=third,
                next=(first + 1) % COUNT,
            )
            entries.append(entry("copy_turns", {"live_planes": mask, "turn": turn}, action))
    return entries


def bundles(
    group: int, paths: Mapping[int, Sequence[int]], *, generation: int = 0, stride: int = 1
) -> list[P4TableEntry]:
    """Bundle i: path i of every plane, and path i + ``stride`` as its alternate."""
    (number,) = {len(evs) for evs in paths.values()}
    return [
        entry(
            "bundles",
            {"group_id": group, "generation": generation, "index": index},
            P4TableAction(
                "use_bundle",
                path_evs=sum(evs[index] << 16 * plane for plane, evs in paths.items()),
                alternates=sum(
                    evs[(index + stride) % number] << 16 * plane for plane, evs in paths.items()
                ),
            ),
        )
        for index in range(number)
    ]


def copying(masks: Iterable[int]) -> list[Entity]:
    """All that is needed to send copies but bundles and the group's configuration."""
    return [
        *plane_groups(),
        *map(copy_macs, PLANES),
        *turns(masks),
        *(copy_class(dscp, copies) for copies, dscp in CLASS.items()),
    ]


def first_only(dscp: int) -> P4TableEntry:
    """A class of which the first copy is passed only."""
    return entry("duplicate_classes", {"dscp": dscp}, P4TableAction("first_only"))


def trimmed_copy(dscp: int) -> P4TableEntry:
    """A DSCP of trimmed packets."""
    return entry("duplicate_classes", {"dscp": dscp}, P4TableAction("trimmed_copy"))


def receiving_copies() -> list[P4TableEntry]:
    """Both classes, and trimmed packets."""
    return [
        *map(first_only, CLASS.values()),
        trimmed_copy(CODE_POINTS.trimmed),
        trimmed_copy(CODE_POINTS.trimmed_lasthop),
    ]
