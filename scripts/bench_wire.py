# SPDX-License-Identifier: Apache-2.0
"""Wires, load and counting for bench_switch.py: veth pairs, and bench_io.c between their ends.

Loads and ceilings are child processes that the kernel ends with this one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from topologies.processes import die_with_us

SOURCE = Path(__file__).with_name("bench_io.c")
WARM_UP_S = 0.3
SETTLE_S = 0.2


@dataclass(frozen=True)
class Lane:
    """Two veth pairs: from the load to port 1 of a switch, and from port 2 to the sink."""

    name: str

    @property
    def pairs(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """(switch's end, other end) of each."""
        return (self.port_in, self.load), (self.port_out, self.sink)

    @property
    def port_in(self) -> str:
        return f"{self.name}1"

    @property
    def port_out(self) -> str:
        return f"{self.name}2"

    @property
    def load(self) -> str:
        return f"{self.name}1p"

    @property
    def sink(self) -> str:
        return f"{self.name}2p"


@dataclass(frozen=True)
class Passed:
    """What came through while a load ran: packets, seconds, processor seconds of who forwarded."""

    offered: int
    forwarded: int
    seconds: float
    cpu_s: float

    @property
    def rate(self) -> float:
        """Packets per second that left."""
        return self.forwarded / self.seconds

    @property
    def offered_rate(self) -> float:
        """Packets per second that arrived at the switch."""
        return self.offered / self.seconds

    @property
    def lost(self) -> int:
        """Packets that did not leave."""
        return self.offered - self.forwarded

    @property
    def per_cpu_s(self) -> float:
        """Packets forwarded in a second of processor time (of ticks: coarse)."""
        return self.forwarded / self.cpu_s if self.cpu_s else 0.0


@dataclass(frozen=True)
class Latency:
    """Microseconds of round trips: median, 99th percentile; and how many never came back."""

    p50: float
    p99: float
    lost: int


def received(interface: str) -> int:
    """Packets that the kernel has received on an interface of this network namespace."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == interface:
            return int(counts.split()[1])
    raise KeyError(interface)


def cpu_s(pid: int) -> float:
    """Processor time that a process has used, with what the kernel did on its behalf."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Wire:
    """bench_io, compiled into a directory, and a packet for it to send."""

    def __init__(self, directory: Path, packet: bytes) -> None:
        self._program = directory / "bench_io"
        compile_ = ["cc", "-O2", "-Wall", "-Wextra", "-o", str(self._program), str(SOURCE)]
        subprocess.run(compile_, check=True)
        self._packet = directory / "packet"
        self._packet.write_bytes(packet)

    def _start(self, *arguments: object) -> subprocess.Popen[str]:
        command = [str(self._program), *map(str, arguments)]
        return subprocess.Popen(die_with_us(command), stdout=subprocess.PIPE, text=True)

    def _output(self, *arguments: object) -> list[str]:
        with self._start(*arguments) as process:
            output, _ = process.communicate()
        if process.returncode:
            sys.exit(f"bench_io {arguments[0]} failed")
        return output.split()

    def load(self, lane: Lane, pid: int, seconds: float, rate: float = 0) -> Passed:
        """Send for some seconds through process `pid`; `rate` 0: as much as one core can.

        Counts until nothing moves.
        """
        self._output("load", lane.load, self._packet, WARM_UP_S, rate)
        self._settle(lane)
        before, used = (received(lane.port_in), received(lane.sink)), cpu_s(pid)
        _, took = self._output("load", lane.load, self._packet, seconds, rate)
        at_end = received(lane.sink)
        self._settle(lane)
        used = cpu_s(pid) - used
        offered, forwarded = received(lane.port_in) - before[0], received(lane.sink) - before[1]
        # What a queue still held when the load ended was not forwarded in this time.
        late = received(lane.sink) - at_end
        if rate == 0:
            forwarded -= late
        return Passed(offered, forwarded, float(took), used)

    @staticmethod
    def _settle(lane: Lane) -> None:
        count = -1
        while (now := received(lane.sink)) != count:
            count = now
            time.sleep(SETTLE_S)

    def pingpong(self, lane: Lane, count: int) -> Latency:
        """One packet at a time through the switch."""
        p50, p99, lost = self._output("pingpong", lane.load, lane.sink, self._packet, count)
        return Latency(float(p50), float(p99), int(lost))

    @contextmanager
    def ceiling(self, lane: Lane, way: str) -> Iterator[int]:
        """The bare loop in place of a switch: its pid. `way` it sends is "ring" or "sendmmsg"."""
        with self._start("forward", lane.port_in, lane.port_out, way) as process:
            time.sleep(SETTLE_S)
            try:
                yield process.pid
                if process.poll() is not None:
                    sys.exit("bench_io forward ended early")
            finally:
                process.kill()
