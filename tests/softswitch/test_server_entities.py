# SPDX-License-Identifier: Apache-2.0
"""Action profiles, counters, registers, multicast groups and clone sessions over gRPC."""

from __future__ import annotations

from typing import Any

from finsy.proto import p4r

from softswitch.boundary import DataplaneLike
from softswitch.shadow import ShadowProfile
from tests.softswitch.p4rt import (
    DELETE,
    INSERT,
    MODIFY,
    RawClient,
    clone,
    codes,
    entity,
    multicast,
    only_error,
    read_error,
    update,
)

OK, INVALID = "OK", "INVALID_ARGUMENT"


def members_of_selector(dataplane: DataplaneLike) -> int:
    """How many members the data plane has, those of one-shot sets included."""
    profile: Any = dataplane.profiles["EntitiesIngress.selector"]
    return int(profile.members) if isinstance(profile, ShadowProfile) else len(profile._members)


# --- action profiles --------------------------------------------------------------------------


def member(client: RawClient, number: int, *action: Any, profile: str = "selector") -> Any:
    message = p4r.ActionProfileMember(
        action_profile_id=client.id("action_profiles", profile), member_id=number
    )
    if action:
        message.action.CopyFrom(client.action(*action))
    return message


def group(client: RawClient, number: int, *members: tuple[int, int], **fields: Any) -> Any:
    return p4r.ActionProfileGroup(
        action_profile_id=client.id("action_profiles", "selector"),
        group_id=number,
        members=[p4r.ActionProfileGroup.Member(member_id=m, weight=w) for m, w in members],
        **fields,
    )


def ecmp_entry(client: RawClient, ether_type: int, **action: Any) -> Any:
    entry = client.entry("ecmp", {"ether_type": ether_type})
    entry.action.CopyFrom(p4r.TableAction(**action))
    return entry


def action_set(client: RawClient, *actions: tuple[int, int]) -> Any:
    return p4r.ActionProfileActionSet(
        action_profile_actions=[
            p4r.ActionProfileAction(action=client.action("forward", port, 1), weight=weight)
            for port, weight in actions
        ]
    )


def test_members_and_groups(client: RawClient) -> None:
    first, second = member(client, 1, "forward", 1, 1), member(client, 2, "drop")
    both = group(client, 5, (1, 1), (2, 3))
    entry = ecmp_entry(client, 0x0800, action_profile_group_id=5)
    client.write(update(INSERT, action_profile_member=first))
    client.write(update(INSERT, action_profile_member=second))
    client.write(update(INSERT, action_profile_group=both))
    client.write(update(INSERT, table_entry=entry))

    def members(profile: int, number: int = 0) -> list[Any]:
        query = p4r.ActionProfileMember(action_profile_id=profile, member_id=number)
        return [e.action_profile_member for e in client.read(entity(action_profile_member=query))]

    def groups(number: int = 0) -> list[Any]:
        query = p4r.ActionProfileGroup(action_profile_id=both.action_profile_id, group_id=number)
        return [e.action_profile_group for e in client.read(entity(action_profile_group=query))]

    assert members(0) == members(first.action_profile_id) == [first, second]
    assert members(first.action_profile_id, 2) == [second]
    assert members(first.action_profile_id, 3) == []
    assert groups() == groups(5) == [both]
    assert client.read(entity(table_entry=client.entry("ecmp")))[0].table_entry == entry

    for change, code in (
        (update(INSERT, action_profile_member=first), "ALREADY_EXISTS"),
        (update(INSERT, action_profile_group=both), "ALREADY_EXISTS"),
        (update(DELETE, action_profile_member=first), "FAILED_PRECONDITION"),
        (update(DELETE, action_profile_group=both), "FAILED_PRECONDITION"),
        (update(MODIFY, action_profile_member=member(client, 9, "drop")), "NOT_FOUND"),
        (update(DELETE, action_profile_member=member(client, 9)), "NOT_FOUND"),
        (update(DELETE, action_profile_group=group(client, 9)), "NOT_FOUND"),
        (update(INSERT, action_profile_group=group(client, 6, (9, 1))), "NOT_FOUND"),
        (update(INSERT, action_profile_group=group(client, 6, (1, 1), (1, 1))), INVALID),
        (update(INSERT, action_profile_group=group(client, 6, (1, 0))), INVALID),
        (update(INSERT, action_profile_group=group(client, 0, (1, 1))), INVALID),
        (update(INSERT, action_profile_member=member(client, 0, "drop")), INVALID),
        (update(INSERT, action_profile_member=member(client, 8)), INVALID),
        (update(INSERT, action_profile_member=member(client, 8, "to_cpu")), INVALID),
        (update(INSERT, action_profile_member=member(client, 8, "NoAction")), "PERMISSION_DENIED"),
        (update(INSERT, table_entry=ecmp_entry(client, 1, action_profile_group_id=9)), "NOT_FOUND"),
        (
            update(INSERT, table_entry=ecmp_entry(client, 1, action_profile_member_id=9)),
            "NOT_FOUND",
        ),
    ):
        assert only_error(client, change)[0] == code, change
    changed = member(client, 1, "forward", 7, 7)
    client.write(update(MODIFY, action_profile_member=changed))
    assert members(0)[0] == changed

    smaller = group(client, 5, (2, 1))
    client.write(update(MODIFY, action_profile_group=smaller))
    assert groups() == [smaller]
    client.write(update(DELETE, action_profile_member=first))
    client.write(update(DELETE, table_entry=entry))
    client.write(update(DELETE, action_profile_group=smaller))
    client.write(update(DELETE, action_profile_member=second))
    assert members(0) == groups() == []


