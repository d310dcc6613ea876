# SPDX-License-Identifier: Apache-2.0
"""scripts/bench_switch.py runs, counts exactly, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (
    *("unshare", "--net", "--", sys.executable, "scripts/bench_switch.py"),
    *("--program", "un", "--rounds", "1", "--seconds", "0.3", "softswitch"),
)


def start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        COMMAND,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def children(session: int) -> set[str]:
    """Commands of bench_io and softswitch processes below a process."""
    listed = subprocess.run(
        ["ps", "-eo", "ppid=,pid=,args="], capture_output=True, text=True, check=True
    ).stdout
    below, found = {session}, set()
    for line in sorted(listed.splitlines(), key=lambda text: int(text.split()[1])):
        parent, pid, command = line.split(maxsplit=2)
        if int(parent) in below:
            below.add(int(pid))
            if "bench_io" in command or "-m softswitch" in command:
                found.add(pid)
    return found


def test_it_measures() -> None:
    process = start()
    output, error = process.communicate(timeout=100)
    assert process.returncode == 0, error
    rows = {line[:34].strip(): line[34:].split() for line in output.splitlines()}
    ring, sendmmsg, switch = (float(n.replace(",", "")) for n in rows["packets/s, median"])
    assert min(ring, sendmmsg, switch) > 1000
    assert "PASS" in output


def test_killed_it_leaves_nothing() -> None:
    for how in (signal.SIGINT, signal.SIGKILL):
        process = start()
        deadline = time.monotonic() + 60
        while not (left := children(process.pid)):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        process.send_signal(how)
        process.communicate(timeout=30)
        deadline = time.monotonic() + 10
        while any(Path(f"/proc/{pid}").exists() for pid in left):
            assert time.monotonic() < deadline, f"left running after {how.name}: {left}"
            time.sleep(0.05)
