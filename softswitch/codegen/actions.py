# SPDX-License-Identifier: Apache-2.0
"""Actions: each becomes an inlined C function over the packet and the action data `d`."""

from __future__ import annotations

from collections.abc import Sequence

from softswitch.bmjson import (
    Action,
    Arg,
    Const,
    Expr,
    FieldRef,
    HeaderRef,
    Named,
    Op,
    Primitive,
    Register,
    SizedConst,
    StackRef,
    Text,
    UnionRef,
    UnionStackRef,
    Vector,
)
from softswitch.codegen import headers
from softswitch.codegen.arithmetic import Value, field_value, stored
from softswitch.codegen.expressions import Expressions
from softswitch.codegen.names import Names, c_cast, c_text, c_type
from softswitch.errors import BadProgram, Unsupported

_UPDATES = {"add_to_field": "+", "subtract_from_field": "-"}
_OPERATIONS = {
    "add": "+",
    "subtract": "-",
    "bit_xor": "^",
    "bit_or": "|",
    "bit_and": "&",
    "shift_left": "<<",
    "shift_right": ">>",
}


def action_name(action: Action) -> str:
    """The C function of an action."""
    return f"action_{action.id}"


class Actions:
    """Translates actions. `registers`, `counters`, `meters`, `calculations` are indices by name."""

    def __init__(
        self,
        names: Names,
        registers: dict[str, int],
        counters: dict[str, int],
        meters: dict[str, int],
        calculations: dict[str, int],
    ) -> None:
        self._names = names
        self._registers = registers
        self._counters = counters
        self._meters = meters
        self._calculations = calculations

    def function(self, action: Action) -> str:
        """The definition of an action's C function."""
        expressions = Expressions(
            self._names, f"action {action.name}", [width for _, width in action.params]
        )
        targets = {
            self._jump_target(primitive, action)
            for primitive in action.primitives
            if primitive.op.startswith("_jump")
        }
        lines = [
            f"/* {action.name} */",
            f"SS_INLINE void {action_name(action)}(struct ss_state *s, struct ss_packet *p, "
            "struct phv *v, const uint64_t *d) {",
            "    (void)s, (void)p, (void)v, (void)d;",
        ]
        for position, primitive in enumerate(action.primitives):
            if position in targets:
                lines.append(f"l{position}:;")
            lines.append(f"    {self.statement(primitive, expressions, action)}")
        if len(action.primitives) in targets:
            lines.append(f"l{len(action.primitives)}:;")
        return "\n".join([*lines, "}"])

    def _jump_target(self, primitive: Primitive, action: Action) -> int:
        target = primitive.args[-1]
        match target:
            case Const(value) | SizedConst(value, _) if 0 <= value <= len(action.primitives):
                return value
            case _:
                raise BadProgram(f"action {action.name}: a jump to {target}")

    def statement(self, primitive: Primitive, x: Expressions, action: Action | None = None) -> str:
        """One primitive as a C statement. Unsupported names the action and the primitive."""
        names = self._names
        match primitive.op, primitive.args:
            case (("assign" | "modify_field" | "set"), (target, value)):
                return _assign(_expr(target, x), _expr(value, x), x)
            case "assign_VL", (FieldRef() as to_field, FieldRef() as source_field):
                return headers.assign_varbit(
                    names,
                    (to_field.header, to_field.field),
                    (source_field.header, source_field.field),
                    x.where,
                )
            case op, (target, value) if op in _UPDATES:
                before = _expr(target, x)
                return _assign(before, Op(_UPDATES[op], before, _expr(value, x)), x)
            case op, (target, left, right) if op in _OPERATIONS:
                result = Op(_OPERATIONS[op], _expr(left, x), _expr(right, x))
                return _assign(_expr(target, x), result, x)
            case "count", (Named(_, name), index):
                number = _find(self._counters, name, "counter", x)
                cells = f"s->program->counters[{number}].size"
                return f"ss_count(s->counters[{number}], {cells}, {_u64(index, x)}, p);"
            case "execute_meter", (Named(_, name), index, target):
                number = _find(self._meters, name, "meter", x)
                meter = names.program.meters[name]
                tokens = "p->counted_length" if meter.bytes else "1"
                color = f"ss_meter_execute(&s->meters[{number}][i], s->now_us, {tokens}, p)"
                return _at_index(index, meter.size, _store(_expr(target, x), _any_64(color), x), x)
            case "register_read", (target, Named(_, name), index):
                register, cell = self._cell(name, x)
                read = field_value(cell, register.width, signed=False)
                return _at_index(index, register.size, _store(_expr(target, x), read, x), x)
            case "register_write", (Named(_, name), index, value):
                register, cell = self._cell(name, x)
                written = stored(x.number(_expr(value, x), register.width), register.width)
                return _at_index(index, register.size, f"{cell} = {written};", x)
            case "modify_field_with_hash_based_offset", (target, base, Named(_, name), size):
                number = _find(self._calculations, name, "calculation", x)
                code = f"ss_hash_offset(calc_{number}(s, p, v), {_u64(base, x)}, {_u64(size, x)})"
                return _store(_expr(target, x), _any_64(code), x)
            case "modify_field_rng_uniform", (target, low, high):
                drawn = _any_64("ss_random_between(s->random, low, high)")
                return (
                    f"{{ uint64_t low = {_u64(low, x)}, high = {_u64(high, x)}; "
                    f"if (low <= high) {{ {_store(_expr(target, x), drawn, x)} }} }}"
                )
            case "mark_to_drop", (HeaderRef(name),):
                return self._mark_to_drop(name, x)
            case (("drop" | "mark_to_drop"), ()):
                drop = names.set_intrinsic("standard_metadata.egress_spec", "s->drop_port")
                return drop + " " + names.set_intrinsic("intrinsic_metadata.mcast_grp", "0")
            case "truncate", (length,):
                # As in BMv2 the shortest counts.
                return (
                    f"{{ uint64_t n = {_u64(length, x)}; "
                    "if (n < p->truncated) p->truncated = (uint32_t)n; }"
                )
            case "generate_digest", (_, learn_list):
                return f"p->learn_list = {_u16(learn_list, x)};"
            case (
                ("clone_ingress_pkt_to_egress" | "clone_egress_pkt_to_egress"),
                (session, fields),
            ):
                return (
                    f"p->clone_session = SS_CLONE_REQUESTED | {_u16(session, x)}; "
                    f"p->clone_list = {_u16(fields, x)};"
                )
            case "resubmit", (fields,):
                return f"p->resubmit_list = {_u16(fields, x)};"
            case "recirculate", (fields,):
                return f"p->recirculate_list = {_u16(fields, x)};"
            case "exit", _:
                return "p->exit = true;"
            case "no_op", _:
                return ";"
            case "log_msg", (Text(text), Vector(items)):
                return _log_message(text, [_expr(item, x) for item in items], x)
            case (("assert" | "assume"), (condition,)):
                text = c_text(f"{x.where}: {primitive.source or primitive.op}")
                test = x.boolean(_expr(condition, x))
                return f"if (!({test})) s->assertion_failed(s->engine, {text});"
            case "_jump", (_,) if action is not None:
                return f"goto l{self._jump_target(primitive, action)};"
            case "_jump_if_zero", (condition, _) if action is not None:
                test = x.boolean(_expr(condition, x))
                return f"if (!({test})) goto l{self._jump_target(primitive, action)};"
            case op, args:
                if code := _whole(op, args, x):
                    return code
                kinds = ", ".join(type(arg).__name__ for arg in args)
                raise Unsupported(x.where, f"primitive {op}({kinds}) is not supported")

    def _mark_to_drop(self, header: str, x: Expressions) -> str:
        """`header` is a copy of the standard metadata when an action gets it as a parameter."""
        fields = {"egress_spec": "s->drop_port", "mcast_grp": "0"}
        return " ".join(
            f"{self._names.c_field(header, f.name)} = {c_cast(fields[f.name], f.width)};"
            for f in self._names.header(header, x.where).type.fields
            if f.name in fields
        )

    def _cell(self, name: str, x: Expressions) -> tuple[Register, str]:
        """A register array, and the lvalue of its cell `i`."""
        number = _find(self._registers, name, "register", x)
        register = self._names.program.registers[name]
        return register, f"(({c_type(register.width)} *)s->registers[{number}])[i]"


