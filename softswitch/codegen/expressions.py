# SPDX-License-Identifier: Apache-2.0
"""Expressions of the JSON in C.

BMv2 computes with integers of unlimited size, so each value carries the interval in which it lies,
and from that follows how C may hold it: in a uint64_t, or in 128 bits of two's complement. What
does not fit those is still right modulo 2^128, which is enough below a mask; where more would be
needed (a comparison, a shift to the right) the program is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softswitch.bmjson import (
    BoolConst,
    Const,
    Expr,
    Field,
    FieldRef,
    HeaderRef,
    LastField,
    LastUnionField,
    Op,
    Param,
    StackRef,
    UnionRef,
)
from softswitch.codegen.headers import same_varbit, union_valid
from softswitch.codegen.layout import words_of
from softswitch.codegen.names import Names, c_member, field_of, literal, mask_of
from softswitch.errors import BadProgram, Unsupported

_RING = {"+", "-", "*", "&", "|", "^", "<<"}
_COMPARISONS = {"==", "!=", "<", "<=", ">", ">="}
_LOGIC = {"and": "&&", "or": "||"}
_HUGE_SHIFT = 256


@dataclass(frozen=True, slots=True)
class Value:
    """C code of a number that lies in low..high; `code` is a uint64_t when `small`."""

    code: str
    low: int
    high: int

    @property
    def small(self) -> bool:
        """Held as a uint64_t, otherwise as an ss_u128 in two's complement."""
        return self.low >= 0 and self.high < 1 << 64

    @property
    def unsigned(self) -> bool:
        """Whether 128 bits without sign hold it exactly."""
        return self.low >= 0 and self.high < 1 << 128

    @property
    def signed(self) -> bool:
        """Whether 128 bits with sign hold it exactly."""
        return self.low >= -(1 << 127) and self.high < 1 << 127

    @property
    def wide_code(self) -> str:
        """The value as an ss_u128."""
        return f"(ss_u128)({self.code})" if self.small else self.code


