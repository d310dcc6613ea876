# SPDX-License-Identifier: Apache-2.0
"""The topology file: what a multi-plane two-tier Clos fabric looks like, and what is allowed.

A fabric is regular: every plane has the same numbers of T0 and T1 switches, and uplink u of every
T0 goes to T1 u of its plane (a path's T1 is then a function of plane and uplink, which is what lets
an entropy value name a path). The file therefore gives sizes only. `plane_sizes` and `uplinks` are
optional statements about a fabric as it was built or planned elsewhere; they are compared with the
regular shape and refused where they differ.

The widths that bound the sizes are fixed when P4 is compiled: see architecture.md, "Addressing".
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from topologies.yaml_model import load_model

MAX_PLANES = 8
"""A uSID and an EV hold the plane in 3 bits."""
MAX_INDEX = 1023
"""A uSID holds an index, and an EV an uplink, in 10 bits."""
MAX_PORT = 1023
"""A device's MAC address and a uA uSID hold a port in 10 bits."""
MAX_EMULATED_PORT = 509
"""`bit<9>` ports, of which 510 is the CPU's and 511 drops."""
MAX_INTERFACE_NAME = 15
"""Linux: IFNAMSIZ - 1."""
OUTER_HEADER_BYTES = 40
"""The outer IPv6 header of a packet on a plane."""
MIN_MTU = 1280 + OUTER_HEADER_BYTES
"""RFC 8200 section 5 asks 1,280 bytes of every IPv6 link, the host's too; a plane adds 40."""
MAX_MTU = 9216
HOST_PREFIX = ipaddress.IPv6Network("fd4d:5243::/32")
"""Host addresses are fd4d:5243::<T0 group>:<downlink + 1>, whatever the plane."""
DEFAULT_BLOCK = ipaddress.IPv6Network("fcbb:bb00::/32")
MAX_DEVICE_ID = 65535 - 50050
"""Each device's P4Runtime server listens on TCP port 50050 + device id."""


