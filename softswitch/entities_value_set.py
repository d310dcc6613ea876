# SPDX-License-Identifier: Apache-2.0
"""Parser value sets (P4Runtime 1.4, section 9.6 "ValueSetEntry"): always there, and modified whole.

BMv2's P4Runtime server cannot reach them; this one can.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r

from softswitch.boundary import ValueSetLike
from softswitch.description import KeyDescription
from softswitch.entities_match import Key, KeyParser, shorten
from softswitch.p4info import MatchKind, ValueSetInfo
from softswitch.status import ALREADY_EXISTS, RESOURCE_EXHAUSTED, Failure, Undo, invalid
from softswitch.values import FieldMatch
from softswitch.wire import ENTITY_VALUE_SET, message_field

_KINDS = {
    MatchKind.EXACT: "exact",
    MatchKind.LPM: "lpm",
    MatchKind.TERNARY: "ternary",
    MatchKind.OPTIONAL: "ternary",
    MatchKind.RANGE: "range",
}


class ValueSetStore:
    """The members of one value set."""

    def __init__(self, info: ValueSetInfo, value_set: ValueSetLike) -> None:
        self.info = info
        self._value_set = value_set
        keys = tuple(KeyDescription(f.name, _KINDS[f.kind], f.width) for f in info.fields)
        self._keys = KeyParser(self._where, info.fields, keys, needs_priority=False)
        self._matches: list[list[FieldMatch]] = []
        self._wire = p4r.ValueSetEntry(value_set_id=info.id).SerializeToString()

    def modify(self, message: Any, undo: Undo | None) -> None:
        """MODIFY a ValueSetEntry: other members in the place of all that are there."""
        limit = self.info.size
        if limit and len(message.members) > limit:
            raise Failure(
                RESOURCE_EXHAUSTED,
                f"{self._where}: {len(message.members)} members; at most {limit}",
            )
        matches: list[list[FieldMatch]] = []
        seen: set[Key] = set()
        copy = p4r.ValueSetEntry()
        copy.CopyFrom(message)
        for number, member in enumerate(copy.members):
            if not member.match:
                raise invalid(f"{self._where}: member {number} has no match")
            key, match, _ = self._keys.parse(member.match, 0)
            if key in seen:
                raise Failure(ALREADY_EXISTS, f"{self._where}: member {number} is there twice")
            seen.add(key)
            matches.append(match)
            for item in member.match:
                shorten(item)
        before = (self._matches, self._wire)
        self._set(matches, copy.SerializeToString())
        if undo is not None:
            undo.append(lambda: self._set(*before))

    def _set(self, matches: list[list[FieldMatch]], wire: bytes) -> None:
        self._value_set.replace([tuple(match) for match in matches])
        self._matches, self._wire = matches, wire

    def read(self) -> bytes:
        """The serialised Entity message with all members."""
        return message_field(ENTITY_VALUE_SET, self._wire)

    def export(self) -> Iterator[Any]:
        """The ValueSetEntry message, unless the set is empty as a new one is."""
        if self._matches:
            yield p4r.ValueSetEntry.FromString(self._wire)

    @property
    def _where(self) -> str:
        return f"value set {self.info.name!r}"
