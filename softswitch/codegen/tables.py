# SPDX-License-Identifier: Apache-2.0
"""Tables: their layout, and a C function `apply_<n>` that looks up, counts and runs the action.

It returns 2 * action id + hit, or NO_ACTION + hit where there is nothing to run.
"""

from __future__ import annotations

from collections.abc import Sequence

from softswitch.bmjson import Expr, FieldRef, Program, Table, find_action
from softswitch.codegen.actions import action_name
from softswitch.codegen.expressions import Expressions
from softswitch.codegen.layout import WORD_BITS, KeyField, TableLayout, place_keys
from softswitch.codegen.names import Names, c_cast, c_words, literal, mask_of
from softswitch.errors import BadProgram, Unsupported
from softswitch.keys import look_up_kind

NO_ACTION = 0xFFFFFFFE


def table_layout(names: Names, table: Table, index: int, profiles: dict[str, int]) -> TableLayout:
    """Where keys are, and which kind of look-up serves them."""
    where = f"table {table.name}"
    kinds = {key.match_type for key in table.keys}
    if unknown := kinds - {"exact", "lpm", "ternary", "range", "valid"}:
        raise Unsupported(where, f"match type {', '.join(sorted(unknown))} is not supported")
    if [key.match_type for key in table.keys].count("lpm") > 1:
        raise BadProgram(f"{where}: more than one lpm key")
    kind = look_up_kind(kinds)
    x = Expressions(names, where)
    fields = [(key.name, key.match_type, _key_width(key.target, x)) for key in table.keys]
    keys, words = place_keys(fields)
    if table.type not in ("simple", "indirect", "indirect_ws"):
        raise Unsupported(where, f"type {table.type} is not supported")
    if table.profile is not None and table.profile not in profiles:
        raise BadProgram(f"{where}: there is no action profile {table.profile!r}")
    return TableLayout(
        index,
        table.name,
        kind,
        keys,
        words,
        table.max_size,
        None if table.profile is None else profiles[table.profile],
        table.actions,
        table.with_counters,
        _looked_at(table, keys),
        table.with_timeouts,
        table.meter is not None,
    )


def _looked_at(table: Table, places: Sequence[KeyField]) -> int | None:
    if all(key.mask is None for key in table.keys):
        return None
    looked_at = 0
    for key, place in zip(table.keys, places, strict=True):
        ones = (1 << place.width) - 1
        looked_at |= (ones if key.mask is None else key.mask & ones) << place.shift
    return looked_at


def apply_function(
    names: Names, program: Program, table: Table, layout: TableLayout, selector: str | None
) -> str:
    """The C function of a table. `selector` is the hash function of its action selector."""
    where = f"table {table.name}"
    lines = [
        f"/* {table.name} */",
        f"static uint32_t apply_{layout.index}(struct ss_state *s, struct ss_packet *p, "
        "struct phv *v) {",
        "    (void)v, (void)p;",
        f"    struct ss_table *t = &s->tables[{layout.index}];",
    ]
    lines += [f"    {line}" for line in _look_up(names, table, layout, where)]
    lines.append("    const struct ss_action *a = SS_LOAD(e ? &e->action : &t->def);")
    if table.with_counters:
        lines.append("    if (e) ss_count_hit(e, p); else ss_count_miss(t, p);")
    if table.with_timeouts:
        idle = f"ss_entry_idle(e, {layout.kept_words})"
        lines.append(f"    if (e) ss_note_hit({idle}, s->now_us);")
    if table.meter is not None:
        lines.append(f"    if (e) {_meter(names, program, table, layout, where)}")
    if layout.profile is not None:
        chosen = f"a->kind == SS_GROUP ? (uint32_t){selector}(s, p, v) : 0" if selector else "0"
        lines.append(
            f"    if (a && a->kind != SS_DIRECT) a = ss_member(s, {layout.profile}, a, {chosen});"
        )
    lines.append(f"    if (!a) return {NO_ACTION}u + (e != NULL);")
    lines.append("    switch (a->id) {")
    for action_id in table.actions:
        name = action_name(find_action(program, action_id, where))
        lines.append(f"    case {action_id}: {name}(s, p, v, a->data); break;")
    lines.append("    }")
    lines.append("    return 2 * a->id + (e != NULL);")
    return "\n".join([*lines, "}"])


def _meter(names: Names, program: Program, table: Table, layout: TableLayout, where: str) -> str:
    """Gives the color to the field that reads of the direct meter see; a miss leaves it alone."""
    meter = program.meters.get(table.meter or "")
    if meter is None or meter.target is None:
        raise BadProgram(f"{where}: there is no direct meter {table.meter!r}")
    tokens = "p->counted_length" if meter.bytes else "1"
    place = f"ss_entry_meter(e, {layout.kept_words}, {str(table.with_timeouts).lower()})"
    color = f"ss_meter_execute({place}, s->now_us, {tokens}, p)"
    width = names.field(*meter.target, where).width
    return f"{names.c_field(*meter.target)} = {c_cast(color, width)};"


def _look_up(names: Names, table: Table, layout: TableLayout, where: str) -> list[str]:
    if layout.kind == "KEYLESS":
        return ["struct ss_entry *e = NULL;"]
    words: dict[int, list[str]] = {word: [] for word in range(layout.words)}
    x = Expressions(names, where)
    for key, place in zip(table.keys, layout.keys, strict=True):
        word, bit = divmod(place.shift, WORD_BITS)
        for i, code in enumerate(_key_words(key.target, x)):
            if key.mask is not None:
                code = f"({code} & {literal(key.mask >> WORD_BITS * i & mask_of(WORD_BITS))})"
            words[word + i].append(f"{code} << {bit}" if bit else code)
    masked = "masked, " if layout.kind in ("LPM", "TERNARY") else ""
    items = ", ".join(" | ".join(parts) or "0" for parts in words.values())
    return [
        f"uint64_t key[{layout.words}] = {{ {items} }};",
        *([f"uint64_t masked[{layout.words}];"] if masked else []),
        f"struct ss_entry *e = ss_find_{layout.kind.lower()}(t, key, {masked}{layout.words});",
    ]


def _key_width(target: Expr, x: Expressions) -> int:
    """Bits of a key."""
    if x.is_bool(target):
        return 1
    field = x.place(target).field
    if field.varbit:
        raise Unsupported(x.where, f"a key over {field.name} of variable length")
    return field.width


def _key_words(target: Expr, x: Expressions) -> list[str]:
    """The raw bits of a key, lowest word first. BMv2 takes fields of invalid headers as 0 here."""
    if x.is_bool(target):
        return [f"(uint64_t)({x.boolean(target)})"]
    place = x.place(target)
    codes = c_words(place.code, place.field.width)
    match target:
        case FieldRef(_, "$valid$"):
            return codes
        case FieldRef(header, _) if x.names.header(header, x.where).metadata:
            return codes
        case _:
            valid = f"{place.header.code}.valid"
            return [f"({place.header.value(f'({valid} ? {code} : 0)', '0')})" for code in codes]
