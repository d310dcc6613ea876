# SPDX-License-Identifier: Apache-2.0
"""``mrcctl ev``: the states of NICs' paths, and paths that are not to be used for now."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from controller.addressing import DeviceKind
from controller.cli_common import CommandError, RunDirOption, Session, console, plain_table
from controller.ev_events import EvState
from controller.fabric import Fabric
from controller.nic_agent.client import SOCKET, NicAgentClient
from controller.path_states import (
    Change,
    NicStates,
    Targets,
    apply,
    plan_allowance,
    plan_denial,
    read_states,
)

ev = typer.Typer(
    no_args_is_help=True,
    help="Show the states of NICs' paths; deny paths and allow them again.",
)

LETTERS = {EvState.GOOD: "G", EvState.SKIP: "s", EvState.ASSUMED_BAD: "B", EvState.DENIED: "D"}
NOT_USED = "-"
LEGEND = (
    "G good, s passed over once, B assumed bad, D denied, - not used by the policy; "
    "a letter per uplink: the first is uplink 0, by T1 0 of the plane"
)
BLOCK = 8
"""Letters stand in blocks of so many."""

NicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--nic", help="Only this NIC, as in n0-0, or its host (repeatable).", metavar="NIC"
    ),
]
ToOption = Annotated[
    str | None,
    typer.Option("--to", help="Only paths to this T0 group, or to that of this host."),
]
TargetArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="p0t1-1 (paths across a switch), p0t0-0,p0t1-1 (a link) or 0/1 (plane 0, uplink 1).",
        metavar="[TARGET]...",
        show_default=False,
    ),
]


@ev.command("show")
def show(
    nic: Annotated[
        list[str] | None,
        typer.Argument(help="NICs or hosts, shown wholly.", metavar="[NIC]...", show_default=False),
    ] = None,
    to: ToOption = None,
    every: Annotated[
        bool, typer.Option("--all", help="All NICs, not only where a path is not good.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    run_dir: RunDirOption = None,
) -> None:
    """Show how many paths are in which state, and which: plane by uplink."""
    session = Session.of(run_dir)
    states = _read(session, nic, to)
    if as_json:
        console.print_json(json.dumps([_json(each) for each in states]))
        return
    _print_summary(states)
    for each in states:
        if nic or every or not each.all_good:
            _print_nic(session.fabric, each, session.overlay.policy.spray.ev_min_active)
    console.print(LEGEND, style="dim")


@ev.command("deny")
def deny(
    target: TargetArgument = None,
    nic: NicOption = None,
    to: ToOption = None,
    run_dir: RunDirOption = None,
) -> None:
    """Use these paths no more, until they are allowed or the NIC gets other paths or a program."""
    session = Session.of(run_dir)
    if not target:
        raise CommandError("name what to deny: a switch, a link or a path (mrcctl ev deny --help)")
    targets = Targets.parse(session.fabric, target)
    states = _read(session, nic, to)
    least = session.overlay.policy.spray.ev_min_active
    changes = plan_denial(session.fabric, states, targets, least)
    if not changes and not any(
        targets.mean(session.fabric, each.nic, path) for each in states for path in each.paths
    ):
        raise CommandError(f"none of the NICs' paths crosses {', '.join(target)}")
    _apply(session, changes, "denied")


@ev.command("allow")
def allow(
    target: TargetArgument = None,
    every: Annotated[bool, typer.Option("--all", help="All that are denied.")] = False,
    nic: NicOption = None,
    to: ToOption = None,
    run_dir: RunDirOption = None,
) -> None:
    """Use denied paths again."""
    session = Session.of(run_dir)
    if bool(target) == every:
        raise CommandError("name what to allow, or --all")
    targets = Targets.parse(session.fabric, target) if target else None
    _apply(session, plan_allowance(session.fabric, _read(session, nic, to), targets), "allowed")


def agent_client(session: Session) -> NicAgentClient:
    """The NIC agent of the running fabric."""
    return NicAgentClient(session.run_dir / SOCKET)


def nic_names(session: Session, names: Sequence[str] | None) -> list[str]:
    """Running NICs, by their own names or their hosts'; without names: all of them."""
    running = [
        name for name, device in session.inventory.devices.items() if device.program == "nic"
    ]
    if not names:
        return running
    found = []
    for name in names:
        device = session.fabric.device(name)
        if device.kind is DeviceKind.HOST:
            assert device.group is not None and device.downlink is not None
            row = session.fabric.nic_row(device.group, device.downlink)
            device = session.fabric.device_at(row)
        if device.kind is not DeviceKind.NIC:
            raise CommandError(f"{name} is a {device.kind.name}; allowed: NICs and hosts")
        if device.name not in running:
            raise CommandError(f"{device.name} is not in the running fabric")
        found.append(device.name)
    return list(dict.fromkeys(found))


