# SPDX-License-Identifier: Apache-2.0
"""What a policy means for a fabric: which planes and paths each pair may use, and their weights.

Nothing is stored per pair of hosts: a path is usable when the links it crosses are, so that arrays
per link say everything, also at full size.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from controller.addressing import DeviceKind
from controller.fabric import Device, Fabric, FabricError, frozen
from controller.policy import PathWeight, Policy, PolicyError

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Overlay:
    """A policy bound to a fabric and checked against it (P planes, T groups, U uplinks).

    nic_allowed    (P, hosts)  the link between a NIC and its T0 is not denied
    t0_allowed     (P, T)      neither the T0 nor its plane is denied
    link_allowed   (P, T, U)   neither the T0-T1 link nor a switch at its ends nor its plane is
    plane_weights  (P,)        0: not used
    """

    fabric: Fabric
    policy: Policy
    nic_allowed: Bools
    t0_allowed: Bools
    link_allowed: Bools
    plane_weights: Floats
    _base_weights: Floats = field(repr=False)  # (P, U), from entries for every pair

    def path_weights(self, src_group: int, dst_group: int) -> Floats:
        """(P, U) weights of the paths between two T0 groups within their plane; 0 where denied.

        Within one T0 group the uplink does not matter: column 0 holds 1 for each allowed plane.
        Planes of weight 0 have no paths.
        """
        used = self.plane_weights > 0
        if src_group == dst_group:
            weights = np.zeros((self.fabric.planes, self.fabric.uplinks))
            weights[:, 0] = self.t0_allowed[:, src_group] & used
            return weights
        weights = self._base_weights.copy()
        for entry in self.policy.path_weights:
            if entry.from_group in (None, src_group) and entry.to_group in (None, dst_group):
                weights[entry.plane, entry.uplink] = entry.weight
        allowed = self.link_allowed[:, src_group] & self.link_allowed[:, dst_group]
        return np.where(allowed & used[:, np.newaxis], weights, 0.0)

    def denied_paths(self, src_group: int, dst_group: int) -> Bools:
        """(P, U) True where no packet between these T0 groups goes, by denial or by weight 0."""
        denied: Bools = self.path_weights(src_group, dst_group) == 0
        return denied

    def denied_links(self) -> Bools:
        """(P, T, U) True where the policy denies the T0-T1 link or what it connects."""
        return np.logical_not(self.link_allowed)

    def planes_between_groups(self, src_group: int, dst_group: int) -> Bools:
        """(P,) True for the planes that have a path of weight above 0 between two T0 groups."""
        planes: Bools = np.any(self.path_weights(src_group, dst_group) > 0, axis=1)
        return planes

    def planes_between(self, src: Device, dst: Device) -> Bools:
        """(P,) the same for two hosts or NICs: their own links count as well."""
        assert src.group is not None and dst.group is not None
        between = self.planes_between_groups(src.group, dst.group)
        return between & self.nic_allowed[:, src.index] & self.nic_allowed[:, dst.index]


def bind(policy: Policy, fabric: Fabric) -> Overlay:
    """Checks a policy against a fabric and works out what it allows.

    Raises `PolicyError` for planes, uplinks, groups and devices that the fabric does not have, for
    links that are none, and when a pair of hosts would be left without any path.
    """
    faults: list[str] = []
    planes, groups, uplinks = fabric.planes, fabric.groups, fabric.uplinks

    def number(key: str, what: str, value: int | None, count: int) -> bool:
        if value is None or 0 <= value < count:
            return True
        faults.append(f"{key}: {fabric.name} has no {what} {value}; allowed: 0..{count - 1}")
        return False

    plane_weights = np.ones(planes)
    for plane, weight in policy.plane_weights.items():
        if number(f"plane_weights.{plane}", "plane", plane, planes):
            plane_weights[plane] = weight

    base_weights = np.ones((planes, uplinks))
    for i, entry in enumerate(policy.path_weights):
        key = f"path_weights.{i}"
        known = [
            number(f"{key}.plane", "plane", entry.plane, planes),
            number(f"{key}.uplink", "uplink", entry.uplink, uplinks),
            number(f"{key}.from_group", "T0 group", entry.from_group, groups),
            number(f"{key}.to_group", "T0 group", entry.to_group, groups),
        ]
        if all(known) and _is_general(entry):
            base_weights[entry.plane, entry.uplink] = entry.weight

    for i, redundant in enumerate(policy.redundancy):
        if redundant.mode == "in_network" and uplinks < 2:
            faults.append(
                f"redundancy.{i}.mode: {fabric.name} has 1 T1 per plane, so that T0s cannot "
                "send copies by two; allowed: planes"
            )
        if redundant.mode == "planes" and redundant.copies > planes:
            faults.append(
                f"redundancy.{i}.copies: {fabric.name} has {planes} planes, too few for "
                f"{redundant.copies} copies; allowed: at most as many copies as planes"
            )

    nic_allowed = np.ones((planes, fabric.host_count), dtype=np.bool_)
    t0_allowed = np.ones((planes, groups), dtype=np.bool_)
    link_allowed = np.ones((planes, groups, uplinks), dtype=np.bool_)
    for i, plane in enumerate(policy.deny.planes):
        if number(f"deny.planes.{i}", "plane", plane, planes):
            t0_allowed[plane] = False
    for i, name in enumerate(policy.deny.switches):
        try:
            switch = fabric.device(name)
        except FabricError as ex:
            faults.append(f"deny.switches.{i}: {ex}")
            continue
        if switch.kind is DeviceKind.T0:
            t0_allowed[switch.plane, switch.index] = False
        elif switch.kind is DeviceKind.T1:
            link_allowed[switch.plane, :, switch.index] = False
        else:
            faults.append(f"deny.switches.{i}: {name} is a {switch.kind.name}; allowed: T0 or T1")
    for i, (a, b) in enumerate(policy.deny.links):
        try:
            _deny_link(fabric, a, b, nic_allowed, link_allowed)
        except FabricError as ex:
            faults.append(f"deny.links.{i}: {ex}")
    link_allowed &= t0_allowed[:, :, np.newaxis]

    if faults:
        raise PolicyError("\n".join(faults))
    overlay = Overlay(
        fabric,
        policy,
        frozen(nic_allowed),
        frozen(t0_allowed),
        frozen(link_allowed),
        frozen(plane_weights),
        frozen(base_weights),
    )
    if cut_off := _first_unreachable(overlay):
        raise PolicyError(
            f"this policy leaves no path from {cut_off[0]} to {cut_off[1]} on {fabric.name}; "
            "allowed: deny and weights of 0 that leave every pair of hosts at least one path"
        )
    return overlay


def _is_general(entry: PathWeight) -> bool:
    return entry.from_group is None and entry.to_group is None


def _deny_link(fabric: Fabric, a: str, b: str, nic_allowed: Bools, link_allowed: Bools) -> None:
    """Marks the link between two devices; a host's name stands for its NIC."""
    other, t0 = sorted((fabric.device(a), fabric.device(b)), key=lambda device: -device.kind)
    if t0.kind is DeviceKind.T0:
        if other.kind is DeviceKind.T1 and other.plane == t0.plane:
            link_allowed[t0.plane, t0.index, other.index] = False
            return
        if other.kind in (DeviceKind.NIC, DeviceKind.HOST) and other.group == t0.group:
            nic_allowed[t0.plane, other.index] = False
            return
    raise FabricError(
        f"{a} and {b} are not linked; allowed: a T0 with a T1 of its plane, or a host or NIC with "
        "a T0 of its group"
    )


