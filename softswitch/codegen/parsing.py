# SPDX-License-Identifier: Apache-2.0
"""The parser: a C function of labels, one per state. It never reads a byte that is not there."""

from __future__ import annotations

from softswitch.bmjson import (
    CORE_ERRORS,
    Expr,
    FieldRef,
    HeaderType,
    Lookahead,
    ParserOp,
    ParserState,
)
from softswitch.codegen.actions import Actions
from softswitch.codegen.expressions import Expressions, Value
from softswitch.codegen.names import Names, c_cast, mask_of
from softswitch.codegen.packetbits import lookahead_guard, read_bits
from softswitch.codegen.select import select
from softswitch.errors import BadProgram, Unsupported


class ParserWriter:
    """Writes the function `parse(s, p, v)`."""

    def __init__(self, names: Names, actions: Actions) -> None:
        self._names = names
        self._actions = actions
        self._program = names.program

    def function(self) -> str:
        """The C source of the parser."""
        parser = self._program.parser
        self._labels = {name: f"s{number}" for number, name in enumerate(parser.states)}
        self._exits = {name: self._fail(name) for name in CORE_ERRORS}
        body = [
            "static void parse(struct ss_state *s, struct ss_packet *p, struct phv *v) {",
            "    (void)s;",
            "    const uint8_t *data = p->data;",
            "    uint32_t left = p->len;",
            f"    uint32_t error = {self._error('NoError')};",
        ]
        if parser.init_state is not None:
            if parser.init_state not in parser.states:
                raise BadProgram(f"parser: there is no state {parser.init_state!r}")
            body.append(f"    goto {self._labels[parser.init_state]};")
        for state in parser.states.values():
            body += self._state(state)
        body += [
            "    goto done; /* where no state is left */",
            "done:",
            "    p->data = data;",
            "    p->len = left;",
            "    " + self._names.set_intrinsic("standard_metadata.parser_error", "error"),
            "    (void)error;",
            "}",
        ]
        return "\n".join(body)

    def _error(self, name: str) -> int:
        if name not in self._program.errors:
            raise BadProgram(f"errors: there is no {name}")
        return self._program.errors[name]

    def _fail(self, error: str) -> str:
        """Leaves the parser with an error."""
        return f"{{ error = {self._error(error)}; goto done; }}"

    def _state(self, state: ParserState) -> list[str]:
        lines = [f"{self._labels[state.name]}: /* {state.name} */"]
        lines += [f"    {self._op(op, state)}" for op in state.ops]
        lines += [f"    {line}" for line in select(self._names, state, self._labels, self._exits)]
        return lines

    # ---- operations -----------------------------------------------------------------------------

    def _op(self, op: ParserOp, state: ParserState) -> str:
        where = f"parser state {state.name}"
        x = Expressions(self._names, where)
        match op.op:
            case "extract":
                return self._extract(op.target, where)
            case "extract_stack":
                return self._extract_stack(op.target, where)
            case "set" if isinstance(op.field, FieldRef) and op.value is not None:
                return self._set(op.field, op.value, x)
            case "verify" if op.condition is not None and op.value is not None:
                assert not isinstance(op.value, Lookahead)
                code = x.number(op.value).code
                return f"if (!({x.boolean(op.condition)})) {{ error = {code}; goto done; }}"
            case "advance" if op.value is not None:
                return self._advance(self._number(op.value, x), where)
            case "primitive" if op.call is not None:
                return self._actions.statement(op.call, x)
            case _:
                raise Unsupported(where, f"operation {op.op} is not supported")

    def _extract(self, name: str, where: str) -> str:
        header_type = self._names.header(name, where).type
        if header_type.width % 8:
            raise Unsupported(where, f"header {name} of {header_type.width} bits")
        size = header_type.width // 8
        short = self._fail("PacketTooShort")
        return f"if (left < {size}) {short} {self._load(name, header_type, where)}"

    def _load(self, name: str, header_type: HeaderType, where: str) -> str:
        at, loads = 0, []
        for field in header_type.fields:
            code = read_bits("data", at, field.width, where)
            loads.append(f"{self._names.c_field(name, field.name)} = {code};")
            at += field.width
        size = header_type.width // 8
        valid = self._names.c_field(name, "$valid$")
        return " ".join([*loads, f"{valid} = 1; data += {size}; left -= {size};"])

    def _extract_stack(self, name: str, where: str) -> str:
        if name not in self._program.stacks:
            raise BadProgram(f"{where}: there is no stack {name!r}")
        stack = self._program.stacks[name]
        counter = self._names.c_next(name)
        size = stack.type.width // 8
        cases = " ".join(
            f"case {number}: {self._load(element, stack.type, where)} break;"
            for number, element in enumerate(stack.headers)
        )
        return (
            f"if ({counter} >= {len(stack.headers)}) {self._fail('StackOutOfBounds')} "
            f"if (left < {size}) {self._fail('PacketTooShort')} "
            f"switch ({counter}++) {{ {cases} }}"
        )

    def _set(self, field: FieldRef, value: Expr | Lookahead, x: Expressions) -> str:
        width = self._names.field(field.header, field.field, x.where).width
        target = self._names.c_field(field.header, field.field)
        number = self._number(value, x)
        code = number.wide_code if width > 64 else number.code
        return f"{self._guard(value)}{target} = {c_cast(code, width)};"

    def _number(self, value: Expr | Lookahead, x: Expressions) -> Value:
        if isinstance(value, Lookahead):
            code = read_bits("data", value.offset, value.width, x.where)
            if value.width > 64:
                code = f"(ss_u128){code}"
            return Value(code, 0, mask_of(value.width))
        return x.number(value)

    def _guard(self, value: Expr | Lookahead) -> str:
        """Leaves the parser when the packet is too short to look that far ahead."""
        if not isinstance(value, Lookahead):
            return ""
        return lookahead_guard(value, self._fail("PacketTooShort")) + " "

    def _advance(self, bits: Value, where: str) -> str:
        if not bits.small:
            raise Unsupported(where, "advance by an amount that may be negative or over 64 bits")
        return (
            f"{{ uint64_t by = {bits.code}; "
            f"if (by % 8) {self._fail('ParserInvalidArgument')} by /= 8; "
            f"if (left < by) {self._fail('PacketTooShort')} "
            "data += by; left -= (uint32_t)by; }"
        )
