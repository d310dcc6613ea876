# SPDX-License-Identifier: Apache-2.0
"""Desired entries: against the P4Info, and by following packets through them."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finsy import P4Schema, P4TableEntry
from hypothesis import given, settings
from hypothesis import strategies as st

from controller import addressing as addr
from controller.addressing import DeviceKind, EntropyValue
from controller.entries import ECMP_SELECTOR_SIZE, TABLE_SIZES, desired_entries, program_of
from controller.fabric import Device, Fabric
from controller.nic_entries import nic_entries
from controller.overlay import Overlay, bind
from controller.path import trace
from controller.policy import Deny, PathWeight, Policy, PolicyError, Queues, Spray
from controller.queue_entries import NEVER, queue_entries
from mrc.options import CodePoints
from tests.controller.strategies import fabric_of, fabrics, shipped

BUILD = Path(__file__).parents[2] / "p4src" / "build"

POLICIES = [
    Policy(),
    Policy(spray=Spray(mode="round_robin", slots_per_plane=4), plane_weights={0: 3}),
    Policy(spray=Spray(mode="ecmp"), path_weights=(PathWeight(plane=0, uplink=1, weight=0.3),)),
    Policy(deny=Deny(links=(("h0-0", "p0t0-0"), ("p1t0-0", "p1t1-1")))),
]


@cache
def schema(program: str) -> P4Schema:
    return P4Schema(BUILD / f"{program}.p4info.txtpb")


def action(entry: P4TableEntry) -> Any:
    assert entry.action is not None
    return entry.action


def table_entries(fabric: Fabric, device: str, policy: Policy | Overlay) -> list[P4TableEntry]:
    """A device's entries without multicast groups."""
    entries = desired_entries(fabric, device, policy)
    return [entry for entry in entries if isinstance(entry, P4TableEntry)]


