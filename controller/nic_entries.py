# SPDX-License-Identifier: Apache-2.0
"""The entries of a NIC: where each destination's packets may go, in which shares, and who it is.

One spray group per destination T0 group, with the group's number as its id; hosts to which a plane
is denied get a /128 and a spray group of their own, numbered from T on. Slots hold path EVs; a
T0-local group has one slot per plane, because its uplink does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from finsy import P4TableAction, P4TableEntry, P4TableMatch

from controller import addressing as addr
from controller.addressing import DeviceKind
from controller.apportion import interleave, smallest_proportion
from controller.fabric import Device, Fabric
from controller.nic_slots import Slots, choose_slots
from controller.objects import paused_collection
from controller.overlay import Bools, Floats, Overlay
from controller.policy import PolicyError
from controller.routes import nic_templates
from mrc.options import DEFAULT_OPTIONS, CodePoints

MAX_CHOICES = 16
"""`choose_from` holds up to 16 planes of 3 bits."""
MAX_PLANE_SETS = 256
MAX_GROUPS = 1024
MAX_PATHS = 1 << 20
"""States of paths: T0 groups x 8 planes x uplinks, rounded up to a power of two."""
MAX_RETIRABLE = 255
"""Byte p of `retirable` is for plane p."""
GENERATION = 0
"""Of slots and group_cfg. Another one is for replacing a group while traffic flows."""


@dataclass(frozen=True)
class _Destination:
    """One entry of `destinations`."""

    prefix: tuple[int, int]
    group: int
    spray_group: int
    planes: Bools


class _PlaneSets:
    """Numbers the different plane sets of one NIC; 0 is the first that is asked for."""

    def __init__(self, plane_weights: Floats) -> None:
        self._plane_weights = plane_weights
        self._numbers: dict[tuple[float, ...], int] = {}

    def number(self, planes: Bools) -> int:
        weights = tuple(np.where(planes, self._plane_weights, 0.0).tolist())
        return self._numbers.setdefault(weights, len(self._numbers))

    def entries(self) -> Iterator[P4TableEntry]:
        """One entry for each set and each mask of planes that are down that leaves one alive."""
        for weights, number in self._numbers.items():
            alive = np.array(weights)
            for down in range(1 << len(weights)):
                live = np.where(down >> np.arange(len(weights)) & 1, 0.0, alive)
                if not live.any():
                    continue
                choices = interleave(smallest_proportion(live, MAX_CHOICES)).tolist()
                planes = sum(plane << 3 * at for at, plane in enumerate(choices))
                yield P4TableEntry(
                    "plane_sets",
                    match=P4TableMatch(plane_set=number, down_planes=down),
                    action=P4TableAction("choose_from", count=len(choices), planes=planes),
                )


def nic_entries(
    overlay: Overlay, nic: Device, code_points: CodePoints = DEFAULT_OPTIONS.code_points
) -> list[P4TableEntry]:
    """All entries of a NIC but its locator block and its peers.

    Raises `PolicyError` when they do not fit.
    """
    fabric = overlay.fabric
    assert nic.group is not None
    if fabric.groups << 3 + uplink_bits(overlay.fabric) > MAX_PATHS:
        raise PolicyError(
            f"{nic.name}: {fabric.groups} T0 groups with {fabric.uplinks} uplinks; allowed: states "
            f"of {MAX_PATHS} paths, which is 8 x groups x uplinks (a power of two)"
        )
    plane_sets = _PlaneSets(overlay.plane_weights)
    plane_sets.number(overlay.nic_allowed[:, nic.index])
    destinations = list(_destinations(overlay, nic))
    numbers = [plane_sets.number(destination.planes) for destination in destinations]
    templates = nic_templates(fabric, nic.group)
    if overlay.policy.spray.mode == "ecmp":
        spray: list[P4TableEntry] = []
        actions = [P4TableAction("ecmp", plane_set=number) for number in numbers]
    else:
        spray = _spray_entries(overlay, nic, destinations, numbers)
        actions = [
            P4TableAction(
                "t0_local" if destination.group == nic.group else "cross_t1",
                template=templates[destination.group],
                group_id=destination.spray_group,
            )
            for destination in destinations
        ]
    sets = list(plane_sets.entries())
    if (spray and len(destinations) > MAX_GROUPS) or max(numbers, default=0) >= MAX_PLANE_SETS:
        raise PolicyError(
            f"{nic.name}: the denied NIC-T0 links need {len(destinations)} spray groups; allowed: "
            f"at most {MAX_GROUPS}, with {MAX_PLANE_SETS} different sets of planes"
        )
    return [
        *_identity(overlay, nic),
        *_traffic_classes(code_points),
        *sets,
        *spray,
        *(
            P4TableEntry(
                "destinations", match=P4TableMatch(dst_addr=destination.prefix), action=action
            )
            for destination, action in zip(destinations, actions, strict=True)
        ),
    ]


def _destinations(overlay: Overlay, nic: Device) -> Iterator[_Destination]:
    """The prefixes that a NIC can send to: each T0 group, then the hosts that are exceptions."""
    fabric = overlay.fabric
    own = overlay.nic_allowed[:, nic.index]
    between = [
        overlay.planes_between_groups(nic.group or 0, group) & own for group in range(fabric.groups)
    ]
    for group, planes in enumerate(between):
        # Without a plane, every other host of the group is an exception that has one, or there is
        # none: `bind` refuses policies that cut a pair off.
        if planes.any():
            yield _Destination(addr.group_prefix(group), group, group, planes)
    denied = np.flatnonzero(~overlay.nic_allowed.all(axis=0))
    spray_group = fabric.groups
    for index in denied.tolist():
        if index == nic.index:
            continue
        group, downlink = divmod(index, fabric.hosts_per_group)
        planes = between[group] & overlay.nic_allowed[:, index]
        prefix = (addr.host_address(group, downlink), 128)
        yield _Destination(prefix, group, spray_group, planes)
        spray_group += 1


def uplink_bits(fabric: Fabric) -> int:
    """Bits that tell the uplinks of a T0 apart."""
    return (fabric.uplinks - 1).bit_length()


def path_index(fabric: Fabric, group: int, plane: int, uplink: int) -> int:
    """Where a NIC keeps the state of a path (`path_t` of p4src/include/ev_state.p4)."""
    return (group << 3 | plane) << uplink_bits(fabric) | uplink


def _spray_entries(
    overlay: Overlay, nic: Device, destinations: Sequence[_Destination], plane_sets: Sequence[int]
) -> list[P4TableEntry]:
    """Slots and then configuration of each destination's spray group."""
    slots: list[P4TableEntry] = []
    groups: list[tuple[int, P4TableEntry]] = []
    numbered = list(zip(destinations, plane_sets, strict=True))
    for local in (False, True):
        some = [each for each in numbered if (each[0].group == nic.group) == local]
        if some:
            size = 1 if local else overlay.policy.spray.slots_per_plane
            chosen = _choose(overlay, nic, [destination for destination, _ in some], size)
            slots += _slot_entries(chosen, [destination.spray_group for destination, _ in some])
            groups += _group_entries(overlay, some, chosen)
    # Groups that share the states of their paths switch over right after one another.
    groups.sort(key=lambda group: group[0])
    return [*slots, *(entry for _, entry in groups)]


