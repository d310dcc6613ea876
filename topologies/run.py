# SPDX-License-Identifier: Apache-2.0
"""From a topology file to a running, programmed, measured fabric: what `make run` starts.

    python -m topologies.run --topo topologies/mini.yaml [--target auto|softswitch|bmv2]

Exit code 0: everything was as it should be; 1: it was not, and the last line says why; 2: wrong
arguments; 128 + n: ended by signal n. Nothing stays behind in any case.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.markup import escape

from controller.cli_common import console
from controller.policy import Policy
from topologies.demo import DemoError, Demonstration
from topologies.emulation import Emulation
from topologies.processes import REPOSITORY
from topologies.programming import program
from topologies.prompt import INTRODUCTION, FabricPrompt
from topologies.session import (
    SESSION_ERRORS,
    TARGETS,
    ending_well,
    fabric_session,
    progress_printer,
)


class RunError(Exception):
    """The fabric came up and is not as it should be."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Bring up, program, demonstrate, prompt, take down. Returns the exit code."""
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    return ending_well("run", lambda: _run(options), (*SESSION_ERRORS, DemoError, RunError))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m topologies.run", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--topo", type=Path, default=REPOSITORY / "topologies" / "mini.yaml", metavar="FILE",
        help="topology (default: topologies/mini.yaml)",
    )  # fmt: skip
    parser.add_argument(
        "--target", choices=TARGETS, default="auto",
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


def _run(options: argparse.Namespace) -> None:
    progress = progress_printer()
    with fabric_session(options.topo, options.target, progress, pcap=options.pcap) as emulation:
        _use(emulation, options, progress)


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


if __name__ == "__main__":
    sys.exit(main())
