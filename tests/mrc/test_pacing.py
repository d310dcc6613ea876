# SPDX-License-Identifier: Apache-2.0
"""The sender's schedule, on a clock that the test moves."""

from __future__ import annotations

import asyncio

import pytest

from mrc.pacing import Pacer


class Clock:
    """Time that passes only in sleep, each time somewhat longer than asked for."""

    def __init__(self, oversleep_s: float) -> None:
        self.now = 1000.0
        self._oversleep_s = oversleep_s

    def read(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self.now += seconds + self._oversleep_s


@pytest.mark.parametrize("oversleep_s", [0.0, 0.0002])
@pytest.mark.parametrize("rate", [10.0, 1000.0, 20_000.0, 100_000.0])
def test_rate_and_burst(rate: float, oversleep_s: float) -> None:
    clock = Clock(oversleep_s)

    async def send(packets: int) -> tuple[float, int]:
        pacer = Pacer(rate, 32, clock.read, clock.sleep)
        started, sent, largest = clock.now, 0, 0
        while sent < packets:
            granted = await pacer.grant()
            sent, largest = sent + granted, max(largest, granted)
        return (sent - 1) / (clock.now - started), largest

    reached, largest = asyncio.run(send(3000))
    assert largest <= 32
    assert reached <= rate * 1.001
    if rate < 32 / (32 / rate + oversleep_s) * 0.99 or oversleep_s == 0:
        assert reached >= rate * 0.95


def test_lost_time_is_made_up_for_by_one_burst_only() -> None:
    clock = Clock(0.0)

    async def grants() -> list[int]:
        pacer = Pacer(1000.0, 8, clock.read, clock.sleep)
        clock.now += 5.0
        return [await pacer.grant() for _ in range(3)]

    assert asyncio.run(grants()) == [8, 1, 1]


def test_unpaced_is_burst_after_burst() -> None:
    async def grants() -> list[int]:
        pacer = Pacer(None, 16)
        return [await pacer.grant() for _ in range(3)]

    assert asyncio.run(grants()) == [16, 16, 16]
