# SPDX-License-Identifier: Apache-2.0
"""Generated arithmetic against Python's integers: random expressions over any input.

They are compiled once, and shaped as p4c writes them (a mask or two_comp_mod over what may grow),
with sums, products and comparisons beyond any type below.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch.bmjson import Const, Expr, Op, Param
from softswitch.bmread import read_program
from softswitch.codegen.arithmetic import stored
from softswitch.codegen.expressions import Expressions
from softswitch.codegen.layout import words_of
from softswitch.codegen.names import Names, c_type, c_words
from softswitch.codegen.translation import wide_types
from softswitch.compile import default_cache_dir, program_library
from softswitch.errors import Unsupported
from tests.softswitch.scenarios import PROGRAMS

WIDTHS = (1, 7, 8, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 192, 193, 256, 257, 320, 1000, 2048)
PARAMS = tuple(sorted({*WIDTHS, 16, 255, 512}))
COUNT = 160
MOST_WORDS = words_of(max(WIDTHS))


def mask(width: int) -> int:
    return (1 << width) - 1


class Maker:
    """Random expressions over the parameters."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pick(self, *choices: Callable[[int], Expr], depth: int) -> Expr:
        return self._random.choice(choices)(depth - 1)

    def leaf(self) -> Expr:
        if self._random.random() < 0.25:
            width = self._random.choice(WIDTHS)
            return Const(self._random.choice((0, 1, mask(width), self._random.getrandbits(width))))
        return Param(self._random.randrange(len(PARAMS)))

    def number(self, depth: int) -> Expr:
        """Any number, possibly negative."""
        if depth <= 0:
            return self.leaf()
        return self.pick(
            self.ring, self.ring, self.cut, self.cut, self.signed, self.saturated, self.choice,
            self.complement, self.shifted_right, depth=depth,
        )  # fmt: skip

    def positive(self, depth: int) -> Expr:
        if depth <= 0:
            return self.leaf()
        return self.pick(self.cut, self.cut, self.quotient, self.unsigned_sum, depth=depth)

    def ring(self, depth: int) -> Expr:
        op = self._random.choice("+-*&|^")
        return Op(op, self.number(depth), self.number(depth))

    def complement(self, depth: int) -> Expr:
        if self._random.random() < 0.5:
            return Op("-", None, self.number(depth))
        return Op("~", None, self.number(depth))

    def shift_left(self, depth: int) -> Expr:
        return Op("<<", self.number(depth), self.amount())

    def shifted_right(self, depth: int) -> Expr:
        return Op(">>", self.number(depth), self.amount())

    def amount(self) -> Expr:
        if self._random.random() < 0.5:
            return Const(self._random.choice((0, 1, 7, 63, 64, 65, 127, 128, 130, 300, 5000)))
        return Param(PARAMS.index(self._random.choice((8, 16))))

    def cut(self, depth: int) -> Expr:
        inner = self.pick(self.number, self.shift_left, self.shifted_right, depth=depth + 1)
        width = self._random.choice(WIDTHS)
        return Op("&", inner, Const(mask(width) << self._random.choice((0, 0, 0, 3, 64, 90))))

    def signed(self, depth: int) -> Expr:
        inner = self.pick(self.number, self.shift_left, depth=depth + 1)
        return Op("two_comp_mod", inner, Const(self._random.choice(WIDTHS[1:])))

    def saturated(self, depth: int) -> Expr:
        op = self._random.choice(("usat_cast", "sat_cast"))
        return Op(op, self.number(depth), Const(self._random.choice(WIDTHS[1:])))

    def quotient(self, depth: int) -> Expr:
        return Op(self._random.choice("/%"), self.positive(depth), self.positive(depth))

    def unsigned_sum(self, depth: int) -> Expr:
        return Op(self._random.choice("+*|"), self.positive(depth), self.positive(depth))

    def choice(self, depth: int) -> Expr:
        return Op("?", self.number(depth), self.number(depth), self.truth(depth))

    def truth(self, depth: int) -> Expr:
        kind = self._random.random()
        if kind < 0.2:
            return Op("d2b", None, self.number(depth))
        op = self._random.choice(("==", "!=", "<", "<=", ">", ">="))
        left = self.number(depth)
        return Op(op, left, left if kind < 0.3 else self.number(depth))


