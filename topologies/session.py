# SPDX-License-Identifier: Apache-2.0
"""What every program that brings up a fabric does around it: checks, signals, progress, an end.

The first signal ends the program; nothing ends the taking down.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from mininet.log import setLogLevel
from rich.markup import escape

from controller.cli_common import console, errors
from controller.fabric import Fabric
from controller.inventory import default_run_dir
from controller.p4rt import DeviceError
from topologies.checks import CheckError, check_machine, choose_target
from topologies.clean import remove_leftovers
from topologies.emulation import Emulation, EmulationError
from topologies.netns import NetnsError
from topologies.programming import ProgrammingError
from topologies.rundir import RunDir, RunDirError, start_time
from topologies.schema import TopologyError, check_emulable, load_topology
from topologies.wires import WireError

TARGETS = ("auto", "softswitch", "bmv2")
SESSION_ERRORS = (
    CheckError,
    DeviceError,
    EmulationError,
    NetnsError,
    ProgrammingError,
    RunDirError,
    TopologyError,
    WireError,
)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(SystemExit):
    """A signal asked us to end. (asyncio and Mininet's prompt let only this kind through.)"""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


def ending_well(
    program: str, work: Callable[[], None], expected: tuple[type[Exception], ...]
) -> int:
    """Do the work of a whole program. Returns its exit code.

    0: done; 1: one of the `expected` errors, whose message is shown; 128 + n: ended by signal n.
    """
    for number in _ENDING:
        signal.signal(number, _interrupt)
    try:
        work()
    except expected as error:
        errors.print(f"[bold red]{program}:[/] {escape(str(error))}")
        return 1
    except Interrupted as interrupted:
        name = signal.Signals(interrupted.number).name
        errors.print(f"{program}: ended by {name}; all is removed")
        return 128 + interrupted.number
    return 0


def progress_printer() -> Callable[[str], None]:
    """Prints each step with the seconds since this process was started, its imports included."""
    started = time.monotonic() - _process_age_s()

    def progress(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - started:6.2f} s[/] {escape(text)}")

    return progress


@contextmanager
def fabric_session(
    topology_file: Path,
    wanted_target: str,
    progress: Callable[[str], None],
    *,
    pcap: Path | None = None,
) -> Iterator[Emulation]:
    """A fabric of this file, without programs; what earlier runs left is removed first.

    Raises one of SESSION_ERRORS.
    """
    setLogLevel("output")  # what the prompt's commands print, and warnings
    topology = load_topology(topology_file)
    check_emulable(topology)
    target = choose_target(wanted_target)
    check_machine(target)
    if pcap is not None:
        pcap.mkdir(parents=True, exist_ok=True)
    fabric = Fabric.from_topology(topology)
    progress(
        f"{fabric.name}: {fabric.planes} planes x {fabric.groups} T0 x {fabric.uplinks} T1, "
        f"{fabric.host_count} hosts, on {target}"
    )
    with RunDir(default_run_dir()) as run_dir:
        removed = remove_leftovers(run_dir)
        if removed:
            progress(f"removed {removed} of an earlier run")
        with Emulation(
            fabric,
            topology_file,
            target,
            run_dir,
            pcap=None if pcap is None else pcap.absolute(),
            progress=progress,
        ) as emulation:
            try:
                yield emulation
            finally:
                _ignore_signals()
    progress("taken down")


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    _ignore_signals()
    raise Interrupted(number)


def _ignore_signals() -> None:
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


def _process_age_s() -> float:
    ticks = start_time(os.getpid())
    assert ticks is not None  # we run
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK")