def test_group_sizes(client: RawClient) -> None:
    client.write(
        update(INSERT, action_profile_member=member(client, 1, "drop")),
        update(INSERT, action_profile_member=member(client, 2, "drop")),
        update(INSERT, action_profile_group=group(client, 1, (1, 2), max_size=3)),
    )
    too_large = group(client, 1, (1, 2), (2, 2), max_size=3)
    assert (
        only_error(client, update(MODIFY, action_profile_group=too_large))[0]
        == "RESOURCE_EXHAUSTED"
    )
    other_size = group(client, 1, (1, 2), max_size=4)
    assert only_error(client, update(MODIFY, action_profile_group=other_size))[0] == INVALID
    negative = group(client, 2, (1, 2), max_size=-1)
    assert only_error(client, update(INSERT, action_profile_group=negative))[0] == INVALID


def test_profile_without_selector(client: RawClient) -> None:
    one = member(client, 1, "forward", 1, 1, profile="profile")
    client.write(update(INSERT, action_profile_member=one))
    entry = client.entry("indirect", {"ether_type": 1})
    entry.action.action_profile_member_id = 1
    client.write(update(INSERT, table_entry=entry))
    assert client.read(entity(table_entry=client.entry("indirect")))[0].table_entry == entry
    assert only_error(client, update(DELETE, action_profile_member=one))[0] == "FAILED_PRECONDITION"
    wrong = group(client, 1)
    wrong.action_profile_id = one.action_profile_id
    assert only_error(client, update(INSERT, action_profile_group=wrong))[0] == INVALID
    entry.match[0].exact.value = b"\x02"
    entry.action.action_profile_action_set.CopyFrom(action_set(client, (1, 1)))
    assert only_error(client, update(INSERT, table_entry=entry))[0] == INVALID
    entry.action.action.CopyFrom(client.action("drop"))
    assert only_error(client, update(INSERT, table_entry=entry))[0] == INVALID


def test_full_profile(client: RawClient) -> None:
    changes = [
        update(INSERT, action_profile_member=member(client, i, "drop", profile="profile"))
        for i in range(1, 10)
    ]
    assert codes(client.outcomes(*changes)) == [OK] * 8 + ["RESOURCE_EXHAUSTED"]


