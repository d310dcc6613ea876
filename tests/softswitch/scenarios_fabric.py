# SPDX-License-Identifier: Apache-2.0
"""The project's own programs on mini.yaml: a T0, a T1 and a NIC with the controller's entries."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from finsy import P4TableAction, P4TableEntry
from finsy.proto import p4r

from controller import addressing
from controller.addressing import UsidKind
from controller.entries import desired_entries
from controller.fabric import Fabric
from controller.p4rt import BUILD_DIR, load_program
from controller.policy import Policy, Spray
from tests.softswitch.p4rt import INSERT, RawClient
from tests.softswitch.scenarios import Packet, Scenario, mutated
from topologies.schema import load_topology

MINI = Path(__file__).parents[2] / "topologies" / "mini.yaml"
BLOCK = 0xFCBBBB00
PRIORITY_QUEUES = 2
PORTS = (4791, 4791, 4791, 4971, 53)


Change = Callable[[P4TableEntry], P4TableEntry]


def _full_queues(entry: P4TableEntry) -> P4TableEntry:
    """As the controller's, but that queues are never empty enough: all is trimmed or marked."""
    if entry.table_id != "port_config":
        return entry
    assert isinstance(entry.action, P4TableAction)
    settings = {name: 0 for name in entry.action.args if "threshold" in name}
    action = P4TableAction(entry.action.name, **entry.action.args | settings)
    return P4TableEntry("port_config", match=entry.match, action=action)


def _updates(program: str, device: str, change: Change) -> Callable[[RawClient], Sequence[Any]]:
    def updates(client: RawClient) -> Sequence[Any]:
        del client
        schema = load_program(program)
        fabric = Fabric.from_topology(load_topology(MINI))
        policy = Policy(spray=Spray(mode="round_robin"))
        return [
            p4r.Update(type=INSERT, entity=change(entry).encode(schema))
            for entry in desired_entries(fabric, device, policy)
            if isinstance(entry, P4TableEntry)
        ]

    return updates


def _usid(source: random.Random) -> int:
    kind = source.choice((UsidKind.T0, UsidKind.T0, UsidKind.T1, UsidKind.DOWNLINK, UsidKind.LOCAL))
    plane = source.choice((0, 0, 1, 7)) if kind is UsidKind.LOCAL else source.randrange(2)
    return addressing.usid(kind, plane, source.randrange(4))


def _carrier(source: random.Random) -> int:
    carrier = addressing.carrier(
        BLOCK, *(_usid(source) for _ in range(source.choice((1, 2, 3, 4, 6))))
    )
    return carrier if source.random() < 0.9 else carrier ^ 1 << source.randrange(128)


def _host(source: random.Random) -> int:
    host = addressing.host_address(source.randrange(2), source.randrange(2))
    return host if source.random() < 0.9 else host ^ 1 << source.randrange(128)


def _flow_label(source: random.Random) -> int:
    path_ev = addressing.path_ev(source.randrange(3), source.randrange(3), source.randrange(8))
    return source.choice((0, 0xE0000, 0xE0000, source.getrandbits(20) & 0xF0000)) | path_ev


def _udp(source: random.Random) -> bytes:
    payload = source.randbytes(source.randrange(16, 90))
    head = source.randrange(1 << 16).to_bytes(2) + source.choice(PORTS).to_bytes(2)
    return head + (8 + len(payload)).to_bytes(2) + source.randbytes(2) + payload


def _ipv6(source: random.Random, dst: int, next_header: int, payload: bytes) -> bytes:
    traffic_class = source.choice((0, 4, 5, 8, 9, 46, source.getrandbits(6))) << 2
    traffic_class |= source.randrange(4)
    word = 6 << 28 | traffic_class << 20 | _flow_label(source)
    hop_limit = source.choice((64, 64, 64, 64, 2, 1, 0, 255))
    head = word.to_bytes(4) + len(payload).to_bytes(2) + bytes([next_header, hop_limit])
    return head + _host(source).to_bytes(16) + dst.to_bytes(16) + payload


def _srh(source: random.Random, next_header: int, payload: bytes) -> bytes:
    count = source.randrange(1, 4)
    left = source.randrange(count + 1)
    head = bytes([next_header, 2 * count, source.choice((4, 4, 4, 3)), left, count - 1, 0, 0, 0])
    return head + b"".join(_carrier(source).to_bytes(16) for _ in range(count)) + payload


def _frame(source: random.Random, payload: bytes) -> bytes:
    ether_type = 0x86DD if source.random() < 0.95 else source.choice((0x0800, 0x88CC, 0x0806))
    return source.randbytes(12) + ether_type.to_bytes(2) + payload


def _plain(source: random.Random) -> bytes:
    return _ipv6(source, _host(source), source.choice((17, 17, 17, 6, 58)), _udp(source))


def _encapsulated(source: random.Random) -> bytes:
    inner, next_header = _plain(source), 41
    if source.random() < 0.25:
        inner, next_header = _srh(source, next_header, inner), 43
    return _ipv6(source, _carrier(source), next_header, inner)


def switch_packet(source: random.Random) -> Packet:
    """For a T0 or T1: carriers with and without routing header, plain packets, other protocols."""
    payload = _encapsulated(source) if source.random() < 0.75 else _plain(source)
    return source.randrange(1, 5), mutated(source, _frame(source, payload))


def nic_packet(source: random.Random) -> Packet:
    """From the host mostly plain, from the planes mostly what is for this NIC."""
    port = source.randrange(1, 4)
    if port == 1:
        payload = _plain(source) if source.random() < 0.8 else _encapsulated(source)
    elif source.random() < 0.8:
        own = addressing.own_carrier(BLOCK, port - 2, source.choice((0, 0, 0, 1)))
        payload = _ipv6(source, own, 41, _plain(source))
    else:
        payload = _encapsulated(source)
    return port, mutated(source, _frame(source, payload))


def _own(
    name: str,
    program: str,
    device: str,
    packet: Callable[[random.Random], Packet],
    change: Change = lambda entry: entry,
) -> Scenario:
    updates = _updates(program, device, change)
    return Scenario(name, updates, packet, program, BUILD_DIR, priority_queues=PRIORITY_QUEUES)


FABRIC = (
    _own("fabric-t0", "fabric", "p0t0-0", switch_packet),
    _own("fabric-full", "fabric", "p0t0-0", switch_packet, _full_queues),
    _own("fabric-t1", "fabric", "p0t1-1", switch_packet),
    _own("nic", "nic", "n0-0", nic_packet),
)
