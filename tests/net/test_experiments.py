# SPDX-License-Identifier: Apache-2.0
"""The experiments of topologies/experiment.py: every statement of theirs holds."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from rich.console import Console

from controller.policy import Policy, load_policy
from tests.net.running import running
from topologies.experiment import EXPERIMENTS
from topologies.experiments.report import Report
from topologies.programming import program

pytestmark = pytest.mark.net


def held(name: str, tmp_path: Path) -> Report:
    """The experiment on its own fabric, with its pictures."""
    experiment = EXPERIMENTS[name]
    policy = Policy() if experiment.policy is None else load_policy(experiment.policy)
    report = Report(Console(file=sys.stdout, width=120), print, tmp_path)
    with running(experiment.topology, tmp_path / "run") as emulation:

        async def run() -> None:
            await program(emulation, policy)
            await experiment.run(emulation, report)

        asyncio.run(run())
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    return report


def test_marks_move_two_flows_apart_and_nothing_is_lost(tmp_path: Path) -> None:
    assert held("two-flows", tmp_path).failed == []
