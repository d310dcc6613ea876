#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare softswitch with BMv2 on p4c's v1model programs, with random entries and packets.

    python scripts/corpus_diff.py P4C [--work DIR] [--jobs N] [--packets N] [--seed N] [--only TEXT]

P4C is a checkout of p4c. Each program gets entries for its tables (the same over P4Runtime on
both), clone sessions and multicast groups, then packets: those of its STF test, mutated, and others
whose bytes are few different ones, so that keys match. A packet whose answers differ is sent again,
alone, to a fresh pair of switches: BMv2 leaves an earlier packet's values in the fields of invalid
headers, and what differs by that or by order alone is counted apart. Needs root (each program runs
in a network namespace of its own), p4c-bm2-ss and simple_switch_grpc. Exits with 1 when a program
differs.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
from diff_switch import LATE_S, SETTLE_S, Wires, bmv2
from finsy.proto import p4i, p4r
from stf_corpus import V1MODEL, first_error, run

from ptf_tests.namespace import require_private_namespace
from softswitch.dataplane import Dataplane
from softswitch.errors import DataplaneError
from softswitch.stf.commands import Packet as StfPacket
from softswitch.stf.commands import StfError
from softswitch.stf.reader import read_test
from tests.softswitch.differential import Answer, counter_values, softswitch, visible
from tests.softswitch.p4rt import INSERT, RawClient, byte_string, field_match, update
from tests.softswitch.scenarios import (
    FIRST_BYTES,
    VLAN_TYPES,
    Packet,
    Scenario,
    mutated,
)

COMPILE_TIMEOUT_S = 120
PROGRAM_TIMEOUT_S = 60
ENTRIES_PER_TABLE = 6
PORTS = tuple(range(8))
SETTLE_EVERY = 8
MOST_EXAMINED = 4
MOST_CELLS = 5000
FEW_BYTES = (0, 1, 2, 3, 8, 0x45, 0xFF)
TYPES = (0x0800, 0x0806, 0x86DD, 0x8847, 0x1234, 0x0101, 0x0000, 0x0001)
SAME, STALE, DIFFERS, NOT_RUN = "same", "differs after others only", "DIFFERS", "not run"
BMV2_DIED = "BMv2 died"
RANDOM_PRIMITIVE = b"modify_field_rng_uniform"


# ---- packets and entries -------------------------------------------------------------------------


def few(source: random.Random, count: int) -> bytes:
    """Bytes of few different values."""
    kinds = source.sample(FEW_BYTES, source.randrange(1, 4))
    return bytes(source.choice(kinds) for _ in range(count))


def packet(source: random.Random, samples: Sequence[Packet]) -> Packet:
    """One packet; never a VLAN tag in front, nor shorter than a packet socket sends."""
    while True:
        kind = source.random()
        port = source.randrange(1, 5)
        if samples and kind < 0.6:
            port, data = source.choice(samples)
            port = port if port in PORTS else source.randrange(1, 5)
            if kind > 0.2:
                data = mutated(source, data.ljust(FIRST_BYTES, b"\0"))
        elif kind < 0.85:
            data = few(source, 12) + source.choice(TYPES).to_bytes(2)
            if data[12:14] == b"\x08\x00":
                data += b"\x45" + few(source, 8) + bytes([source.choice((1, 6, 17, 4))])
            data += few(source, source.randrange(0, 90))
        else:
            data = few(source, source.randrange(FIRST_BYTES, 80))
        if len(data) >= FIRST_BYTES and int.from_bytes(data[12:14]) not in VLAN_TYPES:
            return port, data


def number(source: random.Random, bits: int, samples: Sequence[Packet]) -> int:
    """A value that some field of that width may have in a packet."""
    if bits <= 9 and source.random() < 0.5:
        return source.randrange(1, 5) & (1 << bits) - 1
    size = (bits + 7) // 8
    if samples and source.random() < 0.5:
        _, data = source.choice(samples)
        at = source.randrange(max(1, len(data) - size))
        return int.from_bytes(data[at : at + size]) & (1 << bits) - 1
    if source.random() < 0.3:
        return int.from_bytes(source.choice(TYPES).to_bytes(2)) & (1 << bits) - 1
    return int.from_bytes(few(source, size)) & (1 << bits) - 1