def _whole(op: str, args: tuple[Arg, ...], x: Expressions) -> str:
    """A primitive over whole headers, unions and stacks as a C statement; "" if it is none."""
    match op, args:
        case (("assign_header" | "copy_header"), (to, source)) if _headers(x, to, source):
            target, origin = x.header(_expr(to, x), "at_to"), x.header(_expr(source, x), "at_from")
            return headers.assign_header(target, origin, x.where)
        case "assign_header_stack", (StackRef(to_stack), StackRef(source_stack)):
            return headers.assign_stack(x.names, to_stack, source_stack, x.where)
        case "assign_union", (UnionRef(to_union), UnionRef(source_union)):
            return headers.assign_union(x.names, to_union, source_union, x.where)
        case "assign_union_stack", (UnionStackRef(to_stack), UnionStackRef(source_stack)):
            return headers.assign_union_stack(x.names, to_stack, source_stack, x.where)
        case "add_header", (header,) if _headers(x, header):
            return headers.add_header(x.header(_expr(header, x)), x.where)
        case "add_header_fast", (header,) if _headers(x, header):
            return headers.mark_valid(x.header(_expr(header, x)))
        case "remove_header", (header,) if _headers(x, header):
            return headers.remove_header(x.header(_expr(header, x)), x.where)
        case (("push" | "pop"), (StackRef(stack) | UnionStackRef(stack), count)):
            return headers.shift_stack(x.names, op, stack, _u64(count, x), x.where)
        case _:
            return ""


