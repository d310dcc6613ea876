# SPDX-License-Identifier: Apache-2.0
"""A short run of scripts/race_switch.py: no data race while a switch forwards and is written to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ("match", "selector", "meters")


def test_no_data_races() -> None:
    done = subprocess.run(
        [
            *("unshare", "--net", "--", sys.executable, "scripts/race_switch.py"),
            *("--seconds", "2", *SCENARIOS),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    for name in SCENARIOS:
        assert f"{name}: " in done.stdout and f"{name}: 0 packets" not in done.stdout
