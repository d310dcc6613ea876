# SPDX-License-Identifier: Apache-2.0
"""softswitch's answers to a scenario, and BMv2's answers as they were recorded.

A recording is gzipped JSON: seed, and per packet [port, packet, [[port, packet]...]], packets in
hexadecimal, with the counters at the end. `scripts/diff_switch.py --record` writes them.

What the scenarios keep away from, because BMv2 1.15 has no defined answer there or a wrong one:

- Fields of invalid headers hold an earlier packet's values in BMv2, zeros or this packet's here.
- Indices out of bounds of a counter or register overwrite BMv2's memory or end it. Here nothing is
  counted, read or written.
- A register cell or hash of a negative number that is read into a signed field is positive in BMv2
  until the field is next written to a header. Here it is the negative number.
- A multicast group that has a port twice: PI sends the copies in the order of a hash table. Here
  they leave in the order of the group's replicas.
- Over P4Runtime, BMv2 refuses clone sessions that truncate, and cannot read a whole counter array.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softswitch.dataplane import Dataplane
from softswitch.values import DataplaneOptions
from tests.softswitch.p4rt import RawClient, load_config, primary
from tests.softswitch.scenarios import FEATURES, FIRST_BYTES, Packet, Scenario
from tests.softswitch.scenarios_fabric import FABRIC
from tests.softswitch.scenarios_wide import WIDE

RECORDED = Path(__file__).parent / "recorded"
SCENARIOS = {scenario.name: scenario for scenario in (*FEATURES, *WIDE, *FABRIC)}
CPU_PORT = 510
WIRE_PORTS = (1, 2, 3, 4)
WRITE_BATCH = 500

Counters = dict[str, tuple[int, int]]
Answer = list[Packet]


@dataclass(frozen=True)
class Recording:
    """What BMv2 answered."""

    packets: list[tuple[int, bytes, Answer]]
    counters: Counters


def config_of(scenario: Scenario) -> Any:
    """The pipeline configuration of a scenario's program."""
    return load_config(scenario.program or scenario.name, directory=scenario.directory)


def write_entries(client: RawClient, scenario: Scenario) -> None:
    """Write what the scenario wants, in order."""
    updates = scenario.updates(client)
    for start in range(0, len(updates), WRITE_BATCH):
        client.write(*updates[start : start + WRITE_BATCH])


@contextmanager
def softswitch(scenario: Scenario) -> Iterator[tuple[Dataplane, RawClient]]:
    """A softswitch without ports, programmed over P4Runtime."""
    dataplane = Dataplane(DataplaneOptions(cpu_port=CPU_PORT))
    try:
        with primary(dataplane, config_of(scenario)) as client:
            write_entries(client, scenario)
            yield dataplane, client
    finally:
        dataplane.close()


def visible(packets: Iterable[Packet], ports: Sequence[int] = WIRE_PORTS) -> Answer:
    """What a tester at the wire ports can see, by port, in each port's order."""
    return sorted(
        (packet for packet in packets if packet[0] in ports and len(packet[1]) >= FIRST_BYTES),
        key=lambda packet: packet[0],
    )


def save(scenario: Scenario, seed: int, recording: Recording) -> Path:
    """Write a recording; the same content gives the same file."""
    content = {
        "seed": seed,
        "packets": [
            [port, data.hex(), [[to, left.hex()] for to, left in answer]]
            for port, data, answer in recording.packets
        ],
        "counters": {name: list(value) for name, value in sorted(recording.counters.items())},
    }
    RECORDED.mkdir(exist_ok=True)
    path = RECORDED / f"{scenario.name}.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode(), mtime=0))
    return path


def load(name: str) -> Recording:
    """Read a recording."""
    content = json.loads(gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes()))
    packets = [
        (port, bytes.fromhex(data), [(to, bytes.fromhex(left)) for to, left in answer])
        for port, data, answer in content["packets"]
    ]
    counters = {name: (value[0], value[1]) for name, value in content["counters"].items()}
    return Recording(packets, counters)
