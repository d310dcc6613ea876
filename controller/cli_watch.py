# SPDX-License-Identifier: Apache-2.0
"""``mrcctl watch``: what happens to NICs' paths and ports, as it happens."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated

import typer

from controller.cli_common import RunDirOption, Session, console, errors, plain_table
from controller.cli_ev import agent_client, nic_names
from controller.ev_events import (
    EvCause,
    Event,
    EvEvent,
    EvState,
    LinkEvent,
    PlaneChange,
    path_devices,
)
from controller.fabric import Fabric
from controller.suspects import BadPath, Suspect, rank
from mrc.agent_client import AgentError

RETRY_S = 0.25
SUSPECTS_SHOWN = 8

CAUSES = {
    EvCause.SKIP_ONCE: "a SACK says: marked on its way",
    EvCause.TRIMMED: "a NACK says: trimmed on its way",
    EvCause.ALWAYS_SKIP: "a SACK says: avoid it",
    EvCause.LOSS: "a packet was sent again that no NACK had reported",
    EvCause.PROBE: "probes were answered",
    EvCause.PROBE_MARKED: "probes were answered, marked",
    EvCause.ROTATION: "was passed over once",
    EvCause.CONTROLLER: "by the controller",
    EvCause.ACKED: "a packet arrived",
}
STATES = {
    EvState.GOOD: "good",
    EvState.SKIP: "skip",
    EvState.ASSUMED_BAD: "assumed bad",
    EvState.DENIED: "denied",
}


def watch(
    nic: Annotated[
        list[str] | None,
        typer.Option("--nic", help="Only this NIC or host (repeatable).", metavar="NIC"),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--for", help="Seconds to watch (default: until Ctrl-C).", min=0.1),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--no-skips", help="Leave out what marks do: skip, and good again.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line.")] = False,
    run_dir: RunDirOption = None,
) -> None:
    """Tell what happens to paths and ports; at the end rank what bad paths have in common."""
    session = Session.of(run_dir)
    fabric = session.fabric
    wanted = set(nic_names(session, nic))
    bad: set[BadPath] = set()

    def tell(event: Event) -> None:
        if event.nic not in wanted:
            return
        if isinstance(event, EvEvent):
            if event.after is EvState.ASSUMED_BAD and event.cause is not EvCause.GENERATION:
                bad.add(BadPath(event.nic, event.group, event.plane, event.uplink))
            if quiet and EvState.SKIP in (event.before, event.after):
                return
        if as_json:
            print(json.dumps(event.to_json()), flush=True)
        else:
            clock = datetime.now().strftime("%H:%M:%S.%f")[:-3]
            console.print(f"{clock} {in_words(fabric, event)}", soft_wrap=True, markup=False)

    until = f"for {seconds:g} s" if seconds else "until Ctrl-C"
    asyncio.run(_watch(session, tell, seconds, f"watching {len(wanted)} NICs {until}"))
    if not as_json:
        print_suspects(rank(fabric, bad), len(bad))


async def _watch(
    session: Session, tell: Callable[[Event], None], seconds: float | None, watching: str
) -> None:
    """Until the time is over or a signal comes. AgentError when there is no agent at first."""
    await agent_client(session).status()
    listening = asyncio.create_task(_listen(session, tell, watching))
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, listening.cancel)
    try:
        await asyncio.wait({listening}, timeout=seconds)
        if listening.done() and not listening.cancelled():
            await listening
    finally:
        listening.cancel()
        for number in signals:
            loop.remove_signal_handler(number)


async def _listen(session: Session, tell: Callable[[Event], None], watching: str) -> None:
    """For ever; says so when the agent has gone, and waits for the next one."""
    client = agent_client(session)
    gone = False

    def subscribed() -> None:
        nonlocal gone
        back = "the NIC agent is back; what happened in between was not told"
        errors.print(back if gone else watching)
        gone = False

    while True:
        try:
            async for event in client.events(subscribed):
                if isinstance(event, int):
                    errors.print(f"{event} events were lost: they came faster than they are read")
                else:
                    tell(event)
        except AgentError:
            pass  # none there: said once, below
        if not gone:
            errors.print("the NIC agent has gone; waiting for it")
            gone = True
        await asyncio.sleep(RETRY_S)


def in_words(fabric: Fabric, event: Event) -> str:
    """What happened, with the links' names, in one line."""
    if isinstance(event, LinkEvent):
        nic = fabric.device(event.nic)
        t0 = fabric.device_at(fabric.t0_row(event.plane, nic.group or 0)).name
        carrier = "has carrier again" if event.up else "has no carrier"
        return f"{event.nic}: {event.nic}|{t0} {carrier}: plane {event.plane}"
    if event.cause is EvCause.GENERATION:
        return (
            f"{event.nic}: other paths to T0 group {event.group} (generation {event.generation}): "
            "all are good"
        )
    crossed = path_devices(fabric, fabric.device(event.nic), event.group, event.plane, event.uplink)
    way = " > ".join(device.name for device in crossed)
    qp = f", QP {event.qp}" if event.qp else ""
    change = (
        f"stays {STATES[event.after]}"
        if event.before is event.after
        else f"{STATES[event.before]} -> {STATES[event.after]}"
    )
    text = (
        f"{event.nic}: {way}, to T0 group {event.group}: {change}"
        f" ({CAUSES.get(event.cause, event.cause.name)}{qp})"
    )
    if event.plane_change is PlaneChange.ASSUMED_DOWN:
        text += f"; plane {event.plane} is assumed down for this group"
    elif event.plane_change is PlaneChange.BACK:
        text += f"; plane {event.plane} is back for this group"
    return text


def print_suspects(suspects: Sequence[Suspect], bad: int) -> None:
    """The ranking, as a table."""
    if not bad:
        console.print("no path was assumed to be bad")
        return
    numbers = ("Went bad", "Paths across", "Share")
    table = plain_table("Suspect", "What", *numbers, right=numbers)
    for suspect in suspects[:SUSPECTS_SHOWN]:
        kind = "link" if len(suspect.names) > 1 else "T1"
        share = f"{suspect.share:.0%}"
        table.add_row(str(suspect), kind, str(suspect.bad), str(suspect.paths), share)
    console.print(f"\n{bad} path{'s' * (bad > 1)} went bad; what they have in common:")
    console.print(table)
    if (more := len(suspects) - SUSPECTS_SHOWN) > 0:
        console.print(f"and {more} with a smaller share")