def test_one_shot(client: RawClient, dataplane: DataplaneLike) -> None:
    entry = ecmp_entry(
        client, 1, action_profile_action_set=action_set(client, (1, 1), (2, 2), (1, 1))
    )
    client.write(update(INSERT, table_entry=entry))
    assert client.read(entity(table_entry=client.entry("ecmp")))[0].table_entry == entry
    assert members_of_selector(dataplane) == 3
    # One-shot sets have no ids of their own.
    assert client.read(entity(action_profile_member=p4r.ActionProfileMember())) == []
    assert client.read(entity(action_profile_group=p4r.ActionProfileGroup())) == []

    entry = ecmp_entry(client, 1, action_profile_action_set=action_set(client, (4, 1)))
    client.write(update(MODIFY, table_entry=entry))
    assert client.read(entity(table_entry=client.entry("ecmp")))[0].table_entry == entry
    assert members_of_selector(dataplane) == 1
    client.write(update(DELETE, table_entry=entry))
    assert members_of_selector(dataplane) == 0


def test_one_shot_that_does_not_fit_leaves_nothing(
    client: RawClient, dataplane: DataplaneLike
) -> None:
    large = action_set(client, *((p, 1) for p in range(65)))
    entry = ecmp_entry(client, 1, action_profile_action_set=large)
    assert only_error(client, update(INSERT, table_entry=entry))[0] == "RESOURCE_EXHAUSTED"
    assert members_of_selector(dataplane) == 0
    for bad in (action_set(client, (1, 0)), action_set(client, (1, 1), (512, 1))):
        entry = ecmp_entry(client, 1, action_profile_action_set=bad)
        assert only_error(client, update(INSERT, table_entry=entry))[0] == INVALID
        assert members_of_selector(dataplane) == 0
    client.write(update(INSERT, action_profile_member=member(client, 1, "drop")))


def test_one_shot_and_members_exclude_each_other(client: RawClient) -> None:
    entry = ecmp_entry(client, 1, action_profile_action_set=action_set(client, (1, 1)))
    client.write(update(INSERT, table_entry=entry))
    one = update(INSERT, action_profile_member=member(client, 1, "drop"))
    assert only_error(client, one)[0] == INVALID
    client.write(update(DELETE, table_entry=entry))
    client.write(one)
    code, message = only_error(client, update(INSERT, table_entry=entry))
    assert code == INVALID
    assert "programmed with 1 members and 0 groups" in message


def test_rollback_of_profiles(client: RawClient) -> None:
    client.write(
        update(INSERT, action_profile_member=member(client, 1, "forward", 1, 1)),
        update(INSERT, action_profile_member=member(client, 2, "drop")),
        update(INSERT, action_profile_group=group(client, 1, (1, 1))),
        update(INSERT, table_entry=ecmp_entry(client, 1, action_profile_group_id=1)),
    )
    query = (
        entity(action_profile_member=p4r.ActionProfileMember()),
        entity(action_profile_group=p4r.ActionProfileGroup()),
        entity(table_entry=client.entry("ecmp")),
    )
    before = sorted(map(str, client.read(*query)))
    batch = [
        update(INSERT, action_profile_member=member(client, 3, "drop")),
        update(MODIFY, action_profile_group=group(client, 1, (3, 2))),
        update(DELETE, action_profile_member=member(client, 1)),
        update(MODIFY, action_profile_member=member(client, 2, "forward", 4, 4)),
        update(DELETE, table_entry=ecmp_entry(client, 1)),
        update(DELETE, action_profile_group=group(client, 1)),
        update(DELETE, action_profile_member=member(client, 9)),
    ]
    outcomes = client.outcomes(*batch, atomicity=p4r.WriteRequest.ROLLBACK_ON_ERROR)
    assert codes(outcomes) == ["ABORTED"] * 6 + ["NOT_FOUND"]
    assert sorted(map(str, client.read(*query))) == before
    client.write(*batch[:6], atomicity=p4r.WriteRequest.ROLLBACK_ON_ERROR)


