# SPDX-License-Identifier: Apache-2.0
"""A short run of `fuzz_p4runtime`; run that by itself for longer ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_changed_requests_with_sanitizers() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.softswitch.fuzz_p4runtime", "--seconds", "6", "keys-any"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "keys-any: " in done.stdout
