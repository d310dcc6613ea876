# SPDX-License-Identifier: Apache-2.0
"""Keys of table entries as the engine has them: packed into 64-bit words.

The generated C packs a packet's key in the same way (codegen/tables.py), csrc/batch.c those of
whole writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from softswitch.codegen.layout import WORD_BITS, KeyField
from softswitch.values import FieldMatch


def look_up_kind(match_types: Iterable[str]) -> str:
    """The kind of look-up that serves a table's keys: an `enum ss_match_kind` without its SS_."""
    kinds = set(match_types)
    if not kinds:
        return "KEYLESS"
    for kind in ("range", "ternary", "lpm"):
        if kind in kinds:
            return kind.upper()
    return "EXACT"


@dataclass(frozen=True, slots=True)
class KeyPacker:
    """Packs the keys of one table, whose look-up is of `kind` over `words` words."""

    kind: str
    fields: tuple[KeyField, ...]
    words: int

    @property
    def total_words(self) -> int:
        """Words of a packed key: the value, and mask and high where the look-up needs them."""
        return self.words * {"TERNARY": 2, "RANGE": 3}.get(self.kind, 1)

    def pack(self, match: Sequence[FieldMatch]) -> tuple[bytes, int]:
        """(packed key, prefix length) of values that fit; one item per field."""
        value = mask = high = prefix_len = 0
        for field, given in zip(self.fields, match, strict=True):
            ones = (1 << field.width) - 1
            if field.match_type == "range":
                value |= given.value << field.shift
                high |= (ones if given.high is None else given.high) << field.shift
                continue
            field_mask = ones
            if field.match_type == "lpm":
                prefix_len = field.width if given.prefix_len is None else given.prefix_len
                field_mask = ones ^ (ones >> prefix_len)
            elif field.match_type == "ternary" and given.mask is not None:
                field_mask = given.mask
            value |= (given.value & field_mask) << field.shift
            mask |= field_mask << field.shift
        bits = WORD_BITS * self.words
        if self.kind == "TERNARY":
            value |= mask << bits
        elif self.kind == "RANGE":
            value |= mask << bits | high << 2 * bits
        packed = value.to_bytes(8 * self.total_words, "little")
        return packed, prefix_len if self.kind == "LPM" else 0
