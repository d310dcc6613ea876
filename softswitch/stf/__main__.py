# SPDX-License-Identifier: Apache-2.0
"""`python -m softswitch.stf PROGRAM.json TEST.stf`: exits with 0 when the test passes, 1 when
something differs, 2 when the test cannot be read or carried out, 3 when the program is refused."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from softswitch.dataplane import Dataplane
from softswitch.errors import DataplaneError
from softswitch.stf.commands import CheckCounter, StfError
from softswitch.stf.reader import read_test
from softswitch.stf.runner import run_test
from softswitch.values import DataplaneOptions

PASSED, DIFFERS, BAD_TEST, REFUSED = range(4)
SEED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one test; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m softswitch.stf",
        description="run an STF test of p4c on softswitch",
        epilog="exit codes: 0 passed, 1 something differs, 2 the test is wrong, "
        "3 the program is refused",
    )
    parser.add_argument("program", type=Path, metavar="PROGRAM.json", help="p4c's BMv2 JSON")
    parser.add_argument("test", type=Path, metavar="TEST.stf", help="the test")
    parser.add_argument(
        "--no-counters",
        action="store_true",
        help="do not look at check_counter, as p4c's own runner for BMv2 does not",
    )
    options = parser.parse_args(arguments)
    try:
        program = options.program.read_bytes()
        commands = read_test(options.test.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, StfError) as error:
        print(f"{options.test}: {error}")
        return BAD_TEST
    if options.no_counters:
        commands = [command for command in commands if not isinstance(command, CheckCounter)]
    try:
        dataplane = Dataplane(DataplaneOptions(seed=SEED))
    except DataplaneError as error:
        print(f"softswitch: {error}")
        return BAD_TEST
    try:
        try:
            dataplane.load(program)
        except DataplaneError as error:
            print(f"{options.program}: refused: {error}")
            return REFUSED
        report = run_test(dataplane, commands)
    except StfError as error:
        print(f"{options.test}: {error}")
        return BAD_TEST
    finally:
        dataplane.close()
    for line in (*report.notes, *report.differences):
        print(line)
    verdict = f"{len(report.differences)} differences" if report.differences else "passed"
    print(f"{options.test.name}: {verdict} ({report.sent} packets in, {report.received} out)")
    return DIFFERS if report.differences else PASSED


if __name__ == "__main__":
    sys.exit(main())
