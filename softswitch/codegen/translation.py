# SPDX-License-Identifier: Apache-2.0
"""Puts the pieces of a program together: `struct ss_program ss_program` in one C file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from softswitch.bmjson import Program
from softswitch.codegen.actions import Actions
from softswitch.codegen.expressions import Expressions
from softswitch.codegen.hashing import custom_crcs, hash_function
from softswitch.codegen.layout import (
    WORD_BITS,
    ActionLayout,
    CrcLayout,
    DigestLayout,
    Layout,
    RegisterLayout,
    TableLayout,
    ValueSetLayout,
    words_of,
)
from softswitch.codegen.names import Names, c_text, cell_bytes
from softswitch.codegen.output import (
    checksum_statement,
    deparse_function,
    digest_function,
    keep_function,
)
from softswitch.codegen.parsing import ParserWriter
from softswitch.codegen.pipeline import control_function
from softswitch.codegen.select import value_set_layouts
from softswitch.codegen.tables import apply_function, table_layout

# Changes whenever the generated code changes for the same JSON; part of the cache's key.
GENERATOR_VERSION = 9

_CLOCK_FIELDS = (
    "intrinsic_metadata.ingress_global_timestamp",
    "intrinsic_metadata.egress_global_timestamp",
    "queueing_metadata.enq_timestamp",
    "queueing_metadata.deq_timedelta",
)


@dataclass(frozen=True, slots=True)
class Translation:
    """A program's C source, and what whoever programs its tables must know."""

    source: str
    layout: Layout


def translate(program: Program) -> Translation:
    """Translate a program.

    Raises:
        Unsupported: it needs something that softswitch does not do; names the object.
        BadProgram: it refers to something that is not there.
    """
    return _Writer(program).translation()


