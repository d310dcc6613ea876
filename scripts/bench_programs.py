# SPDX-License-Identifier: Apache-2.0
"""The programs that bench_switch.py measures: packets, and the entries that forward them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from finsy.proto import p4r

from controller import addressing
from controller.addressing import UsidKind
from controller.entries import desired_entries
from controller.fabric import Fabric
from controller.p4rt import load_program
from controller.policy import Policy, Spray
from mrc.headers import Bth, Ipv6, Meth, Reth, Udp
from mrc.opcodes import Opcode
from mrc.options import DEFAULT_OPTIONS
from mrc.packet import Packet
from tests.softswitch.p4rt import RawClient
from topologies.schema import Topology

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = {
    "un": ROOT / "tests/softswitch/programs/build",
    "fabric": ROOT / "p4src/build",
    "nic": ROOT / "p4src/build",
}
FRAME_BYTES = 254
BLOCK = 0xFCBBBB00
OWN = addressing.usid(UsidKind.T0, 0, 0)
NEXT = addressing.usid(UsidKind.T1, 0, 0)
ETHERNET = bytes.fromhex("020000000001 020000000002 86dd")
NIC_FABRIC = Fabric.from_topology(
    Topology(name="bench", planes=1, t0_per_plane=2, t1_per_plane=32, hosts_per_t0_group=1)
)


def packet(program: str) -> bytes:
    """What is sent to a switch with this program, FRAME_BYTES long."""
    return _host_packet() if program == "nic" else _carrier_packet()


def _carrier_packet() -> bytes:
    """A carrier with two uSIDs, the first the switch's own, padded to FRAME_BYTES."""
    source = addressing.host_address(0, 0)
    carrier = BLOCK << 96 | OWN << 80 | NEXT << 64
    payload = bytes(FRAME_BYTES - 54)
    header = (6 << 28).to_bytes(4) + len(payload).to_bytes(2) + bytes([59, 64])
    return ETHERNET + header + source.to_bytes(16) + carrier.to_bytes(16) + payload


def _host_packet() -> bytes:
    """A WRITE that h0-0 of NIC_FABRIC sends to h1-0, with FRAME_BYTES; the NIC adds 40."""
    source, destination = (
        addressing.host_address(group, 0).to_bytes(16) for group in range(NIC_FABRIC.groups)
    )
    headers = (Meth(msn=1), Reth(va=0, rkey=1, dma_length=1))
    packet = Packet(
        Ipv6(dscp=DEFAULT_OPTIONS.code_points.trimmable, source=source, destination=destination),
        Udp(0xC000, DEFAULT_OPTIONS.udp_ports[0]),
        Bth(opcode=Opcode.WRITE_ONLY, dqp=0x100, psn=1),
        headers,
    )
    bare = len(ETHERNET) + len(packet.build())
    return ETHERNET + replace(packet, payload=bytes(FRAME_BYTES - bare)).build()


def _nic_routes() -> list[Any]:
    """The entries of h0-0's NIC, as the controller computes them."""
    schema = load_program("nic")
    updates = []
    for entry in desired_entries(NIC_FABRIC, "n0-0", Policy(spray=Spray(mode="round_robin"))):
        update = p4r.Update(type=p4r.Update.INSERT)
        update.entity.CopyFrom(entry.encode(schema))
        updates.append(update)
    return updates


def routes(client: RawClient, program: str) -> list[Any]:
    """What makes a switch forward the program's packet from port 1 to port 2."""
    if program == "nic":
        return _nic_routes()
    next_hop = {"locator_node": BLOCK << 16 | NEXT}
    own = {"locator_node": BLOCK << 16 | OWN}
    if program == "un":
        forward = client.insert("routes", next_hop, "forward", 2, 1, 2)
        return [client.insert("my_sid", own, "un"), forward]
    return [
        client.insert("locator_block", {"block": BLOCK}, "in_block"),
        client.insert("my_sid", own, "un"),
        client.insert("usid_fib", next_hop, "forward", 2, 1, 2),
    ]
