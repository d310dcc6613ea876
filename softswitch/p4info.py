# SPDX-License-Identifier: Apache-2.0
"""Typed view of a P4Info message: ids, names, widths, and P4Runtime's byte strings.

`P4InfoView` is made once per pipeline and indexes what the server looks up per update: tables by
id, match fields and action parameters by id. It refuses a P4Info that contradicts itself (an id
used twice, a reference to an object that is not there) or asks for something that softswitch does
not do. Section numbers are those of the P4Runtime specification 1.4.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from softswitch.p4types import TypeSpec, type_spec
from softswitch.status import UNIMPLEMENTED, Failure, invalid

PORT_BITS = 9
"""Of port numbers in P4Runtime: v1model.p4's PortId_t."""

MessageView = Any  # a protobuf message; finsy's generated code is not type-checked here


class MatchKind(enum.IntEnum):
    """p4.config.v1.MatchField.MatchType."""

    EXACT = 2
    LPM = 3
    TERNARY = 4
    RANGE = 5
    OPTIONAL = 6


class Scope(enum.IntEnum):
    """p4.config.v1.ActionRef.Scope."""

    TABLE_AND_DEFAULT = 0
    TABLE_ONLY = 1
    DEFAULT_ONLY = 2


@dataclass(frozen=True, slots=True)
class Value:
    """A match field, action parameter or packet metadata field: `width` in bits."""

    id: int
    name: str
    width: int
    translated: bool = False
    """True when `width` is the controller's and the program has another one (18.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchField(Value):
    """One key of a table; `index` is its place in the table's key."""

    kind: MatchKind
    index: int


@dataclass(frozen=True, slots=True)
class ActionInfo:
    """An action; `params` in P4 order, which is the order the data plane takes them in."""

    id: int
    name: str
    alias: str
    params: tuple[Value, ...]


class MeterKind(enum.IntEnum):
    """p4.config.v1.MeterSpec.Type."""

    TWO_RATE_THREE_COLOR = 0
    SINGLE_RATE_THREE_COLOR = 1
    SINGLE_RATE_TWO_COLOR = 2


