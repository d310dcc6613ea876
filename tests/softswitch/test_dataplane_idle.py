# SPDX-License-Identifier: Apache-2.0
"""Idle time-outs in the engine, at a set clock, and the monitor that looks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from finsy.proto import p4r
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch.dataplane import Dataplane
from softswitch.entities_idle import IdleTimeouts
from softswitch.errors import NotFound
from softswitch.idle import SCAN_INTERVAL_S, IdleMonitor
from softswitch.values import ActionCall, FieldMatch, MeterConfig
from tests.softswitch.dataplanes import field, loaded, probe

MS = 10**6
MARK = ActionCall("ingress.mark", (7,))


@pytest.fixture(scope="module")
def shared() -> Iterator[Dataplane]:
    with loaded("idle") as dataplane:
        yield dataplane


@pytest.fixture
def dataplane() -> Iterator[Dataplane]:
    with loaded("idle") as dataplane:
        dataplane.set_clock(100.0)
        yield dataplane


def add(dataplane: Dataplane, a: int, timeout_ns: int) -> int:
    flows = dataplane.tables["ingress.flows"]
    handle = flows.insert([FieldMatch(0), FieldMatch(a)], 0, MARK)
    flows.set_timeout(handle, timeout_ns)
    return handle


def test_an_entry_expires_when_it_was_not_hit_and_again_later(dataplane: Dataplane) -> None:
    flows = dataplane.tables["ingress.flows"]
    assert flows.expired(10) == ([], None)
    one = add(dataplane, 1, 50 * MS)
    assert flows.expired(10) == ([], 0.05)
    dataplane.set_clock(100.04)
    dataplane.process(1, probe(a=1))
    dataplane.set_clock(100.06)
    assert flows.idle_ns(one) == 20 * MS
    assert flows.expired(10) == ([], 0.03)
    dataplane.set_clock(100.09)
    assert flows.expired(10) == ([one], 0.05)
    assert flows.idle_ns(one) == 50 * MS
    dataplane.set_clock(100.139)
    assert flows.expired(10) == ([], 0.001)
    dataplane.set_clock(100.14)
    assert flows.expired(10) == ([one], 0.05)
    flows.set_timeout(one, 0)
    dataplane.set_clock(200.0)
    assert flows.expired(10) == ([], None)


def test_only_so_many_at_once(dataplane: Dataplane) -> None:
    flows = dataplane.tables["ingress.flows"]
    handles = [add(dataplane, a, MS) for a in range(5)]
    dataplane.set_clock(101.0)
    first, wait = flows.expired(3)
    assert wait == 0
    second, _ = flows.expired(3)
    assert sorted(first + second) == sorted(handles)


def test_setting_a_time_out_starts_it(dataplane: Dataplane) -> None:
    flows = dataplane.tables["ingress.flows"]
    one = add(dataplane, 1, 50 * MS)
    dataplane.set_clock(100.04)
    flows.set_timeout(one, 50 * MS)
    dataplane.set_clock(100.07)
    assert flows.expired(10) == ([], 0.02)
    assert flows.idle_ns(one) == 70 * MS
    flows.delete(one)
    with pytest.raises(NotFound):
        flows.set_timeout(one, 1)
    with pytest.raises(NotFound):
        flows.idle_ns(one)


def test_range_tables_have_them_too_and_meters_work_beside_them(dataplane: Dataplane) -> None:
    flows, classes = dataplane.tables["ingress.flows"], dataplane.tables["ingress.classes"]
    one = add(dataplane, 1, 50 * MS)
    flows.configure_meter(one, MeterConfig(0, 1, 0, 2))
    match = [FieldMatch(0, mask=0), FieldMatch(5, high=9)]
    other = classes.insert(match, 1, ActionCall("ingress.set", (3,)))
    classes.set_timeout(other, 10 * MS)
    dataplane.set_clock(101.0)
    for color in (0, 1, 2):
        ((_, left),) = dataplane.process(1, probe(a=1, d=5))
        assert (field(left, "i"), field(left, "b"), field(left, "j")) == (color, 7, 3)
    assert flows.idle_ns(one) == classes.idle_ns(other) == 0
    dataplane.process(1, probe(a=1, d=4))
    dataplane.set_clock(101.02)
    assert classes.expired(10)[0] == [other]
    assert flows.expired(10)[0] == []


STEPS = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from(("hit", "set", "look")), st.integers(0, 3)),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.lists(st.integers(0, 40), min_size=4, max_size=4))
def test_against_a_model(
    shared: Dataplane, steps: list[tuple[int, str, int]], timeouts: list[int]
) -> None:
    """An entry expires when its last hit, setting and expiry are all at least a time-out ago."""
    dataplane = shared
    flows = dataplane.tables["ingress.flows"]
    now = 1000  # ms
    dataplane.set_clock(now / 1000)
    handles = [add(dataplane, a, timeout * MS) for a, timeout in enumerate(timeouts)]
    try:
        since, hit = [now] * 4, [now] * 4
        for wait, what, a in steps:
            now += wait
            dataplane.set_clock(now / 1000)
            if what == "hit":
                dataplane.process(1, probe(a=a))
                since[a] = hit[a] = now
            elif what == "set":
                flows.set_timeout(handles[a], timeouts[a] * MS)
                since[a] = now
            else:
                due = {i for i in range(4) if timeouts[i] and now - since[i] >= timeouts[i]}
                for i in due:
                    since[i] = now
                left = [timeouts[i] - (now - since[i]) for i in range(4) if timeouts[i]]
                expired, seconds = flows.expired(10)
                assert {handles.index(handle) for handle in expired} == due
                assert seconds == (min(left) / 1000 if left else None)
            assert [flows.idle_ns(h) for h in handles] == [(now - t) * MS for t in hit]
    finally:
        for handle in handles:
            flows.delete(handle)


# ---- the monitor -----------------------------------------------------------------------------


class Clock:
    """Time that tests move, and the calls that wait for it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[tuple[float, Callable[[], object]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], object]) -> Any:
        call = (when, callback)
        self.calls.append(call)
        clock = self

        class Handle:
            def cancel(self) -> None:
                clock.calls.remove(call)

        return Handle()

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [call for call in self.calls if call[0] <= end + 1e-9]:
            call = min(due, key=lambda c: c[0])
            self.calls.remove(call)
            self.now = max(self.now, call[0])
            call[1]()
        self.now = end