class _Writer:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._names = Names(program)
        self._pipelines = [program.pipelines["ingress"], program.pipelines["egress"]]
        self._registers = _numbered(program.registers)
        self._counters = _numbered(program.counters)
        self._meters = {n: m for n, m in program.meters.items() if m.target is None}
        self._calculations = _numbered(program.calculations)
        self._value_sets = value_set_layouts(self._names)
        profiles = [p for pipeline in self._pipelines for p in pipeline.profiles.values()]
        self._profiles = {profile.name: number for number, profile in enumerate(profiles)}
        self._profile_list = profiles
        self._crcs = custom_crcs(
            [
                *program.calculations.items(),
                *((p.name, p.selector) for p in profiles if p.selector is not None),
            ]
        )
        tables = [t for pipeline in self._pipelines for t in pipeline.tables.values()]
        self._tables = {
            table.name: table_layout(self._names, table, number, self._profiles)
            for number, table in enumerate(tables)
        }

    def translation(self) -> Translation:
        return Translation(self._source(), self._layout())

    def _layout(self) -> Layout:
        program = self._program
        return Layout(
            tuple(self._tables.values()),
            tuple((profile.name, profile.max_size) for profile in self._profile_list),
            tuple(program.counters.items()),
            tuple(
                RegisterLayout(r.name, r.size, r.width, cell_bytes(r.width))
                for r in program.registers.values()
            ),
            tuple((meter.name, meter.size) for meter in self._meters.values()),
            tuple(
                DigestLayout(
                    digest.id,
                    digest.name,
                    tuple(
                        self._names.field(h, f, f"digest {digest.name}").width
                        for h, f in digest.fields
                    ),
                )
                for digest in program.learn_lists.values()
            ),
            self._value_sets,
            self._crcs,
            {a.id: ActionLayout(a.id, a.name, a.params) for a in program.actions.values()},
        )

    def _source(self) -> str:
        program, names = self._program, self._names
        actions = Actions(
            names, self._registers, self._counters, _numbered(self._meters), self._calculations
        )
        digest, digest_words = digest_function(names, program.learn_lists)
        parts = ['#include "program.h"', names.structs()]
        crcs = {crc.name: number for number, crc in enumerate(self._crcs)}
        parts += [
            hash_function(names, calculation, f"calc_{number}", crcs.get(name))
            for number, (name, calculation) in enumerate(program.calculations.items())
        ]
        parts += [
            hash_function(names, profile.selector, f"select_{number}", crcs.get(profile.name))
            for number, profile in enumerate(self._profile_list)
            if profile.selector is not None
        ]
        parts += [actions.function(action) for action in program.actions.values()]
        for pipeline in self._pipelines:
            parts += [
                apply_function(
                    names, program, table, self._tables[table.name], self._selector(table.profile)
                )
                for table in pipeline.tables.values()
            ]
            parts.append(control_function(names, program, pipeline, self._tables))
        parts += [
            ParserWriter(names, actions).function(),
            self._parse_and_verify(),
            keep_function(names, program.field_lists),
            deparse_function(
                names,
                program.deparse_order,
                self._checksums(update=True),
                [
                    actions.statement(p, Expressions(names, "deparser"))
                    for p in program.deparse_primitives
                ],
            ),
            digest,
        ]
        self._body = "\n".join(parts)
        parts.insert(1, wide_types(self._body))
        parts += [self._entry_points(), self._descriptions(digest_words)]
        return "\n\n".join(parts) + "\n"

    def _selector(self, profile: str | None) -> str | None:
        if profile is None or self._profile_list[self._profiles[profile]].selector is None:
            return None
        return f"select_{self._profiles[profile]}"

    def _checksums(self, *, update: bool) -> list[str]:
        return [
            checksum_statement(self._names, checksum, self._calculations, update=update)
            for checksum in self._program.checksums
            if (checksum.update if update else checksum.verify)
        ]

    def _parse_and_verify(self) -> str:
        lines = [
            "static void parse_and_verify(struct ss_state *s, struct ss_packet *p, "
            "struct phv *v) {",
            "    parse(s, p, v);",
            "    " + self._names.set_intrinsic("standard_metadata.checksum_error", "0"),
            *(f"    {statement}" for statement in self._checksums(update=False)),
        ]
        return "\n".join([*lines, "}"])

    def _entry_points(self) -> str:
        """The functions of struct ss_program, but for deparse and digest."""
        set_, get = self._names.set_intrinsic, self._names.c_intrinsic

        def value(name: str) -> str:
            return get(name) or "0"

        std, intrinsic, queueing = (
            "standard_metadata",
            "intrinsic_metadata",
            "queueing_metadata",
        )
        metadata = [
            f"{self._names.c_header(header.name)}.valid = 1;"
            for header in self._program.headers.values()
            if header.metadata
        ]
        return f"""
static void set_arrival(struct ss_packet *p, struct phv *v) {{
    (void)p;
    {" ".join(metadata)}
    {set_(f"{std}.ingress_port", "p->ingress_port")}
    {set_(f"{std}.instance_type", "p->instance_type")}
    {set_(f"{intrinsic}.ingress_global_timestamp", "p->arrival_us")}
}}

static void start(struct ss_state *s, struct ss_packet *p) {{
    (void)s;
    struct phv *v = (struct phv *)p->phv;
    memset(v, 0, sizeof *v);
    set_arrival(p, v);
}}

static void ingress(struct ss_state *s, struct ss_packet *p) {{
    struct phv *v = (struct phv *)p->phv;
    {set_(f"{std}.packet_length", "p->length")}
    parse_and_verify(s, p, v);
    control_ingress(s, p, v);
    p->egress_spec = (uint32_t){value(f"{std}.egress_spec")};
    p->multicast_group = (uint32_t){value(f"{intrinsic}.mcast_grp")};
    p->priority = (uint32_t){value(f"{intrinsic}.priority")};
}}

static void clone_ingress(struct ss_state *s, const struct ss_packet *p, struct ss_packet *copy,
                          uint32_t list) {{
    struct phv *to = (struct phv *)copy->phv;
    struct phv *v = to;
    memset(to, 0, sizeof *to);
    {set_(f"{std}.ingress_port", "copy->ingress_port")}
    parse_and_verify(s, copy, v);
    keep((const struct phv *)p->phv, to, list);
}}

static void preserve(struct ss_state *s, const struct ss_packet *p, struct ss_packet *copy,
                     uint32_t list) {{
    (void)s;
    keep((const struct phv *)p->phv, (struct phv *)copy->phv, list);
}}

static void set_instance_type(struct ss_packet *p, uint32_t type) {{
    struct phv *v = (struct phv *)p->phv;
    (void)v;
    p->instance_type = type;
    {set_(f"{std}.instance_type", "type")}
}}

static void set_replication_id(struct ss_packet *p, uint32_t rid) {{
    struct phv *v = (struct phv *)p->phv;
    (void)v, (void)rid;
    {set_(f"{intrinsic}.egress_rid", "rid")}
}}

static void egress(struct ss_state *s, struct ss_packet *p) {{
    struct phv *v = (struct phv *)p->phv;
    {set_(f"{std}.egress_port", "p->egress_port")}
    {set_(f"{std}.egress_spec", "s->drop_port + 1")}
    {set_(f"{std}.packet_length", "p->length")}
    {set_(f"{intrinsic}.egress_global_timestamp", "p->dequeue_us")}
    {set_(f"{queueing}.enq_timestamp", "p->enqueue_us")}
    {set_(f"{queueing}.enq_qdepth", "p->enqueue_depth")}
    {set_(f"{queueing}.deq_timedelta", "p->dequeue_us - p->enqueue_us")}
    {set_(f"{queueing}.deq_qdepth", "p->dequeue_depth")}
    {set_(f"{queueing}.qid", "p->priority")}
    control_egress(s, p, v);
    p->egress_spec = (uint32_t){value(f"{std}.egress_spec")};
}}
""".strip()

    def _is_read(self, intrinsic: str) -> bool:
        """Whether the program mentions a piece of intrinsic metadata at all."""
        lvalue = self._names.c_intrinsic(intrinsic)
        return lvalue is not None and re.search(lvalue[1:] + r"\b", self._body) is not None

    # ---- descriptions ---------------------------------------------------------------------------

    def _descriptions(self, digest_words: int) -> str:
        program = self._program
        header_bytes = sum(
            self._names.header(name, "deparser").type.width // 8 for name in program.deparse_order
        )
        clock = bool(program.meters) or any(self._is_read(name) for name in _CLOCK_FIELDS)
        ranges, tables = [], []
        for layout in self._tables.values():
            ranges += _range_description(layout) + _looked_at_description(layout)
            tables.append(_table_description(layout))
        counters = [f"{{ {c_text(name)}, {size} }}" for name, size in program.counters.items()]
        registers = [
            f"{{ {c_text(r.name)}, {r.size}, {cell_bytes(r.width)} }}"
            for r in program.registers.values()
        ]
        meters = [f"{{ {c_text(m.name)}, {m.size} }}" for m in self._meters.values()]
        value_sets = [_value_set_description(layout) for layout in self._value_sets]
        crcs = [_crc_description(crc) for crc in self._crcs]
        return f"""
{"".join(ranges)}
static const struct ss_table_desc tables[] = {{ {_items(tables)} }};
static const struct ss_counter_desc counters[] = {{ {_items(counters)} }};
static const struct ss_register_desc registers[] = {{ {_items(registers)} }};
static const struct ss_meter_desc meters[] = {{ {_items(meters)} }};
static const struct ss_value_set_desc value_sets[] = {{ {_items(value_sets)} }};
static const struct ss_crc_desc crcs[] = {{ {_items(crcs)} }};

__attribute__((visibility("default"))) const struct ss_program ss_program = {{
    .abi = SS_ABI,
    .phv_size = sizeof(struct phv),
    .max_header_bytes = {header_bytes},
    .digest_words = {digest_words},
    .needs_clock = {_flag(clock)},
    .has_timeouts = {_flag(any(t.with_timeouts for t in self._tables.values()))},
    .table_count = {len(tables)},
    .profile_count = {len(self._profile_list)},
    .counter_count = {len(counters)},
    .register_count = {len(registers)},
    .meter_count = {len(meters)},
    .value_set_count = {len(value_sets)},
    .crc_count = {len(crcs)},
    .tables = tables,
    .counters = counters,
    .registers = registers,
    .meters = meters,
    .value_sets = value_sets,
    .crcs = crcs,
    .start = start,
    .ingress = ingress,
    .clone_ingress = clone_ingress,
    .preserve = preserve,
    .set_instance_type = set_instance_type,
    .set_replication_id = set_replication_id,
    .egress = egress,
    .deparse = deparse,
    .digest = digest,
}};
""".strip()


