# SPDX-License-Identifier: Apache-2.0
"""Names, rows and cables of fabrics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from controller.addressing import DeviceKind
from controller.fabric import Fabric, FabricError, LinkKind
from tests.controller.strategies import fabrics, shipped


def test_names_ids_and_wiring_of_mini() -> None:
    fabric = shipped("mini")
    names = [device.name for device in fabric.devices()]
    assert names == [
        *("p0t0-0", "p0t0-1", "p1t0-0", "p1t0-1", "p0t1-0", "p0t1-1", "p1t1-0", "p1t1-1"),
        *("n0-0", "n0-1", "n1-0", "n1-1", "h0-0", "h0-1", "h1-0", "h1-1"),
    ]
    assert [device.device_id for device in fabric.devices()] == [*range(1, 13), *[None] * 4]

    def behind(name: str, port: int) -> tuple[str, int]:
        peer, peer_port = fabric.neighbour(fabric.device(name), port)
        return peer.name, peer_port

    assert behind("h1-0", 0) == ("n1-0", 1)
    assert behind("n1-0", 3) == ("p1t0-1", 1)
    assert behind("p1t0-1", 2) == ("n1-1", 3)
    assert behind("p1t0-1", 4) == ("p1t1-1", 2)
    assert behind("p0t1-1", 1) == ("p0t0-0", 4)
    assert fabric.interface(fabric.device("p1t0-1"), 4) == "p1t0-1-eth4"


@given(fabrics())
def test_names_rows_and_ids_agree(fabric: Fabric) -> None:
    devices = list(fabric.devices())
    assert len(devices) == fabric.device_count
    assert len({device.name for device in devices}) == len(devices)
    for row, device in enumerate(devices):
        assert device.row == row
        assert fabric.device(device.name) == device
        assert fabric.kind_of[row] == device.kind
        assert fabric.plane_of[row] == device.plane
        assert fabric.index_of[row] == device.index
    ids = [device.device_id for device in devices if device.device_id is not None]
    assert ids == list(range(1, fabric.p4_device_count + 1))


@given(fabrics())
def test_every_port_has_one_cable_and_cables_have_two_ends(fabric: Fabric) -> None:
    links, ports = fabric.links, fabric.ports
    assert len(ports.port) == 2 * len(links)
    seen = set()
    for device in fabric.devices():
        within = ports.of(device.row)
        numbers = ports.port[within].tolist()
        expected = {
            DeviceKind.T0: range(1, 1 + fabric.hosts_per_group + fabric.uplinks),
            DeviceKind.T1: range(1, 1 + fabric.groups),
            DeviceKind.NIC: range(1, 2 + fabric.planes),
            DeviceKind.HOST: range(1),
        }[device.kind]
        assert numbers == list(expected)
        for port in numbers:
            peer, peer_port = fabric.neighbour(device, port)
            assert fabric.neighbour(peer, peer_port) == (device, port)
            seen.add(fabric.mac(device, port))
    assert len(seen) == len(ports.port)  # MAC addresses are unique


@given(fabrics())
def test_planes_are_not_joined(fabric: Fabric) -> None:
    links = fabric.links
    up = links.kind == LinkKind.T0_T1
    assert np.array_equal(fabric.plane_of[links.a[up]], fabric.plane_of[links.b[up]])


def test_arrays_are_read_only() -> None:
    fabric = shipped("mini")
    with pytest.raises(ValueError, match="read-only"):
        fabric.links.a[0] = 5
    with pytest.raises(ValueError, match="read-only"):
        fabric.ports.peer[0] = 5


@pytest.mark.parametrize(
    ("name", "close"),
    [("p0t0-2", "p0t0-0"), ("p2t1-1", "p0t1-1"), ("p0t00", "p0t0-0"), ("h0-00", "h0-0")],
)
def test_unknown_names_list_close_ones(name: str, close: str) -> None:
    with pytest.raises(FabricError) as caught:
        shipped("mini").device(name)
    message = str(caught.value)
    assert f"mini has no device {name!r}; did you mean " in message
    assert close in message.split("?")[0]
    assert "allowed: p0t0-0 to p1t0-1, p0t1-0 to p1t1-1, h0-0 to h1-1, n0-0 to n1-1" in message


def test_unknown_names_at_full_size_are_fast_and_ports_are_checked() -> None:
    fabric = shipped("full-131k")
    with pytest.raises(FabricError, match=r"did you mean .*p7t0-51"):
        fabric.device("p7t0-512")
    mini = shipped("mini")
    with pytest.raises(FabricError, match=r"p0t1-0 has no port 3; allowed: 1\.\.2"):
        mini.neighbour(mini.device("p0t1-0"), 3)
    with pytest.raises(FabricError, match=r"no plane 2; allowed: 0\.\.1"):
        mini.t0_row(2, 0)
    with pytest.raises(FabricError, match="p0t0-0 is a T0; allowed: a host"):
        mini.host("p0t0-0")
