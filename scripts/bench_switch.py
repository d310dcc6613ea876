#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare softswitch with BMv2 and with the ceiling of packet sockets, in one run on one machine.

    unshare --net -- .venv/bin/python scripts/bench_switch.py [--rounds N] [--check] [TARGET...]

Three programs, un.p4 (a minimal uN), fabric.p4 as a T0 and nic.p4 as the NIC of a host that sends
WRITEs over 32 paths of a plane in turn, with 254-byte packets over veth. The ceiling is a
bare C loop (bench_io.c) that changes one byte between mapped rings. Everything is measured in turn,
round after round, and the medians are compared, for load, switch and sink share the machine.
--check exits with 1 when a goal of softswitch is missed.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from bench_programs import BLOCK, FRAME_BYTES, PROGRAMS, packet, routes
from bench_wire import Lane, Latency, Passed, Wire, cpu_s
from finsy.proto import p4r, p4r_grpc

from ptf_tests.namespace import NamespaceError, VethPairs, require_private_namespace
from ptf_tests.switch import TARGETS, SwitchProcess
from tests.softswitch.p4rt import DELETE, DEVICE_ID, INSERT, MODIFY, RawClient, load_config

CONNECT_S = 20
ROUND_TRIPS = 2000
ENTRIES = 10_000
ROUNDS_OF_ENTRIES = 5
WRITES_PER_S = 1000
FLEET_PPS = 2000
WAYS = ("ring", "sendmmsg")

RATIO, CEILING_SHARE, START_S = 8.0, 0.7, 1.0


@dataclass
class Result:
    """What was measured of one switch with one program, or of the ceiling (only `passed`)."""

    passed: list[Passed] = field(default_factory=list)
    half: list[Passed] = field(default_factory=list)
    writing: list[Passed] = field(default_factory=list)
    half_writing: list[Passed] = field(default_factory=list)
    writes: list[float] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)
    inserts: float = 0
    reads: float = 0
    start_s: float = 0
    pss_mib: float = 0
    rss_mib: float = 0
    idle: float = 0

    @property
    def rate(self) -> float:
        return statistics.median(p.rate for p in self.passed)

    @property
    def per_cpu_s(self) -> float:
        return statistics.median(p.per_cpu_s for p in self.passed)

    @property
    def p50(self) -> float:
        return statistics.median(latency.p50 for latency in self.latencies)

    @property
    def p99(self) -> float:
        return statistics.median(latency.p99 for latency in self.latencies)


class Switch:
    """A running switch; after `connect` with a program and entries that forward."""

    def __init__(
        self, stack: ExitStack, target: str, program: str, device: int, lane: Lane, log: Path
    ) -> None:
        self.target, self.program, self.lane = target, program, lane
        interfaces = {1: lane.port_in, 2: lane.port_out}
        self._process = SwitchProcess(target, device, interfaces, log, device_id=DEVICE_ID)
        stack.callback(self._process.stop)
        self._process.start()

    def connect(self, stack: ExitStack) -> None:
        """Become primary, load the program, write the entries."""
        program = self.program
        self.client = RawClient(
            self._process.address, load_config(program, directory=PROGRAMS[program])
        )
        stack.callback(self.client.close)
        grpc.channel_ready_future(self.client.channel).result(CONNECT_S)
        stream = self.client.stream()
        stack.callback(stream.cancel)
        stream.arbitrate(1)
        self.client.set_pipeline()
        self.client.write(*routes(self.client, program))

    @property
    def pid(self) -> int:
        return self._process.pid


