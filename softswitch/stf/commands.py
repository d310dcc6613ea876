# SPDX-License-Identifier: Apache-2.0
"""The commands of an STF test. Each knows the line that it is from, counted from 1."""

from __future__ import annotations

from dataclasses import dataclass


class StfError(Exception):
    """The test cannot be read or carried out; the message begins with the line's number."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}")
        self.line = line


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it is written: `mask` has ones where a digit stands, zeros for `*`.

    `digits` counts the digits, `bits_per_digit` is 1, 3 or 4, or 0 for a decimal number, which
    cannot have a `*`; its mask is -1: all bits.
    """

    value: int
    mask: int
    digits: int
    bits_per_digit: int

    @property
    def has_wildcard(self) -> bool:
        """Some digit is a `*`."""
        return bool(self.bits_per_digit) and self.mask != (1 << self.bits) - 1

    @property
    def bits(self) -> int:
        """How many bits are written down, leading zeros and `*` included."""
        return self.digits * self.bits_per_digit


@dataclass(frozen=True, slots=True)
class Match:
    """One key of an entry: a number, with a prefix length, a mask or the end of a range."""

    name: str
    value: Number
    prefix_len: int | None = None
    mask: Number | None = None
    high: Number | None = None


@dataclass(frozen=True, slots=True)
class ActionText:
    """An action and its parameters, by name."""

    name: str
    params: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet arrives."""

    line: int
    port: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Expect:
    """A packet is to leave. `pattern` is hexadecimal digits and `*`, or None: any packet.

    More bytes may follow the pattern, unless it is `exact`.
    """

    line: int
    port: int
    pattern: str | None
    exact: bool


@dataclass(frozen=True, slots=True)
class NoPacket:
    """Nothing has left since the last `packet` that is not expected yet."""

    line: int


@dataclass(frozen=True, slots=True)
class Add:
    """A table entry; the highest `priority` wins. `label` names it for later commands."""

    line: int
    table: str
    priority: int | None
    matches: tuple[Match, ...]
    action: ActionText
    label: str | None


@dataclass(frozen=True, slots=True)
class SetDefault:
    """Another default action."""

    line: int
    table: str
    action: ActionText


@dataclass(frozen=True, slots=True)
class Remove:
    """Removes the entry with a label; None: all entries that the test has added."""

    line: int
    label: str | None


@dataclass(frozen=True, slots=True)
class CheckCounter:
    """A counter has a value. `index` is a cell or the label of an entry; without a `comparison`
    it only has to exist. `unit` is packets or bytes."""

    line: int
    counter: str
    index: int | str
    unit: str = "packets"
    comparison: str | None = None
    number: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """Until everything has left, as it always has here."""

    line: int


@dataclass(frozen=True, slots=True)
class Direct:
    """A command of simple_switch_CLI: `name`, an object's name where it takes one, numbers.

    `numbers` are integers, for meters followed by pairs of (rate, burst) in `rates`.
    """

    line: int
    name: str
    object: str
    numbers: tuple[int, ...]
    rates: tuple[tuple[float, int], ...] = ()


Command = Packet | Expect | NoPacket | Add | SetDefault | Remove | CheckCounter | Wait | Direct
