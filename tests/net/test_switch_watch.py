# SPDX-License-Identifier: Apache-2.0
"""Watch ports and backup replicas on real interfaces: a cut link moves the traffic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from finsy.proto import p4r

from softswitch.dataplane import Dataplane
from softswitch.values import DataplaneOptions
from tests.net.test_switch_ports import PAIRS, bound, ip, links, wait_for, wait_for_state
from tests.softswitch.p4rt import INSERT, RawClient, multicast, primary, update

__all__ = ["links"]
PACKETS = 32


@pytest.fixture
def client(links: None) -> Iterator[tuple[Dataplane, RawClient]]:
    """Ports 1 and 2 with both links; packets for either leave by a group, multicast by port 1."""
    del links
    dataplane = Dataplane(
        DataplaneOptions(ports={number: ours for number, (ours, _) in enumerate(PAIRS, start=1)})
    )
    try:
        dataplane.start()
        for port in (1, 2):
            wait_for_state(dataplane, port, True)
        with primary(dataplane) as client:
            entry = client.entry("ecmp", {"ether_type": 0x1234})
            chosen = entry.action.action_profile_action_set.action_profile_actions
            for port in (1, 2):
                one = chosen.add(weight=1, watch_port=bytes((port,)))
                one.action.CopyFrom(client.action("forward", port, port))
            message = multicast(3, (b"\1", 5))
            replica = message.multicast_group_entry.replicas[0]
            replica.backup_replicas.add(port=b"\2", instance=6)
            client.write(
                update(INSERT, table_entry=entry),
                update(INSERT, packet_replication_engine_entry=message),
                client.insert("exact_table", {"dst_mac": 0xFF}, "flood", 3),
            )
            yield dataplane, client
    finally:
        dataplane.close()


def sent_by(dataplane: Dataplane, packets: list[bytes]) -> dict[int, int]:
    """How many of some packets, which enter at port 2, leave at each port."""
    before = {port: dataplane.port_stats(port).tx_packets for port in (1, 2)}

    def left() -> dict[int, int]:
        return {port: dataplane.port_stats(port).tx_packets - before[port] for port in (1, 2)}

    with bound("sp2p") as sender:
        for data in packets:
            sender.send(data)
    wait_for(lambda: sum(left().values()) >= len(packets), "packets leave")
    return left()


def flow(number: int) -> bytes:
    macs = (number * 0x9E3779B97F4A7C15 % (1 << 88)).to_bytes(12, "big")
    return macs + b"\x12\x34" + bytes(50)


def test_a_cut_link_moves_the_traffic(client: tuple[Dataplane, RawClient]) -> None:
    dataplane, _ = client
    flows = [flow(number) for number in range(1, PACKETS + 1)]
    flooded = [bytes(5) + b"\xff" + bytes(8) + bytes(50)]
    both = sent_by(dataplane, flows)
    assert both[1] > 0
    assert both[2] > 0
    assert sent_by(dataplane, flooded) == {1: 1, 2: 0}
    ip("link set sp1p down")
    wait_for_state(dataplane, 1, False)
    wait_for(lambda: sent_by(dataplane, flows) == {1: 0, 2: PACKETS}, "port 1 is passed over")
    assert sent_by(dataplane, flooded) == {1: 0, 2: 1}
    ip("link set sp1p up")
    wait_for_state(dataplane, 1, True)
    wait_for(lambda: sent_by(dataplane, flows) == both, "port 1 is used again")
    assert sent_by(dataplane, flooded) == {1: 1, 2: 0}


def test_a_deleted_interface(client: tuple[Dataplane, RawClient]) -> None:
    """The switch goes on, writes succeed, and what watches the port is passed over."""
    dataplane, p4runtime = client
    flows = [flow(number) for number in range(1, PACKETS + 1)]
    ip("link del sp1")
    wait_for_state(dataplane, 1, False)
    wait_for(lambda: sent_by(dataplane, flows) == {1: 0, 2: PACKETS}, "port 1 is passed over")
    p4runtime.write(p4runtime.insert("exact_table", {"dst_mac": 5}, "forward", 1, 1))
    p4runtime.read(p4r.Entity(table_entry=p4runtime.entry("exact_table")))
