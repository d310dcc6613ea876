# SPDX-License-Identifier: Apache-2.0
"""Table entries in one canonical form, so that wanted and held entries can be compared.

A server may pad byte strings, return the actions of a one-shot set in another order, or split a
weight over equal actions; none of that is a difference. Here an entry is a key (table, priority,
match) and a value (its action), all in integers. Counters, meters and cookies are not part of it.

Multicast groups are entries as well: of the table `MULTICAST_GROUPS`, which no program has, with
the group's id as the match and its replicas as the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from finsy import P4MulticastGroupEntry, P4Schema, P4TableEntry
from finsy.proto import p4r

MULTICAST_GROUPS: Final = "multicast_groups"
MULTICAST_TABLE_ID: Final = 0  # a table's id is never 0

EXACT, LPM, TERNARY, RANGE, OPTIONAL = "exact", "lpm", "ternary", "range", "optional"


class Field(NamedTuple):
    """One match field: ``argument`` is the prefix length, the mask or the range's upper end."""

    field_id: int
    kind: str
    value: int
    argument: int = 0


class Key(NamedTuple):
    """What identifies an entry: match fields sorted by id, don't-care fields left out."""

    table_id: int
    match: tuple[Field, ...]
    priority: int = 0


class Call(NamedTuple):
    """An action with its parameters as (parameter id, value), sorted."""

    action_id: int
    params: tuple[tuple[int, int], ...]


class Choice(NamedTuple):
    """One member of a one-shot set; ``watch_port`` is -1 when the member watches no port."""

    call: Call
    weight: int
    watch_port: int


class OneShot(NamedTuple):
    """A one-shot action set (P4Runtime 9.2.3): equal members merged, sorted."""

    choices: tuple[Choice, ...]


class Reference(NamedTuple):
    """A member or group of an action profile, by id."""

    kind: str  # "member" | "group"
    number: int


class Replicas(NamedTuple):
    """Where a multicast group sends its copies: (port, instance), sorted."""

    replicas: tuple[tuple[int, int], ...]


Value: TypeAlias = Call | OneShot | Reference | Replicas
Entries: TypeAlias = dict[Key, Value]
DesiredEntry: TypeAlias = P4TableEntry | P4MulticastGroupEntry


