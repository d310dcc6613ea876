# SPDX-License-Identifier: Apache-2.0
"""The NIC under test in its fabric: host 1 of T0 group 5, eight planes, destinations in group 6.

``expected_frame`` says what the NIC must send for a host's packet on a path, from the addressing
rules alone, not from the templates that the NIC holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from finsy import P4TableAction, P4TableEntry

from controller import addressing
from controller.addressing import DeviceKind
from ptf_tests.device import Device, entry
from ptf_tests.packets import (
    ETHERNET_BYTES,
    IPV6_BYTES,
    NEXT_HEADER_IPV6,
    Macs,
    ethernet,
    ipv6,
    with_flow_label,
)
from ptf_tests.world import BLOCK, CODE_POINTS, locator_block

GROUP = 5
DOWNLINK = 1
OTHER_GROUP = 6
HOSTS = 4
PLANES = range(8)
HOST_PORT = addressing.NIC_HOST_PORT
PORTS = range(1, 10)
HOST = addressing.host_address(GROUP, DOWNLINK)
PEER = addressing.host_address(OTHER_GROUP, 2)
NEIGHBOUR = addressing.host_address(GROUP, 3)
EV_CHOSEN = 0xE << 16
OP_READ_DOWN_PLANES, OP_WRITE_DOWN_PLANES = 1, 2
OP_READ_PATH, OP_WRITE_PATH = 3, 4
OP_READ_INACTIVE, OP_READ_ASSUMED, OP_WRITE_ASSUMED = 5, 7, 8
OP_INJECT = 9
OP_READ_PEER_DOWN, OP_WRITE_PEER_DOWN = 10, 11
UPLINK_BITS = 10

# Spray groups and plane sets that tests fill.
SPRAY_GROUP = 9
LOCAL_SPRAY_GROUP = 8
PLANE_SET = 3

_INDEX = GROUP * HOSTS + DOWNLINK
_NIC_MACS = {port: addressing.mac(DeviceKind.NIC, 0, _INDEX, port) for port in PORTS}
_NEIGHBOUR_MACS = {
    HOST_PORT: addressing.mac(DeviceKind.HOST, 0, _INDEX, 0),
    **{
        addressing.nic_plane_port(p): addressing.mac(DeviceKind.T0, p, GROUP, 1 + DOWNLINK)
        for p in PLANES
    },
}


def arriving(port: int) -> Macs:
    """Ethernet addresses of a frame that comes in here."""
    return Macs(destination=_NIC_MACS[port], source=_NEIGHBOUR_MACS[port])


def leaving(port: int) -> Macs:
    """Ethernet addresses of a frame that goes out here."""
    return Macs(destination=_NEIGHBOUR_MACS[port], source=_NIC_MACS[port])


def from_host(packet: bytes) -> bytes:
    """The host's frame."""
    return ethernet(arriving(HOST_PORT), packet)


# ---- tables -------------------------------------------------------------------------------------


def link(port: int) -> P4TableEntry:
    """The link behind a port."""
    macs = leaving(port)
    action = P4TableAction("set_macs", dst_mac=macs.destination, src_mac=macs.source)
    return entry("link_macs", {"egress_port": port}, action)


def own_sid(plane: int) -> P4TableEntry:
    """What is left of a carrier to this NIC when it comes in from this plane."""
    match = {
        "ingress_port": addressing.nic_plane_port(plane),
        "outer_dst": addressing.own_carrier(BLOCK, plane, DOWNLINK),
    }
    return entry("own_sid", match, P4TableAction("own_carrier"))


def own_address(address: int = HOST) -> P4TableEntry:
    """The host's address."""
    return entry("own_address", {"dst_addr": address}, P4TableAction("deliver"))


def destination(group: int, action: P4TableAction) -> P4TableEntry:
    """How to reach a T0 group."""
    prefix, length = addressing.group_prefix(group)
    return entry("destinations", {"dst_addr": f"{addressing.ipv6(prefix)}/{length}"}, action)


def cross_t1(spray_group: int = SPRAY_GROUP) -> P4TableEntry:
    """The other T0 group by cross-T1 carriers."""
    template = addressing.cross_t1_carrier(BLOCK, 0, GROUP, 0, OTHER_GROUP, 0)
    return destination(
        OTHER_GROUP, P4TableAction("cross_t1", template=template, group_id=spray_group)
    )


def t0_local(spray_group: int = LOCAL_SPRAY_GROUP) -> P4TableEntry:
    """The own T0 group by T0-local carriers."""
    template = addressing.t0_local_carrier(BLOCK, 0, GROUP, 0)
    return destination(GROUP, P4TableAction("t0_local", template=template, group_id=spray_group))


def traffic_class(dscp: int, action: str, **arguments: int) -> P4TableEntry:
    """What a packet with this DSCP is."""
    return entry("traffic_classes", {"dscp": dscp}, P4TableAction(action, **arguments))


def trim_class(dscp: int, action: str, control_dscp: int = CODE_POINTS.control) -> P4TableEntry:
    """A DSCP that says that a packet was trimmed, and the one of the NACK for it."""
    return traffic_class(dscp, action, control_dscp=control_dscp)


def peer(source: int, qp: int, peer_qp: int) -> P4TableEntry:
    """Who sends to the host's QP."""
    match = {"src_addr": source, "qp": qp}
    return entry("peers", match, P4TableAction("peer", peer_qp=peer_qp))


