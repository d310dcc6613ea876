# SPDX-License-Identifier: Apache-2.0
"""From held and wanted entries to the updates that turn one into the other. Pure functions.

Updates come in stages that must be written one after the other:

1. inserts and modifies, tables that others refer to first (ECMP groups before the routes that use
   them; slots and plane sets before the ``group_cfg`` entry that names them);
2. deletes, in the opposite order.

So a packet never meets a reference to something that is not there: make before break. For the NIC
this alone is not enough, because the slots of a group change one by one. Each group therefore has
two generations of slots. Wanted entries come with generation 0; ``choose_generations`` moves a
group whose slots differ from what the NIC holds into the generation that is not in use, and a
plane set whose content differs onto a free number, so that the group's single ``group_cfg`` MODIFY
switches everything at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from enum import Enum

from finsy import P4Schema
from finsy.proto import p4r

from controller.canonical import (
    MULTICAST_GROUPS,
    MULTICAST_TABLE_ID,
    Call,
    Entries,
    Key,
    Value,
    count_by_table,
    to_entity,
)

# Which tables an entry refers to, by alias.
REFERS_TO: Mapping[str, tuple[str, ...]] = {
    "ipv6_fib": ("ecmp_groups",),
    "destinations": ("group_cfg", "plane_sets"),
    "group_cfg": ("slots", "plane_sets", "bundles"),
    "copy_classes": (MULTICAST_GROUPS, "copy_turns", "bundles", "group_cfg", "copy_macs"),
}
# Filled as QPs are set up (controller/peers.py), not by policies: a push leaves them as they are.
RUNTIME_TABLES = ("peers",)
MULTICAST_GROUP_IDS = 0xFFFF  # 1 and up, in 16 bits
PLANE_SET_NUMBERS = range(256)  # the key's width in nic.p4


class Kind(Enum):
    """What an update does."""

    INSERT = p4r.Update.INSERT
    MODIFY = p4r.Update.MODIFY
    DELETE = p4r.Update.DELETE


@dataclass(frozen=True, slots=True)
class Change:
    """One update; a delete has no value."""

    kind: Kind
    key: Key
    value: Value | None = None

    def message(self) -> p4r.Update:
        """The update to send."""
        return p4r.Update(type=self.kind.value, entity=to_entity(self.key, self.value))


@dataclass(frozen=True, slots=True)
class Plan:
    """Stages to write in order, and how many entries are already as wanted."""

    stages: tuple[tuple[Change, ...], ...]
    unchanged: int

    def count(self, kind: Kind) -> int:
        """How many updates of this kind the plan holds."""
        return sum(change.kind is kind for stage in self.stages for change in stage)

    @property
    def size(self) -> int:
        """How many updates the plan holds."""
        return sum(map(len, self.stages))


class CapacityError(ValueError):
    """More entries are needed than the program's tables hold."""


def plan_device(wanted: Entries, held: Entries, schema: P4Schema) -> Plan:
    """All updates for one device.

    Raises CapacityError when a table is too small for what is wanted, or for holding the old and
    the new entries side by side during the change.
    """
    held = _without_runtime_tables(held, schema)
    layout = nic_layout(schema)
    if layout is not None:
        wanted = choose_generations(wanted, held, layout)
    _check_sizes(wanted, held, schema)
    return diff(wanted, held, table_ranks(schema))


def _without_runtime_tables(held: Entries, schema: P4Schema) -> Entries:
    tables = {table.id for table in schema.tables if table.alias in RUNTIME_TABLES}
    return {key: value for key, value in held.items() if key.table_id not in tables}


def table_ranks(schema: P4Schema) -> dict[int, int]:
    """By table id: 0 for a table that refers to no other, else one more than what it refers to."""

    def rank(alias: str) -> int:
        return 1 + max((rank(other) for other in REFERS_TO.get(alias, ())), default=-1)

    ranks = {table.id: rank(table.alias) for table in schema.tables}
    return ranks | {MULTICAST_TABLE_ID: rank(MULTICAST_GROUPS)}


