# SPDX-License-Identifier: Apache-2.0
"""Parsers that BMv2 has no answer for: loops without an end, what p4c does not put into a JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from softswitch.dataplane import Dataplane
from softswitch.errors import AssertionFailed, BadProgram, Unsupported
from softswitch.values import DataplaneOptions
from tests.softswitch.dataplanes import probe, program

TOO_SHORT, OUT_OF_BOUNDS, TIMEOUT = 1, 3, 0xFF
"""What parser.p4 and unions.p4 report; an error that they do not look for is 0xff."""


@contextmanager
def changed(name: str, change: Callable[[dict[str, Any]], None]) -> Iterator[Dataplane]:
    """A data plane with a feature program that was changed."""
    raw = json.loads(program(name))
    change(raw)
    dataplane = Dataplane(DataplaneOptions())
    try:
        dataplane.load(json.dumps(raw).encode())
        yield dataplane
    finally:
        dataplane.close()


def state(raw: dict[str, Any], name: str) -> dict[str, Any]:
    """A state of the parser."""
    found: dict[str, Any] = next(s for s in raw["parsers"][0]["parse_states"] if s["name"] == name)
    return found


def _skip_for_ever(raw: dict[str, Any]) -> None:
    """The state that advances by the last four bits of the destination address goes to itself."""
    skip = state(raw, "skip")
    skip["transitions"] = [{"type": "default", "value": None, "mask": None, "next_state": "skip"}]


def test_a_loop_that_takes_nothing_ends_with_an_error() -> None:
    with changed("parser", _skip_for_ever) as dataplane:
        for step, error in ((0, TIMEOUT), (1, TOO_SHORT), (15, TOO_SHORT)):
            packet = bytes(5) + bytes([step]) + bytes(5) + b"\x80\x10\x00" + bytes(9000)
            ((_, out),) = dataplane.process(1, packet)
            assert out[0] == error
            # What was taken until then is taken; the rest is payload.
            assert len(out) == 4 + len(packet) - (9000 // step * step if step else 0)


def _rounds(count: int) -> Callable[[dict[str, Any]], None]:
    """The state that peeks goes round `count` times, counting in metadata."""

    def change(raw: dict[str, Any]) -> None:
        scalars = next(t for t in raw["header_types"] if t["name"] == "scalars_0")
        scalars["fields"].append(["rounds", 32, False])
        place = {"type": "field", "value": ["scalars", "rounds"]}
        more = {"op": "+", "left": place, "right": {"type": "hexstr", "value": "0x1"}}
        value = {"type": "expression", "value": {"type": "expression", "value": more}}
        skip = state(raw, "skip")
        skip["parser_ops"] = [{"op": "set", "parameters": [place, value]}]
        skip["transition_key"] = [place]
        skip["transitions"] = [
            {"type": "hexstr", "value": f"{count:#010x}", "mask": None, "next_state": None},
            {"type": "default", "value": None, "mask": None, "next_state": "skip"},
        ]

    return change


@pytest.mark.parametrize(("count", "error"), [(1000, 0), (5000, TIMEOUT)])
def test_loops_that_count_have_a_thousand_rounds(count: int, error: int) -> None:
    with changed("parser", _rounds(count)) as dataplane:
        ((_, out),) = dataplane.process(1, bytes(11) + b"\x80\x10\x00" + bytes(100))
        assert out[0] == error


def test_a_key_may_be_negative() -> None:
    """p4c writes -0x03 where BMv2 can load no sign."""

    def change(raw: dict[str, Any]) -> None:
        probed = state(raw, "probe")
        probed["transition_key"] = [{"type": "field", "value": ["probe", "j"]}]
        probed["transitions"] = [
            {"type": "hexstr", "value": "-0x0003", "mask": None, "next_state": "other"},
            {"type": "default", "value": None, "mask": None, "next_state": None},
        ]

    with changed("valueset", change) as dataplane:
        for value, path in ((-3, 16), (-4, 0), (3, 0)):
            ((_, out),) = dataplane.process(1, probe(j=value))
            assert int.from_bytes(out[12:14]) == path


def test_a_shift_is_in_bytes() -> None:
    def change(raw: dict[str, Any]) -> None:
        state(raw, "skip")["parser_ops"] = [{"op": "shift", "parameters": [3]}]

    with changed("parser", change) as dataplane:
        header = bytes(11) + b"\x80\x10\x00"
        ((_, out),) = dataplane.process(1, header + b"\x01\x02\x03" + b"\x04\x05rest")
        assert (out[0], out[4:]) == (0, header + b"\x04\x05rest")
        ((_, out),) = dataplane.process(1, header + b"\x01\x02")
        assert out[0] == TOO_SHORT


# ---- unions: what BMv2 knows and p4c does not write ----------------------------------------------


def _last_option(raw: dict[str, Any]) -> None:
    """From the state behind a small option: 7 as its last value ends the parser."""
    small = state(raw, "small")
    small["transition_key"] = [
        {"type": "union_stack_field", "value": ["options", "small", "value"]}
    ]
    small["transitions"] = [
        {"type": "hexstr", "value": "0x07", "mask": None, "next_state": None},
        {"type": "default", "value": None, "mask": None, "next_state": "options"},
    ]


def _options(*values: int) -> bytes:
    return bytes(14) + b"".join(bytes([0x10, value]) for value in values)


def test_select_over_the_last_union_of_a_stack() -> None:
    with changed("unions", _last_option) as dataplane:
        for values, error in (((1, 7, 2, 2), 0), ((1, 2, 7, 3), 0), ((1, 2, 3, 7), OUT_OF_BOUNDS)):
            ((_, out),) = dataplane.process(1, _options(*values) + b"\x40")
            assert out[0] == error


def test_the_last_union_of_an_empty_stack_is_out_of_bounds() -> None:
    def change(raw: dict[str, Any]) -> None:
        _last_option(raw)
        state(raw, "small")["parser_ops"] = []

    with changed("unions", change) as dataplane:
        ((_, out),) = dataplane.process(1, _options(7))
        assert out[0] == OUT_OF_BOUNDS


def _first_assignment(raw: dict[str, Any], op: str, to: str, source: str) -> None:
    kind = "header_union_stack" if "stack" in op else "header_union"
    action = next(
        a for a in raw["actions"] if a["primitives"] and a["primitives"][0]["op"] == "assign_header"
    )
    parameters = [{"type": kind, "value": name} for name in (to, source)]
    action["primitives"] = [{"op": op, "parameters": parameters}]


def test_unions_and_stacks_of_them_are_copied() -> None:
    """Case 0 of unions.p4 copies the first union; case 3 the stack and sets an option after it."""

    def union(raw: dict[str, Any]) -> None:
        _first_assignment(raw, "assign_union", "second", "first")

    def stack(raw: dict[str, Any]) -> None:
        _first_assignment(raw, "assign_union_stack", "kept", "options")

    packet = _options(1, 2)[:14] + b"\x01\x05" + _options(3, 4)[14:]
    with changed("unions", union) as dataplane:
        ((_, out),) = dataplane.process(1, packet)
        assert out[1] == 1 | 2 | 8 | 32
        assert out[6:] == packet[:14] + b"\x01\x05\x01\x05" + b"\x10\x03\x10\x04"
    with changed("unions", stack) as dataplane:
        ((_, out),) = dataplane.process(1, packet)
        assert out[6:] == packet + b"\x10\x03\x10\x04"


@pytest.mark.parametrize(
    ("op", "count", "left"),
    [
        ("push", 1, b"\x10\x01\x10\x02"),
        ("push", 2, b"\x10\x01"),
        ("push", 9, b""),
        ("pop", 1, b"\x10\x02\x10\x03"),
        ("pop", 9, b""),
    ],
)
def test_stacks_of_unions_shift(op: str, count: int, left: bytes) -> None:
    """New elements are invalid; BMv2 forgets to make them so when they are unions."""

    def change(raw: dict[str, Any]) -> None:
        _first_assignment(raw, op, "options", "")
        action = next(
            a for a in raw["actions"] if a["primitives"][:1] and a["primitives"][0]["op"] == op
        )
        action["primitives"][0]["parameters"] = [
            {"type": "header_union_stack", "value": "options"},
            {"type": "hexstr", "value": f"{count:#x}"},
        ]

    with changed("unions", change) as dataplane:
        ((_, out),) = dataplane.process(1, _options(1, 2, 3))
        assert out[20:] == left


def test_validity_of_a_union_in_a_stack_as_p4c_writes_it() -> None:
    """BMv2 cannot load it: the union is called a header."""

    def change(raw: dict[str, Any]) -> None:
        text = json.dumps(raw)
        union = '{"op": "valid_union", "left": null, "right": {"type": "header_union", "value": '
        assert text.count(union + '"first"}') == 1
        raw |= json.loads(
            text.replace(
                union + '"first"}', union.replace("header_union", "header") + '"options[1]"}'
            )
        )

    with changed("unions", change) as dataplane:
        for values, valid in (((1,), 0), ((1, 2), 1), ((1, 2, 3), 1)):
            ((_, out),) = dataplane.process(1, _options(*values))
            assert out[1] & 1 == valid


# ---- what is refused -----------------------------------------------------------------------------


def _without_length(raw: dict[str, Any]) -> None:
    operation = state(raw, "ip")["parser_ops"]
    extract = next(o for o in operation if o["op"] == "extract_VL")
    extract["op"] = "extract"
    del extract["parameters"][1]


def _odd_header(raw: dict[str, Any]) -> None:
    next(t for t in raw["header_types"] if t["name"] == "ethernet_t")["fields"].append(
        ["x", 3, False]
    )


def _short_maximum(raw: dict[str, Any]) -> None:
    next(t for t in raw["header_types"] if t["name"] == "ip_t")["max_length"] = 3


def _unknown_member(raw: dict[str, Any]) -> None:
    extract = next(o for o in state(raw, "small")["parser_ops"] if o["op"] == "extract")
    extract["parameters"][0]["value"] = ["options", "tiny"]


def _unknown_header(raw: dict[str, Any]) -> None:
    raw["header_unions"][0]["header_ids"][0] = 999


def _negative_first(raw: dict[str, Any]) -> None:
    state(raw, "fields")["transitions"][0]["value"] = "-0x000700000000"


def _masked_set(raw: dict[str, Any]) -> None:
    state(raw, "probe")["transitions"][1]["mask"] = "0x0f"


@pytest.mark.parametrize(
    ("name", "change", "error", "says"),
    [
        ("varbit", _without_length, BadProgram, "ip: extract and length of type ip_t disagree"),
        ("varbit", _odd_header, Unsupported, "ethernet_t of 115 bits"),
        ("varbit", _short_maximum, BadProgram, "less than the other fields of ip_t"),
        ("unions", _unknown_member, BadProgram, "'options' have no member 'tiny'"),
        ("unions", _unknown_header, BadProgram, "no header has id 999"),
        ("valueset", _negative_first, Unsupported, "several keys, the first negative"),
        ("valueset", _masked_set, Unsupported, "a mask over value set parse.ops"),
    ],
)
def test_refused(
    name: str, change: Callable[[dict[str, Any]], None], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says), changed(name, change):
        pass


def test_a_deparser_may_assert() -> None:
    def change(raw: dict[str, Any]) -> None:
        place = {"type": "field", "value": ["probe", "op"]}
        less = {"op": "!=", "left": place, "right": {"type": "hexstr", "value": "0x07"}}
        wrapped = {"type": "expression", "value": {"type": "expression", "value": less}}
        raw["deparsers"][0]["primitives"] = [{"op": "assert", "parameters": [wrapped]}]

    with changed("checksum", change) as dataplane:
        assert len(dataplane.process(1, probe(op=6))) == 1
        with pytest.raises(AssertionFailed, match="deparser: assert"):
            dataplane.process(1, probe(op=7))
