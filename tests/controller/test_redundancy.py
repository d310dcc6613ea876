# SPDX-License-Identifier: Apache-2.0
"""Redundancy: the policy, the entries of NICs, and bringing multicast groups to devices."""

from __future__ import annotations

import asyncio
import json
from itertools import combinations
from pathlib import Path

import pytest
from finsy import P4MulticastGroupEntry, P4TableAction, P4TableEntry
from typer.testing import CliRunner

from controller.addressing import nic_plane_port
from controller.canonical import (
    MULTICAST_TABLE_ID,
    DesiredEntry,
    Entries,
    Replicas,
    multicast_key,
    to_entity,
    wanted_entries,
)
from controller.cli import app
from controller.copy_entries import FIRST_GROUP
from controller.entries import desired_entries
from controller.fabric import Fabric
from controller.inventory import Device, Inventory
from controller.overlay import bind
from controller.p4rt import load_program
from controller.policy import Deny, Policy, PolicyError, Redundancy, Spray, load_policy
from controller.push import push
from controller.reconcile import Kind, Plan, plan_device
from controller.words import in_words
from tests.controller.fake_p4rt import FakeSwitch, serve
from tests.controller.strategies import fabric_of, shipped

NIC = load_program("nic")
POLICIES = Path(__file__).parents[2] / "topologies" / "policies"
TWICE = (Redundancy(dscp=10, copies=2),)
IN_NETWORK = (Redundancy(dscp=11, mode="in_network"),)


def nic_entries(policy: Policy, name: str = "n0-0", fabric: Fabric | None = None) -> Entries:
    """What a NIC of the lab topology is to have."""
    return wanted_entries(desired_entries(fabric or shipped("lab"), name, policy), NIC)


def table(entries: list[DesiredEntry], name: str) -> list[P4TableEntry]:
    return [e for e in entries if isinstance(e, P4TableEntry) and e.table_id == name]


# ---- policy -------------------------------------------------------------------------------------