class Expressions:
    """The expressions of one place: `where` names it, `params` are an action's widths in bits."""

    def __init__(self, names: Names, where: str, params: Sequence[int] = ()) -> None:
        self.names = names
        self.where = where
        self._params = params

    # ---- numbers --------------------------------------------------------------------------------

    def number(self, expr: Expr) -> Value:
        """The number that `expr` stands for."""
        match expr:
            case Const(value):
                return constant(value)
            case FieldRef(header, field):
                return self.field(header, field)
            case LastField(stack, field):
                return self._last(stack, field)
            case LastUnionField(stack, member, field):
                return self._last_in_union(stack, member, field)
            case Param(index):
                return self._param(index)
            case Op() if self.is_bool(expr):
                return Value(f"(uint64_t)({self.boolean(expr)})", 0, 1)
            case Op():
                return self._operation(expr)
            case BoolConst(flag):
                return constant(int(flag))
            case _:
                raise Unsupported(self.where, f"{expr} is not a number")

    def field(self, header: str, field: str) -> Value:
        """The value of a field, sign-extended when the field is signed."""
        declared = self.names.field(header, field, self.where)
        return self._read(self.names.c_header(header), declared)

    def _read(self, c_header: str, declared: Field) -> Value:
        code = f"{c_header}.{c_member(declared.name)}"
        if declared.varbit:
            raise Unsupported(self.where, f"{declared.name} of variable length is not a number")
        if declared.signed:
            return _signed_field(code, declared.width)
        return _unsigned_field(code, declared.width)

    def _last(self, stack: str, field: str) -> Value:
        declared = field_of(self.names.stack(stack, self.where).type, field, self.where)
        return self._read(self.names.c_element(stack, self._last_index(stack)), declared)

    def _last_in_union(self, stack: str, member: str, field: str) -> Value:
        header_type = self.names.union_member(stack, member, self.where)
        element = self.names.c_union_element(stack, member, self._last_index(stack))
        return self._read(element, field_of(header_type, field, self.where))

    def _last_index(self, stack: str) -> str:
        """Of an empty stack it is the first element: the index must be one of the array's."""
        filled = self.names.c_next(stack)
        return f"({filled} ? {filled} - 1 : 0)"

    def _param(self, index: int) -> Value:
        if index >= len(self._params):
            raise BadProgram(f"{self.where}: there is no parameter {index}")
        at = sum(words_of(width) for width in self._params[:index])
        width = self._params[index]
        if width <= 64:
            return Value(f"d[{at}]", 0, mask_of(width))
        if width > 128:
            raise Unsupported(self.where, f"parameter {index} has {width} bits; at most 128")
        return Value(f"ss_big(d[{at + 1}], d[{at}])", 0, mask_of(width))

    def _operation(self, expr: Op) -> Value:
        op = expr.op
        if op == "?":
            return self._choice(expr)
        if op == "b2d":
            return Value(f"(uint64_t)({self.boolean(_right(expr))})", 0, 1)
        if op in ("last_stack_index", "size_stack"):
            return self._stack(op, _right(expr))
        right = self.number(_right(expr))
        if op == "~":
            return _modular("~", None, right, -right.high - 1, -right.low - 1)
        if expr.left is None:
            if op in ("+", "-"):
                return _binary(op, constant(0), right, self.where)
            raise Unsupported(self.where, f"operation {op} with one operand")
        left = self.number(expr.left)
        if op in ("usat_cast", "sat_cast") and right.low == right.high == 128:
            return self._saturate128(op, expr.left, left)
        if op == "two_comp_mod":
            return _two_comp_mod(left, self._width(right, op))
        if op in ("usat_cast", "sat_cast"):
            return self._saturate(op, left, self._width(right, op))
        return _binary(op, left, right, self.where)

    def _width(self, value: Value, op: str) -> int:
        if value.low != value.high or not 1 <= value.low <= 128:
            raise Unsupported(self.where, f"{op} to a width that is not a constant of 1 to 128")
        return value.low

    def _saturate(self, op: str, value: Value, width: int) -> Value:
        low, high = (0, mask_of(width)) if op == "usat_cast" else _signed_bounds(width)
        if not value.signed or high >= 1 << 127:
            raise Unsupported(self.where, f"{op} of a value that does not fit 128 bits")
        code = f"SS_CLAMP((ss_i128)({value.wide_code}), {_signed(low)}, {_signed(high)})"
        return _as_value(f"(ss_u128)({code})", low, high)

    def _saturate128(self, op: str, expr: Expr, value: Value) -> Value:
        """Saturation to the widest type: what it saturates has itself no room for its result."""
        low, high = (0, mask_of(128)) if op == "usat_cast" else _signed_bounds(128)
        if low <= value.low and value.high <= high:
            return value
        if isinstance(expr, Op) and expr.op in ("+", "-") and expr.left is not None:
            a, b = self.number(expr.left), self.number(_right(expr))
            if low <= min(a.low, b.low) and max(a.high, b.high) <= high:
                name = "add" if expr.op == "+" else "sub"
                kind = "u" if op == "usat_cast" else ""
                code = f"ss_{kind}sat_{name}128({a.wide_code}, {b.wide_code})"
                return Value(f"(ss_u128){code}", low, high)
        raise Unsupported(self.where, f"{op} of a value that does not fit 128 bits")

    def _choice(self, expr: Op) -> Value:
        if expr.condition is None or expr.left is None:
            raise BadProgram(f"{self.where}: ? without condition or left side")
        yes, no = self.number(expr.left), self.number(_right(expr))
        condition = self.boolean(expr.condition)
        low, high = min(yes.low, no.low), max(yes.high, no.high)
        if yes.small and no.small:
            return Value(f"({condition} ? {yes.code} : {no.code})", low, high)
        return _as_value(f"({condition} ? {yes.wide_code} : {no.wide_code})", low, high)

    def _stack(self, op: str, stack: Expr) -> Value:
        if not isinstance(stack, StackRef) or stack.name not in self.names.program.stacks:
            raise BadProgram(f"{self.where}: {op} of something that is not a stack")
        size = len(self.names.program.stacks[stack.name].headers)
        if op == "size_stack":
            return constant(size)
        code = f"({self.names.c_next(stack.name)} - 1u)"
        return Value(f"(uint64_t){code}", 0, 0xFFFFFFFF)

    # ---- conditions -----------------------------------------------------------------------------

    def is_bool(self, expr: Expr) -> bool:
        """Whether `expr` is true or false, rather than a number."""
        match expr:
            case BoolConst():
                return True
            case Op("?", left, _, _) if left is not None:
                return self.is_bool(left)
            case Op(op, _, _, _):
                return (
                    op in _COMPARISONS
                    or op in _LOGIC
                    or op in ("not", "d2b", "valid", "valid_union")
                )
            case _:
                return False

    def boolean(self, expr: Expr) -> str:
        """C code of a condition."""
        match expr:
            case BoolConst(flag):
                return "true" if flag else "false"
            case Op("not", None, right, _) if not isinstance(right, int):
                return f"!({self.boolean(right)})"
            case Op("d2b", None, right, _) if not isinstance(right, int):
                value = self.number(right)
                return f"(({value.code}) != 0)"
            case Op("valid", None, HeaderRef(name), _):
                self.names.header(name, self.where)
                return f"({self.names.c_field(name, '$valid$')} != 0)"
            case Op("valid_union", None, UnionRef(name) | HeaderRef(name), _):
                return f"({union_valid(self.names, name, self.where)} != 0)"
            case Op("?", left, right, condition) if left and condition:
                assert not isinstance(right, int)
                choice, yes, no = map(self.boolean, (condition, left, right))
                return f"({choice} ? {yes} : {no})"
            case Op(op, left, right, _) if op in _LOGIC and left and not isinstance(right, int):
                return f"({self.boolean(left)} {_LOGIC[op]} {self.boolean(right)})"
            case Op(op, left, right, _) if op in _COMPARISONS and left:
                assert not isinstance(right, int)
                return self._compare(op, left, right)
            case Op(op, _, _, _) if self.is_bool(expr):
                raise Unsupported(self.where, f"{op} of {expr.right}")
            case _:
                value = self.number(expr)
                return f"(({value.code}) != 0)"

    def _compare(self, op: str, left: Expr, right: Expr) -> str:
        if self.is_bool(left) and self.is_bool(right):
            return f"((bool)({self.boolean(left)}) {op} (bool)({self.boolean(right)}))"
        if isinstance(left, HeaderRef | StackRef) or isinstance(right, HeaderRef | StackRef):
            raise Unsupported(self.where, f"{op} between whole headers")
        if isinstance(left, FieldRef) and isinstance(right, FieldRef):
            places = ((left.header, left.field), (right.header, right.field))
            if all(self.names.field(*place, self.where).varbit for place in places):
                test = same_varbit(self.names, *places)
                return test if op == "==" else f"!{test}"
        a, b = self.number(left), self.number(right)
        if a.small and b.small:
            return f"({a.code} {op} {b.code})"
        if a.unsigned and b.unsigned:
            return f"({a.wide_code} {op} {b.wide_code})"
        if a.signed and b.signed:
            return f"((ss_i128)({a.wide_code}) {op} (ss_i128)({b.wide_code}))"
        raise Unsupported(self.where, f"{op} between values that do not fit 128 bits")


