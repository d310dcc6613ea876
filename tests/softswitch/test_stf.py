# SPDX-License-Identifier: Apache-2.0
"""The STF runner: its reader, its comparison, and tests of our own on the feature programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softswitch.stf.__main__ import BAD_TEST, DIFFERS, PASSED, REFUSED, main
from softswitch.stf.commands import (
    ActionText,
    Add,
    CheckCounter,
    Direct,
    Expect,
    Match,
    Number,
    Packet,
    Remove,
    StfError,
)
from softswitch.stf.entries import find
from softswitch.stf.features import features
from softswitch.stf.outputs import compare
from softswitch.stf.reader import read_command, read_test
from softswitch.stf.runner import run_test
from tests.softswitch.dataplanes import loaded, probe
from tests.softswitch.scenarios import PROGRAMS

TESTS = Path(__file__).parent / "stf"
PROGRAM_OF = {"range": "match"}


def run(program: str, text: str) -> list[str]:
    """The differences that a test finds."""
    with loaded(program, seed=1) as dataplane:
        return run_test(dataplane, read_test(text)).differences


# ---- the reader ----------------------------------------------------------------------------------


def test_each_kind_of_command_is_read() -> None:
    assert read_test("# only a comment\n\n wait # and another\n")[0].line == 3
    assert read_command(1, "ADD a.b 5 h.x[1]:0x1* y:3/4 act(p:0b11, q:7) = one") == Add(
        1,
        "a.b",
        5,
        (
            Match("h.x[1]", Number(0x10, 0xF0, 2, 4)),
            Match("y", Number(3, -1, 1, 0), prefix_len=4),
        ),
        ActionText("act", (("p", 3), ("q", 7))),
        "one",
    )
    assert read_command(2, 'add t "$valid$":1 a()') == Add(
        2, "t", None, (Match("$valid$", Number(1, -1, 1, 0)),), ActionText("a", ()), None
    )
    assert read_command(1, "check_counter c($A) bytes >= 12") == CheckCounter(
        1, "c", "A", "bytes", ">=", 12
    )
    assert read_command(1, "check_counter c.d(7)") == CheckCounter(1, "c.d", 7)
    assert read_command(1, "remove all") == Remove(1, None)
    assert read_command(1, "expect 3") == Expect(1, 3, None, exact=False)
    assert read_command(1, "mc_node_create 1 2 3") == Direct(1, "mc_node_create", "", (1, 2, 3))
    assert read_command(1, "meter_set_rates c.m 2 0.5:4 1:5") == Direct(
        1, "meter_set_rates", "c.m", (2,), ((0.5, 4), (1, 5))
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bounce 1", "no command 'bounce'"),
        ("packet x 00", "expected a port number"),
        ("packet 1 0g", "expected hexadecimal digits, not '0g'"),
        ("packet 1 001", "3 hexadecimal digits are no whole bytes"),
        ("packet 1", "expected hexadecimal digits, not ''"),
        ("expect 1 0$1", "expected hexadecimal digits and"),
        ("add t k:1", "expected a name, not the end"),
        ("add t k:1 a(p:1", "expected ',', not the end"),
        ("add t k:1 a(p:0x*)", "'\\*' is not allowed here"),
        ("add t k:; a()", "unexpected ';'"),
        ("wait now", "expected the end of the line, not 'now'"),
        ("check_counter c(1) frames == 1", "expected packets or bytes, not 'frames'"),
        ("mirroring_add 1", "expected a number, not the end"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(StfError, match=f"^line 2: {message}"):
        read_test(f"wait\n{text}")


@given(st.integers(0, 511), st.binary(min_size=1, max_size=40), st.data())
def test_bytes_are_read_however_they_are_grouped(
    port: int, data: bytes, draw: st.DataObject
) -> None:
    cuts = draw.draw(st.sets(st.integers(1, 2 * len(data))))
    digits = data.hex()
    text = "".join(" " * (at in cuts) + digit for at, digit in enumerate(digits))
    assert read_command(1, f"packet {port} {text}") == Packet(1, port, data)
    assert read_command(1, f"expect {port} {text.upper()}$") == Expect(1, port, digits, exact=True)


@given(st.integers(0, (1 << 140) - 1), st.sampled_from([("0x", "x", 4), ("0b", "b", 1)]))
def test_numbers_mean_the_same_in_every_base(value: int, base: tuple[str, str, int]) -> None:
    prefix, code, bits = base
    digits = format(value, code)
    for text in (f"{prefix}{digits}", str(value)):
        command = read_command(1, f"add t k:{text} a(p:{text})")
        assert isinstance(command, Add)
        assert command.matches[0].value.value == value
        assert command.action.params == (("p", value),)
    command = read_command(1, f"add t k:{prefix}{digits}* a()")
    assert isinstance(command, Add)
    number = command.matches[0].value
    assert number.has_wildcard
    assert number.value == value << bits
    assert number.mask == (1 << number.bits) - (1 << bits)


@given(st.text("0123456789abcdefx*$#:=()/. \"&'addexpct", max_size=40))
def test_any_text_is_read_or_refused_by_its_line(text: str) -> None:
    try:
        read_test(text)
    except StfError as error:
        assert str(error).startswith(f"line {error.line}: ")


# ---- comparison ----------------------------------------------------------------------------------


@given(st.binary(min_size=1, max_size=20), st.data())
def test_a_pattern_fits_what_it_was_made_of_and_nothing_else(
    data: bytes, draw: st.DataObject
) -> None:
    digits = data.hex()
    wild = draw.draw(st.sets(st.integers(0, len(digits) - 1)))
    pattern = "".join("*" if at in wild else digit for at, digit in enumerate(digits))
    command = Expect(1, 1, pattern, exact=True)
    assert compare(command, data) == ""
    assert "bytes instead of" in compare(command, data + b"\0")
    assert compare(Expect(1, 1, pattern, exact=False), data + b"\0") == ""
    assert "bytes instead of" in compare(command, data[:-1])
    for at in range(len(digits)):
        other = bytearray(data)
        other[at // 2] ^= 0x10 if at % 2 == 0 else 1
        assert (compare(command, bytes(other)) == "") == (at in wild)


def test_the_report_shows_both_and_marks_the_place() -> None:
    assert compare(Expect(1, 1, "01*2ff", exact=False), bytes.fromhex("0113fe")).splitlines() == [
        "bytes 1, 2 differ",
        "  expected 01*2ff",
        "  got      0113fe",
        "              ^ ^",
    ]


def test_names_may_be_shortened_while_they_are_not_ambiguous() -> None:
    objects = {"ingress.t": 1, "egress.t": 2, "ingress.long_t": 3, "t2": 4}
    assert find(objects, "ingress.t", "table") == 1
    assert find(objects, "long_t", "table") == 3
    assert find(objects, "2", "table") == 4
    with pytest.raises(Exception, match=r"table 't' may be egress\.t or ingress\.t"):
        find(objects, "t", "table")
    with pytest.raises(Exception, match=r"no table 'x'; there are ingress\.t"):
        find(objects, "x", "table")


# ---- whole tests ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(path.stem for path in TESTS.glob("*.stf")))
def test_our_own_tests_pass(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    program = PROGRAMS / f"{PROGRAM_OF.get(name, name)}.json"
    assert main([str(program), str(TESTS / f"{name}.stf")]) == PASSED
    assert f"{name}.stf: passed" in capsys.readouterr().out


def test_a_failing_expectation_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = (TESTS / "match.stf").read_text().replace("aa 1002", "aa 1003")
    path = tmp_path / "wrong.stf"
    path.write_text(wrong)
    assert main([str(PROGRAMS / "match.json"), str(path)]) == DIFFERS
    shown = capsys.readouterr().out
    assert "line 12: packet 1 of port 3: byte 19 differs" in shown
    assert "wrong.stf: 1 differences" in shown


PACKET = f"packet 1 {probe(op=0x10).hex()}\n"


def test_every_packet_of_a_port_that_is_mentioned_has_to_be_expected() -> None:
    assert run("match", PACKET + "expect 3") == []
    assert run("match", PACKET + "expect 3\nexpect 3") == [
        "line 3: port 3: nothing left; expected any packet"
    ]
    assert run("match", PACKET * 2 + "expect 3")[0].startswith("port 3: not expected: 0000")
    assert run("match", PACKET) == []  # as BMv2: there is no port 3
    assert run("match", PACKET + "no_packet\nexpect 3") == [
        "line 2: 1 packets have left port 3, expected none"
    ]


def test_counters_have_to_fit(tmp_path: Path) -> None:
    packet = f"packet 1 {probe(x=2).hex()}\n"
    test = tmp_path / "test.stf"
    test.write_text("check_counter both(1) packets == 1")
    assert main([str(PROGRAMS / "state.json"), str(test)]) == DIFFERS
    assert main(["--no-counters", str(PROGRAMS / "state.json"), str(test)]) == PASSED
    assert run("state", packet + "check_counter both(2) packets == 1") == []
    assert run("state", packet + "check_counter both(2) packets > 1") == [
        "line 2: both(2): 1 packets, expected > 1"
    ]


@pytest.mark.parametrize(
    ("program", "text", "message"),
    [
        ("match", "add nothing k:1 a()", "no table 'nothing'; there are"),
        ("match", "add by_lpm z:1 set(value:1)", "ingress.by_lpm has no key 'z'"),
        ("match", "add by_lpm probe.a:1 set(v:1)", r"ingress.set takes \(value\), not \(v\)"),
        ("match", "add by_lpm probe.a:0x* set(value:1)", "is an exact key: '\\*' does not fit"),
        ("match", "add by_lpm probe.a:256 set(value:1)", "0x100 does not fit 8 bits"),
        ("match", "add by_lpm e:0x*1 set(value:1)", "'\\*' are the last digits of a prefix"),
        ("match", "add by_ternary x:1 add(value:1)", "give a priority"),
        ("match", "add fixed 1 op:0x10 drop()", "fixes the entries"),
        ("match", "remove x", "no entry is called 'x'"),
        ("match", "check_counter lpm_counter($A)", "no entry is called 'A'"),
        ("state", "register_write sums 16 1", "allowed: 0 to 15"),
        ("state", "check_counter sums(1)", "no counter 'sums'"),
        ("clone", "mc_node_associate 1 0", "there is no multicast node 0"),
        ("clone", "mirroring_delete 3", "there is no such entry"),
    ],
)
def test_commands_that_cannot_be_carried_out_say_why(program: str, text: str, message: str) -> None:
    with pytest.raises(StfError, match=f"line 1: .*{message}"):
        run(program, text)


def test_exit_codes_tell_the_test_from_the_program(tmp_path: Path) -> None:
    test = tmp_path / "test.stf"
    test.write_text("wait\n")
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    assert main([str(PROGRAMS / "match.json"), str(tmp_path / "absent.stf")]) == BAD_TEST
    assert main([str(bad), str(test)]) == REFUSED
    test.write_text("what\n")
    assert main([str(PROGRAMS / "match.json"), str(test)]) == BAD_TEST


def test_groups_that_change_take_their_sessions_along() -> None:
    data = probe(op=3).hex()
    text = f"""
    mc_mgrp_create 4
    mirroring_add_mc 7 4
    mc_node_create 1 3
    mc_node_associate 4 0
    packet 1 {data}
    expect 3
    mc_node_update 0 5
    packet 1 {data}
    expect 5
    mirroring_delete 7
    packet 1 {data}
    expect 2
    expect 2
    expect 2
    """
    assert run("clone", text) == []


def test_features_come_from_the_json() -> None:
    def of(name: str) -> set[str]:
        return features(json.loads((PROGRAMS / f"{name}.json").read_bytes()))

    assert {"lpm keys", "ternary keys", "range keys", "constant entries"} <= of("match")
    assert {"direct counters"} <= of("match")
    assert {"registers", "counters"} <= of("state")
    assert {"action selectors"} <= of("selector")
    assert {"clone"} <= of("clone")