def test_rollback_of_one_shots(client: RawClient, dataplane: DataplaneLike) -> None:
    first = ecmp_entry(client, 1, action_profile_action_set=action_set(client, (1, 1), (2, 1)))
    second = ecmp_entry(client, 2, action_profile_action_set=action_set(client, (3, 1)))
    client.write(update(INSERT, table_entry=first), update(INSERT, table_entry=second))
    before = client.read(entity(table_entry=client.entry("ecmp")))
    changed = ecmp_entry(client, 2, action_profile_action_set=action_set(client, (5, 1), (6, 1)))
    batch = [
        update(DELETE, table_entry=first),
        update(MODIFY, table_entry=changed),
        update(INSERT, table_entry=second),
    ]
    outcomes = client.outcomes(*batch, atomicity=p4r.WriteRequest.ROLLBACK_ON_ERROR)
    assert codes(outcomes) == ["ABORTED", "ABORTED", "ALREADY_EXISTS"]
    after = client.read(entity(table_entry=client.entry("ecmp")))
    assert sorted(map(str, after)) == sorted(map(str, before))
    assert members_of_selector(dataplane) == 3


# --- a change of programs ---------------------------------------------------------------------


def test_everything_survives_reconcile_and_save(client: RawClient) -> None:
    """RECONCILE_AND_COMMIT keeps every kind of entity; COMMIT brings what came after SAVE."""
    everything = (
        entity(table_entry=p4r.TableEntry(counter_data=p4r.CounterData())),
        entity(table_entry=client.entry("lpm_table", is_default_action=True)),
        entity(action_profile_member=p4r.ActionProfileMember()),
        entity(action_profile_group=p4r.ActionProfileGroup()),
        entity(counter_entry=p4r.CounterEntry()),
        entity(register_entry=p4r.RegisterEntry()),
        entity(packet_replication_engine_entry=multicast(0)),
        entity(packet_replication_engine_entry=clone(0)),
        entity(digest_entry=p4r.DigestEntry()),
    )
    default = client.entry("lpm_table", is_default_action=True)
    default.action.action.CopyFrom(client.action("forward", 1, 2))
    digest = p4r.DigestEntry(digest_id=client.id("digests", "learn_t"))
    digest.config.max_list_size = 5
    counted = p4r.CounterData(packet_count=4, byte_count=5)
    writes = [
        update(INSERT, action_profile_member=member(client, 1, "drop")),
        update(INSERT, action_profile_group=group(client, 1, (1, 2))),
        update(INSERT, table_entry=ecmp_entry(client, 1, action_profile_group_id=1)),
        client.insert("exact_table", {"dst_mac": 1}, "forward", 1, 1, counter_data=counted),
        client.insert("acl", {"port": 3}, "drop", priority=5),
        update(MODIFY, table_entry=default),
        update(MODIFY, counter_entry=cell(client, 3, (5, 500))),
        update(MODIFY, register_entry=register(client, 3, b"\x07")),
        update(INSERT, packet_replication_engine_entry=multicast(1, (b"\x01", 5))),
        update(INSERT, packet_replication_engine_entry=clone(5, 1)),
        update(INSERT, digest_entry=digest),
    ]
    client.write(*writes)
    before = client.read(*everything)
    client.set_pipeline("RECONCILE_AND_COMMIT")
    assert client.read(*everything) == before
    client.set_pipeline("VERIFY_AND_SAVE")
    client.write(*writes)
    client.set_pipeline("COMMIT", None)
    assert client.read(*everything) == before


# --- counters and registers -------------------------------------------------------------------


def cell(client: RawClient, index: int | None, data: Any = None) -> Any:
    entry = p4r.CounterEntry(counter_id=client.id("counters", "port_in"))
    if index is not None:
        entry.index.index = index
    if data is not None:
        entry.data.packet_count, entry.data.byte_count = data
    return entry


