# SPDX-License-Identifier: Apache-2.0
"""Match keys and actions of P4Runtime messages as the data plane takes them (9.1.1, 9.1.2).

Each parser returns what the data plane gets together with whether the message was canonical: every
byte string the shortest one. `shorten` makes a message canonical, so that reads return that form
(8.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any

from finsy.proto import p4r

from softswitch.codegen.layout import place_keys
from softswitch.description import KeyDescription
from softswitch.keys import KeyPacker, look_up_kind
from softswitch.p4info import (
    ActionInfo,
    MatchField,
    MatchKind,
    Scope,
    Value,
    decode_unsigned,
    encode_unsigned,
    is_canonical,
)
from softswitch.status import PERMISSION_DENIED, Failure, invalid
from softswitch.values import ActionCall, FieldMatch

Key = bytes
"""Identifies an entry within its table: the packed key, then prefix length and priority (32 bits
each). csrc/batch.c makes the same bytes.
"""

_KEY_END = Struct("<Ii")
_KIND_FIELDS = {
    MatchKind.EXACT: "exact",
    MatchKind.LPM: "lpm",
    MatchKind.TERNARY: "ternary",
    MatchKind.RANGE: "range",
    MatchKind.OPTIONAL: "optional",
}


class KeyParser:
    """Parses match and priority of entries: of a table, or without priority of a value set."""

    def __init__(
        self,
        owner: str,
        fields: tuple[MatchField, ...],
        keys: tuple[KeyDescription, ...],
        *,
        needs_priority: bool,
    ) -> None:
        """`owner` is named in messages; `fields` are P4Info's, `keys` those of the program."""
        self._owner = owner
        self._fields = {
            f.id: (f, min(f.width, key.width)) for f, key in zip(fields, keys, strict=True)
        }
        placed, words = place_keys([(key.name, key.kind, key.width) for key in keys])
        self._packer = KeyPacker(look_up_kind(key.kind for key in keys), placed, words)
        self._needs_priority = needs_priority
        self._omitted = [
            None if f.kind is MatchKind.EXACT else _dont_care(f.kind, width)
            for f, width in self._fields.values()
        ]

    def parse(self, match: Any, priority: int) -> tuple[Key, list[FieldMatch], bool]:
        """The entry's key, the match for the data plane, and whether the message was canonical.

        Raises `Failure` INVALID_ARGUMENT for anything that 9.1.1 forbids.
        """
        if (priority != 0) != self._needs_priority or priority < 0:
            raise invalid(
                f"{self._owner}: priority {priority}; entries of this table "
                + ("need one above 0" if self._needs_priority else "have none (0)")
            )
        seen: set[int] = set()
        result: list[FieldMatch | None] = self._omitted.copy()
        canonical = True
        for item in match:
            entry = self._fields.get(item.field_id)
            if entry is None:
                raise invalid(
                    f"{self._owner} has no match field {item.field_id}; it has "
                    f"{sorted(self._fields)}"
                )
            field, width = entry
            index = field.index
            if index in seen:
                raise invalid(f"{self._owner}: match field {field.name!r} given twice")
            seen.add(index)
            if field.kind is MatchKind.EXACT and item.HasField("exact"):
                value = item.exact.value
                number = int.from_bytes(value, "big")
                if not value or number >> width:
                    decode_unsigned(value, width, self._where(field))
                if not value[0] and len(value) > 1:
                    canonical = False
                result[index] = FieldMatch(number)
            else:
                result[index], plain = self._parse_other(item, field, width)
                canonical = canonical and plain
        if None in result:
            missing = [f.name for f, _ in self._fields.values() if result[f.index] is None]
            raise invalid(f"{self._owner}: exact match field {missing[0]!r} is missing")
        complete: list[FieldMatch] = result  # type: ignore[assignment]  # no None left in it
        packed, prefix_len = self._packer.pack(complete)
        return packed + _KEY_END.pack(prefix_len, priority), complete, canonical

    def plan(self) -> tuple[tuple[int, int, int], ...]:
        """The fields as `TablePlan` has them."""
        return tuple((i, f.kind.value, width) for i, (f, width) in self._fields.items())

    def _parse_other(self, item: Any, field: MatchField, width: int) -> tuple[FieldMatch, bool]:
        where = self._where(field)
        given = item.WhichOneof("field_match_type")
        if given != _KIND_FIELDS[field.kind]:
            raise invalid(f"{where} is an {field.kind.name} match, not {given or 'unset'}")
        if field.kind is MatchKind.LPM:
            number = decode_unsigned(item.lpm.value, width, where)
            length = item.lpm.prefix_len
            if not 0 < length <= width:
                raise invalid(
                    f"{where}: prefix length {length} is not in 1..{width}; leave the field out to "
                    "match everything"
                )
            if number & (1 << (width - length)) - 1:
                raise invalid(f"{where}: bits beyond the prefix length {length} are not 0")
            match = FieldMatch(number, prefix_len=length)
            return match, is_canonical(item.lpm.value)
        if field.kind is MatchKind.TERNARY:
            number = decode_unsigned(item.ternary.value, width, where)
            mask = decode_unsigned(item.ternary.mask, width, f"{where}, mask")
            if not mask:
                raise invalid(f"{where}: mask 0; leave the field out to match everything")
            if number & ~mask:
                raise invalid(f"{where}: value 0x{number:x} has bits outside of mask 0x{mask:x}")
            plain = is_canonical(item.ternary.value) and is_canonical(item.ternary.mask)
            return FieldMatch(number, mask=mask), plain
        if field.kind is MatchKind.RANGE:
            low = decode_unsigned(item.range.low, width, f"{where}, low")
            high = decode_unsigned(item.range.high, width, f"{where}, high")
            if low > high:
                raise invalid(f"{where}: low {low} is above high {high}")
            if low == 0 and high == (1 << width) - 1:
                raise invalid(f"{where}: whole range; leave the field out to match everything")
            plain = is_canonical(item.range.low) and is_canonical(item.range.high)
            return FieldMatch(low, high=high), plain
        number = decode_unsigned(item.optional.value, width, where)
        match = FieldMatch(number, mask=(1 << width) - 1)
        return match, is_canonical(item.optional.value)

    def _where(self, field: MatchField) -> str:
        return f"{self._owner}, match field {field.name!r}"