@dataclass(frozen=True, slots=True)
class MeterSpec:
    """What a meter counts (`bytes` None: not said) and which configurations it takes."""

    bytes: bool | None
    kind: MeterKind


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table. `fields` in key order; `actions` by id with the scope they have in this table."""

    id: int
    name: str
    alias: str
    size: int
    fields: tuple[MatchField, ...]
    actions: dict[int, tuple[ActionInfo, int]]
    const_default: bool
    profile_id: int
    has_counter: bool
    meter: MeterSpec | None
    is_const: bool
    idle_timeout: bool

    @property
    def needs_priority(self) -> bool:
        """True when entries carry a priority (9.1): a ternary, range or optional key."""
        return any(
            f.kind in (MatchKind.TERNARY, MatchKind.RANGE, MatchKind.OPTIONAL) for f in self.fields
        )


@dataclass(frozen=True, slots=True)
class ProfileInfo:
    """An action profile or selector. `size` and `max_group_size` count members or weights."""

    id: int
    name: str
    alias: str
    table_ids: tuple[int, ...]
    with_selector: bool
    size: int
    max_group_size: int
    sum_of_members: bool
    max_member_weight: int


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """An indirect counter or register array; `type` is set for registers."""

    id: int
    name: str
    alias: str
    size: int
    type: TypeSpec | None = None


@dataclass(frozen=True, slots=True)
class MeterInfo(MeterSpec):
    """An indirect meter array."""

    id: int
    name: str
    alias: str
    size: int


@dataclass(frozen=True, slots=True)
class ValueSetInfo:
    """A parser value set: at most `size` members (0: any number) of these fields."""

    id: int
    name: str
    alias: str
    size: int
    fields: tuple[MatchField, ...]


@dataclass(frozen=True, slots=True)
class DigestInfo:
    """A digest and the type of one message."""

    id: int
    name: str
    alias: str
    type: TypeSpec


@dataclass(slots=True)
class P4InfoView:
    """Everything in a P4Info that the server looks up, by id. Build it with `view`."""

    tables: dict[int, TableInfo] = field(default_factory=dict)
    actions: dict[int, ActionInfo] = field(default_factory=dict)
    profiles: dict[int, ProfileInfo] = field(default_factory=dict)
    counters: dict[int, ArrayInfo] = field(default_factory=dict)
    registers: dict[int, ArrayInfo] = field(default_factory=dict)
    meters: dict[int, MeterInfo] = field(default_factory=dict)
    digests: dict[int, DigestInfo] = field(default_factory=dict)
    value_sets: dict[int, ValueSetInfo] = field(default_factory=dict)
    packet_in: tuple[Value, ...] | None = None
    packet_out: tuple[Value, ...] | None = None


def decode_unsigned(value: bytes, width: int, what: str) -> int:
    """The integer in a P4Runtime byte string of a `bit<width>` value (8.4).

    Any number of leading zero bytes is accepted. Raises `Failure` INVALID_ARGUMENT for an empty
    string and for a value that needs more than `width` bits; `what` names the value in the message.
    """
    if not value:
        raise invalid(f"{what}: empty byte string; a value of 0 is one zero byte")
    number = int.from_bytes(value, "big")
    if number >> width:
        raise invalid(f"{what}: 0x{number:x} does not fit in {width} bits")
    return number


def encode_unsigned(number: int) -> bytes:
    """The canonical P4Runtime byte string of a non-negative integer: the shortest one (8.4)."""
    return number.to_bytes((number.bit_length() + 7) // 8 or 1, "big")


def is_canonical(value: bytes) -> bool:
    """True when a non-empty byte string has no leading zero byte that it does not need."""
    return value[0] != 0 or len(value) == 1


def view(info: MessageView) -> P4InfoView:
    """Index a p4.config.v1.P4Info.

    Raises `Failure`: INVALID_ARGUMENT for a P4Info that contradicts itself, UNIMPLEMENTED for what
    softswitch does not do, each with the object's name.
    """
    seen: dict[int, str] = {}
    result = P4InfoView()

    def preamble(message: MessageView, kind: str) -> tuple[int, str, str]:
        pre = message.preamble
        if pre.id == 0 or not pre.name:
            raise invalid(f"P4Info: a {kind} without an id or a name ({pre.name or 'no name'!r})")
        if pre.id in seen:
            raise invalid(
                f"P4Info: id {pre.id} is used by {seen[pre.id]} and by {kind} {pre.name!r}"
            )
        seen[pre.id] = f"{kind} {pre.name!r}"
        return pre.id, pre.name, pre.alias or pre.name

    for action in info.actions:
        pre = preamble(action, "action")
        params = tuple(_value(p, f"parameter of action {pre[1]!r}", info) for p in action.params)
        _unique(params, f"action {pre[1]!r}")
        result.actions[pre[0]] = ActionInfo(*pre, params)
    for profile in info.action_profiles:
        pre = preamble(profile, "action profile")
        result.profiles[pre[0]] = _profile(profile, pre)
    direct: dict[int, MeterSpec | None] = {}
    for message in info.direct_counters:
        direct[preamble(message, "direct counter")[0]] = None
    for message in info.direct_meters:
        pre = preamble(message, "direct meter")
        direct[pre[0]] = _meter_spec(message.spec, f"direct meter {pre[1]!r}")
    for table in info.tables:
        pre = preamble(table, "table")
        result.tables[pre[0]] = _table(table, pre, result, direct, info)
    for counter in info.counters:
        pre = preamble(counter, "counter")
        result.counters[pre[0]] = ArrayInfo(*pre, counter.size)
    for meter in info.meters:
        pre = preamble(meter, "meter")
        meter_spec = _meter_spec(meter.spec, f"meter {pre[1]!r}")
        result.meters[pre[0]] = MeterInfo(meter_spec.bytes, meter_spec.kind, *pre, meter.size)
    for register in info.registers:
        pre = preamble(register, "register")
        spec = type_spec(register.type_spec, info.type_info, f"register {pre[1]!r}")
        result.registers[pre[0]] = ArrayInfo(*pre, register.size, spec)
    for digest in info.digests:
        pre = preamble(digest, "digest")
        spec = type_spec(digest.type_spec, info.type_info, f"digest {pre[1]!r}")
        result.digests[pre[0]] = DigestInfo(*pre, spec)
    for value_set in info.value_sets:
        pre = preamble(value_set, "value set")
        fields = _match_fields(value_set.match, f"value set {pre[1]!r}", info)
        result.value_sets[pre[0]] = ValueSetInfo(*pre, value_set.size, fields)
    for header in info.controller_packet_metadata:
        pre = preamble(header, "controller header")
        values = tuple(_value(m, f"field of {pre[1]!r}", info) for m in header.metadata)
        _unique(values, f"controller header {pre[1]!r}")
        if pre[1] == "packet_in":
            result.packet_in = values
        elif pre[1] == "packet_out":
            result.packet_out = values
    return result


def _value(message: MessageView, what: str, info: MessageView) -> Value:
    translated = False
    if message.HasField("type_name") and message.type_name.name in info.type_info.new_types:
        named = info.type_info.new_types[message.type_name.name]
        translated = named.WhichOneof("representation") == "translated_type"
        if translated and named.translated_type.WhichOneof("sdn_type") == "sdn_string":
            raise Failure(
                UNIMPLEMENTED,
                f"P4Info: {what} {message.name!r}: its type {message.type_name.name!r} is "
                "translated to a string; softswitch only translates to bit widths",
            )
    if message.bitwidth <= 0:
        raise invalid(
            f"P4Info: {what} {message.name!r}: bitwidth {message.bitwidth} is not positive"
        )
    return Value(message.id, message.name, message.bitwidth, translated)


def _meter_spec(spec: MessageView, what: str) -> MeterSpec:
    try:
        kind = MeterKind(spec.type)
    except ValueError:
        allowed = ", ".join(k.name for k in MeterKind)
        raise Failure(
            UNIMPLEMENTED, f"P4Info: {what}: meter type {spec.type}; supported: {allowed}"
        ) from None
    return MeterSpec({1: True, 2: False}.get(spec.unit), kind)


def _unique(values: tuple[Value, ...], what: str) -> None:
    if len({v.id for v in values}) != len(values):
        raise invalid(f"P4Info: {what} uses a field or parameter id twice")


def _profile(profile: MessageView, pre: tuple[int, str, str]) -> ProfileInfo:
    semantics = profile.WhichOneof("selector_size_semantics")
    return ProfileInfo(
        *pre,
        table_ids=tuple(profile.table_ids),
        with_selector=profile.with_selector,
        size=profile.size,
        max_group_size=profile.max_group_size,
        sum_of_members=semantics == "sum_of_members",
        max_member_weight=profile.sum_of_members.max_member_weight,
    )


def _match_fields(
    messages: Iterable[MessageView], what: str, info: MessageView
) -> tuple[MatchField, ...]:
    fields = []
    for index, match in enumerate(messages):
        value = _value(match, f"key of {what}", info)
        try:
            kind = MatchKind(match.match_type)
        except ValueError:
            other = match.other_match_type or match.match_type
            allowed = ", ".join(k.name for k in MatchKind)
            raise Failure(
                UNIMPLEMENTED,
                f"P4Info: {what}, key {match.name!r}: match type {other!r}; supported: {allowed}",
            ) from None
        fields.append(
            MatchField(value.id, value.name, value.width, value.translated, kind=kind, index=index)
        )
    _unique(tuple(fields), what)
    return tuple(fields)


def _table(
    table: MessageView,
    pre: tuple[int, str, str],
    so_far: P4InfoView,
    direct: dict[int, MeterSpec | None],
    info: MessageView,
) -> TableInfo:
    name = pre[1]
    fields = _match_fields(table.match_fields, f"table {name!r}", info)
    actions: dict[int, tuple[ActionInfo, int]] = {}
    for ref in table.action_refs:
        if ref.id not in so_far.actions:
            raise invalid(
                f"P4Info: table {name!r} refers to action id {ref.id}, which is not there"
            )
        actions[ref.id] = (so_far.actions[ref.id], ref.scope)
    if table.implementation_id and table.implementation_id not in so_far.profiles:
        raise invalid(
            f"P4Info: table {name!r} refers to action profile id {table.implementation_id}, "
            "which is not there"
        )
    for resource in table.direct_resource_ids:
        if resource not in direct:
            raise invalid(
                f"P4Info: table {name!r} refers to direct resource id {resource}, "
                "which is not there"
            )
    resources = [direct[resource] for resource in table.direct_resource_ids]
    return TableInfo(
        *pre,
        size=table.size,
        fields=fields,
        actions=actions,
        const_default=table.const_default_action_id != 0,
        profile_id=table.implementation_id,
        has_counter=None in resources,
        meter=next((spec for spec in resources if spec is not None), None),
        is_const=table.is_const_table,
        idle_timeout=table.idle_timeout_behavior != 0,
    )