class UnsupportedEntryError(ValueError):
    """An entity that is not a plain table entry, or that holds parts that push does not compare."""


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _bytes(value: int) -> bytes:
    """The canonical byte string of P4Runtime 8.4: no leading zero bytes, at least one byte."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def _field(field: p4r.FieldMatch) -> Field | None:
    kind = field.WhichOneof("field_match_type")
    if kind == EXACT:
        return Field(field.field_id, EXACT, _number(field.exact.value))
    if kind == LPM:
        if not field.lpm.prefix_len:
            return None
        return Field(field.field_id, LPM, _number(field.lpm.value), field.lpm.prefix_len)
    if kind == TERNARY:
        mask = _number(field.ternary.mask)
        return Field(field.field_id, TERNARY, _number(field.ternary.value), mask) if mask else None
    if kind == RANGE:
        return Field(field.field_id, RANGE, _number(field.range.low), _number(field.range.high))
    if kind == OPTIONAL:
        return Field(field.field_id, OPTIONAL, _number(field.optional.value))
    raise UnsupportedEntryError(f"match kind {kind!r} is not supported")


def _encode_field(field: Field) -> p4r.FieldMatch:
    value = _bytes(field.value)
    if field.kind == EXACT:
        return p4r.FieldMatch(field_id=field.field_id, exact=p4r.FieldMatch.Exact(value=value))
    if field.kind == LPM:
        lpm = p4r.FieldMatch.LPM(value=value, prefix_len=field.argument)
        return p4r.FieldMatch(field_id=field.field_id, lpm=lpm)
    if field.kind == TERNARY:
        ternary = p4r.FieldMatch.Ternary(value=value, mask=_bytes(field.argument))
        return p4r.FieldMatch(field_id=field.field_id, ternary=ternary)
    if field.kind == RANGE:
        bounds = p4r.FieldMatch.Range(low=value, high=_bytes(field.argument))
        return p4r.FieldMatch(field_id=field.field_id, range=bounds)
    optional = p4r.FieldMatch.Optional(value=value)
    return p4r.FieldMatch(field_id=field.field_id, optional=optional)


def _call(action: p4r.Action) -> Call:
    params = sorted((param.param_id, _number(param.value)) for param in action.params)
    return Call(action.action_id, tuple(params))


def _encode_call(call: Call) -> p4r.Action:
    return p4r.Action(
        action_id=call.action_id,
        params=[
            p4r.Action.Param(param_id=number, value=_bytes(value)) for number, value in call.params
        ],
    )


def _one_shot(actions: p4r.ActionProfileActionSet) -> OneShot:
    weights: dict[tuple[Call, int], int] = {}
    for member in actions.action_profile_actions:
        kind = member.WhichOneof("watch_kind")
        if kind == "watch_port":
            port = _number(member.watch_port)
        elif kind == "watch":
            port = member.watch
        else:
            port = -1
        identity = (_call(member.action), port)
        weights[identity] = weights.get(identity, 0) + member.weight
    return OneShot(
        tuple(sorted(Choice(call, weight, port) for (call, port), weight in weights.items()))
    )


def _encode_one_shot(actions: OneShot) -> p4r.ActionProfileActionSet:
    members = []
    for choice in actions.choices:
        member = p4r.ActionProfileAction(action=_encode_call(choice.call), weight=choice.weight)
        if choice.watch_port >= 0:
            member.watch_port = _bytes(choice.watch_port)
        members.append(member)
    return p4r.ActionProfileActionSet(action_profile_actions=members)


def _value(action: p4r.TableAction) -> Value:
    kind = action.WhichOneof("type")
    if kind == "action":
        return _call(action.action)
    if kind == "action_profile_action_set":
        return _one_shot(action.action_profile_action_set)
    if kind == "action_profile_member_id":
        return Reference("member", action.action_profile_member_id)
    if kind == "action_profile_group_id":
        return Reference("group", action.action_profile_group_id)
    raise UnsupportedEntryError("the entry has no action")


def multicast_key(group_id: int) -> Key:
    """The key of a multicast group."""
    return Key(MULTICAST_TABLE_ID, (Field(0, EXACT, group_id),))


def _multicast_group(entry: p4r.MulticastGroupEntry) -> tuple[Key, Replicas]:
    replicas = []
    for replica in entry.replicas:
        kind = replica.WhichOneof("port_kind")
        port = _number(replica.port) if kind == "port" else replica.egress_port
        replicas.append((port, replica.instance))
    return multicast_key(entry.multicast_group_id), Replicas(tuple(sorted(replicas)))


def _encode_multicast_group(key: Key, value: Value | None) -> p4r.Entity:
    assert value is None or isinstance(value, Replicas)
    # By number, which every version of P4Runtime knows.
    replicas = [
        p4r.Replica(egress_port=port, instance=instance)
        for port, instance in (value.replicas if value else ())
    ]
    group = p4r.MulticastGroupEntry(multicast_group_id=key.match[0].value, replicas=replicas)
    return p4r.Entity(
        packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(
            multicast_group_entry=group
        )
    )


def _encode_value(value: Value) -> p4r.TableAction:
    if isinstance(value, Call):
        return p4r.TableAction(action=_encode_call(value))
    if isinstance(value, OneShot):
        return p4r.TableAction(action_profile_action_set=_encode_one_shot(value))
    if isinstance(value, Replicas):
        raise UnsupportedEntryError("a table entry has no replicas")
    if value.kind == "member":
        return p4r.TableAction(action_profile_member_id=value.number)
    return p4r.TableAction(action_profile_group_id=value.number)


def from_message(entry: p4r.TableEntry) -> tuple[Key, Value]:
    """A table entry as sent or received, in canonical form; its counters are dropped."""
    fields = (_field(field) for field in entry.match)
    match = tuple(sorted(field for field in fields if field is not None))
    return Key(entry.table_id, match, entry.priority), _value(entry.action)


def to_message(key: Key, value: Value | None) -> p4r.TableEntry:
    """The table entry to send; without a value it only names the entry (for a delete)."""
    return p4r.TableEntry(
        table_id=key.table_id,
        match=[_encode_field(field) for field in key.match],
        priority=key.priority,
        action=None if value is None else _encode_value(value),
    )


def to_entity(key: Key, value: Value | None) -> p4r.Entity:
    """What an update carries: the table entry or multicast group; without a value its name only."""
    if key.table_id == MULTICAST_TABLE_ID:
        return _encode_multicast_group(key, value)
    return p4r.Entity(table_entry=to_message(key, value))


def wanted_entries(entities: Iterable[DesiredEntry], schema: P4Schema) -> Entries:
    """Encode desired entries with the program's P4Info.

    Raises UnsupportedEntryError for anything that is neither a plain table entry nor a multicast
    group, and ValueError (from finsy) when a table, field, action or value does not exist in the
    program, or two entries share a key.
    """
    entries: Entries = {}
    for entity in entities:
        if isinstance(entity, P4MulticastGroupEntry):
            engine = entity.encode(schema).packet_replication_engine_entry
            _add(entries, entity, *_multicast_group(engine.multicast_group_entry))
            continue
        if not isinstance(entity, P4TableEntry) or not entity.table_id:
            raise UnsupportedEntryError(
                f"push handles table entries and multicast groups only, not {entity!r}"
            )
        if entity.is_default_action or entity.idle_timeout_ns or entity.meter_config is not None:
            raise UnsupportedEntryError(
                f"push handles neither default actions nor idle time-outs nor meters: {entity!r}"
            )
        _add(entries, entity, *from_message(entity.encode_entry(schema)))
    return entries


def _add(entries: Entries, entity: DesiredEntry, key: Key, value: Value) -> None:
    if key in entries:
        raise ValueError(f"two entries with the same key are wanted: {entity!r}")
    entries[key] = value


def held_entries(messages: Iterable[p4r.Entity], schema: P4Schema) -> Entries:
    """Entries that a device returned, without the program's constant ones."""
    constant = {table.id for table in schema.tables if table.is_const}
    entries: Entries = {}
    for message in messages:
        if message.WhichOneof("entity") == "packet_replication_engine_entry":
            engine = message.packet_replication_engine_entry
            key, replicas = _multicast_group(engine.multicast_group_entry)
            entries[key] = replicas
            continue
        entry = message.table_entry
        if entry.is_default_action or entry.is_const or entry.table_id in constant:
            continue
        key, value = from_message(entry)
        entries[key] = value
    return entries


def count_by_table(entries: Iterable[Key], schema: P4Schema) -> Mapping[str, int]:
    """Number of entries by table alias; every table that the controller can write is listed, and
    the multicast groups."""
    counts = {table.id: 0 for table in schema.tables if not table.is_const}
    groups = 0
    for key in entries:
        if key.table_id == MULTICAST_TABLE_ID:
            groups += 1
        else:
            counts[key.table_id] = counts.get(key.table_id, 0) + 1
    by_alias = {schema.tables[table_id].alias: count for table_id, count in counts.items()}
    return by_alias | {MULTICAST_GROUPS: groups}