@pytest.mark.parametrize("name", ["mini", "lab"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_entry_encodes_and_reads_back_equal(name: str, policy: Policy) -> None:
    fabric = shipped(name)
    for device in fabric.devices(DeviceKind.T0, DeviceKind.T1, DeviceKind.NIC):
        p4 = schema(program_of(device))
        keys = set()
        entries = table_entries(fabric, device.name, policy)
        for entry in entries:
            message = entry.encode(p4)
            assert P4TableEntry.decode(message, p4) == entry
            keys.add(
                message.table_entry.table_id.to_bytes(4) + str(message.table_entry.match).encode()
            )
        assert len(keys) == len(entries)


def test_table_sizes_are_those_of_p4() -> None:
    for program, sizes in TABLE_SIZES.items():
        assert {table.alias: table.size for table in schema(program).tables} == sizes
    profiles = {profile.alias: profile.size for profile in schema("fabric").action_profiles}
    assert profiles == {"ecmp_selector": ECMP_SELECTOR_SIZE}


def test_numbers_of_entries() -> None:
    lab = shipped("lab")

    def counts(name: str) -> dict[str, int]:
        return Counter(entry.table_id for entry in table_entries(lab, name, Policy()))

    switch = {"locator_block": 1, "my_sid": 1, "traffic_classes": 6}
    uplinks = {"ecmp_groups": 1}
    assert counts("p0t0-0") == switch | uplinks | {
        "local_sid": 6 + 4 + 1,  # uA, replicate, dt6
        "replica_uplinks": 4,
        "usid_fib": 6,
        "ipv6_fib": 3,
        "port_config": 6,
    }
    assert counts("p3t1-2") == switch | {
        "local_sid": 3,
        "usid_fib": 2,
        "ipv6_fib": 2,
        "port_config": 2,
    }
    identity = {"locator_block": 1, "own_address": 1, "own_sid": 4, "link_macs": 5}
    spray = {"slots": 4 * 32 + 4, "plane_sets": 15, "group_cfg": 2, "destinations": 2}
    assert counts("n0-0") == identity | {"traffic_classes": 3} | spray


def test_nics_know_the_code_points_that_switches_trim_with() -> None:
    lab = shipped("lab")
    overlay = bind(Policy(), lab)
    points = CodePoints(trimmed=11, trimmed_lasthop=12, control=13)
    nic = nic_entries(overlay, lab.device("n0-0"), points)
    switch = queue_entries(lab, lab.device("p0t0-0"), Queues(), points)
    trims = {
        action(entry).name: action(entry).args["packet_trim_dscp"]
        for entry in switch
        if entry.table_id == "port_config"
    }
    assert {
        entry["dscp"]: (action(entry).name, action(entry).args)
        for entry in nic
        if entry.table_id == "traffic_classes"
    } == {
        trims["to_switch"]: ("trimmed_in_fabric", {"control_dscp": 13}),
        trims["to_host"]: ("trimmed_on_last_hop", {"control_dscp": 13}),
        13: ("control_class", {}),
    }


def queue_settings(name: str, queues: Queues) -> dict[int, dict[str, Any]]:
    """What the switch's ports are told: action and arguments, by port."""
    entries = table_entries(shipped("lab"), name, Policy(queues=queues))
    return {
        entry["port"]: {"action": action(entry).name, **action(entry).args}
        for entry in entries
        if entry.table_id == "port_config"
    }


def test_ports_to_hosts_and_to_switches() -> None:
    found = queue_settings("p0t0-0", Queues())  # queues hold 64 packets
    trimming = {"packet_trim_threshold": 64, "packet_trim_size": 256, "capacity": 64}
    to_host = {"action": "to_host", "packet_trim_dscp": 9} | trimming
    marking = {"ecn_min_threshold": 16, "ecn_max_threshold": 48}
    to_switch = {"action": "to_switch", "packet_trim_dscp": 8} | marking | trimming
    assert found == {port: to_host if port <= 2 else to_switch for port in range(1, 7)}
    assert queue_settings("p1t1-0", Queues()) == dict.fromkeys((1, 2), to_switch)


def test_thresholds_follow_the_policy() -> None:
    queues = Queues(
        ecn_min_threshold=1, ecn_max_threshold=50, packet_trim_threshold=75, packet_trim_size=122
    )
    found = queue_settings("p1t1-0", queues)[1]
    assert (found["ecn_min_threshold"], found["ecn_max_threshold"]) == (1, 32)
    assert (found["packet_trim_threshold"], found["packet_trim_size"]) == (48, 122)
    off = queue_settings(
        "p0t0-0", Queues(ecn_mark_mode="none", packet_admission_fail_action="drop")
    )
    assert off[1]["packet_trim_threshold"] == off[6]["packet_trim_threshold"] == NEVER
    assert off[6]["ecn_min_threshold"] == off[6]["ecn_max_threshold"] == NEVER
    assert off[1]["capacity"] == off[6]["capacity"] == 64


def test_traffic_classes_are_mrcs() -> None:
    entries = table_entries(shipped("mini"), "p0t1-0", Policy())
    classes = {e["dscp"]: action(e).name for e in entries if e.table_id == "traffic_classes"}
    data, control = {4: "data_trim", 5: "data_trim", 0: "data_no_trim"}, "control_class"
    assert classes == data | {8: control, 9: control, 46: control}


class Nic:
    """Follows nic.p4's look-ups through a NIC's entries."""

    def __init__(self, entries: list[P4TableEntry]) -> None:
        self._by_table: dict[str, list[P4TableEntry]] = {}
        for entry in entries:
            self._by_table.setdefault(entry.table_id, []).append(entry)

    def one(self, table: str, **match: int) -> P4TableEntry | None:
        found = [e for e in self._by_table.get(table, []) if dict(e.match or {}) == match]
        assert len(found) <= 1
        return found[0] if found else None

    def destination(self, address: int) -> P4TableEntry:
        matching = [
            entry
            for entry in self._by_table["destinations"]
            if address >> (128 - entry["dst_addr"][1])
            == entry["dst_addr"][0] >> (128 - entry["dst_addr"][1])
        ]
        return max(matching, key=lambda entry: entry["dst_addr"][1])

    def planes(self, plane_set: int, down: int) -> list[int]:
        entry = self.one("plane_sets", plane_set=plane_set, down_planes=down)
        if entry is None:
            return []
        call = action(entry).args
        assert 0 < call["count"] <= 16
        assert call["planes"] < 1 << 3 * call["count"]
        return [call["planes"] >> 3 * at & 7 for at in range(call["count"])]

    def path_evs(self, address: int, down: int = 0) -> dict[int, list[int]]:
        """The path EVs that a packet to `address` may get, by plane, one for each slot."""
        group = action(self.destination(address)).args["group_id"]
        config = self.one("group_cfg", group_id=group)
        assert config is not None
        call = action(config).args
        found: dict[int, list[int]] = {}
        for plane in set(self.planes(call["plane_set"], down)):
            found[plane] = []
            for slot in range(call["slots"]):
                entry = self.one(
                    "slots", group_id=group, generation=call["generation"], plane=plane, slot=slot
                )
                assert entry is not None, "a slot that may be drawn is not filled"
                found[plane].append(action(entry).args["path_ev"])
        return found


def policies(fabric: Fabric) -> st.SearchStrategy[Policy]:
    """Policies that name this fabric's things; some leave a pair without a path."""
    plane = st.integers(0, fabric.planes - 1)
    group = st.integers(0, fabric.groups - 1)
    uplink = st.integers(0, fabric.uplinks - 1)
    downlink = st.integers(0, fabric.hosts_per_group - 1)
    weight = st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0])
    t1_link = st.builds(lambda p, g, u: (f"p{p}t0-{g}", f"p{p}t1-{u}"), plane, group, uplink)
    nic_link = st.builds(lambda p, g, d: (f"h{g}-{d}", f"p{p}t0-{g}"), plane, group, downlink)
    maybe_group = st.none() | group
    return st.builds(
        Policy,
        spray=st.builds(
            Spray,
            mode=st.sampled_from(["random", "round_robin", "ecmp"]),
            slots_per_plane=st.sampled_from([1, 2, 8]),
        ),
        plane_weights=st.dictionaries(plane, weight, max_size=2),
        path_weights=st.lists(
            st.builds(
                PathWeight,
                plane=plane,
                uplink=uplink,
                weight=weight,
                from_group=maybe_group,
                to_group=maybe_group,
            ),
            max_size=2,
        ).map(tuple),
        deny=st.builds(
            Deny,
            switches=st.lists(st.builds(lambda p, u: f"p{p}t1-{u}", plane, uplink), max_size=1).map(
                tuple
            ),
            links=st.lists(t1_link | nic_link, max_size=3).map(tuple),
        ),
    )


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_nics_use_every_allowed_path_and_no_other(data: st.DataObject) -> None:
    fabric = data.draw(fabrics(max_planes=4, max_size=3))
    policy = data.draw(policies(fabric))
    try:
        overlay = bind(policy, fabric)
    except PolicyError as ex:
        assert "leaves no path" in str(ex)
        return
    for device in fabric.devices(DeviceKind.NIC):
        nic = Nic(table_entries(fabric, device.name, overlay))
        for host in fabric.devices(DeviceKind.HOST):
            if host.index != device.index:
                _check_pair(fabric, overlay, nic, device, host)