def _dont_care(kind: MatchKind, width: int) -> FieldMatch:
    if kind is MatchKind.LPM:
        return FieldMatch(0, prefix_len=0)
    if kind is MatchKind.RANGE:
        return FieldMatch(0, high=(1 << width) - 1)
    return FieldMatch(0, mask=0)


class ActionParser:
    """Parses the p4.v1.Action messages that one table or action profile allows."""

    def __init__(
        self,
        where: str,
        actions: Mapping[int, tuple[ActionInfo, int]],
        widths: Mapping[str, tuple[int, ...]],
    ) -> None:
        self._where = where
        self._actions = {
            i: (a, scope, tuple(zip(a.params, _narrower(a.params, widths[a.name]), strict=True)))
            for i, (a, scope) in actions.items()
        }
        self.by_name = {a.name: a for a, _ in actions.values()}

    def parse(self, action: Any, *, default: bool) -> tuple[ActionCall, bool]:
        """The call for the data plane, and whether the message was canonical.

        Raises `Failure`: INVALID_ARGUMENT for an unknown action or wrong parameters,
        PERMISSION_DENIED when the action's scope forbids its use as (`default`) or in an entry.
        """
        found = self._actions.get(action.action_id)
        if found is None:
            allowed = ", ".join(f"{a.alias} ({i})" for i, (a, _, _) in self._actions.items())
            raise invalid(f"{self._where} has no action {action.action_id}; it has {allowed}")
        info, scope, params = found
        if scope and scope == (Scope.TABLE_ONLY if default else Scope.DEFAULT_ONLY):
            raise Failure(
                PERMISSION_DENIED,
                f"{self._where}: action {info.alias!r} is only allowed "
                + ("in entries (@tableonly)" if default else "as default action (@defaultonly)"),
            )
        given = action.params
        if len(given) != len(params):
            raise invalid(
                f"{self._where}: action {info.alias!r} has {len(params)} parameters, "
                f"not {len(given)}"
            )
        numbers = []
        canonical = True
        for item, (param, width) in zip(given, params, strict=True):
            if item.param_id != param.id:
                return self._parse_unordered(action, info, params)
            value = item.value
            number = int.from_bytes(value, "big")
            if not value or number >> width:
                decode_unsigned(value, width, f"{self._where}: {info.alias}.{param.name}")
            if not value[0] and len(value) > 1:
                canonical = False
            numbers.append(number)
        return ActionCall(info.name, tuple(numbers)), canonical

    def _parse_unordered(
        self, action: Any, info: ActionInfo, params: tuple[tuple[Value, int], ...]
    ) -> tuple[ActionCall, bool]:
        given = {p.param_id: p.value for p in action.params}
        numbers = []
        for param, width in params:
            if param.id not in given:
                raise invalid(
                    f"{self._where}: action {info.alias!r} needs parameter {param.id} "
                    f"({param.name}); given: {sorted(given)}"
                )
            where = f"{self._where}: {info.alias}.{param.name}"
            numbers.append(decode_unsigned(given[param.id], width, where))
        return ActionCall(info.name, tuple(numbers)), all(map(is_canonical, given.values()))

    def plan(self) -> tuple[tuple[int, str, tuple[tuple[int, int], ...]], ...]:
        """The actions that entries may have, as `TablePlan` has them."""
        return tuple(
            (i, action.name, tuple((param.id, width) for param, width in params))
            for i, (action, scope, params) in self._actions.items()
            if scope != Scope.DEFAULT_ONLY
        )

    def to_message(self, call: ActionCall) -> Any | None:
        """The p4.v1.Action of a call; None when the P4Info does not list the action here."""
        info = self.by_name.get(call.name)
        if info is None:
            return None
        return p4r.Action(
            action_id=info.id,
            params=[
                p4r.Action.Param(param_id=p.id, value=encode_unsigned(n))
                for p, n in zip(info.params, call.params, strict=True)
            ],
        )


