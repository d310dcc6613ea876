# SPDX-License-Identifier: Apache-2.0
"""Child processes that end when we do, whatever ends us, and whose last words can be shown."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
STOP_TIMEOUT_S = 5.0
TAIL_LINES = 20

# $0 is the parent that the child must still have: one that died before the kernel was told to take
# the child with it would leave the child behind.
_IF_PARENT_LIVES = 'test "$PPID" = "$0" && exec "$@"'


def die_with_us(command: Sequence[str]) -> list[str]:
    """`command`, to be killed by the kernel when the thread that starts it ends.

    So nothing outlives a runner that is killed with SIGKILL. Start children from the main thread.
    """
    guard = ("setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", _IF_PARENT_LIVES)
    return [*guard, str(os.getpid()), *command]


class ProcessError(Exception):
    """A child could not be started or has ended; the message has the end of its log."""


class Process:
    """One running child: a switch or a host's agent."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, *, namespaces_of: int | None = None
    ) -> None:
        """Start it, in the namespaces of process `namespaces_of` if given, output to `log`.

        It runs in a session of its own, so that Ctrl-C at our terminal does not reach it. Raises
        ProcessError when there is no such program.
        """
        self.name = name
        self.log = log
        enter = [] if namespaces_of is None else ["mnexec", "-a", str(namespaces_of)]
        with log.open("ab") as output:
            try:
                self._child = subprocess.Popen(
                    [*enter, *die_with_us(command)],
                    cwd=REPOSITORY,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise ProcessError(f"{name} cannot be started: {error}") from error

    @property
    def pid(self) -> int:
        """Its process id, also while it is a zombie."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._child.poll() is None

    def check(self) -> None:
        """Raise ProcessError with the end of its log when it has ended."""
        code = self._child.poll()
        if code is not None:
            how = f"with code {code}" if code >= 0 else f"by signal {-code}"
            raise ProcessError(f"{self.name} ended {how}; the end of {self.log}:\n{self.tail()}")

    def tail(self, lines: int = TAIL_LINES) -> str:
        """The last lines of its log, indented."""
        text = self.log.read_text(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in text[-lines:]) or "  (empty)"

    def terminate(self) -> None:
        """Ask it to end."""
        with contextlib.suppress(ProcessLookupError):
            self._child.terminate()

    def kill(self) -> None:
        """End it at once, whatever it is doing; it has ended when this returns."""
        self._child.kill()
        self._child.wait()

    def wait(self, timeout_s: float) -> None:
        """Wait for its end; kill it when the time is over."""
        try:
            self._child.wait(max(timeout_s, 0))
        except subprocess.TimeoutExpired:
            self.kill()


def stop_all(processes: Iterable[Process], timeout_s: float = STOP_TIMEOUT_S) -> None:
    """End all of them at the same time."""
    running = list(processes)
    for process in running:
        process.terminate()
    deadline = time.monotonic() + timeout_s
    for process in running:
        process.wait(deadline - time.monotonic())
