# SPDX-License-Identifier: Apache-2.0
"""What leaves: checksums and the deparser, digests; and what copies of a packet take with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from softswitch.bmjson import Checksum, Field, FieldList, HeaderType
from softswitch.codegen.expressions import Expressions
from softswitch.codegen.headers import wire_bytes
from softswitch.codegen.names import Names, c_bytes, c_cast, c_member, c_words
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
    value = f"calc_{calculations[checksum.calculation]}(s, p, v)"
    if update:
        action = f"{field} = {c_cast(value, width)};"
    else:
        wrong = names.set_intrinsic("standard_metadata.checksum_error", "1")
        action = f"if ({value} != {c_words(field, width)[0]}) {{ {wrong} }}"
    return f"if ({guard}{condition}) {{ {action} }}"


def deparse_function(
    names: Names, order: Iterable[str], updates: Iterable[str], primitives: Iterable[str]
) -> str:
    """The C function `deparse`: updates checksums, writes valid headers, returns their bytes.

    `primitives` are statements of the deparser that come before, such as log_msg.
    """
    lines = [
        "static uint32_t deparse(struct ss_state *s, struct ss_packet *p, uint8_t *out) {",
        "    struct phv *v = (struct phv *)p->phv;",
        "    (void)s, (void)v;",
        "    uint8_t *o = out;",
        *(f"    {statement}" for statement in (*updates, *primitives)),
    ]
    for name in order:
        header_type = names.header(name, "deparser").type
        stores = " ".join(_stores(names.c_header(name), header_type))
        size = wire_bytes(header_type, names.c_header(name), "deparser")
        valid = names.c_field(name, "$valid$")
        lines.append(f"    if ({valid}) {{ {stores} o += {size}; }}")
    return "\n".join([*lines, "    return (uint32_t)(o - out);", "}"])


def _stores(header: str, header_type: HeaderType) -> Iterable[str]:
    """Stores of a header at `o`, several fields at a time where they share bytes."""
    start, bits, parts, behind = 0, 0, list[Field](), ""
    for field in header_type.fields:
        if field.varbit and not parts:
            length = f"{header}.{c_bytes(field.name)}"
            yield f"memcpy(o + {start}, {header}.{c_member(field.name)}, {length});"
            behind = f" + {length}"
            continue
        parts.append(field)
        bits += 0 if field.varbit else field.width
        if bits % 8:
            continue
        yield _store(header, parts, bits, f"o{behind} + {start}")
        if any(part.varbit for part in parts):
            behind = f" + {header}.{c_bytes(next(p.name for p in parts if p.varbit))}"
        start, bits, parts = start + bits // 8, 0, []


def _store(header: str, parts: Sequence[Field], bits: int, out: str) -> str:
    """A store of fields that share bytes, `bits` without that of variable length."""
    if bits > 128 or any(part.varbit for part in parts):
        return _store_bit_by_bit(header, parts, bits, out)
    kind = "uint64_t" if bits <= 64 else "ss_u128"
    code, rest = [], bits
    for part in parts:
        rest -= part.width
        lvalue = f"({kind}){header}.{c_member(part.name)}"
        code.append(f"{lvalue} << {rest}" if rest else lvalue)
    return f"ss_put({out}, {' | '.join(code)}, {bits // 8});"


def _store_bit_by_bit(header: str, parts: Sequence[Field], bits: int, out: str) -> str:
    lengths = "".join(f" + {header}.{c_bytes(part.name)}" for part in parts if part.varbit)
    code = [f"uint32_t at = 0; memset({out}, 0, {bits // 8}{lengths});"]
    for part in parts:
        lvalue = f"{header}.{c_member(part.name)}"
        if part.varbit:
            length = f"{header}.{c_bytes(part.name)}"
            code.append(f"ss_append_bytes({out}, at, {lvalue}, {length}); at += 8 * {length};")
            continue
        if part.width > 128:
            append = f"ss_limbs_append({out}, at, {lvalue}.limb, {part.width});"
        else:
            append = f"ss_append({out}, at, {lvalue}, {part.width});"
        code.append(f"{append} at += {part.width};")
    return f"{{ {' '.join(code)} }}"


def digest_function(names: Names, lists: Mapping[int, FieldList]) -> tuple[str, int]:
    """The C function `digest`, and the words of the longest digest."""
    cases, longest = [], 0
    for learn_list in lists.values():
        at, stores = 0, []
        for header, field in learn_list.fields:
            width = _fixed(names, header, field, f"digest {learn_list.name}").width
            for code in c_words(names.c_field(header, field), width):
                stores.append(f"out[{at}] = {code};")
                at += 1
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


def _fixed(names: Names, header: str, field: str, where: str) -> Field:
    """The declaration of a field that has a width."""
    declared = names.field(header, field, where)
    if declared.varbit:
        raise Unsupported(where, f"{header}.{field} is of variable length")
    return declared


def keep_function(names: Names, lists: Mapping[int, FieldList]) -> str:
    """The C function `keep`: clears the metadata of `to`, takes a field list from `from`."""
    metadata = [header for header in names.program.headers.values() if header.metadata]
    clears = [
        f"    memset(&{names.c_header(header.name, 'to')}, 0, "
        f"sizeof {names.c_header(header.name, 'to')});"
        for header in metadata
    ]
    cases = []
    for field_list in lists.values():
        copies = " ".join(
            f"{names.c_field(h, f, 'to')} = {names.c_field(h, f, 'from')};"
            for h, f in field_list.fields
            if _fixed(names, h, f, f"field list {field_list.name}")
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
