# SPDX-License-Identifier: Apache-2.0
"""Addresses, uSIDs, entropy values, MAC addresses and port numbers, bit by bit.

The widths are fixed when P4 is compiled (architecture.md, "Addressing"). Scalars are Python ints
and are checked; the functions whose names end in `_array` take and give NumPy arrays and check
nothing, because the fabric whose numbers they get has been checked.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

UInt = NDArray[np.uint64]
Ints = NDArray[np.integer] | int

# Ports -------------------------------------------------------------------------------------------
HOST_PORT = 0
"""A host has one interface, `<host>-eth0`."""
NIC_HOST_PORT = 1
CPU_PORT = 510
DROP_PORT = 511

# Widths ------------------------------------------------------------------------------------------
PLANE_BITS = 3
INDEX_BITS = 10
TAG_BITS = 19
PATH_TAG_BITS = 3
"""The tag bits that lie in EV[31:16], the part that the NIC writes."""
USID_BITS = 16
BLOCK_BITS = 32
CARRIER_SLOTS = 6
"""uSIDs in one 128-bit carrier of a 32-bit block (F3216)."""
HOST_ADDRESS_BASE = int(ipaddress.IPv6Address("fd4d:5243::"))
GROUP_PREFIX_LEN = 112
"""Prefix length of a T0 group's host addresses."""

DT6_USID = 0xFC00
"""Local uSID "decapsulate and look up the inner address" (RFC 8986 End.DT6): kind 7, function 7."""

UDP_PORT_DEFAULT = 4791
UDP_PORT_PRINTED = 4971
"""What MRC 1.0 section 7.5.5.2 prints; accepted too."""


class AddressError(ValueError):
    """A number that does not fit its field, or an address that is not of this fabric's form."""


class DeviceKind(IntEnum):
    """Kind of device; the value is the kind field of its MAC addresses."""

    T0 = 1
    T1 = 2
    NIC = 3
    HOST = 4


class UsidKind(IntEnum):
    """The top three bits of a uSID."""

    T0 = 1
    T1 = 2
    DOWNLINK = 3
    LOCAL = 7


LOCAL_UA = 0
"""Local uSID function "send out of this port" (RFC 8986 End.X, uA); its index is the port."""
LOCAL_REPLICATE = 1
"""Local uSID function "by this uplink and by another one"; its index is the uplink."""
LOCAL_DT6 = 7


def _field(name: str, value: int, bits: int) -> int:
    if not 0 <= value < 1 << bits:
        raise AddressError(
            f"{name} {value} does not fit {bits} bits; allowed: 0..{(1 << bits) - 1}"
        )
    return value


# uSIDs -------------------------------------------------------------------------------------------
def usid(kind: UsidKind, plane: int, index: int) -> int:
    """The 16-bit uSID `kind(3) | plane(3) | index(10)`."""
    _field("plane", plane, PLANE_BITS)
    _field("index", index, INDEX_BITS)
    return kind << 13 | plane << 10 | index


def usid_array(kind: Ints, plane: Ints, index: Ints) -> UInt:
    """`usid` for arrays that broadcast against each other."""
    return _u64(kind) << np.uint64(13) | _u64(plane) << np.uint64(10) | _u64(index)


def ua_usid(port: int) -> int:
    """The local uSID that sends a packet out of `port` of the switch that consumes it."""
    return usid(UsidKind.LOCAL, LOCAL_UA, port)


def replicate_usid(uplink: int) -> int:
    """The local uSID by which a T0 sends a packet on by this uplink and by another one."""
    return usid(UsidKind.LOCAL, LOCAL_REPLICATE, uplink)


@dataclass(frozen=True)
class Usid:
    """A uSID taken apart."""

    kind: UsidKind
    plane: int
    index: int

    @classmethod
    def parse(cls, value: int) -> Usid:
        """Raises `AddressError` for zero (end of carrier) and for kinds that nothing uses."""
        _field("uSID", value, USID_BITS)
        try:
            kind = UsidKind(value >> 13)
        except ValueError:
            allowed = ", ".join(f"{kind.value} ({kind.name})" for kind in UsidKind)
            raise AddressError(
                f"uSID {value:#06x} has kind {value >> 13}; allowed: {allowed}"
            ) from None
        return cls(kind, value >> 10 & 7, value & 1023)

    def __str__(self) -> str:
        match self.kind:
            case UsidKind.T0:
                return f"p{self.plane}t0-{self.index}"
            case UsidKind.T1:
                return f"p{self.plane}t1-{self.index}"
            case UsidKind.DOWNLINK:
                return f"downlink {self.index} of plane {self.plane}"
            case UsidKind.LOCAL:
                pass
        if self.plane == LOCAL_UA:
            return f"uA port {self.index}"
        if self.plane == LOCAL_REPLICATE:
            return f"replicate by uplink {self.index}"
        return "uDT6" if self.plane == LOCAL_DT6 and self.index == 0 else f"local {self.index}"


