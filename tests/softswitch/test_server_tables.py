# SPDX-License-Identifier: Apache-2.0
"""Table entries over gRPC: values, match kinds, scopes, default and constant entries, counters."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from finsy.proto import p4r

from tests.softswitch.p4rt import (
    DELETE,
    INSERT,
    MODIFY,
    RawClient,
    codes,
    details,
    entity,
    only_error,
    update,
)

OK, INVALID, DENIED = "OK", "INVALID_ARGUMENT", "PERMISSION_DENIED"


def read_table(client: RawClient, table: str, **query: Any) -> list[Any]:
    return [e.table_entry for e in client.read(entity(table_entry=client.entry(table, **query)))]


# --- one entry's life -------------------------------------------------------------------------


def test_insert_read_modify_delete(client: RawClient) -> None:
    first = client.insert("exact_table", {"dst_mac": 0x0200}, "forward", 3, 0x0300)
    client.write(first)
    assert read_table(client, "exact_table") == [first.entity.table_entry]

    changed = client.insert("exact_table", {"dst_mac": 0x0200}, "flood", 9)
    changed.type = MODIFY
    client.write(changed)
    assert read_table(client, "exact_table") == [changed.entity.table_entry]

    # Only the key counts in a DELETE, whatever else the message says.
    wrong = client.entry("exact_table", {"dst_mac": 0x0200})
    wrong.action.action.action_id = 12345
    client.write(update(DELETE, table_entry=wrong))
    assert read_table(client, "exact_table") == []


def test_errors_of_a_batch_are_told_apart(client: RawClient) -> None:
    one = client.insert("exact_table", {"dst_mac": 1}, "drop")
    two = client.insert("exact_table", {"dst_mac": 2}, "drop")
    missing = update(DELETE, table_entry=client.entry("exact_table", {"dst_mac": 3}))
    assert codes(client.outcomes(one, one, missing, two)) == [OK, "ALREADY_EXISTS", "NOT_FOUND", OK]
    assert len(read_table(client, "exact_table")) == 2


def test_unspecified_update_type_and_empty_entity(client: RawClient) -> None:
    entry = client.insert("exact_table", {"dst_mac": 1}, "drop")
    entry.type = 0
    assert codes(client.outcomes(entry, p4r.Update(type=INSERT))) == [INVALID, INVALID]


def test_unknown_table(client: RawClient) -> None:
    change = update(INSERT, table_entry=p4r.TableEntry(table_id=5))
    assert "no table with id 5" in only_error(client, change)[1]


def test_full_table(client: RawClient) -> None:
    inserts = [client.insert("lpm_table", {"src_mac": (i << 40, 8)}, "drop") for i in range(1, 6)]
    assert codes(client.outcomes(*inserts)) == [OK, OK, OK, OK, "RESOURCE_EXHAUSTED"]
    client.write(update(DELETE, table_entry=client.entry("lpm_table", {"src_mac": (1 << 40, 8)})))
    client.write(inserts[4])


def test_metadata_is_kept(client: RawClient) -> None:
    first = client.insert(
        "exact_table", {"dst_mac": 1}, "drop", metadata=b"\x00note", controller_metadata=1 << 63
    )
    client.write(first)
    assert read_table(client, "exact_table") == [first.entity.table_entry]


def test_modify_without_action_keeps_the_action(client: RawClient) -> None:
    client.write(client.insert("exact_table", {"dst_mac": 1}, "forward", 1, 2, metadata=b"old"))
    client.write(
        update(MODIFY, table_entry=client.entry("exact_table", {"dst_mac": 1}, metadata=b"new"))
    )
    expected = client.insert("exact_table", {"dst_mac": 1}, "forward", 1, 2, metadata=b"new")
    assert read_table(client, "exact_table") == [expected.entity.table_entry]
    assert only_error(
        client, update(INSERT, table_entry=client.entry("exact_table", {"dst_mac": 9}))
    ) == (INVALID, "table 'EntitiesIngress.exact_table': an INSERT needs an action")


# --- values and match kinds -------------------------------------------------------------------


def test_longer_byte_strings_are_accepted_and_read_back_short(client: RawClient) -> None:
    change = client.insert("exact_table", {"dst_mac": b"\x00\x00\x05"}, "forward", 1, 2)
    change.entity.table_entry.action.action.params[0].value = b"\x00\x01"
    client.write(change)
    expected = client.insert("exact_table", {"dst_mac": 5}, "forward", 1, 2)
    assert read_table(client, "exact_table") == [expected.entity.table_entry]
    assert codes(client.outcomes(expected)) == ["ALREADY_EXISTS"]


@pytest.mark.parametrize(
    ("table", "match", "message"),
    [
        ("exact_table", {}, "exact match field 'dst_mac' is missing"),
        ("exact_table", {"dst_mac": b""}, "empty byte string"),
        ("exact_table", {"dst_mac": 1 << 48}, "0x1000000000000 does not fit in 48 bits"),
        ("two_keys", {"port": 512, "ether_type": 1}, "0x200 does not fit in 9 bits"),
        ("two_keys", {"port": 1}, "exact match field 'ether_type' is missing"),
        ("lpm_table", {"src_mac": (0x0200, 0)}, "prefix length 0 is not in 1..48"),
        ("lpm_table", {"src_mac": (0x0200, 49)}, "prefix length 49 is not in 1..48"),
        ("lpm_table", {"src_mac": (0x0200, 38)}, "bits beyond the prefix length 38 are not 0"),
        ("acl", {"dst_mac": (1, 0)}, "mask 0; leave the field out"),
        ("acl", {"dst_mac": (3, 1)}, "value 0x3 has bits outside of mask 0x1"),
        ("acl", {"ether_type": (5, 4)}, "low 5 is above high 4"),
        ("acl", {"ether_type": (0, 0xFFFF)}, "whole range; leave the field out"),
        ("acl", {"port": 512}, "0x200 does not fit in 9 bits"),
    ],
)
def test_wrong_match(client: RawClient, table: str, match: Any, message: str) -> None:
    priority = 1 if table == "acl" else 0
    code, told = only_error(client, client.insert(table, match, "drop", priority=priority))
    assert code == INVALID
    assert message in told
    assert read_table(client, table) == []


def test_wrong_kind_twice_given_and_unknown_field(client: RawClient) -> None:
    change = client.insert("exact_table", {"dst_mac": 1}, "drop")
    match = change.entity.table_entry.match
    match[0].lpm.value, match[0].lpm.prefix_len = b"\x01", 48
    assert "is an EXACT match, not lpm" in only_error(client, change)[1]
    change = client.insert("exact_table", {"dst_mac": 1}, "drop")
    change.entity.table_entry.match.append(change.entity.table_entry.match[0])
    assert "given twice" in only_error(client, change)[1]
    change.entity.table_entry.match[1].field_id = 9
    assert "no match field 9; it has [1]" in only_error(client, change)[1]
    change.entity.table_entry.match[1].Clear()
    assert only_error(client, change)[0] == INVALID


def test_priorities(client: RawClient) -> None:
    assert "need one above 0" in only_error(client, client.insert("acl", {}, "drop"))[1]
    assert only_error(client, client.insert("acl", {}, "drop", priority=-1))[0] == INVALID
    assert (
        "have none (0)"
        in only_error(client, client.insert("exact_table", {"dst_mac": 1}, "drop", priority=1))[1]
    )
    client.write(client.insert("acl", {}, "drop", priority=1))
    client.write(client.insert("acl", {}, "mirror", priority=2))
    assert codes(client.outcomes(client.insert("acl", {}, "drop", priority=2))) == [
        "ALREADY_EXISTS"
    ]
    assert len(read_table(client, "acl")) == 2
    (entry,) = read_table(client, "acl", priority=2)
    assert entry.action.action.action_id == client.id("actions", "mirror")


def test_all_match_kinds_are_read_back_as_written(client: RawClient) -> None:
    acl = client.insert(
        "acl", {"dst_mac": (0x0100, 0xFF00), "ether_type": (5, 9), "port": 3}, "drop", priority=7
    )
    everything = client.insert("acl", {}, "drop", priority=1)
    prefix = client.insert("lpm_table", {"src_mac": (0xAB << 40, 8)}, "NoAction")
    default_route = client.insert("lpm_table", {}, "NoAction")
    client.write(acl, everything, prefix, default_route)
    assert read_table(client, "acl") == [acl.entity.table_entry, everything.entity.table_entry]
    assert read_table(client, "lpm_table") == [
        prefix.entity.table_entry,
        default_route.entity.table_entry,
    ]


def test_match_fields_in_any_order_name_the_same_entry(client: RawClient) -> None:
    client.write(client.insert("two_keys", {"port": 1, "ether_type": 2}, "drop"))
    change = client.insert("two_keys", {"port": 1, "ether_type": 2}, "drop")
    change.entity.table_entry.match.reverse()
    assert codes(client.outcomes(change)) == ["ALREADY_EXISTS"]


# --- actions ----------------------------------------------------------------------------------


def test_wrong_actions(client: RawClient) -> None:
    def refuse(action: Any) -> str:
        entry = client.entry("two_keys", {"port": 1, "ether_type": 2})
        entry.action.action.CopyFrom(action)
        code, message = only_error(client, update(INSERT, table_entry=entry))
        assert code == INVALID
        return message

    assert "has no action 77; it has forward" in refuse(p4r.Action(action_id=77))
    assert "has no action" in refuse(client.action("to_cpu"))
    forward = client.action("forward", 1, 2)
    del forward.params[1]
    assert "has 2 parameters, not 1" in refuse(forward)
    forward = client.action("forward", 1, 2)
    forward.params[1].param_id = 1
    assert "needs parameter 2 (dst_mac)" in refuse(forward)
    assert "forward.port: 0x200 does not fit in 9 bits" in refuse(client.action("forward", 512, 2))
    assert "empty byte string" in refuse(client.action("forward", b"", 2))  # type: ignore[arg-type]


def test_parameters_in_any_order(client: RawClient) -> None:
    change = client.insert("two_keys", {"port": 1, "ether_type": 2}, "forward", 1, 2)
    change.entity.table_entry.action.action.params.reverse()
    client.write(change)
    (entry,) = read_table(client, "two_keys")
    assert {p.param_id: p.value for p in entry.action.action.params} == {1: b"\x01", 2: b"\x02"}


def test_action_scopes(client: RawClient) -> None:
    change = client.insert("exact_table", {"dst_mac": 1}, "NoAction")
    code, message = only_error(client, change)
    assert code == DENIED
    assert "@defaultonly" in message
    client.write(client.insert("lpm_table", {"src_mac": (0, 1)}, "NoAction"))


def test_indirect_action_in_a_direct_table(client: RawClient) -> None:
    entry = client.entry("exact_table", {"dst_mac": 1})
    entry.action.action_profile_member_id = 1
    code, message = only_error(client, update(INSERT, table_entry=entry))
    assert code == INVALID
    assert "has no action profile" in message


# --- default entries --------------------------------------------------------------------------


def default(client: RawClient, table: str, *action: Any) -> Any:
    entry = client.entry(table, is_default_action=True)
    if action:
        entry.action.action.CopyFrom(client.action(*action))
    return entry


def test_default_entry_is_read_modified_and_reset(client: RawClient) -> None:
    original = default(client, "lpm_table", "drop")
    assert read_table(client, "lpm_table", is_default_action=True) == [original]
    changed = default(client, "lpm_table", "forward", 5, 6)
    changed.metadata = b"mine"
    client.write(update(MODIFY, table_entry=changed))
    assert read_table(client, "lpm_table", is_default_action=True) == [changed]
    assert read_table(client, "lpm_table") == [], "a wildcard read leaves the default entry out"
    client.write(update(MODIFY, table_entry=default(client, "lpm_table")))
    assert read_table(client, "lpm_table", is_default_action=True) == [original]


def test_what_default_entries_do_not_allow(client: RawClient) -> None:
    entry = default(client, "lpm_table", "drop")
    assert only_error(client, update(INSERT, table_entry=entry))[0] == INVALID
    assert only_error(client, update(DELETE, table_entry=entry))[0] == INVALID
    entry.priority = 1
    assert only_error(client, update(MODIFY, table_entry=entry))[0] == INVALID
    entry = default(client, "exact_table", "drop")
    code, message = only_error(client, update(MODIFY, table_entry=entry))
    assert (code, "const default_action" in message) == (DENIED, True)
    entry = default(client, "ecmp", "drop")
    assert only_error(client, update(MODIFY, table_entry=entry))[0] == INVALID
    tableonly = default(client, "exact_table", "drop")
    assert only_error(client, update(MODIFY, table_entry=tableonly))[0] == DENIED


def test_constant_default_is_read(client: RawClient) -> None:
    (entry,) = read_table(client, "exact_table", is_default_action=True)
    assert entry.action.action.action_id == client.id("actions", "NoAction")
    (entry,) = read_table(client, "ecmp", is_default_action=True)
    assert entry.is_default_action


# --- constant entries -------------------------------------------------------------------------


def test_constant_table(client: RawClient) -> None:
    entries = read_table(client, "const_table")
    told = {e.match[0].exact.value: e.action.action.action_id for e in entries}
    assert told == {
        b"\x88\xcc": client.id("actions", "to_cpu"),
        b"\x88\x08": client.id("actions", "drop"),
    }
    assert all(e.is_const for e in entries)
    for kind, key in ((INSERT, 1), (MODIFY, 0x88CC), (DELETE, 0x88CC)):
        change = client.insert("const_table", {"ether_type": key}, "drop")
        change.type = kind
        assert only_error(client, change)[0] == DENIED
    client.write(update(MODIFY, table_entry=client.entry("const_table", {"ether_type": 0x88CC})))
    client.write(update(MODIFY, table_entry=default(client, "const_table", "drop")))


def test_is_const_cannot_be_written(client: RawClient) -> None:
    change = client.insert("exact_table", {"dst_mac": 1}, "drop", is_const=True)
    assert only_error(client, change)[0] == INVALID


# --- what a table may not have --------------------------------------------------------------------


def test_meters_and_idle_timeouts_that_the_table_has_not(client: RawClient) -> None:
    for fields in (
        {"meter_config": p4r.MeterConfig()},
        {"idle_timeout_ns": 1},
        {"idle_timeout_ns": -1},
        {"time_since_last_hit": p4r.TableEntry.IdleTimeout()},
    ):
        change = client.insert("exact_table", {"dst_mac": 1}, "drop", **fields)
        assert only_error(client, change)[0] == INVALID
    change = update(MODIFY, meter_entry=p4r.MeterEntry(meter_id=1))
    assert only_error(client, change)[0] == INVALID


# --- counters ---------------------------------------------------------------------------------


def count(packets: int, bytes_: int) -> Any:
    return p4r.CounterData(packet_count=packets, byte_count=bytes_)


def test_the_default_entry_s_counter(client: RawClient) -> None:
    def read() -> tuple[int, int]:
        (entry,) = read_table(client, "lpm_table", is_default_action=True, counter_data=count(0, 0))
        return entry.counter_data.packet_count, entry.counter_data.byte_count

    named = client.entry("lpm_table", is_default_action=True)
    direct = p4r.DirectCounterEntry(table_entry=named, data=count(3, 300))
    client.write(update(MODIFY, direct_counter_entry=direct))
    assert read() == (3, 300)
    (found,) = client.read(entity(direct_counter_entry=direct))
    assert found.direct_counter_entry.data == count(3, 300)
    changed = default(client, "lpm_table", "drop")
    client.write(update(MODIFY, table_entry=changed))
    assert read() == (3, 300)
    changed.counter_data.CopyFrom(count(5, 6))
    client.write(update(MODIFY, table_entry=changed))
    assert read() == (5, 6)
    outcomes = client.outcomes(
        update(MODIFY, direct_counter_entry=direct),
        update(MODIFY, table_entry=client.entry("exact_table", {"dst_mac": 9})),
        atomicity=p4r.WriteRequest.ROLLBACK_ON_ERROR,
    )
    assert [code for code, _ in outcomes] == ["ABORTED", "NOT_FOUND"]
    assert read() == (5, 6)


def test_counters_only_when_asked_for(client: RawClient) -> None:
    client.write(client.insert("exact_table", {"dst_mac": 1}, "drop"))
    (entry,) = read_table(client, "exact_table")
    assert not entry.HasField("counter_data")
    (entry,) = read_table(client, "exact_table", counter_data=count(0, 0))
    assert entry.HasField("counter_data")
    client.write(client.insert("two_keys", {"port": 1, "ether_type": 2}, "drop"))
    (entry,) = read_table(client, "two_keys", counter_data=count(0, 0))
    assert not entry.HasField("counter_data"), "this table has no counter"


def test_counter_written_with_the_entry(client: RawClient) -> None:
    big = (1 << 63) - 1
    client.write(client.insert("exact_table", {"dst_mac": 1}, "drop", counter_data=count(5, big)))
    (entry,) = read_table(client, "exact_table", counter_data=count(0, 0))
    assert entry.counter_data == count(5, big)
    change = client.insert("exact_table", {"dst_mac": 1}, "forward", 1, 1)
    change.type = MODIFY
    client.write(change)
    (entry,) = read_table(client, "exact_table", counter_data=count(0, 0))
    assert entry.counter_data == count(5, big), "a MODIFY without counter_data leaves it"
    change.entity.table_entry.counter_data.CopyFrom(count(1, 2))
    client.write(change)
    (entry,) = read_table(client, "exact_table", counter_data=count(0, 0))
    assert entry.counter_data == count(1, 2)
    change = client.insert("exact_table", {"dst_mac": 2}, "drop", counter_data=count(-1, 0))
    assert only_error(client, change)[0] == INVALID
    change = client.insert(
        "two_keys", {"port": 1, "ether_type": 2}, "drop", counter_data=count(1, 1)
    )
    assert "has no direct counter" in only_error(client, change)[1]


def test_direct_counter_entries(client: RawClient) -> None:
    client.write(
        client.insert("exact_table", {"dst_mac": 1}, "drop", counter_data=count(1, 10)),
        client.insert("exact_table", {"dst_mac": 2}, "drop", counter_data=count(2, 20)),
        client.insert("lpm_table", {"src_mac": (1 << 40, 8)}, "drop", counter_data=count(3, 30)),
    )

    def read(**entry: Any) -> list[int]:
        query = entity(direct_counter_entry=p4r.DirectCounterEntry(**entry))
        return [e.direct_counter_entry.data.packet_count for e in client.read(query)]

    one = client.entry("exact_table", {"dst_mac": 1})
    assert read() == [1, 2, 3]
    assert read(table_entry=client.entry("exact_table")) == [1, 2]
    assert read(table_entry=one) == [1]
    (found,) = client.read(entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=one)))
    assert found.direct_counter_entry.table_entry == one

    # Clients may send the whole entry; only its key counts.
    whole = client.insert("exact_table", {"dst_mac": 1}, "forward", 1, 1, metadata=b"x")
    assert read(table_entry=whole.entity.table_entry) == [1]

    change = p4r.DirectCounterEntry(table_entry=one, data=count(7, 70))
    client.write(update(MODIFY, direct_counter_entry=change))
    assert read(table_entry=one) == [7]
    client.write(update(MODIFY, direct_counter_entry=p4r.DirectCounterEntry(table_entry=one)))
    assert read(table_entry=one) == [7], "without data nothing changes"
    for kind in (INSERT, DELETE):
        assert only_error(client, update(kind, direct_counter_entry=change))[0] == INVALID
    change.table_entry.CopyFrom(client.entry("exact_table", {"dst_mac": 99}))
    assert only_error(client, update(MODIFY, direct_counter_entry=change))[0] == "NOT_FOUND"
    with pytest.raises(grpc.RpcError) as caught:
        read(table_entry=change.table_entry)
    assert details(caught.value, 1)[0][0] == "NOT_FOUND"


# --- reads ------------------------------------------------------------------------------------


def test_filters(client: RawClient) -> None:
    client.write(
        client.insert("exact_table", {"dst_mac": 1}, "drop", metadata=b"a"),
        client.insert("exact_table", {"dst_mac": 2}, "forward", 1, 1, controller_metadata=5),
        client.insert("two_keys", {"port": 1, "ether_type": 2}, "drop", metadata=b"a"),
    )
    forward = p4r.TableAction(action=p4r.Action(action_id=client.id("actions", "forward")))
    assert len(read_table(client, "exact_table", action=forward)) == 1
    assert len(read_table(client, "exact_table", metadata=b"a")) == 1
    assert len(read_table(client, "exact_table", controller_metadata=5)) == 1
    assert len(client.read(entity(table_entry=p4r.TableEntry(metadata=b"a")))) == 2
    # Two constant entries belong to the program.
    assert len(client.read(entity(table_entry=p4r.TableEntry()))) == 5
    query = entity(table_entry=client.entry("exact_table", {"dst_mac": 2}))
    assert len(client.read(query)) == 1
    query = entity(table_entry=client.entry("exact_table", {"dst_mac": 3}))
    assert client.read(query) == []


def test_reads_report_each_querys_error(client: RawClient) -> None:
    client.write(client.insert("exact_table", {"dst_mac": 1}, "drop"))
    good = entity(table_entry=client.entry("exact_table"))
    found = []
    with pytest.raises(grpc.RpcError) as caught:
        request = p4r.ReadRequest(
            device_id=7,
            entities=[good, entity(table_entry=p4r.TableEntry(table_id=1)), p4r.Entity(), good],
        )
        for response in client.stub.Read(request):
            found.extend(response.entities)
    assert len(found) == 2
    assert codes(details(caught.value, 4)) == [OK, INVALID, INVALID, OK]


def test_read_of_a_large_table_comes_in_messages_below_the_limit(client: RawClient) -> None:
    note = b"x" * 20_000
    client.write(
        *(
            client.insert("exact_table", {"dst_mac": i}, "drop", metadata=note)
            for i in range(1, 501)
        )
    )
    request = p4r.ReadRequest(
        device_id=7, entities=[entity(table_entry=client.entry("exact_table"))]
    )
    sizes = [r.ByteSize() for r in client.stub.Read(request)]
    assert sum(sizes) > 10_000_000
    assert max(sizes) < 4 << 20


def test_nothing_found_is_one_empty_response(client: RawClient) -> None:
    request = p4r.ReadRequest(device_id=7, entities=[entity(table_entry=client.entry("acl"))])
    assert list(client.stub.Read(request)) == [p4r.ReadResponse()]


# --- atomicity --------------------------------------------------------------------------------


def test_rollback_on_error(client: RawClient) -> None:
    client.write(
        client.insert("exact_table", {"dst_mac": 1}, "drop", counter_data=count(4, 40)),
        client.insert("exact_table", {"dst_mac": 2}, "forward", 1, 1),
    )
    query = [
        entity(table_entry=p4r.TableEntry(counter_data=count(0, 0))),
        entity(table_entry=client.entry("lpm_table", is_default_action=True)),
    ]
    before = client.read(*query)
    modify = client.insert("exact_table", {"dst_mac": 2}, "drop")
    modify.type = MODIFY
    batch = [
        client.insert("exact_table", {"dst_mac": 3}, "drop"),
        update(DELETE, table_entry=client.entry("exact_table", {"dst_mac": 1})),
        modify,
        update(MODIFY, table_entry=default(client, "lpm_table", "NoAction")),
        client.insert("exact_table", {"dst_mac": 3}, "drop"),
        client.insert("exact_table", {"dst_mac": 5}, "drop"),
    ]
    outcomes = client.outcomes(*batch, atomicity=p4r.WriteRequest.ROLLBACK_ON_ERROR)
    assert codes(outcomes) == ["ABORTED"] * 4 + ["ALREADY_EXISTS", "ABORTED"]
    after = client.read(*query)
    assert sorted(map(str, after)) == sorted(map(str, before))
    client.write(*batch[:4], atomicity=p4r.WriteRequest.ROLLBACK_ON_ERROR)
    assert len(read_table(client, "exact_table")) == 2