def constant(value: int) -> Value:
    """A constant of any size."""
    if 0 <= value < 1 << 64:
        return Value(f"{value:#x}ull", value, value)
    return Value(literal(value % (1 << 128)) if value >> 64 else "0ull", value, value)


def _right(expr: Op) -> Expr:
    if isinstance(expr.right, int):
        raise Unsupported(expr.op, "access by index is not supported here")
    return expr.right


def _unsigned_field(code: str, width: int) -> Value:
    return Value(f"(uint64_t){code}" if width <= 64 else code, 0, mask_of(width))


def _signed_field(code: str, width: int) -> Value:
    low, high = _signed_bounds(width)
    extend = f"ss_extend64({code}, {width})" if width <= 64 else f"ss_extend128({code}, {width})"
    return Value(f"(ss_u128)(ss_i128){extend}", low, high)


def _signed_bounds(width: int) -> tuple[int, int]:
    return -(1 << width - 1), (1 << width - 1) - 1


def _signed(value: int) -> str:
    return f"-(ss_i128){literal(-value)}" if value < 0 else f"(ss_i128){literal(value)}"


def _as_value(wide: str, low: int, high: int) -> Value:
    """A value of which `wide` is ss_u128 code, in whichever form its interval asks for."""
    if low >= 0 and high < 1 << 64:
        return Value(f"(uint64_t)({wide})", low, high)
    return Value(wide, low, high)


