# SPDX-License-Identifier: Apache-2.0
"""`python -m topologies.experiment`: every statement holds, and one that does not is said so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.net.running import TARGET
from topologies.processes import REPOSITORY

pytestmark = pytest.mark.net

TIMEOUT_S = 100.0


def experiment(
    name: str, tmp_path: Path, *options: str, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run one to its end; nothing of it must be left."""
    run_dir = tmp_path / "run"
    found = subprocess.run(
        [
            *(sys.executable, "-m", "topologies.experiment", name, "--target", TARGET),
            *("--png", str(tmp_path), *options),
        ],
        cwd=REPOSITORY,
        env={**os.environ, "MRC_RUN_DIR": str(run_dir)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    print(found.stdout, found.stderr)
    assert found.returncode == code
    assert not run_dir.exists()
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    return found


def number(text: str, pattern: str) -> int:
    """The number that a line of the output gives."""
    found = re.search(pattern, text)
    assert found, f"no {pattern!r} in the output"
    return int(found[1])


def test_marks_move_two_flows_apart_and_nothing_is_lost(tmp_path: Path) -> None:
    output = experiment("two-flows", tmp_path).stdout
    assert number(output, r"filled the queue: (\d+) packets marked") > 0
    assert "does not hold" not in output


def test_a_dead_t1_is_left_and_carries_its_share_again_when_it_is_back(tmp_path: Path) -> None:
    output = experiment("t1-kill", tmp_path).stdout
    assert number(output, r"every sender lost packets in it: (\d+) in all") > 0
    assert "after its first loss was known no sender used the path: 0 packets" in output
    assert "does not hold" not in output


def test_a_dead_port_is_left_by_peers_until_it_is_up_again(tmp_path: Path) -> None:
    output = experiment("port-down", tmp_path).stdout
    assert "every sender's NIC took a notice in" in output
    assert "does not hold" not in output


def test_without_congestion_the_experiment_says_that_there_was_none(tmp_path: Path) -> None:
    topology = tmp_path / "fast.yaml"
    shipped = REPOSITORY / "topologies" / "experiments" / "two-flows.yaml"
    topology.write_text(re.sub("link_rates: .*", "", shipped.read_text()))
    found = experiment("two-flows", tmp_path, "--topo", str(topology), code=1)
    assert "does not hold: the two filled the queue: 0 packets marked" in found.stdout
    assert "experiment: two-flows: 2 statements do not hold" in found.stderr
