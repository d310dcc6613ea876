# SPDX-License-Identifier: Apache-2.0
"""Expressions of the JSON in C: `arithmetic` has the operations, `headers` the whole headers."""

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
    UnionStackRef,
)
from softswitch.codegen import arithmetic
from softswitch.codegen.arithmetic import Value, constant, field_value
from softswitch.codegen.headers import (
    HeaderPlace,
    header_place,
    same_header,
    same_varbit,
    union_valid,
)
from softswitch.codegen.layout import words_of
from softswitch.codegen.names import Names, c_member, field_of, literal
from softswitch.errors import BadProgram, Unsupported

_COMPARISONS = {"==", "!=", "<", "<=", ">", ">="}
_LOGIC = {"and": "&&", "or": "||"}
_BOOLEAN = _COMPARISONS | _LOGIC.keys() | {"not", "d2b", "valid", "valid_union"}
_HEADER_OPS = {"dereference_header_stack", "dereference_stack", "access_union_header"}
_ALL_BITS = 64  # of an index or amount: BMv2 takes the lowest 64


@dataclass(frozen=True, slots=True)
class FieldPlace:
    """A field of a header."""

    header: HeaderPlace
    field: Field

    @property
    def code(self) -> str:
        """Its lvalue."""
        return f"{self.header.code}.{c_member(self.field.name)}"


