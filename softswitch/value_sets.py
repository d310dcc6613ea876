# SPDX-License-Identifier: Apache-2.0
"""Parser value sets of a loaded program, as Python programs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softswitch.codegen.layout import ValueSetLayout, words_of
from softswitch.engine import check, words
from softswitch.errors import InvalidArgument, TableFull
from softswitch.values import FieldMatch

Member = tuple[FieldMatch, ...]


class ValueSet:
    """A value set: what a parser state's keys may be.

    Attributes:
        name: as in the JSON.
        size: most members; 0: any number.
        bitwidths: of the keys; empty when no state selects on the set, whose members then have no
            effect and may have any form.
    """

    def __init__(self, engine: Any, switch: int, index: int, layout: ValueSetLayout) -> None:
        self.name = layout.name
        self.size = layout.size
        self.bitwidths = layout.widths
        self._engine = engine
        self._switch = switch
        self._index = index
        self._members: list[Member] = []

    def members(self) -> list[Member]:
        """The members, in the order in which they were given."""
        return list(self._members)

    def replace(self, members: Sequence[Member]) -> None:
        """Give the set other members, all at once.

        Each field of a member matches by what it has: `mask` (ternary), `prefix_len` (lpm), `high`
        (range), or its value alone.

        Raises:
            TableFull: more than `size`.
            InvalidArgument: a member that does not fit `bitwidths`.
        """
        if self.size and len(members) > self.size:
            raise TableFull(f"{self.name}: {len(members)} members; at most {self.size}")
        exact, ranges = set(), []
        for number, member in enumerate(members) if self.bitwidths else ():
            low, mask, high = self._pack(number, member)
            if low == high and mask == self._ones():
                exact.add(low)
            else:
                ranges += [mask, low, high]
        count = sum(map(words_of, self.bitwidths))
        result = self._engine.ss_value_set_replace(
            self._switch,
            self._index,
            b"".join(words(key, count) for key in sorted(exact)),
            len(exact),
            b"".join(words(value, count) for value in ranges),
            len(ranges) // 3,
        )
        check(result, self.name)
        self._members = [tuple(member) for member in members]

    def _ones(self) -> int:
        value = shift = 0
        for width in self.bitwidths:
            value |= (1 << width) - 1 << shift
            shift += 64 * words_of(width)
        return value

    def _pack(self, number: int, member: Member) -> tuple[int, int, int]:
        """(low, mask, high) of a member, each field from a word of its own."""
        if len(member) != len(self.bitwidths):
            raise InvalidArgument(
                f"{self.name}: member {number} has {len(member)} fields, not {len(self.bitwidths)}"
            )
        low = mask = high = shift = 0
        for position, (field, width) in enumerate(zip(member, self.bitwidths, strict=True)):
            bottom, covered, top = _bounds(f"{self.name}[{number}].{position}", field, width)
            low |= bottom << shift
            mask |= covered << shift
            high |= top << shift
            shift += 64 * words_of(width)
        return low, mask, high


def _bounds(where: str, field: FieldMatch, width: int) -> tuple[int, int, int]:
    """(low, mask, high): the field has the keys with low <= key & mask <= high."""
    ones = (1 << width) - 1
    if not 0 <= field.value <= ones:
        raise InvalidArgument(f"{where}: {field.value:#x} does not fit {width} bits")
    if field.high is not None:
        if not field.value <= field.high <= ones:
            raise InvalidArgument(
                f"{where}: range {field.value:#x}..{field.high:#x} is empty or does not fit "
                f"{width} bits"
            )
        return field.value, ones, field.high
    mask = ones
    if field.mask is not None:
        if not 0 <= field.mask <= ones:
            raise InvalidArgument(f"{where}: mask {field.mask:#x} does not fit {width} bits")
        mask = field.mask
    elif field.prefix_len is not None:
        if not 0 <= field.prefix_len <= width:
            raise InvalidArgument(f"{where}: prefix length {field.prefix_len}; at most {width}")
        mask = ones ^ (ones >> field.prefix_len)
    value = field.value & mask
    return value, mask, value
