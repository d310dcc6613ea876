# SPDX-License-Identifier: Apache-2.0
"""Notices about interfaces become masks of planes that are down."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.addressing import DeviceKind
from controller.fabric import Fabric
from controller.nic_agent.plane_ports import (
    IFF_RUNNING,
    LinkNotice,
    PlanePort,
    PlaneStates,
    plane_ports,
)
from tests.controller.strategies import fabrics

IFF_UP = 0x1
PORTS = {
    f"n{nic}-eth{2 + plane}": PlanePort(f"n{nic}", plane) for nic in (0, 1) for plane in (0, 7)
}
NAMES = (*PORTS, "eth0", "lo")


def notice(name: str, *, running: bool, present: bool = True) -> LinkNotice:
    """A notice about an interface whose index belongs to its name."""
    return LinkNotice(NAMES.index(name) + 1, name, IFF_UP | running * IFF_RUNNING, present)


notices = st.builds(notice, st.sampled_from(NAMES), running=st.booleans(), present=st.booleans())


def states(dump: list[LinkNotice] | None = None) -> PlaneStates:
    found = PlaneStates(PORTS)
    found.replace([notice(name, running=True) for name in PORTS] if dump is None else dump)
    return found


def test_all_run() -> None:
    assert states().masks() == {"n0": 0, "n1": 0}


def test_an_interface_that_is_not_there_is_down() -> None:
    assert states([]).masks() == {"n0": 0x81, "n1": 0x81}


def test_down_and_up_again() -> None:
    found = states()
    assert found.hear(notice("n1-eth9", running=False)) == (PlanePort("n1", 7),)
    assert found.masks() == {"n0": 0, "n1": 0x80}
    assert found.hear(notice("n1-eth9", running=False)) == ()
    assert found.hear(notice("n1-eth9", running=True)) == (PlanePort("n1", 7),)
    assert found.masks() == {"n0": 0, "n1": 0}


def test_removed_interface_is_down_whatever_its_flags() -> None:
    found = states()
    found.hear(notice("n0-eth2", running=True, present=False))
    assert found.masks()["n0"] == 1


def test_renamed_interface_leaves_its_old_port() -> None:
    found = states()
    index = NAMES.index("n0-eth2") + 1
    assert found.hear(LinkNotice(index, "other", IFF_RUNNING)) == (PlanePort("n0", 0),)


def test_removal_of_a_replaced_interface_does_not_take_the_new_one_down() -> None:
    found = states()
    found.hear(LinkNotice(99, "n0-eth2", IFF_RUNNING))
    assert found.hear(notice("n0-eth2", running=False, present=False)) == ()


@given(st.lists(notices))
def test_the_last_notice_about_each_interface_counts(heard: list[LinkNotice]) -> None:
    found = states()
    for item in heard:
        found.hear(item)
    last = {item.interface: item.running for item in heard}
    expected = {"n0": 0, "n1": 0}
    for name, port in PORTS.items():
        if not last.get(name, True):
            expected[port.nic] |= 1 << port.plane
    assert found.masks() == expected


@given(st.lists(notices))
def test_changes_are_exactly_the_bits_that_differ(heard: list[LinkNotice]) -> None:
    found = states()
    for item in heard:
        before = found.masks()
        toggled = dict.fromkeys(before, 0)
        for port in found.hear(item):
            toggled[port.nic] ^= 1 << port.plane
        assert found.masks() == {nic: mask ^ toggled[nic] for nic, mask in before.items()}


@given(st.lists(notices), st.lists(notices, unique_by=lambda item: item.interface))
def test_a_dump_forgets_what_was_heard(heard: list[LinkNotice], dump: list[LinkNotice]) -> None:
    found = states()
    for item in heard:
        found.hear(item)
    found.replace(dump)
    assert found.masks() == states(dump).masks()


@given(fabrics())
def test_every_plane_port_of_a_fabric_once(fabric: Fabric) -> None:
    ports = plane_ports(fabric)
    nics = {nic.name for nic in fabric.devices(DeviceKind.NIC)}
    expected = {PlanePort(nic, plane) for nic in nics for plane in range(fabric.planes)}
    assert set(ports.values()) == expected
    assert len(ports) == len(expected)
    for name, port in ports.items():
        peer, _ = fabric.neighbour(fabric.device(port.nic), int(name.rpartition("-eth")[2]))
        assert peer.plane == port.plane
