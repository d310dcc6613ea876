# SPDX-License-Identifier: Apache-2.0
"""Remove what a crashed run left: `python -m topologies.clean`, or `make clean-net`.

The kernel does most of it by itself. Children of a runner that dies are killed, and the wires'
namespace goes with its descriptor, taking bridges, nftables rules and both ends of every wire.
What is left is the run directory; processes and interfaces are looked for all the same. Nothing is
removed that is not known to be ours: a process by its id and start time or by arguments in our run
directory, an interface by kind, name and MAC address.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from controller.inventory import default_run_dir
from topologies.rundir import RunDir, RunDirError, start_time

_OUR_PROGRAMS = ("softswitch", "simple_switch_grpc", "mrc.agent")
_OUR_INTERFACE = re.compile(r"(p\d+t[01]-\d+|n\d+-\d+|h\d+-\d+)-eth\d+")
_OUR_MAC = re.compile(r"02:[0-3][0-9a-f](:[0-9a-f]{2}){4}")  # 0x02, then kind 1..4 and plane
_KILL_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Removed:
    """What was found and removed."""

    processes: tuple[int, ...]
    interfaces: tuple[str, ...]

    def __bool__(self) -> bool:
        """Whether there was anything."""
        return bool(self.processes or self.interfaces)

    def __str__(self) -> str:
        parts = [
            f"{len(found)} {what}"
            for found, what in ((self.processes, "processes"), (self.interfaces, "interfaces"))
            if found
        ]
        return " and ".join(parts) or "nothing"


def remove_leftovers(run_dir: RunDir) -> Removed:
    """Remove what earlier runs left; `run_dir` is locked by the caller, so that none is running."""
    processes = _kill_processes(run_dir)
    interfaces = _delete_interfaces()
    for path in run_dir.path.iterdir():
        if path.name != "run.lock":
            path.unlink()
    return Removed(processes, interfaces)


def _kill_processes(run_dir: RunDir) -> tuple[int, ...]:
    ours = {
        pid
        for pid, started in run_dir.children()
        if start_time(pid) == started and _is_running(pid)
    }
    inside = f"{run_dir.path}/"
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_text(errors="replace").split("\0")
        except OSError:
            continue  # it has just ended
        program = any(Path(word).name in _OUR_PROGRAMS for word in words[:3])
        if program and any(inside in word for word in words):
            ours.add(int(entry.name))
    for pid in ours:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    while any(_is_running(pid) for pid in ours) and time.monotonic() < deadline:
        time.sleep(0.01)
    return tuple(sorted(ours))


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _delete_interfaces() -> tuple[str, ...]:
    shown = subprocess.run(
        ["ip", "-json", "link", "show", "type", "veth"], check=True, capture_output=True
    ).stdout
    ours = [
        link["ifname"]
        for link in json.loads(shown or b"[]")
        if link and _OUR_INTERFACE.fullmatch(link["ifname"]) and _OUR_MAC.fullmatch(link["address"])
    ]
    for name in ours:
        # No check: the kernel may have come first, as it deletes both ends of a pair.
        subprocess.run(["ip", "link", "delete", "dev", name], check=False, capture_output=True)
    return tuple(ours)


def main() -> int:
    """Clean up and say what was removed; 1 when a fabric is running."""
    if os.geteuid() != 0:
        print("clean: needs root: sudo make clean-net", file=sys.stderr)
        return 1
    try:
        with RunDir(default_run_dir()) as run_dir:
            print(f"clean: removed {remove_leftovers(run_dir)} of earlier runs")
    except RunDirError as error:
        print(f"clean: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
