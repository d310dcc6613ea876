# SPDX-License-Identifier: Apache-2.0
"""Idle time-outs over P4Runtime: fields of table entries, and notifications to the primary."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from finsy.proto import p4r
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch.bmread import read_program
from softswitch.dataplane import Dataplane
from softswitch.description import describe
from softswitch.entities import EntityStore
from softswitch.p4info import view
from softswitch.values import DataplaneOptions
from tests.softswitch.dataplanes import probe
from tests.softswitch.p4rt import (
    DELETE,
    INSERT,
    MODIFY,
    RawClient,
    Stream,
    codes,
    entity,
    load_config,
    only_error,
    read_error,
    serving,
    update,
)
from tests.softswitch.scenarios import PROGRAMS

CONFIG = load_config("idle", directory=PROGRAMS)
INVALID = "INVALID_ARGUMENT"
MS = 10**6
LONG = 3600 * 10**9
NOW = p4r.TableEntry.IdleTimeout()


@contextmanager
def running() -> Iterator[tuple[Dataplane, RawClient, Stream, str]]:
    """A switch with the program `idle`, its primary, the primary's stream, the address."""
    dataplane = Dataplane(DataplaneOptions(cpu_port=510))
    try:
        with serving(dataplane) as address:
            client = RawClient(address, CONFIG)
            stream = client.stream()
            stream.arbitrate(1)
            client.set_pipeline()
            yield dataplane, client, stream, address
            stream.cancel()
            client.close()
    finally:
        dataplane.close()


@pytest.fixture(scope="module")
def switch() -> Iterator[tuple[Dataplane, RawClient, Stream, str]]:
    with running() as everything:
        yield everything


@pytest.fixture
def client(switch: tuple[Dataplane, RawClient, Stream, str]) -> RawClient:
    switch[1].set_pipeline()
    return switch[1]


def flow(client: RawClient, a: int, timeout_ns: int = 0, **fields: Any) -> Any:
    match = {"h.probe.op": 0, "h.probe.a": a}
    return client.insert("flows", match, "mark", 1, idle_timeout_ns=timeout_ns, **fields)


def read_flows(client: RawClient, **query: Any) -> list[Any]:
    return [e.table_entry for e in client.read(entity(table_entry=client.entry("flows", **query)))]


# ---- fields ----------------------------------------------------------------------------------


def test_the_time_out_is_read_back_as_it_was_written(client: RawClient) -> None:
    client.write(flow(client, 1, 1234567891), flow(client, 2))
    by_timeout = sorted(e.idle_timeout_ns for e in read_flows(client))
    assert by_timeout == [0, 1234567891]
    change = flow(client, 1, 77)
    change.type = MODIFY
    client.write(change)
    assert sorted(e.idle_timeout_ns for e in read_flows(client)) == [0, 77]
    change.entity.table_entry.idle_timeout_ns = 0
    client.write(change)
    assert sorted(e.idle_timeout_ns for e in read_flows(client)) == [0, 0]


def test_time_since_the_last_hit_only_when_asked_for(
    switch: tuple[Dataplane, RawClient, Stream, str], client: RawClient
) -> None:
    client.write(flow(client, 1, LONG), flow(client, 2))
    assert not any(e.HasField("time_since_last_hit") for e in read_flows(client))
    time.sleep(0.05)
    switch[0].process(1, probe(a=1))
    elapsed = {
        e.match[1].exact.value: e.time_since_last_hit.elapsed_ns
        for e in read_flows(client, time_since_last_hit=NOW)
    }
    assert elapsed[b"\x02"] >= 50 * MS
    assert elapsed[b"\x01"] <= elapsed[b"\x02"] - 50 * MS


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"idle_timeout_ns": -1}, "idle_timeout_ns -1 is negative"),
        ({"time_since_last_hit": NOW}, "read-only"),
    ],
)
def test_wrong_writes(client: RawClient, fields: dict[str, Any], message: str) -> None:
    change = client.insert("flows", {"h.probe.op": 1, "h.probe.a": 1}, "mark", 1, **fields)
    code, text = only_error(client, change)
    assert (code, message in text) == (INVALID, True), text