def _check_pair(fabric: Fabric, overlay: Overlay, nic: Nic, device: Device, host: Device) -> None:
    assert device.group is not None
    assert host.group is not None
    allowed = set(np.flatnonzero(overlay.planes_between(device, host)).tolist())
    assert allowed  # bind refuses what leaves a pair without a path
    entry = nic.destination(fabric.host_address(host))
    if action(entry).name == "ecmp":
        for down in range(1 << fabric.planes):
            left = {plane for plane in allowed if not down >> plane & 1}
            assert set(nic.planes(action(entry).args["plane_set"], down)) == left
        return
    local = host.group == device.group
    assert action(entry).name == ("t0_local" if local else "cross_t1")
    weights = overlay.path_weights(device.group, host.group)
    for down in range(1 << fabric.planes):
        found = nic.path_evs(fabric.host_address(host), down)
        assert set(found) == {plane for plane in allowed if not down >> plane & 1}
        for plane, path_evs in found.items():
            evs = [EntropyValue.from_wire(path_ev, 0) for path_ev in path_evs]
            assert {ev.plane for ev in evs} == {plane}
            used = {ev.uplink for ev in evs}
            usable = set(np.flatnonzero(weights[plane]).tolist())
            assert used <= usable
            assert len(used) == min(len(usable), len(evs))
            if down == 0 and not local:
                source = fabric.device_at(fabric.host_row(device.group, device.downlink or 0))
                assert all(trace(fabric, source.name, host.name, ev).end == host for ev in evs)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_ecmp_groups_have_the_allowed_members(data: st.DataObject) -> None:
    fabric = data.draw(fabrics(max_planes=3, max_size=4))
    policy = data.draw(policies(fabric))
    try:
        overlay = bind(policy, fabric)
    except PolicyError:
        return
    for t0 in fabric.devices(DeviceKind.T0):
        entries = table_entries(fabric, t0.name, overlay)
        groups = {e["group_id"]: e for e in entries if e.table_id == "ecmp_groups"}
        sets = [
            tuple((w, a.args["port"]) for w, a in action(e).action_set) for e in groups.values()
        ]
        assert len(set(sets)) == len(sets)  # the same members are one group
        routes = {e["dst_addr"]: action(e) for e in entries if e.table_id == "ipv6_fib"}
        for group in range(fabric.groups):
            if group == t0.index:
                continue
            weights = overlay.path_weights(t0.index, group)[t0.plane]
            route = routes.get(addr.group_prefix(group))
            if not weights.any():
                assert route is None
                continue
            assert route is not None
            members = action(groups[route.args["group_id"]]).action_set
            first = addr.t0_uplink_port(fabric.hosts_per_group, 0)
            found = {member.args["port"] - first: weight for weight, member in members}
            assert set(found) == set(np.flatnonzero(weights).tolist())
            for a in found:
                for b in found:
                    assert (weights[a] >= weights[b]) or found[a] <= found[b]


