# SPDX-License-Identifier: Apache-2.0
"""C names and types of a program's headers, fields and intrinsic metadata."""

from __future__ import annotations

import re

from softswitch.bmjson import Field, Header, HeaderType, Program, Stack, Union, UnionStack
from softswitch.codegen.layout import WORD_BITS, words_of
from softswitch.errors import BadProgram

STANDARD = "standard_metadata"


def c_type(width: int) -> str:
    """The C type of a field or register cell of `width` bits; over 128 one of csrc/wide.h."""
    for bits in (8, 16, 32, 64):
        if width <= bits:
            return f"uint{bits}_t"
    return "ss_u128" if width <= 128 else f"ss_w{words_of(width)}"


def cell_bytes(width: int) -> int:
    """Bytes of `c_type(width)`."""
    return next((size for size in (1, 2, 4, 8) if width <= 8 * size), 8 * words_of(width))


def c_words(lvalue: str, width: int) -> list[str]:
    """The 64-bit words of an lvalue of `c_type(width)`, lowest first, as uint64_t."""
    match words_of(width):
        case 1:
            return [f"(uint64_t){lvalue}"]
        case 2:
            return [f"(uint64_t){lvalue}", f"(uint64_t)({lvalue} >> {WORD_BITS})"]
        case words:
            return [f"{lvalue}.limb[{i}]" for i in range(words)]


def literal(value: int, limbs: int | None = None) -> str:
    """A constant modulo 2^(64 * limbs), by default in as many limbs as it takes without sign.

    One limb is a uint64_t, two are an ss_u128, more a struct of csrc/wide.h.
    """
    count = words_of(value.bit_length()) if limbs is None else limbs
    words = [f"{value >> WORD_BITS * i & mask_of(WORD_BITS):#x}ull" for i in range(count)]
    if count == 1:
        return words[0]
    if count == 2:
        return f"ss_big({words[1]}, {words[0]})"
    return f"((ss_w{count}){{{{ {', '.join(words)} }}}})"


def c_text(text: str) -> str:
    """A string as a C literal."""
    plain = {*range(0x20, 0x7F)} - {*b'"\\?'}
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode()) + '"'


def mask_of(width: int) -> int:
    """`width` ones."""
    return (1 << width) - 1


def sanitized(name: str) -> str:
    """A name as part of a C identifier; names that differ in `.` and `_` stay different."""
    return re.sub(r"[^A-Za-z0-9_]", lambda match: f"_{ord(match[0]):x}_", name)


