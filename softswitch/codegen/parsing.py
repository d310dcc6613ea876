# SPDX-License-Identifier: Apache-2.0
"""The parser: a C function of labels, one per state. It never reads a byte that is not there."""

from __future__ import annotations

from collections.abc import Iterator

from softswitch.bmjson import (
    CORE_ERRORS,
    Const,
    Expr,
    FieldRef,
    HeaderType,
    Lookahead,
    Parser,
    ParserOp,
    ParserState,
)
from softswitch.codegen.actions import Actions
from softswitch.codegen.arithmetic import Value, stored
from softswitch.codegen.expressions import Expressions
from softswitch.codegen.headers import assign_varbit
from softswitch.codegen.layout import words_of
from softswitch.codegen.names import Names, c_bytes, c_member, mask_of
from softswitch.codegen.packetbits import lookahead_guard, read_bits
from softswitch.codegen.select import select
from softswitch.errors import BadProgram, Unsupported


class ParserWriter:
    """Writes the function `parse(s, p, v)`.

    BMv2 does not limit how often a parser goes round. Here every way round costs one of as many
    rounds as the packet has bytes, and SS_PARSER_ROUNDS more for loops that count something else;
    then comes the error ParserTimeout. A loop that takes a byte each time always ends before.
    """

    def __init__(self, names: Names, actions: Actions) -> None:
        self._names = names
        self._actions = actions
        self._program = names.program

    def function(self) -> str:
        """The C source of the parser."""
        parser = self._program.parser
        self._labels = {name: f"s{number}" for number, name in enumerate(parser.states)}
        self._exits = {name: self._fail(name) for name in CORE_ERRORS}
        first = "done"
        if parser.init_state is not None:
            if parser.init_state not in parser.states:
                raise BadProgram(f"parser: there is no state {parser.init_state!r}")
            first = self._labels[parser.init_state]
        self._back = set(_back_edges(parser))
        body = [
            "static void parse(struct ss_state *s, struct ss_packet *p, struct phv *v) {",
            "    (void)s;",
            "    const uint8_t *data = p->data;",
            "    uint32_t left = p->len;",
            f"    uint32_t error = {self._error('NoError')};",
        ]
        if self._back:
            body.append("    uint32_t rounds = left + SS_PARSER_ROUNDS;")
        body.append(f"    goto {first};")
        for state in parser.states.values():
            body += self._state(state)
        for target in sorted({target for _, target in self._back}):
            label = self._labels[target]
            body.append(f"{label}_again:")
            body.append(f"    if (rounds-- == 0) {self._fail('ParserTimeout')} goto {label};")
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
        labels = {
            name: f"{label}_again" if (state.name, name) in self._back else label
            for name, label in self._labels.items()
        }
        lines += [f"    {line}" for line in select(self._names, state, labels, self._exits)]
        return lines

    # ---- operations -----------------------------------------------------------------------------

    def _op(self, op: ParserOp, state: ParserState) -> str:
        where = f"parser state {state.name}"
        x = Expressions(self._names, where)
        match op.op:
            case "extract":
                return self._extract(op, x)
            case "extract_stack":
                return self._extract_stack(op, x)
            case "extract_union_stack":
                return self._extract_union_stack(op, x)
            case "set" if op.field is not None and op.value is not None:
                return self._set(op.field, op.value, x)
            case "shift" if isinstance(op.value, Const):
                short = self._fail("PacketTooShort")
                by = op.value.value
                return f"if (left < {by}u) {short} data += {by}u; left -= {by}u;"
            case "verify" if op.condition is not None and op.value is not None:
                assert not isinstance(op.value, Lookahead)
                code = f"(uint32_t){x.number(op.value, 32).u64}"
                return f"if (!({x.boolean(op.condition)})) {{ error = {code}; goto done; }}"
            case "advance" if op.value is not None:
                return self._advance(self._number(op.value, x, 64))
            case "primitive" if op.call is not None:
                return self._actions.statement(op.call, x)
            case _:
                raise Unsupported(where, f"operation {op.op} is not supported")

    def _extract(self, op: ParserOp, x: Expressions) -> str:
        names = self._names
        header = names.header(op.target, x.where)
        others = [names.c_header(other) for other in names.siblings(op.target)]
        return self._extract_into(names.c_header(op.target), others, header.type, op, x)

    def _extract_stack(self, op: ParserOp, x: Expressions) -> str:
        stack, counter = self._names.stack(op.target, x.where), self._names.c_next(op.target)
        element = self._names.c_element(op.target, counter)
        code = self._extract_into(element, [], stack.type, op, x)
        return self._push(counter, len(stack.headers), code)

    def _extract_union_stack(self, op: ParserOp, x: Expressions) -> str:
        names = self._names
        unions, counter = names.union_stack(op.target, x.where).unions, names.c_next(op.target)
        header_type = names.union_member(op.target, op.member, x.where)
        members = names.union(unions[0], x.where).members
        element = names.c_union_element(op.target, op.member, counter)
        others = [
            names.c_union_element(op.target, other, counter)
            for other in members
            if other != op.member
        ]
        return self._push(
            counter, len(unions), self._extract_into(element, others, header_type, op, x)
        )

    def _push(self, counter: str, size: int, extract: str) -> str:
        return f"if ({counter} >= {size}) {self._fail('StackOutOfBounds')} {extract} {counter}++;"

    def _extract_into(
        self, element: str, others: list[str], header_type: HeaderType, op: ParserOp, x: Expressions
    ) -> str:
        """Reads a header into the struct `element`; `others` are the rest of its union."""
        varbit = header_type.varbit
        if (varbit is None) != (op.length is None):
            raise BadProgram(f"{x.where}: extract and length of type {header_type.name} disagree")
        fixed = header_type.width - (varbit.width if varbit else 0)
        if fixed % 8:
            raise Unsupported(x.where, f"header type {header_type.name} of {fixed} bits")
        size, short = fixed // 8, self._fail("PacketTooShort")
        begin = f"{{ if (left < {size}) {short}" if size else "{"
        if varbit is not None and op.length is not None:
            length = x.number(op.length, 64)
            begin = (
                f"{{ uint64_t bits = {length.u64}, bytes = bits / 8; "
                f"if (bits % 8) {self._fail('ParserInvalidArgument')} "
                f"if (left < {size} + bytes) {short} "
                f"if (bytes > {varbit.width // 8}) {self._fail('HeaderTooShort')}"
            )
        at, behind, loads = 0, "", []
        for field in header_type.fields:
            member = f"{element}.{c_member(field.name)}"
            if field.varbit:
                loads.append(f"{element}.{c_bytes(field.name)} = (uint32_t)bytes;")
                loads.append(f"ss_get_bytes({member}, data + {at // 8}, bytes, {at % 8});")
                behind = " + bytes"
                continue
            code = read_bits(f"data{behind}", at, field.width)
            loads.append(f"{member} = {code};")
            at += field.width
        loads += [f"{other}.valid = 0;" for other in others]
        end = f"{element}.valid = 1; data += {size}{behind}; left -= (uint32_t)({size}{behind}); }}"
        return " ".join([begin, *loads, end])

    def _set(self, target: Expr, value: Expr | Lookahead, x: Expressions) -> str:
        place = x.place(target, "at_to")
        if place.field.varbit and isinstance(target, FieldRef) and isinstance(value, FieldRef):
            places = ((target.header, target.field), (value.header, value.field))
            return assign_varbit(self._names, *places, x.where)
        width = place.field.width
        code = stored(self._number(value, x, width), width)
        return self._guard(value) + place.header.statement(f"{place.code} = {code};")

    def _number(self, value: Expr | Lookahead, x: Expressions, bits: int | None = None) -> Value:
        if isinstance(value, Lookahead):
            code = read_bits("data", value.offset, value.width)
            limbs = words_of(value.width)
            kind = {1: "(uint64_t)", 2: "(ss_u128)"}.get(limbs, "")
            return Value(kind + code, 0, mask_of(value.width), limbs)
        return x.number(value, bits)

    def _guard(self, value: Expr | Lookahead) -> str:
        """Leaves the parser when the packet is too short to look that far ahead."""
        if not isinstance(value, Lookahead):
            return ""
        return lookahead_guard(value, self._fail("PacketTooShort")) + " "

    def _advance(self, bits: Value) -> str:
        return (
            f"{{ uint64_t by = {bits.u64}; "
            f"if (by % 8) {self._fail('ParserInvalidArgument')} by /= 8; "
            f"if (left < by) {self._fail('PacketTooShort')} "
            "data += by; left -= (uint32_t)by; }"
        )


def _back_edges(parser: Parser) -> Iterator[tuple[str, str]]:
    """Transitions (from, to) without which no state could be entered twice."""
    if parser.init_state is None:
        return
    open_, closed = {parser.init_state}, set[str]()
    path = [(parser.init_state, _following(parser, parser.init_state))]
    while path:
        name, following = path[-1]
        target = next(following, None)
        if target is None:
            path.pop()
            open_.remove(name)
            closed.add(name)
        elif target in open_:
            yield name, target
        elif target not in closed:
            open_.add(target)
            path.append((target, _following(parser, target)))


def _following(parser: Parser, state: str) -> Iterator[str]:
    transitions = parser.states[state].transitions
    return iter([t.next_state for t in transitions if t.next_state is not None])