def _two_comp_mod(value: Value, width: int) -> Value:
    low, high = _signed_bounds(width)
    if value.low >= low and value.high <= high:
        return value
    return Value(f"(ss_u128)ss_extend128({value.wide_code}, {width})", low, high)


def _modular(op: str, left: Value | None, right: Value, low: int, high: int) -> Value:
    """An operation that is right modulo any power of two when its operands are."""
    if low >= 0 and high < 1 << 64:
        a = f"(uint64_t)({left.code}) " if left else ""
        return Value(f"({a}{op} (uint64_t)({right.code}))", low, high)
    a = f"{left.wide_code} " if left else ""
    return Value(f"({a}{op} {right.wide_code})", low, high)


def _binary(op: str, a: Value, b: Value, where: str) -> Value:
    if op in ("<<", ">>"):
        return _shift(op, a, b, where)
    if op in _RING:
        return _modular(op, a, b, *_ring_bounds(op, a, b))
    if op in ("/", "%"):
        if not (a.unsigned and b.unsigned):
            raise Unsupported(where, f"{op} of values that may be negative or over 128 bits")
        name = "SS_DIV" if op == "/" else "SS_MOD"
        high = a.high if op == "/" else max(b.high - 1, 0)
        if a.small and b.small:
            return Value(f"{name}({a.code}, {b.code})", 0, high)
        return _as_value(f"{name}({a.wide_code}, {b.wide_code})", 0, high)
    raise Unsupported(where, f"operation {op} is not supported")


def _ring_bounds(op: str, a: Value, b: Value) -> tuple[int, int]:
    if op == "+":
        return a.low + b.low, a.high + b.high
    if op == "-":
        return a.low - b.high, a.high - b.low
    if op == "*":
        corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        return min(corners), max(corners)
    positive = [value.high for value in (a, b) if value.low >= 0]
    if op == "&" and positive:
        return 0, min(positive)
    bits = max(v.bit_length() for v in (a.low, a.high, b.low, b.high))
    return (0, mask_of(bits)) if len(positive) == 2 else (-(1 << bits), mask_of(bits))


def _shift(op: str, a: Value, b: Value, where: str) -> Value:
    if b.low < 0 or not b.small:
        raise Unsupported(where, f"{op} by an amount that may be negative or over 64 bits")
    if op == "<<":
        most = min(b.high, _HUGE_SHIFT)
        low, high = min(a.low << most, a.low), a.high << most
        small = a.small and high < 1 << 64
    else:
        if not (a.unsigned or a.signed):
            raise Unsupported(where, ">> of a value that does not fit 128 bits")
        low, high = min(a.low, 0), a.high >> b.low if a.high >= 0 else a.high
        small = a.small
    fixed = b.low == b.high
    if small:
        if fixed:
            return Value(f"({a.code} {op} {b.low})" if b.low < 64 else "0ull", low, high)
        return Value(f"ss_{'shl' if op == '<<' else 'shr'}64({a.code}, {b.code})", low, high)
    if a.low < 0 and op == ">>":
        return _as_value(f"(ss_u128)ss_sar128((ss_i128){a.wide_code}, {b.code})", low, high)
    if fixed:
        code = f"({a.wide_code} {op} {b.low})" if b.low < 128 else "(ss_u128)0"
    else:
        code = f"ss_{'shl' if op == '<<' else 'shr'}128({a.wide_code}, {b.code})"
    return _as_value(code, low, high)
