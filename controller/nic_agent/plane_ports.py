# SPDX-License-Identifier: Apache-2.0
"""From the kernel's notices about interfaces to the planes that each NIC must leave out.

Pure: the link agent's netlink socket and its P4Runtime streams are elsewhere. A mask is what
nic.p4's register ``down_planes`` holds: bit p set, plane p is down.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from controller.addressing import DeviceKind, nic_plane_port
from controller.fabric import Fabric

IFF_RUNNING: Final = 0x40  # <linux/if.h>: up, and the kernel has seen the carrier


@dataclass(frozen=True, slots=True)
class PlanePort:
    """One plane port of a NIC."""

    nic: str
    plane: int


@dataclass(frozen=True, slots=True)
class LinkNotice:
    """What one RTM_NEWLINK or RTM_DELLINK says. ``present`` is False for RTM_DELLINK."""

    index: int  # the kernel's number of the interface: a renamed one keeps it
    interface: str
    flags: int
    present: bool = True

    @property
    def running(self) -> bool:
        """Whether the interface is there, up, and has carrier."""
        return self.present and bool(self.flags & IFF_RUNNING)


def plane_ports(fabric: Fabric) -> dict[str, PlanePort]:
    """Every NIC's plane ports, by the name of their Linux interface."""
    return {
        fabric.interface(nic, nic_plane_port(plane)): PlanePort(nic.name, plane)
        for nic in fabric.devices(DeviceKind.NIC)
        for plane in range(fabric.planes)
    }


@dataclass(slots=True)
class PlaneStates:
    """Which planes of which NICs are down; the last notice about an interface counts.

    A port of which nothing was heard is down: there is no interface of that name. So the agent
    feeds a whole dump first, and learns of an interface that was never made.
    """

    ports: dict[str, PlanePort]
    _up: dict[str, int] = field(default_factory=dict)  # interfaces that run, with their index

    def masks(self) -> dict[str, int]:
        """The mask of every NIC that has plane ports."""
        masks = dict.fromkeys((port.nic for port in self.ports.values()), 0)
        for interface, port in self.ports.items():
            if interface not in self._up:
                masks[port.nic] |= 1 << port.plane
        return masks

    def hear(self, notice: LinkNotice) -> tuple[PlanePort, ...]:
        """Take in one notice; the plane ports that it changed, up to down or down to up."""
        before = set(self._up)
        for interface, index in list(self._up.items()):
            if index == notice.index:  # also under its old name, when it was renamed
                del self._up[interface]
        if notice.interface in self.ports and notice.running:
            self._up[notice.interface] = notice.index
        return tuple(self.ports[name] for name in sorted(before ^ set(self._up)))

    def replace(self, dump: list[LinkNotice]) -> tuple[PlanePort, ...]:
        """Take in a dump of all interfaces, in place of everything heard before.

        For the start, and for when the kernel reports that notices were lost (ENOBUFS).
        """
        before = set(self._up)
        self._up = {
            notice.interface: notice.index
            for notice in dump
            if notice.interface in self.ports and notice.running
        }
        return tuple(self.ports[name] for name in sorted(before ^ set(self._up)))
