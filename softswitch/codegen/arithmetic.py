# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on numbers of any size in C.

BMv2 computes with integers of unlimited size, so each value carries the interval in which it lies.
C holds it in 64-bit limbs of two's complement: one limb is a uint64_t, two are an ss_u128, more a
struct ss_w<n> of csrc/wide.h. There are as many limbs as the interval needs; fewer when whoever
uses the value looks at its lowest bits only, which is what a mask or a field makes of most results.
"""

from __future__ import annotations

from dataclasses import dataclass

from softswitch.codegen.layout import WORD_BITS, words_of
from softswitch.codegen.names import c_type, literal, mask_of
from softswitch.errors import Unsupported

MAX_LIMBS = 1024
"""Limit of a value's size, so that an absurd shift is refused and not computed."""

_MAX_SHIFT = MAX_LIMBS * WORD_BITS
_WIDE_NAMES = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor"}

RING = frozenset(_WIDE_NAMES)
"""Operations whose low bits follow from the low bits of their operands."""


@dataclass(frozen=True, slots=True)
class Value:
    """C code of a number that lies in low..high, modulo 2^(64 * limbs)."""

    code: str
    low: int
    high: int
    limbs: int

    @property
    def unsigned(self) -> bool:
        """Whether the limbs hold it exactly when they are read without sign."""
        return self.low >= 0 and self.high < 1 << WORD_BITS * self.limbs

    @property
    def signed(self) -> bool:
        """Whether the limbs hold it exactly when they are read with sign."""
        half = 1 << WORD_BITS * self.limbs - 1
        return -half <= self.low and self.high < half

    @property
    def small(self) -> bool:
        """Whether a uint64_t holds it exactly."""
        return self.unsigned and self.limbs == 1

    @property
    def u64(self) -> str:
        """Its lowest 64 bits as a uint64_t."""
        return self.at(1)

    def at(self, limbs: int) -> str:
        """The code of it in so many limbs: cut, or extended by its sign."""
        if self.low == self.high:
            return literal(self.low, limbs)
        if limbs == self.limbs:
            return self.code
        sign = self.low < 0
        if limbs == 1:
            return f"(uint64_t)({self.code})" if self.limbs == 2 else f"({self.code}).limb[0]"
        if self.limbs > 2:
            if limbs == 2:
                return f"ss_w{self.limbs}_low({self.code})"
            return f"ss_w{limbs}_of(({self.code}).limb, {self.limbs}, {int(sign)})"
        two = self.code
        if self.limbs == 1:
            two = f"(ss_i128)(int64_t)({two})" if sign else f"(ss_u128)({two})"
        if limbs == 2:
            return f"(ss_u128){two}"
        return f"ss_w{limbs}_of_{'i' if sign else 'u'}128({two})"


def constant(value: int) -> Value:
    """A constant of any size."""
    limbs = _limbs_for(value, value)
    return Value(literal(value, limbs), value, value, limbs)


def signed_bounds(width: int) -> tuple[int, int]:
    """Least and greatest number of an int<width>."""
    return -(1 << width - 1), (1 << width - 1) - 1


def field_value(code: str, width: int, *, signed: bool) -> Value:
    """The number in a field or cell, `code` being an lvalue of `c_type(width)`."""
    limbs = words_of(width)
    if not signed:
        return Value(f"(uint64_t){code}" if limbs == 1 else code, 0, mask_of(width), limbs)
    return Value(_extended(code, width), *signed_bounds(width), limbs)


def param_value(data: str, at: int, width: int) -> Value:
    """The number in the words of an action's parameter, which begin at `data[at]`."""
    limbs = words_of(width)
    match limbs:
        case 1:
            code = f"{data}[{at}]"
        case 2:
            code = f"ss_big({data}[{at + 1}], {data}[{at}])"
        case _:
            code = f"ss_w{limbs}_of({data} + {at}, {limbs}, 0)"
    return Value(code, 0, mask_of(width), limbs)