# ---- reading and writing ------------------------------------------------------------------------


def _read(session: Session, nics: Sequence[str] | None, to: str | None) -> list[NicStates]:
    if session.overlay.policy.spray.mode == "ecmp":
        raise CommandError(
            "the policy hashes flows (spray mode ecmp): NICs choose no paths and keep no states"
        )
    group = None if to is None else _group(session.fabric, to)
    names = nic_names(session, nics)
    client = agent_client(session)
    states = asyncio.run(read_states(client, session.fabric, session.overlay, names))
    return states if group is None else [each.only(group) for each in states]


def _group(fabric: Fabric, text: str) -> int:
    if text.isdecimal():
        if int(text) >= fabric.groups:
            raise CommandError(f"--to {text}: T0 groups are 0 to {fabric.groups - 1}")
        return int(text)
    group = fabric.device(text).group
    if group is None:
        raise CommandError(f"--to {text}: allowed are T0 groups' numbers, hosts, NICs and T0s")
    return group


def _apply(session: Session, changes: Sequence[Change], what: str) -> None:
    asyncio.run(apply(agent_client(session), session.fabric, changes))
    by_nic = Counter(change.nic for change in changes)
    if not changes:
        console.print(f"nothing to do: no path had to be {what}")
        return
    paths = sum(by_nic.values())
    console.print(
        f"{what} {paths} path{'s' * (paths > 1)}: "
        + ", ".join(f"{count} of {name}" for name, count in by_nic.items())
    )


# ---- showing ------------------------------------------------------------------------------------


def letters(uplinks: dict[int, EvState], count: int) -> str:
    """States of a plane's uplinks in blocks of eight."""
    text = "".join(
        LETTERS[uplinks[uplink]] if uplink in uplinks else NOT_USED for uplink in range(count)
    )
    return " ".join(text[at : at + BLOCK] for at in range(0, count, BLOCK))


def _mask(mask: int) -> list[int]:
    return [plane for plane in range(8) if mask >> plane & 1]


def _print_summary(states: Sequence[NicStates]) -> None:
    columns = ("Paths", "Good", "Skip", "Assumed bad", "Denied")
    table = plain_table("NIC", *columns, "Planes without carrier", right=columns)
    for each in states:
        count = Counter(known.state for known in each.paths.values())
        numbers = (len(each.paths), *(count[state] for state in EvState))
        down = ", ".join(map(str, _mask(each.down))) or "none"
        table.add_row(each.nic.name, *map(str, numbers), down)
    console.print(table)


def _print_nic(fabric: Fabric, states: NicStates, least: int) -> None:
    table = plain_table("To group", "Plane", "By uplink", "Active", "At least", "Plane's state")
    last = None
    for (group, plane), uplinks in states.planes().items():
        active = sum(state in (EvState.GOOD, EvState.SKIP) for state in uplinks.values())
        if group == states.nic.group:
            # One path, whatever its uplink is.
            shown, name = LETTERS[next(iter(uplinks.values()))], f"{group} (its own)"
        else:
            shown, name = letters(uplinks, fabric.uplinks), str(group)
        table.add_row(
            name if group != last else "",
            str(plane),
            shown,
            f"{active} of {len(uplinks)}",
            str(min(least, len(uplinks))),
            _plane_state(states, group, plane),
        )
        last = group
    console.print(f"\n[bold]{states.nic.name}[/]")
    console.print(table)
    for host, mask in states.peers_down.items():
        if mask:
            planes = ", ".join(map(str, _mask(mask)))
            console.print(f"{host} cannot be reached on plane {planes}, as its NIC says")


def _plane_state(states: NicStates, group: int, plane: int) -> str:
    if states.down >> plane & 1:
        return "down: no carrier"
    return "assumed down" if states.assumed_down.get(group, 0) >> plane & 1 else "up"


def _json(states: NicStates) -> dict[str, Any]:
    def paths() -> Iterator[dict[str, Any]]:
        for path, known in sorted(states.paths.items()):
            yield {**path._asdict(), "state": known.state.name, "generation": known.generation}

    return {
        "nic": states.nic.name,
        "down_planes": _mask(states.down),
        "assumed_down": {group: _mask(mask) for group, mask in states.assumed_down.items()},
        "peers_down": {host: _mask(mask) for host, mask in states.peers_down.items() if mask},
        "paths": list(paths()),
    }
