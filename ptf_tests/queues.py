# SPDX-License-Identifier: Apache-2.0
"""The egress queues of the switch under test, and the registers that say how full they are.

The registers can be written: a test then finds a queue exactly as full as it wants, although
nothing waits there, and what it sends comes out at once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Protocol

from ptf_tests.bench import Bench, Fate
from ptf_tests.switch import SwitchError, SwitchProcess
from softswitch.ctl import Switch
from topologies.processes import die_with_us

DATA, CONTROL = 0, 1
START = 0xFFFFFFF0  # numbers of packets have 32 bits and wrap soon
_PROMPT = b"RuntimeCmd: "


class _Commands(Protocol):
    """Who carries out a command of simple_switch_CLI on the switch."""

    def run(self, line: str) -> str:
        """Its answer."""

    def close(self) -> None:
        """End the connection."""


class _SoftSwitch:
    def __init__(self, socket: Path) -> None:
        self._switch = Switch(socket)

    def run(self, line: str) -> str:
        return str(self._switch.ask(line.split())["text"])

    def close(self) -> None:
        self._switch.close()


class _Bmv2:
    """simple_switch_CLI, kept running: it takes half a second to start."""

    def __init__(self, thrift_port: int) -> None:
        executable = shutil.which("simple_switch_CLI")
        if executable is None:
            raise SwitchError("simple_switch_CLI is not on PATH: use --target softswitch")
        self._tool = subprocess.Popen(
            die_with_us([executable, "--thrift-port", str(thrift_port)]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._until_prompt()

    def run(self, line: str) -> str:
        assert self._tool.stdin is not None
        self._tool.stdin.write(f"{line}\n".encode())
        self._tool.stdin.flush()
        answer = self._until_prompt()
        if "Error" in answer or "Invalid" in answer:
            raise SwitchError(f"simple_switch_CLI: {line}: {answer}")
        return answer

    def _until_prompt(self) -> str:
        assert self._tool.stdout is not None
        answer = b""
        while not answer.endswith(_PROMPT):
            piece = os.read(self._tool.stdout.fileno(), 65536)
            if not piece:
                raise SwitchError(f"simple_switch_CLI ended: {answer.decode()}")
            answer += piece
        return answer.removesuffix(_PROMPT).decode().strip()

    def close(self) -> None:
        self._tool.terminate()
        self._tool.communicate()


class QueueControl:
    """Depths and rates of the queues of a switch that runs fabric.p4."""

    def __init__(self, commands: _Commands) -> None:
        self._commands = commands

    def close(self) -> None:
        """End the connection to the switch."""
        self._commands.close()

    def reset(self) -> None:
        """No packet was ever sent."""
        for name in ("enqueued", "dequeued"):
            self._commands.run(f"register_reset {name}")

    def depth(self, port: int, queue: int = DATA) -> int:
        """Packets admitted that have not left."""
        enqueued, dequeued = (
            int(self._commands.run(f"register_read {name} {port << 1 | queue}").split()[-1])
            for name in ("enqueued", "dequeued")
        )
        return enqueued - dequeued & 0xFFFFFFFF

    def set_depth(self, port: int, depth: int, queue: int = DATA) -> None:
        """Let fabric.p4 believe that this many packets wait."""
        for name, value in (("dequeued", START), ("enqueued", START + depth & 0xFFFFFFFF)):
            self._commands.run(f"register_write {name} {port << 1 | queue} {value}")

    def set_rate(self, port: int, packets_per_s: int, queue: int = DATA) -> None:
        """Limit a queue; a rate as high as this never makes a packet of a test wait: 1,000,000."""
        self._commands.run(f"set_queue_rate {packets_per_s} {port} {queue}")


def queue_control(target: str, process: SwitchProcess) -> QueueControl:
    """For a running switch, which must have been given a control socket."""
    if target == "bmv2":
        return QueueControl(_Bmv2(process.thrift_port))
    assert process.control is not None
    return QueueControl(_SoftSwitch(process.control))


class Queued:
    """A switch under test whose queues are as full as a test says."""

    def __init__(self, bench: Bench, control: QueueControl) -> None:
        self.bench = bench
        self.control = control

    def check(self, port: int, depth: int, fate: Fate, *, control_depth: int = 0) -> None:
        """A packet for ``port`` finds these depths, and meets its fate."""
        self.control.set_depth(port, depth)
        self.control.set_depth(port, control_depth, CONTROL)
        assert self.control.depth(port) == depth
        assert self.control.depth(port, CONTROL) == control_depth
        self.bench.check(fate)
