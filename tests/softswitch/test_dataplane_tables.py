# SPDX-License-Identifier: Apache-2.0
"""Tables and action profiles as Python programs them: look-ups, handles, and every refusal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from softswitch.dataplane import Dataplane
from softswitch.errors import (
    AlreadyExists,
    DataplaneError,
    InUse,
    InvalidArgument,
    NotFound,
    ReadOnly,
    TableFull,
)
from softswitch.values import ActionCall, FieldMatch, GroupRef, MemberRef
from tests.softswitch.dataplanes import field, loaded, probe

SET, ADD, DROP = "ingress.set", "ingress.add", "ingress.drop"
MARK, TO = "ingress.mark", "ingress.to"


@pytest.fixture
def match() -> Iterator[Dataplane]:
    with loaded("match") as dataplane:
        yield dataplane


@pytest.fixture
def selector() -> Iterator[Dataplane]:
    with loaded("selector") as dataplane:
        yield dataplane


def b_of(dataplane: Dataplane, **fields: int) -> int:
    """Field b of what leaves."""
    ((_, packet),) = dataplane.process(1, probe(b"", bytes(12), **fields))
    return field(packet, "b")


def prefix(value: int, length: int, a: int = 0) -> list[FieldMatch]:
    return [FieldMatch(value, prefix_len=length), FieldMatch(a)]


def test_the_longest_prefix_wins_and_comes_back_after_deletion(match: Dataplane) -> None:
    table = match.tables["ingress.by_lpm"]
    handles = {
        length: table.insert(prefix(1 << 127, length), 0, ActionCall(SET, (length,)))
        for length in (0, 1, 64, 128)
    }
    # by_ternary's default action adds 1.
    assert b_of(match, e=1 << 127) == 129
    table.delete(handles[128])
    assert b_of(match, e=1 << 127) == 65
    assert b_of(match, e=1 << 127 | 1 << 100) == 2
    assert b_of(match, e=5) == 1
    table.modify(handles[0], ActionCall(SET, (77,)))
    assert b_of(match, e=5) == 78
    assert table.read_counter(handles[0]) == (2, 2 * len(probe()))
    assert table.read_default_counter() == (0, 0)
    assert b_of(match, e=5, a=9) == 1
    assert table.read_default_counter() == (1, len(probe()))
    table.write_counter(handles[0], 4, 5)
    assert table.read_counter(handles[0]) == (4, 5)


def test_the_higher_priority_wins_then_the_older_entry(match: Dataplane) -> None:
    table = match.tables["ingress.by_ternary"]

    def insert(mask: int, priority: int, add: int) -> int:
        keys = [FieldMatch(0, mask=mask), FieldMatch(0, mask=0), FieldMatch(0)]
        return table.insert(keys, priority, ActionCall(ADD, (add,)))

    low = insert(0xFF, 1, 10)
    assert b_of(match) == 10
    high = insert(0xF, 7, 20)
    assert b_of(match) == 20
    insert(0xFFF, 7, 30)
    assert b_of(match) == 20
    with pytest.raises(AlreadyExists):
        insert(0xF, 7, 40)
    insert(0xF, 8, 50)
    assert b_of(match) == 50
    table.delete(high)
    assert b_of(match) == 50
    table.delete(low)
    with pytest.raises(NotFound):
        table.delete(low)


def test_ranges_include_both_ends(match: Dataplane) -> None:
    table = match.tables["ingress.by_range"]
    keys = [FieldMatch(10, high=20), FieldMatch(0, mask=0), FieldMatch(0, high=(1 << 13) - 1)]
    table.insert(keys, 1, ActionCall(ADD, (100,)))
    assert [b_of(match, d=d) for d in (9, 10, 20, 21)] == [1, 101, 101, 1]
    with pytest.raises(AlreadyExists):
        table.insert(keys, 1, ActionCall(ADD, (1,)))


def test_constant_entries_and_defaults_are_read_only(match: Dataplane) -> None:
    table = match.tables["ingress.fixed"]
    ports = [match.process(1, probe(op=op))[0][0] for op in (0x1F, 0x11, 0x80, 0x81)]
    assert ports == [3, 3, 2, 1]
    (first, *_) = table.initial_handles
    keys = [FieldMatch(1, mask=1), FieldMatch(1)]
    with pytest.raises(ReadOnly, match="fixed"):
        table.insert(keys, 1, ActionCall(DROP))
    with pytest.raises(ReadOnly):
        table.delete(first)
    with pytest.raises(ReadOnly):
        table.modify(first, ActionCall(DROP))
    with pytest.raises(ReadOnly, match="default"):
        table.set_default(ActionCall(DROP))
    table.set_default(None)


def test_default_actions_change_and_come_back(match: Dataplane) -> None:
    table = match.tables["ingress.by_ternary"]
    table.set_default(ActionCall(ADD, (9,)))
    assert b_of(match) == 9
    table.set_default(None)
    assert b_of(match) == 1


def test_a_full_table_refuses_and_takes_again_after_a_deletion(match: Dataplane) -> None:
    table = match.tables["ingress.by_lpm"]
    handles = [table.insert(prefix(n, 128), 0, ActionCall(SET, (n,))) for n in range(128)]
    assert len(set(handles)) == 128
    with pytest.raises(TableFull, match="by_lpm"):
        table.insert(prefix(500, 128), 0, ActionCall(SET, (1,)))
    table.delete(handles[3])
    table.insert(prefix(500, 128), 0, ActionCall(SET, (1,)))
    assert b_of(match, e=500) == 2
    assert b_of(match, e=3) == 1


@pytest.mark.parametrize(
    ("keys", "action", "says"),
    [
        ([FieldMatch(0)], ActionCall(SET, (1,)), "2 keys are needed, not 1"),
        (prefix(1 << 128, 128), ActionCall(SET, (1,)), "does not fit 128 bits"),
        (prefix(0, 129), ActionCall(SET, (1,)), "prefix length 129; at most 128"),
        (prefix(0, 0, 256), ActionCall(SET, (1,)), "does not fit 8 bits"),
        (prefix(0, 0, -1), ActionCall(SET, (1,)), "does not fit 8 bits"),
        (prefix(0, 0), ActionCall(SET, (1 << 16,)), "does not fit 16 bits"),
        (prefix(0, 0), ActionCall(SET), "takes 1 parameters, not 0"),
        (prefix(0, 0), ActionCall(ADD, (1,)), "allowed: ingress.set"),
        (prefix(0, 0), MemberRef(0), "no action profile"),
    ],
)
def test_what_does_not_fit_is_refused(
    match: Dataplane,
    keys: list[FieldMatch],
    action: ActionCall | MemberRef,
    says: str,
) -> None:
    table = match.tables["ingress.by_lpm"]
    with pytest.raises(InvalidArgument, match=says):
        table.insert(keys, 0, action)
    assert table.insert(prefix(0, 0), 0, ActionCall(SET, (1,))) == 0


def test_ranges_and_masks_that_do_not_fit_are_refused(match: Dataplane) -> None:
    full = FieldMatch(0, high=(1 << 13) - 1)
    for keys in (
        [FieldMatch(5, high=4), FieldMatch(0), full],
        [FieldMatch(0, high=1 << 64), FieldMatch(0), full],
        [FieldMatch(0, high=1), FieldMatch(0, mask=256), full],
    ):
        with pytest.raises(InvalidArgument, match="by_range"):
            match.tables["ingress.by_range"].insert(keys, 1, ActionCall(ADD, (1,)))


@pytest.mark.parametrize("handle", [0, 1, 10**6, 2**31 - 1])
def test_handles_of_nothing_are_not_found(match: Dataplane, handle: int) -> None:
    table = match.tables["ingress.by_lpm"]
    for attempt in (
        lambda: table.delete(handle),
        lambda: table.modify(handle, ActionCall(SET, (1,))),
        lambda: table.read_counter(handle),
        lambda: table.write_counter(handle, 0, 0),
    ):
        with pytest.raises(NotFound):
            attempt()


# ---- action profiles -----------------------------------------------------------------------------


def test_members_change_for_all_who_refer_to_them(selector: Dataplane) -> None:
    profile, table = selector.profiles["ingress.marks"], selector.tables["ingress.marking"]
    member = profile.add_member(ActionCall(MARK, (5,)))
    handles = [table.insert([FieldMatch(op)], 0, MemberRef(member)) for op in (1, 2)]
    profile.modify_member(member, ActionCall(MARK, (6,)))
    for op in (1, 2):
        ((_, packet),) = selector.process(1, probe(op=op))
        assert field(packet, "a") == 6
    with pytest.raises(InUse, match="still referred to"):
        profile.delete_member(member)
    for handle in handles:
        table.delete(handle)
    profile.delete_member(member)
    with pytest.raises(NotFound):
        profile.modify_member(member, ActionCall(MARK, (1,)))
    with pytest.raises(NotFound):
        table.insert([FieldMatch(1)], 0, MemberRef(member))
    with pytest.raises(InvalidArgument, match="members or groups"):
        table.insert([FieldMatch(1)], 0, ActionCall(MARK, (1,)))


def test_a_full_profile_refuses(selector: Dataplane) -> None:
    profile = selector.profiles["ingress.marks"]
    members = [profile.add_member(ActionCall(MARK, (n,))) for n in range(32)]
    with pytest.raises(TableFull, match="32 members"):
        profile.add_member(ActionCall(MARK, (1,)))
    profile.delete_member(members[7])
    assert profile.add_member(ActionCall(MARK, (1,))) == members[7]


def test_groups_spread_by_weight_and_keep_flows_together(selector: Dataplane) -> None:
    profile, table = selector.profiles["ingress.choices"], selector.tables["ingress.choosing"]
    one, three = (profile.add_member(ActionCall(TO, (port, 0))) for port in (1, 3))
    group = profile.create_group(16)
    keys = [FieldMatch(4)]
    table.insert(keys, 0, GroupRef(group))
    profile.set_group(group, [(one, 1), (three, 3)])

    def ports() -> list[int]:
        return [selector.process(2, probe(x=4, c=n * 77, d=n))[0][0] for n in range(2000)]

    first = ports()
    assert set(first) == {1, 3}
    assert 0.7 < first.count(3) / len(first) < 0.8
    assert ports() == first
    profile.modify_member(three, ActionCall(TO, (4, 0)))
    assert ports() == [4 if port == 3 else port for port in first]
    with pytest.raises(InUse):
        profile.delete_group(group)
    with pytest.raises(InUse):
        profile.delete_member(three)
    profile.set_group(group, [(one, 1)])
    assert set(ports()) == {1}
    profile.delete_member(three)
    # The places of the copies that the weight needed are free again.
    assert {profile.add_member(ActionCall(TO, (2, n))) for n in range(3)} == {1, 2, 3}


def test_groups_refuse_what_is_not_there(selector: Dataplane) -> None:
    profile = selector.profiles["ingress.choices"]
    member = profile.add_member(ActionCall(TO, (1, 0)))
    group = profile.create_group(4)
    for members, error in (
        ([(member, 0)], InvalidArgument),
        ([(member, -1)], InvalidArgument),
        ([(member, 1), (member, 2)], InvalidArgument),
        ([(member + 1, 1)], NotFound),
    ):
        with pytest.raises(error):
            profile.set_group(group, members)
    with pytest.raises(NotFound):
        profile.set_group(group + 1, [])
    with pytest.raises(NotFound):
        profile.delete_group(group + 1)
    profile.delete_group(group)


def test_replicas_refuse_what_is_not_there(selector: Dataplane) -> None:
    with pytest.raises(NotFound):
        selector.delete_multicast_group(4)
    with pytest.raises(NotFound):
        selector.delete_clone_session(4)
    with pytest.raises(DataplaneError, match="0 to 65535"):
        selector.set_multicast_group(1, [(65536, 0)])
