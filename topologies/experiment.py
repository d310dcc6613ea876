# SPDX-License-Identifier: Apache-2.0
"""Experiments that bring up a fabric, hurt it, and say whether MRC held: docs/experiments.md.

    python -m topologies.experiment t1-kill [--topo FILE] [--target bmv2] [--png DIR]

Exit code 0: every statement holds; 1: one does not, or the fabric did not come up; 2: wrong
arguments; 128 + n: ended by signal n. Nothing stays behind in any case.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from controller.cli_common import console
from controller.policy import Policy, PolicyError, load_policy
from controller.sampler import RecorderError
from mrc.agent_client import AgentError
from topologies.emulation import Emulation
from topologies.experiments.capture import CaptureError
from topologies.experiments.incast import incast
from topologies.experiments.port_down import port_down
from topologies.experiments.report import Report
from topologies.experiments.t1_kill import t1_kill
from topologies.experiments.two_flows import two_flows
from topologies.processes import REPOSITORY
from topologies.programming import program
from topologies.session import (
    SESSION_ERRORS,
    TARGETS,
    ending_well,
    fabric_session,
    progress_printer,
)

HERE = REPOSITORY / "topologies"
_ERRORS = (*SESSION_ERRORS, AgentError, CaptureError, PolicyError, RecorderError)


class ExperimentError(Exception):
    """A statement of the experiment does not hold."""


@dataclass(frozen=True)
class Experiment:
    """What to run, on which fabric and with which policy where no other is named."""

    run: Callable[[Emulation, Report], Awaitable[object]]
    topology: Path
    policy: Path | None
    summary: str


EXPERIMENTS = {
    "t1-kill": Experiment(
        t1_kill, HERE / "mini.yaml", None, "a T1 dies under load, and comes back"
    ),
    "two-flows": Experiment(
        two_flows,
        HERE / "experiments" / "two-flows.yaml",
        HERE / "experiments" / "two-flows-policy.yaml",
        "two flows on one path: ECN marks move them apart",
    ),
    "incast": Experiment(
        incast,
        HERE / "experiments" / "incast.yaml",
        None,
        "seven to one, trimmed and NACKed, and a victim that does not notice",
    ),
    "port-down": Experiment(
        port_down,
        HERE / "experiments" / "port-down.yaml",
        HERE / "experiments" / "port-down-policy.yaml",
        "a port of a NIC goes down: its peers leave the plane out, until it is back",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Bring up, run, print, take down. Returns the exit code."""
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    return ending_well("experiment", lambda: _run(options), (*_ERRORS, ExperimentError))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    listed = "\n".join(f"  {name:<10} {item.summary}" for name, item in EXPERIMENTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m topologies.experiment",
        description=f"{__doc__}\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=EXPERIMENTS, help="which one")
    parser.add_argument(
        "--topo", type=Path, metavar="FILE", help="topology (default: the experiment's own)"
    )
    parser.add_argument(
        "--target", choices=TARGETS, default="auto",
        help="switches; auto takes BMv2 where it is installed (default: auto)",
    )  # fmt: skip
    parser.add_argument("--png", type=Path, metavar="DIR", help="plots as pictures, into DIR")
    return parser.parse_args(arguments)


def _run(options: argparse.Namespace) -> None:
    experiment = EXPERIMENTS[options.name]
    progress = progress_printer()
    policy = Policy() if experiment.policy is None else load_policy(experiment.policy)
    if options.png is not None:
        options.png.mkdir(parents=True, exist_ok=True)
    report = Report(console, progress, options.png)
    topology = options.topo or experiment.topology
    with fabric_session(topology, options.target, progress) as emulation:
        asyncio.run(_experiment(experiment, emulation, policy, report))
    if report.failed:
        raise ExperimentError(f"{options.name}: {len(report.failed)} statements do not hold")
    progress(f"{options.name}: all statements hold")


async def _experiment(
    experiment: Experiment, emulation: Emulation, policy: Policy, report: Report
) -> None:
    written = await program(emulation, policy)
    report.progress(f"programmed: {written.written} entries on {len(written.devices)} devices")
    await experiment.run(emulation, report)


if __name__ == "__main__":
    sys.exit(main())
