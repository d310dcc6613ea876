# SPDX-License-Identifier: Apache-2.0
"""Numbers and names as commands give them, and numbers as answers show them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import AddressValueError, IPv4Address, IPv6Address


class CommandError(Exception):
    """A command that cannot be carried out; the message says why and what is allowed."""


_IPV4_BITS, _MAC_BITS, _IPV6_BITS = 32, 48, 128
_MAC = re.compile(r"[0-9a-fA-F]{1,2}(:[0-9a-fA-F]{1,2}){5}")


def number(text: str, width: int, what: str) -> int:
    """A value of `width` bits. An address stands for a number of its own length only."""
    value = _address(text, width, what)
    if value is None:
        try:
            value = int(text, 0)
        except ValueError:
            try:
                value = int(text, 10)  # with leading zeros
            except ValueError:
                raise CommandError(f"{what}: {text!r} is not {_forms(width)}") from None
    if value < 0:
        raise CommandError(f"{what}: {text} is negative")
    if value >> width:
        raise CommandError(f"{what}: {text} does not fit in {width} bits")
    return value


def _address(text: str, width: int, what: str) -> int | None:
    try:
        if width == _IPV4_BITS and "." in text:
            return int(IPv4Address(text))
        if width == _IPV6_BITS and ":" in text:
            return int(IPv6Address(text))
    except AddressValueError:
        raise CommandError(f"{what}: {text!r} is not {_forms(width)}") from None
    if width == _MAC_BITS and _MAC.fullmatch(text):
        return int("".join(part.zfill(2) for part in text.split(":")), 16)
    return None


def _forms(width: int) -> str:
    forms = f"a number of {width} bits (decimal, 0x..., 0b..., 0o...)"
    other = {_IPV4_BITS: "IPv4", _MAC_BITS: "MAC", _IPV6_BITS: "IPv6"}.get(width)
    return f"{forms} or an {other} address" if other else forms


def natural(text: str, what: str, high: int | None = None, low: int = 0) -> int:
    """A handle, port, index or the like: decimal or 0x, from `low` to `high`."""
    try:
        value = int(text, 0)
    except ValueError:
        value = -1
    if value < low or (high is not None and value > high):
        allowed = f"{low} and more" if high is None else f"{low} to {high}"
        raise CommandError(f"{what} {text!r}; allowed: {allowed}")
    return value


def shown(value: int, width: int) -> str:
    """A value in hexadecimal, all of its bits, and how people read it."""
    return f"{hexadecimal(value, width)} ({readable(value, width)})"


def hexadecimal(value: int, width: int) -> str:
    """A value in hexadecimal, with all of its bits."""
    return f"0x{value:0{(width + 3) // 4}x}"


def readable(value: int, width: int) -> str:
    """As an address where it has the length of one, otherwise in decimal."""
    if width == _IPV4_BITS:
        return str(IPv4Address(value))
    if width == _IPV6_BITS:
        return str(IPv6Address(value))
    if width == _MAC_BITS:
        return value.to_bytes(6, "big").hex(":")
    return str(value)


def full_name(given: str, names: Iterable[str], kind: str, where: str = "") -> str:
    """The name that is `given` or, alone among all, ends in `.given`.

    `kind` is what has these names, `where` begins with a blank and says where they are looked for.
    """
    known = tuple(names)
    if given in known:
        return given
    found = [name for name in known if name.endswith(f".{given}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise CommandError(f"{kind} {given!r}{where} is ambiguous: {', '.join(sorted(found))}")
    allowed = ", ".join(sorted(known)) or "none"
    raise CommandError(f"there is no {kind} {given!r}{where}; there is: {allowed}")


def aligned(rows: Iterable[Iterable[str]], indent: str = "") -> str:
    """Lines with columns of equal width, without blanks at the end."""
    table = [list(row) for row in rows]
    count = max((len(row) for row in table), default=0)
    widths = [max(len(row[i]) for row in table if i < len(row)) for i in range(count)]
    return "\n".join(
        (indent + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=False))).rstrip()
        for row in table
    )
