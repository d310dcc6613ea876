# SPDX-License-Identifier: Apache-2.0
"""Actions: each becomes an inlined C function over the packet and the action data `d`."""

from __future__ import annotations

from softswitch.bmjson import (
    Action,
    Arg,
    Const,
    Expr,
    FieldRef,
    HeaderRef,
    Named,
    Primitive,
    SizedConst,
    StackRef,
    Text,
    UnionRef,
    UnionStackRef,
    Vector,
)
from softswitch.codegen import headers
from softswitch.codegen.expressions import Expressions
from softswitch.codegen.names import Names, c_cast, c_type
from softswitch.errors import BadProgram, Unsupported


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
            case "assign", (FieldRef(header, field), value):
                return self._assign(header, field, _expr(value, x), x)
            case "assign_header", (HeaderRef(to), HeaderRef(source)):
                return headers.assign_header(names, to, source, x.where)
            case "assign_union", (UnionRef(to), UnionRef(source)):
                return headers.assign_union(names, to, source, x.where)
            case "assign_union_stack", (UnionStackRef(to), UnionStackRef(source)):
                return headers.assign_union_stack(names, to, source, x.where)
            case "assign_VL", (FieldRef() as to_field, FieldRef() as source_field):
                return headers.assign_varbit(
                    names,
                    (to_field.header, to_field.field),
                    (source_field.header, source_field.field),
                    x.where,
                )
            case "add_header", (HeaderRef(name),):
                return headers.add_header(names, name, x.where)
            case "remove_header", (HeaderRef(name),):
                return headers.remove_header(names, name, x.where)
            case "count", (Named(_, name), index):
                number = _find(self._counters, name, "counter", x)
                cells = f"s->program->counters[{number}].size"
                return f"ss_count(s->counters[{number}], {cells}, {_u64(index, x)}, p);"
            case "execute_meter", (Named(_, name), index, FieldRef(header, field)):
                return self._execute_meter(name, _u64(index, x), header, field, x)
            case "register_read", (FieldRef(header, field), Named(_, name), index):
                return self._register_read(header, field, name, _u64(index, x), x)
            case "register_write", (Named(_, name), index, value):
                return self._register_write(name, _u64(index, x), _expr(value, x), x)
            case "modify_field_with_hash_based_offset", (
                FieldRef(header, field),
                base,
                Named(_, name),
                size,
            ):
                number = _find(self._calculations, name, "calculation", x)
                width = names.field(header, field, x.where).width
                code = f"ss_hash_offset(calc_{number}(p, v), {_u64(base, x)}, {_u64(size, x)})"
                return f"{names.c_field(header, field)} = {c_cast(code, width)};"
            case "modify_field_rng_uniform", (FieldRef(header, field), low, high):
                width = names.field(header, field, x.where).width
                drawn = c_cast("ss_random_between(s->random, low, high)", width)
                return (
                    f"{{ uint64_t low = {_u64(low, x)}, high = {_u64(high, x)}; "
                    f"if (low <= high) {names.c_field(header, field)} = {drawn}; }}"
                )
            case "mark_to_drop", (HeaderRef(name),):
                return self._mark_to_drop(name, x)
            case "truncate", (length,):
                # As in BMv2 the shortest counts.
                return (
                    f"{{ uint64_t n = {_u64(length, x)}; "
                    "if (n < p->truncated) p->truncated = (uint32_t)n; }"
                )
            case "generate_digest", (_, learn_list):
                return f"p->learn_list = (uint16_t)({_u64(learn_list, x)});"
            case (
                ("clone_ingress_pkt_to_egress" | "clone_egress_pkt_to_egress"),
                (session, fields),
            ):
                return (
                    f"p->clone_session = (uint16_t)(SS_CLONE_REQUESTED | ({_u64(session, x)} & "
                    f"0x7fff)); p->clone_list = (uint16_t)({_u64(fields, x)});"
                )
            case "resubmit", (fields,):
                return f"p->resubmit_list = (uint16_t)({_u64(fields, x)});"
            case "recirculate", (fields,):
                return f"p->recirculate_list = (uint16_t)({_u64(fields, x)});"
            case (
                ("push" | "pop"),
                (StackRef(name) | UnionStackRef(name), Const(count) | SizedConst(count, _)),
            ):
                return headers.shift_stack(names, primitive.op, name, count, x.where)
            case "exit", _:
                return "p->exit = true;"
            case (("no_op" | "log_msg"), _):
                return ";"
            case (("assert" | "assume"), (condition,)):
                text = (primitive.source or primitive.op).replace("\\", "\\\\").replace('"', '\\"')
                test = x.boolean(_expr(condition, x))
                return f'if (!({test})) s->assertion_failed(s->engine, "{x.where}: {text}");'
            case "_jump", (_,) if action is not None:
                return f"goto l{self._jump_target(primitive, action)};"
            case "_jump_if_zero", (condition, _) if action is not None:
                test = x.boolean(_expr(condition, x))
                return f"if (!({test})) goto l{self._jump_target(primitive, action)};"
            case op, args:
                kinds = ", ".join(type(arg).__name__ for arg in args)
                raise Unsupported(x.where, f"primitive {op}({kinds}) is not supported")

    def _assign(self, header: str, field: str, value: Expr, x: Expressions) -> str:
        declared = self._names.field(header, field, x.where)
        number = x.number(value)
        target = self._names.c_field(header, field)
        if number.low >= 0 and number.high < 1 << declared.width:
            return f"{target} = ({c_type(declared.width)})({number.code});"
        code = number.wide_code if declared.width > 64 else number.code
        return f"{target} = {c_cast(code, declared.width)};"

    def _mark_to_drop(self, name: str, x: Expressions) -> str:
        """`name` is a copy of the standard metadata when an action gets it as a parameter."""
        header = self._names.header(name, x.where)
        values = {"egress_spec": "s->drop_port", "mcast_grp": "0"}
        return " ".join(
            f"{self._names.c_field(name, field.name)} = {c_cast(values[field.name], field.width)};"
            for field in header.type.fields
            if field.name in values
        )

    def _execute_meter(self, name: str, index: str, header: str, field: str, x: Expressions) -> str:
        """Outside of the array nothing happens."""
        number = _find(self._meters, name, "meter", x)
        meter = self._names.program.meters[name]
        tokens = "p->counted_length" if meter.bytes else "1"
        color = f"ss_meter_execute(&s->meters[{number}][i], s->now_us, {tokens}, p)"
        width = self._names.field(header, field, x.where).width
        return (
            f"{{ uint64_t i = {index}; if (i < {meter.size}) "
            f"{self._names.c_field(header, field)} = {c_cast(color, width)}; }}"
        )

    def _register_read(self, header: str, field: str, name: str, index: str, x: Expressions) -> str:
        number = _find(self._registers, name, "register", x)
        register = self._names.program.registers[name]
        width = self._names.field(header, field, x.where).width
        cell = f"(({c_type(register.width)} *)s->registers[{number}])[i]"
        target = self._names.c_field(header, field)
        return (
            f"{{ uint64_t i = {index}; if (i < {register.size}) "
            f"{target} = {c_cast(cell, width)}; }}"
        )

    def _register_write(self, name: str, index: str, value: Expr, x: Expressions) -> str:
        number = _find(self._registers, name, "register", x)
        register = self._names.program.registers[name]
        written = x.number(value)
        code = written.wide_code if register.width > 64 else written.code
        cell = f"(({c_type(register.width)} *)s->registers[{number}])[i]"
        return (
            f"{{ uint64_t i = {index}; if (i < {register.size}) "
            f"{cell} = {c_cast(code, register.width)}; }}"
        )


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
    return f"(uint64_t)({x.number(_expr(arg, x)).code})"
