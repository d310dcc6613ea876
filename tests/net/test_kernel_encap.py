# SPDX-License-Identifier: Apache-2.0
"""Linux as the sender: a host's kernel encapsulates, our NIC and switches do the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from controller import addressing as addr
from controller.addressing import UsidKind
from controller.counters import FabricCounters
from tests.net.running import counters, namespace_of, running, udp_socket, via
from topologies.emulation import Emulation

pytestmark = pytest.mark.net

MINI = Path(__file__).resolve().parents[2] / "topologies" / "mini.yaml"
PORT = 9000


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulation]:
    """mini as it is."""
    with running(MINI, tmp_path_factory.mktemp("mini") / "run") as emulation:
        yield emulation


SOURCE, LOCAL, REMOTE = "h0-0", "h0-1", "h1-1"


def usids(*parts: tuple[UsidKind, int, int]) -> list[int]:
    """uSIDs of (kind, plane, index)."""
    return [addr.usid(*part) for part in parts]


def send_encapsulated(emulation: Emulation, host: str, mode: str, *segments: list[int]) -> None:
    """Let the source's kernel put these carriers around what it sends to `host`; check what comes.

    One packet per use: the route is removed again.
    """
    carriers = [addr.ipv6(addr.carrier(emulation.fabric.block, *segment)) for segment in segments]
    interface = emulation.inventory.hosts[SOURCE].interface
    target = emulation.inventory.hosts[host].address
    neighbour, hop = via(interface, "02:00:00:00:00:01")  # the NIC takes whatever the host sends
    block = f"{addr.ipv6(addr.carrier(emulation.fabric.block))}/32"
    encapsulate = f"{target}/128 encap seg6 mode {mode} segs {','.join(carriers)} dev {interface}"
    with namespace_of(emulation, SOURCE) as namespace:
        namespace.ip(
            [
                neighbour,
                f"sr tunsrc set {emulation.inventory.hosts[SOURCE].address}",
                f"route replace {block} {hop}",
                f"route add {encapsulate}",
            ]
        )
        try:
            exchange(emulation, host, f"{mode} {carriers}".encode())
        finally:
            namespace.ip([f"route del {encapsulate}", f"route del {block}"])


def exchange(emulation: Emulation, host: str, text: bytes) -> None:
    """Send one datagram and receive it."""
    with udp_socket(emulation, SOURCE, PORT) as here, udp_socket(emulation, host, PORT) as there:
        here.sendto(text, there.getsockname())
        data, sender = there.recvfrom(1000)
        assert data == text
        assert sender[0] == emulation.inventory.hosts[SOURCE].address


def passed(emulation: Emulation, before: FabricCounters, nic: str) -> list[str]:
    """The switches that consumed a uSID since `before`; nothing was dropped, `nic` delivered."""
    counted = counters(emulation) - before
    for name, device in counted.devices.items():
        assert not device.drops.any(), name
    assert counted.devices[nic].port_out[addr.NIC_HOST_PORT, 0] == 1
    return sorted(
        name for name, device in counted.devices.items() for _ in range(int(device.un[0]))
    )


# encap.red leaves the SRH away when there is one segment; encap has one with that segment in it.
@pytest.mark.parametrize("mode", ["encap.red", "encap"])
@pytest.mark.parametrize("plane", [0, 1])
@pytest.mark.parametrize("uplink", [0, 1])
def test_linux_encapsulates_for_another_group(
    mini: Emulation, mode: str, plane: int, uplink: int
) -> None:
    before = counters(mini)
    carrier = usids(
        (UsidKind.T0, plane, 0),
        (UsidKind.T1, plane, uplink),
        (UsidKind.T0, plane, 1),
        (UsidKind.DOWNLINK, plane, 1),
    )
    send_encapsulated(mini, REMOTE, mode, carrier)
    expected = [f"p{plane}t0-0", f"p{plane}t0-1", f"p{plane}t1-{uplink}"]
    assert passed(mini, before, "n1-1") == expected


@pytest.mark.parametrize("mode", ["encap.red", "encap"])
@pytest.mark.parametrize("plane", [0, 1])
def test_linux_encapsulates_within_a_group(mini: Emulation, mode: str, plane: int) -> None:
    before = counters(mini)
    send_encapsulated(
        mini, LOCAL, mode, usids((UsidKind.T0, plane, 0), (UsidKind.DOWNLINK, plane, 1))
    )
    assert passed(mini, before, "n0-1") == [f"p{plane}t0-0"]


@pytest.mark.parametrize("mode", ["encap.red", "encap"])
def test_linux_sends_a_list_of_carriers(mini: Emulation, mode: str) -> None:
    # The first carrier ends at the T1, which takes the next one from the SRH (RFC 9800, 4.1.1).
    before = counters(mini)
    first = usids((UsidKind.T0, 1, 0), (UsidKind.T1, 1, 0))
    second = usids((UsidKind.T0, 1, 1), (UsidKind.DOWNLINK, 1, 1))
    send_encapsulated(mini, REMOTE, mode, first, second)
    assert passed(mini, before, "n1-1") == ["p1t0-0", "p1t0-1", "p1t1-0"]
