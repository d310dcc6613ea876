# SPDX-License-Identifier: Apache-2.0
"""`softswitch-ctl`: commands for a running switch, the counterpart of simple_switch_CLI."""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from softswitch.control.catalogue import COMMANDS, NOT_HERE
from softswitch.control.protocol import ProtocolError, decode, default_path, encode, run_time_dir

_PROMPT = "softswitch-ctl> "
_TIMEOUT_S = 60.0
_COLUMNS = 100


class Refused(Exception):  # noqa: N818  (it is the switch's answer, not a fault of this program)
    """The switch did not carry a command out; the message is its own."""


class Switch:
    """A connection to the control socket of a switch."""

    def __init__(self, path: Path) -> None:
        """Raises OSError with words when nobody listens there."""
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_TIMEOUT_S)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise OSError(_unreachable(path, error)) from None
        self._lines = self._socket.makefile("rb")

    def ask(self, words: Sequence[str]) -> dict[str, Any]:
        """The answer to a command, with `text` and `data`.

        Raises:
            Refused: the switch did not carry it out.
            OSError: the switch is gone or does not answer.
        """
        with suppress(BrokenPipeError):  # of a line that is too long: the answer says so
            self._socket.sendall(encode({"words": list(words)}))
        line = self._lines.readline()
        if not line:
            raise OSError(f"the switch at {self._path} closed the connection")
        answer = decode(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    def close(self) -> None:
        """End the connection."""
        self._lines.close()
        self._socket.close()


def _unreachable(path: Path, error: OSError) -> str:
    if isinstance(error, PermissionError):
        return f"{path}: only the user who started the switch can give it commands"
    text = f"no switch listens at {path}"
    others = sorted(run_time_dir().glob("device-*.sock"))
    if others:
        names = ", ".join(other.stem.removeprefix("device-") for other in others)
        text += f"; --device-id takes one of these: {names}"
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out commands. Returns 0, or 1 when one failed or no switch was there."""
    given = _parser().parse_args(arguments)
    words: list[str] = given.words
    if words and (words[0] == "help" or words[-1] in ("-h", "--help")):
        topic = words[1:2] if words[0] == "help" else words[:1]
        return _help(topic)
    path = Path(given.control) if given.control else default_path(given.device_id)
    try:
        switch = Switch(path)
    except OSError as error:
        return _complain(error)
    try:
        if words and not given.command:
            return _run(switch, [("", words)], as_json=given.json)
        if given.command:
            return _run(switch, (("", line.split()) for line in given.command), as_json=given.json)
        if sys.stdin.isatty():
            return _run(switch, _typed(), as_json=given.json)
        return _run(switch, _read(sys.stdin), as_json=given.json)
    except (OSError, ProtocolError) as error:
        return _complain(error)
    except KeyboardInterrupt:
        return 130
    finally:
        switch.close()


def _complain(error: Exception, where: str = "") -> int:
    print(f"softswitch-ctl: {where}{error}", file=sys.stderr)
    return 1


def _run(switch: Switch, commands: Iterable[tuple[str, list[str]]], *, as_json: bool) -> int:
    """Carry out all commands, also after one that failed, as simple_switch_CLI does."""
    code = 0
    for where, words in commands:
        if not words:
            continue
        if words[0] == "help":
            code |= _help(words[1:2])
            continue
        try:
            answer = switch.ask(words)
        except Refused as error:
            code = _complain(error, where)
            continue
        text = json.dumps(answer["data"], indent=2) if as_json else answer["text"]
        try:
            print(text, flush=True)
        except BrokenPipeError:
            # Who read the answers has seen enough, as `head` does. What is left goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return code
    return code


def _read(lines: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """The commands of a script; empty lines and those that begin with # are none."""
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if words and not words[0].startswith("#"):
            yield f"line {number}: ", words


def _typed() -> Iterator[tuple[str, list[str]]]:
    """The commands that somebody types, with their names completed."""
    import readline

    def complete(text: str, state: int) -> str | None:
        found = [f"{name} " for name in COMMANDS if name.startswith(text)]
        return found[state] if state < len(found) else None

    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    while True:
        try:
            words = input(_PROMPT).split()
        except EOFError:
            print()
            return
        if words and words[0] in ("exit", "quit", "EOF"):
            return
        yield "", words


def _help(topic: Sequence[str]) -> int:
    if not topic:
        _parser().print_help()
        return 0
    name = topic[0]
    usage = COMMANDS.get(name)
    if usage is None:
        reason = NOT_HERE.get(name, "softswitch-ctl --help lists the commands")
        return _complain(ValueError(f"there is no command {name!r}: {reason}"))
    print(f"{name} {usage.arguments}".rstrip())
    print(textwrap.fill(usage.help, _COLUMNS, initial_indent="  ", subsequent_indent="  "))
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"softswitch-ctl: {message} (--help says more)\n")


def _parser() -> argparse.ArgumentParser:
    commands = "\n".join(f"  {f'{n} {u.arguments}'.rstrip()}" for n, u in COMMANDS.items())
    parser = _Parser(
        prog="softswitch-ctl",
        usage="softswitch-ctl [options] [COMMAND [ARGUMENT...]]",
        description=textwrap.fill(
            "Gives commands to a running softswitch: COMMAND, those of -c, or otherwise lines of "
            "standard input. They are those of simple_switch_CLI, and its scripts can be read. "
            "Names may be shortened to an end that only one object has.",
            _COLUMNS,
        ),
        epilog=f"commands (softswitch-ctl help COMMAND says more):\n{commands}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--device-id", type=int, default=0, metavar="N", help="of the switch; default 0"
    )
    where.add_argument("--control", metavar="PATH", help="the switch's socket, as given to it")
    parser.add_argument("--json", action="store_true", help="print answers as JSON")
    parser.add_argument(
        "-c", "--command", action="append", default=[], metavar="LINE",
        help="a command in one argument; may be repeated",
    )  # fmt: skip
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