def evaluate(expr: Expr | int, params: Sequence[int]) -> int:
    """What BMv2 computes, with integers of any size."""
    match expr:
        case Const(value):
            return value
        case Param(index):
            return params[index]
        case Op(op, None, right, _):
            value = evaluate(right, params)
            return {"-": -value, "~": ~value, "d2b": int(value != 0)}[op]
        case Op("?", left, right, condition) if condition and left:
            return evaluate(left if evaluate(condition, params) else right, params)
        case Op(op, left, right, _) if left:
            return binary(op, evaluate(left, params), evaluate(right, params))
        case _:
            raise AssertionError(expr)


def binary(op: str, a: int, b: int) -> int:
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "&":
            return a & b
        case "|":
            return a | b
        case "^":
            return a ^ b
        case "<<":
            return a << b
        case ">>":
            return a >> b
        case "/":
            return a // b if b else 0
        case "%":
            return a % b if b else 0
        case "two_comp_mod":
            return (a + (1 << b - 1)) % (1 << b) - (1 << b - 1)
        case "usat_cast":
            return max(0, min(a, mask(b)))
        case "sat_cast":
            return max(-(1 << b - 1), min(a, mask(b - 1)))
        case "==" | "!=" | "<" | "<=" | ">" | ">=":
            results = {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b}
            return int(results.get(op, a >= b))
        case _:
            raise AssertionError(op)


def function(x: Expressions, number: int, expr: Expr, width: int) -> str:
    """C that writes the low `width` bits of an expression."""
    code = stored(x.number(expr, width), width)
    stores = " ".join(f"out[{i}] = {word};" for i, word in enumerate(c_words("v", width)))
    return (
        '__attribute__((visibility("default"))) '
        f"void f{number}(const uint64_t *d, uint64_t *out) {{ "
        f"(void)d; {c_type(width)} v = {code}; {stores} }}"
    )


def whole_words(values: Sequence[int], widths: Sequence[int]) -> bytes:
    return b"".join(
        v.to_bytes(8 * words_of(w), "little") for v, w in zip(values, widths, strict=True)
    )


@pytest.fixture(scope="module")
def expressions() -> list[tuple[Expr, int]]:
    maker = Maker(20)
    cases: list[tuple[Expr, int]] = []
    for number in range(COUNT):
        kind = (maker.number, maker.positive, maker.truth, maker.signed)[number % 4]
        cases.append((kind(1 + number % 4), WIDTHS[number % len(WIDTHS)]))
    return cases


@pytest.fixture(scope="module")
def library(expressions: list[tuple[Expr, int]]) -> ctypes.CDLL:
    names = Names(read_program((PROGRAMS / "arithmetic.json").read_bytes()))
    x = Expressions(names, "test", PARAMS)
    body = "\n".join(function(x, i, expr, width) for i, (expr, width) in enumerate(expressions))
    source = f'#include "program.h"\n{wide_types(body)}\n{body}\n'
    return ctypes.CDLL(str(program_library(source, default_cache_dir())))


def edges(width: int) -> st.SearchStrategy[int]:
    top = mask(width)
    near = [v for v in (0, 1, 2, top, top - 1, top >> 1, (top >> 1) + 1) if 0 <= v <= top]
    return st.one_of(st.sampled_from(near), st.integers(0, top))


@settings(max_examples=60, deadline=None)
@given(params=st.tuples(*map(edges, PARAMS)))
def test_any_expression_is_right(
    library: ctypes.CDLL, expressions: list[tuple[Expr, int]], params: tuple[int, ...]
) -> None:
    data = whole_words(params, PARAMS)
    out = (ctypes.c_uint64 * MOST_WORDS)()
    for number, (expr, width) in enumerate(expressions):
        getattr(library, f"f{number}")(data, out)
        got = int.from_bytes(bytes(out)[: 8 * words_of(width)], "little")
        assert got == evaluate(expr, params) & mask(width), f"f{number}: {expr}, {width} bits"


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (Op("<<", Param(5), Const(-1)), "<< by an amount that may be negative"),
        (Op("/", Op("-", None, Param(3)), Const(2)), "/ of values that may be negative"),
        (Op("==", Op("<<", Param(5), Param(5)), Const(1)), "without a mask over the result"),
        (Op("usat_cast", Param(3), Param(4)), "to a width that is not a constant"),
        (Op("**", Param(3), Param(4)), r"operation \*\* is not supported"),
    ],
)
def test_what_has_no_answer_is_refused(expr: Op, message: str) -> None:
    names = Names(read_program((PROGRAMS / "arithmetic.json").read_bytes()))
    with pytest.raises(Unsupported, match=f"test: .*{message}"):
        Expressions(names, "test", PARAMS).number(expr)
