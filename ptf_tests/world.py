# SPDX-License-Identifier: Apache-2.0
"""The fabric that the switches under test belong to, and their tables in it.

The fabric switch is T0 number 5 or T1 number 2 of plane 3; T0 groups have four hosts. A T0 has its
hosts on ports 1-4 and T1s 0-3 on ports 5-8; a T1 has T0s 0-7 on ports 1-8.
"""

from __future__ import annotations

from finsy import P4TableAction, P4TableEntry

from controller import addressing
from controller.addressing import DeviceKind, UsidKind, locator_node, usid
from mrc.options import CodePoints
from ptf_tests.device import entry
from ptf_tests.packets import Macs

BLOCK = 0xFCBBBB00
PLANE = 3
T0 = 5
T1 = 2
HOSTS = 4
PORTS = range(1, 9)

T0_USID = usid(UsidKind.T0, PLANE, T0)
T1_USID = usid(UsidKind.T1, PLANE, T1)
OTHER_T0 = 6
OTHER_T0_USID = usid(UsidKind.T0, PLANE, OTHER_T0)


def t1_usid(uplink: int) -> int:
    """uSID of a T1 of this plane."""
    return usid(UsidKind.T1, PLANE, uplink)


def t0_usid(index: int) -> int:
    """uSID of a T0 of this plane."""
    return usid(UsidKind.T0, PLANE, index)


def downlink_usid(downlink: int) -> int:
    """uSID of a T0's host port, of this plane."""
    return usid(UsidKind.DOWNLINK, PLANE, downlink)


def down_port(downlink: int) -> int:
    """The T0's port to a host."""
    return addressing.t0_downlink_port(downlink)


def up_port(uplink: int) -> int:
    """The T0's port to a T1."""
    return addressing.t0_uplink_port(HOSTS, uplink)


def _own(port: int) -> int:
    return addressing.mac(DeviceKind.T0, PLANE, T0, port)


def _neighbour(port: int) -> int:
    if port <= HOSTS:
        return addressing.mac(DeviceKind.NIC, 0, T0 * HOSTS + port - 1, PLANE + 2)
    return addressing.mac(DeviceKind.T1, PLANE, port - 1 - HOSTS, 1 + T0)


def arriving(port: int) -> Macs:
    """Ethernet addresses of a frame that comes in here."""
    return Macs(destination=_own(port), source=_neighbour(port))


def leaving(port: int) -> Macs:
    """Ethernet addresses of a frame that goes out here."""
    return Macs(destination=_neighbour(port), source=_own(port))


def next_hop(action: str, port: int) -> P4TableAction:
    """`forward` or `ua` out of this port."""
    macs = leaving(port)
    return P4TableAction(action, port=port, dst_mac=macs.destination, src_mac=macs.source)


def locator_block(block: int = BLOCK) -> P4TableEntry:
    """What is in this block is a carrier."""
    return entry("locator_block", {"block": block}, P4TableAction("in_block"))


def my_sid(own: int, block: int = BLOCK) -> P4TableEntry:
    """The switch's own uSID."""
    return entry("my_sid", {"locator_node": locator_node(block, own)}, P4TableAction("un"))


def usid_route(next_usid: int, port: int) -> P4TableEntry:
    """A static /48 route."""
    match = {"locator_node": locator_node(BLOCK, next_usid)}
    return entry("usid_fib", match, next_hop("forward", port))


def local_ua(port: int) -> P4TableEntry:
    """uA of this port."""
    return entry("local_sid", {"local_sid": addressing.ua_usid(port)}, next_hop("ua", port))


def local_dt6() -> P4TableEntry:
    """Decapsulation."""
    return entry("local_sid", {"local_sid": addressing.DT6_USID}, P4TableAction("dt6"))


def ipv6_route(prefix: int, length: int, action: P4TableAction) -> P4TableEntry:
    """A route for plain IPv6."""
    match = {"dst_addr": f"{addressing.ipv6(prefix)}/{length}"} if length else {}
    return entry("ipv6_fib", match, action)


def t0_entries() -> list[P4TableEntry]:
    """The static tables of the T0."""
    return [
        locator_block(),
        my_sid(T0_USID),
        *(usid_route(downlink_usid(d), down_port(d)) for d in range(HOSTS)),
        *(usid_route(t1_usid(u), up_port(u)) for u in range(HOSTS)),
    ]


def t1_entries() -> list[P4TableEntry]:
    """The static tables of the T1."""
    return [
        locator_block(),
        my_sid(T1_USID),
        *(usid_route(t0_usid(index), addressing.t1_port(index)) for index in range(8)),
    ]


# ---- queues: thresholds in packets, small enough to fill a queue in no time ----------------------

CODE_POINTS = CodePoints()
ECN_MIN, ECN_MAX, TRIM, CAPACITY = 10, 20, 30, 40
TRIM_SIZE = 256
UPLINK = up_port(0)
DOWNLINK = down_port(1)
TO_UPLINK = addressing.carrier(BLOCK, T0_USID, t1_usid(0), OTHER_T0_USID, downlink_usid(2))
TO_DOWNLINK = addressing.carrier(BLOCK, T0_USID, downlink_usid(1))
HOST = addressing.host_address(T0, 0)
PEER = addressing.host_address(OTHER_T0, 2)


def traffic_class(dscp: int, action: str) -> P4TableEntry:
    """What a packet with this DSCP is."""
    return entry("traffic_classes", {"dscp": dscp}, P4TableAction(action))


def port_to_switch(port: int = UPLINK, **changed: int) -> P4TableEntry:
    """Configuration of a port with another switch behind it."""
    settings = {
        "ecn_min_threshold": ECN_MIN,
        "ecn_max_threshold": ECN_MAX,
        "packet_trim_threshold": TRIM,
        "packet_trim_size": TRIM_SIZE,
        "packet_trim_dscp": CODE_POINTS.trimmed,
        "capacity": CAPACITY,
    }
    return entry("port_config", {"port": port}, P4TableAction("to_switch", **settings | changed))


def port_to_host(port: int = DOWNLINK, **changed: int) -> P4TableEntry:
    """Configuration of a port with a host behind it."""
    settings = {
        "packet_trim_threshold": TRIM,
        "packet_trim_size": TRIM_SIZE,
        "packet_trim_dscp": CODE_POINTS.trimmed_lasthop,
        "capacity": CAPACITY,
    }
    return entry("port_config", {"port": port}, P4TableAction("to_host", **settings | changed))


CONTROL_DSCPS = (CODE_POINTS.control, CODE_POINTS.trimmed, CODE_POINTS.trimmed_lasthop)
# All code points in an order in which none overtakes another one on a port.
DSCPS = (*CONTROL_DSCPS, *(dscp for dscp in range(64) if dscp not in CONTROL_DSCPS))


def queue_entries() -> list[P4TableEntry]:
    """Traffic classes, and two ports of the T0 with queues."""
    return [
        traffic_class(CODE_POINTS.trimmable, "data_trim"),
        traffic_class(CODE_POINTS.trimmable_retx, "data_trim"),
        traffic_class(CODE_POINTS.no_trim, "data_no_trim"),
        *(traffic_class(dscp, "control_class") for dscp in CONTROL_DSCPS),
        port_to_switch(),
        port_to_host(),
    ]