def test_default_entries_and_tables_without_time_outs(client: RawClient) -> None:
    default = client.entry("flows", is_default_action=True, idle_timeout_ns=5)
    default.action.action.CopyFrom(client.action("NoAction"))
    assert only_error(client, update(MODIFY, table_entry=default))[0] == INVALID
    change = client.insert("fixed_time", {"h.probe.x": 1}, "set", 1, idle_timeout_ns=5)
    assert only_error(client, change)[0] == INVALID
    for query in (
        client.entry("flows", is_default_action=True, time_since_last_hit=NOW),
        client.entry("fixed_time", time_since_last_hit=NOW),
        p4r.TableEntry(time_since_last_hit=NOW),  # of all tables, as over BMv2
    ):
        assert read_error(client, entity(table_entry=query)) == INVALID


def test_a_p4info_that_does_not_offer_time_outs(client: RawClient) -> None:
    config = p4r.ForwardingPipelineConfig()
    config.CopyFrom(CONFIG)
    for table in config.p4info.tables:
        table.ClearField("idle_timeout_behavior")
    client.set_pipeline(config=config)
    code, message = only_error(client, flow(client, 1, 5))
    assert (code, "does not support idle timeouts" in message) == (INVALID, True)
    client.write(flow(client, 1))
    for table in config.p4info.tables:
        table.idle_timeout_behavior = 1
    with pytest.raises(Exception, match="in the program it does not"):
        client.set_pipeline(config=config)


# ---- notifications ---------------------------------------------------------------------------


def notified(stream: Stream) -> list[Any]:
    """The entries of the next notification."""
    notification = stream.receive("idle_timeout_notification")
    assert abs(notification.timestamp - time.time_ns()) < 10**10
    assert notification.table_entry
    return list(notification.table_entry)


def test_idle_entries_are_told_to_the_primary_again_and_again() -> None:
    with running() as (_, client, stream, address):
        other = RawClient(address, CONFIG, election_id=0)
        backup = other.stream()
        backup.arbitrate(0)
        stream.receive("arbitration") if not stream.responses.empty() else None
        told = {"metadata": b"mine", "controller_metadata": 42}
        client.write(flow(client, 1, 40 * MS, **told), flow(client, 2, LONG), flow(client, 3))
        for _ in range(3):
            (entry,) = notified(stream)
            expected = client.entry("flows", {"h.probe.op": 0, "h.probe.a": 1}, **told)
            expected.idle_timeout_ns = 40 * MS
            assert entry == expected
        client.write(update(DELETE, table_entry=flow(client, 1).entity.table_entry))
        time.sleep(0.1)
        while not stream.responses.empty():
            notified(stream)
        time.sleep(0.1)
        assert stream.responses.empty()
        assert backup.responses.empty()
        backup.cancel()
        other.close()


def test_hits_and_modifications_put_it_off() -> None:
    with running() as (dataplane, client, stream, _):
        dataplane.set_clock(1000.0)
        client.write(flow(client, 1, 20 * MS), flow(client, 2, 20 * MS))
        dataplane.set_clock(1000.015)
        dataplane.process(1, probe(a=1))
        time.sleep(0.03)
        assert stream.responses.empty()
        dataplane.set_clock(1000.025)
        (entry,) = notified(stream)
        assert entry.match[1].exact.value == b"\x02"
        change = flow(client, 1, 20 * MS)
        change.type = MODIFY
        client.write(change)
        dataplane.set_clock(1000.04)
        time.sleep(0.05)
        assert stream.responses.empty()
        dataplane.set_clock(1000.045)
        assert len(notified(stream)) == 2


def test_many_entries_come_in_few_messages() -> None:
    with running() as (dataplane, client, stream, _):
        dataplane.set_clock(1000.0)
        matches = [{"h.probe.op": op, "h.probe.a": a} for op in range(10) for a in range(200)]
        client.write(
            *(client.insert("flows", m, "mark", 1, idle_timeout_ns=20 * MS) for m in matches)
        )
        dataplane.set_clock(1000.03)
        counts: list[int] = []
        while sum(counts) < len(matches):
            counts.append(len(notified(stream)))
        assert len(counts) <= 3


