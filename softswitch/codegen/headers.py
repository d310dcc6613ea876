# SPDX-License-Identifier: Apache-2.0
"""Whole headers: validity, copies, header unions and stacks, as BMv2's primitives treat them."""

from __future__ import annotations

from collections.abc import Iterable

from softswitch.bmjson import HeaderType
from softswitch.codegen.names import Names, c_bytes, c_member
from softswitch.errors import BadProgram, Unsupported


def wire_bytes(header_type: HeaderType, c_header: str, where: str) -> str:
    """C code of how many bytes a header takes in a packet."""
    varbit = header_type.varbit
    fixed = header_type.width - (varbit.width if varbit else 0)
    if fixed % 8:
        raise Unsupported(where, f"header type {header_type.name} of {fixed} bits")
    return f"{fixed // 8}" + (f" + {c_header}.{c_bytes(varbit.name)}" if varbit else "")


def mark_valid(names: Names, name: str) -> str:
    """Makes a header valid, and the other members of its union invalid."""
    others = [f"{names.c_header(other)}.valid = 0;" for other in names.siblings(name)]
    return " ".join([*others, f"{names.c_header(name)}.valid = 1;"])


def add_header(names: Names, name: str, where: str) -> str:
    """setValid: all fields are 0 then. A variable-length field keeps its length, as in BMv2."""
    header_type = names.header(name, where).type
    header = names.c_header(name)
    kept = keep = ""
    if varbit := header_type.varbit:
        length = f"{header}.{c_bytes(varbit.name)}"
        kept, keep = f"uint32_t bytes = {length};", f"{length} = bytes;"
    return (
        f"if (!{header}.valid) {{ {kept} memset(&{header}, 0, sizeof {header}); {keep} "
        f"{mark_valid(names, name)} p->length += {wire_bytes(header_type, header, where)}; }}"
    )


def remove_header(names: Names, name: str, where: str) -> str:
    """setInvalid."""
    header = names.c_header(name)
    size = wire_bytes(names.header(name, where).type, header, where)
    return f"if ({header}.valid) {{ {header}.valid = 0; p->length -= {size}; }}"


def assign_header(names: Names, to: str, source: str, where: str) -> str:
    """`to` becomes what `source` is, valid or not."""
    if names.header(to, where).type.fields != names.header(source, where).type.fields:
        raise BadProgram(f"{where}: {to} and {source} are not of the same type")
    if to == source:
        return ";"
    target, origin = names.c_header(to), names.c_header(source)
    others = " ".join(f"{names.c_header(other)}.valid = 0;" for other in names.siblings(to))
    return (
        f"if ({origin}.valid) {{ {others} memcpy(&{target}, &{origin}, sizeof {target}); }} "
        f"else {target}.valid = 0;"
    )


def assign_union(names: Names, to: str, source: str, where: str) -> str:
    """Copies the members of a union one after the other."""
    target, origin = names.union(to, where), names.union(source, where)
    if target.members.keys() != origin.members.keys():
        raise BadProgram(f"{where}: {to} and {source} are not of the same type")
    return " ".join(
        assign_header(names, name, origin.members[member], where)
        for member, name in target.members.items()
    )


def assign_union_stack(names: Names, to: str, source: str, where: str) -> str:
    """Copies the unions of a stack, and how many of them are filled."""
    target, origin = names.union_stack(to, where), names.union_stack(source, where)
    if len(target.unions) != len(origin.unions):
        raise BadProgram(f"{where}: {to} and {source} are not of the same size")
    copies = [
        assign_union(names, union, other, where)
        for union, other in zip(target.unions, origin.unions, strict=True)
    ]
    return " ".join([f"{names.c_next(to)} = {names.c_next(source)};", *copies])


def union_valid(names: Names, name: str, where: str) -> str:
    """C code of whether a member of the union is valid."""
    members = names.union(name, where).members.values()
    return "(" + " | ".join(f"{names.c_header(member)}.valid" for member in members) + ")"


def shift_stack(names: Names, op: str, name: str, count: int, where: str) -> str:
    """push_front and pop_front of P4_16: elements change places, new ones are invalid."""
    if name in names.program.union_stacks:
        unions = [names.union(u, where) for u in names.union_stack(name, where).unions]
        members = list(unions[0].members)
        rows = [[names.c_header(u.members[member]) for u in unions] for member in members]
    else:
        rows = [[names.c_header(element) for element in names.stack(name, where).headers]]
    size, filled = len(rows[0]), names.c_next(name)
    count = min(count, size)
    if op == "push":
        more = f"{filled} = {filled} + {count} < {size} ? {filled} + {count} : {size};"
    else:
        more = f"{filled} -= {filled} < {count} ? {filled} : {count};"
    return " ".join([*(_shift(op, row, count) for row in rows), more])


def _shift(op: str, elements: list[str], count: int) -> str:
    size = len(elements)
    pairs: Iterable[tuple[int, int]]
    if op == "push":
        pairs, new = ((i, i - count) for i in range(size - 1, count - 1, -1)), elements[:count]
    else:
        pairs, new = ((i, i + count) for i in range(size - count)), elements[size - count :]
    swaps = [f"SS_SWAP({elements[a]}, {elements[b]});" for a, b in pairs]
    return " ".join([*swaps, *(f"{element}.valid = 0;" for element in new)])


def assign_varbit(names: Names, to: tuple[str, str], source: tuple[str, str], where: str) -> str:
    """Copies a variable-length field with its length."""
    fields = [names.field(*place, where) for place in (to, source)]
    if not all(field.varbit for field in fields) or fields[0].width != fields[1].width:
        raise BadProgram(f"{where}: {'.'.join(to)} and {'.'.join(source)} are not of one type")
    if to == source:
        return ";"
    pairs = [
        (
            f"{names.c_header(header)}.{c_bytes(field)}",
            f"{names.c_header(header)}.{c_member(field)}",
        )
        for header, field in (to, source)
    ]
    (bytes_to, data_to), (bytes_from, data_from) = pairs
    return f"{bytes_to} = {bytes_from}; memcpy({data_to}, {data_from}, sizeof {data_to});"


def same_varbit(names: Names, left: tuple[str, str], right: tuple[str, str]) -> str:
    """C code of whether two variable-length fields are equal: as numbers, as in BMv2."""
    sides = (
        f"{names.c_field(header, field)}, {names.c_header(header)}.{c_bytes(field)}"
        for header, field in (left, right)
    )
    return f"ss_same_number({', '.join(sides)})"