def _choose(
    overlay: Overlay, nic: Device, destinations: Sequence[_Destination], size: int
) -> Slots:
    """`size` slots for each plane of each destination, all in the own T0 group or none."""
    own = nic.group or 0
    weights = np.stack(
        [
            np.where(each.planes[:, np.newaxis], overlay.path_weights(own, each.group), 0.0)
            for each in destinations
        ]
    )
    return choose_slots(weights, [each.group for each in destinations], size, nic.index)


def _slot_entries(slots: Slots, spray_groups: Sequence[int]) -> list[P4TableEntry]:
    groups = np.array(spray_groups)[slots.row[:, 0]].tolist()
    entries: list[P4TableEntry] = []
    with paused_collection():
        for group, plane, evs in zip(
            groups, slots.row[:, 1].tolist(), slots.evs.tolist(), strict=True
        ):
            entries += [
                P4TableEntry(
                    "slots",
                    match=P4TableMatch(
                        group_id=group, generation=GENERATION, plane=plane, slot=slot
                    ),
                    action=P4TableAction(
                        "use_path", path_ev=ev, second=second, third=third, fourth=fourth
                    ),
                )
                for slot, (ev, second, third, fourth) in enumerate(evs)
            ]
    return entries


def _group_entries(
    overlay: Overlay, destinations: Sequence[tuple[_Destination, int]], slots: Slots
) -> Iterator[tuple[int, P4TableEntry]]:
    """(path group, `group_cfg` entry) of each destination and the number of its plane set."""
    spray = overlay.policy.spray
    group, plane = slots.row.T
    planes = np.zeros(len(destinations), dtype=np.int64)
    np.bitwise_or.at(planes, group, 1 << plane)
    spare = np.clip(slots.paths - spray.ev_min_active, 0, MAX_RETIRABLE).astype(np.uint64)
    retirable = np.zeros(len(destinations), dtype=np.uint64)
    np.bitwise_or.at(retirable, group, spare << (8 * plane).astype(np.uint64))
    for at, (destination, plane_set) in enumerate(destinations):
        yield (
            destination.group,
            P4TableEntry(
                "group_cfg",
                match=P4TableMatch(group_id=destination.spray_group),
                action=P4TableAction(
                    f"spray_{spray.mode}",
                    generation=GENERATION,
                    slots=slots.evs.shape[1],
                    plane_set=plane_set,
                    path_group=destination.group,
                    uplink_bits=uplink_bits(overlay.fabric),
                    planes=int(planes[at]),
                    retirable=int(retirable[at]),
                    probe_successes=spray.probe_successes,
                ),
            ),
        )


