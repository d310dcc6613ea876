# SPDX-License-Identifier: Apache-2.0
"""What the P4Runtime server must know of a program before it is loaded.

Names, key and parameter widths, default actions and constant entries: enough to refuse a P4Info
that belongs to another program before anything is touched, and to answer reads of what the program
itself put into its tables.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from softswitch import bmjson
from softswitch.errors import BadProgram
from softswitch.p4info import MatchKind, MeterSpec, P4InfoView, TableInfo, ValueSetInfo
from softswitch.status import Failure, invalid
from softswitch.values import ActionCall, FieldMatch


@dataclass(frozen=True, slots=True)
class KeyDescription:
    """One key: `kind` as in the JSON (exact, lpm, ternary, range, valid), `width` in bits."""

    name: str
    kind: str
    width: int


@dataclass(frozen=True, slots=True)
class ConstEntry:
    """An entry that the program itself holds. The higher `priority` wins; 0 means none."""

    match: tuple[FieldMatch, ...]
    priority: int
    action: ActionCall


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table of the program; `actions` maps an action's name to the widths of its parameters."""

    name: str
    size: int
    keys: tuple[KeyDescription, ...]
    actions: dict[str, tuple[int, ...]]
    profile: str | None
    default: ActionCall | None
    entries: tuple[ConstEntry, ...]
    meter_bytes: bool | None
    """Whether the table's direct meter counts bytes; None: it has no meter."""

    timeouts: bool


@dataclass(frozen=True, slots=True)
class Description:
    """A program as the server sees it.

    Registers as (cells, bits of a cell), meters as (cells, whether they count bytes).
    Value sets as (most members, 0: any number; bits of all fields together).
    """

    tables: dict[str, TableDescription]
    profiles: dict[str, int]
    counters: dict[str, int]
    registers: dict[str, tuple[int, int]]
    meters: dict[str, tuple[int, bool]]
    digests: dict[str, int]
    value_sets: dict[str, tuple[int, int]]


def describe(program: bmjson.Program) -> Description:
    """Pick out of a program what the server needs. Raises `BadProgram` for a dangling reference."""
    pipelines = program.pipelines.values()
    return Description(
        tables={t.name: _table(t, program) for p in pipelines for t in p.tables.values()},
        profiles={a.name: a.max_size for p in pipelines for a in p.profiles.values()},
        counters=dict(program.counters),
        registers={r.name: (r.size, r.width) for r in program.registers.values()},
        meters={m.name: (m.size, m.bytes) for m in program.meters.values() if m.target is None},
        digests={d.name: len(d.fields) for d in program.learn_lists.values()},
        value_sets={v.name: (v.size, v.width) for v in program.value_sets.values()},
    )


def _table(table: bmjson.Table, program: bmjson.Program) -> TableDescription:
    def call(action_id: int, data: tuple[int, ...]) -> ActionCall:
        return ActionCall(bmjson.find_action(program, action_id, table.name).name, data)

    actions = [bmjson.find_action(program, i, table.name) for i in table.actions]
    entries = table.entries or ()
    ternary = table.match_type in ("ternary", "range")
    widths = [_width(program, key, table.name) for key in table.keys]
    return TableDescription(
        name=table.name,
        size=table.max_size,
        keys=tuple(
            KeyDescription(k.name, k.match_type, width)
            for k, width in zip(table.keys, widths, strict=True)
        ),
        actions={a.name: tuple(width for _, width in a.params) for a in actions},
        profile=table.profile,
        default=None
        if table.default_action is None
        else call(table.default_action, table.default_data),
        entries=tuple(
            ConstEntry(
                tuple(map(_canonical, e.keys, widths)),
                table.above_entries - e.priority if ternary else 0,
                call(e.action, e.data),
            )
            for e in entries
        ),
        meter_bytes=_meter_bytes(table, program),
        timeouts=table.with_timeouts,
    )


def _meter_bytes(table: bmjson.Table, program: bmjson.Program) -> bool | None:
    if table.meter is None:
        return None
    if table.meter not in program.meters:
        raise BadProgram(f"{table.name}: there is no direct meter {table.meter!r}")
    return program.meters[table.meter].bytes


def _canonical(key: tuple[int, int | None, int | None, int | None], width: int) -> FieldMatch:
    """A key of a program's entry as P4Runtime tells it: without the bits that do not matter."""
    value, mask, prefix_len, high = key
    if mask is not None:
        value &= mask
    if prefix_len is not None:
        value = value >> (width - prefix_len) << (width - prefix_len)
    return FieldMatch(value, mask, prefix_len, high)


def _width(program: bmjson.Program, key: bmjson.TableKey, table: str) -> int:
    match key.target:
        case bmjson.FieldRef(_, "$valid$") | bmjson.Op("valid", _, _, _):
            return 1
        case bmjson.FieldRef(name, field) if name in program.headers:
            widths = {f.name: f.width for f in program.headers[name].type.fields}
            if field in widths:
                return widths[field]
        case bmjson.Op("access_field", bmjson.Op(_, bmjson.StackRef(name), _, _), int(i), _):
            fields = program.stacks[name].type.fields if name in program.stacks else ()
            if i < len(fields):
                return fields[i].width
        case _:
            pass
    raise BadProgram(f"{table}: key {key.name} is the unknown field {key.target}")


# p4c's own tables, of statements outside of actions; the P4Info does not have them.
_HIDDEN_TABLE = "tbl_"

