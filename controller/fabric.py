# SPDX-License-Identifier: Apache-2.0
"""The fabric as data: devices, names, links and what is behind each port.

A `Fabric` is computed from a `Topology` and never changes. Every device has a row (an index from
0); rows come in the order T0 (plane-major), T1 (plane-major), NIC, host (both by group, downlink),
so that a switch's or NIC's P4Runtime device id is its row + 1. Links are arrays with both ends;
everything that later steps know about cabling they take from there, so that a wrong cable shows.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from controller import addressing as addr
from controller.addressing import DeviceKind
from topologies.schema import Topology

IntArray = NDArray[np.int64]
ScalarT = TypeVar("ScalarT", bound=np.generic)

_SWITCH_NAME = re.compile(r"p(0|[1-9]\d*)t([01])-(0|[1-9]\d*)")
_HOST_NAME = re.compile(r"([hn])(0|[1-9]\d*)-(0|[1-9]\d*)")


class FabricError(ValueError):
    """A name, port or number that this fabric does not have; the message says what it has."""


def frozen(array: NDArray[ScalarT]) -> NDArray[ScalarT]:
    """The same array, from now on read-only."""
    array.flags.writeable = False
    return array


class LinkKind(IntEnum):
    """The three layers of cables."""

    HOST_NIC = 0
    NIC_T0 = 1
    T0_T1 = 2


@dataclass(frozen=True)
class Device:
    """One device. `index` counts within kind and plane; for NIC and host it is group * D + downlink
    (D hosts per group) and `plane` is 0, as in their MAC addresses."""

    kind: DeviceKind
    plane: int
    index: int
    row: int
    name: str
    device_id: int | None  # hosts run no P4 program
    group: int | None  # T0, NIC, host: the T0 group
    downlink: int | None  # NIC, host


@dataclass(frozen=True)
class Links:
    """All cables, one array element each; `a` is the end nearer to the host.

    `kind` holds `LinkKind` values, `a` and `b` device rows, `a_port` and `b_port` port numbers.
    """

    kind: NDArray[np.uint8]
    a: IntArray
    a_port: IntArray
    b: IntArray
    b_port: IntArray

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True)
class Ports:
    """Every port of every device with what is behind it, sorted by row, then port.

    The ports of the device in row r are the elements `start[r]:start[r + 1]`.
    """

    start: IntArray
    port: IntArray
    peer: IntArray
    peer_port: IntArray

    def of(self, row: int) -> slice:
        """The elements of one device."""
        return slice(int(self.start[row]), int(self.start[row + 1]))


@dataclass(frozen=True, eq=False)
class Fabric:
    """An immutable fabric. Sizes: P planes, T T0s and U T1s per plane, D hosts per T0 group."""

    topology: Topology

    @classmethod
    def from_topology(cls, topology: Topology) -> Fabric:
        """The fabric of this shape (links and arrays are computed when first used)."""
        return cls(topology)

    # Sizes ---------------------------------------------------------------------------------------
    @property
    def name(self) -> str:
        """The topology's name."""
        return self.topology.name

    @property
    def block(self) -> int:
        """The locator block, 32 bits."""
        return self.topology.block_bits

    @property
    def planes(self) -> int:
        """P."""
        return self.topology.planes

    @property
    def groups(self) -> int:
        """T: T0 groups, equal to T0 switches per plane."""
        return self.topology.t0_per_plane

    @property
    def uplinks(self) -> int:
        """U: uplinks of a T0, equal to T1 switches per plane."""
        return self.topology.t1_per_plane

    @property
    def hosts_per_group(self) -> int:
        """D: hosts per T0 group, equal to downlinks of a T0."""
        return self.topology.hosts_per_t0_group

    @property
    def host_count(self) -> int:
        """Hosts, and as many NICs."""
        return self.groups * self.hosts_per_group

    @property
    def t0_count(self) -> int:
        """T0 switches of all planes."""
        return self.planes * self.groups

    @property
    def switch_count(self) -> int:
        """T0 and T1 switches of all planes: rows 0 to switch_count - 1."""
        return self.t0_count + self.planes * self.uplinks

    @property
    def p4_device_count(self) -> int:
        """Switches and NICs: rows 0 to p4_device_count - 1."""
        return self.switch_count + self.host_count

    @property
    def device_count(self) -> int:
        """All devices, hosts too."""
        return self.p4_device_count + self.host_count

    # Rows ----------------------------------------------------------------------------------------
    def t0_row(self, plane: int, index: int) -> int:
        """Row of a T0; raises `FabricError`."""
        self._check("plane", plane, self.planes)
        self._check("T0", index, self.groups)
        return plane * self.groups + index

    def t1_row(self, plane: int, index: int) -> int:
        """Row of a T1; raises `FabricError`."""
        self._check("plane", plane, self.planes)
        self._check("T1", index, self.uplinks)
        return self.t0_count + plane * self.uplinks + index

    def host_index(self, group: int, downlink: int) -> int:
        """group * D + downlink; raises `FabricError`."""
        self._check("T0 group", group, self.groups)
        self._check("downlink", downlink, self.hosts_per_group)
        return group * self.hosts_per_group + downlink

    def nic_row(self, group: int, downlink: int) -> int:
        """Row of a NIC; raises `FabricError`."""
        return self.switch_count + self.host_index(group, downlink)

    def host_row(self, group: int, downlink: int) -> int:
        """Row of a host; raises `FabricError`."""
        return self.p4_device_count + self.host_index(group, downlink)

    def _check(self, what: str, value: int, count: int) -> None:
        if not 0 <= value < count:
            raise FabricError(f"{self.name} has no {what} {value}; allowed: 0..{count - 1}")

    # Devices -------------------------------------------------------------------------------------
    def device_at(self, row: int) -> Device:
        """The device in this row; raises `FabricError`."""
        self._check("device row", row, self.device_count)
        if row < self.t0_count:
            plane, index = divmod(row, self.groups)
            name = f"p{plane}t0-{index}"
            return Device(DeviceKind.T0, plane, index, row, name, row + 1, index, None)
        if row < self.switch_count:
            plane, index = divmod(row - self.t0_count, self.uplinks)
            name = f"p{plane}t1-{index}"
            return Device(DeviceKind.T1, plane, index, row, name, row + 1, None, None)
        nic = row < self.p4_device_count
        index = row - (self.switch_count if nic else self.p4_device_count)
        group, downlink = divmod(index, self.hosts_per_group)
        kind = DeviceKind.NIC if nic else DeviceKind.HOST
        name = f"{'n' if nic else 'h'}{group}-{downlink}"
        return Device(kind, 0, index, row, name, row + 1 if nic else None, group, downlink)

    def device(self, name: str) -> Device:
        """The device of this name; raises `FabricError` that lists the closest names."""
        row = self._row_of(name)
        if row is None:
            raise FabricError(f"{self.name} has no device {name!r}; {self._suggest(name)}")
        return self.device_at(row)

    def host(self, name: str) -> Device:
        """The host of this name; raises `FabricError` also for other kinds of device."""
        device = self.device(name)
        if device.kind is not DeviceKind.HOST:
            raise FabricError(f"{name} is a {device.kind.name}; allowed: a host, as in h0-0")
        return device

    def devices(self, *kinds: DeviceKind) -> Iterator[Device]:
        """All devices (of these kinds, if any are given) in row order."""
        for row in range(self.device_count):
            device = self.device_at(row)
            if not kinds or device.kind in kinds:
                yield device

    def host_address(self, host: Device) -> int:
        """The IPv6 address of a host or of the host behind a NIC."""
        assert host.group is not None and host.downlink is not None
        return addr.host_address(host.group, host.downlink)

    def _row_of(self, name: str) -> int | None:
        if match := _SWITCH_NAME.fullmatch(name):
            plane, tier, index = int(match[1]), match[2], int(match[3])
            limit = self.groups if tier == "0" else self.uplinks
            if plane < self.planes and index < limit:
                return self.t0_row(plane, index) if tier == "0" else self.t1_row(plane, index)
        elif match := _HOST_NAME.fullmatch(name):
            group, downlink = int(match[2]), int(match[3])
            if group < self.groups and downlink < self.hosts_per_group:
                return (self.host_row if match[1] == "h" else self.nic_row)(group, downlink)
        return None

    def _suggest(self, name: str) -> str:
        last = self.planes - 1
        host = f"{self.groups - 1}-{self.hosts_per_group - 1}"
        ranges = (
            f"allowed: p0t0-0 to p{last}t0-{self.groups - 1}, p0t1-0 to "
            f"p{last}t1-{self.uplinks - 1}, h0-0 to h{host}, n0-0 to n{host}"
        )
        # At full size 268,000 names would take seconds to compare: the switches are enough there.
        count = self.device_count if self.device_count < 20_000 else self.switch_count
        names = [self.device_at(row).name for row in range(count)]
        close = difflib.get_close_matches(name, names, n=4, cutoff=0.7)
        return f"did you mean {', '.join(close)}? {ranges}" if close else ranges

    # Links ---------------------------------------------------------------------------------------
    @cached_property
    def links(self) -> Links:
        """All cables: host-NIC by host, NIC-T0 by plane and host, T0-T1 by plane, T0 and uplink."""
        p, t, u, d = self.planes, self.groups, self.uplinks, self.hosts_per_group
        host = np.arange(self.host_count, dtype=np.int64)
        plane = np.repeat(np.arange(p, dtype=np.int64), self.host_count)
        nic = np.tile(host, p)
        up_plane, up_t0, up_link = (axis.ravel() for axis in np.indices((p, t, u), dtype=np.int64))
        parts = [
            (
                LinkKind.HOST_NIC,
                self.p4_device_count + host,
                np.full_like(host, addr.HOST_PORT),
                self.switch_count + host,
                np.full_like(host, addr.NIC_HOST_PORT),
            ),
            (
                LinkKind.NIC_T0,
                self.switch_count + nic,
                plane + addr.nic_plane_port(0),
                plane * t + nic // d,
                nic % d + addr.t0_downlink_port(0),
            ),
            (
                LinkKind.T0_T1,
                up_plane * t + up_t0,
                up_link + addr.t0_uplink_port(d, 0),
                self.t0_count + up_plane * u + up_link,
                up_t0 + addr.t1_port(0),
            ),
        ]
        kind = np.concatenate([np.full(len(part[1]), part[0], dtype=np.uint8) for part in parts])
        ends = (frozen(np.concatenate([part[end] for part in parts])) for end in range(1, 5))
        return Links(frozen(kind), *ends)

    @cached_property
    def ports(self) -> Ports:
        """Every port with its peer, from the links."""
        links = self.links
        row = np.concatenate([links.a, links.b])
        port = np.concatenate([links.a_port, links.b_port])
        order = np.argsort(row << 10 | port)  # a port has at most 10 bits
        row = row[order]
        start = np.searchsorted(row, np.arange(self.device_count + 1)).astype(np.int64)
        peer = np.concatenate([links.b, links.a])[order]
        peer_port = np.concatenate([links.b_port, links.a_port])[order]
        return Ports(frozen(start), frozen(port[order]), frozen(peer), frozen(peer_port))

    def neighbour(self, device: Device, port: int) -> tuple[Device, int]:
        """The device and port at the other end of a cable; raises `FabricError`."""
        within = self.ports.of(device.row)
        ports = self.ports.port[within]
        at = int(np.searchsorted(ports, port))
        if at == len(ports) or ports[at] != port:
            raise FabricError(f"{device.name} has no port {port}; allowed: {ports[0]}..{ports[-1]}")
        peer = self.device_at(int(self.ports.peer[within][at]))
        return peer, int(self.ports.peer_port[within][at])

    # Attributes of devices as arrays -------------------------------------------------------------
    @cached_property
    def kind_of(self) -> NDArray[np.uint8]:
        """`DeviceKind` by row."""
        counts = (
            self.t0_count,
            self.switch_count - self.t0_count,
            self.host_count,
            self.host_count,
        )
        return frozen(np.repeat(np.array(list(DeviceKind), dtype=np.uint8), counts))

    @cached_property
    def plane_of(self) -> IntArray:
        """Plane by row; 0 for NICs and hosts."""
        planes = np.arange(self.planes, dtype=np.int64)
        rest = np.zeros(2 * self.host_count, dtype=np.int64)
        of_switches = [planes.repeat(self.groups), planes.repeat(self.uplinks)]
        return frozen(np.concatenate([*of_switches, rest]))

    @cached_property
    def index_of(self) -> IntArray:
        """Index within kind and plane by row."""
        hosts = np.arange(self.host_count, dtype=np.int64)
        t0s = np.tile(np.arange(self.groups, dtype=np.int64), self.planes)
        t1s = np.tile(np.arange(self.uplinks, dtype=np.int64), self.planes)
        return frozen(np.concatenate([t0s, t1s, hosts, hosts]))

    def mac(self, device: Device, port: int) -> int:
        """The MAC address of a device's port."""
        return addr.mac(device.kind, device.plane, device.index, port)

    @staticmethod
    def interface(device: Device, port: int) -> str:
        """The Linux interface of a device's port, `<device>-eth<port>`."""
        return f"{device.name}-eth{port}"
