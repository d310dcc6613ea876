# SPDX-License-Identifier: Apache-2.0
"""The pure half of a push: canonical entries, the diff, and the choice of generations."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from finsy import Action, IndirectAction, Match, P4Schema, P4TableEntry
from finsy.proto import p4r
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.canonical import (
    Call,
    Entries,
    UnsupportedEntryError,
    from_message,
    held_entries,
    to_message,
    wanted_entries,
)
from controller.p4rt import load_program
from controller.reconcile import CapacityError, Kind, Plan, plan_device
from controller.words import in_words

FABRIC = load_program("fabric")
NIC = load_program("nic")


def forward(port: int) -> Action:
    return Action("forward", port=port, dst_mac=2 * port, src_mac=2 * port + 1)


def route(node: int, port: int) -> P4TableEntry:
    return P4TableEntry("usid_fib", match=Match(locator_node=node), action=forward(port))


def ecmp_route(prefix: int, group: int) -> P4TableEntry:
    return P4TableEntry(
        "ipv6_fib",
        match=Match(dst_addr=(prefix << 16, 112)),
        action=Action("to_ecmp", group_id=group),
    )


def ecmp_group(group: int, ports: Sequence[int]) -> P4TableEntry:
    members = [(1, forward(port)) for port in ports]
    return P4TableEntry("ecmp_groups", match=Match(group_id=group), action=IndirectAction(members))


def peer_entry(source: int, qp: int, peer_qp: int) -> P4TableEntry:
    return P4TableEntry(
        "peers", match=Match(src_addr=source, qp=qp), action=Action("peer", peer_qp=peer_qp)
    )


def group_entries(
    group: int, paths: dict[int, list[int]], plane_set: int, mode: str = "spray_random"
) -> list[P4TableEntry]:
    """A spray group: path EVs by plane, the same number of slots in each."""
    slots = len(next(iter(paths.values())))
    entries = [
        P4TableEntry(
            "group_cfg",
            match=Match(group_id=group),
            action=Action(
                mode,
                generation=0,
                slots=slots,
                plane_set=plane_set,
                path_group=group,
                uplink_bits=4,
                planes=0xF,
                retirable=0,
                probe_successes=3,
            ),
        )
    ]
    entries += [
        P4TableEntry(
            "slots",
            match=Match(group_id=group, generation=0, plane=plane, slot=slot),
            action=Action("use_path", path_ev=ev, second=ev, third=ev, fourth=ev),
        )
        for plane, evs in paths.items()
        for slot, ev in enumerate(evs)
    ]
    return entries


def plane_set_entries(number: int, planes: Sequence[int]) -> list[P4TableEntry]:
    """One entry per down mask that leaves a plane of the set alive; picks as given."""
    entries = []
    for down in range(1 << (max(planes) + 1)):
        alive = [plane for plane in planes if not down >> plane & 1]
        if alive:
            picks = sum(plane << 3 * n for n, plane in enumerate(alive))
            action = Action("choose_from", count=len(alive), planes=picks)
            match = Match(plane_set=number, down_planes=down)
            entries.append(P4TableEntry("plane_sets", match=match, action=action))
    return entries


def apply(plan: Plan, held: Entries, seed: int = 0) -> Iterator[Entries]:
    """Every state that the plan goes through, updates of a stage in random order."""
    order = random.Random(seed)
    state = dict(held)
    yield dict(state)
    for stage in plan.stages:
        for change in order.sample(stage, len(stage)):
            if change.kind is Kind.INSERT:
                assert change.key not in state
            else:
                assert change.key in state
            if change.value is None:
                del state[change.key]
            else:
                state[change.key] = change.value
            yield dict(state)


def last(states: Iterator[Entries]) -> Entries:
    *_, final = states
    return final


# ---- canonical form ---------------------------------------------------------------------------


def test_padded_values_and_shuffled_one_shot_sets_are_not_a_difference() -> None:
    wanted = wanted_entries([ecmp_group(7, [1, 2, 3]), ecmp_route(5, 7)], FABRIC)
    held = []
    for key, value in wanted.items():
        message = to_message(key, value)
        for match in message.match:
            if match.HasField("exact"):
                match.exact.value = b"\x00" + match.exact.value
        if message.action.HasField("action_profile_action_set"):
            members = message.action.action_profile_action_set.action_profile_actions
            for member in members:
                for param in member.action.params:
                    param.value = b"\x00\x00" + param.value
            reordered = list(reversed(members))
            del members[:]
            members.extend(reordered)
        message.counter_data.packet_count = 5
        held.append(p4r.Entity(table_entry=message))
    assert held_entries(held, FABRIC) == wanted
    assert plan_device(wanted, held_entries(held, FABRIC), FABRIC).size == 0


def test_a_weight_split_over_equal_members_is_not_a_difference() -> None:
    def group(members: list[tuple[int, Action]]) -> Entries:
        action = IndirectAction(members)
        entry = P4TableEntry("ecmp_groups", match=Match(group_id=1), action=action)
        return wanted_entries([entry], FABRIC)

    assert group([(2, forward(1)), (1, forward(2))]) == group(
        [(1, forward(1)), (1, forward(2)), (1, forward(1))]
    )
    assert group([(2, forward(1))]) != group([(1, forward(1))])


def test_const_and_default_entries_of_a_device_are_left_alone() -> None:
    entry = route(1, 1)
    const, default = entry.encode(FABRIC), entry.encode(FABRIC)
    const.table_entry.is_const = True
    default.table_entry.is_default_action = True
    assert held_entries([const, default], FABRIC) == {}


@pytest.mark.parametrize(
    "entity",
    [
        P4TableEntry("usid_fib", is_default_action=True, action=forward(1)),
        P4TableEntry("usid_fib", match=Match(locator_node=1)),
        P4TableEntry(),
        "not an entity",
    ],
)
def test_what_push_cannot_compare_is_refused(entity: Any) -> None:
    with pytest.raises(UnsupportedEntryError):
        wanted_entries([entity], FABRIC)


def test_two_wanted_entries_with_one_key_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"same key.*usid_fib.*'locator_node': 42"):
        wanted_entries([route(42, 1), route(42, 2)], FABRIC)


@pytest.mark.parametrize("table", ["no_such_table", "slots"])
def test_an_entry_of_another_program_is_refused(table: str) -> None:
    with pytest.raises(ValueError, match=table):
        wanted_entries([P4TableEntry(table, match=Match(x=1), action=forward(1))], FABRIC)


def words(entry: P4TableEntry, schema: P4Schema) -> str:
    ((key, value),) = wanted_entries([entry], schema).items()
    return in_words(key, schema, value)


def test_entries_in_words() -> None:
    assert words(route(0xFCBB_BB00_2001, 3), FABRIC) == (
        "usid_fib locator_node=fcbb:bb00:2001::/48 -> "
        "forward(port=3, dst_mac=00:00:00:00:00:06, src_mac=00:00:00:00:00:07)"
    )
    assert words(ecmp_route(0xFD4D52430000000000000000000A, 7), FABRIC) == (
        "ipv6_fib dst_addr=fd4d:5243::a:0/112 -> to_ecmp(group_id=7)"
    )
    assert words(ecmp_group(7, [1, 1]), FABRIC).startswith("ecmp_groups group_id=7 -> 2 * forward(")
    assert [words(entry, NIC) for entry in plane_set_entries(1, [0, 1])][1] == (
        "plane_sets plane_set=1 down_planes=0b1 -> choose_from(count=1, planes=0o1)"
    )


@given(st.integers(0, (1 << 48) - 1), st.integers(0, 511))
def test_canonical_entries_survive_the_wire(node: int, port: int) -> None:
    (key, value), *_ = wanted_entries([route(node, port)], FABRIC).items()
    data = to_message(key, value).SerializeToString()
    assert from_message(p4r.TableEntry.FromString(data)) == (key, value)


# ---- diff ---------------------------------------------------------------------------------------

routes = st.dictionaries(st.integers(0, 30), st.integers(1, 5))


@given(routes, routes, st.integers(0, 5))
def test_the_plan_leads_to_what_is_wanted_and_a_second_one_is_empty(
    wanted: dict[int, int], held: dict[int, int], seed: int
) -> None:
    want = wanted_entries([route(*item) for item in wanted.items()], FABRIC)
    have = wanted_entries([route(*item) for item in held.items()], FABRIC)
    plan = plan_device(want, have, FABRIC)
    assert last(apply(plan, have, seed)) == want
    assert plan_device(want, want, FABRIC).size == 0
    assert plan.unchanged == sum(held.get(node) == port for node, port in wanted.items())


def test_groups_exist_before_and_after_the_routes_that_use_them() -> None:
    def program(group: int) -> Entries:
        return wanted_entries([ecmp_group(group, [1, 2]), ecmp_route(1, group)], FABRIC)

    ecmp_groups = FABRIC.tables["ecmp_groups"].id
    for before, after in [(program(1), program(2)), (program(1), {}), ({}, program(1))]:
        for state in apply(plan_device(after, before, FABRIC), before):
            groups = {k.match[0].value for k in state if k.table_id == ecmp_groups}
            used = {v.params[0][1] for v in state.values() if isinstance(v, Call)}
            assert used <= groups


def test_a_table_that_is_too_small_is_reported_before_anything_is_written() -> None:
    punts = [
        P4TableEntry("punt", match=Match(ether_type=n), action=Action("to_controller"))
        for n in range(24)
    ]
    with pytest.raises(CapacityError, match="table punt holds 16 entries, 17 are wanted"):
        plan_device(wanted_entries(punts[:17], FABRIC), {}, FABRIC)
    before, after = wanted_entries(punts[:12], FABRIC), wanted_entries(punts[12:], FABRIC)
    with pytest.raises(CapacityError, match="punt holds 16 entries, the change needs 24"):
        plan_device(after, before, FABRIC)


def test_peers_are_left_alone() -> None:
    peers = wanted_entries([peer_entry(n, 7, 100 + n) for n in range(3)], NIC)
    for program in ([], group_entries(1, {0: [1]}, 0)):
        wanted = wanted_entries(program, NIC)
        assert plan_device(wanted, peers, NIC) == plan_device(wanted, {}, NIC)
        assert plan_device({}, wanted | peers, NIC).count(Kind.DELETE) == len(wanted)


# ---- generations --------------------------------------------------------------------------------


def spray_state(entries: Entries, schema: P4Schema) -> dict[int, Any]:
    """What each group would do with a packet: mode, its plane set's and its slots' content."""
    fields = {(t.id, f.id): f.alias for t in schema.tables for f in t.match_fields}
    calls: dict[str, list[tuple[dict[str, int], str, dict[str, int]]]] = {}
    for key, value in entries.items():
        match = {fields[key.table_id, field.field_id]: field.value for field in key.match}
        assert isinstance(value, Call)
        action = schema.actions[value.action_id]
        params = {action.params[number].name: v for number, v in value.params}
        calls.setdefault(schema.tables[key.table_id].alias, []).append(
            (match, action.alias, params)
        )
    result = {}
    for match, mode, params in calls.get("group_cfg", []):
        group = match["group_id"]
        slots = {
            (m["plane"], m["slot"]): p["path_ev"]
            for m, _, p in calls.get("slots", [])
            if m["group_id"] == group and m["generation"] == params["generation"]
        }
        planes = {
            m["down_planes"]: (p["count"], p["planes"])
            for m, _, p in calls.get("plane_sets", [])
            if m["plane_set"] == params["plane_set"]
        }
        result[group] = (mode, params["slots"], slots, planes)
    return result


EVS = st.lists(st.integers(0, 3), min_size=2, max_size=2)
MODES = st.sampled_from(["spray_random", "spray_round_robin"])


@st.composite
def spray_programs(draw: st.DrawFn) -> list[P4TableEntry]:
    """Up to two groups over up to two plane sets of planes 0 and 1."""
    sets = draw(st.lists(st.sampled_from([(0,), (1,), (0, 1), (0, 0, 1)]), min_size=1, max_size=2))
    entries = [e for n, planes in enumerate(sets) for e in plane_set_entries(n, planes)]
    for group in draw(st.sets(st.integers(0, 1))):
        plane_set = draw(st.integers(0, len(sets) - 1))
        paths = {plane: draw(EVS) for plane in sorted(set(sets[plane_set]))}
        entries += group_entries(group, paths, plane_set, draw(MODES))
    return entries


@given(st.lists(spray_programs(), min_size=1, max_size=4), st.integers(0, 9))
@settings(deadline=None)
def test_every_group_is_always_wholly_old_or_wholly_new(
    programs: list[list[P4TableEntry]], seed: int
) -> None:
    held: Entries = {}
    for program in programs:
        wanted = wanted_entries(program, NIC)
        before, after = spray_state(held, NIC), spray_state(wanted, NIC)
        plan = plan_device(wanted, held, NIC)
        for state in apply(plan, held, seed):
            for group, behaviour in spray_state(state, NIC).items():
                assert behaviour in (before.get(group), after.get(group))
            held = state
        assert spray_state(held, NIC) == after
        again = plan_device(wanted, held, NIC)
        assert again.size == 0, "a second push writes nothing"


def test_a_group_switches_by_a_single_modify_and_the_old_slots_go_last() -> None:
    base = plane_set_entries(0, [0, 1])
    held = wanted_entries(base + group_entries(5, {0: [1, 2], 1: [3, 4]}, 0), NIC)
    wanted = wanted_entries(base + group_entries(5, {0: [1, 2], 1: [3, 9]}, 0), NIC)
    make, switch, remove = plan_device(wanted, held, NIC).stages
    assert [change.kind for change in make] == [Kind.INSERT] * 4
    assert [in_words(change.key, NIC) for change in switch] == ["group_cfg group_id=5"]
    assert switch[0].kind is Kind.MODIFY
    assert [change.kind for change in remove] == [Kind.DELETE] * 4
    assert all(" generation=0 " in in_words(change.key, NIC) for change in remove)


def test_a_change_of_mode_alone_keeps_the_generation() -> None:
    base = plane_set_entries(0, [0, 1])
    paths = {0: [1, 2], 1: [3, 4]}
    held = wanted_entries(base + group_entries(5, paths, 0), NIC)
    wanted = wanted_entries(base + group_entries(5, paths, 0, "spray_round_robin"), NIC)
    ((change,),) = plan_device(wanted, held, NIC).stages
    assert change.kind is Kind.MODIFY


def test_an_interrupted_change_is_completed() -> None:
    base = plane_set_entries(0, [0, 1])
    held = wanted_entries(base + group_entries(5, {0: [1, 2], 1: [3, 4]}, 0), NIC)
    wanted = wanted_entries(base + group_entries(5, {0: [7, 2], 1: [3, 9]}, 0), NIC)
    states = list(apply(plan_device(wanted, held, NIC), held))
    for state in states:
        final = last(apply(plan_device(wanted, state, NIC), state))
        assert spray_state(final, NIC) == spray_state(wanted, NIC)
        back = last(apply(plan_device(held, state, NIC), state))
        assert spray_state(back, NIC) == spray_state(held, NIC)
        assert len(final) == len(back) == len(wanted), "nothing of either attempt is left behind"


def test_an_ecmp_destination_follows_its_plane_set() -> None:
    def program(planes: Sequence[int]) -> Entries:
        action = Action("ecmp", plane_set=0)
        entry = P4TableEntry("destinations", match=Match(dst_addr=(1 << 16, 112)), action=action)
        return wanted_entries([*plane_set_entries(0, planes), entry], NIC)

    plan = plan_device(program([1]), program([0, 1]), NIC)
    _, (change,), _ = plan.stages
    assert "ecmp(plane_set=1)" in in_words(change.key, NIC, change.value)