def stored(value: Value, width: int) -> str:
    """The value cut to `width` bits, as the C type of such a field."""
    limbs = words_of(width)
    code = value.at(limbs)
    fits = value.low >= 0 and value.high < 1 << width
    if limbs > 2:
        return code if fits or width % WORD_BITS == 0 else f"ss_w{limbs}_cut({code}, {width})"
    kind = c_type(width)
    if fits or width in (8, 16, 32, 64, 128):
        return f"({kind})({code})"
    return f"({kind})(({code}) & {literal(mask_of(width), limbs)})"


def _limbs_for(low: int, high: int, bits: int | None = None) -> int:
    """Limbs that hold low..high exactly, or of which the lowest `bits` bits are right."""
    if low >= 0:
        limbs = words_of(high.bit_length())
    else:
        limbs = words_of(max((~low).bit_length(), high.bit_length()) + 1)
    return limbs if bits is None else min(limbs, words_of(bits))


def _made(code: str, low: int, high: int, limbs: int) -> Value:
    """A value that was computed in `limbs` limbs, in as few as its interval needs."""
    value = Value(code, low, high, limbs)
    fewer = _limbs_for(low, high)
    return Value(value.at(fewer), low, high, fewer) if fewer < limbs else value


def _require(limbs: int, where: str) -> None:
    if limbs > MAX_LIMBS:
        most = MAX_LIMBS * WORD_BITS
        raise Unsupported(where, f"a number of {limbs * WORD_BITS} bits; at most {most}")


# ---- operations ----------------------------------------------------------------------------------


def ring(op: str, a: Value, b: Value, bits: int | None, where: str) -> Value:
    """+ - * & | ^ of which the lowest `bits` bits (None: all) are needed."""
    low, high = _ring_bounds(op, a, b)
    limbs = _limbs_for(low, high, bits)
    _require(limbs, where)
    if limbs > 2:
        code = f"ss_w{limbs}_{_WIDE_NAMES[op]}({a.at(limbs)}, {b.at(limbs)})"
    else:
        code = f"({a.at(limbs)} {op} {b.at(limbs)})"
    return Value(code, low, high, limbs)


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


def complement(a: Value, bits: int | None) -> Value:
    """~a."""
    low, high = -a.high - 1, -a.low - 1
    limbs = _limbs_for(low, high, bits)
    code = f"ss_w{limbs}_not({a.at(limbs)})" if limbs > 2 else f"(~{a.at(limbs)})"
    return Value(code, low, high, limbs)


def divide(op: str, a: Value, b: Value, where: str) -> Value:
    """/ and % of exact values that are not negative; by 0 they give 0."""
    if a.low < 0 or b.low < 0:
        raise Unsupported(where, f"{op} of values that may be negative")
    high = a.high if op == "/" else min(a.high, max(b.high - 1, 0))
    limbs = max(a.limbs, b.limbs)
    x, y = a.at(limbs), b.at(limbs)
    if limbs > 2:
        code = f"ss_w{limbs}_{'div' if op == '/' else 'mod'}({x}, {y})"
    else:
        code = f"ss_{'div' if op == '/' else 'mod'}{WORD_BITS * limbs}({x}, {y})"
    return _made(code, 0, high, limbs)


def shift_left(a: Value, by: Value, bits: int | None, where: str) -> Value:
    """a << by. As in BMv2 the lowest 64 bits of the amount count."""
    if by.low < 0:
        raise Unsupported(where, "<< by an amount that may be negative")
    if bits is None and by.high > _MAX_SHIFT:
        raise Unsupported(where, f"<< by more than {_MAX_SHIFT} without a mask over the result")
    most = min(by.high, max(_MAX_SHIFT, bits or 0))
    low, high = min(a.low << most, a.low), max(a.high << most, a.high)
    limbs = _limbs_for(low, high, bits)
    _require(limbs, where)
    return Value(_shifted("shl", a.at(limbs), by, limbs), low, high, limbs)


