# SPDX-License-Identifier: Apache-2.0
"""The static tables of all switches as NumPy arrays: a pure function of the fabric.

Everything follows from the cables (`Fabric.ports`), not from a formula beside them: an entry exists
because there is a port, and says what is at its other end. At full size that is 3.1 million uSID
entries for 6,144 switches, computed without a Python loop over entries.

The tables do not depend on policy. What policy chooses, the members of ECMP groups and everything
in the NICs, is in `controller.policy` and `controller.entries`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller import addressing as addr
from controller.addressing import DeviceKind, UsidKind
from controller.fabric import Fabric, IntArray, frozen

U64 = NDArray[np.uint64]


@dataclass(frozen=True)
class ForwardTable:
    """Entries "exact key -> forward(port, dst_mac, src_mac)" of all switches.

    The entries of the switch in row r are the elements `start[r]:start[r + 1]`.
    """

    start: IntArray
    key: U64
    port: IntArray
    dst_mac: U64
    src_mac: U64

    def of(self, row: int) -> slice:
        """The elements of one switch."""
        return slice(int(self.start[row]), int(self.start[row + 1]))

    def lookup(self, row: int, key: int) -> int | None:
        """The element that matches `key` in one switch, or None; the first if there are several."""
        within = self.of(row)
        found = np.flatnonzero(self.key[within] == np.uint64(key))
        return int(within.start + found[0]) if len(found) else None


@dataclass(frozen=True)
class Ipv6Fib:
    """Entries "longest prefix of an inner destination -> forward, or ECMP" of all switches.

    Destinations are host addresses: `suffix` holds their low 64 bits (the high ones are all alike).
    `port` is 0 where a T0 spreads over its uplinks; which of them is policy's choice per `group`.
    """

    start: IntArray
    suffix: U64
    prefix_len: IntArray
    group: IntArray
    port: IntArray
    dst_mac: U64
    src_mac: U64

    def of(self, row: int) -> slice:
        """The elements of one switch."""
        return slice(int(self.start[row]), int(self.start[row + 1]))

    def lookup(self, row: int, address: int) -> int | None:
        """The element with the longest prefix of a 128-bit address in one switch, or None."""
        if address >> 64 != addr.HOST_ADDRESS_BASE >> 64:
            return None
        within = self.of(row)
        host_bits = (128 - self.prefix_len[within]).astype(np.uint64)
        suffix = np.uint64(address & (1 << 64) - 1)
        matches = np.flatnonzero(suffix >> host_bits == self.suffix[within] >> host_bits)
        if not len(matches):
            return None
        return int(within.start + matches[np.argmax(self.prefix_len[within][matches])])


@dataclass(frozen=True)
class StaticTables:
    """The static tables of all switches (rows 0 to switch_count - 1).

    my_sid     locator_node by row: `un()`
    local_sid  uA: local uSID -> forward; every switch has the uSID `addressing.DT6_USID` as well
    usid_fib   locator_node after the shift -> forward
    ipv6_fib   for packets without a carrier, and those that dt6 decapsulates
    uplinks    uplink number -> forward: what a T0's ECMP groups choose from; empty for T1
    """

    my_sid: U64
    local_sid: ForwardTable
    usid_fib: ForwardTable
    ipv6_fib: Ipv6Fib
    uplinks: ForwardTable


@lru_cache(maxsize=2)
def static_tables(fabric: Fabric) -> StaticTables:
    """The tables of every switch of the fabric; computed once per fabric."""
    rows = fabric.switch_count
    start = frozen(fabric.ports.start[: rows + 1].copy())
    end = int(start[rows])
    port, peer = fabric.ports.port[:end], fabric.ports.peer[:end]
    row = np.repeat(np.arange(rows), np.diff(start))
    src_mac = frozen(_macs(fabric, row, port))
    dst_mac = frozen(_macs(fabric, peer, fabric.ports.peer_port[:end]))
    peer_kind = fabric.kind_of[peer]

    local_key = addr.usid_array(UsidKind.LOCAL, addr.LOCAL_UA, port)
    up = np.flatnonzero(peer_kind == DeviceKind.T1)
    uplink = port[up] - addr.t0_uplink_port(fabric.hosts_per_group, 0)
    return StaticTables(
        my_sid=_locator_nodes(fabric, _usids(fabric, np.arange(rows))),
        local_sid=ForwardTable(start, frozen(local_key), port, dst_mac, src_mac),
        usid_fib=ForwardTable(
            start, _next_locator_nodes(fabric, row, port, peer), port, dst_mac, src_mac
        ),
        ipv6_fib=_ipv6_fib(fabric, row, port, peer, dst_mac, src_mac),
        uplinks=ForwardTable(
            _starts(row[up], rows),
            frozen(uplink.astype(np.uint64)),
            frozen(port[up]),
            frozen(dst_mac[up]),
            frozen(src_mac[up]),
        ),
    )


def _next_locator_nodes(fabric: Fabric, row: IntArray, port: IntArray, peer: IntArray) -> U64:
    """The key under which a switch reaches the peer at a port: a node's own uSID, or the downlink
    uSID, which a T0 knows by its port because NICs have no uSID."""
    to_nic = fabric.kind_of[peer] == DeviceKind.NIC
    downlink = addr.usid_array(
        UsidKind.DOWNLINK, fabric.plane_of[row], port - addr.t0_downlink_port(0)
    )
    return _locator_nodes(fabric, np.where(to_nic, downlink, _usids(fabric, peer)))


def _usids(fabric: Fabric, rows: IntArray) -> U64:
    """The uSIDs of switches; meaningless for NICs and hosts."""
    # UsidKind and DeviceKind have the same values for T0 and T1.
    return addr.usid_array(fabric.kind_of[rows], fabric.plane_of[rows], fabric.index_of[rows])


def _locator_nodes(fabric: Fabric, usids: U64) -> U64:
    return frozen(np.uint64(fabric.block << addr.USID_BITS) | usids)


def _macs(fabric: Fabric, rows: IntArray, ports: IntArray) -> U64:
    return addr.mac_array(fabric.kind_of[rows], fabric.plane_of[rows], fabric.index_of[rows], ports)


def _starts(sorted_rows: IntArray, rows: int) -> IntArray:
    return frozen(np.searchsorted(sorted_rows, np.arange(rows + 1)).astype(np.int64))


def _ipv6_fib(
    fabric: Fabric, row: IntArray, port: IntArray, peer: IntArray, dst_mac: U64, src_mac: U64
) -> Ipv6Fib:
    """/128 for the hosts below a T0, /112 down from a T1, /112 over the uplinks for the rest."""
    kind, index = fabric.kind_of[peer], fabric.index_of[peer]
    down = np.flatnonzero(kind != DeviceKind.T1)
    to_nic = kind[down] == DeviceKind.NIC
    group = np.where(to_nic, index[down] // fabric.hosts_per_group, index[down])
    number = np.where(to_nic, index[down] % fabric.hosts_per_group + 1, 0)

    t0 = np.repeat(np.arange(fabric.t0_count), fabric.groups)
    other = np.tile(np.arange(fabric.groups), fabric.t0_count)
    remote = other != fabric.index_of[t0]
    t0, other = t0[remote], other[remote]
    none = np.zeros(len(t0), dtype=np.uint64)

    rows = np.concatenate([row[down], t0])
    order = np.argsort(rows, kind="stable")  # keeps each switch's own hosts before the prefixes
    prefix_len = np.where(to_nic, 128, addr.GROUP_PREFIX_LEN)

    def merged(direct: NDArray[Any], by_ecmp: NDArray[Any]) -> Any:
        return frozen(np.concatenate([direct, by_ecmp])[order])

    return Ipv6Fib(
        start=_starts(rows[order], fabric.switch_count),
        suffix=merged((group << 16 | number).astype(np.uint64), other.astype(np.uint64) << 16),
        prefix_len=merged(prefix_len, np.full(len(t0), addr.GROUP_PREFIX_LEN)),
        group=merged(group, other),
        port=merged(port[down], none.astype(np.int64)),
        dst_mac=merged(dst_mac[down], none),
        src_mac=merged(src_mac[down], none),
    )


def nic_templates(fabric: Fabric, group: int) -> list[int]:
    """What a NIC of `group` fills in per packet, by destination T0 group (its own: T0-local).

    Block, uSID kinds and T0 indices are set; plane, uplink and downlink are zero.
    """
    return [
        addr.t0_local_carrier(fabric.block, 0, group, 0)
        if dst == group
        else addr.cross_t1_carrier(fabric.block, 0, group, 0, dst, 0)
        for dst in range(fabric.groups)
    ]
