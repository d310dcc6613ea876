# SPDX-License-Identifier: Apache-2.0
"""ECMP over both switches: NIC chooses the plane, T0 the uplink, and the two choices differ."""

from __future__ import annotations

from collections import Counter

from finsy import P4IndirectAction, P4TableAction

from controller.addressing import group_prefix, nic_plane_port
from mrc.opcodes import Opcode
from ptf_tests import nic_world, world
from ptf_tests.bench import Bench
from ptf_tests.device import entry
from ptf_tests.packets import ETHERNET_BYTES, ethernet, mrc

FLOWS = 512
PLANES = range(4)
ECMP_GROUP = 1


def test_flows_of_a_plane_use_all_uplinks_of_its_t0(nic: Bench, fabric: Bench) -> None:
    """With the same hash at both, a plane's flows would all agree on one uplink (polarisation)."""
    to_ecmp = P4TableAction("ecmp", plane_set=nic_world.PLANE_SET)
    nic.device.insert(
        nic_world.destination(nic_world.OTHER_GROUP, to_ecmp),
        *map(nic_world.link, nic_world.PORTS),
        *nic_world.plane_set([*PLANES]),
    )
    uplinks = [world.up_port(u) for u in range(4)]
    members = P4IndirectAction([(1, world.next_hop("forward", port)) for port in uplinks])
    prefix, length = group_prefix(nic_world.OTHER_GROUP)
    fabric.device.insert(
        entry("ecmp_groups", {"group_id": ECMP_GROUP}, members),
        world.ipv6_route(prefix, length, P4TableAction("to_ecmp", group_id=ECMP_GROUP)),
    )
    packets = [
        mrc(Opcode.SACK, nic_world.HOST, nic_world.PEER, source_port=0xC000 + n)
        for n in range(FLOWS)
    ]
    sent = nic.spread(nic_world.HOST_PORT, [nic_world.from_host(packet) for packet in packets])
    t0_port = world.down_port(nic_world.DOWNLINK)
    paths: Counter[tuple[int, int]] = Counter()
    for port, frames in sent.items():
        arriving = [ethernet(world.arriving(t0_port), f[ETHERNET_BYTES:]) for f in frames]
        for uplink, out in fabric.spread(t0_port, arriving).items():
            paths[port - nic_plane_port(0), uplink] += len(out)
    assert set(paths) == {(plane, uplink) for plane in PLANES for uplink in uplinks}
    assert min(paths.values()) >= FLOWS / len(paths) / 2