def wide_types(body: str) -> str:
    """The types of more than 128 bits that the code mentions."""
    sizes = {int(limbs) for limbs in re.findall(r"\bss_w(\d+)", body)}
    return "\n".join(f"SS_WIDE({limbs})" for limbs in sorted(sizes))


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def _range_description(layout: TableLayout) -> list[str]:
    fields = [key for key in layout.keys if key.match_type == "range"]
    if not fields:
        return []
    items = ", ".join(f"{{ {key.shift}, {key.width} }}" for key in fields)
    return [f"static const struct ss_range_field ranges_{layout.index}[] = {{ {items} }};\n"]


def _looked_at_description(layout: TableLayout) -> list[str]:
    if layout.looked_at is None:
        return []
    bits = range(0, WORD_BITS * layout.words, WORD_BITS)
    items = ", ".join(f"{layout.looked_at >> bit & (1 << WORD_BITS) - 1:#x}u" for bit in bits)
    return [f"static const uint64_t looked_at_{layout.index}[] = {{ {items} }};\n"]


def _table_description(layout: TableLayout) -> str:
    lpm = next((key for key in layout.keys if key.match_type == "lpm"), None)
    fields = sum(key.match_type == "range" for key in layout.keys)
    ranges = f"ranges_{layout.index}" if fields else "NULL"
    shift, width = (lpm.shift, lpm.width) if lpm else (0, 0)
    looked_at = "NULL" if layout.looked_at is None else f"looked_at_{layout.index}"
    return (
        f"{{ {c_text(layout.name)}, SS_{layout.kind}, {layout.words}, {layout.max_size}, "
        f"{shift}, {width}, {fields}, {ranges}, {looked_at}, "
        f"{_flag(layout.with_timeouts)}, {_flag(layout.with_meters)} }}"
    )


def _value_set_description(layout: ValueSetLayout) -> str:
    words = [words_of(width) for width in layout.widths]
    fields = ", ".join(map(str, words)) or "0"
    return f"{{ {len(words)}, {sum(words)}, (const uint8_t[]){{ {fields} }} }}"


def _crc_description(crc: CrcLayout) -> str:
    return (
        f"{{ {crc.polynomial:#x}ull, {crc.initial:#x}ull, {crc.final_xor:#x}ull, {crc.bits}, "
        f"{_flag(crc.reflect_data)}, {_flag(crc.reflect_remainder)} }}"
    )


def _flag(value: bool) -> str:
    return str(value).lower()


def _items(items: list[str]) -> str:
    """Initialisers; C wants at least one."""
    return ", ".join(items) if items else "{ 0 }"