_JSON_KINDS = {
    MatchKind.EXACT: ("exact", "valid"),
    MatchKind.LPM: ("lpm",),
    MatchKind.TERNARY: ("ternary",),
    MatchKind.RANGE: ("range",),
    MatchKind.OPTIONAL: ("ternary",),
}


def leave_out_absent(view: P4InfoView, description: Description) -> list[str]:
    """Take what p4c has optimised away out of a view; gives its names.

    p4c describes all objects of the source in the P4Info, and leaves those out of the JSON which
    cannot be reached. Raises `Failure` when the program has a table instead that the P4Info does
    not know: then it is another program's P4Info.
    """
    known = {table.name for table in view.tables.values()}
    foreign = [t for t in description.tables if t not in known and not t.startswith(_HIDDEN_TABLE)]
    left_out = []
    kinds: tuple[tuple[str, dict[int, Any], Collection[str]], ...] = (
        ("table", view.tables, description.tables),
        ("action profile", view.profiles, description.profiles),
        ("digest", view.digests, description.digests),
        ("counter", view.counters, description.counters),
        ("register", view.registers, description.registers),
        ("meter", view.meters, description.meters),
        ("value set", view.value_sets, description.value_sets),
    )
    for kind, infos, names in kinds:
        for number, info in list(infos.items()):
            if info.name in names:
                continue
            if kind == "table" and foreign:
                raise _mismatch(f"table {info.name!r} is not in the program")
            del infos[number]
            left_out.append(f"{kind} {info.name}")
    return left_out


def check_same_program(view: P4InfoView, description: Description) -> None:
    """Raise `Failure` when a P4Info belongs to another program, naming the object.

    What the program does not have is left out already (`leave_out_absent`).
    """
    for table in view.tables.values():
        _check_table(table, description.tables[table.name], view)
    register_sizes = {name: size for name, (size, _) in description.registers.items()}
    meter_sizes = {name: size for name, (size, _) in description.meters.items()}
    for kind, arrays, sizes in (
        ("counter", view.counters.values(), description.counters),
        ("register", view.registers.values(), register_sizes),
        ("meter", view.meters.values(), meter_sizes),
    ):
        for array in arrays:
            if array.size != sizes[array.name]:
                raise _mismatch(
                    f"{kind} {array.name!r} has size {array.size}, "
                    f"in the program {sizes[array.name]}"
                )
    for meter in view.meters.values():
        _check_unit(f"meter {meter.name!r}", meter, description.meters[meter.name][1])
    for value_set in view.value_sets.values():
        _check_value_set(value_set, description)
    for digest in view.digests.values():
        if digest.type.length != description.digests[digest.name]:
            raise _mismatch(
                f"digest {digest.name!r} has {digest.type.length} fields, in the program "
                f"{description.digests[digest.name]}"
            )


def _check_value_set(info: ValueSetInfo, description: Description) -> None:
    where = f"value set {info.name!r}"
    described = description.value_sets[info.name]
    width = sum(f.width for f in info.fields)
    if (info.size, width) != described and not any(f.translated for f in info.fields):
        raise _mismatch(
            f"{where} has size {info.size} and {width} bits, in the program {described[0]} "
            f"and {described[1]}"
        )


def _check_table(table: TableInfo, described: TableDescription, view: P4InfoView) -> None:
    where = f"table {table.name!r}"
    if len(table.fields) != len(described.keys):
        raise _mismatch(
            f"{where} has {len(table.fields)} keys, in the program {len(described.keys)}"
        )
    for match, key in zip(table.fields, described.keys, strict=True):
        if key.kind not in _JSON_KINDS[match.kind]:
            raise _mismatch(f"{where}, key {match.name!r} is {match.kind.name}, there {key.kind}")
        if match.width != key.width and not match.translated:
            raise _mismatch(
                f"{where}, key {match.name!r} has {match.width} bits, in the program {key.width}"
            )
    for action, _ in table.actions.values():
        widths = described.actions.get(action.name)
        if widths is None:
            raise _mismatch(f"{where} has an action {action.name!r}, in the program it has not")
        if len(widths) != len(action.params) or any(
            p.width != w and not p.translated for p, w in zip(action.params, widths, strict=True)
        ):
            raise _mismatch(
                f"action {action.name!r} has parameters of "
                f"{[p.width for p in action.params]} bits, in the program {list(widths)}"
            )
    if table.idle_timeout and not described.timeouts:
        raise _mismatch(f"{where} supports idle timeouts, in the program it does not")
    if (table.meter is None) != (described.meter_bytes is None):
        some, other = ("a direct meter", "none")[:: 1 if table.meter else -1]
        raise _mismatch(f"{where} has {some}, in the program {other}")
    if table.meter is not None and described.meter_bytes is not None:
        _check_unit(f"{where}, direct meter", table.meter, described.meter_bytes)
    owner = view.profiles.get(table.profile_id)
    profile = owner.name if owner else None
    if profile != described.profile:
        raise _mismatch(
            f"{where} has action profile {profile!r}, in the program {described.profile!r}"
        )


def _check_unit(where: str, meter: MeterSpec, counts_bytes: bool) -> None:
    if meter.bytes is not None and meter.bytes != counts_bytes:
        units = {True: "bytes", False: "packets"}
        raise _mismatch(
            f"{where} counts {units[meter.bytes]}, in the program {units[counts_bytes]}"
        )


def _mismatch(what: str) -> Failure:
    return invalid(f"the P4Info does not belong to this program: {what}")
