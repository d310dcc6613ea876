# SPDX-License-Identifier: Apache-2.0
"""``mrcctl topo``, ``routes`` and ``path``: what the fabric is, without asking a device."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from finsy import P4IndirectAction, P4MulticastGroupEntry, P4TableAction

from controller.addressing import AddressError, DeviceKind, EntropyValue, Usid, ipv6, mac_text
from controller.canonical import DesiredEntry
from controller.cli_common import (
    CommandError,
    PolicyOption,
    RunDirOption,
    Session,
    TopoOption,
    console,
    plain_table,
)
from controller.entries import desired_entries
from controller.fabric import Device, Fabric
from controller.overlay import Overlay
from controller.path import Hop, Trace, trace
from controller.words import (
    action_words,
    entry_action_words,
    match_words,
    params_words,
    table_word,
)
from topologies.schema import TopologyError, check_emulable, load_topology

topo = typer.Typer(no_args_is_help=True, help="Show or check a topology.")
routes = typer.Typer(no_args_is_help=True, help="Show or export table entries.")


# ---- topo ---------------------------------------------------------------------------------------


@topo.command("check")
def topo_check(
    file: Annotated[Path, typer.Argument(help="Topology file.", metavar="FILE")],
) -> None:
    """Check a topology file: values, names, field widths, regular wiring."""
    topology = load_topology(file)
    fabric = Fabric.from_topology(topology)
    console.print(f"{file}: ok")
    _print_sizes(fabric)
    try:
        check_emulable(topology)
    except TopologyError as error:
        console.print(f"note: {error}", markup=False)


@topo.command("show")
def topo_show(
    device: Annotated[
        str | None, typer.Argument(help="Show this device's ports and neighbours.")
    ] = None,
    topo: TopoOption = None,
    run_dir: RunDirOption = None,
) -> None:
    """Show the fabric's sizes, or one device with what is behind each of its ports."""
    fabric = Session.of(run_dir, topo).fabric
    if device is None:
        _print_sizes(fabric)
    else:
        _print_ports(fabric, fabric.device(device))


def _print_sizes(fabric: Fabric) -> None:
    topology = fabric.topology
    switches = fabric.switch_count
    table = plain_table("name", "value", header=False)
    for name, value in {
        "fabric": fabric.name,
        "locator block": str(topology.block),
        "planes": fabric.planes,
        "T0 per plane": fabric.groups,
        "T1 per plane": fabric.uplinks,
        "hosts": f"{fabric.host_count} ({fabric.hosts_per_group} in each of {fabric.groups} "
        "T0 groups)",
        "switches": f"{switches} ({fabric.t0_count} T0, {switches - fabric.t0_count} T1)",
        "links": f"{len(fabric.links)}",
        "paths of a host pair": f"{fabric.planes * fabric.uplinks} across T1s, "
        f"{fabric.planes} within a T0 group",
        "MTU": f"{topology.mtu} bytes between switches, {topology.host_mtu} at hosts",
    }.items():
        table.add_row(name, str(value))
    console.print(table)


def _print_ports(fabric: Fabric, device: Device) -> None:
    number = "none" if device.device_id is None else device.device_id
    console.print(f"{device.name}: {device.kind.name}, P4Runtime device id {number}")
    if device.kind in (DeviceKind.NIC, DeviceKind.HOST):
        console.print(f"host address {ipv6(fabric.host_address(device))}")
    table = plain_table("Port", "Interface", "MAC", "Neighbour", "Its interface", right=("Port",))
    within = fabric.ports.of(device.row)
    for port in fabric.ports.port[within].tolist():
        peer, peer_port = fabric.neighbour(device, port)
        table.add_row(
            str(port),
            fabric.interface(device, port),
            mac_text(fabric.mac(device, port)),
            peer.name,
            fabric.interface(peer, peer_port),
        )
    console.print(table)


# ---- routes -------------------------------------------------------------------------------------


class ExportFormat(StrEnum):
    """What ``routes export`` can write."""

    JSON = "json"
    CSV = "csv"