def _narrower(params: tuple[Value, ...], widths: tuple[int, ...]) -> list[int]:
    return [min(p.width, w) for p, w in zip(params, widths, strict=True)]


def match_messages(fields: tuple[MatchField, ...], match: tuple[FieldMatch, ...]) -> list[Any]:
    """p4.v1.FieldMatch messages for a match as the data plane has it; "don't care" is left out."""
    result = []
    for field, value in zip(fields, match, strict=True):
        message = p4r.FieldMatch(field_id=field.id)
        number = encode_unsigned(value.value)
        if field.kind is MatchKind.EXACT:
            message.exact.value = number
        elif field.kind is MatchKind.LPM and value.prefix_len:
            message.lpm.value = number
            message.lpm.prefix_len = value.prefix_len
        elif field.kind is MatchKind.TERNARY and value.mask:
            message.ternary.value = number
            message.ternary.mask = encode_unsigned(value.mask)
        elif field.kind is MatchKind.OPTIONAL and value.mask:
            message.optional.value = number
        elif field.kind is MatchKind.RANGE and value.high is not None:
            if value.value == 0 and value.high == (1 << field.width) - 1:
                continue
            message.range.low = number
            message.range.high = encode_unsigned(value.high)
        else:
            continue
        result.append(message)
    return result


def shorten(message: Any) -> None:
    """Make every byte string in an Action, ActionProfileActionSet or match canonical, in place."""
    if isinstance(message, p4r.Action):
        for param in message.params:
            param.value = _short(param.value)
    elif isinstance(message, p4r.ActionProfileActionSet):
        for item in message.action_profile_actions:
            shorten(item.action)
            shorten_watch(item)
    elif isinstance(message, p4r.FieldMatch):
        inner = getattr(message, message.WhichOneof("field_match_type"))
        for name in ("value", "mask", "low", "high"):
            if hasattr(inner, name):
                setattr(inner, name, _short(getattr(inner, name)))


def shorten_watch(item: Any) -> None:
    """Make the watch port of a group's member or of an action of a set canonical, in place."""
    if item.watch_port:
        item.watch_port = _short(item.watch_port)


def _short(value: bytes) -> bytes:
    return value.lstrip(b"\0") or b"\0"
