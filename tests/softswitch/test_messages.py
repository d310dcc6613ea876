# SPDX-License-Identifier: Apache-2.0
"""log_msg: what a program says ends up in the log, with the values in their places."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from softswitch.messages import with_values
from softswitch.options import parse
from tests.softswitch.dataplanes import loaded
from tests.softswitch.scenarios_wide import wide_header


@pytest.mark.parametrize("logging_on", [True, False])
def test_messages_of_a_program_are_logged(
    caplog: pytest.LogCaptureFixture, logging_on: bool
) -> None:
    caplog.set_level(logging.INFO)
    with loaded("wide", log_messages=logging_on) as dataplane:
        fields = {"op": 24, "a": (1 << 129) - 1, "s": -(1 << 199), "x": 9}
        dataplane.process(1, bytes(14) + wide_header(fields))
    said = [r.getMessage() for r in caplog.records if r.name == "softswitch.program"]
    expected = [f'a {(1 << 129) - 1}, s {{{-(1 << 199)}}}, 9 of "x"', "plain"]
    assert said == (expected if logging_on else [])


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("{}", [1], "1"),
        ("{} and {}", [1, -2], "1 and -2"),
        (r"\{{}\} {0}", [7, 8], "{7} 8"),
        ("{} {}", [3], "3 {}"),
        ("none", [3, 4], "none 3 4"),
        ("an open {", [], "an open {"),
    ],
)
def test_values_in_a_text(text: str, values: Sequence[int], expected: str) -> None:
    assert with_values(text, values) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], False),
        (["--log-console"], True),
        (["--log-console", "-L", "debug"], True),
        (["--log-console", "-L", "warn"], False),
    ],
)
def test_messages_are_wanted_where_there_is_a_log(arguments: list[str], expected: bool) -> None:
    assert parse([*arguments, "--no-p4"]).dataplane.log_messages is expected