def nic_entries() -> list[P4TableEntry]:
    """Everything but spray groups and peers."""
    return [
        locator_block(),
        traffic_class(CODE_POINTS.control, "control_class"),
        trim_class(CODE_POINTS.trimmed, "trimmed_in_fabric"),
        trim_class(CODE_POINTS.trimmed_lasthop, "trimmed_on_last_hop"),
        cross_t1(),
        t0_local(),
        own_address(),
        *map(link, PORTS),
        *map(own_sid, PLANES),
    ]


def path_group(group: int) -> int:
    """Where the states of a spray group's paths are: 128 path groups have room for all uplinks."""
    return group % 128


def group_cfg(
    group: int,
    slots: int,
    *,
    generation: int = 0,
    plane_set: int = PLANE_SET,
    random: bool,
    retirable: int = 0,
    probe_successes: int = 3,
    planes: Iterable[int] = PLANES,
    shared_states: int | None = None,
    uplink_bits: int = UPLINK_BITS,
) -> P4TableEntry:
    """A spray group; ``slots`` per plane, of whose paths so many may be inactive.

    The states of its paths are in a path group of its own, or in ``shared_states``.
    """
    action = P4TableAction(
        "spray_random" if random else "spray_round_robin",
        generation=generation,
        slots=slots,
        plane_set=plane_set,
        path_group=path_group(group) if shared_states is None else shared_states,
        uplink_bits=uplink_bits,
        planes=sum(1 << plane for plane in planes),
        retirable=int.from_bytes(bytes([retirable] * 8), "big"),
        probe_successes=probe_successes,
    )
    return entry("group_cfg", {"group_id": group}, action)


def slots(
    group: int,
    paths: Mapping[int, Sequence[int]],
    *,
    generation: int = 0,
    alternates: bool = False,
) -> list[P4TableEntry]:
    """The slots of a group: plane -> path EVs in the order of the slots.

    The alternates of a slot are the paths of the next three, or its own path three times.
    """
    return [
        entry(
            "slots",
            {"group_id": group, "generation": generation, "plane": plane, "slot": slot},
            P4TableAction(
                "use_path",
                **{
                    name: evs[(slot + after * alternates) % len(evs)]
                    for after, name in enumerate(("path_ev", "second", "third", "fourth"))
                },
            ),
        )
        for plane, evs in paths.items()
        for slot in range(len(evs))
    ]


def plane_set(
    picks: Sequence[int], masks: Iterable[int] = (0,), number: int = PLANE_SET
) -> list[P4TableEntry]:
    """A plane set: picks in order, and what is left of them for each mask of planes down."""
    entries = []
    for mask in masks:
        live = [plane for plane in picks if not mask >> plane & 1]
        if live:
            planes = sum(plane << 3 * position for position, plane in enumerate(live))
            match = {"plane_set": number, "down_planes": mask}
            action = P4TableAction("choose_from", count=len(live), planes=planes)
            entries.append(entry("plane_sets", match, action))
    return entries


# ---- what must come out -------------------------------------------------------------------------


def carrier_for(target: int, path_ev: int) -> int:
    """The carrier to a host on the path that an EV names."""
    group, downlink = addressing.parse_host_address(target)
    plane, uplink = path_ev >> 13, path_ev >> 3 & 1023
    if group == GROUP:
        return addressing.t0_local_carrier(BLOCK, plane, GROUP, downlink)
    return addressing.cross_t1_carrier(BLOCK, plane, GROUP, uplink, group, downlink)


def plane_port(path_ev: int) -> int:
    """The port of an EV's plane."""
    return addressing.nic_plane_port(path_ev >> 13)


def expected_frame(packet: bytes, path_ev: int) -> bytes:
    """What the NIC sends for this packet of the host on this path."""
    source, target = (int.from_bytes(packet[at : at + 16], "big") for at in (8, 24))
    traffic_class = packet[0] << 4 & 0xF0 | packet[1] >> 4
    outer = ipv6(
        source,
        carrier_for(target, path_ev),
        with_flow_label(packet, path_ev),
        NEXT_HEADER_IPV6,
        dscp=traffic_class >> 2,
        ecn=traffic_class & 3,
        flow_label=path_ev,
        hop_limit=64,
    )
    return ethernet(leaving(plane_port(path_ev)), outer)


def path_ev_of(frame: bytes) -> int:
    """The path EV in a frame that the NIC has sent: the outer flow label."""
    return int.from_bytes(frame[ETHERNET_BYTES + 1 : ETHERNET_BYTES + 4], "big") & 0xFFFFF


def inner_of(frame: bytes) -> bytes:
    """The host's packet in a frame that the NIC has sent."""
    return frame[ETHERNET_BYTES + IPV6_BYTES :]


# ---- the register of planes that are down -------------------------------------------------------


def ask_cpu(device: Device, op: int, index: int = 0, value: int = 0) -> tuple[int, int, int]:
    """Send a request by packet-out; op, index and value of the packet-in that answers."""
    device.packet_out(b"", op=op, index=index, value=value)
    answer = device.packet_in()
    assert answer is not None, f"no answer to op {op}"
    return answer["op"], answer["index"], answer["value"]


def set_down_planes(device: Device, mask: int) -> None:
    """Write the mask of planes that are down, and see that it is in force."""
    assert ask_cpu(device, OP_WRITE_DOWN_PLANES, 0, mask) == (OP_WRITE_DOWN_PLANES, 0, mask)