class FakeTimeouts:
    """A table that answers what a test has put there."""

    def __init__(self) -> None:
        self.changed: Callable[[float], None] | None = None
        self.answers: list[tuple[list[Any], float | None]] = []
        self.looks = 0

    def expired(self) -> tuple[list[Any], float | None]:
        self.looks += 1
        return self.answers.pop(0) if self.answers else ([], None)


def monitor(*tables: FakeTimeouts) -> tuple[IdleMonitor, Clock, list[Any]]:
    clock, sent = Clock(), list[Any]()
    watched: list[Any] = list(tables)
    timeouts: list[IdleTimeouts] = watched
    return IdleMonitor(timeouts, clock, sent.append), clock, sent


def test_nothing_is_looked_at_without_time_outs() -> None:
    table = FakeTimeouts()
    _, clock, sent = monitor(table)
    clock.advance(1000)
    assert (table.looks, sent, clock.calls) == (0, [], [])


def test_the_monitor_looks_when_the_first_time_out_may_have_passed() -> None:
    table = FakeTimeouts()
    watching, clock, sent = monitor(table)
    assert table.changed is not None
    table.changed(5.0)
    table.changed(2.0)
    table.changed(3.0)
    clock.advance(1.9)
    assert table.looks == 0
    table.answers = [([p4r.TableEntry(table_id=9)], 1.5)]
    clock.advance(0.2)
    assert table.looks == 1
    (message,) = sent
    assert [e.table_id for e in message.idle_timeout_notification.table_entry] == [9]
    assert message.idle_timeout_notification.timestamp > 1_600_000_000 * 10**9
    clock.advance(1.6)
    assert table.looks == 2
    assert clock.calls == []
    table.changed(1.0)
    watching.stop()
    clock.advance(10)
    table.changed(1.0)
    clock.advance(10)
    assert table.looks == 2
    watching.start()
    clock.advance(2 * SCAN_INTERVAL_S)
    assert table.looks == 3


def test_long_looks_come_seldom() -> None:
    table = FakeTimeouts()
    _, clock, _ = monitor(table)

    def slow() -> tuple[list[Any], float | None]:
        table.looks += 1
        clock.now += 0.1
        return [], 0.0

    table.expired = slow  # type: ignore[method-assign]
    assert table.changed is not None
    table.changed(0.0)
    clock.advance(10.0)
    assert 4 <= table.looks <= 6


def test_short_time_outs_do_not_keep_it_busy() -> None:
    table = FakeTimeouts()
    _, clock, _ = monitor(table)
    table.answers = [([], 1e-6)] * 10**4
    assert table.changed is not None
    table.changed(1e-6)
    clock.advance(1.0)
    assert 90 <= table.looks <= 101