def diff(wanted: Entries, held: Entries, ranks: Mapping[int, int]) -> Plan:
    """The updates that turn ``held`` into ``wanted``, staged by the tables' ranks."""
    make: dict[int, list[Change]] = {}
    unchanged = 0
    for key, value in wanted.items():
        current = held.get(key)
        if current == value:
            unchanged += 1
            continue
        kind = Kind.INSERT if current is None else Kind.MODIFY
        make.setdefault(ranks[key.table_id], []).append(Change(kind, key, value))
    remove: dict[int, list[Change]] = {}
    for key in held:
        if key not in wanted:
            remove.setdefault(ranks[key.table_id], []).append(Change(Kind.DELETE, key))
    stages = [tuple(make[rank]) for rank in sorted(make)]
    stages += [tuple(remove[rank]) for rank in sorted(remove, reverse=True)]
    return Plan(tuple(stages), unchanged)


def _check_sizes(wanted: Entries, held: Entries, schema: P4Schema) -> None:
    for alias, count in count_by_table(wanted, schema).items():
        size = _size(alias, schema)
        if count > size:
            raise CapacityError(f"table {alias} holds {size} entries, {count} are wanted")
    for alias, count in count_by_table(wanted.keys() | held.keys(), schema).items():
        size = _size(alias, schema)
        if count > size:
            raise CapacityError(
                f"table {alias} holds {size} entries, the change needs {count} for a moment (old "
                "ones are deleted last, so that no packet misses one): make it in smaller steps"
            )


def _size(alias: str, schema: P4Schema) -> int:
    return MULTICAST_GROUP_IDS if alias == MULTICAST_GROUPS else schema.tables[alias].size


@dataclass(frozen=True, slots=True)
class NicLayout:
    """Ids in nic.p4 that the choice of generations needs."""

    group_cfg: int
    group_cfg_group: int  # field id
    slots: int
    slots_group: int  # field ids
    slots_generation: int
    bundles: int
    bundles_group: int  # field ids
    bundles_generation: int
    plane_sets: int
    plane_sets_set: int  # field id
    generation_params: Mapping[int, int]  # action id -> parameter id
    plane_set_params: Mapping[int, int]


def nic_layout(schema: P4Schema) -> NicLayout | None:
    """The ids of the spray tables, or None for a program that has none (fabric.p4)."""
    group_cfg = schema.tables.get("group_cfg")
    if group_cfg is None:
        return None
    slots, plane_sets = schema.tables["slots"], schema.tables["plane_sets"]
    bundles = schema.tables["bundles"]
    return NicLayout(
        group_cfg=group_cfg.id,
        group_cfg_group=group_cfg.match_fields["group_id"].id,
        slots=slots.id,
        slots_group=slots.match_fields["group_id"].id,
        slots_generation=slots.match_fields["generation"].id,
        bundles=bundles.id,
        bundles_group=bundles.match_fields["group_id"].id,
        bundles_generation=bundles.match_fields["generation"].id,
        plane_sets=plane_sets.id,
        plane_sets_set=plane_sets.match_fields["plane_set"].id,
        generation_params=_actions_with("generation", schema),
        plane_set_params=_actions_with("plane_set", schema),
    )


def _actions_with(parameter: str, schema: P4Schema) -> dict[int, int]:
    """Ids of the actions that have a parameter of this name, with its id."""
    found = ((action.id, action.params.get(parameter)) for action in schema.actions)
    return {action: param.id for action, param in found if param is not None}