class TopologyError(Exception):
    """A topology that cannot be; the message names file, key, fault and what is allowed."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


Rate = Annotated[int, Field(ge=1)]
Index = Annotated[int, Field(ge=0, le=MAX_INDEX)]


class LinkRates(_Model):
    """Packets per second and direction of each kind of link; a kind left out is not limited."""

    host_nic: Rate | None = Field(default=None, description="host - NIC")
    nic_t0: Rate | None = Field(default=None, description="NIC plane port - T0")
    t0_t1: Rate | None = Field(default=None, description="T0 uplink - T1")


class PlaneSize(_Model):
    """How many switches one plane has."""

    t0: int = Field(ge=1)
    t1: int = Field(ge=1)


class Uplink(_Model):
    """One T0-T1 cable as found or planned."""

    t0: str = Field(description="name of the T0, p<plane>t0-<index>")
    uplink: int = Field(ge=0, description="number of the T0's uplink, from 0")
    t1: str = Field(description="name of the T1 at the other end")


class Topology(_Model):
    """A fabric's shape. `planes`, sizes and `name` are required, everything else has a default."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$", description="the fabric's name")
    block: ipaddress.IPv6Network = Field(
        default=DEFAULT_BLOCK, description="SRv6 locator block, a /32", strict=False
    )
    planes: int = Field(ge=1, le=MAX_PLANES)
    t0_per_plane: int = Field(ge=1, le=MAX_PORT, description="also the number of T0 groups")
    t1_per_plane: int = Field(ge=1, le=MAX_INDEX + 1, description="also the uplinks of a T0")
    hosts_per_t0_group: int = Field(ge=1, le=MAX_INDEX, description="also the downlinks of a T0")
    mtu: int = Field(
        default=4500,
        ge=MIN_MTU,
        le=MAX_MTU,
        description="bytes of the largest IPv6 packet on switch links, outer header included",
    )
    queue_depth: int = Field(default=64, ge=1, le=65535, description="packets per port queue")
    link_rates: LinkRates = LinkRates()
    plane_sizes: dict[int, PlaneSize] = Field(
        default={}, description="sizes of planes as built, by plane number; all must be equal"
    )
    uplinks: tuple[Uplink, ...] = Field(
        default=(),
        description="cables as built; each must go to the T1 of its number",
        strict=False,
    )

    @property
    def host_mtu(self) -> int:
        """Bytes of the largest IPv6 packet between host and NIC, where there is no outer header."""
        return self.mtu - OUTER_HEADER_BYTES

    @property
    def block_bits(self) -> int:
        """The locator block as a 32-bit number."""
        return int(self.block.network_address) >> 96

    @field_validator("block", mode="before")
    @classmethod
    def _check_block(cls, value: Any) -> ipaddress.IPv6Network:
        allowed = f"a unicast /32 other than {HOST_PREFIX}, as in {DEFAULT_BLOCK}"
        try:
            block = ipaddress.IPv6Network(value)
        except ValueError as ex:
            raise ValueError(f"{value!r} is not an IPv6 prefix ({ex}); allowed: {allowed}") from ex
        if block.prefixlen != 32:
            raise ValueError(f"{block} is a /{block.prefixlen}; allowed: {allowed}")
        first = block.network_address
        if first.is_multicast or first.is_link_local or first.is_unspecified:
            raise ValueError(f"{block} is not unicast to route; allowed: {allowed}")
        if block == HOST_PREFIX:
            raise ValueError(f"{block} holds the hosts' own addresses; allowed: {allowed}")
        return block

    @field_validator("hosts_per_t0_group")
    @classmethod
    def _check_ports(cls, hosts: int, info: ValidationInfo) -> int:
        uplinks = info.data.get("t1_per_plane")
        if uplinks is not None and hosts + uplinks > MAX_PORT:
            raise ValueError(
                f"{hosts} hosts and {uplinks} uplinks are {hosts + uplinks} ports of a T0; "
                f"allowed: at most {MAX_PORT} together"
            )
        planes, groups = info.data.get("planes"), info.data.get("t0_per_plane")
        if None not in (planes, groups, uplinks):
            assert planes and groups and uplinks
            longest = max(
                (
                    f"p{planes - 1}t0-{groups - 1}-eth{hosts + uplinks}",
                    f"p{planes - 1}t1-{uplinks - 1}-eth{groups}",
                    f"n{groups - 1}-{hosts - 1}-eth{planes + 1}",
                    f"h{groups - 1}-{hosts - 1}-eth0",
                ),
                key=len,
            )
            if len(longest) > MAX_INTERFACE_NAME:
                raise ValueError(
                    f"interface {longest} has {len(longest)} characters; allowed: sizes whose "
                    f"names have at most {MAX_INTERFACE_NAME}"
                )
        return hosts

    @field_validator("plane_sizes")
    @classmethod
    def _check_plane_sizes(
        cls, sizes: dict[int, PlaneSize], info: ValidationInfo
    ) -> dict[int, PlaneSize]:
        planes = info.data.get("planes")
        regular = (info.data.get("t0_per_plane"), info.data.get("t1_per_plane"))
        if planes is None or None in regular:
            return sizes  # those keys are in error themselves
        for plane, size in sizes.items():
            if not 0 <= plane < planes:
                raise ValueError(f"there is no plane {plane}; allowed: 0..{planes - 1}")
            if (size.t0, size.t1) != regular:
                raise ValueError(
                    f"plane {plane} has {size.t0} T0 and {size.t1} T1, the others have "
                    f"{regular[0]} and {regular[1]}; allowed: planes that are all alike"
                )
        return sizes

    @field_validator("uplinks")
    @classmethod
    def _check_uplinks(
        cls, uplinks: tuple[Uplink, ...], info: ValidationInfo
    ) -> tuple[Uplink, ...]:
        planes, t0s, t1s = (
            info.data.get(key) for key in ("planes", "t0_per_plane", "t1_per_plane")
        )
        if planes is None or t0s is None or t1s is None:
            return uplinks  # those keys are in error themselves
        for number, cable in enumerate(uplinks):
            where = f"item {number}"
            match = re.fullmatch(r"p(0|[1-9]\d*)t0-(0|[1-9]\d*)", cable.t0)
            if not match or int(match[1]) >= planes or int(match[2]) >= t0s:
                raise ValueError(
                    f"{where}: there is no T0 {cable.t0!r}; "
                    f"allowed: p0t0-0 to p{planes - 1}t0-{t0s - 1}"
                )
            if cable.uplink >= t1s:
                raise ValueError(
                    f"{where}: {cable.t0} has no uplink {cable.uplink}; allowed: 0..{t1s - 1}"
                )
            expected = f"p{match[1]}t1-{cable.uplink}"
            if cable.t1 != expected:
                raise ValueError(
                    f"{where}: uplink {cable.uplink} of {cable.t0} goes to {cable.t1}; allowed: "
                    f"{expected}, because uplink u of every T0 goes to T1 u of its plane"
                )
        return uplinks


def load_topology(path: str | Path) -> Topology:
    """Reads and checks a topology file; raises `TopologyError`."""
    return load_model(path, Topology, TopologyError, "topology")


def check_emulable(topology: Topology) -> None:
    """Raises `TopologyError` when a fabric can be computed, but not built from P4 targets here.

    A v1model port has 9 bits and two numbers are taken, so that a 512-port T0 does not fit.
    """
    faults = []
    t0_ports = topology.hosts_per_t0_group + topology.t1_per_plane
    if t0_ports > MAX_EMULATED_PORT:
        faults.append(
            f"hosts_per_t0_group + t1_per_plane: a T0 would have {t0_ports} ports; allowed: "
            f"at most {MAX_EMULATED_PORT}"
        )
    if topology.t0_per_plane > MAX_EMULATED_PORT:
        faults.append(
            f"t0_per_plane: a T1 would have {topology.t0_per_plane} ports; allowed: at most "
            f"{MAX_EMULATED_PORT}"
        )
    devices = (
        topology.planes * (topology.t0_per_plane + topology.t1_per_plane)
        + topology.t0_per_plane * topology.hosts_per_t0_group
    )
    if devices > MAX_DEVICE_ID:
        faults.append(
            f"{devices} switches and NICs; allowed: at most {MAX_DEVICE_ID}, one TCP port each"
        )
    if faults:
        raise TopologyError(
            "\n".join(f"topology {topology.name} cannot be emulated: {fault}" for fault in faults)
        )
