# SPDX-License-Identifier: Apache-2.0
"""Where a packet goes, hop by hop, by walking the computed tables as switches and NICs would.

Nothing here recites the formula of a path: each switch looks its own entries up, each cable leads
where the fabric says it does. A wrong table or cable therefore shows, with the reason for which the
data plane would count the drop.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller import addressing as addr
from controller.addressing import DeviceKind, EntropyValue, UsidKind
from controller.drops import DropReason
from controller.fabric import Device, Fabric, FabricError
from controller.routes import StaticTables, nic_templates, static_tables


class UntraceableError(FabricError):
    """The way depends on a flow's hash, which no table tells."""


@dataclass(frozen=True)
class Hop:
    """One device on the way.

    `destination_in` is the outer destination address on the wire by which the packet came and
    `destination_out` on the one by which it left; None where there is no outer header.
    `active_usid` is the uSID that the device consumed first, None where it consumed none.
    `out_port` is None where the packet was dropped for `drop`.
    """

    device: Device
    in_port: int
    out_port: int | None
    destination_in: int | None
    destination_out: int | None
    active_usid: int | None
    action: str
    drop: DropReason | None = None


@dataclass(frozen=True)
class Trace:
    """A packet's whole way. `end` is the host it reached, None where it was dropped.

    `faults` are entries that forward, but wrongly: a next hop's MAC that is not the neighbour's.
    """

    source: Device
    ev: EntropyValue | None
    hops: tuple[Hop, ...]
    end: Device | None
    faults: tuple[str, ...]

    @property
    def drop(self) -> DropReason | None:
        """Why the packet did not arrive; None when it did."""
        return self.hops[-1].drop

    @property
    def switches(self) -> tuple[Device, ...]:
        """The switches passed, in order."""
        return tuple(hop.device for hop in self.hops if hop.device.kind is not DeviceKind.NIC)


def trace(
    fabric: Fabric, src: str, dst: str, ev: EntropyValue, tables: StaticTables | None = None
) -> Trace:
    """The way of a sprayed packet from host `src` to host `dst` with this EV.

    An uplink that does not exist ends in a drop, as in the fabric. Raises `FabricError` for unknown
    hosts, for `src` = `dst` (the kernel keeps such packets) and for a plane that no NIC port has.
    """
    source, destination = fabric.host(src), fabric.host(dst)
    if source == destination:
        raise FabricError(f"{src} to itself leaves no host; allowed: two different hosts")
    group, downlink = _place(source)
    dst_group, dst_downlink = _place(destination)
    _check_plane(fabric, ev.plane)
    cross_t1 = group != dst_group
    outer = addr.template_path(
        nic_templates(fabric, group)[dst_group],
        ev.plane,
        ev.uplink,
        dst_downlink,
        cross_t1=cross_t1,
    )
    first = Hop(
        device=fabric.device_at(fabric.nic_row(group, downlink)),
        in_port=addr.NIC_HOST_PORT,
        out_port=addr.nic_plane_port(ev.plane),
        destination_in=None,
        destination_out=outer,
        active_usid=None,
        action=f"encapsulate for plane {ev.plane}" + (f", uplink {ev.uplink}" if cross_t1 else ""),
    )
    inner = addr.host_address(dst_group, dst_downlink)
    return _walk(fabric, tables or static_tables(fabric), source, ev, first, inner)


def trace_carrier(
    fabric: Fabric, src: str, destination: int, inner: int, tables: StaticTables | None = None
) -> Trace:
    """The way of a packet that host `src` encapsulated itself, with outer address `destination`
    and inner address `inner`: the NIC sends it unchanged on the plane of its first uSID."""
    source = fabric.host(src)
    plane = addr.active_usid(destination) >> addr.INDEX_BITS & (1 << addr.PLANE_BITS) - 1
    _check_plane(fabric, plane)
    first = Hop(
        device=fabric.device_at(fabric.nic_row(*_place(source))),
        in_port=addr.NIC_HOST_PORT,
        out_port=addr.nic_plane_port(plane),
        destination_in=destination,
        destination_out=destination,
        active_usid=None,
        action=f"send the host's own carrier on plane {plane}",
    )
    return _walk(fabric, tables or static_tables(fabric), source, None, first, inner)


def trace_t0_probe(
    fabric: Fabric, src: str, plane: int, tables: StaticTables | None = None
) -> Trace:
    """The self-probe of the link between a host's NIC and its T0 of `plane`."""
    group, downlink = _place(fabric.host(src))
    carrier = addr.t0_local_carrier(fabric.block, plane, group, downlink)
    return trace_carrier(fabric, src, carrier, addr.host_address(group, downlink), tables)


def trace_t1_probe(
    fabric: Fabric, src: str, plane: int, uplink: int, tables: StaticTables | None = None
) -> Trace:
    """The self-probe of the link between a host's T0 and T1 `uplink` of `plane`."""
    group, downlink = _place(fabric.host(src))
    carrier = addr.t1_probe_carrier(fabric.block, plane, group, uplink, downlink)
    return trace_carrier(fabric, src, carrier, addr.host_address(group, downlink), tables)


