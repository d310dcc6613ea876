#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Send the same packets through BMv2 and softswitch, and compare what leaves and what remains.

    unshare --net -- .venv/bin/python scripts/diff_switch.py [--packets N] [--seed N] [SCENARIO...]
    unshare --net -- .venv/bin/python scripts/diff_switch.py --record [SCENARIO...]

BMv2 runs with veths for ports; softswitch runs in this process. Packets go one at a time, so that
what leaves is known to belong to which packet; counters, registers and digests are compared at the
end. The seed chooses packets and random entries. `--record` keeps BMv2's answers in
tests/softswitch/recorded/. Exits with 1 when anything differs.
"""

from __future__ import annotations

import argparse
import json
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc

from ptf_tests.namespace import VethPairs, require_private_namespace
from tests.softswitch.controller_port import CPU_PORT, ControllerPort
from tests.softswitch.differential import (
    SCENARIOS,
    WIRE_PORTS,
    Answer,
    Recording,
    Remains,
    config_of,
    counter_values,
    save,
    softswitch,
    visible,
    write_entries,
)
from tests.softswitch.p4rt import DEVICE_ID, RawClient, Stream
from tests.softswitch.scenarios import Scenario

ADDRESS = "127.0.0.1:50980"
THRIFT_PORT = 9090
LATE_S = 0.25
SETTLE_S = 0.004
RECORD_SETTLE_S = 0.02
RECORD_LATE_S = 1.0
SETTLE_EVERY = 16
MOST_SHOWN = 8
MOST_DIFFERENCES = 40
PACKET_AUXDATA = 8
PACKET_IGNORE_OUTGOING = 23
TP_STATUS_VLAN_VALID = 1 << 4
AUXDATA = struct.Struct("=IIIHHHH")
ETH_P_ALL = 3
SOL_PACKET = 263


class Wires:
    """Packet sockets at the testers' ends of the switch's ports."""

    def __init__(self, stack: ExitStack, ports: Sequence[int] = WIRE_PORTS) -> None:
        ends = [(f"sw{port}", f"test{port}") for port in ports]
        stack.enter_context(VethPairs(ends))
        self.interfaces = {port: f"sw{port}" for port in ports}
        self._sockets = {port: stack.enter_context(self._open(f"test{port}")) for port in ports}
        self._ports = {sock.fileno(): port for port, sock in self._sockets.items()}
        self._poll = select.poll()
        for sock in self._sockets.values():
            self._poll.register(sock, select.POLLIN)

    @staticmethod
    def _open(name: str) -> socket.socket:
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        sock.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        sock.bind((name, ETH_P_ALL))
        sock.setblocking(False)
        return sock

    @staticmethod
    def _read(sock: socket.socket) -> bytes:
        """A packet with the VLAN tag that the kernel keeps beside it."""
        data, auxiliary, _, _ = sock.recvmsg(1 << 17, socket.CMSG_SPACE(AUXDATA.size))
        for _, _, value in auxiliary:
            status, _, _, _, _, tci, tpid = AUXDATA.unpack(value)
            if status & TP_STATUS_VLAN_VALID:
                data = data[:12] + tpid.to_bytes(2) + tci.to_bytes(2) + data[12:]
        return data

    def send(self, port: int, data: bytes) -> None:
        """Put a packet on the wire to a port of the switch."""
        self._sockets[port].send(data)

    def receive(self, count: int, timeout_s: float) -> Answer:
        """At least `count` packets unless they do not come in time; 0: all that come in time."""
        got: Answer = []
        end = time.monotonic() + timeout_s
        while (left := end - time.monotonic()) > 0 and (count == 0 or len(got) < count):
            for descriptor, _ in self._poll.poll(left * 1000):
                port = self._ports[descriptor]
                got.append((port, self._read(self._sockets[port])))
        return got


class Bmv2:
    """A running simple_switch_grpc with a scenario's program and entries."""

    def __init__(self, wires: Wires, client: RawClient, stream: Stream) -> None:
        self._wires = wires
        self.client = client
        self.controller = ControllerPort(client.info, stream)

    def send(self, port: int, data: bytes) -> None:
        """A packet arrives."""
        if port == CPU_PORT:
            self.controller.send(data)
        else:
            self._wires.send(port, data)

    def receive(self, expected: Answer, timeout_s: float) -> Answer:
        """At least as many packets as expected, unless they do not come in time."""
        punted = sum(port == CPU_PORT for port, _ in expected)
        got: Answer = []
        if len(expected) > punted:
            got += self._wires.receive(len(expected) - punted, timeout_s)
        if punted:
            got += [(CPU_PORT, data) for data in self.controller.receive(punted, timeout_s)]
        return got

    def receive_all(self, timeout_s: float) -> Answer:
        """What comes in this time, and from the controller's stream just after it."""
        got = self._wires.receive(0, timeout_s)
        return got + [(CPU_PORT, data) for data in self.controller.receive(0, 0)]

    def registers(self) -> dict[str, int]:
        """As in `Remains`."""
        sizes = {r["name"]: r["size"] for r in json.loads(self._json())["register_arrays"]}
        values = {}
        for name in sizes:
            done = subprocess.run(
                ["simple_switch_CLI", "--thrift-port", str(THRIFT_PORT)],
                input=f"register_read {name}\n",
                capture_output=True,
                text=True,
                check=True,
            )
            line = next(line for line in done.stdout.splitlines() if f"{name}=" in line)
            cells = line.partition("=")[2].split(",")
            values.update({f"{name} {i}": int(cell) for i, cell in enumerate(cells)})
        return {name: value for name, value in values.items() if value}

    def _json(self) -> bytes:
        return bytes(self.client.config.p4_device_config)

    def remains(self, digests: int) -> Remains:
        """What is left when `digests` digests are expected."""
        counters = counter_values(self.client)
        return Remains(counters, self.registers(), self.controller.all_digests(digests))