class Names:
    """Where everything of a program lives in the generated `struct phv *v`.

    Headers of one type are structs of one type; a stack is an array of them, a stack of unions one
    array for each member of the union.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._types = {
            name: f"t{number}_{sanitized(name)}" for number, name in enumerate(program.header_types)
        }
        self._unions = {
            instance: union
            for union in program.unions.values()
            for instance in union.members.values()
        }
        self._arrays: dict[str, tuple[str, int]] = {}  # C type and length by name
        self._places = self._place_headers()
        self._stack_names = {
            name: f"next{number}_{sanitized(name)}"
            for number, name in enumerate((*program.stacks, *program.union_stacks))
        }

    def _place_headers(self) -> dict[str, str]:
        """The member of `struct phv` that holds each header."""
        program = self.program
        places: dict[str, str] = {}
        for number, stack in enumerate(program.stacks.values()):
            array = f"s{number}_{sanitized(stack.name)}"
            self._arrays[array] = self._types[stack.type.name], len(stack.headers)
            places |= {name: f"{array}[{i}]" for i, name in enumerate(stack.headers)}
        for union_stack in program.union_stacks.values():
            for i, union in enumerate(union_stack.unions):
                for member, name in program.unions[union].members.items():
                    array = self._union_array(union_stack.name, member)
                    kind = self._types[program.headers[name].type.name]
                    self._arrays[array] = kind, len(union_stack.unions)
                    places[name] = f"{array}[{i}]"
        for number, header in enumerate(program.headers.values()):
            places.setdefault(header.name, f"h{number}_{sanitized(header.name)}")
        return places

    def _union_array(self, stack: str, member: str) -> str:
        number = list(self.program.union_stacks).index(stack)
        return f"u{number}_{sanitized(stack)}_{sanitized(member)}"

    def header(self, name: str, where: str) -> Header:
        """The header instance called `name`."""
        if name not in self.program.headers:
            raise BadProgram(f"{where}: there is no header {name!r}")
        return self.program.headers[name]

    def stack(self, name: str, where: str) -> Stack:
        """The header stack called `name`."""
        if name not in self.program.stacks:
            raise BadProgram(f"{where}: there is no stack {name!r}")
        return self.program.stacks[name]

    def union(self, name: str, where: str) -> Union:
        """The header union called `name`."""
        if name not in self.program.unions:
            raise BadProgram(f"{where}: there is no header union {name!r}")
        return self.program.unions[name]

    def union_stack(self, name: str, where: str) -> UnionStack:
        """The stack of header unions called `name`."""
        if name not in self.program.union_stacks:
            raise BadProgram(f"{where}: there is no stack of header unions {name!r}")
        return self.program.union_stacks[name]

    def union_member(self, stack: str, member: str, where: str) -> HeaderType:
        """The header type of a member of the unions in a stack."""
        first = self.union(self.union_stack(stack, where).unions[0], where)
        if member not in first.members:
            raise BadProgram(f"{where}: the unions of {stack!r} have no member {member!r}")
        return self.header(first.members[member], where).type

    def field(self, header: str, field: str, where: str) -> Field:
        """The declaration of a field, `$valid$` included."""
        if field == "$valid$":
            self.header(header, where)
            return Field("$valid$", 1, False)
        return field_of(self.header(header, where).type, field, where)

    def siblings(self, header: str) -> list[str]:
        """The other members of the union that a header is in."""
        union = self._unions.get(header)
        return [name for name in union.members.values() if name != header] if union else []

    def c_header(self, name: str, phv: str = "v") -> str:
        """The struct of a header instance."""
        return f"{phv}->{self._places[name]}"

    def c_element(self, stack: str, index: str) -> str:
        """The struct of an element of a stack; `index` is C code that is less than its size."""
        number = list(self.program.stacks).index(stack)
        return f"v->s{number}_{sanitized(stack)}[{index}]"

    def c_union_element(self, stack: str, member: str, index: str) -> str:
        """The struct of a member of a union in a stack."""
        return f"v->{self._union_array(stack, member)}[{index}]"

    def c_field(self, header: str, field: str, phv: str = "v") -> str:
        """A field as an lvalue."""
        return f"{self.c_header(header, phv)}.{c_member(field)}"

    def c_next(self, stack: str) -> str:
        """How many elements of a stack, of headers or unions, the parser has filled."""
        return f"v->{self._stack_names[stack]}"

    def intrinsic(self, name: str) -> tuple[str, str] | None:
        """Header and field of intrinsic metadata; None when the program does not have it.

        `name` is as simple_switch has it: intrinsic_metadata.mcast_grp, standard_metadata.priority.
        """
        header, field = self.program.aliases.get(name) or tuple(name.split(".", 1))
        declared = self.program.headers.get(header)
        if declared is None or all(field != known.name for known in declared.type.fields):
            return None
        return header, field

    def c_intrinsic(self, name: str, phv: str = "v") -> str | None:
        """Intrinsic metadata as an lvalue; None when the program does not have it."""
        found = self.intrinsic(name)
        return None if found is None else self.c_field(*found, phv)

    def set_intrinsic(self, name: str, value: str, phv: str = "v") -> str:
        """A statement that sets intrinsic metadata, or nothing."""
        found = self.intrinsic(name)
        if found is None:
            return ""
        width = self.field(*found, name).width
        return f"{self.c_field(*found, phv)} = {c_cast(value, width)};"

    def structs(self) -> str:
        """The definitions of the header types and of `struct phv`."""
        lines = []
        for name, header_type in self.program.header_types.items():
            lines.append(f"struct {self._types[name]} {{")
            for field in sorted(header_type.fields, key=lambda f: (f.varbit, -f.width)):
                member = c_member(field.name)
                if field.varbit:
                    lines.append(f"    uint32_t {c_bytes(field.name)};")
                    lines.append(f"    uint8_t {member}[{max(field.width // 8, 1)}];")
                else:
                    lines.append(f"    {c_type(field.width)} {member};")
            lines += ["    uint8_t valid;", "};"]
        lines.append("struct phv {")
        for name, (kind, length) in self._arrays.items():
            lines.append(f"    struct {kind} {name}[{length}];")
        for name, header in self.program.headers.items():
            if "[" not in self._places[name]:
                lines.append(f"    struct {self._types[header.type.name]} {self._places[name]};")
        lines += [f"    uint32_t {name};" for name in self._stack_names.values()]
        return "\n".join([*lines, "};"])


def c_member(field: str) -> str:
    """The member of a header's struct that holds a field, `$valid$` included."""
    return "valid" if field == "$valid$" else f"f_{sanitized(field)}"


def c_bytes(field: str) -> str:
    """The member of a header's struct that holds how many bytes a variable-length field has."""
    return f"n_{sanitized(field)}"


def field_of(header_type: HeaderType, field: str, where: str) -> Field:
    """The declaration of a field of a header type."""
    for declared in header_type.fields:
        if declared.name == field:
            return declared
    raise BadProgram(f"{where}: header type {header_type.name!r} has no field {field!r}")


def c_cast(value: str, width: int) -> str:
    """`value`, C code of at most 128 bits, cut to `width` bits as its C type."""
    kind = c_type(width)
    if width > 128:
        return f"{kind}_of_u128({value})"
    if width in (8, 16, 32, 64, 128):
        return f"({kind})({value})"
    return f"({kind})(({value}) & {literal(mask_of(width))})"
