# SPDX-License-Identifier: Apache-2.0
"""``mrcctl plot``: packets per plane or T1 over time, while the fabric works."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Group
from rich.live import Live

from controller.cli_common import (
    CommandError,
    RunDirOption,
    Session,
    console,
    errors,
    rich_escape,
)
from controller.sampler import Recorder
from controller.timeseries import Line, plane_lines, t1_lines
from controller.timeseries_figure import SUFFIXES, save_series
from controller.timeseries_terminal import plot_lines, print_series

REDRAWS_PER_S = 4


def plot(
    by: Annotated[
        Literal["plane", "t1"], typer.Option("--by", help="What makes a line.")
    ] = "plane",
    nic: Annotated[
        list[str] | None,
        typer.Option("--nic", help="By plane: only this NIC, as in n0-0 (repeatable)."),
    ] = None,
    direction: Annotated[
        Literal["sent", "received"],
        typer.Option("--direction", help="By plane: what NICs sent, or what they received."),
    ] = "sent",
    seconds: Annotated[
        float, typer.Option("--for", help="Seconds to watch.", min=0.1, max=3600)
    ] = 10.0,
    every_ms: Annotated[
        int, typer.Option("--every", help="Milliseconds between readings.", min=10, max=60_000)
    ] = 200,
    png: Annotated[
        Path | None, typer.Option("--png", help="Draw into this file (.png or .svg) as well.")
    ] = None,
    run_dir: RunDirOption = None,
) -> None:
    """Plot packets per second by plane or by T1: live on a terminal, and once more at the end."""
    session = Session.of(run_dir)
    fabric = session.fabric
    if png is not None and png.suffix not in SUFFIXES:
        raise CommandError(f"{png}: a picture ends in {' or '.join(SUFFIXES)}")
    if by == "t1" and (nic or direction == "received"):
        raise CommandError("--nic and --direction are of lines by plane; --by t1 has neither")
    if by == "t1":
        lines, title = t1_lines(fabric), f"{fabric.name}: sent by T0s to each T1"
    else:
        whose = ", ".join(nic) if nic else "all NICs"
        lines = plane_lines(fabric, nic or (), direction)
        title = f"{fabric.name}: {direction} by {whose} on each plane"
    recorder = asyncio.run(_watch(session, lines, title, seconds, every_ms / 1000))
    series = recorder.series(title)
    print_series(series, console)
    if png is not None:
        save_series(series, png)
        console.print(f"drawn into {png}")
    for name, message in recorder.unread.items():
        errors.print(f"[bold red]{name}[/] was not read all the time: {rich_escape(message)}")


async def _watch(
    session: Session, lines: tuple[Line, ...], title: str, seconds: float, every_s: float
) -> Recorder:
    recorder = Recorder(session.inventory, lines)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        drawn_s = 0.0

        def draw() -> None:
            nonlocal drawn_s
            if console.is_terminal and recorder.now_s - drawn_s >= 1 / REDRAWS_PER_S:
                drawn_s = recorder.now_s
                live.update(Group(*plot_lines(recorder.series(title), console.width)), refresh=True)

        async with recorder.recording(every_s, on_reading=draw):
            await asyncio.sleep(seconds)
    return recorder