def memory_mib(pid: int) -> tuple[float, float]:
    """(proportional, resident) set size of a process."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    sizes = {line.split(":")[0]: line.split()[1] for line in rollup.splitlines()[1:]}
    return int(sizes["Pss"]) / 1024, int(sizes["Rss"]) / 1024


# ---- control plane -----------------------------------------------------------------------------


def requests(switch: Switch, kind: int, count: int, first: int = 0x6000) -> bytes:
    """A serialised WriteRequest of `count` entries that no packet meets."""
    client = switch.client
    request = p4r.WriteRequest(device_id=DEVICE_ID)
    request.election_id.low = client.election_id
    for index in range(count):
        update = client.insert(
            "routes", {"locator_node": (BLOCK + 1) << 16 | first + index}, "forward", 2, 1, 2
        )
        update.type = kind
        if kind == DELETE:
            update.entity.table_entry.ClearField("action")
        request.updates.append(update)
    return bytes(request.SerializeToString())


def entries_per_second(switch: Switch) -> tuple[float, float]:
    """(written, read with counters) entries per second; requests were serialised before."""
    channel = switch.client.channel
    write = channel.unary_unary("/p4.v1.P4Runtime/Write")
    read = channel.unary_stream("/p4.v1.P4Runtime/Read")
    insert, delete = (requests(switch, kind, ENTRIES) for kind in (INSERT, DELETE))
    table = p4r.TableEntry(table_id=switch.client.id("tables", "routes"))
    table.counter_data.SetInParent()
    query = p4r.ReadRequest(device_id=DEVICE_ID, entities=[p4r.Entity(table_entry=table)])
    wire = query.SerializeToString()
    written, found = [], []
    for _ in range(ROUNDS_OF_ENTRIES):
        started = time.perf_counter()
        write(insert)
        written.append(ENTRIES / (time.perf_counter() - started))
        started = time.perf_counter()
        answers = list(read(wire))
        found.append(ENTRIES / (time.perf_counter() - started))
        count = sum(len(p4r.ReadResponse.FromString(answer).entities) for answer in answers)
        if count != ENTRIES + 1:
            sys.exit(f"{switch.target}: {count} entries were read, not {ENTRIES + 1}")
        write(delete)
    return statistics.median(written), statistics.median(found)


@contextmanager
def writing(switch: Switch, rates: list[float]) -> Iterator[None]:
    """WRITES_PER_S writes of an entry each, meanwhile; appends the rate that was reached."""
    write = switch.client.channel.unary_unary("/p4.v1.P4Runtime/Write")
    write(requests(switch, INSERT, 1))
    modify = requests(switch, MODIFY, 1)
    stop = threading.Event()

    def run() -> None:
        begin, count = time.monotonic(), 0
        while not stop.is_set():
            write(modify)
            count += 1
            time.sleep(max(0.0, begin + count / WRITES_PER_S - time.monotonic()))
        rates.append(count / (time.monotonic() - begin))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        write(requests(switch, DELETE, 1))


# ---- starting ----------------------------------------------------------------------------------


def wait_for_answer(process: SwitchProcess) -> None:
    """Until the switch answers a P4Runtime call."""
    options = (("grpc.use_local_subchannel_pool", 1),)
    while True:
        with grpc.insecure_channel(process.address, options=options) as channel:
            try:
                p4r_grpc.P4RuntimeStub(channel).Capabilities(p4r.CapabilitiesRequest())
                return
            except grpc.RpcError:
                process.check()
        time.sleep(0.01)


def ready_to_start(target: str, number: int, lane: Lane, log: Path) -> SwitchProcess:
    """A switch on a lane that starts with un.p4."""
    interfaces = {1: lane.port_in, 2: lane.port_out}
    program = PROGRAMS["un"] / "un.json"
    return SwitchProcess(target, number, interfaces, log, device_id=DEVICE_ID, program=program)


def start_time(target: str, lane: Lane, log: Path) -> float:
    """Seconds from starting the process to its first answer; the program was compiled before."""
    process = ready_to_start(target, 90, lane, log)
    started = time.perf_counter()
    process.start()
    try:
        wait_for_answer(process)
        return time.perf_counter() - started
    finally:
        process.stop()


def fleet(count: int, rate: float, directory: Path) -> str:
    """Many softswitches at once: how long until all forward, what they take, what they lose.

    Each has two ports, fabric.p4, and then `rate` packets/s, for two seconds.
    """
    lanes = [Lane(f"f{index}x") for index in range(count)]
    with ExitStack() as stack:
        stack.enter_context(VethPairs([pair for lane in lanes for pair in lane.pairs]))
        wire = Wire(directory, packet())
        started = time.monotonic()
        switches = [
            Switch(stack, "softswitch", "fabric", 100 + i, lane, directory / f"fleet{i}.log")
            for i, lane in enumerate(lanes)
        ]
        for switch in switches:
            switch.connect(stack)
        took = time.monotonic() - started
        pids = [switch.pid for switch in switches]
        time.sleep(1)
        before, started = sum(map(cpu_s, pids)), time.monotonic()
        time.sleep(2)
        used = (sum(map(cpu_s, pids)) - before) / (time.monotonic() - started)
        pss = sum(memory_mib(pid)[0] for pid in pids)
        with ThreadPoolExecutor(count) as pool:
            passed = list(pool.map(lambda s: wire.load(s.lane, s.pid, 2, rate), switches))
    lost, all_ = sum(p.lost for p in passed), sum(p.offered for p in passed)
    return (
        f"{count} softswitches: all forward after {took:.1f} s, {pss:,.0f} MiB together (PSS), "
        f"idle {100 * used:.1f} % of a processor; {rate:,.0f} packets/s through each at once: "
        f"{lost:,d} of {all_:,d} lost"
    )


# ---- all of it ---------------------------------------------------------------------------------


def forward_rounds(
    wire: Wire, ceiling: Lane, switches: Sequence[Switch], rounds: int, seconds: float
) -> dict[str, Result]:
    """Full load on the ceiling and each switch, in turn."""
    results = {name: Result() for name in (*WAYS, *(switch.target for switch in switches))}
    for _ in range(rounds):
        for way in WAYS:
            with wire.ceiling(ceiling, way) as pid:
                results[way].passed.append(wire.load(ceiling, pid, seconds))
        for switch in switches:
            results[switch.target].passed.append(wire.load(switch.lane, switch.pid, seconds))
    return results


def measure_one(wire: Wire, switch: Switch, result: Result, rounds: int, seconds: float) -> None:
    """Everything about a switch but its full rate, which is known."""
    for _ in range(rounds):
        result.half.append(wire.load(switch.lane, switch.pid, seconds, result.rate / 2))
        result.latencies.append(wire.pingpong(switch.lane, ROUND_TRIPS))
    before, started = cpu_s(switch.pid), time.monotonic()
    time.sleep(1)
    result.idle = (cpu_s(switch.pid) - before) / (time.monotonic() - started)
    result.pss_mib, result.rss_mib = memory_mib(switch.pid)
    if switch.program != "un":
        return
    result.inserts, result.reads = entries_per_second(switch)
    for _ in range(rounds):
        with writing(switch, result.writes):
            half = wire.load(switch.lane, switch.pid, seconds, result.rate / 2)
            result.half_writing.append(half)
            result.writing.append(wire.load(switch.lane, switch.pid, seconds))


def measure(
    program: str, targets: Sequence[str], rounds: int, seconds: float, directory: Path
) -> dict[str, Result]:
    """One program on the ceiling and all targets; by name."""
    ceiling = Lane("ceil")
    lanes = {target: Lane(target[:4]) for target in targets}
    with ExitStack() as stack:
        pairs = [pair for lane in (ceiling, *lanes.values()) for pair in lane.pairs]
        stack.enter_context(VethPairs(pairs))
        wire = Wire(directory, packet(program))
        switches = [
            Switch(stack, target, program, 1 + index, lane, directory / f"{target}.log")
            for index, (target, lane) in enumerate(lanes.items())
        ]
        for switch in switches:
            switch.connect(stack)
        results = forward_rounds(wire, ceiling, switches, rounds, seconds)
        for switch in switches:
            measure_one(wire, switch, results[switch.target], rounds, seconds)
    if program == "un":
        with VethPairs([pair for lane in lanes.values() for pair in lane.pairs]):
            for target, lane in lanes.items():
                times = [start_time(target, lane, directory / "start.log") for _ in range(3)]
                results[target].start_s = statistics.median(times)
    return results


def losses(rounds: Sequence[Passed]) -> str:
    """Median and highest of the packets lost in a round."""
    if not rounds:
        return ""
    lost = [passed.lost for passed in rounds]
    return f"{statistics.median(lost):,.0f} .. {max(lost):,d}"


def offered(rounds: Sequence[Passed]) -> str:
    """Median of the packets/s offered."""
    return f"{statistics.median(p.offered_rate for p in rounds):,.0f}" if rounds else ""


ROWS: tuple[tuple[str, Callable[[Result], str]], ...] = (
    ("packets/s, median", lambda r: f"{r.rate:,.0f}"),
    ("packets/s, lowest", lambda r: f"{min(p.rate for p in r.passed):,.0f}"),
    ("packets/s, highest", lambda r: f"{max(p.rate for p in r.passed):,.0f}"),
    ("lost at full load, per round", lambda r: losses(r.passed)),
    ("offered packets/s", lambda r: offered(r.passed)),
    (
        "packets per processor second",
        lambda r: f"{r.per_cpu_s:,.0f}",
    ),
    ("at half its rate: offered/s", lambda r: offered(r.half)),
    ("at half its rate: lost per round", lambda r: losses(r.half)),
    ("round trip p50, us", lambda r: f"{r.p50:.1f}" if r.latencies else ""),
    ("round trip p99, us", lambda r: f"{r.p99:.1f}" if r.latencies else ""),
    ("processor when idle, %", lambda r: f"{100 * r.idle:.1f}" if r.latencies else ""),
    ("memory PSS, MiB", lambda r: f"{r.pss_mib:.1f}" if r.pss_mib else ""),
    ("memory RSS, MiB", lambda r: f"{r.rss_mib:.1f}" if r.rss_mib else ""),
    (f"inserts/s, {ENTRIES:,} a write", lambda r: f"{r.inserts:,.0f}" if r.inserts else ""),
    ("reads with counters, entries/s", lambda r: f"{r.reads:,.0f}" if r.reads else ""),
    ("writes/s while forwarding", lambda r: f"{min(r.writes):,.0f}" if r.writes else ""),
    ("... at half its rate: lost", lambda r: losses(r.half_writing)),
    (
        "... at full load: packets/s",
        lambda r: f"{statistics.median(p.rate for p in r.writing):,.0f}" if r.writing else "",
    ),
    ("... at full load: lost", lambda r: losses(r.writing)),
    ("start, program cached, s", lambda r: f"{r.start_s:.2f}" if r.start_s else ""),
)


def show(program: str, results: Mapping[str, Result]) -> None:
    """A table: a column for each way of the ceiling and for each target."""
    names = [f"ceiling {name}" if name in WAYS else name for name in results]
    print(f"\n{program}.p4\n{'':<34}" + "".join(f"{name:>21}" for name in names))
    for title, text in ROWS:
        cells = [text(result) for result in results.values()]
        if any(cells):
            print(f"{title:<34}" + "".join(f"{cell:>21}" for cell in cells))


def judge(program: str, results: Mapping[str, Result]) -> list[tuple[bool, str]]:
    """Softswitch's goals: whether each is met, and what it says."""
    ours = results["softswitch"]
    ceiling = max(results[way].rate for way in WAYS)
    share, half = ours.rate / ceiling, statistics.median(p.lost for p in ours.half)
    goals = [(share >= CEILING_SHARE, f"{share:.0%} of the ceiling (70 %)")]
    goals.append((half == 0, f"{half:g} packets lost in the median round at half its rate (0)"))
    if program == "un":
        goals.append((ours.start_s < START_S, f"{ours.start_s:.2f} s to start ({START_S:g} s)"))
        lost = statistics.median(p.lost for p in ours.half_writing)
        text = f"{lost:g} packets lost in it with {min(ours.writes):,.0f} writes/s besides (0)"
        goals.append((lost == 0, text))
    theirs = results.get("bmv2")
    if theirs is None:
        return goals
    ratio = ours.rate / theirs.rate
    goals += [
        (
            ratio >= RATIO,
            f"{ratio:.1f} times BMv2's packets/s ({RATIO:g}); of the same processor time "
            f"{ours.per_cpu_s / theirs.per_cpu_s:.1f} times",
        ),
        (ours.p50 < theirs.p50, f"round trip p50 {ours.p50:.1f} us (BMv2: {theirs.p50:.1f})"),
        (ours.p99 < theirs.p99, f"round trip p99 {ours.p99:.1f} us (BMv2: {theirs.p99:.1f})"),
    ]
    if program == "un":
        goals += [
            (
                ours.inserts >= theirs.inserts,
                f"{ours.inserts / theirs.inserts:.1f} times BMv2's inserts/s (1)",
            ),
            (
                ours.reads >= theirs.reads,
                f"{ours.reads / theirs.reads:.1f} times BMv2's reads/s (1)",
            ),
        ]
    return goals