def test_counters(client: RawClient) -> None:
    def read(index: int | None) -> list[tuple[int, int, int]]:
        entries = [e.counter_entry for e in client.read(entity(counter_entry=cell(client, index)))]
        assert all(e.HasField("index") and e.HasField("data") for e in entries)
        return [(e.index.index, e.data.packet_count, e.data.byte_count) for e in entries]

    assert len(read(None)) == 512
    client.write(update(MODIFY, counter_entry=cell(client, 3, (5, 500))))
    client.write(update(MODIFY, counter_entry=cell(client, 0, (1, 100))))
    client.write(update(MODIFY, counter_entry=cell(client, 0)))
    assert read(0) + read(3) == [(0, 1, 100), (3, 5, 500)]
    assert len(client.read(entity(counter_entry=p4r.CounterEntry()))) == 512
    client.write(update(MODIFY, counter_entry=cell(client, None, (9, 9))))
    assert read(None) == [(i, 9, 9) for i in range(512)]
    for change, code in (
        (update(MODIFY, counter_entry=cell(client, -1, (1, 1))), INVALID),
        (update(MODIFY, counter_entry=cell(client, 512, (1, 1))), "OUT_OF_RANGE"),
        (update(MODIFY, counter_entry=cell(client, 1, (-1, 1))), INVALID),
        (update(INSERT, counter_entry=cell(client, 1, (1, 1))), INVALID),
        (update(DELETE, counter_entry=cell(client, 1)), INVALID),
        (update(MODIFY, counter_entry=p4r.CounterEntry(counter_id=1)), INVALID),
    ):
        assert only_error(client, change)[0] == code
    assert read_error(client, entity(counter_entry=cell(client, 512))) == "OUT_OF_RANGE"


def register(client: RawClient, index: int | None, value: bytes | None = None) -> Any:
    entry = p4r.RegisterEntry(register_id=client.id("registers", "cells"))
    if index is not None:
        entry.index.index = index
    if value is not None:
        entry.data.bitstring = value
    return entry


def test_registers(client: RawClient) -> None:
    def read(index: int | None) -> list[tuple[int, bytes]]:
        found = client.read(entity(register_entry=register(client, index)))
        return [(e.register_entry.index.index, e.register_entry.data.bitstring) for e in found]

    assert read(None) == [(i, b"\x00") for i in range(16)]
    client.write(update(MODIFY, register_entry=register(client, 15, b"\x00\x01\x00")))
    assert read(15) == [(15, b"\x01\x00")]
    client.write(update(MODIFY, register_entry=register(client, None, b"\x07")))
    assert read(None) == [(i, b"\x07") for i in range(16)]
    assert len(client.read(entity(register_entry=p4r.RegisterEntry()))) == 16
    for change, code in (
        (register(client, 16, b"\x01"), "OUT_OF_RANGE"),
        (register(client, -1, b"\x01"), INVALID),
        (register(client, 1, b"\x01" + bytes(6)), INVALID),
        (register(client, 1, b""), INVALID),
        (register(client, 1), INVALID),
        (
            p4r.RegisterEntry(register_id=register(client, 1).register_id, data={"bool": True}),
            INVALID,
        ),
    ):
        assert only_error(client, update(MODIFY, register_entry=change))[0] == code
    assert (
        only_error(client, update(INSERT, register_entry=register(client, 1, b"\x01")))[0]
        == INVALID
    )


def test_rollback_of_arrays(client: RawClient) -> None:
    client.write(update(MODIFY, counter_entry=cell(client, 3, (5, 500))))
    batch = [
        update(MODIFY, counter_entry=cell(client, None, (9, 9))),
        update(MODIFY, register_entry=register(client, None, b"\x07")),
        update(MODIFY, register_entry=register(client, 99, b"\x07")),
    ]
    outcomes = client.outcomes(*batch, atomicity=p4r.WriteRequest.ROLLBACK_ON_ERROR)
    assert codes(outcomes) == ["ABORTED", "ABORTED", "OUT_OF_RANGE"]
    (found,) = client.read(entity(counter_entry=cell(client, 3)))
    assert found.counter_entry.data.packet_count == 5
    (found,) = client.read(entity(register_entry=register(client, 3)))
    assert found.register_entry.data.bitstring == b"\x00"


def test_reading_what_a_program_has_none_of(client: RawClient) -> None:
    """A client that reads everything asks for these too."""
    assert (
        client.read(
            entity(extern_entry=p4r.ExternEntry()),
            entity(meter_entry=p4r.MeterEntry()),
            entity(direct_meter_entry=p4r.DirectMeterEntry()),
            entity(value_set_entry=p4r.ValueSetEntry()),
            entity(digest_entry=p4r.DigestEntry()),
        )
        == []
    )
    assert (
        read_error(client, entity(extern_entry=p4r.ExternEntry(extern_type_id=1)))
        == "UNIMPLEMENTED"
    )
