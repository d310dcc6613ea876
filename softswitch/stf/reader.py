# SPDX-License-Identifier: Apache-2.0
"""Reads p4c's Simple Test Format: one command a line, `#` begins a comment.

    add TABLE [PRIORITY] KEY:VALUE... ACTION(NAME:VALUE, ...) [= LABEL]
    setdefault TABLE ACTION(NAME:VALUE, ...)
    remove all | LABEL
    packet PORT HEX...
    expect PORT [HEX with * for any digit ...] [$]
    no_packet
    check_counter NAME(INDEX or $LABEL) [packets|bytes ==|!=|<|<=|>|>= NUMBER]
    wait
    mirroring_add SESSION PORT, register_write NAME INDEX VALUE, ... (see DIRECT)

VALUE is a number (0x, 0b, 0o or decimal); digits of keys may be `*`. A key may also be
VALUE/LENGTH, VALUE&&&MASK or FROM..TO. An `expect` that ends in `$` allows no further bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from softswitch.stf.commands import (
    ActionText,
    Add,
    CheckCounter,
    Command,
    Direct,
    Expect,
    Match,
    NoPacket,
    Packet,
    Remove,
    SetDefault,
    StfError,
    Wait,
)
from softswitch.stf.lexer import Line

COMPARISONS = ("==", "!=", "<=", "<", ">=", ">")
UNITS = ("packets", "bytes")

DIRECT: dict[str, tuple[bool, int, bool]] = {
    # name: (takes an object's name, how many numbers, more of them may follow)
    "mirroring_add": (False, 2, False),
    "mirroring_add_mc": (False, 2, False),
    "mirroring_delete": (False, 1, False),
    "mirroring_get": (False, 1, False),
    "mc_mgrp_create": (False, 1, False),
    "mc_node_create": (False, 2, True),
    "mc_node_update": (False, 2, True),
    "mc_node_associate": (False, 2, False),
    "counter_read": (True, 1, False),
    "counter_write": (True, 3, False),
    "register_read": (True, 1, False),
    "register_write": (True, 2, False),
    "register_reset": (True, 0, False),
    "meter_get_rates": (True, 1, False),
    "meter_set_rates": (True, 1, False),
    "meter_array_set_rates": (True, 0, False),
}
_WITH_RATES = ("meter_set_rates", "meter_array_set_rates")
_PACKET = re.compile(r"\s*(?P<word>\w+)\s+(?P<port>\d+)(?:\s+(?P<data>.*))?$")
_HEX = re.compile(r"[0-9a-fA-F]*")
_PATTERN = re.compile(r"[0-9a-fA-F*]*")


def read_test(text: str) -> list[Command]:
    """All commands of a test. Raises StfError."""
    commands: list[Command] = []
    for number, content in enumerate(text.splitlines(), 1):
        stripped = content.split("#", 1)[0].strip()
        if stripped:
            commands.append(read_command(number, stripped))
    return commands


def read_command(number: int, text: str) -> Command:
    """The command on a line that is not empty. Raises StfError."""
    word = text.split(maxsplit=1)[0].lower()
    if word in ("packet", "expect"):
        return _packet(number, text)
    line = Line(number, text)
    word = line.word().lower()
    command: Command
    match word:
        case "no_packet":
            command = NoPacket(number)
        case "wait":
            command = Wait(number)
        case "add":
            command = _add(line)
        case "setdefault":
            command = SetDefault(number, line.qualified_name(), _action(line))
        case "remove":
            label = line.word()
            command = Remove(number, None if label.lower() == "all" else label)
        case "check_counter":
            command = _check_counter(line)
        case _ if word in DIRECT:
            command = _direct(line, word)
        case _:
            raise line.fail(f"no command {word!r}")
    line.end()
    return command


def _packet(number: int, text: str) -> Packet | Expect:
    """Bytes are read without tokens: `1e5` is three digits there."""
    found = _PACKET.match(text)
    if found is None:
        raise StfError(number, "expected a port number")
    word, port = found["word"].lower(), int(found["port"])
    data = "".join((found["data"] or "").split())
    if word == "packet":
        if not data or not _HEX.fullmatch(data):
            raise StfError(number, f"expected hexadecimal digits, not {data!r}")
        if len(data) % 2:
            raise StfError(number, f"{len(data)} hexadecimal digits are no whole bytes")
        return Packet(number, port, bytes.fromhex(data))
    exact = data.endswith("$")
    pattern = data.removesuffix("$")
    if not _PATTERN.fullmatch(pattern):
        raise StfError(number, f"expected hexadecimal digits and '*', not {pattern!r}")
    return Expect(number, port, pattern.lower() if data else None, exact)


def _add(line: Line) -> Add:
    table = line.qualified_name()
    token = line.peek()
    priority = line.integer() if token and token.kind == "number" else None
    matches = []
    while not _action_follows(line):
        matches.append(_match(line))
    action = _action(line)
    label = line.word() if line.accept("=") else None
    return Add(line.number, table, priority, tuple(matches), action, label)


def _action_follows(line: Line) -> bool:
    """The next name is followed by a parenthesis or the end, not by a colon."""
    ahead = 0
    while (token := line.peek(ahead)) is not None:
        if token.kind == "sign" and token.text in (":", "("):
            return token.text == "("
        ahead += 1
    return True


def _match(line: Line) -> Match:
    name = line.qualified_name()
    line.expect(":")
    value = line.pattern()
    match line.accept("/", "&&&", ".."):
        case "/":
            return Match(name, value, prefix_len=line.integer())
        case "&&&":
            return Match(name, value, mask=line.pattern())
        case "..":
            return Match(name, value, high=line.pattern())
        case _:
            return Match(name, value)


def _action(line: Line) -> ActionText:
    name = line.qualified_name()
    line.expect("(")
    return ActionText(name, tuple(_params(line)))


def _params(line: Line) -> Iterator[tuple[str, int]]:
    """Parameters and the closing parenthesis."""
    while not line.accept(")"):
        name = line.word()
        line.expect(":")
        yield name, line.integer()
        if not line.at(")"):
            line.expect(",")


def _check_counter(line: Line) -> CheckCounter:
    counter = line.qualified_name()
    line.expect("(")
    token = line.peek()
    named = token is not None and token.kind == "name"
    index = line.word().removeprefix("$") if named else line.integer()
    line.expect(")")
    if line.peek() is None:
        return CheckCounter(line.number, counter, index)
    unit = line.word(UNITS).lower()
    comparison = line.expect(*COMPARISONS)
    return CheckCounter(line.number, counter, index, unit, comparison, line.integer())


def _direct(line: Line, word: str) -> Direct:
    named, count, more = DIRECT[word]
    name = line.qualified_name() if named else ""
    numbers = [line.integer() for _ in range(count)]
    while more and line.peek() is not None:
        numbers.append(line.integer())
    rates: list[tuple[float, int]] = []
    while word in _WITH_RATES and (line.peek() is not None or not rates):
        rate = line.real()
        line.expect(":")
        rates.append((rate, line.integer()))
    return Direct(line.number, word, name, tuple(numbers), tuple(rates))