def match_value(source: random.Random, field: Any, samples: Sequence[Packet]) -> Any:
    """A canonical match of a P4Info field, or None to leave it out."""
    bits = field.bitwidth
    value = number(source, bits, samples)
    match p4i.MatchField.MatchType.Name(field.match_type):
        case "EXACT":
            return value
        case "LPM":
            length = source.choice((0, bits, bits // 2, source.randrange(bits + 1)))
            return (value >> (bits - length) << (bits - length), length) if length else None
        case "TERNARY":
            mask = source.choice((0, (1 << bits) - 1, 1, source.getrandbits(bits)))
            return (value & mask, mask) if mask else None
        case "RANGE":
            low, high = sorted((value, number(source, bits, samples)))
            return (low, high) if (low, high) != (0, (1 << bits) - 1) else None
        case _:
            return value if source.random() < 0.7 else None


def entries(source: random.Random, client: RawClient, samples: Sequence[Packet]) -> Iterator[Any]:
    """Inserts for all tables that have entries of their own; no two of equal priority."""
    actions = {action.preamble.id: action for action in client.info.actions}
    for table in client.info.tables:
        if table.is_const_table or table.implementation_id or not table.match_fields:
            continue
        if any(not field.bitwidth for field in table.match_fields):
            continue  # a type that P4Runtime translates to a string
        allowed = [
            actions[reference.id]
            for reference in table.action_refs
            if reference.scope != p4i.ActionRef.DEFAULT_ONLY
        ]
        if not allowed:
            continue
        kinds = {p4i.MatchField.MatchType.Name(field.match_type) for field in table.match_fields}
        for priority in range(1, 1 + min(ENTRIES_PER_TABLE, max(1, table.size))):
            entry = p4r.TableEntry(table_id=table.preamble.id)
            if kinds & {"TERNARY", "RANGE", "OPTIONAL"}:
                entry.priority = priority
            for field in table.match_fields:
                value = match_value(source, field, samples)
                if value is not None:
                    entry.match.append(field_match(field, value))
            action = source.choice(allowed)
            if any(not param.bitwidth for param in action.params):
                continue
            entry.action.action.action_id = action.preamble.id
            for param in action.params:
                value = byte_string(number(source, param.bitwidth, samples))
                entry.action.action.params.add(param_id=param.id, value=value)
            yield update(INSERT, table_entry=entry)


def replication() -> Iterator[Any]:
    """Clone sessions and multicast groups with the ids that programs like."""
    for session in (*range(1, 12), 99, 100, 250, 500):
        replica = p4r.Replica(port=bytes([1 + session % 4]), instance=session)
        clones = p4r.CloneSessionEntry(session_id=session, replicas=[replica])
        engine = p4r.PacketReplicationEngineEntry(clone_session_entry=clones)
        yield update(INSERT, packet_replication_engine_entry=engine)
    for group in (*range(1, 12), 1113):
        replicas = [p4r.Replica(port=bytes([port]), instance=port + group) for port in (2, 3, 4)]
        groups = p4r.MulticastGroupEntry(multicast_group_id=group, replicas=replicas)
        engine = p4r.PacketReplicationEngineEntry(multicast_group_entry=groups)
        yield update(INSERT, packet_replication_engine_entry=engine)


# ---- one program ---------------------------------------------------------------------------------


class Comparison:
    """Both switches with one program and the same entries, in a network namespace of their own."""

    def __init__(self, program: str, directory: Path, samples: Sequence[Packet], seed: int) -> None:
        self._scenario = Scenario(
            program, lambda client: [], lambda source: (0, b""), program, directory
        )
        self._samples = samples
        self._seed = seed

    @contextmanager
    def switches(self) -> Iterator[tuple[Dataplane, RawClient, Wires, RawClient]]:
        """softswitch and its client, BMv2's wires and client; entries are written."""
        with ExitStack() as stack:
            log = stack.enter_context(tempfile.TemporaryDirectory())
            ours = stack.enter_context(softswitch(self._scenario))
            dataplane, mine = ours.dataplane, ours.client
            wires = Wires(stack, PORTS)
            theirs = stack.enter_context(bmv2(wires, Path(log), self._scenario, 1)).client
            source = random.Random(f"{self._scenario.name} {self._seed}")
            for change in (*entries(source, mine, self._samples), *replication()):
                write_both(mine, theirs, change)
            wires.receive(0, SETTLE_S)
            yield dataplane, mine, wires, theirs

    def run(self, count: int) -> tuple[str, list[str]]:
        """Outcome and what to show."""
        suspects: list[Packet] = []
        shown: list[str] = []
        source = random.Random(f"packets {self._scenario.name} {self._seed}")
        outputs = endless = 0
        with self.switches() as (dataplane, mine, wires, theirs):
            for number_ in range(count):
                port, data = packet(source, self._samples)
                answer = ask(dataplane, port, data)
                if answer is None:
                    endless += 1
                    continue
                outputs += len(answer)
                got = exchange(wires, port, data, answer, settle=number_ % SETTLE_EVERY == 0)
                if got != answer:
                    if not alive(theirs):
                        return BMV2_DIED, [f"of port {port}: {data.hex()}"]
                    suspects.append((port, data))
                    if len(suspects) == MOST_EXAMINED:
                        break
            if not alive(theirs):
                return BMV2_DIED, [f"of port {port}: {data.hex()}, or one before it"]
            differing, note = compare_counters(mine, theirs)
            shown += note
            if endless:
                shown.append(f"{endless} packets go round without an end or fail an assertion")
        if not suspects:
            if differing and not endless:
                return DIFFERS, differing
            return f"{SAME}, {outputs} packets out", shown
        verdict = STALE
        for port, data in suspects:
            with self.switches() as (dataplane, _, wires, theirs):
                answer = ask(dataplane, port, data) or []
                got = exchange(wires, port, data, answer, settle=True)
                if not alive(theirs):
                    return BMV2_DIED, [f"of port {port}: {data.hex()}"]
            if got != answer:
                verdict = DIFFERS
                shown += [f"port {port}: {data.hex()}", *lines("ours", answer), *lines("BMv2", got)]
        return verdict, shown


def write_both(mine: RawClient, theirs: RawClient, change: Any) -> None:
    """Write to both. One that BMv2 refuses has to be refused by both."""
    refusals = []
    for client in (mine, theirs):
        try:
            client.write(change)
            refusals.append("")
        except grpc.RpcError as error:
            refusals.append(error.details() or "refused")
    if bool(refusals[0]) != bool(refusals[1]):
        raise SystemExit(
            f"{DIFFERS}: an entry: ours {refusals[0]!r}, BMv2 {refusals[1]!r}: {change}"
        )


def compare_counters(mine: RawClient, theirs: RawClient) -> tuple[list[str], list[str]]:
    """Cells that differ, and why they were not compared."""
    cells = sum(counter.size for counter in mine.info.counters)
    if cells > MOST_CELLS:
        return [], [f"{cells} cells of counters are too many to compare"]
    try:
        ours, others = counter_values(mine), counter_values(theirs)
    except grpc.RpcError as error:
        return [], [f"counters: {error.code().name}: {error.details()}"]
    return [
        f"counter {name}: ours {ours.get(name)}, BMv2 {others.get(name)}"
        for name in sorted({*ours, *others})
        if ours.get(name) != others.get(name)
    ], []


def alive(client: RawClient) -> bool:
    """Some programs end BMv2, with an index that is out of bounds for example."""
    try:
        client.stub.Capabilities(p4r.CapabilitiesRequest(), timeout=5)
    except grpc.RpcError:
        return False
    return True


def ask(dataplane: Dataplane, port: int, data: bytes) -> Answer | None:
    """softswitch's answer; None when the packet ends a switch."""
    try:
        return visible(dataplane.process(port, data), PORTS)
    except DataplaneError:
        return None


def exchange(wires: Wires, port: int, data: bytes, expected: Answer, *, settle: bool) -> Answer:
    """BMv2's answer."""
    wires.send(port, data)
    got = wires.receive(len(expected), LATE_S) if expected else []
    if settle:
        got += wires.receive(0, SETTLE_S)
    if visible(got, PORTS) != expected:
        got += wires.receive(0, LATE_S)
    return visible(got, PORTS)


def lines(title: str, answer: Answer) -> list[str]:
    """An answer to show."""
    return [f"  {title}: {port}: {data.hex()}" for port, data in answer] or [f"  {title}: nothing"]


# ---- all programs --------------------------------------------------------------------------------


def samples_of(program: Path) -> list[Packet]:
    """The packets of a program's STF test."""
    test = program.with_suffix(".stf")
    if "p4_14_samples_outputs" in program.parts:
        test = program.parents[1] / "p4_14_samples" / test.name
    if not test.is_file():
        return []
    try:
        commands = read_test(test.read_text())
    except StfError:
        return []
    return [(c.port, c.data) for c in commands if isinstance(c, StfPacket)]


def programs(p4c: Path) -> list[Path]:
    """v1model programs, P4_14's in p4c's translation."""
    testdata = p4c / "testdata"
    found = [
        p for p in (testdata / "p4_16_samples").rglob("*.p4") if V1MODEL.search(p.read_bytes())
    ]
    for path in (testdata / "p4_14_samples_outputs").glob("*.p4"):
        if not re.search(r"-(first|frontend|midend)$", path.stem):
            found.append(path)
    return sorted(found)


def compiled(program: Path, p4c: Path, work: Path) -> tuple[Path | None, str]:
    """The JSON with its P4Info beside it, or the compiler's error."""
    name = "+".join(program.relative_to(p4c / "testdata").with_suffix("").parts)
    output = work / "diff" / f"{name}.json"
    info = output.with_suffix(".p4info.txtpb")
    if output.is_file() and info.is_file():
        return output, ""
    output.parent.mkdir(parents=True, exist_ok=True)
    command = ["p4c-bm2-ss", "--p4runtime-files", str(info), "-o", str(output), str(program)]
    code, text = run(command, COMPILE_TIMEOUT_S)
    if code or not output.is_file() or not info.is_file():
        output.unlink(missing_ok=True)
        return None, first_error(text)
    return output, ""


def examine(program: Path, options: argparse.Namespace) -> tuple[str, str, str]:
    """(name, outcome, text): the comparison runs in a process and namespace of its own."""
    name = str(program.relative_to(options.p4c / "testdata"))
    output, error = compiled(program, options.p4c, options.work)
    if output is None:
        return name, NOT_RUN, f"not compiled: {error}"
    if RANDOM_PRIMITIVE in output.read_bytes():
        return name, NOT_RUN, "draws random numbers"
    command = ["unshare", "--net", "--", sys.executable, __file__, str(options.p4c)]
    command += ["--one", str(output), "--source", str(program)]
    command += ["--packets", str(options.packets), "--seed", str(options.seed)]
    code, text = run(command, PROGRAM_TIMEOUT_S)
    last = text.strip().splitlines()
    if code == 0 and last:
        outcome, shown = json.loads(last[-1])
        return name, outcome, "\n".join(shown)
    outcome = DIFFERS if DIFFERS in text else NOT_RUN
    return name, outcome, "\n".join(last[-6:])


def one(options: argparse.Namespace) -> int:
    """The comparison itself; the result is the last line of the output, as JSON."""
    require_private_namespace()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    samples = samples_of(options.source)
    comparison = Comparison(options.one.stem, options.one.parent, samples, options.seed)
    try:
        print(json.dumps(comparison.run(options.packets)))
    except grpc.RpcError as error:
        print(json.dumps((NOT_RUN, [error.details() or str(error)])))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 1 when something differs."""
    parser = argparse.ArgumentParser(description="compare softswitch and BMv2 on p4c's programs")
    parser.add_argument("p4c", type=Path, help="a checkout of p4c")
    parser.add_argument("--work", type=Path, default=Path("stf-corpus"), help="keeps the JSON")
    parser.add_argument("--jobs", type=int, default=2, help="programs at a time (2)")
    parser.add_argument("--packets", type=int, default=200, help="per program (200)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="programs whose path contains it"
    )
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--source", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        return one(options)
    options.p4c, options.work = options.p4c.resolve(), options.work.resolve()
    needed = ("p4c-bm2-ss", "simple_switch_grpc", "unshare")
    if missing := [name for name in needed if shutil.which(name) is None]:
        parser.error(f"not on PATH: {', '.join(missing)}")
    chosen = [path for path in programs(options.p4c) if options.only in str(path)]
    outcomes: Counter[str] = Counter()
    with ThreadPoolExecutor(options.jobs) as pool:
        for name, outcome, text in pool.map(lambda path: examine(path, options), chosen):
            outcomes[outcome.split(",")[0]] += 1
            print(f"[{outcomes.total()}/{len(chosen)}] {name}: {outcome}", flush=True)
            if text:
                print("    " + text.replace("\n", "\n    "), flush=True)
    print(*(f"{count} programs: {outcome}" for outcome, count in outcomes.items()), sep="\n")
    return 1 if outcomes[DIFFERS] else 0


if __name__ == "__main__":
    sys.exit(main())
