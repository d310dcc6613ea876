# SPDX-License-Identifier: Apache-2.0
"""Digests in words, and the switches that a path crosses."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from controller.addressing import NIC_HOST_PORT, DeviceKind, EntropyValue
from controller.ev_events import (
    EvCause,
    EvEvent,
    EvState,
    LinkEvent,
    PlaneChange,
    event_from_json,
    path_devices,
)
from controller.fabric import Fabric
from controller.path import trace
from tests.controller.strategies import fabrics
from topologies.processes import REPOSITORY
from topologies.schema import load_topology

SAMPLE = {
    "qp": 0x123456, "path_group": 3, "generation": 7,
    "path_ev": EntropyValue(plane=2, uplink=600).path_ev, "from_state": 1, "to_state": 2,
    "cause": 5, "plane_change": 1, "time": 1 << 40,
}  # fmt: skip
EVENT = EvEvent(
    nic="n0-0", group=3, plane=2, uplink=600, before=EvState.SKIP, after=EvState.ASSUMED_BAD,
    cause=EvCause.LOSS, plane_change=PlaneChange.ASSUMED_DOWN, generation=7, qp=0x123456,
    time_us=1 << 40,
)  # fmt: skip


def test_a_digest_in_words() -> None:
    assert EvEvent.from_sample("n0-0", SAMPLE) == EVENT


@pytest.mark.parametrize("member", ["from_state", "to_state", "cause", "plane_change"])
def test_numbers_without_a_meaning_are_refused(member: str) -> None:
    with pytest.raises(ValueError, match="99"):
        EvEvent.from_sample("n0-0", SAMPLE | {member: 99})


@pytest.mark.parametrize("event", [EVENT, LinkEvent("n0-0", 3, up=False)])
def test_json_and_back(event: EvEvent | LinkEvent) -> None:
    assert event_from_json(json.loads(json.dumps(event.to_json()))) == event


MINI = Fabric.from_topology(load_topology(REPOSITORY / "topologies" / "mini.yaml"))


@given(fabrics(), st.data())
def test_a_paths_devices_are_those_of_its_trace(fabric: Fabric, data: st.DataObject) -> None:
    nic = data.draw(st.sampled_from(list(fabric.devices(DeviceKind.NIC))))
    group = data.draw(st.integers(0, fabric.groups - 1))
    plane = data.draw(st.integers(0, fabric.planes - 1))
    uplink = data.draw(st.integers(0, fabric.uplinks - 1))
    source, _ = fabric.neighbour(nic, NIC_HOST_PORT)
    target = fabric.device_at(fabric.host_row(group, fabric.hosts_per_group - 1))
    assume(source != target)
    way = trace(fabric, source.name, target.name, EntropyValue(plane, uplink))
    assert tuple(path_devices(fabric, nic, group, plane, uplink)) == way.switches


@pytest.mark.parametrize("place", [(2, 0, 0), (0, 2, 0), (1, 1, 2)])
def test_a_path_that_the_fabric_does_not_have_is_refused(place: tuple[int, int, int]) -> None:
    with pytest.raises(IndexError, match="mini has 2 planes, 2 uplinks, 2 groups"):
        path_devices(MINI, MINI.device("n0-0"), *place)