def shift_right(a: Value, by: Value, bits: int | None, where: str) -> Value:
    """a >> by, rounding down.

    `a` must be exact, or right in the lowest 64 * words_of(bits) + by bits.
    """
    if by.low < 0:
        raise Unsupported(where, ">> by an amount that may be negative")
    least = min(by.low, _MAX_SHIFT) if by.unsigned else 0
    most = min(by.high, _MAX_SHIFT)
    low = a.low >> (least if a.low < 0 else most)
    high = a.high >> (most if a.high < 0 else least)
    name = "shr" if a.unsigned or not a.signed else "sar"
    limbs = _limbs_for(low, high, bits)
    value = Value(_shifted(name, a.code, by, a.limbs), low, high, a.limbs)
    return Value(value.at(limbs), low, high, limbs) if limbs < a.limbs else value


def _shifted(name: str, code: str, by: Value, limbs: int) -> str:
    """shl, shr or sar in so many limbs; amounts of any size are good."""
    width = WORD_BITS * limbs
    if limbs > 2:
        return f"ss_w{limbs}_{name}({code}, {by.u64})"
    if by.low == by.high and name != "sar":
        if by.low >= width:
            return literal(0, limbs)
        return f"({code} {'<<' if name == 'shl' else '>>'} {by.low})"
    kind = "uint64_t" if limbs == 1 else "ss_u128"
    if name == "sar":
        return f"({kind})ss_sar{width}(({_signed_type(limbs)})({code}), {by.u64})"
    return f"ss_{name}{width}({code}, {by.u64})"


def _signed_type(limbs: int) -> str:
    return "int64_t" if limbs == 1 else "ss_i128"


def _extended(code: str, width: int) -> str:
    """The low `width` bits as a signed number, in as many limbs as they take."""
    limbs = words_of(width)
    if limbs > 2:
        return f"ss_w{limbs}_extend({code}, {width})"
    kind = "uint64_t" if limbs == 1 else "ss_u128"
    return f"({kind})ss_extend{WORD_BITS * limbs}({code}, {width})"


def two_comp_mod(value: Value, width: int) -> Value:
    """The low `width` bits, which must be right, as a signed number."""
    low, high = signed_bounds(width)
    if low <= value.low and value.high <= high:
        return value
    limbs = words_of(width)
    return Value(_extended(value.at(limbs), width), low, high, limbs)


def saturate(value: Value, width: int, *, signed: bool) -> Value:
    """An exact value, or the end of the range of bit<width> or int<width> that it is beyond."""
    low, high = signed_bounds(width) if signed else (0, mask_of(width))
    if low <= value.low and value.high <= high:
        return value
    low, high = min(max(low, value.low), high), max(min(high, value.high), low)
    if value.low >= 0:
        limbs = _limbs_for(0, value.high)
        name, ends = "umin", literal(high, limbs)
    else:
        limbs = _limbs_for(min(value.low, -1), value.high)
        name, ends = "clamp", f"{literal(low, limbs)}, {literal(high, limbs)}"
    prefix = f"ss_w{limbs}_{name}" if limbs > 2 else f"ss_{name}{WORD_BITS * limbs}"
    return _made(f"{prefix}({value.at(limbs)}, {ends})", low, high, limbs)


def choose(condition: str, yes: Value, no: Value, bits: int | None) -> Value:
    """One of two values."""
    low, high = min(yes.low, no.low), max(yes.high, no.high)
    limbs = _limbs_for(low, high, bits)
    return Value(f"({condition} ? {yes.at(limbs)} : {no.at(limbs)})", low, high, limbs)


def compare(op: str, a: Value, b: Value) -> str:
    """C code of a comparison of two exact values."""
    signed = a.low < 0 or b.low < 0
    limbs = _limbs_for(min(a.low, b.low), max(a.high, b.high))
    x, y = a.at(limbs), b.at(limbs)
    if limbs > 2:
        if op in ("==", "!="):
            return f"({'' if op == '==' else '!'}ss_w{limbs}_same({x}, {y}))"
        return f"(ss_w{limbs}_{'cmp' if signed else 'ucmp'}({x}, {y}) {op} 0)"
    if signed:
        kind = _signed_type(limbs)
        return f"(({kind})({x}) {op} ({kind})({y}))"
    return f"({x} {op} {y})"


def nonzero(value: Value) -> str:
    """C code of whether an exact value is not 0."""
    if value.limbs > 2:
        return f"ss_w{value.limbs}_nonzero({value.code})"
    return f"(({value.code}) != 0)"