def _identity(overlay: Overlay, nic: Device) -> list[P4TableEntry]:
    """What the NIC accepts as its own, and the MACs on its links."""
    fabric = overlay.fabric
    assert nic.downlink is not None
    entries = [
        P4TableEntry(
            "own_address",
            match=P4TableMatch(dst_addr=fabric.host_address(nic)),
            action=P4TableAction("deliver"),
        )
    ]
    within = fabric.ports.of(nic.row)
    for port in fabric.ports.port[within].tolist():
        peer, peer_port = fabric.neighbour(nic, port)
        entries.append(
            P4TableEntry(
                "link_macs",
                match=P4TableMatch(egress_port=port),
                action=P4TableAction(
                    "set_macs",
                    dst_mac=fabric.mac(peer, peer_port),
                    src_mac=fabric.mac(nic, port),
                ),
            )
        )
        if peer.kind is DeviceKind.T0:
            carrier = addr.own_carrier(fabric.block, peer.plane, nic.downlink)
            entries.append(
                P4TableEntry(
                    "own_sid",
                    match=P4TableMatch(ingress_port=port, outer_dst=carrier),
                    action=P4TableAction("own_carrier"),
                )
            )
    return entries


def _traffic_classes(code_points: CodePoints) -> list[P4TableEntry]:
    """What is control, and what a switch has trimmed; everything else is data."""
    nack = {"control_dscp": code_points.control}
    actions = {
        code_points.control: P4TableAction("control_class"),
        code_points.trimmed: P4TableAction("trimmed_in_fabric", **nack),
        code_points.trimmed_lasthop: P4TableAction("trimmed_on_last_hop", **nack),
    }
    return [
        P4TableEntry("traffic_classes", match=P4TableMatch(dscp=dscp), action=action)
        for dscp, action in actions.items()
    ]