def _headers(x: Expressions, *args: Arg) -> bool:
    return all(x.is_header(arg) for arg in args)


def _assign(target: Expr, value: Expr, x: Expressions) -> str:
    place = x.place(target, "at_to")
    number = x.number(value, place.field.width)
    return place.header.statement(f"{place.code} = {stored(number, place.field.width)};")


def _store(target: Expr, value: Value, x: Expressions) -> str:
    """Writes a value to a field."""
    place = x.place(target, "at_to")
    return place.header.statement(f"{place.code} = {stored(value, place.field.width)};")


def _log_message(text: str, items: Sequence[Expr], x: Expressions) -> str:
    """Hands over a message with its values: their limbs, and per value how many and whether signed.

    softswitch/messages.py puts them together.
    """
    values = [x.number(item) for item in items]
    copies, kinds, at = [], [], 0
    for value in values:
        kind = {1: "uint64_t", 2: "ss_u128"}.get(value.limbs, f"ss_w{value.limbs}")
        copies.append(f"memcpy(w + {at}, ({kind}[]){{ {value.code} }}, {8 * value.limbs});")
        kinds.append(f"{value.limbs}{'s' if value.low < 0 else 'u'}")
        at += value.limbs
    call = f"s->log_message({c_text(text)}, {c_text(' '.join(kinds))}, w);"
    return f"if (s->log_message) {{ uint64_t w[{max(at, 1)}]; {' '.join(copies)} {call} }}"


def _at_index(index: Arg, size: int, statement: str, x: Expressions) -> str:
    """A statement about cell `i` of an array; outside of the array nothing happens."""
    return f"{{ uint64_t i = {_u64(index, x)}; if (i < {size}) {{ {statement} }} }}"


def _any_64(code: str) -> Value:
    return Value(code, 0, (1 << 64) - 1, 1)


def _find(indices: dict[str, int], name: str, what: str, x: Expressions) -> int:
    if name not in indices:
        raise BadProgram(f"{x.where}: there is no {what} {name!r}")
    return indices[name]


def _expr(arg: Arg, x: Expressions) -> Expr:
    """An argument that must be an expression."""
    match arg:
        case SizedConst(value, _):
            return Const(value)
        case Named() | Text() | Vector():
            raise Unsupported(x.where, f"argument {arg} is not an expression")
        case _:
            return arg


def _u64(arg: Arg, x: Expressions) -> str:
    """An argument as a uint64_t, cut to 64 bits."""
    return f"(uint64_t)({x.number(_expr(arg, x), 64).u64})"


def _u16(arg: Arg, x: Expressions) -> str:
    """An argument as a uint16_t; greater ones count as 65535, as in BMv2."""
    return f"(uint16_t)ss_umin64({_u64(arg, x)}, 0xffff)"