def _place(host: Device) -> tuple[int, int]:
    assert host.group is not None and host.downlink is not None  # NICs and hosts have both
    return host.group, host.downlink


def _check_plane(fabric: Fabric, plane: int) -> None:
    if plane >= fabric.planes:
        raise FabricError(f"{fabric.name} has no plane {plane}; allowed: 0..{fabric.planes - 1}")


def _walk(
    fabric: Fabric,
    tables: StaticTables,
    source: Device,
    ev: EntropyValue | None,
    first: Hop,
    inner: int,
) -> Trace:
    hops, faults, end = [first], [], None
    # With a carrier every switch consumes a uSID; plain packets go up once and down once. More
    # switches than both together is a loop in wrong tables.
    for _ in range(addr.CARRIER_SLOTS + 4):
        last = hops[-1]
        if last.out_port is None:
            break
        device, port = fabric.neighbour(last.device, last.out_port)
        if device.kind is DeviceKind.HOST:
            end = device
            break
        if device.kind is DeviceKind.NIC:
            hops.append(_receive(fabric, device, port, last.destination_out, inner))
            continue
        hop, next_mac = _forward(fabric, tables, device, port, last.destination_out, inner)
        hops.append(hop)
        if hop.out_port is not None:
            peer, peer_port = fabric.neighbour(device, hop.out_port)
            expected = fabric.mac(peer, peer_port)
            if next_mac != expected:
                faults.append(
                    f"{device.name} port {hop.out_port} sends to MAC {addr.mac_text(next_mac)}, "
                    f"but {peer.name} port {peer_port} has {addr.mac_text(expected)}"
                )
    else:
        faults.append(f"loop: {' '.join(hop.device.name for hop in hops)}")
    return Trace(source, ev, tuple(hops), end, tuple(faults))


def _receive(fabric: Fabric, nic: Device, in_port: int, outer: int | None, inner: int) -> Hop:
    """A NIC with a packet from a plane port: it checks both addresses and hands the packet up."""
    group, downlink = _place(nic)
    plane = in_port - addr.nic_plane_port(0)
    drop = None
    if outer is not None and outer != addr.own_carrier(fabric.block, plane, downlink):
        drop = DropReason.NOT_OWN_CARRIER
    elif inner != addr.host_address(group, downlink):
        drop = DropReason.NOT_OWN_ADDRESS
    return Hop(
        device=nic,
        in_port=in_port,
        out_port=addr.NIC_HOST_PORT if drop is None else None,
        destination_in=outer,
        destination_out=None,
        active_usid=addr.active_usid(outer) if outer is not None else None,
        action="deliver" if outer is None else "decapsulate, deliver",
        drop=drop,
    )


def _forward(
    fabric: Fabric,
    tables: StaticTables,
    switch: Device,
    in_port: int,
    outer: int | None,
    inner: int,
) -> tuple[Hop, int]:
    """A switch: the hop, and the next hop's MAC in the entry that forwarded (0 for a drop)."""
    if outer is None or addr.carrier_block(outer) != fabric.block:
        return _route(tables, switch, in_port, outer, None, inner, "route")

    active = addr.active_usid(outer)

    def dropped(reason: DropReason) -> tuple[Hop, int]:
        return Hop(switch, in_port, None, outer, None, active, "drop", reason), 0

    if outer >> 80 != int(tables.my_sid[switch.row]):
        return dropped(DropReason.NOT_MY_SID)
    after = addr.shift(outer)
    following = addr.active_usid(after)
    if following == 0:
        return dropped(DropReason.CARRIER_ENDED)
    if following == addr.DT6_USID:
        return _route(tables, switch, in_port, outer, active, inner, "uN, uDT6")
    if following >> 13 == UsidKind.LOCAL:
        table, key, action = tables.local_sid, following, "uN, uA"
        missed = DropReason.UNKNOWN_LOCAL_SID
        after = addr.shift(after)
    else:
        table, key, action = tables.usid_fib, after >> 80, "uN"
        missed = DropReason.UNKNOWN_USID
    entry = table.lookup(switch.row, key)
    if entry is None:
        return dropped(missed)
    if addr.active_usid(after) == 0:  # uA was the last uSID
        return dropped(DropReason.CARRIER_ENDED)
    port = int(table.port[entry])
    return Hop(switch, in_port, port, outer, after, active, action), int(table.dst_mac[entry])


def _route(
    tables: StaticTables,
    switch: Device,
    in_port: int,
    outer: int | None,
    active: int | None,
    inner: int,
    action: str,
) -> tuple[Hop, int]:
    """Forwards by the inner destination, without a carrier from here on."""
    entry = tables.ipv6_fib.lookup(switch.row, inner)
    if entry is None:
        return Hop(switch, in_port, None, outer, None, active, "drop", DropReason.NO_ROUTE), 0
    port = int(tables.ipv6_fib.port[entry])
    if port == 0:
        raise UntraceableError(
            f"{switch.name} spreads {addr.ipv6(inner)} over its uplinks by a hash of the flow"
        )
    hop = Hop(switch, in_port, port, outer, None, active, action)
    return hop, int(tables.ipv6_fib.dst_mac[entry])