def test_weights_become_numbers_of_slots_and_choices() -> None:
    lab = shipped("lab")
    policy = Policy(
        plane_weights={0: 3, 3: 0},
        path_weights=(PathWeight(plane=1, uplink=2, weight=5),),
    )
    nic = Nic(table_entries(lab, "n0-0", policy))
    assert Counter(nic.planes(0, 0)) == {0: 3, 1: 1, 2: 1}
    assert Counter(nic.planes(0, 0b0001)) == {1: 1, 2: 1}
    found = nic.path_evs(addr.host_address(1, 0))
    uplinks = {p: Counter(ev >> 3 & 0x3FF for ev in evs) for p, evs in found.items()}
    assert uplinks[0] == {0: 8, 1: 8, 2: 8, 3: 8}
    assert uplinks[1] == {0: 4, 1: 4, 2: 20, 3: 4}


def test_round_robin_slots_take_turns_and_nics_start_differently() -> None:
    fabric = fabric_of(2, 4, 8, 2)
    policy = Policy(spray=Spray(mode="round_robin"))
    starts = set()
    for device in fabric.devices(DeviceKind.NIC):
        nic = Nic(table_entries(fabric, device.name, policy))
        for group in range(4):
            if group != device.group:
                for evs in nic.path_evs(addr.host_address(group, 0)).values():
                    assert all(len(set(evs[at : at + 8])) == 8 for at in range(0, 32, 8))
                    starts.add(evs[0])
    assert len(starts) > 8


def test_more_uplinks_than_slots_gives_different_subsets() -> None:
    fabric = fabric_of(1, 3, 64, 2)
    policy = Policy(spray=Spray(slots_per_plane=8))
    subsets = set()
    used: Counter[int] = Counter()
    for device in fabric.devices(DeviceKind.NIC):
        nic = Nic(table_entries(fabric, device.name, policy))
        for group in range(3):
            if group != device.group:
                evs = nic.path_evs(addr.host_address(group, 1))[0]
                assert len(set(evs)) == 8
                subsets.add(frozenset(evs))
                used.update(evs)
    assert len(subsets) == 12  # each NIC and destination its own
    assert len(used) > 40


def test_a_denied_nic_link_is_avoided_both_ways() -> None:
    lab = shipped("lab")
    policy = Policy(deny=Deny(links=(("n1-0", "p2t0-1"),)))
    sender = Nic(table_entries(lab, "n0-0", policy))
    assert set(sender.path_evs(addr.host_address(1, 0))) == {0, 1, 3}
    assert set(sender.path_evs(addr.host_address(1, 1))) == {0, 1, 2, 3}
    neighbour = Nic(table_entries(lab, "n1-1", policy))
    assert set(neighbour.path_evs(addr.host_address(1, 0))) == {0, 1, 3}
    own = Nic(table_entries(lab, "n1-0", policy))
    for group in range(2):
        assert set(own.path_evs(addr.host_address(group, 1))) == {0, 1, 3}
    # No exception to itself.
    assert own.destination(addr.host_address(1, 0))["dst_addr"][1] == 112


def test_what_does_not_fit_a_table_is_refused() -> None:
    fabric = fabric_of(8, 32, 1, 2)  # every T0 group reached over another set of planes
    links = tuple(
        (f"p{p}t0-{group}", f"p{p}t1-0")
        for group in range(1, 32)
        for p in range(5)
        if group >> p & 1
    )
    with pytest.raises(
        PolicyError, match=r"n0-0: table plane_sets would need \d+ entries; .* 4096"
    ):
        desired_entries(fabric, "n0-0", Policy(deny=Deny(links=links)))
    fabric = fabric_of(8, 64, 1, 1)
    with pytest.raises(PolicyError, match="table slots would need 258056 entries"):
        desired_entries(fabric, "n0-0", Policy(spray=Spray(slots_per_plane=512)))
    with pytest.raises(ValueError, match="h0-0 is a host"):
        desired_entries(fabric, "h0-0", Policy())
