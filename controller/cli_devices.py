# SPDX-License-Identifier: Apache-2.0
"""``mrcctl push``, ``status``, ``counters`` and ``policy``: what talks to the devices."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from controller.addressing import DeviceKind
from controller.cli_common import (
    CommandError,
    PolicyOption,
    RunDirOption,
    Session,
    console,
    errors,
    plain_table,
    rich_escape,
)
from controller.counters import (
    QUEUE_COUNTERS,
    FabricCounters,
    read_fabric,
    spread,
    t1_packets,
)
from controller.drops import DropReason
from controller.entries import desired_entries
from controller.fabric import Fabric
from controller.inventory import write_atomically
from controller.policy import load_policy
from controller.push import Progress, PushReport, push
from controller.status import DeviceStatus, read_status

policy = typer.Typer(no_args_is_help=True, help="Check, apply or show a route policy.")

TimeoutOption = Annotated[
    float, typer.Option("--timeout", help="Seconds to wait for a device to answer.", min=0.1)
]
ALL_ROWS = 40  # a larger fabric's uneventful devices are summed up in one line


COMPUTED_DEVICES = 1000  # `policy check` computes all entries of fabrics up to this size


# ---- push ---------------------------------------------------------------------------------------


def push_command(
    run_dir: RunDirOption = None,
    policy: PolicyOption = None,
    device: Annotated[
        list[str] | None, typer.Option("--device", help="Only this device (repeatable).")
    ] = None,
    timeout: TimeoutOption = 5.0,
) -> None:
    """Bring all devices to the computed entries: read, diff, write what differs."""
    session = Session.of(run_dir, policy=policy)
    push_session(session, device, timeout)


def push_session(session: Session, only: list[str] | None = None, timeout: float = 5.0) -> None:
    """Push with progress and a report; CommandError when any device is not as wanted then."""
    desired = session.desired()
    unknown = sorted(set(only or ()) - desired.keys())
    if unknown:
        raise CommandError(
            f"not in the running fabric: {', '.join(unknown)}; `mrcctl status` lists the devices"
        )
    chosen = {name: desired[name] for name in only} if only else desired
    bar = Bar(
        TextColumn("push"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("devices, {task.fields[written]} updates"),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )
    with bar:
        task = bar.add_task("push", total=len(chosen), written=0)
        written: dict[str, int] = {}

        def show(event: Progress) -> None:
            written[event.device] = event.done
            bar.update(task, written=sum(written.values()))
            if event.step in ("done", "failed"):
                bar.advance(task)

        report = asyncio.run(
            push(session.inventory, chosen, connect_timeout_s=timeout, on_progress=show)
        )
    print_push(report)
    bad = [name for name, found in report.devices.items() if not found.ok]
    if bad:
        raise CommandError(
            f"{len(bad)} of {len(report.devices)} devices are not as wanted: {', '.join(bad)}; "
            "run `mrcctl push` again when the cause is removed"
        )


def print_push(report: PushReport) -> None:
    """One line per device (only the eventful ones of a large fabric), errors, and the sum."""
    numbers = ("Inserted", "Modified", "Deleted", "Unchanged", "Skipped", "Seconds")
    table = plain_table("Device", "Program", *numbers, right=numbers)
    for name, found in report.devices.items():
        if len(report.devices) > ALL_ROWS and found.ok and not found.written:
            continue
        if not found.reached:
            table.add_row(name, "unknown", *[""] * 5, f"{found.seconds:.2f}")
            continue
        counts = (found.inserted, found.modified, found.deleted, found.unchanged, found.skipped)
        table.add_row(
            name,
            "loaded" if found.pipeline_pushed else "kept",
            *map(str, counts),
            f"{found.seconds:.2f}",
        )
    console.print(table)
    for name, found in report.devices.items():
        for message in found.errors:
            errors.print(f"[bold red]{name}[/]: {rich_escape(message)}")
    rate = report.written / report.seconds if report.seconds > 0 else 0.0
    console.print(
        f"{report.written} updates on {len(report.devices)} devices in {report.seconds:.2f} s "
        f"({rate:,.0f}/s)"
    )


# ---- status and counters ------------------------------------------------------------------------


def status(
    run_dir: RunDirOption = None,
    policy: PolicyOption = None,
    timeout: TimeoutOption = 5.0,
) -> None:
    """Show every device: reachable, controlled, program, entries, packets, drops by reason."""
    session = Session.of(run_dir, policy=policy)
    found = asyncio.run(
        read_status(session.inventory, session.desired(), connect_timeout_s=timeout)
    )
    print_status(found)
    bad = [device.device for device in found if not device.ok]
    if bad:
        raise CommandError(f"not as wanted: {', '.join(bad)}; `mrcctl push` repairs entries")


def print_status(found: list[DeviceStatus]) -> None:
    """The table of ``mrcctl status``, then drops by device and reason."""
    numbers = ("Pending", "Packets in", "Packets out", "Drops")
    columns = ("Device", "State", "Controller", *numbers, "Entries")
    table = plain_table(*columns, right=numbers, fold=("Entries",))
    for device in found:
        counters = device.counters
        if counters is None:
            table.add_row(device.device, _state(device), _primary(device))
            continue
        entries = ", ".join(f"{name} {n}" for name, n in (device.entries or {}).items() if n)
        packets = (counters.port_in, counters.port_out, counters.drops)
        table.add_row(
            device.device,
            _state(device),
            _primary(device),
            str(device.pending),
            *(f"{int(array[:, 0].sum())}" for array in packets),
            entries or "none",
        )
    console.print(table)
    print_drops(FabricCounters({d.device: d.counters for d in found if d.counters is not None}))
    for device in found:
        if device.error is not None:
            errors.print(f"[bold red]{device.device}[/]: {rich_escape(device.error)}")


def _state(device: DeviceStatus) -> str:
    if device.error is not None:
        return "unreachable"
    if not device.program_ok:
        return "other program"
    return "ok" if device.ok else "differs"


def _primary(device: DeviceStatus) -> str:
    return "none" if device.primary is None else f"id {device.primary}"


def print_drops(counters: FabricCounters) -> None:
    """Packets dropped, by device and reason; a line that says so when there are none."""
    table = plain_table("Device", "Reason", "Packets", "Bytes", right=("Packets", "Bytes"))
    for name, device in counters.devices.items():
        for reason in np.flatnonzero(device.drops[:, 0]).tolist():
            packets, octets = device.drops[reason].tolist()
            table.add_row(name, _reason_name(reason), str(packets), str(octets))
    if table.row_count:
        console.print(table)
    else:
        console.print("no drops")


def _reason_name(reason: int) -> str:
    known = {item.value: item.name for item in DropReason}
    return known.get(reason, f"reason {reason}")


def counters(
    run_dir: RunDirOption = None,
    device: Annotated[
        str | None, typer.Option("--device", help="Show this device's ports instead.")
    ] = None,
    timeout: TimeoutOption = 5.0,
) -> None:
    """Show the spread of packets, queues that filled and all drops since programs were loaded."""
    session = Session.of(run_dir)
    fabric = session.fabric
    row = None if device is None else fabric.device(device)
    found = asyncio.run(read_fabric(session.inventory, connect_timeout_s=timeout))
    if row is None:
        print_spray(fabric, found)
        print_queues(fabric, found)
        print_drops(found)
    elif row.name in found.devices:
        print_ports(fabric, row.name, found)
    for name, message in found.errors.items():
        errors.print(f"[bold red]{name}[/]: {rich_escape(message)}")
    if found.errors:
        raise CommandError(f"could not read: {', '.join(found.errors)}")


def print_spray(fabric: Fabric, counters: FabricCounters) -> None:
    """Packets per plane and T1, and max/mean: 1.00 is a perfectly even spray."""
    packets = t1_packets(fabric, counters)
    heads = [f"T1 {index}" for index in range(fabric.uplinks)]
    numbers = (*heads, "Sum", "Max/mean")
    table = plain_table("Plane", *numbers, right=numbers)
    for plane, row in enumerate(packets):
        cells = ("no data" if np.isnan(count) else f"{count:.0f}" for count in row)
        table.add_row(str(plane), *cells, f"{np.nansum(row):.0f}", _ratio(spread(row)))
    console.print(table)
    by_plane = np.nansum(packets, axis=1)
    console.print(
        f"max/mean over all T1s {_ratio(spread(packets))}, over planes {_ratio(spread(by_plane))}"
    )


def print_queues(fabric: Fabric, counters: FabricCounters) -> None:
    """Packets marked, trimmed and dropped at egress queues, for the ports where any was."""
    heads = tuple(QUEUE_COUNTERS.values())
    table = plain_table("Switch", "Port", "Neighbour", *heads, right=("Port", *heads))
    for name, read in counters.devices.items():
        if not read.queues:
            continue
        packets = np.stack([read.queues[counter][:, 0] for counter in QUEUE_COUNTERS], axis=1)
        for port in np.flatnonzero(packets.any(axis=1)).tolist():
            peer, _ = fabric.neighbour(fabric.device(name), port)
            table.add_row(name, str(port), peer.name, *map(str, packets[port].tolist()))
    console.print(table if table.row_count else "no packet marked, trimmed or dropped at a queue")


def _ratio(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.3f}"


def print_ports(fabric: Fabric, name: str, counters: FabricCounters) -> None:
    """Packets and bytes of one device by port, with the neighbour behind it."""
    device, read = fabric.device(name), counters.devices[name]
    queues = (QUEUE_COUNTERS[counter] for counter in read.queues)
    numbers = ("Port", "Packets in", "Bytes in", "Packets out", "Bytes out", *queues)
    table = plain_table("Port", "Neighbour", *numbers[1:], right=numbers)
    for port in fabric.ports.port[fabric.ports.of(device.row)].tolist():
        peer, _ = fabric.neighbour(device, port)
        values = (*read.port_in[port].tolist(), *read.port_out[port].tolist())
        values += tuple(int(counts[port, 0]) for counts in read.queues.values())
        table.add_row(str(port), peer.name, *map(str, values))
    console.print(table)
    print_drops(FabricCounters({name: read}))


# ---- policy -------------------------------------------------------------------------------------

PolicyFile = Annotated[Path, typer.Argument(help="Policy file.", metavar="FILE")]


@policy.command("check")
def policy_check(
    file: PolicyFile,
    topo: Annotated[
        Path | None,
        typer.Option("--topo", help="Topology file (default: the running fabric's)."),
    ] = None,
    run_dir: RunDirOption = None,
) -> None:
    """Check a policy file against a fabric, without touching a device."""
    session = Session.of(run_dir, topo, file)
    fabric, overlay = session.fabric, session.overlay
    if fabric.p4_device_count > COMPUTED_DEVICES:
        console.print(
            f"{file}: ok; whether its entries fit the tables of {fabric.p4_device_count} devices "
            f"was not computed (only up to {COMPUTED_DEVICES} devices)"
        )
        return
    kinds = (DeviceKind.T0, DeviceKind.T1, DeviceKind.NIC)
    count = sum(
        len(desired_entries(fabric, device.name, overlay)) for device in fabric.devices(*kinds)
    )
    console.print(f"{file}: ok, {count} entries on {fabric.p4_device_count} devices")


@policy.command("apply")
def policy_apply(
    file: PolicyFile, run_dir: RunDirOption = None, timeout: TimeoutOption = 5.0
) -> None:
    """Apply a policy to the running fabric and remember it for later commands."""
    session = Session.of(run_dir, policy=file)
    session.desired()  # a policy that does not fit the fabric fails here, before it is remembered
    write_atomically(session.applied_policy, file.read_text(encoding="utf-8"))
    push_session(session, timeout=timeout)
    console.print(f"policy {file} applied")


@policy.command("show")
def policy_show(run_dir: RunDirOption = None) -> None:
    """Show the policy that was applied last."""
    session = Session.of(run_dir)
    if not session.inventory or not session.applied_policy.exists():
        console.print("no policy was applied: the default one is in force")
        return
    load_policy(session.applied_policy)
    console.print(session.applied_policy.read_text(encoding="utf-8"), markup=False, end="")
