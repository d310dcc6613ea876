# SPDX-License-Identifier: Apache-2.0
"""C names and types of a program's headers, fields and intrinsic metadata."""

from __future__ import annotations

import re

from softswitch.bmjson import Field, Header, Program
from softswitch.errors import BadProgram, Unsupported

MAX_WIDTH = 128
STANDARD = "standard_metadata"


def c_type(width: int) -> str:
    """The C type of a field or register cell of `width` bits, at most MAX_WIDTH."""
    for bits in (8, 16, 32, 64):
        if width <= bits:
            return f"uint{bits}_t"
    return "ss_u128"


def cell_bytes(width: int) -> int:
    """Bytes of `c_type(width)`."""
    return next(size for size in (1, 2, 4, 8, 16) if width <= 8 * size)


def literal(value: int) -> str:
    """A non-negative constant of at most 128 bits."""
    if value < 1 << 64:
        return f"{value:#x}ull"
    return f"ss_big({value >> 64:#x}ull, {value & (1 << 64) - 1:#x}ull)"


def mask_of(width: int) -> int:
    """`width` ones."""
    return (1 << width) - 1


def sanitized(name: str) -> str:
    """A name as part of a C identifier."""
    return re.sub(r"\W", "_", name)


class Names:
    """Where everything of a program lives in the generated `struct phv *v`."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._header_names = {
            name: f"h{number}_{sanitized(name)}" for number, name in enumerate(program.headers)
        }
        self._stack_names = {
            name: f"next{number}_{sanitized(name)}" for number, name in enumerate(program.stacks)
        }
        for header_type in program.header_types.values():
            for field in header_type.fields:
                if field.width > MAX_WIDTH:
                    raise Unsupported(
                        f"{header_type.name}.{field.name}",
                        f"fields of {field.width} bits are not supported; at most {MAX_WIDTH}",
                    )
        for register in program.registers.values():
            if register.width > MAX_WIDTH:
                raise Unsupported(
                    register.name,
                    f"cells of {register.width} bits are not supported; at most {MAX_WIDTH}",
                )

    def header(self, name: str, where: str) -> Header:
        """The header instance called `name`."""
        if name not in self.program.headers:
            raise BadProgram(f"{where}: there is no header {name!r}")
        return self.program.headers[name]

    def field(self, header: str, field: str, where: str) -> Field:
        """The declaration of a field, `$valid$` included."""
        if field == "$valid$":
            self.header(header, where)
            return Field("$valid$", 1, False)
        for declared in self.header(header, where).type.fields:
            if declared.name == field:
                return declared
        raise BadProgram(f"{where}: header {header!r} has no field {field!r}")

    def c_header(self, name: str) -> str:
        """The struct of a header instance."""
        return f"v->{self._header_names[name]}"

    def c_field(self, header: str, field: str, phv: str = "v") -> str:
        """A field as an lvalue."""
        member = "valid" if field == "$valid$" else f"f_{sanitized(field)}"
        return f"{phv}->{self._header_names[header]}.{member}"

    def c_next(self, stack: str) -> str:
        """How many elements of a stack the parser has filled."""
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
        """The definition of `struct phv`."""
        lines = ["struct phv {"]
        for name, header in self.program.headers.items():
            lines.append("    struct {")
            lines += [
                f"        {c_type(field.width)} f_{sanitized(field.name)};"
                for field in sorted(header.type.fields, key=lambda f: -f.width)
            ]
            lines.append("        uint8_t valid;")
            lines.append(f"    }} {self._header_names[name]};")
        lines += [f"    uint32_t {name};" for name in self._stack_names.values()]
        return "\n".join([*lines, "};"])


def c_cast(value: str, width: int) -> str:
    """`value` cut to `width` bits, as its C type."""
    kind = c_type(width)
    if width in (8, 16, 32, 64, 128):
        return f"({kind})({value})"
    return f"({kind})(({value}) & {literal(mask_of(width))})"
