# SPDX-License-Identifier: Apache-2.0
"""Whole headers: validity, copies, header unions and stacks, as BMv2's primitives treat them."""

from __future__ import annotations

from dataclasses import dataclass

from softswitch.bmjson import HeaderType
from softswitch.codegen.layout import words_of
from softswitch.codegen.names import Names, c_bytes, c_member, c_type
from softswitch.errors import BadProgram, Unsupported


@dataclass(frozen=True, slots=True)
class HeaderPlace:
    """A header: the lvalue of its struct, and of those of the other members of its union.

    Where the header is an element with a run-time index, `before` declares the variable that
    `code` has as its index, and `inside` is a condition for its being within the stack.
    """

    type: HeaderType
    code: str
    others: tuple[str, ...] = ()
    before: str = ""
    inside: str = ""

    def statement(self, body: str) -> str:
        """`body`, which uses `code`, where the header is there."""
        return f"{{ {self.before} if ({self.inside}) {{ {body} }} }}" if self.before else body

    def value(self, read: str, otherwise: str) -> str:
        """The expression `read`, which uses `code`, where the header is there."""
        if not self.before:
            return read
        return f"({{ {self.before} {self.inside} ? {read} : {otherwise}; }})"


def header_place(names: Names, name: str, where: str) -> HeaderPlace:
    """The header instance called `name`."""
    others = tuple(names.c_header(other) for other in names.siblings(name))
    return HeaderPlace(names.header(name, where).type, names.c_header(name), others)


def wire_bytes(header_type: HeaderType, c_header: str, where: str) -> str:
    """C code of how many bytes a header takes in a packet."""
    varbit = header_type.varbit
    fixed = header_type.width - (varbit.width if varbit else 0)
    if fixed % 8:
        raise Unsupported(where, f"header type {header_type.name} of {fixed} bits")
    return f"{fixed // 8}" + (f" + {c_header}.{c_bytes(varbit.name)}" if varbit else "")


def _others_invalid(place: HeaderPlace) -> str:
    return "".join(f"{other}.valid = 0; " for other in place.others)


def add_header(place: HeaderPlace, where: str) -> str:
    """setValid: all fields are 0 then. A variable-length field keeps its length, as in BMv2."""
    header = place.code
    kept = keep = ""
    if varbit := place.type.varbit:
        length = f"{header}.{c_bytes(varbit.name)}"
        kept, keep = f"uint32_t bytes = {length};", f"{length} = bytes;"
    return place.statement(
        f"if (!{header}.valid) {{ {kept} memset(&{header}, 0, sizeof {header}); {keep} "
        f"{_others_invalid(place)}{header}.valid = 1; "
        f"p->length += {wire_bytes(place.type, header, where)}; }}"
    )


def remove_header(place: HeaderPlace, where: str) -> str:
    """setInvalid."""
    size = wire_bytes(place.type, place.code, where)
    return place.statement(
        f"if ({place.code}.valid) {{ {place.code}.valid = 0; p->length -= {size}; }}"
    )


def assign_header(to: HeaderPlace, source: HeaderPlace, where: str) -> str:
    """`to` becomes what `source` is, valid or not."""
    if to.type.fields != source.type.fields:
        raise BadProgram(f"{where}: {to.type.name} and {source.type.name} differ")
    target, origin = to.code, source.code
    if target == origin and not to.before:
        return ";"
    copy = (
        f"if ({origin}.valid) {{ {_others_invalid(to)}"
        f"memmove(&{target}, &{origin}, sizeof {target}); }} else {target}.valid = 0;"
    )
    return to.statement(source.statement(copy))


def assign_stack(names: Names, to: str, source: str, where: str) -> str:
    """Copies the headers of a stack, and how many of them are filled."""
    target, origin = names.stack(to, where), names.stack(source, where)
    if len(target.headers) != len(origin.headers):
        raise BadProgram(f"{where}: {to} and {source} are not of the same size")
    copies = [
        assign_header(header_place(names, a, where), header_place(names, b, where), where)
        for a, b in zip(target.headers, origin.headers, strict=True)
    ]
    return " ".join([f"{names.c_next(to)} = {names.c_next(source)};", *copies])


def same_header(a: HeaderPlace, b: HeaderPlace, where: str) -> str:
    """C code of whether two headers are valid and equal, as BMv2 compares them."""
    if a.type.fields != b.type.fields:
        raise BadProgram(f"{where}: {a.type.name} and {b.type.name} differ")
    tests = [f"{a.code}.valid", f"{b.code}.valid"]
    for field in a.type.fields:
        x, y = (f"{place.code}.{c_member(field.name)}" for place in (a, b))
        if field.varbit:
            sizes = [f"{place.code}.{c_bytes(field.name)}" for place in (a, b)]
            tests.append(f"ss_same_number({x}, {sizes[0]}, {y}, {sizes[1]})")
        elif words_of(field.width) > 2:
            tests.append(f"{c_type(field.width)}_same({x}, {y})")
        else:
            tests.append(f"{x} == {y}")
    return f"({' && '.join(tests)})"


def assign_union(names: Names, to: str, source: str, where: str) -> str:
    """Copies the members of a union one after the other."""
    target, origin = names.union(to, where), names.union(source, where)
    if target.members.keys() != origin.members.keys():
        raise BadProgram(f"{where}: {to} and {source} are not of the same type")
    return " ".join(
        assign_header(
            header_place(names, name, where),
            header_place(names, origin.members[member], where),
            where,
        )
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


def mark_valid(place: HeaderPlace) -> str:
    """Makes a header valid with the fields that it has."""
    return place.statement(f"{_others_invalid(place)}{place.code}.valid = 1;")


def shift_stack(names: Names, op: str, name: str, count: str, where: str) -> str:
    """push_front and pop_front of P4_16: elements change places, new ones are invalid.

    `count` is C code of a uint64_t.
    """
    if name in names.program.union_stacks:
        unions = names.union_stack(name, where).unions
        size = len(unions)
        members = names.union(unions[0], where).members
        arrays = [names.c_union_element(name, member, "") for member in members]
    else:
        size = len(names.stack(name, where).headers)
        arrays = [names.c_element(name, "")]
    macro = f"SS_{op.upper()}"
    shifts = " ".join(f"{macro}({array.removesuffix('[]')}, by);" for array in arrays)
    filled = names.c_next(name)
    if op == "push":
        more = f"{filled} = {filled} + by < {size} ? {filled} + (uint32_t)by : {size};"
    else:
        more = f"{filled} -= {filled} < by ? {filled} : (uint32_t)by;"
    return f"{{ const uint64_t by = ss_umin64({count}, {size}); {shifts} {more} }}"


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
