# SPDX-License-Identifier: Apache-2.0
"""A short run of `sanitized`; run that by itself for longer ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCENARIOS = ("parser", "clone", "loops", "nic")


def test_mangled_packets_with_sanitizers() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.softswitch.sanitized", "300", "4", *SCENARIOS],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.splitlines()) == len(SCENARIOS)