def test_shipped_policy() -> None:
    assert load_policy(POLICIES / "redundancy.yaml").redundancy == TWICE + IN_NETWORK


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[{dscp: 64}]", "policy.yaml:2: redundancy.0.dscp: Input should be less than or equal"),
        ("[{copies: 2}]", "redundancy.0.dscp: this key is required"),
        ("[{dscp: 1, copies: 4}]", "redundancy.0.copies: Input should be less than or equal to 3"),
        ("[{dscp: 1, copies: 1}]", "redundancy.0.copies: Input should be greater than or equal"),
        ("[{dscp: 1, copies: 3, mode: in_network}]", "mode in_network makes 2 copies, not 3"),
        ("[{dscp: 1, mode: parity}]", "redundancy.0.mode: "),
        ("[{dscp: 8}]", "redundancy.0.dscp: 8 is the DSCP of trimmed packets; allowed: 0..63 "),
        ("[{dscp: 9}]", "9 is the DSCP of packets trimmed on the last hop"),
        ("[{dscp: 46}]", "46 is the DSCP of control packets"),
        ("[{dscp: 1}, {dscp: 1}]", "redundancy: DSCP 1 is in it twice; allowed: each once"),
        ("[{dscp: 1}]\nspray: {mode: ecmp}", "spray mode ecmp gives each flow one path; allowed"),
    ],
)
def test_refused_files(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(f"version: 1\nredundancy: {text}\n")
    with pytest.raises(PolicyError) as refused:
        load_policy(path)
    assert said in str(refused.value)


def test_more_copies_than_planes() -> None:
    policy = Policy(redundancy=(Redundancy(dscp=1, copies=3),))
    with pytest.raises(PolicyError, match=r"redundancy\.0\.copies: mini has 2 planes, too few"):
        bind(policy, shipped("mini"))
    bind(policy, shipped("lab"))


def test_a_t0_needs_two_uplinks_for_copies() -> None:
    one = fabric_of(2, 2, 1, 2)
    with pytest.raises(PolicyError, match=r"redundancy\.0\.mode: .* has 1 T1 per plane"):
        bind(Policy(redundancy=IN_NETWORK), one)
    bind(Policy(redundancy=TWICE), one)


# ---- entries of T0s -----------------------------------------------------------------------------


def replications(policy: Policy, name: str, fabric: Fabric) -> dict[int, tuple[int, int, int]]:
    """Local uSID -> (multicast group, first port, second port) of a T0."""
    found = {}
    for e in table(desired_entries(fabric, name, policy), "local_sid"):
        assert isinstance(e.action, P4TableAction)
        if e.action.name == "replicate":
            assert e.action.args["capacity"] == fabric.topology.queue_depth
            names = ("multicast_group", "first_port", "second_port")
            found[e["local_sid"]] = tuple(e.action.args[name] for name in names)
    return found


def groups(policy: Policy, name: str, fabric: Fabric) -> dict[int, tuple[int, ...]]:
    """Multicast group -> ports."""
    return {
        e.multicast_group_id: tuple(e.replicas)  # type: ignore[arg-type]
        for e in desired_entries(fabric, name, policy)
        if isinstance(e, P4MulticastGroupEntry)
    }


def test_each_uplink_and_the_next_one() -> None:
    lab = shipped("lab")  # hosts on ports 1 and 2, T1s on 3 to 6
    assert replications(Policy(), "p1t0-0", lab) == {
        0xE400: (1, 3, 4),
        0xE401: (2, 4, 5),
        0xE402: (3, 5, 6),
        0xE403: (4, 6, 3),
    }
    assert groups(Policy(), "p1t0-0", lab) == {1: (3, 4), 2: (4, 5), 3: (5, 6), 4: (6, 3)}
    to_t1 = {
        e["egress_port"]: e.action.args["t1"]
        for e in table(desired_entries(lab, "p1t0-0", Policy()), "replica_uplinks")
        if isinstance(e.action, P4TableAction)
    }
    assert to_t1 == {3: 0x4400, 4: 0x4401, 5: 0x4402, 6: 0x4403}


def test_a_denied_uplink_is_no_second_one() -> None:
    lab = shipped("lab")
    policy = Policy(deny=Deny(links=(("p1t0-0", "p1t1-1"),)))
    assert groups(policy, "p1t0-0", lab) == {1: (3, 5), 2: (4, 5), 3: (5, 6), 4: (6, 3)}
    assert groups(policy, "p1t0-1", lab) == groups(Policy(), "p1t0-1", lab)
    last = Policy(deny=Deny(switches=("p1t1-1", "p1t1-2", "p1t1-3")))
    assert replications(last, "p1t0-0", lab)[0xE400] == (0, 3, 3)


def test_no_copies_where_there_is_one_way() -> None:
    assert groups(Policy(), "p0t0-0", fabric_of(2, 2, 1, 2)) == {}
    assert replications(Policy(), "p0t0-0", fabric_of(2, 2, 1, 2)) == {}
    assert groups(Policy(), "p0t1-0", shipped("lab")) == {}


# ---- entries of NICs ----------------------------------------------------------------------------


def test_nothing_without_redundancy() -> None:
    entries = desired_entries(shipped("lab"), "n0-0", Policy())
    tables = {e.table_id for e in entries if isinstance(e, P4TableEntry)}
    assert len(entries) == sum(isinstance(e, P4TableEntry) for e in entries)
    assert not tables & {"copy_classes", "copy_turns", "copy_macs", "bundles", "duplicate_classes"}


def test_in_the_network_a_nic_sends_once() -> None:
    entries = desired_entries(shipped("lab"), "n0-0", Policy(redundancy=IN_NETWORK))
    assert not any(isinstance(e, P4MulticastGroupEntry) for e in entries)
    assert not table(entries, "bundles")
    assert not table(entries, "copy_turns")
    (copied,) = table(entries, "copy_classes")
    assert (copied["dscp"], copied.action) == (11, P4TableAction("in_network"))
    assert {e["dscp"] for e in table(entries, "duplicate_classes")} == {8, 9, 11}


def test_bundles_are_the_slots_of_all_planes() -> None:
    """So that weights and denials hold for copies, too."""
    fabric = shipped("lab")
    deny = Deny(switches=("p0t1-1",), planes=(2,))
    policy = Policy(redundancy=TWICE, deny=deny, spray=Spray(slots_per_plane=8))
    entries = desired_entries(fabric, "n0-0", policy)
    from_slots = {
        (e["group_id"], e["slot"], e["plane"]): e.action.args["path_ev"]
        for e in table(entries, "slots")
        if isinstance(e.action, P4TableAction)
    }
    found = {}
    for e in table(entries, "bundles"):
        assert isinstance(e.action, P4TableAction)
        for plane in set(range(fabric.planes)) - {2}:
            ev, other = (
                e.action.args[name] >> 16 * plane & 0xFFFF for name in ("path_evs", "alternates")
            )
            found[e["group_id"], e["index"], plane] = ev
            assert ev >> 13 == other >> 13 == plane
            assert (plane, ev >> 3 & 1023) != (0, 1) != (plane, other >> 3 & 1023)
        assert e.action.args["path_evs"] >> 32 & 0xFFFF == 0
    assert found == from_slots


def test_turns_and_groups_cover_what_can_happen() -> None:
    """Every set of live planes, from every turn, names planes that are alive, different as far as
    there are enough, and a multicast group exists for them."""
    fabric = shipped("lab")
    entries = desired_entries(fabric, "n0-0", Policy(redundancy=TWICE))
    groups = {
        e.multicast_group_id: set(e.replicas)
        for e in entries
        if isinstance(e, P4MulticastGroupEntry)
    }
    planes = range(fabric.planes)
    assert groups == {
        FIRST_GROUP + sum(1 << p for p in chosen): {nic_plane_port(p) for p in chosen}
        for copies in (2, 3)
        for chosen in combinations(planes, copies)
    }
    asked = set()
    for e in table(entries, "copy_turns"):
        assert isinstance(e.action, P4TableAction)
        args = e.action.args
        asked.add((e["live_planes"], e["turn"]))
        live = [p for p in planes if e["live_planes"] >> p & 1]
        assert args["count"] == min(len(live), 3)
        chosen = [args[f"{which}_plane"] for which in ("first", "second", "third")][: args["count"]]
        assert len(set(chosen)) == len(chosen)
        assert set(chosen) <= set(live)
        assert args["next"] == (chosen[0] + 1) % fabric.planes
        for copies in range(2, len(chosen) + 1):
            assert FIRST_GROUP + sum(1 << p for p in chosen[:copies]) in groups
    assert asked == {(mask, turn) for mask in range(1, 1 << fabric.planes) for turn in planes}


def test_classes_and_trimmed_packets() -> None:
    policy = Policy(redundancy=(*TWICE, Redundancy(dscp=11, copies=3)))
    entries = desired_entries(shipped("lab"), "n0-0", policy)
    classes = {e["dscp"]: e.action for e in table(entries, "copy_classes")}
    assert classes == {n: P4TableAction("over_planes", copies=n - 8) for n in (10, 11)}
    duplicates = {e["dscp"]: e.action for e in table(entries, "duplicate_classes")}
    assert duplicates == {
        **dict.fromkeys((10, 11), P4TableAction("first_only")),
        **dict.fromkeys((8, 9), P4TableAction("trimmed_copy")),
    }


def test_links_are_those_of_ingress() -> None:
    entries = desired_entries(shipped("mini"), "n1-0", Policy(redundancy=TWICE))

    def links(name: str) -> dict[int, dict[str, int]]:
        found = {}
        for e in table(entries, name):
            assert isinstance(e.action, P4TableAction)
            found[e["egress_port"]] = e.action.args
        return found

    assert links("copy_macs") == {p: macs for p, macs in links("link_macs").items() if p != 1}


# ---- bringing it to devices ----------------------------------------------------------------------


def steps(plan: Plan) -> dict[str, int]:
    """The stage in which each table is touched, the last one where there are several."""
    names = {t.id: t.alias for t in NIC.tables} | {MULTICAST_TABLE_ID: "multicast_groups"}
    return {
        names[change.key.table_id]: number
        for number, stage in enumerate(plan.stages)
        for change in stage
    }


def test_classes_come_last_and_go_first() -> None:
    once, twice = nic_entries(Policy()), nic_entries(Policy(redundancy=TWICE))
    there, back = plan_device(twice, once, NIC), plan_device(once, twice, NIC)
    assert there.count(Kind.INSERT) == there.size == back.count(Kind.DELETE) == back.size > 0
    others = {"multicast_groups", "bundles", "copy_turns", "copy_macs"}
    assert all(steps(there)[name] < steps(there)["copy_classes"] for name in others)
    assert all(steps(back)[name] > steps(back)["copy_classes"] for name in others)
    assert plan_device(twice, twice, NIC).size == 0


def test_bundles_move_with_their_slots() -> None:
    """Both into the other generation, before the one entry that switches over."""
    held = nic_entries(Policy(redundancy=TWICE))
    wanted = nic_entries(Policy(redundancy=TWICE, deny=Deny(switches=("p0t1-1",))))
    plan = plan_device(wanted, held, NIC)
    ids = {t.alias: t for t in NIC.tables}
    assert not any(
        change.kind is Kind.MODIFY
        for stage in plan.stages
        for change in stage
        if change.key.table_id in (ids["slots"].id, ids["bundles"].id)
    )
    generations = {
        name: {
            field.value
            for stage in plan.stages
            for change in stage
            if change.key.table_id == ids[name].id and change.kind is Kind.INSERT
            for field in change.key.match
            if field.field_id == ids[name].match_fields["generation"].id
        }
        for name in ("slots", "bundles")
    }
    assert generations == {"slots": {1}, "bundles": {1}}


def test_groups_in_words_and_on_the_wire() -> None:
    group = P4MulticastGroupEntry(0x103, replicas=[3, (2, 7)])
    ((key, value),) = wanted_entries([group], NIC).items()
    assert (key, value) == (multicast_key(0x103), Replicas(((2, 7), (3, 0))))
    assert in_words(key, NIC, value) == "multicast_groups group_id=259 -> ports 2#7 3"
    sent = to_entity(key, value).packet_replication_engine_entry.multicast_group_entry
    assert [(r.egress_port, r.instance) for r in sent.replicas] == [(2, 7), (3, 0)]
    assert not to_entity(key, None).packet_replication_engine_entry.multicast_group_entry.replicas


def test_two_groups_with_one_number() -> None:
    with pytest.raises(ValueError, match="same key"):
        wanted_entries([P4MulticastGroupEntry(1, replicas=[n]) for n in (1, 2)], NIC)


def test_push_keeps_groups_as_wanted() -> None:
    switch = FakeSwitch()
    with serve(switch) as address:
        device = Device(address=address, device_id=1, program="nic", log="/dev/null", pid=1)
        inventory = Inventory(
            topology="/t.yaml", target="softswitch", pid=1, devices={"n0-0": device}
        )
        fabric = shipped("lab")

        def pushed(policy: Policy) -> tuple[int, int, int]:
            desired = {"n0-0": desired_entries(fabric, "n0-0", policy)}
            report = asyncio.run(push(inventory, desired)).devices["n0-0"]
            assert report.ok, report.errors
            return report.inserted, report.modified, report.deleted

        pushed(Policy(redundancy=TWICE))
        wanted = {*switch.groups}
        assert len(wanted) == len([*combinations(range(4), 2), *combinations(range(4), 3)])
        assert pushed(Policy(redundancy=TWICE)) == (0, 0, 0)
        # Somebody else's changes to the groups are undone.
        group = FIRST_GROUP + 3
        extra = P4MulticastGroupEntry(7, replicas=[1]).encode(NIC)
        switch.groups[7] = extra
        switch.groups[group] = P4MulticastGroupEntry(group, replicas=[9]).encode(NIC)
        assert pushed(Policy(redundancy=TWICE)) == (0, 1, 1)
        assert {*switch.groups} == wanted
        pushed(Policy())
        assert not switch.groups


def test_export(tmp_path: Path) -> None:
    output = tmp_path / "routes.json"
    chosen = ["--topo", "topologies/mini.yaml", "--policy", str(POLICIES / "redundancy.yaml")]
    run = CliRunner().invoke(app, ["routes", "export", "n0-0", *chosen, "-o", str(output)])
    assert run.exit_code == 0, run.output
    groups = [e for e in json.loads(output.read_text()) if e["table"] == "multicast_groups"]
    assert groups == [
        {
            "device": "n0-0",
            "table": "multicast_groups",
            "match": {"group_id": "259"},
            "ports": ["2", "3"],
        }
    ]
    shown = CliRunner().invoke(
        app, ["routes", "show", "n0-0", "--table", "multicast_groups", *chosen]
    )
    assert "group_id=259" in shown.output and "ports 2 3" in shown.output