def main() -> int:
    """Measure the targets named on the command line, or all that are installed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=" or ".join(TARGETS))
    parser.add_argument("--program", choices=PROGRAMS, action="append", help="default: all")
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each load; default 2")
    parser.add_argument("--fleet", type=int, metavar="N", help="also start N softswitches at once")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a goal is missed")
    arguments = parser.parse_args()
    targets = arguments.targets or [
        target
        for target in TARGETS
        if target != "bmv2" or shutil.which("simple_switch_grpc") is not None
    ]
    if unknown := set(targets) - set(TARGETS):
        parser.error(f"unknown target {', '.join(unknown)}: allowed are {', '.join(TARGETS)}")
    try:
        require_private_namespace()
    except NamespaceError as error:
        sys.exit(str(error))
    print(
        f"{FRAME_BYTES}-byte packets over veth, {arguments.rounds} rounds of "
        f"{arguments.seconds:g} s; {os.cpu_count()} cores, Linux {platform.release()}"
    )
    met = True
    for program in arguments.program or PROGRAMS:
        with tempfile.TemporaryDirectory() as name:
            results = measure(program, targets, arguments.rounds, arguments.seconds, Path(name))
        show(program, results)
        if "softswitch" in results:
            for good, text in judge(program, results):
                print(f"{'PASS' if good else 'FAIL'}  {program}.p4: {text}")
                met &= good
    if arguments.fleet:
        with tempfile.TemporaryDirectory() as name:
            print(f"\n{fleet(arguments.fleet, FLEET_PPS, Path(name))}")
    return 1 if arguments.check and not met else 0


if __name__ == "__main__":
    sys.exit(main())