@routes.command("show")
def routes_show(
    device: Annotated[str, typer.Argument(help="Switch or NIC, as in p0t0-0 or n0-0.")],
    table: Annotated[str | None, typer.Option(help="Only this table.")] = None,
    topo: TopoOption = None,
    run_dir: RunDirOption = None,
    policy: PolicyOption = None,
) -> None:
    """Show the entries that a switch or NIC is to have."""
    session = Session.of(run_dir, topo, policy)
    rows = plain_table("Table", "Match", "Action", fold=("Action",))
    tables = []
    for entry in _device_entries(session, session.fabric.device(device)):
        name = table_word(entry)
        tables.append(name)
        if table in (None, name):
            rows.add_row(name, _match(entry), entry_action_words(entry))
    if table is not None and table not in tables:
        known = ", ".join(dict.fromkeys(tables))
        raise CommandError(f"{device} has no entries in a table {table!r}; it has {known}")
    console.print(rows)


@routes.command("export")
def routes_export(
    devices: Annotated[
        list[str] | None, typer.Argument(help="Devices (default: all switches).")
    ] = None,
    format: Annotated[ExportFormat, typer.Option("--format", help="Format.")] = ExportFormat.JSON,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File (default: standard output).")
    ] = None,
    topo: TopoOption = None,
    run_dir: RunDirOption = None,
    policy: PolicyOption = None,
) -> None:
    """Write the entries of switches and NICs as JSON or CSV, one record per entry."""
    session = Session.of(run_dir, topo, policy)
    fabric = session.fabric
    chosen: Iterable[Device] = (
        [fabric.device(name) for name in devices]
        if devices
        else fabric.devices(DeviceKind.T0, DeviceKind.T1)
    )
    entries = (
        (device.name, entry) for device in chosen for entry in _device_entries(session, device)
    )
    with _opened(output) as file:
        if format is ExportFormat.JSON:
            _write_json(entries, file)
        else:
            _write_csv(entries, file)


@contextmanager
def _opened(output: Path | None) -> Iterator[TextIO]:
    if output is None:
        yield sys.stdout
        return
    try:
        with output.open("w", encoding="utf-8", newline="") as file:
            yield file
    except OSError as error:
        raise CommandError(f"cannot write {output}: {error.strerror}") from error


def _device_entries(session: Session, device: Device) -> list[DesiredEntry]:
    if device.kind is DeviceKind.HOST:
        raise CommandError(f"{device.name} is a host and has no tables; its NIC has")
    return desired_entries(session.fabric, device.name, session.overlay)


def _write_json(entries: Iterable[tuple[str, DesiredEntry]], file: TextIO) -> None:
    """An array with one entry a line, so that a large export can be read line by line as well."""
    separator = "[\n"
    for device, entry in entries:
        where = {"device": device, "table": table_word(entry), "match": match_words(entry)}
        if isinstance(entry, P4MulticastGroupEntry):
            does: dict[str, Any] = {"ports": entry.replicas_str().split()}
        else:
            does = _taken_apart(entry.action)
        file.write(separator + json.dumps({**where, **does}))
        separator = ",\n"
    file.write("[]\n" if separator == "[\n" else "\n]\n")