class Expressions:
    """The expressions of one place: `where` names it, `params` are an action's widths in bits."""

    def __init__(self, names: Names, where: str, params: Sequence[int] = ()) -> None:
        self.names = names
        self.where = where
        self._params = params

    # ---- numbers --------------------------------------------------------------------------------

    def number(self, expr: Expr, bits: int | None = None) -> Value:
        """The number that `expr` stands for.

        With `bits` only so many of its lowest bits need to be right, otherwise it is exact.
        """
        match expr:
            case Const(value):
                return constant(value)
            case FieldRef() | LastField() | LastUnionField() | Op("access_field", _, _, _):
                return self._read(self.place(expr))
            case Param(index):
                return self._param(index)
            case Op() if self.is_bool(expr):
                return _truth(self.boolean(expr))
            case Op():
                return self._operation(expr, bits)
            case BoolConst(flag):
                return constant(int(flag))
            case _:
                raise Unsupported(self.where, f"{expr} is not a number")

    def field(self, header: str, field: str) -> Value:
        """The value of a field, with its sign when the field is signed."""
        return self._read(self.place(FieldRef(header, field)))

    def _read(self, place: FieldPlace) -> Value:
        field = place.field
        if field.varbit:
            raise Unsupported(self.where, f"{field.name} of variable length is not a number")
        value = field_value(place.code, field.width, signed=field.signed)
        code = place.header.value(value.code, literal(0, value.limbs))
        return Value(code, value.low, value.high, value.limbs)

    def _param(self, index: int) -> Value:
        if index >= len(self._params):
            raise BadProgram(f"{self.where}: there is no parameter {index}")
        at = sum(words_of(width) for width in self._params[:index])
        return arithmetic.param_value("d", at, self._params[index])

    def _operation(self, expr: Op, bits: int | None) -> Value:
        op, right = expr.op, self._right(expr)
        if op == "?":
            return self._choice(expr, bits)
        if op == "b2d":
            return _truth(self.boolean(right))
        if op in ("last_stack_index", "size_stack"):
            return self._stack(op, right)
        if op == "~":
            return arithmetic.complement(self.number(right, bits), bits)
        if expr.left is None:
            if op in ("+", "-"):
                operand = self.number(right, bits)
                return arithmetic.ring(op, constant(0), operand, bits, self.where)
            raise Unsupported(self.where, f"operation {op} with one operand")
        return self._binary(op, expr.left, right, bits)

    def _binary(self, op: str, left: Expr, right: Expr, bits: int | None) -> Value:
        where = self.where
        match op:
            case "&":
                a = self.number(left, _least(bits, self._positive_bits(right)))
                b = self.number(right, _least(bits, self._positive_bits(left)))
                return arithmetic.ring(op, a, b, bits, where)
            case _ if op in arithmetic.RING:
                a, b = self.number(left, bits), self.number(right, bits)
                return arithmetic.ring(op, a, b, bits, where)
            case "<<":
                by = self.number(right, _ALL_BITS)
                return arithmetic.shift_left(self.number(left, bits), by, bits, where)
            case ">>":
                by = self.number(right, _ALL_BITS)
                known = bits is not None and by.low == by.high
                needed = 64 * words_of(bits or 0) + by.low if known else None
                return arithmetic.shift_right(self.number(left, needed), by, bits, where)
            case "/" | "%":
                return arithmetic.divide(op, self.number(left), self.number(right), where)
            case "two_comp_mod":
                width = self._width(right, op)
                return arithmetic.two_comp_mod(self.number(left, width), width)
            case "usat_cast" | "sat_cast":
                width = self._width(right, op)
                return arithmetic.saturate(self.number(left), width, signed=op == "sat_cast")
            case _:
                raise Unsupported(where, f"operation {op} is not supported")

    def _positive_bits(self, expr: Expr) -> int | None:
        """Bits of an operand of &, beyond which the other one does not count; None: unlimited."""
        match expr:
            case Const(value) if value >= 0:
                return value.bit_length()
            case Param(index) if index < len(self._params):
                return self._params[index]
            case FieldRef(header, field):
                declared = self.names.field(header, field, self.where)
                return None if declared.signed else declared.width
            case Op("&", left, right, _) if left is not None and not isinstance(right, int):
                return _least(self._positive_bits(left), self._positive_bits(right))
            case _:
                return None

    def _width(self, expr: Expr, op: str) -> int:
        match expr:
            case Const(value) if value >= 1:
                return value
            case _:
                raise Unsupported(self.where, f"{op} to a width that is not a constant")

    def _choice(self, expr: Op, bits: int | None) -> Value:
        if expr.condition is None or expr.left is None:
            raise BadProgram(f"{self.where}: ? without condition or left side")
        yes, no = self.number(expr.left, bits), self.number(self._right(expr), bits)
        return arithmetic.choose(self.boolean(expr.condition), yes, no, bits)

    def _stack(self, op: str, stack: Expr) -> Value:
        match stack:
            case StackRef(name):
                size = len(self.names.stack(name, self.where).headers)
            case UnionStackRef(name):
                size = len(self.names.union_stack(name, self.where).unions)
            case _:
                raise BadProgram(f"{self.where}: {op} of something that is not a stack")
        filled = self.names.c_next(name)
        if op == "size_stack":
            return Value(f"(uint64_t){filled}", 0, size, 1)
        # BMv2 has a 64-bit number here: the index in an empty stack is its greatest.
        return Value(f"((uint64_t){filled} - 1)", 0, (1 << 64) - 1, 1)

    def _right(self, expr: Op) -> Expr:
        if isinstance(expr.right, int):
            raise Unsupported(self.where, f"{expr.op} by index is not a number")
        return expr.right

    # ---- places ---------------------------------------------------------------------------------

    def place(self, expr: Expr, index: str = "at_") -> FieldPlace:
        """The field that `expr` names; `index` is a C variable for a run-time index."""
        names, where = self.names, self.where
        match expr:
            case FieldRef(header, field):
                place = header_place(names, header, where)
                return FieldPlace(place, names.field(header, field, where))
            case LastField(stack, field):
                place = self._last(stack)
                return FieldPlace(place, field_of(place.type, field, where))
            case LastUnionField(stack, member, field):
                header_type = names.union_member(stack, member, where)
                code = names.c_union_element(stack, member, self._last_index(stack))
                place = HeaderPlace(header_type, code)
                return FieldPlace(place, field_of(header_type, field, where))
            case Op("access_field", left, int(number), _) if left is not None:
                place = self.header(left, index)
                if number >= len(place.type.fields):
                    raise BadProgram(f"{where}: {place.type.name} has no field {number}")
                return FieldPlace(place, place.type.fields[number])
            case Op("b2d", None, Op("d2b", None, field, _), _) if not isinstance(field, int):
                # How p4c writes a bool of an element that is assigned to. BMv2 loses the value.
                return self.place(field, index)
            case _:
                raise Unsupported(where, f"{expr} is not a field")

    def is_header(self, expr: object) -> bool:
        """Whether `expr` names a whole header."""
        match expr:
            case HeaderRef() | LastField(_, "last"):
                return True
            case Op(op, _, _, _):
                return op in _HEADER_OPS
            case _:
                return False

    def header(self, expr: Expr, index: str = "at_") -> HeaderPlace:
        """The header that `expr` names; `index` is a C variable for a run-time index."""
        names = self.names
        match expr:
            case HeaderRef(name):
                return header_place(names, name, self.where)
            case LastField(name, "last"):
                return self._last(name)
            case Op("dereference_header_stack" | "dereference_stack", StackRef(name), by, _):
                stack = names.stack(name, self.where)
                before, inside = self._index(by, index, len(stack.headers))
                code = names.c_element(name, index)
                return HeaderPlace(stack.type, code, (), before, inside)
            case Op("access_union_header", union, int(number), _) if union is not None:
                return self._union_member(union, number, index)
            case _:
                raise Unsupported(self.where, f"{expr} is not a header")

    def _index(self, by: Expr | int, index: str, size: int) -> tuple[str, str]:
        """C code that declares the variable `index`, and whether it is below `size`.

        BMv2 ends when it is not; here nothing is there: reads give 0, writes do nothing.
        """
        if isinstance(by, int):
            raise BadProgram(f"{self.where}: the index {by} of a stack is not an expression")
        code = self.number(by, _ALL_BITS).u64
        return f"uint64_t {index} = {code};", f"{index} < {size}"

    def _union_member(self, union: Expr, number: int, index: str) -> HeaderPlace:
        names = self.names
        match union:
            case UnionRef(name):
                members = list(names.union(name, self.where).members.values())
                if number < len(members):
                    return self.header(HeaderRef(members[number]))
            case Op("dereference_union_stack", UnionStackRef(name), by, _):
                unions = names.union_stack(name, self.where).unions
                keys = list(names.union(unions[0], self.where).members)
                before, inside = self._index(by, index, len(unions))
                codes = [names.c_union_element(name, key, index) for key in keys]
                if number < len(keys):
                    header_type = names.union_member(name, keys[number], self.where)
                    code = codes.pop(number)
                    return HeaderPlace(header_type, code, tuple(codes), before, inside)
            case _:
                raise Unsupported(self.where, f"{union} is not a header union")
        raise BadProgram(f"{self.where}: union {name!r} has no member {number}")

    def _last(self, stack: str) -> HeaderPlace:
        header_type = self.names.stack(stack, self.where).type
        return HeaderPlace(header_type, self.names.c_element(stack, self._last_index(stack)))

    def _last_index(self, stack: str) -> str:
        """Of an empty stack it is the first element: the index must be one of the array's."""
        filled = self.names.c_next(stack)
        return f"({filled} ? {filled} - 1 : 0)"

    # ---- conditions -----------------------------------------------------------------------------

    def is_bool(self, expr: Expr) -> bool:
        """Whether `expr` is true or false, rather than a number."""
        match expr:
            case BoolConst():
                return True
            case Op("?", left, _, _) if left is not None:
                return self.is_bool(left)
            case Op(op, _, _, _):
                return op in _BOOLEAN
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
                return arithmetic.nonzero(self.number(right))
            case Op("valid", None, right, _) if not isinstance(right, int):
                header = self.header(right)
                return header.value(f"({header.code}.valid != 0)", "false")
            case Op("valid_union", None, UnionRef(name) | HeaderRef(name), _):
                return f"({union_valid(self.names, name, self.where)} != 0)"
            case Op("?", left, right, condition) if left and condition and self.is_bool(expr):
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
                return arithmetic.nonzero(self.number(expr))

    def _compare(self, op: str, left: Expr, right: Expr) -> str:
        if self.is_bool(left) and self.is_bool(right):
            return f"((bool)({self.boolean(left)}) {op} (bool)({self.boolean(right)}))"
        if op in ("==", "!=") and (test := self._same_whole(left, right)):
            return test if op == "==" else f"!{test}"
        return arithmetic.compare(op, self.number(left), self.number(right))

    def _same_whole(self, left: Expr, right: Expr) -> str:
        """C code of whether two headers, unions or variable-length fields are equal; else ""."""
        names, where = self.names, self.where
        match left, right:
            case UnionRef(a), UnionRef(b):
                mine, other = names.union(a, where).members, names.union(b, where).members
                pairs = zip(mine.values(), other.values(), strict=True)
                tests = [self._same_whole(HeaderRef(x), HeaderRef(y)) for x, y in pairs]
                return f"({' || '.join(tests)})"
            case FieldRef(a, field), FieldRef(b, other_field):
                places = ((a, field), (b, other_field))
                if all(names.field(*place, where).varbit for place in places):
                    return same_varbit(names, *places)
            case _ if self.is_header(left) and self.is_header(right):
                a_place, b_place = self.header(left, "at_left"), self.header(right, "at_right")
                test = same_header(a_place, b_place, where)
                return a_place.value(b_place.value(test, "false"), "false")
        return ""


def _least(a: int | None, b: int | None) -> int | None:
    """The lower of two limits, of which None is none."""
    given = [bits for bits in (a, b) if bits is not None]
    return min(given) if given else None


def _truth(condition: str) -> Value:
    return Value(f"(uint64_t)({condition})", 0, 1, 1)
