# SPDX-License-Identifier: Apache-2.0
"""What leaves: checksums and the deparser, digests; and what copies of a packet take with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from softswitch.bmjson import Checksum, FieldList, HeaderType
from softswitch.codegen.expressions import Expressions
from softswitch.codegen.layout import words_of
from softswitch.codegen.names import Names, c_cast
from softswitch.errors import BadProgram, Unsupported


def checksum_statement(
    names: Names, checksum: Checksum, calculations: Mapping[str, int], *, update: bool
) -> str:
    """Writes or checks one checksum; nothing happens while its header is invalid (as in BMv2)."""
    x = Expressions(names, f"checksum {checksum.name}")
    if checksum.calculation not in calculations:
        raise BadProgram(f"{x.where}: there is no calculation {checksum.calculation!r}")
    width = names.field(checksum.header, checksum.field, x.where).width
    field = names.c_field(checksum.header, checksum.field)
    valid = names.c_field(checksum.header, "$valid$")
    condition = f" && {x.boolean(checksum.condition)}" if checksum.condition else ""
    header = names.header(checksum.header, x.where)
    guard = "true" if header.metadata else valid
    value = f"calc_{calculations[checksum.calculation]}(p, v)"
    if update:
        action = f"{field} = {c_cast(value, width)};"
    else:
        wrong = names.set_intrinsic("standard_metadata.checksum_error", "1")
        action = f"if ({value} != (uint64_t){field}) {{ {wrong} }}"
    return f"if ({guard}{condition}) {{ {action} }}"


def deparse_function(names: Names, order: Iterable[str], updates: Iterable[str]) -> str:
    """The C function `deparse`: updates checksums, writes valid headers, returns their bytes."""
    lines = [
        "static uint32_t deparse(struct ss_state *s, struct ss_packet *p, uint8_t *out) {",
        "    (void)s;",
        "    struct phv *v = (struct phv *)p->phv;",
        "    uint8_t *o = out;",
        *(f"    {statement}" for statement in updates),
    ]
    for name in order:
        header_type = names.header(name, "deparser").type
        stores = " ".join(_stores(names, name, header_type))
        valid = names.c_field(name, "$valid$")
        lines.append(f"    if ({valid}) {{ {stores} o += {header_type.width // 8}; }}")
    return "\n".join([*lines, "    return (uint32_t)(o - out);", "}"])


def _stores(names: Names, header: str, header_type: HeaderType) -> Iterable[str]:
    """Stores of a header, several fields at a time where they share bytes."""
    start, bits, parts = 0, 0, list[tuple[str, int]]()
    for field in header_type.fields:
        parts.append((names.c_field(header, field.name), field.width))
        bits += field.width
        if bits % 8:
            continue
        if bits > 128:
            raise Unsupported(f"header {header}", f"{bits} bits in fields that share bytes")
        kind = "uint64_t" if bits <= 64 else "ss_u128"
        code, rest = [], bits
        for lvalue, width in parts:
            rest -= width
            code.append(f"({kind}){lvalue} << {rest}" if rest else f"({kind}){lvalue}")
        yield f"ss_put(o + {start}, {' | '.join(code)}, {bits // 8});"
        start, bits, parts = start + bits // 8, 0, []
    if parts:
        raise Unsupported(f"header {header}", "its width is not a multiple of 8 bits")


def digest_function(names: Names, lists: Mapping[int, FieldList]) -> tuple[str, int]:
    """The C function `digest`, and the words of the longest digest."""
    cases, longest = [], 0
    for learn_list in lists.values():
        at, stores = 0, []
        for header, field in learn_list.fields:
            width = names.field(header, field, f"digest {learn_list.name}").width
            lvalue = names.c_field(header, field)
            stores.append(f"out[{at}] = (uint64_t){lvalue};")
            if words_of(width) == 2:
                stores.append(f"out[{at + 1}] = (uint64_t)({lvalue} >> 64);")
            at += words_of(width)
        longest = max(longest, at)
        cases.append(f"    case {learn_list.id}: {' '.join(stores)} return {at};")
    lines = [
        "static uint32_t digest(struct ss_state *s, const struct ss_packet *p, uint64_t *out) {",
        "    const struct phv *v = (const struct phv *)p->phv;",
        "    (void)s, (void)v, (void)out;",
        "    switch (p->learn_list) {",
        *cases,
        "    }",
        "    return 0;",
        "}",
    ]
    return "\n".join(lines), longest


def keep_function(names: Names, lists: Mapping[int, FieldList]) -> str:
    """The C function `keep`: clears the metadata of `to`, takes a field list from `from`."""
    metadata = [header for header in names.program.headers.values() if header.metadata]
    clears = [
        f"    memset(&{names.c_header(header.name).replace('v->', 'to->', 1)}, 0, "
        f"sizeof {names.c_header(header.name).replace('v->', 'to->', 1)});"
        for header in metadata
    ]
    cases = []
    for field_list in lists.values():
        copies = " ".join(
            f"{names.c_field(h, f, 'to')} = {names.c_field(h, f, 'from')};"
            for h, f in field_list.fields
            if names.field(h, f, f"field list {field_list.name}")
        )
        cases.append(f"    case {field_list.id}: {copies} break;")
    return "\n".join(
        [
            "static void keep(const struct phv *from, struct phv *to, uint32_t list) {",
            "    (void)from;",
            *clears,
            "    switch (list) {",
            *cases,
            "    }",
            "}",
        ]
    )
