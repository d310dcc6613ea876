# SPDX-License-Identifier: Apache-2.0
"""Which link or switch is behind it when paths go bad: pure, fed with bad paths.

A fault hurts every path across it and no other, so suspects are ranked by the share of the paths
across them that went bad, of all NICs together; then by their number. A path to a T0 group ends
at that group's T0: what happens between there and a host no sender's path state tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from controller.addressing import DeviceKind
from controller.ev_events import path_devices
from controller.fabric import Device, Fabric


class BadPath(NamedTuple):
    """A path of a NIC, by its name, to a T0 group."""

    nic: str
    group: int
    plane: int
    uplink: int


class Suspect(NamedTuple):
    """A switch (one name) or a link (two), and how many of the paths across it went bad."""

    names: tuple[str, ...]
    bad: int
    paths: int

    @property
    def share(self) -> float:
        """Of the paths across it, 0 to 1."""
        return self.bad / self.paths

    def __str__(self) -> str:
        return "|".join(self.names)


def rank(fabric: Fabric, bad: Iterable[BadPath]) -> list[Suspect]:
    """Links and T1s that bad paths cross, the most suspect first; equals in order of names."""
    counts: Counter[tuple[str, ...]] = Counter()
    for path in set(bad):
        nic = fabric.device(path.nic)
        crossed = path_devices(fabric, nic, path.group, path.plane, path.uplink)
        counts.update(_suspects(nic, crossed))
    ranked = [
        Suspect(names, count, _paths_across(fabric, [fabric.device(name) for name in names]))
        for names, count in counts.items()
    ]
    return sorted(ranked, key=lambda each: (-each.share, -each.bad, each.names))


def _suspects(nic: Device, crossed: list[Device]) -> Iterator[tuple[str, ...]]:
    for ends in pairwise([nic, *crossed]):
        yield tuple(device.name for device in sorted(ends, key=_downward))
    for device in crossed:
        if device.kind is DeviceKind.T1:
            yield (device.name,)


def _downward(device: Device) -> int:
    """The lower end of a link comes first, as in the names of wires."""
    return (DeviceKind.NIC, DeviceKind.T0, DeviceKind.T1).index(device.kind)


def _paths_across(fabric: Fabric, devices: list[Device]) -> int:
    """How many paths of all NICs to other T0 groups, or their own, cross a link or a T1."""
    hosts, others = fabric.hosts_per_group, fabric.groups - 1
    kinds = [device.kind for device in devices]
    if kinds == [DeviceKind.T1]:
        return fabric.groups * others * hosts
    if DeviceKind.NIC in kinds:
        return others * fabric.uplinks + 1
    return 2 * hosts * others