def locator_node(block: int, usid_value: int) -> int:
    """The leading 48 bits of a carrier whose active uSID is `usid_value`; `block` has 32 bits."""
    return block << USID_BITS | usid_value


# Carriers ----------------------------------------------------------------------------------------
def carrier(block: int, *usids: int) -> int:
    """A 128-bit destination address: the block, then the uSIDs, then zeros."""
    if len(usids) > CARRIER_SLOTS:
        raise AddressError(f"{len(usids)} uSIDs; allowed: at most {CARRIER_SLOTS} in one carrier")
    address = block << 96
    for slot, value in enumerate(usids):
        address |= _field("uSID", value, USID_BITS) << (80 - 16 * slot)
    return address


def carrier_block(address: int) -> int:
    """The leading 32 bits."""
    return address >> 96


def active_usid(address: int) -> int:
    """The uSID that the next switch compares with its own; 0 when the carrier is used up."""
    return address >> 80 & 0xFFFF


def carrier_usids(address: int) -> list[int]:
    """All uSIDs up to the first zero."""
    usids = []
    for slot in range(CARRIER_SLOTS):
        value = address >> (80 - 16 * slot) & 0xFFFF
        if value == 0:
            break
        usids.append(value)
    return usids


def shift(address: int) -> int:
    """What uN leaves: the block stays, the 96 bits after it move left by one uSID."""
    rest = (address << USID_BITS) & ((1 << 96) - 1)
    return address >> 96 << 96 | rest


def cross_t1_carrier(
    block: int, plane: int, src_group: int, uplink: int, dst_group: int, dst_downlink: int
) -> int:
    """`T0(src) | T1 | T0(dst) | downlink(dst)`."""
    return carrier(
        block,
        usid(UsidKind.T0, plane, src_group),
        usid(UsidKind.T1, plane, uplink),
        usid(UsidKind.T0, plane, dst_group),
        usid(UsidKind.DOWNLINK, plane, dst_downlink),
    )


def t0_local_carrier(block: int, plane: int, group: int, dst_downlink: int) -> int:
    """`T0 | downlink(dst)`; to one's own downlink it is the self-probe of the NIC-T0 link."""
    return carrier(
        block, usid(UsidKind.T0, plane, group), usid(UsidKind.DOWNLINK, plane, dst_downlink)
    )


def t1_probe_carrier(block: int, plane: int, group: int, uplink: int, downlink: int) -> int:
    """`T0 | T1 | T0 | downlink(self)`: there and back over one T0-T1 link."""
    return cross_t1_carrier(block, plane, group, uplink, group, downlink)


def own_carrier(block: int, plane: int, downlink: int) -> int:
    """What is left of a carrier when it reaches the NIC: `block | downlink | 0...`."""
    return carrier(block, usid(UsidKind.DOWNLINK, plane, downlink))


def template_path(template: int, plane: int, uplink: int, downlink: int, *, cross_t1: bool) -> int:
    """Fills a NIC's destination template: plane into every uSID, uplink into the T1's, downlink.

    Templates hold the block, kinds and T0 indices and zeros elsewhere, so that `|` is a copy.
    """
    bits = plane << 10
    if cross_t1:
        return template | bits << 80 | (bits | uplink) << 64 | bits << 48 | (bits | downlink) << 32
    return template | bits << 80 | (bits | downlink) << 64


