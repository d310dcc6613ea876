# SPDX-License-Identifier: Apache-2.0
"""Network namespaces as objects: make one without a name, enter one that exists, run tools in it.

A namespace made here has no name in /run/netns and no process in it: it lives as long as this
process holds its descriptor. So the kernel removes it, and every interface in it together with the
interface's peer elsewhere, even when this process is killed with SIGKILL.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

CLONE_NEWNET = 0x40000000  # <sched.h>
SIOCGIFFLAGS = 0x8913  # <linux/sockios.h>
IFF_RUNNING = 0x40  # <linux/if.h>: up, and the kernel has seen the carrier

T = TypeVar("T")
_libc = ctypes.CDLL(None, use_errno=True)


class NetnsError(Exception):
    """A namespace could not be made or entered, or a tool failed in it; the message says which."""


class Namespace:
    """One network namespace. Close it when done; the last holder's close removes it."""

    def __init__(self, descriptor: int) -> None:
        """Take over a descriptor of a namespace file."""
        self._descriptor = descriptor
        self._asker = self.open_socket(socket.AF_INET, socket.SOCK_DGRAM)

    @classmethod
    def new(cls) -> Namespace:
        """A new, empty namespace. Raises NetnsError (without root, for example)."""

        def unshare() -> int:
            _check(_libc.unshare(CLONE_NEWNET), "cannot make a network namespace")
            return _open("/proc/thread-self/ns/net")

        return cls(_in_thread(unshare))

    @classmethod
    def current(cls) -> Namespace:
        """The namespace of the calling thread."""
        return cls(_open("/proc/thread-self/ns/net"))

    @classmethod
    def of_process(cls, pid: int) -> Namespace:
        """The namespace of a process. Raises NetnsError when there is no such process."""
        return cls(_open(f"/proc/{pid}/ns/net"))

    @property
    def path(self) -> str:
        """A file that names this namespace to children that inherit the descriptor."""
        return f"/proc/self/fd/{self._descriptor}"

    @property
    def outside_path(self) -> Path:
        """A file that names this namespace to other processes, as in `nsenter --net=FILE`."""
        return Path(f"/proc/{os.getpid()}/fd/{self._descriptor}")

    def run(self, command: Sequence[str], text: str = "", others: Sequence[Namespace] = ()) -> str:
        """Run a tool to its end in this namespace, `text` on its standard input; its output.

        The command may name this namespace and `others` by their `path`. Raises NetnsError with
        the tool's message when it fails.
        """
        result = subprocess.run(
            ["nsenter", f"--net={self.path}", "--", *command],
            input=text,
            text=True,
            capture_output=True,
            pass_fds=[self._descriptor, *(other._descriptor for other in others)],
            check=False,
        )
        if result.returncode != 0:
            reason = result.stderr.strip() or result.stdout.strip() or f"code {result.returncode}"
            raise NetnsError(f"`{' '.join(command)}` failed: {reason}")
        return result.stdout

    def ip(self, lines: Sequence[str], others: Sequence[Namespace] = ()) -> None:
        """Run commands of ip(8) in one batch. Raises NetnsError that quotes the one that failed."""
        if not lines:
            return
        try:
            self.run(["ip", "-batch", "-"], "\n".join(lines) + "\n", others)
        except NetnsError as error:
            _, found, number = str(error).rpartition("Command failed -:")
            if found and number.strip().isdigit():
                raise NetnsError(f"{error}\n  ip {lines[int(number) - 1]}") from None
            raise

    def open_socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        """A socket in this namespace: it stays there, whoever uses it. Raises OSError."""

        def make() -> socket.socket:
            _check(_libc.setns(self._descriptor, CLONE_NEWNET), "cannot enter a network namespace")
            return socket.socket(family, kind, protocol)

        return _in_thread(make)

    def is_running(self, interface: str) -> bool:
        """Whether an interface is up and has carrier. Raises NetnsError when there is none."""
        request = struct.pack("16sH14x", interface.encode(), 0)
        try:
            answer = fcntl.ioctl(self._asker, SIOCGIFFLAGS, request)
        except OSError as error:
            raise NetnsError(f"interface {interface}: {error.strerror}") from error
        flags: int = struct.unpack("16xH14x", answer)[0]
        return bool(flags & IFF_RUNNING)

    def close(self) -> None:
        """Let go of the namespace."""
        self._asker.close()
        os.close(self._descriptor)


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise NetnsError(f"cannot open {path}: {error.strerror}") from error


def _check(result: int, what: str) -> None:
    if result != 0:
        raise NetnsError(f"{what}: {os.strerror(ctypes.get_errno())}")


def _in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread of its own: it may change namespace without moving the caller."""
    results: list[T] = []
    failures: list[Exception] = []

    def body() -> None:
        try:
            results.append(work())
        except (OSError, NetnsError) as error:
            failures.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]
