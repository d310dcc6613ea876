# SPDX-License-Identifier: Apache-2.0
"""csrc/encode.c makes the same bytes as softswitch/counted.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from finsy.proto import p4r
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch.counted import counted_entry, counted_key
from softswitch.dataplane import Dataplane
from softswitch.errors import NotFound
from softswitch.values import ActionCall, FieldMatch
from tests.softswitch.dataplanes import loaded

BYTES = st.binary(max_size=20)
COUNTS = st.one_of(st.integers(0, 300), st.integers(0, (1 << 64) - 1))


@pytest.fixture(scope="module")
def dataplane() -> Iterator[Dataplane]:
    with loaded("match") as dataplane:
        yield dataplane


@st.composite
def stored(draw: st.DrawFn) -> bytes:
    """A TableEntry with any of the fields that a store keeps."""
    action = p4r.Action(
        action_id=draw(st.integers(0, 1 << 31)),
        params=[p4r.Action.Param(param_id=i, value=value) for i, value in enumerate(draw(LISTS))],
    )
    entry = p4r.TableEntry(
        table_id=draw(st.integers(0, (1 << 32) - 1)),
        match=[
            p4r.FieldMatch(field_id=i, exact=p4r.FieldMatch.Exact(value=value))
            for i, value in enumerate(draw(LISTS))
        ],
        priority=draw(st.integers(0, (1 << 31) - 1)),
        controller_metadata=draw(st.integers(0, (1 << 64) - 1)),
        metadata=draw(st.binary(max_size=300)),
        idle_timeout_ns=draw(st.integers(0, (1 << 63) - 1)),
        is_const=draw(st.booleans()),
        action=draw(st.sampled_from((None, p4r.TableAction(action=action)))),
    )
    return bytes(entry.SerializeToString())


LISTS = st.lists(BYTES, max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(stored(), COUNTS, COUNTS), max_size=5))
def test_same_bytes(dataplane: Dataplane, entries: list[tuple[bytes, int, int]]) -> None:
    table = dataplane.tables["ingress.by_lpm"]
    handles = []
    for number, (_, packets, bytes_) in enumerate(entries):
        match = [FieldMatch(number << 120, prefix_len=8), FieldMatch(0)]
        handles.append(table.insert(match, 0, ActionCall("NoAction")))
        table.write_counter(handles[-1], packets, bytes_)
    wires = [wire for wire, _, _ in entries]
    try:
        for direct, encode in ((False, counted_entry), (True, counted_key)):
            expected = [encode(*entry) for entry in entries]
            assert table.counted(handles, wires, direct=direct) == expected
    finally:
        for handle in handles:
            table.delete(handle)


def test_entries_that_are_gone(dataplane: Dataplane) -> None:
    with pytest.raises(NotFound):
        dataplane.tables["ingress.by_lpm"].counted([5], [b""], direct=False)