@contextmanager
def bmv2(wires: Wires, directory: Path, scenario: Scenario, seed: int) -> Iterator[Bmv2]:
    """simple_switch_grpc on the wires, with the scenario's program and entries."""
    program = shutil.which("simple_switch_grpc")
    if program is None:
        sys.exit("diff_switch: simple_switch_grpc is not on PATH")
    command = [program, "--no-p4", "--device-id", str(DEVICE_ID), "--log-level", "off"]
    command += ["--thrift-port", str(THRIFT_PORT)]
    for port, interface in wires.interfaces.items():
        command += ["-i", f"{port}@{interface}"]
    command += ["--", "--grpc-server-addr", ADDRESS, "--cpu-port", str(CPU_PORT)]
    command += ["--priority-queues", str(scenario.priority_queues)]
    with (directory / "bmv2.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        client = RawClient(ADDRESS, config_of(scenario))
        grpc.channel_ready_future(client.channel).result(20)
        stream = client.stream()
        stream.arbitrate(1)
        client.set_pipeline()
        write_entries(client, scenario, seed)
        wires.receive(0, RECORD_SETTLE_S)
        yield Bmv2(wires, client, stream)
        stream.cancel()
        client.close()
    finally:
        process.terminate()
        process.wait()


def show(number: int, port: int, data: bytes, expected: Answer, got: Answer) -> None:
    """Print one difference."""
    print(f"  packet {number}, port {port}: {data.hex()}")
    for name, answer in (("softswitch", expected), ("BMv2", got)):
        print(f"    {name}: " + ("nothing" if not answer else ""))
        for to, left in answer:
            print(f"      {to}: {left.hex()}")


def by_place(digests: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Each message by its digest and place."""
    return {f"{name} {i:05}": data for name, each in digests.items() for i, data in enumerate(each)}


def compare_remains(mine: Remains, theirs: Remains) -> int:
    """How many counters, registers and digests differ; prints them."""
    pairs: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = [
        ("counter", mine.counters, theirs.counters),
        ("register", mine.registers, theirs.registers),
        ("digest", by_place(mine.digests), by_place(theirs.digests)),
    ]
    total = 0
    for kind, left, right in pairs:
        differing = sorted(name for name in {*left, *right} if left.get(name) != right.get(name))
        total += len(differing)
        for name in differing[:MOST_SHOWN]:
            print(f"  {kind} {name}: softswitch {left.get(name)}, BMv2 {right.get(name)}")
    return total


def compare(scenario: Scenario, switch: Bmv2, seed: int, count: int) -> int:
    """Number of differences in `count` packets."""
    differences = outputs = 0
    with softswitch(scenario, seed) as mine:
        for number, (port, data) in enumerate(scenario.packets(seed, count)):
            expected = visible(mine.dataplane.process(port, data))
            outputs += len(expected)
            switch.send(port, data)
            got = switch.receive(expected, LATE_S) if expected else []
            if (number + 1) % SETTLE_EVERY == 0 or number + 1 == count:
                got += switch.receive_all(SETTLE_S)
            if visible(got) != expected:
                got += switch.receive_all(LATE_S)
                differences += 1
                if differences <= MOST_SHOWN:
                    show(number, port, data, expected, visible(got))
                if differences == MOST_DIFFERENCES:
                    print(f"{scenario.name}: gave up after {number + 1} packets, seed {seed}")
                    return differences
        theirs = switch.remains(0)
        differences += compare_remains(mine.remains(sum(map(len, theirs.digests.values()))), theirs)
        digests = sum(map(len, theirs.digests.values()))
    print(
        f"{scenario.name}: {count} packets in, {outputs} out, {digests} digests, seed {seed}: "
        f"{differences or 'no'} differences",
        flush=True,
    )
    return differences


def record(scenario: Scenario, switch: Bmv2, seed: int, count: int) -> None:
    """Keep BMv2's answers. Where softswitch sends something BMv2 has long to do the same."""
    packets = []
    with softswitch(scenario, seed) as mine:
        for port, data in scenario.packets(seed, count):
            expected = visible(mine.dataplane.process(port, data))
            switch.send(port, data)
            got = switch.receive(expected, RECORD_LATE_S) if expected else []
            packets.append((port, data, visible(got + switch.receive_all(RECORD_SETTLE_S))))
    path = save(scenario, Recording(seed, packets, switch.remains(0)))
    print(f"{path}: {count} packets, {path.stat().st_size} bytes", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 1 when something differs."""
    parser = argparse.ArgumentParser(description="compare softswitch with BMv2")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--packets", type=int, help="per scenario; 10000, when recording 200")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="keep BMv2's answers")
    options = parser.parse_args(arguments)
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    require_private_namespace()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    differences = 0
    for name in options.scenarios or SCENARIOS:
        scenario = SCENARIOS[name]
        with ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            wires = Wires(stack)
            switch = stack.enter_context(bmv2(wires, Path(directory), scenario, options.seed))
            if options.record:
                record(scenario, switch, options.seed, options.packets or 200)
            else:
                differences += compare(scenario, switch, options.seed, options.packets or 10000)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
