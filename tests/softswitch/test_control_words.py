# SPDX-License-Identifier: Apache-2.0
"""Numbers, names and columns of commands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softswitch.control.words import CommandError, aligned, full_name, natural, number, readable


@pytest.mark.parametrize(
    ("text", "width", "value"),
    [
        ("10", 8, 10),
        ("010", 8, 10),
        ("0x0A", 8, 10),
        ("0b11", 2, 3),
        ("0o17", 8, 15),
        ("10.0.0.1", 32, 0x0A000001),
        ("00:00:0a:00:00:01", 48, 0x0A000001),
        ("0:0:a:0:0:1", 48, 0x0A000001),
        ("2001:db8::1", 128, 0x20010DB8000000000000000000000001),
        ("0xffffffffffffffffffffffffffffffffff", 136, (1 << 136) - 1),
    ],
)
def test_forms(text: str, width: int, value: int) -> None:
    assert number(text, width, "x") == value


@pytest.mark.parametrize(
    ("text", "width", "message"),
    [
        ("256", 8, "x: 256 does not fit in 8 bits"),
        ("-1", 8, "x: -1 is negative"),
        ("a", 8, r"x: 'a' is not a number of 8 bits \(decimal, 0x..., 0b..., 0o...\)"),
        ("10.0.0.1", 16, "x: '10.0.0.1' is not a number of 16 bits"),
        ("10.0.0", 32, "x: '10.0.0' is not a number of 32 bits .* or an IPv4 address"),
        ("1:2:3:4:5", 48, "x: '1:2:3:4:5' is not a number of 48 bits .* or an MAC address"),
        ("1:2:3", 128, "x: '1:2:3' is not a number of 128 bits .* or an IPv6 address"),
        ("", 8, "x: '' is not a number"),
    ],
)
def test_bad_numbers(text: str, width: int, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        number(text, width, "x")


@given(st.sampled_from([1, 9, 32, 48, 64, 128, 200]).flatmap(
    lambda width: st.tuples(st.just(width), st.integers(0, (1 << width) - 1))
))  # fmt: skip
def test_what_is_shown_can_be_given(pair: tuple[int, int]) -> None:
    width, value = pair
    assert number(readable(value, width), width, "x") == value
    assert number(hex(value), width, "x") == value


def test_natural() -> None:
    assert natural("0x10", "port") == 16
    with pytest.raises(CommandError, match="port '8'; allowed: 0 to 7"):
        natural("8", "port", 7)
    with pytest.raises(CommandError, match="port 'x'; allowed: 0 and more"):
        natural("x", "port")


def test_names() -> None:
    names = ["ingress.a", "egress.a", "egress.b", "b"]
    assert full_name("ingress.a", names, "table") == "ingress.a"
    assert full_name("b", names, "table") == "b"  # a whole name wins
    with pytest.raises(CommandError, match=r"table 'a' is ambiguous: egress\.a, ingress\.a"):
        full_name("a", names, "table")
    with pytest.raises(CommandError, match=r"there is no table .c.; there is: b, egress\.a"):
        full_name("c", names, "table")
    with pytest.raises(CommandError, match="there is no meter 'c'; there is: none"):
        full_name("c", [], "meter")


def test_columns() -> None:
    assert aligned([["a", "bbb"], ["cc", ""], ["d"]], "  ") == "  a   bbb\n  cc\n  d"
    assert aligned([]) == ""
