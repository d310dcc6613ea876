# SPDX-License-Identifier: Apache-2.0
"""What all commands of mrcctl share: options, where things are found, and how errors end."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer
import typer.core
from rich.console import Console
from rich.table import Table

from controller.canonical import DesiredEntry
from controller.entries import desired_entries
from controller.fabric import Fabric, FabricError
from controller.heatmap_figure import HeatMapFigureError
from controller.inventory import Inventory, InventoryError, default_run_dir, running_fabric
from controller.overlay import Overlay, bind
from controller.p4rt import DeviceError
from controller.path_states import PathStateError
from controller.policy import Policy, PolicyError, load_policy
from controller.sampler import RecorderError
from controller.samples import SamplesError
from controller.timeseries_figure import SeriesFigureError
from mrc.agent_client import AgentError
from topologies.schema import TopologyError, load_topology

POLICY_FILE = "policy.yaml"
# Where no terminal says how wide it is (a pipe, a log), tables are not folded at 80 columns.
PIPE_WIDTH = 160

console = Console(
    width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False, soft_wrap=False
)
errors = Console(stderr=True, highlight=False, soft_wrap=True)

TopoOption = Annotated[
    Path | None,
    typer.Option("--topo", help="Topology file (default: the running fabric's).", metavar="FILE"),
]
RunDirOption = Annotated[
    Path | None,
    typer.Option(
        "--run-dir",
        envvar="MRC_RUN_DIR",
        help="Run directory of the fabric (default: /run/mrc-fabric).",
        metavar="DIR",
    ),
]
PolicyOption = Annotated[
    Path | None,
    typer.Option("--policy", help="Policy file (default: the one applied last).", metavar="FILE"),
]


class CommandError(Exception):
    """A command that cannot do what it was asked to; the message says why and what to do."""


KNOWN_ERRORS = (
    AgentError,
    CommandError,
    DeviceError,
    FabricError,
    HeatMapFigureError,
    InventoryError,
    PathStateError,
    PolicyError,
    RecorderError,
    SamplesError,
    SeriesFigureError,
    TopologyError,
)


class ErrorReporting(typer.core.TyperGroup):
    """Turns the errors that have a message for the user into that message and exit code 1."""

    def invoke(self, ctx: Any) -> Any:  # a context of typer's own copy of click
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KNOWN_ERRORS as error:
            fail(str(error))


def fail(message: str) -> NoReturn:
    """Print to standard error and end with exit code 1."""
    errors.print(f"[bold red]mrcctl:[/] {rich_escape(message)}")
    raise typer.Exit(1)


def rich_escape(text: str) -> str:
    """Text with square brackets that rich is to print, not to interpret."""
    return text.replace("[", r"\[")


@dataclass(frozen=True)
class Session:
    """What a command works on; everything is loaded when it is first needed."""

    run_dir: Path
    topology_file: Path | None = None
    policy_file: Path | None = None

    @classmethod
    def of(
        cls, run_dir: Path | None, topology: Path | None = None, policy: Path | None = None
    ) -> Session:
        """From a command's options."""
        return cls(run_dir or default_run_dir(), topology, policy)

    @cached_property
    def inventory(self) -> Inventory:
        """The running fabric; InventoryError when there is none."""
        return running_fabric(self.run_dir)

    @cached_property
    def fabric(self) -> Fabric:
        """The fabric of --topo, else the one that runs."""
        return Fabric.from_topology(load_topology(self._topology_file()))

    def _topology_file(self) -> Path:
        if self.topology_file is not None:
            return self.topology_file
        try:
            return Path(self.inventory.topology)
        except InventoryError as error:
            raise InventoryError(f"{error}; or name a topology file with --topo") from error

    @property
    def applied_policy(self) -> Path:
        """Where the policy that was applied last is kept."""
        return self.run_dir / POLICY_FILE

    @cached_property
    def policy(self) -> Policy:
        """The policy of --policy, else the one applied to the running fabric, else the default."""
        source = self._policy_source
        return Policy() if source is None else load_policy(source)

    @cached_property
    def overlay(self) -> Overlay:
        """The policy bound to the fabric; PolicyError, naming the file, when it does not suit."""
        try:
            return bind(self.policy, self.fabric)
        except PolicyError as error:
            lines = str(error).splitlines()
            raise PolicyError(
                "\n".join(f"{self._policy_source}: {line}" for line in lines)
            ) from error

    @property
    def _policy_source(self) -> Path | None:
        if self.policy_file is not None:
            return self.policy_file
        if self.topology_file is None and self.applied_policy.exists():
            return self.applied_policy
        return None

    def desired(self) -> dict[str, list[DesiredEntry]]:
        """The wanted entries of every running device, by name."""
        return {
            name: desired_entries(self.fabric, name, self.overlay)
            for name in self.inventory.devices
        }


def plain_table(
    *columns: str, right: tuple[str, ...] = (), fold: tuple[str, ...] = (), header: bool = True
) -> Table:
    """A table without frame. Columns in ``right`` are aligned right, those in ``fold`` may take
    several lines where the width does not suffice."""
    table = Table(box=None, pad_edge=False, show_header=header)
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in right else "left"
        table.add_column(name, justify=justify, no_wrap=name not in fold, overflow="fold")
    return table