def choose_generations(wanted: Entries, held: Entries, layout: NicLayout) -> Entries:
    """Rewrite wanted spray entries so that every group switches over in one MODIFY.

    A group keeps the generation that it is in when that generation's slots are exactly the wanted
    ones, and otherwise gets the other. Plane sets are found again by content under whatever number
    the NIC holds them; new content gets a free number.
    """
    in_use = {
        _field(key, layout.group_cfg_group): _param(value, layout.generation_params)
        for key, value in held.items()
        if key.table_id == layout.group_cfg
    }
    held_slots = _slots(held, layout)
    wanted_slots: dict[int, dict[Key, Value]] = {}
    for (group, generation), slots in _slots(wanted, layout).items():
        if generation != 0:
            raise ValueError(f"wanted slots of group {group} have generation {generation}, not 0")
        wanted_slots[group] = slots
    generations: dict[int, int] = {}
    for group, slots in wanted_slots.items():
        current = in_use.get(group)
        if current is None:
            generations[group] = 0
        elif held_slots.get((group, current), {}) == slots:
            generations[group] = current
        else:
            generations[group] = 1 if current == 0 else 0
    numbers = _plane_set_numbers(_plane_sets(wanted, layout), _plane_sets(held, layout))

    result: Entries = {}
    for key, value in wanted.items():
        if key.table_id == layout.slots:
            generation = generations[_field(key, layout.slots_group)]
            key = _with_field(key, layout.slots_generation, _constant(generation))
        elif key.table_id == layout.bundles:
            # A group's bundles are its slots in another order, and move with them.
            generation = generations[_field(key, layout.bundles_group)]
            key = _with_field(key, layout.bundles_generation, _constant(generation))
        elif key.table_id == layout.plane_sets:
            key = _with_field(key, layout.plane_sets_set, numbers.__getitem__)
        elif key.table_id == layout.group_cfg:
            # A group without slots has nothing to switch: it stays in the generation that it is in.
            group = _field(key, layout.group_cfg_group)
            generation = generations.get(group, in_use.get(group, 0))
            value = _with_param(value, layout.generation_params, _constant(generation))
        if isinstance(value, Call) and value.action_id in layout.plane_set_params:
            value = _with_param(value, layout.plane_set_params, lambda n: numbers.get(n, n))
        result[key] = value
    return result


def _slots(entries: Entries, layout: NicLayout) -> dict[tuple[int, int], dict[Key, Value]]:
    """Slots by (group, generation), their keys with generation 0 so that they compare."""
    found: dict[tuple[int, int], dict[Key, Value]] = {}
    for key, value in entries.items():
        if key.table_id == layout.slots:
            where = (_field(key, layout.slots_group), _field(key, layout.slots_generation))
            plain = _with_field(key, layout.slots_generation, _constant(0))
            found.setdefault(where, {})[plain] = value
    return found


def _plane_sets(entries: Entries, layout: NicLayout) -> dict[int, frozenset[tuple[Key, Value]]]:
    """Plane sets by number; the content's keys have number 0 so that they compare."""
    found: dict[int, set[tuple[Key, Value]]] = {}
    for key, value in entries.items():
        if key.table_id == layout.plane_sets:
            number = _field(key, layout.plane_sets_set)
            plain = _with_field(key, layout.plane_sets_set, _constant(0))
            found.setdefault(number, set()).add((plain, value))
    return {number: frozenset(content) for number, content in found.items()}


def _plane_set_numbers(
    wanted: Mapping[int, frozenset[tuple[Key, Value]]],
    held: Mapping[int, frozenset[tuple[Key, Value]]],
) -> dict[int, int]:
    """The number that the NIC will know each wanted plane set by."""
    by_content = {content: number for number, content in sorted(held.items())}
    taken = set(held)
    numbers: dict[int, int] = {}
    for number, content in sorted(wanted.items()):
        if content not in by_content:
            by_content[content] = number if number not in taken else _first_free(taken)
            taken.add(by_content[content])
        numbers[number] = by_content[content]
    return numbers


def _first_free(taken: Set[int]) -> int:
    free = next((number for number in PLANE_SET_NUMBERS if number not in taken), None)
    if free is None:
        raise CapacityError("all 256 numbers of plane sets are in use")
    return free


def _constant(value: int) -> Callable[[int], int]:
    return lambda _: value


def _field(key: Key, field_id: int) -> int:
    return next(field.value for field in key.match if field.field_id == field_id)


def _with_field(key: Key, field_id: int, new: Callable[[int], int]) -> Key:
    match = tuple(
        field._replace(value=new(field.value)) if field.field_id == field_id else field
        for field in key.match
    )
    return key._replace(match=match)


def _param(value: Value, params: Mapping[int, int]) -> int:
    if not isinstance(value, Call):
        raise ValueError(f"group_cfg takes plain actions, not {value!r}")
    return dict(value.params)[params[value.action_id]]


def _with_param(value: Value, params: Mapping[int, int], new: Callable[[int], int]) -> Value:
    if not isinstance(value, Call):
        raise ValueError(f"group_cfg takes plain actions, not {value!r}")
    number = params[value.action_id]
    return value._replace(
        params=tuple((n, new(v)) if n == number else (n, v) for n, v in value.params)
    )
