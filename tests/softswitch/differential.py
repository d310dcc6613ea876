# SPDX-License-Identifier: Apache-2.0
"""softswitch's answers to a scenario, and BMv2's answers as they were recorded.

A recording is gzipped JSON: seed, and per packet [port, packet, [[port, packet]...]], packets in
hexadecimal, with the counters, registers and digests at the end. `scripts/diff_switch.py --record`
writes them. Port CPU_PORT stands for packets to and from the controller, headers included.

What the scenarios keep away from, because BMv2 1.15 has no defined answer there or a wrong one:

- Fields of invalid headers hold an earlier packet's values in BMv2, zeros or this packet's here.
- Indices out of bounds of a counter, register or stack overwrite BMv2's memory or end it. Here
  nothing is counted, read or written there, and the fields of such an element are 0.
- A register cell or hash of a negative number that is read into a signed field is positive in BMv2
  until the field is next written to a header. Here it is the negative number.
- A multicast group that has a port twice: PI sends the copies in the order of a hash table. Here
  they leave in the order of the group's replicas.
- Over P4Runtime, BMv2 refuses clone sessions that truncate, and cannot read a whole counter array.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finsy.proto import p4r

from softswitch.dataplane import Dataplane
from softswitch.values import DataplaneOptions
from tests.softswitch.controller_port import CPU_PORT, ControllerPort, digest_updates
from tests.softswitch.p4rt import RawClient, Stream, load_config, serving
from tests.softswitch.scenarios import FEATURES, FIRST_BYTES, Packet, Scenario
from tests.softswitch.scenarios_copies import COPIES
from tests.softswitch.scenarios_fabric import FABRIC
from tests.softswitch.scenarios_wide import WIDE

RECORDED = Path(__file__).parent / "recorded"
SCENARIOS = {scenario.name: scenario for scenario in (*FEATURES, *COPIES, *WIDE, *FABRIC)}
WIRE_PORTS = (1, 2, 3, 4)
SEEN_PORTS = (*WIRE_PORTS, CPU_PORT)
WRITE_BATCH = 500
MOST_SHOWN = (1 << 63) - 1
"""The largest cell of a register that BMv2's command line shows."""

Answer = list[Packet]


@dataclass(frozen=True)
class Remains:
    """What a run leaves: counters as (packets, bytes), registers, digests in order of data.

    Names of counters and registers have an index where there are many; zeros are left out.
    Registers stop at MOST_SHOWN, digests are the serialised data by digest.
    """

    counters: dict[str, tuple[int, int]]
    registers: dict[str, int]
    digests: dict[str, list[str]]


@dataclass(frozen=True)
class Recording:
    """What BMv2 answered."""

    seed: int
    packets: list[tuple[int, bytes, Answer]]
    remains: Remains


def config_of(scenario: Scenario) -> Any:
    """The pipeline configuration of a scenario's program."""
    return load_config(scenario.program or scenario.name, directory=scenario.directory)


def write_entries(client: RawClient, scenario: Scenario, seed: int = 1) -> None:
    """Write what the scenario wants, in order, and ask for all digests."""
    updates = [*scenario.entries(client, seed), *digest_updates(client.info)]
    for start in range(0, len(updates), WRITE_BATCH):
        client.write(*updates[start : start + WRITE_BATCH])


class Softswitch:
    """A softswitch without ports, programmed over P4Runtime."""

    def __init__(self, dataplane: Dataplane, client: RawClient, stream: Stream) -> None:
        self.dataplane = dataplane
        self.client = client
        self.controller = ControllerPort(client.info, stream)

    def registers(self) -> dict[str, int]:
        """As in `Remains`."""
        cells = {
            f"{name} {index}": min(array.read(index), MOST_SHOWN)
            for name, array in self.dataplane.registers.items()
            for index in range(array.size)
        }
        return {name: value for name, value in cells.items() if value}

    def remains(self, digests: int) -> Remains:
        """What is left when `digests` digests are expected."""
        counters = counter_values(self.client)
        return Remains(counters, self.registers(), self.controller.all_digests(digests))


