# SPDX-License-Identifier: Apache-2.0
"""Parser value sets: membership by every kind of match, against a model, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch.dataplane import Dataplane
from softswitch.errors import InvalidArgument, TableFull
from softswitch.values import FieldMatch
from tests.softswitch.dataplanes import loaded, probe

LOOKED, IS_OP, MIXED, WIDE, OTHER, OTHER_OP = 1, 2, 4, 8, 16, 32


@pytest.fixture(scope="module")
def dataplane() -> Iterator[Dataplane]:
    with loaded("valueset") as loaded_dataplane:
        yield loaded_dataplane


def path(dataplane: Dataplane, **fields: Any) -> int:
    """Which states the packet came through; the first bits of what follows Ethernet are of `op`."""
    ((_, packet),) = dataplane.process(1, probe(**fields))
    return int.from_bytes(packet[12:14])


def replace(dataplane: Dataplane, name: str, *members: Sequence[FieldMatch]) -> None:
    dataplane.value_sets[f"parse.{name}"].replace([tuple(member) for member in members])


def test_sets_are_empty_at_first_and_say_what_they_hold() -> None:
    with loaded("valueset") as dataplane:
        sets = dataplane.value_sets
        assert {name: (s.size, s.bitwidths) for name, s in sets.items()} == {
            "parse.ops": (4, (8,)),
            "parse.mixed": (8, (16, 13, 3, 8)),
            "parse.wide": (100, (128, 8)),
            "parse.ahead": (0, (4,)),
        }
        assert path(dataplane) == 0
        members = [(FieldMatch(1),), (FieldMatch(2),)]
        sets["parse.ops"].replace(members)
        assert sets["parse.ops"].members() == members


def test_a_set_can_be_in_several_states_and_is_looked_at_in_order(dataplane: Dataplane) -> None:
    replace(dataplane, "ops", [FieldMatch(0xFF)], [FieldMatch(0xFE)], [FieldMatch(3)])
    assert path(dataplane, op=0xFF) == OTHER, "the value comes before the set"
    assert path(dataplane, op=0xFE) == IS_OP, "the set comes before the value"
    assert path(dataplane, op=0xFF, a=3) == OTHER | OTHER_OP
    replace(dataplane, "ops")
    assert path(dataplane, op=0xFE) == OTHER


def test_wide_keys_and_negative_numbers(dataplane: Dataplane) -> None:
    top = 1 << 127 | 5
    replace(dataplane, "wide", [FieldMatch(top), FieldMatch(0x80)])
    assert path(dataplane, e=top, i=-128) == WIDE
    for e, i in ((5, -128), (top, -127), (top ^ 2 << 64, -128)):
        assert path(dataplane, e=e, i=i) == 0
    assert path(dataplane, e=1 << 64) == OTHER
    replace(dataplane, "wide", [FieldMatch(0, high=1 << 100), FieldMatch(0, mask=0)])
    assert path(dataplane, e=1 << 100, i=77) == WIDE
    assert path(dataplane, e=(1 << 100) + 1) == 0
    replace(dataplane, "wide")


def test_any_number_of_members_where_the_program_sets_no_limit(dataplane: Dataplane) -> None:
    replace(dataplane, "ahead", *([FieldMatch(n % 16, mask=0xE)] for n in range(0, 1000, 3)))
    assert path(dataplane, op=0xF0) == LOOKED
    replace(dataplane, "ahead", *([FieldMatch(value)] for value in range(0, 16, 2)))
    assert [path(dataplane, op=n << 4) & LOOKED for n in range(16)] == [1, 0] * 8
    replace(dataplane, "ahead")


def _member(widths: Sequence[int]) -> st.SearchStrategy[tuple[FieldMatch, ...]]:
    def field(width: int) -> st.SearchStrategy[FieldMatch]:
        value = st.integers(0, (1 << width) - 1)
        ends = st.tuples(value, value).map(sorted)
        return st.one_of(
            value.map(FieldMatch),
            st.builds(FieldMatch, value, mask=value),
            st.builds(FieldMatch, value, prefix_len=st.integers(0, width)),
            ends.map(lambda pair: FieldMatch(pair[0], high=pair[1])),
        )

    return st.tuples(*map(field, widths))


def _has(field: FieldMatch, width: int, value: int) -> bool:
    if field.high is not None:
        return field.value <= value <= field.high
    if field.mask is not None:
        return (field.value ^ value) & field.mask == 0
    drop = 0 if field.prefix_len is None else width - field.prefix_len
    return field.value >> drop == value >> drop


@settings(max_examples=150, deadline=None)
@given(
    members=st.lists(_member((16, 13, 3, 8)), max_size=8),
    keys=st.lists(
        st.tuples(*(st.integers(0, (1 << width) - 1) for width in (16, 13, 3, 8))), max_size=5
    ),
)
def test_membership_is_that_of_the_model(
    dataplane: Dataplane,
    members: list[tuple[FieldMatch, ...]],
    keys: list[tuple[int, ...]],
) -> None:
    widths = (16, 13, 3, 8)
    replace(dataplane, "mixed", *members)
    for key in [*keys, *(tuple(field.value for field in member) for member in members)]:
        expected = any(
            all(
                _has(field, width, value)
                for field, width, value in zip(m, widths, key, strict=True)
            )
            for m in members
        )
        b, y, x, a = key
        if b == 7:
            continue
        assert bool(path(dataplane, b=b, y=y, x=x, a=a) & MIXED) == expected


@pytest.mark.parametrize(
    ("name", "member", "says"),
    [
        ("ops", [FieldMatch(256)], r"parse.ops\[0\].0: 0x100 does not fit 8 bits"),
        ("ops", [FieldMatch(-1)], "does not fit 8 bits"),
        ("ops", [FieldMatch(1), FieldMatch(1)], "member 0 has 2 fields, not 1"),
        ("ops", [FieldMatch(1, mask=256)], "mask 0x100 does not fit"),
        ("ops", [FieldMatch(1, prefix_len=9)], "prefix length 9; at most 8"),
        ("ops", [FieldMatch(2, high=1)], "range 0x2..0x1 is empty"),
        ("ops", [FieldMatch(2, high=256)], "does not fit 8 bits"),
    ],
)
def test_a_refused_member_leaves_the_set_as_it_was(
    dataplane: Dataplane, name: str, member: list[FieldMatch], says: str
) -> None:
    replace(dataplane, name, [FieldMatch(9)])
    with pytest.raises(InvalidArgument, match=says):
        replace(dataplane, name, member)
    assert path(dataplane, op=9) == IS_OP
    assert dataplane.value_sets[f"parse.{name}"].members() == [(FieldMatch(9),)]


def test_no_more_members_than_the_program_says(dataplane: Dataplane) -> None:
    replace(dataplane, "ops", *([FieldMatch(n)] for n in range(4)))
    with pytest.raises(TableFull, match="5 members; at most 4"):
        replace(dataplane, "ops", *([FieldMatch(n)] for n in range(5)))
