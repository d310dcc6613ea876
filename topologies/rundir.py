# SPDX-License-Identifier: Apache-2.0
"""The run directory: what belongs to one running fabric, and the lock that says that it runs.

    run.lock         locked by the runner as long as it lives; its process id is in it
    children         process ids with start times, one child a line
    inventory.json   what runs where (controller/inventory.py)
    wires            link to the namespace of the wires, as in `nsenter --net=/run/mrc-fabric/wires`
    *.log, *.sock    logs of switches and agents, control sockets of agents

The whole directory goes with the fabric. It is only ever removed when its lock file shows that we
made it, so that MRC_RUN_DIR=/tmp costs nobody their files.

Names of interfaces and TCP ports are fixed, so that a network namespace holds one fabric only. Its
runner holds a socket with a name in that namespace, which the kernel takes back with the process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import struct
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

LOCK = "run.lock"
CHILDREN = "children"
WIRES = "wires"
MAX_PATH_BYTES = 107 - len("/h1023-1023.sock")
NAMESPACE_LOCK = (
    "\0mrc-fabric"  # an abstract address: of the network namespace, not of a file system
)


class RunDirError(Exception):
    """The run directory is in use or not ours; the message says what to do."""


def start_time(pid: int) -> str | None:
    """When a process started, in the kernel's ticks; with the pid it names a process for ever."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[19]  # proc(5): field 22, counted after "pid (name)"


class RunDir:
    """A locked run directory. Use as a context manager; it is gone afterwards."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._locks = ExitStack()

    def __enter__(self) -> RunDir:
        """Make the directory, or take over what a crashed run left. Raises RunDirError."""
        if len(os.fsencode(self.path)) > MAX_PATH_BYTES:
            raise RunDirError(
                f"{self.path} is longer than {MAX_PATH_BYTES} bytes, which leaves no room for the "
                "agents' sockets (Linux: 107 bytes): set MRC_RUN_DIR to a shorter path"
            )
        with ExitStack() as locks:
            _lock_namespace(locks)
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                if any(self.path.iterdir()) and not (self.path / LOCK).is_file():
                    raise RunDirError(
                        f"{self.path} has files that are not a fabric's: set MRC_RUN_DIR to a "
                        "directory of its own (default: /run/mrc-fabric)"
                    )
                _lock_file(self.path / LOCK, locks)
            except OSError as error:
                raise RunDirError(f"run directory {self.path}: {error.strerror}") from error
            self._locks = locks.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the directory, then let go of the lock."""
        shutil.rmtree(self.path)
        self._locks.close()

    def record(self, pid: int) -> None:
        """Note a child, for `topologies.clean` to find should we be killed."""
        with (self.path / CHILDREN).open("a") as file:
            file.write(f"{pid} {start_time(pid)}\n")

    def children(self) -> list[tuple[int, str]]:
        """The noted children, (process id, start time)."""
        try:
            lines = (self.path / CHILDREN).read_text().splitlines()
        except FileNotFoundError:
            return []
        return [(int(pid), started) for pid, _, started in (line.partition(" ") for line in lines)]


def _lock_namespace(locks: ExitStack) -> None:
    claim = locks.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    try:
        claim.bind(NAMESPACE_LOCK)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise _running("in this network namespace", _holder_of_namespace()) from None
    claim.listen()


def _holder_of_namespace() -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as question:
        try:
            question.connect(NAMESPACE_LOCK)
        except ConnectionRefusedError:
            return "one that has just started or is ending"
        credentials = question.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return str(struct.unpack("iII", credentials)[0])


def _lock_file(path: Path, locks: ExitStack) -> None:
    file = locks.enter_context(path.open("a+"))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        raise _running(f"in {path.parent}", file.read().strip()) from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()


def _running(where: str, holder: str) -> RunDirError:
    return RunDirError(
        f"another fabric is running {where} (process {holder}): leave its prompt with `exit` or "
        "kill that process first"
    )
