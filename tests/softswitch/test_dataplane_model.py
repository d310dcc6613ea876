# SPDX-License-Identifier: Apache-2.0
"""Tables after any sequence of inserts, changes and deletions find what a list of entries would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch.dataplane import Dataplane
from softswitch.errors import AlreadyExists, TableFull
from softswitch.values import ActionCall, FieldMatch
from tests.softswitch.dataplanes import field, loaded, probe

TOP64, TOP128 = (1 << 64) - 1, (1 << 128) - 1


@dataclass
class Entry:
    """What the model knows of an entry; `bounds` are (low, mask, high) of each key."""

    bounds: list[tuple[int, int, int]]
    rank: int
    value: int


@dataclass(frozen=True)
class Kind:
    """A table of match.p4: its keys as (field, width), and what an entry of it is made of."""

    table: str
    action: str
    keys: Sequence[tuple[str, int]]
    values: Sequence[Sequence[int]]
    lpm: bool = False
    ranges: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()


KINDS = {
    "lpm": Kind(
        *("ingress.by_lpm", "ingress.set", (("e", 128), ("a", 8))),
        values=((0, 1, TOP128, 1 << 127, 1 << 64, TOP64), (0, 1, 255)),
        lpm=True,
    ),
    "ternary": Kind(
        *("ingress.by_ternary", "ingress.add", (("c", 32), ("y", 13), ("x", 3))),
        values=((0, 1, 0xFFFFFFFF, 0x0F0F0F0F), (0, 1, 0x1FFF), (0, 1, 7)),
        exact=("x",),
    ),
    "range": Kind(
        *("ingress.by_range", "ingress.add", (("d", 64), ("a", 8), ("y", 13))),
        values=((0, 1, TOP64, 1 << 63), (0, 1, 255), (0, 1, 2, 0x1FFF)),
        ranges=("d", "y"),
    ),
}


class Model:
    """A table and the list of its entries."""

    def __init__(self, dataplane: Dataplane, kind: Kind) -> None:
        self.kind = kind
        self.table = dataplane.tables[kind.table]
        self.dataplane = dataplane
        self.entries: dict[int, Entry] = {}

    def insert(self, choices: Sequence[int], priority: int, value: int) -> None:
        match, bounds, rank = [], [], priority
        for (name, width), values, choice in zip(
            self.kind.keys, self.kind.values, choices, strict=True
        ):
            given_, other = values[choice % len(values)], values[choice // 7 % len(values)]
            ones = (1 << width) - 1
            mask, low, high = ones, given_, given_
            if name in self.kind.ranges:
                low, high = sorted((given_, other))
                match.append(FieldMatch(low, high=high))
            elif self.kind.lpm and not match:
                rank = (0, 1, 64, 127, 128)[choice // 7 % 5]
                mask = ones ^ ones >> rank
                low = high = given_ & mask
                match.append(FieldMatch(low, prefix_len=rank))
            elif self.kind.lpm or name in self.kind.exact:
                match.append(FieldMatch(given_))
            else:
                mask = (ones, 0, 1, other)[choice // 7 % 4]
                low = high = given_ & mask
                match.append(FieldMatch(low, mask=mask))
            bounds.append((low, mask, high))
        entry = Entry(bounds, rank, value)
        call = ActionCall(self.kind.action, (value,))
        same = [e for e in self.entries.values() if (e.bounds, e.rank) == (bounds, rank)]
        try:
            handle = self.table.insert(match, 0 if self.kind.lpm else priority, call)
        except AlreadyExists:
            assert same
        except TableFull:
            assert len(self.entries) >= 64
        else:
            assert not same
            assert handle not in self.entries
            self.entries[handle] = entry

    def nth(self, number: int) -> int | None:
        handles = sorted(self.entries)
        return handles[number % len(handles)] if handles else None

    def modify(self, number: int, value: int) -> None:
        if (handle := self.nth(number)) is not None:
            self.table.modify(handle, ActionCall(self.kind.action, (value,)))
            self.entries[handle].value = value

    def delete(self, number: int) -> None:
        if (handle := self.nth(number)) is not None:
            self.table.delete(handle)
            del self.entries[handle]

    def look_up(self, choices: Sequence[int]) -> None:
        values = {
            name: values[choice % len(values)]
            for (name, _), values, choice in zip(
                self.kind.keys, self.kind.values, choices, strict=True
            )
        }
        found = [
            (entry.rank, -handle, entry.value)
            for handle, entry in self.entries.items()
            if all(
                low <= values[name] & mask <= high
                for (name, _), (low, mask, high) in zip(self.kind.keys, entry.bounds, strict=True)
            )
        ]
        expected = max(found)[2] if found else None
        ((_, data),) = self.dataplane.process(1, probe(b"", bytes(12), b=0, **values))
        assert field(data, "b") == self._result(expected)

    def _result(self, value: int | None) -> int:
        """What `b` is at the end: by_ternary adds 1 where nothing matches."""
        if self.kind.action == "ingress.set":
            return (value or 0) + 1
        return value if self.kind.table.endswith("ternary") and value else 1 + (value or 0)

    def clear(self) -> None:
        for handle in list(self.entries):
            self.table.delete(handle)
        self.entries.clear()


@pytest.fixture(scope="module")
def dataplane() -> Iterator[Dataplane]:
    with loaded("match") as dataplane:
        yield dataplane


CHOICES = st.lists(st.integers(0, 48), min_size=3, max_size=3)
STEPS = st.one_of(
    st.tuples(st.just("insert"), CHOICES, st.integers(1, 6), st.integers(1, 1000)),
    st.tuples(st.just("modify"), st.integers(0, 99), st.integers(1, 1000)),
    st.tuples(st.just("delete"), st.integers(0, 99)),
    st.tuples(st.just("look_up"), CHOICES),
)


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=150, deadline=None, derandomize=True)
@given(steps=st.lists(STEPS, max_size=120))
def test_any_sequence(dataplane: Dataplane, name: str, steps: list[tuple[Any, ...]]) -> None:
    kind = KINDS[name]
    model = Model(dataplane, kind)
    try:
        for operation, *arguments in steps:
            if isinstance(arguments[0], list):
                arguments[0] = arguments[0][: len(kind.keys)]
            getattr(model, operation)(*arguments)
    finally:
        model.clear()
