# SPDX-License-Identifier: Apache-2.0
"""Tokens of one line of an STF test."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from softswitch.stf.commands import Number, StfError

_TOKENS = re.compile(
    r"""(?P<float>\d+\.\d+)
      | (?P<number>0[xX][0-9a-fA-F*]+ | 0[bB][01*]+ | 0[oO][0-7*]+ | \d+)
      | (?P<name>[A-Za-z_$][\w$]* | "[^"]+")
      | (?P<sign>&&& | \.\. | == | != | <= | >= | [<>=:,./()\[\]])
    """,
    re.VERBOSE,
)
_BASES = {"0x": (16, 4), "0b": (2, 1), "0o": (8, 3)}


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is number, float, name or sign."""

    kind: str
    text: str


class Line:
    """The tokens of a line, read from left to right."""

    def __init__(self, number: int, text: str) -> None:
        """Raises StfError for a character that nothing begins with."""
        self.number = number
        self._tokens: list[Token] = []
        self._next = 0
        at = 0
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            if text[at] == "#":
                break
            found = _TOKENS.match(text, at)
            if found is None:
                raise self.fail(f"unexpected {text[at]!r}")
            kind = found.lastgroup or ""
            self._tokens.append(Token(kind, found.group().strip('"')))
            at = found.end()

    def fail(self, what: str) -> StfError:
        """The error "line N: ..."; the caller raises it."""
        return StfError(self.number, what)

    def peek(self, ahead: int = 0) -> Token | None:
        """A token that is not taken yet; None at the end."""
        at = self._next + ahead
        return self._tokens[at] if at < len(self._tokens) else None

    def at(self, *signs: str) -> bool:
        """The next token is one of these signs."""
        token = self.peek()
        return token is not None and token.kind == "sign" and token.text in signs

    def accept(self, *signs: str) -> str | None:
        """Take one of these signs if it is next."""
        return self._take().text if self.at(*signs) else None

    def expect(self, *signs: str) -> str:
        """Take one of these signs."""
        taken = self.accept(*signs)
        if taken is None:
            raise self._wanted(" or ".join(repr(sign) for sign in signs))
        return taken

    def word(self, allowed: Collection[str] = ()) -> str:
        """Take a name; one of `allowed`, whatever its case, unless that is empty."""
        token = self.peek()
        if token is None or token.kind != "name":
            raise self._wanted("a name")
        if allowed and token.text.lower() not in allowed:
            raise self._wanted(" or ".join(allowed))
        return self._take().text

    def qualified_name(self) -> str:
        """Take a name of parts with dots, each perhaps with an index in brackets."""
        name = self.word()
        while sign := self.accept(".", "["):
            if sign == ".":
                name += f".{self.word()}"
            else:
                name += f"[{self.integer()}]"
                self.expect("]")
        return name

    def pattern(self) -> Number:
        """Take a number that may have `*` for digits."""
        token = self.peek()
        if token is None or token.kind != "number":
            raise self._wanted("a number")
        text = self._take().text
        base, bits = _BASES.get(text[:2].lower(), (10, 0))
        if not bits:
            return Number(int(text), -1, len(text), 0)
        digits = text[2:]
        mask = 0
        for digit in digits:
            mask = mask << bits | (0 if digit == "*" else (1 << bits) - 1)
        return Number(int(digits.replace("*", "0"), base), mask, len(digits), bits)

    def integer(self) -> int:
        """Take a number without wildcards."""
        number = self.pattern()
        if number.has_wildcard:
            raise self.fail("'*' is not allowed here")
        return number.value

    def real(self) -> float:
        """Take a number that may have a decimal point."""
        token = self.peek()
        return float(self._take().text) if token and token.kind == "float" else self.integer()

    def end(self) -> None:
        """Nothing may be left."""
        if self.peek() is not None:
            raise self._wanted("the end of the line")

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _wanted(self, what: str) -> StfError:
        token = self.peek()
        return self.fail(f"expected {what}, not {repr(token.text) if token else 'the end'}")
