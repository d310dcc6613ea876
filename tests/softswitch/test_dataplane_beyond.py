# SPDX-License-Identifier: Apache-2.0
"""What p4c compiles and BMv2 refuses or gets wrong (programs/beyond.p4) does what the P4 says."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pytest

from softswitch.dataplane import Dataplane
from softswitch.values import ActionCall, FieldMatch
from tests.softswitch.dataplanes import loaded

Item = tuple[int, int]  # flag and value; `rest` is 0

FIRST, SECOND = (1, 5), (0, 0x123456)


@pytest.fixture(scope="module")
def beyond() -> Iterator[Dataplane]:
    with loaded("beyond", log_messages=True) as dataplane:
        table = dataplane.tables["ingress.choose"]
        for value, valid, result in ((5, 1, 77), (5, 0, 78), (0, 1, 79)):
            keys = [FieldMatch(value), FieldMatch(valid)]
            table.insert(keys, 0, ActionCall("ingress.found", (result,)))
        yield dataplane


def packet(op: int, at: int, from_: int, items: Sequence[Item], result: int = 9) -> bytes:
    data = bytes(14) + bytes([op, at, from_]) + result.to_bytes(3)
    return data + b"".join(bytes([flag << 7]) + value.to_bytes(3) for flag, value in items)


@pytest.mark.parametrize(
    ("op", "at", "from_", "items", "result"),
    [
        (0, 1, 0, [FIRST, SECOND], 1),
        (0, 2, 0, [FIRST, SECOND], 9),
        (0, 3, 0, [FIRST, SECOND], 9),
        (1, 2, 0, [SECOND, (0, 0)], 9),
        (1, 255, 1, [FIRST], 9),
        (1, 0, 3, [FIRST, SECOND], 9),
        (2, 2, 1, [FIRST, SECOND, SECOND], 9),
        (2, 0, 1, [SECOND, SECOND], 9),
        (2, 1, 2, [FIRST], 9),
        (2, 1, 1, [FIRST, SECOND], 9),
        (2, 3, 0, [FIRST, SECOND], 9),
        (2, 0, 3, [FIRST, SECOND], 9),
        (3, 1, 0, [FIRST, (1, SECOND[1])], 9),
        (3, 0, 1, [(0, FIRST[1]), SECOND], 9),
        (4, 0, 1, [FIRST, SECOND], 77),
        (4, 0, 2, [FIRST, SECOND], 78),
        (4, 2, 0, [FIRST, SECOND], 79),
        (4, 200, 1, [FIRST, SECOND], 79),
        (4, 1, 0, [FIRST, SECOND], 9),
        (5, 0, 0, [FIRST, SECOND], 0b10000101),
        (6, 0, 1, [(1, SECOND[1] + 1), SECOND], 9),
        (6, 1, 7, [FIRST, (0, 1)], 9),
        (6, 8, 0, [FIRST, SECOND], 9),
    ],
)
def test_elements_at_any_index(
    beyond: Dataplane, op: int, at: int, from_: int, items: Sequence[Item], result: int
) -> None:
    left = beyond.process(1, packet(op, at, from_, [FIRST, SECOND]))
    assert left == [(2, packet(op, at, from_, items, result))]


def test_the_deparser_may_say_something(
    beyond: Dataplane, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    beyond.process(1, packet(0, 0, 0, [FIRST, SECOND]))
    assert [r.getMessage() for r in caplog.records if r.name == "softswitch.program"] == [
        "leaving with 1"
    ]