@contextmanager
def softswitch(scenario: Scenario, seed: int = 1) -> Iterator[Softswitch]:
    """A softswitch with the scenario's entries."""
    options = DataplaneOptions(cpu_port=CPU_PORT, priority_queues=scenario.priority_queues)
    dataplane = Dataplane(options)
    try:
        with serving(dataplane) as address:
            client = RawClient(address, config_of(scenario))
            stream = client.stream()
            try:
                stream.arbitrate(1)
                client.set_pipeline()
                write_entries(client, scenario, seed)
                yield Softswitch(dataplane, client, stream)
            finally:
                stream.cancel()
                client.close()
    finally:
        dataplane.close()


def visible(packets: Iterable[Packet], ports: Sequence[int] = SEEN_PORTS) -> Answer:
    """What a tester at the wires and the controller can see, by port, in each port's order."""
    return sorted(
        (
            (port, data)
            for port, data in packets
            if port in ports and (port == CPU_PORT or len(data) >= FIRST_BYTES)
        ),
        key=lambda packet: packet[0],
    )


def counter_values(client: RawClient) -> dict[str, tuple[int, int]]:
    """(packets, bytes) of every counter cell and of every entry with a direct counter."""
    return {**_indirect_counters(client), **_direct_counters(client)}


def _indirect_counters(client: RawClient) -> dict[str, tuple[int, int]]:
    values = {}
    for counter in client.info.counters:
        for index in range(counter.size):
            # One by one: BMv2 fails to read all cells of a counter at once.
            query = p4r.CounterEntry(counter_id=counter.preamble.id, index=p4r.Index(index=index))
            for found in client.read(p4r.Entity(counter_entry=query)):
                data = found.counter_entry.data
                if data.packet_count or data.byte_count:
                    name = f"{counter.preamble.alias} {index}"
                    values[name] = data.packet_count, data.byte_count
    return values


def _is_everything(field: Any, widths: Mapping[int, int]) -> bool:
    """Whether a match is a range of all values, which P4Runtime leaves out and BMv2 does not."""
    top = (1 << widths[field.field_id]) - 1
    return (
        field.WhichOneof("field_match_type") == "range"
        and int.from_bytes(field.range.low) == 0
        and int.from_bytes(field.range.high) == top
    )


def _direct_counters(client: RawClient) -> dict[str, tuple[int, int]]:
    widths = {
        table.preamble.id: {field.id: field.bitwidth for field in table.match_fields}
        for table in client.info.tables
    }
    values = {}
    for counter in client.info.direct_counters:
        table = p4r.TableEntry(table_id=counter.direct_table_id)
        query = p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=table))
        for found in client.read(query):
            data = found.direct_counter_entry.data
            key = found.direct_counter_entry.table_entry
            if data.packet_count or data.byte_count:
                matched = [
                    field.SerializeToString(deterministic=True).hex()
                    for field in key.match
                    if not _is_everything(field, widths[key.table_id])
                ]
                name = f"{counter.preamble.alias} {' '.join(sorted(matched))} {key.priority}"
                values[name] = data.packet_count, data.byte_count
    return values


def save(scenario: Scenario, recording: Recording) -> Path:
    """Write a recording; the same content gives the same file."""
    remains = recording.remains
    content = {
        "seed": recording.seed,
        "packets": [
            [port, data.hex(), [[to, left.hex()] for to, left in answer]]
            for port, data, answer in recording.packets
        ],
        "counters": {name: list(value) for name, value in sorted(remains.counters.items())},
        "registers": dict(sorted(remains.registers.items())),
        "digests": dict(sorted(remains.digests.items())),
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
    remains = Remains(counters, content["registers"], content["digests"])
    return Recording(content["seed"], packets, remains)