def _write_csv(entries: Iterable[tuple[str, DesiredEntry]], file: TextIO) -> None:
    """Match and action in words; structure is for JSON."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["device", "table", "match", "action"])
    for device, entry in entries:
        writer.writerow([device, table_word(entry), _match(entry), entry_action_words(entry)])


def _match(entry: DesiredEntry) -> str:
    return " ".join(f"{name}={value}" for name, value in match_words(entry).items())


def _taken_apart(action: P4TableAction | P4IndirectAction | None) -> dict[str, Any]:
    if isinstance(action, P4TableAction):
        return {"action": action.name, "params": params_words(action)}
    if action is None or action.action_set is None:
        return {"action": action_words(action)}
    members = [{"weight": weight, **_taken_apart(member)} for weight, member in action.action_set]
    return {"members": members}


# ---- path ---------------------------------------------------------------------------------------


def path(
    src: Annotated[str, typer.Argument(help="Sending host, as in h0-0.")],
    dst: Annotated[str, typer.Argument(help="Receiving host.")],
    ev: Annotated[
        str | None, typer.Option(help="32-bit entropy value in hexadecimal, as in 0x20080000.")
    ] = None,
    plane: Annotated[int | None, typer.Option(help="Plane of the path.")] = None,
    uplink: Annotated[int | None, typer.Option(help="Uplink of the sender's T0.")] = None,
    topo: TopoOption = None,
    run_dir: RunDirOption = None,
    policy: PolicyOption = None,
) -> None:
    """Show a path hop by hop, each address as it looks on that wire; without an EV, all paths."""
    session = Session.of(run_dir, topo, policy)
    fabric, overlay = session.fabric, session.overlay
    if overlay.policy.spray.mode == "ecmp":
        raise CommandError(
            "the policy hashes flows (spray mode ecmp), so that no EV names a path; `mrcctl routes "
            "show` has the groups that are hashed over"
        )
    if ev is not None and (plane is not None or uplink is not None):
        raise CommandError("--ev names plane and uplink already: leave --plane and --uplink out")
    if ev is not None:
        _print_trace(trace(fabric, src, dst, parse_ev(ev)))
        return
    across = fabric.host(src).group != fabric.host(dst).group
    if plane is not None and (uplink is not None or not across):
        _print_trace(trace(fabric, src, dst, EntropyValue(plane, uplink or 0)))
        return
    planes = range(fabric.planes) if plane is None else [plane]
    uplinks = range(fabric.uplinks if across else 1) if uplink is None else [uplink]
    traces = [trace(fabric, src, dst, EntropyValue(p, u)) for p in planes for u in uplinks]
    _print_paths(traces, across, overlay)


def parse_ev(text: str) -> EntropyValue:
    """An entropy value given in hexadecimal, with or without 0x; CommandError when it is none."""
    try:
        return EntropyValue.unpack(int(text, 16))
    except (ValueError, AddressError):
        raise CommandError(
            f"{text!r} is not an EV; it has 32 bits: plane(3) uplink(10) tag(19), as in 0x20080000"
        ) from None


def _print_paths(traces: list[Trace], across: bool, overlay: Overlay) -> None:
    """All paths of a pair, with each one's weight among those of its plane."""
    numbers = ("Plane", "Uplink", "Weight")
    table = plain_table("EV", *numbers, "Path", right=numbers)
    for found in traces:
        assert found.ev is not None
        ev, names = found.ev, " - ".join(device.name for device in found.switches)
        end = found.end.name if found.end is not None else f"dropped: {_reason(found)}"
        table.add_row(
            f"{ev.pack():#010x}",
            str(ev.plane),
            str(ev.uplink) if across else "-",
            _weight(found, overlay),
            f"{found.source.name} - {names} - {end}",
        )
    console.print(table)


def _weight(found: Trace, overlay: Overlay) -> str:
    source, end, ev = found.source, found.end, found.ev
    if end is None or ev is None:
        return "-"
    assert source.group is not None and end.group is not None
    weight = overlay.path_weights(source.group, end.group)[ev.plane, ev.uplink]
    usable = weight > 0 and overlay.planes_between(source, end)[ev.plane]
    return f"{weight:g}" if usable else "denied"


def _print_trace(found: Trace) -> None:
    ev = found.ev
    if ev is not None:
        console.print(
            f"EV {ev.pack():#010x}: plane {ev.plane}, uplink {ev.uplink}, tag {ev.tag:#x}; "
            f"flow label {ev.path_ev:#07x}, UDP source port {ev.source_port}"
        )
    table = plain_table(
        "Device", "In", "Out", "Does", "Outer destination on the next wire", right=("In", "Out")
    )
    table.add_row(found.source.name, "", "0", "sends", "no outer header")
    for hop in found.hops:
        out = "-" if hop.out_port is None else str(hop.out_port)
        table.add_row(hop.device.name, str(hop.in_port), out, _does(hop), _wire(hop))
    if found.end is not None:
        table.add_row(found.end.name, "0", "", "receives", "")
    console.print(table)
    if found.drop is not None:
        raise CommandError(
            f"the packet is dropped at {found.hops[-1].device.name}: {_reason(found)}"
        )
    if found.faults:
        raise CommandError("; ".join(found.faults))


def _does(hop: Hop) -> str:
    if hop.active_usid:
        return f"{hop.action} ({hop.active_usid:04x} = {Usid.parse(hop.active_usid)})"
    return hop.action


def _wire(hop: Hop) -> str:
    if hop.out_port is None:
        return f"dropped: {hop.drop.name if hop.drop is not None else 'unknown'}"
    return "no outer header" if hop.destination_out is None else ipv6(hop.destination_out)


def _reason(found: Trace) -> str:
    return found.drop.name if found.drop is not None else "loop"