def _first_unreachable(overlay: Overlay) -> tuple[str, str] | None:
    """The first pair of hosts, in order, that shares no plane with a path; None if all do."""
    fabric = overlay.fabric
    reachable = _group_planes(overlay)
    # Hosts of a group whose NICs may use the same planes are alike: one of each kind stands for
    # all, so that full size compares a few hundred, not 131,072, hosts with each other.
    planes_of = np.packbits(overlay.nic_allowed, axis=0, bitorder="little")[0].astype(np.int64)
    group_of = np.arange(fabric.host_count) // fabric.hosts_per_group
    kinds, first, count = np.unique(
        group_of << 8 | planes_of, return_index=True, return_counts=True
    )
    order = np.argsort(first)
    kinds, first, count = kinds[order], first[order], count[order]
    group, mask = kinds >> 8, kinds & 0xFF
    for at in range(len(kinds)):
        shared = reachable[group[at], group] & mask[at] & mask
        lost = np.flatnonzero(shared == 0)
        if count[at] == 1:
            lost = lost[lost != at]  # the only host of its kind does not talk to itself
        if len(lost):
            other = int(lost[0])
            src, dst = int(first[at]), int(first[other])
            if other == at:
                dst = int(np.flatnonzero((group_of == group[at]) & (planes_of == mask[at]))[1])
            return (
                fabric.device_at(fabric.p4_device_count + src).name,
                fabric.device_at(fabric.p4_device_count + dst).name,
            )
    return None


def _group_planes(overlay: Overlay) -> NDArray[np.int64]:
    """(T, T) bit p set: plane p has a path of weight above 0 from group to group."""
    fabric = overlay.fabric
    used = overlay.plane_weights > 0
    planes = np.zeros((fabric.groups, fabric.groups), dtype=np.int64)
    for plane in np.flatnonzero(used):
        up = overlay.link_allowed[plane] & (overlay._base_weights[plane] > 0)
        # Counting the uplinks that both groups may use is a matrix product.
        shared = up.astype(np.float32) @ overlay.link_allowed[plane].T.astype(np.float32) > 0
        np.fill_diagonal(shared, overlay.t0_allowed[plane])
        planes |= shared.astype(np.int64) << int(plane)
    for src, dst in _special_pairs(overlay):
        bits = np.flatnonzero(overlay.planes_between_groups(src, dst))
        planes[src, dst] = int((1 << bits).sum())
    return planes


def _special_pairs(overlay: Overlay) -> set[tuple[int, int]]:
    """The pairs of T0 groups that have path weights of their own."""
    groups = range(overlay.fabric.groups)
    pairs: set[tuple[int, int]] = set()
    for entry in overlay.policy.path_weights:
        if not _is_general(entry):
            sources = groups if entry.from_group is None else [entry.from_group]
            targets = groups if entry.to_group is None else [entry.to_group]
            pairs.update((src, dst) for src in sources for dst in targets if src != dst)
    return pairs
