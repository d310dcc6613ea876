# SPDX-License-Identifier: Apache-2.0
"""From a topology file to a running, programmed, measured fabric: what `make run` starts.

    python -m topologies.run --topo topologies/mini.yaml [--target auto|softswitch|bmv2]

Exit code 0: everything was as it should be; 1: it was not, and the last line says why; 2: wrong
arguments; 128 + n: ended by signal n. Nothing stays behind in any case.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from mininet.log import setLogLevel
from rich.markup import escape

from controller.cli_common import console, errors
from controller.fabric import Fabric
from controller.inventory import default_run_dir
from controller.p4rt import DeviceError
from controller.policy import Policy
from topologies.checks import CheckError, check_machine, choose_target
from topologies.clean import remove_leftovers
from topologies.demo import DemoError, Demonstration
from topologies.emulation import Emulation, EmulationError
from topologies.netns import NetnsError
from topologies.processes import REPOSITORY
from topologies.programming import ProgrammingError, program
from topologies.prompt import INTRODUCTION, FabricPrompt
from topologies.rundir import RunDir, RunDirError, start_time
from topologies.schema import TopologyError, check_emulable, load_topology
from topologies.wires import WireError

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ERRORS = (
    CheckError,
    DemoError,
    DeviceError,
    EmulationError,
    NetnsError,
    ProgrammingError,
    RunDirError,
    TopologyError,
    WireError,
)


class RunError(Exception):
    """The fabric came up and is not as it should be."""


class Interrupted(SystemExit):
    """A signal asked us to end. (asyncio and Mininet's prompt let only this kind through.)"""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


def main(arguments: Sequence[str] | None = None) -> int:
    """Bring up, program, demonstrate, prompt, take down. Returns the exit code."""
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    for number in _ENDING:
        signal.signal(number, _interrupt)
    try:
        _run(options)
    except (*_ERRORS, RunError) as error:
        errors.print(f"[bold red]run:[/] {escape(str(error))}")
        return 1
    except Interrupted as interrupted:
        errors.print(f"run: ended by {signal.Signals(interrupted.number).name}; all is removed")
        return 128 + interrupted.number
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m topologies.run", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--topo", type=Path, default=REPOSITORY / "topologies" / "mini.yaml", metavar="FILE",
        help="topology (default: topologies/mini.yaml)",
    )  # fmt: skip
    parser.add_argument(
        "--target", choices=("auto", "softswitch", "bmv2"), default="auto",
        help="switches; auto takes BMv2 where it is installed (default: auto)",
    )  # fmt: skip
    parser.add_argument(
        "--pcap", type=Path, metavar="DIR", help="capture every switch port into this directory"
    )
    parser.add_argument("--no-demo", action="store_true", help="only bring up and program")
    parser.add_argument(
        "--stay", action="store_true", help="run until a signal, also without a terminal"
    )
    return parser.parse_args(arguments)


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    # The first signal ends the run; nothing is to end the taking down.
    _ignore_signals()
    raise Interrupted(number)


def _ignore_signals() -> None:
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


def _run(options: argparse.Namespace) -> None:
    started = time.monotonic() - _process_age_s()

    def progress(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - started:6.2f} s[/] {escape(text)}")

    setLogLevel("output")  # what the prompt's commands print, and warnings
    topology = load_topology(options.topo)
    check_emulable(topology)
    target = choose_target(options.target)
    check_machine(target)
    if options.pcap is not None:
        options.pcap.mkdir(parents=True, exist_ok=True)
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
            options.topo,
            target,
            run_dir,
            pcap=None if options.pcap is None else options.pcap.absolute(),
            progress=progress,
        ) as emulation:
            try:
                _use(emulation, options, progress)
            finally:
                _ignore_signals()
    progress("taken down")


def _use(
    emulation: Emulation,
    options: argparse.Namespace,
    progress: Callable[[str], None],
) -> None:
    report = asyncio.run(program(emulation, Policy()))
    progress(f"programmed: {report.written} entries on {len(report.devices)} devices")
    faults: list[str] = []
    if not options.no_demo:
        faults = Demonstration(emulation, progress).run()
    for fault in faults:
        console.print(f"[bold red]fault:[/] {escape(fault)}")
    if sys.stdin.isatty():
        print(INTRODUCTION)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # the prompt's own Ctrl-C
        FabricPrompt(emulation)
    elif options.stay:
        signal.pause()
    if faults:
        raise RunError(f"{len(faults)} of the demonstration's checks failed: {'; '.join(faults)}")


def _process_age_s() -> float:
    """Seconds since this process was started, its imports included."""
    ticks = start_time(os.getpid())
    assert ticks is not None  # we run
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
