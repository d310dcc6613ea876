# SPDX-License-Identifier: Apache-2.0
"""What the generated C and the Python that programs it must agree on: positions and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WORD_BITS = 64


def words_of(width: int) -> int:
    """64-bit words that hold `width` bits, at least one."""
    return max(1, -(-width // WORD_BITS))


@dataclass(frozen=True, slots=True)
class KeyField:
    """One key of a table. `shift` is its lowest bit's place in the packed key, word 0 lowest."""

    name: str
    match_type: str  # exact, lpm, ternary, range, valid
    width: int
    shift: int


@dataclass(frozen=True, slots=True)
class ActionLayout:
    """An action: its id in the JSON, parameters as (name, width in bits).

    Each parameter starts a word of its own in `ss_action.data`, lowest word first.
    """

    id: int
    name: str
    params: tuple[tuple[str, int], ...]

    @property
    def words(self) -> int:
        """Words of all parameters together."""
        return sum(words_of(width) for _, width in self.params)


@dataclass(frozen=True, slots=True)
class TableLayout:
    """A table as `ss_table_desc` number `index` has it.

    `kind` is the name of an `enum ss_match_kind` without SS_: EXACT, LPM, TERNARY, RANGE, KEYLESS.
    `looked_at`: the bits of the packed key that the program does not mask away; None: all.
    """

    index: int
    name: str
    kind: str
    keys: tuple[KeyField, ...]
    words: int
    max_size: int
    profile: int | None
    actions: tuple[int, ...]
    with_counters: bool
    looked_at: int | None = None
    with_timeouts: bool = False
    with_meters: bool = False

    @property
    def kept_words(self) -> int:
        """Words of an entry's key in the engine: with mask and high in range tables."""
        return self.words * (3 if self.kind == "RANGE" else 1)


@dataclass(frozen=True, slots=True)
class RegisterLayout:
    """A register array: `width` bits of each of `size` cells of `cell_bytes` bytes."""

    name: str
    size: int
    width: int
    cell_bytes: int


@dataclass(frozen=True, slots=True)
class ValueSetLayout:
    """A parser value set: at most `size` members (0: any number).

    `widths` in bits of the keys that select on it; none when no state does.
    """

    name: str
    size: int
    widths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CrcLayout:
    """A CRC with parameters that can be set: those it begins with, in simple_switch_CLI's terms.

    `name` is that of the calculation, or of the action selector.
    """

    name: str
    bits: int
    polynomial: int
    initial: int
    final_xor: int
    reflect_data: bool
    reflect_remainder: bool


@dataclass(frozen=True, slots=True)
class DigestLayout:
    """A learn list: widths of the fields, each from a word of its own in the event's data."""

    id: int
    name: str
    widths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything by index: tables, profiles (name, max size), counters (name, size), registers,
    indirect meters (name, size)."""

    tables: tuple[TableLayout, ...]
    profiles: tuple[tuple[str, int], ...]
    counters: tuple[tuple[str, int], ...]
    registers: tuple[RegisterLayout, ...]
    meters: tuple[tuple[str, int], ...]
    digests: tuple[DigestLayout, ...]
    value_sets: tuple[ValueSetLayout, ...]
    crcs: tuple[CrcLayout, ...]
    actions: dict[int, ActionLayout]


def place_keys(fields: Sequence[tuple[str, str, int]]) -> tuple[tuple[KeyField, ...], int]:
    """Pack keys of (name, match type, width): (their places, words of the whole key).

    No key of up to 64 bits crosses a word's border, wider ones start a word.
    """
    placed = []
    at = 0
    for name, match_type, width in fields:
        if width > WORD_BITS or at % WORD_BITS + width > WORD_BITS:
            at = -(-at // WORD_BITS) * WORD_BITS
        placed.append(KeyField(name, match_type, width, at))
        at += width
    return tuple(placed), words_of(at) if fields else 0
