# SPDX-License-Identifier: Apache-2.0
"""The static tables: by hand on mini, laws on random fabrics, and the time at full size."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given

from controller import addressing as addr
from controller.addressing import DeviceKind
from controller.fabric import Fabric
from controller.routes import nic_templates, static_tables
from tests.controller.strategies import fabrics, shipped

BLOCK = 0xFCBBBB00


def test_tables_of_a_t0_by_hand() -> None:
    fabric = shipped("mini")
    t0 = fabric.device("p1t0-1")
    tables = static_tables(fabric)
    assert int(tables.my_sid[t0.row]) == BLOCK << 16 | 0x2401
    fib = tables.usid_fib
    within = fib.of(t0.row)
    found = list(zip(fib.key[within].tolist(), fib.port[within].tolist(), strict=True))
    assert found == [
        (BLOCK << 16 | 0x6400, 1),
        (BLOCK << 16 | 0x6401, 2),
        (BLOCK << 16 | 0x4400, 3),
        (BLOCK << 16 | 0x4401, 4),
    ]
    assert [addr.mac_text(mac) for mac in fib.dst_mac[within].tolist()] == [
        *("02:18:00:00:08:03", "02:18:00:00:0c:03"),  # n1-0 and n1-1, port 3
        *("02:11:00:00:00:02", "02:11:00:00:04:02"),  # p1t1-0 and p1t1-1, port 2
    ]
    assert addr.mac_text(int(fib.src_mac[within][0])) == "02:09:00:00:04:01"

    local = tables.local_sid
    assert local.key[local.of(t0.row)].tolist() == [0xE001, 0xE002, 0xE003, 0xE004]
    routes = tables.ipv6_fib
    within = routes.of(t0.row)
    columns = (routes.suffix, routes.prefix_len, routes.port)
    assert list(zip(*(column[within].tolist() for column in columns), strict=True)) == [
        (0x10001, 128, 1),
        (0x10002, 128, 2),
        (0x00000, 112, 0),
    ]
    assert tables.uplinks.key[tables.uplinks.of(t0.row)].tolist() == [0, 1]


def test_tables_of_a_t1_by_hand() -> None:
    fabric = shipped("lab")
    t1 = fabric.device("p2t1-3")
    tables = static_tables(fabric)
    fib = tables.usid_fib
    within = fib.of(t1.row)
    assert fib.key[within].tolist() == [BLOCK << 16 | 0x2800, BLOCK << 16 | 0x2801]
    assert fib.port[within].tolist() == [1, 2]
    routes = tables.ipv6_fib
    within = routes.of(t1.row)
    assert routes.suffix[within].tolist() == [0x00000, 0x10000]
    assert routes.prefix_len[within].tolist() == [112, 112]
    assert routes.port[within].tolist() == [1, 2]
    assert len(tables.uplinks.key[tables.uplinks.of(t1.row)]) == 0


@given(fabrics())
def test_usids_are_unique_in_every_table_and_never_zero(fabric: Fabric) -> None:
    tables = static_tables(fabric)
    assert len(np.unique(tables.my_sid)) == fabric.switch_count
    for table in (tables.usid_fib, tables.local_sid):
        assert np.all(table.key & np.uint64(0xFFFF) != 0)
        for row in range(fabric.switch_count):
            keys = table.key[table.of(row)]
            assert len(np.unique(keys)) == len(keys)
            # Neither is a switch's own uSID a next hop of its: there would be no end to it.
            assert tables.my_sid[row] not in keys


@given(fabrics())
def test_entries_lead_over_a_cable_to_the_right_neighbour(fabric: Fabric) -> None:
    tables = static_tables(fabric)
    for device in fabric.devices(DeviceKind.T0, DeviceKind.T1):
        table = tables.usid_fib
        for entry in range(*table.of(device.row).indices(len(table.key))):
            peer, peer_port = fabric.neighbour(device, int(table.port[entry]))
            assert int(table.dst_mac[entry]) == fabric.mac(peer, peer_port)
            assert int(table.src_mac[entry]) == fabric.mac(device, int(table.port[entry]))
            if peer.kind is not DeviceKind.NIC:
                assert table.key[entry] == tables.my_sid[peer.row]


@given(fabrics())
def test_plain_addresses_have_a_route_everywhere(fabric: Fabric) -> None:
    routes = static_tables(fabric).ipv6_fib
    for host in fabric.devices(DeviceKind.HOST):
        address = fabric.host_address(host)
        for switch in fabric.devices(DeviceKind.T0, DeviceKind.T1):
            entry = routes.lookup(switch.row, address)
            assert entry is not None
            assert routes.group[entry] == host.group
            if switch.group == host.group:
                peer, _ = fabric.neighbour(switch, int(routes.port[entry]))
                assert (peer.group, peer.downlink) == (host.group, host.downlink)
            elif switch.kind is DeviceKind.T0:
                assert routes.port[entry] == 0
            else:
                peer, _ = fabric.neighbour(switch, int(routes.port[entry]))
                assert peer.group == host.group
    assert routes.lookup(0, 1) is None


def test_templates() -> None:
    fabric = shipped("mini")
    found = [addr.ipv6(template) for template in nic_templates(fabric, 1)]
    assert found == ["fcbb:bb00:2001:4000:2000:6000::", "fcbb:bb00:2001:6000::"]


def test_full_size_takes_seconds() -> None:
    fabric = shipped("full-131k")
    start = time.monotonic()
    tables = static_tables(fabric)
    seconds = time.monotonic() - start
    print(f"full-131k: {len(tables.usid_fib.key):,} uSID entries in {seconds:.2f} s")
    assert fabric.switch_count == 6144
    assert len(tables.my_sid) == 6144
    assert len(tables.usid_fib.key) == 6144 * 512  # with my_sid 513 per switch
    assert np.all(np.diff(tables.usid_fib.start) == 512)
    assert len(fabric.links) == 131_072 * 17
    # Every switch of a kind and plane has the same keys: no per-host state in a T1.
    keys = tables.usid_fib.key.reshape(6144, 512)
    for plane in range(8):
        assert np.all(keys[plane * 512 : (plane + 1) * 512] == keys[plane * 512])
    assert seconds < 20  # 2 s on two idle cores