def test_a_taken_back_deletion_keeps_the_time_out() -> None:
    with running() as (_, client, stream, _):
        client.write(flow(client, 1, LONG))
        short = flow(client, 1, 20 * MS)
        short.type = MODIFY
        missing = flow(client, 9)
        missing.type = DELETE
        gone = flow(client, 1)
        gone.type = DELETE
        outcomes = client.outcomes(
            short,
            gone,
            flow(client, 2, 20 * MS),
            missing,
            atomicity=p4r.WriteRequest.ROLLBACK_ON_ERROR,
        )
        assert codes(outcomes) == ["ABORTED", "ABORTED", "ABORTED", "NOT_FOUND"]
        (entry,) = read_flows(client)
        assert entry.idle_timeout_ns == LONG
        time.sleep(0.1)
        assert stream.responses.empty()
        client.set_pipeline("RECONCILE_AND_COMMIT")
        (entry,) = read_flows(client)
        assert entry.idle_timeout_ns == LONG
        client.write(short)
        assert len(notified(stream)) == 1
        client.set_pipeline()
        while not stream.responses.empty():
            notified(stream)
        time.sleep(0.1)
        assert stream.responses.empty()


# ---- whole writes ----------------------------------------------------------------------------


@contextmanager
def stores() -> Iterator[list[tuple[Dataplane, EntityStore]]]:
    """Two switches of their own with the program `idle`, at a set clock."""
    planes = [Dataplane(DataplaneOptions(cpu_port=510)) for _ in range(2)]
    try:
        made = []
        for plane in planes:
            plane.load(CONFIG.p4_device_config)
            plane.set_clock(100.0)
            description = describe(read_program(CONFIG.p4_device_config))
            made.append((plane, EntityStore(view(CONFIG.p4info), description, plane, {})))
        yield made
    finally:
        for plane in planes:
            plane.close()


CHANGES = st.lists(
    st.tuples(
        st.sampled_from((INSERT, INSERT, MODIFY, DELETE)),
        st.sampled_from(("flows", "classes", "fixed_time")),
        st.integers(0, 3),
        st.sampled_from((0, 0, 1, 999, 5 * MS, 20 * MS, LONG, -1)),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(CHANGES, min_size=1, max_size=4), st.booleans())
def test_whole_writes_do_what_single_updates_do(
    writes: list[list[tuple[int, str, int, int]]], rollback: bool
) -> None:
    names = RawClient("127.0.0.1:1", CONFIG)
    keys: dict[str, Callable[[int], dict[str, Any]]] = {
        "flows": lambda n: {"h.probe.op": n, "h.probe.a": 1},
        "classes": lambda n: {"h.probe.y": (n + 1, n + 1)},
        "fixed_time": lambda n: {"h.probe.x": n},
    }
    actions = {"flows": "mark", "classes": "set", "fixed_time": "set"}
    with stores() as both:
        for changes in writes:
            updates = []
            for kind, table, number, timeout_ns in changes:
                fields = {"idle_timeout_ns": timeout_ns, "priority": int(table == "classes")}
                change = names.insert(table, keys[table](number), actions[table], 5, **fields)
                change.type = kind
                updates.append(change)
            wire = p4r.WriteRequest(updates=updates).SerializeToString()
            outcomes = [
                store.write(updates, rollback=rollback, wire=given_wire)
                for (_, store), given_wire in zip(both, (wire, None), strict=True)
            ]
            codes_of = [[None if o is None else o.code for o in found] for found in outcomes]
            assert codes_of[0] == codes_of[1]
            query = p4r.Entity(table_entry=p4r.TableEntry())
            reads = [sorted(store.read([query])[0]) for _, store in both]
            assert reads[0] == reads[1]
        for clock in (100.006, 100.03, 100.05):
            expired = []
            for plane, store in both:
                plane.set_clock(clock)
                expired.append(
                    [
                        sorted(e.SerializeToString() for e in table.expired()[0])
                        for table in store.idle_timeouts()
                    ]
                )
            assert expired[0] == expired[1]
    names.close()
