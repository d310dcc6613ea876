# SPDX-License-Identifier: Apache-2.0
"""Linux's own SRv6 in the place of a T1 (RFC 9800, NEXT-C-SID)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from controller import addressing as addr
from controller.addressing import DeviceKind, UsidKind
from controller.drops import DropReason
from tests.net.running import counters, namespace_of, running, udp_socket, via
from topologies.emulation import Emulation

pytestmark = pytest.mark.net

PORT = 9000
COUNT = 50


@pytest.fixture(scope="module")
def with_linux_t1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulation]:
    """mini with one T1 per plane, both played by Linux: no packet gets by without it."""
    topology = tmp_path_factory.mktemp("linux") / "topology.yaml"
    topology.write_text(
        "name: linux\nplanes: 2\nt0_per_plane: 2\nt1_per_plane: 1\nhosts_per_t0_group: 1\n"
    )
    linux = ("p0t1-0", "p1t1-0")
    with running(topology, topology.parent / "run", linux_switches=linux) as emulation:
        for name in linux:
            become_t1(emulation, name)
        yield emulation


def become_t1(emulation: Emulation, name: str) -> None:
    """Static uN forwarding as a T1 has it: one own uSID, one route per T0."""
    fabric = emulation.fabric
    device = fabric.device(name)
    ports = {
        port: fabric.interface(device, port)
        for port in fabric.ports.port[fabric.ports.of(device.row)].tolist()
    }
    own = addr.usid(UsidKind.T1, device.plane, device.index)
    lines = [
        "link set dev lo up",
        *(f"link set dev {interface} up" for interface in ports.values()),
        f"route add {prefix(emulation, own)} encap seg6local action End "
        f"flavors next-csid lblen 32 nflen 16 count dev {ports[1]}",
    ]
    for port, interface in ports.items():
        t0, t0_port = fabric.neighbour(device, port)
        neighbour, hop = via(interface, addr.mac_text(fabric.mac(t0, t0_port)))
        usid = addr.usid(UsidKind.T0, t0.plane, t0.index)
        lines += [neighbour, f"route add {prefix(emulation, usid)} {hop}"]
    settings = ["net.ipv6.conf.all.forwarding=1", "net.ipv6.conf.all.seg6_enabled=1"]
    settings += [f"net.ipv6.conf.{interface}.seg6_enabled=1" for interface in ports.values()]
    with namespace_of(emulation, name) as namespace:
        namespace.run(["sysctl", "-qw", *settings])
        namespace.ip(lines)


def prefix(emulation: Emulation, usid: int) -> str:
    """The /48 of a uSID as the active one."""
    return f"{addr.ipv6(addr.carrier(emulation.fabric.block, usid))}/48"


def test_linux_takes_the_place_of_a_t1(with_linux_t1: Emulation) -> None:
    emulation = with_linux_t1
    before = counters(emulation)
    passed = {name: un_packets(emulation, name) for name in ("p0t1-0", "p1t1-0")}
    with udp_socket(emulation, "h0-0", PORT) as here, udp_socket(emulation, "h1-0", PORT) as there:
        for number in range(COUNT):
            here.sendto(b"forth %d" % number, there.getsockname())
            data, sender = there.recvfrom(100)
            assert (data, sender[:2]) == (b"forth %d" % number, here.getsockname()[:2])
            there.sendto(b"back %d" % number, sender)
            assert here.recv(100) == b"back %d" % number
    by_linux = sum(un_packets(emulation, name) - passed[name] for name in passed)
    assert by_linux == 2 * COUNT
    counted = counters(emulation) - before
    for name, device in counted.devices.items():
        device.drops[DropReason.HOP_LIMIT] = 0  # Linux's reports that it listens to all routers
        assert not device.drops.any(), name
    # Twice at each T0: on the way up for one direction, on the way down for the other.
    t0s = [device.name for device in emulation.fabric.devices(DeviceKind.T0)]
    assert sum(int(counted.devices[name].un[0]) for name in t0s) == 4 * COUNT


def un_packets(emulation: Emulation, name: str) -> int:
    """Packets whose active uSID the kernel consumed as its own."""
    with namespace_of(emulation, name) as namespace:
        shown = namespace.run(["ip", "-6", "-stats", "route", "show"])
    found = re.findall(r"seg6local.*packets (\d+) bytes \d+ errors (\d+)", shown)
    assert found, shown
    assert {errors for _, errors in found} == {"0"}, shown
    return sum(int(packets) for packets, _ in found)


def test_largest_packet_crosses_linux(with_linux_t1: Emulation) -> None:
    emulation = with_linux_t1
    payload = bytes(emulation.fabric.topology.host_mtu - 40 - 8)
    with udp_socket(emulation, "h0-0", PORT) as here, udp_socket(emulation, "h1-0", PORT) as there:
        here.sendto(payload, there.getsockname())
        assert there.recv(65536) == payload