# Entropy values ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class EntropyValue:
    """An EV, 32 bits: `plane(3) | uplink(10) | tag(19)`.

    EV[31:16] names the path and lies in the flow label; EV[15:0] is the UDP source port, which the
    host chooses and no switch changes.
    """

    plane: int
    uplink: int
    tag: int = 0

    def __post_init__(self) -> None:
        _field("EV plane", self.plane, PLANE_BITS)
        _field("EV uplink", self.uplink, INDEX_BITS)
        _field("EV tag", self.tag, TAG_BITS)

    @classmethod
    def unpack(cls, value: int) -> EntropyValue:
        """The EV with this 32-bit value."""
        _field("EV", value, 32)
        return cls(value >> 29, value >> 19 & 0x3FF, value & 0x7FFFF)

    @classmethod
    def from_wire(cls, path_ev: int, source_port: int) -> EntropyValue:
        """The EV of a packet with this flow label (low 16 bits) and UDP source port."""
        return cls.unpack(_field("path EV", path_ev, 16) << 16 | _field("port", source_port, 16))

    def pack(self) -> int:
        """The 32-bit value."""
        return self.plane << 29 | self.uplink << 19 | self.tag

    @property
    def path_ev(self) -> int:
        """EV[31:16] = `plane(3) | uplink(10) | tag(3)`, in the low 16 bits of the flow label."""
        return self.pack() >> 16

    @property
    def source_port(self) -> int:
        """EV[15:0], the UDP source port."""
        return self.tag & 0xFFFF


def path_ev(plane: int, uplink: int, path_tag: int = 0) -> int:
    """EV[31:16] of a path; `path_tag` has 3 bits."""
    _field("plane", plane, PLANE_BITS)
    _field("uplink", uplink, INDEX_BITS)
    return plane << 13 | uplink << 3 | _field("path tag", path_tag, PATH_TAG_BITS)


def path_ev_array(plane: Ints, uplink: Ints) -> UInt:
    """`path_ev` with path tag 0 for arrays."""
    return _u64(plane) << np.uint64(13) | _u64(uplink) << np.uint64(3)


# Host addresses ----------------------------------------------------------------------------------
def host_address(group: int, downlink: int) -> int:
    """`fd4d:5243::<group>:<downlink + 1>`, the same on every plane."""
    _field("T0 group", group, INDEX_BITS)
    return HOST_ADDRESS_BASE | group << 16 | _field("host number", downlink + 1, INDEX_BITS)


def group_prefix(group: int) -> tuple[int, int]:
    """Address and length of the prefix of all hosts of a T0 group."""
    return HOST_ADDRESS_BASE | _field("T0 group", group, INDEX_BITS) << 16, GROUP_PREFIX_LEN


def parse_host_address(address: int) -> tuple[int, int]:
    """(T0 group, downlink) of a host address; raises `AddressError`."""
    group, number = address >> 16 & 0xFFFF, address & 0xFFFF
    if address >> 32 != HOST_ADDRESS_BASE >> 32 or group > 1023 or not 1 <= number <= 1023:
        raise AddressError(
            f"{ipv6(address)} is no host's address; allowed: "
            f"{ipv6(HOST_ADDRESS_BASE)}<T0 group>:<downlink + 1>"
        )
    return group, number - 1


def ipv6(address: int) -> str:
    """An address as text (RFC 5952)."""
    return str(ipaddress.IPv6Address(address))


# MAC addresses -----------------------------------------------------------------------------------
def mac(kind: DeviceKind, plane: int, index: int, port: int) -> int:
    """The MAC of a device's port: `0x02 | kind(3) | plane(3) | index(22) | port(10)`, 48 bits.

    NIC and host: plane 0, index = group * hosts per group + downlink.
    """
    _field("plane", plane, PLANE_BITS)
    _field("MAC index", index, 22)
    _field("port", port, 10)
    return 0x02 << 40 | kind << 35 | plane << 32 | index << 10 | port


def mac_array(kind: Ints, plane: Ints, index: Ints, port: Ints) -> UInt:
    """`mac` for arrays that broadcast against each other."""
    macs: UInt = (
        np.uint64(0x02 << 40)
        | _u64(kind) << np.uint64(35)
        | _u64(plane) << np.uint64(32)
        | _u64(index) << np.uint64(10)
        | _u64(port)
    )
    return macs


def mac_text(value: int) -> str:
    """`02:08:00:00:04:03`."""
    return value.to_bytes(6, "big").hex(":")


# Port numbers ------------------------------------------------------------------------------------
def t0_downlink_port(downlink: int) -> int:
    """The T0's port to its host number `downlink`."""
    return 1 + downlink


def t0_uplink_port(hosts_per_group: int, uplink: int) -> int:
    """The T0's port to T1 number `uplink`."""
    return 1 + hosts_per_group + uplink


def t1_port(t0_index: int) -> int:
    """The T1's port to T0 number `t0_index`."""
    return 1 + t0_index


def nic_plane_port(plane: int) -> int:
    """The NIC's port to its T0 of `plane`; port 1 is the host's."""
    return plane + 2


def _u64(values: Ints) -> UInt:
    return np.asarray(values, dtype=np.uint64)
