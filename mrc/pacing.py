# SPDX-License-Identifier: Apache-2.0
"""Pacing of senders by a schedule of tokens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

_QUANTUM_S = 0.0005  # a sleeping sender wakes at most this often
_ROUNDING = 1e-6  # tokens; or a sum that rounds to just below one would be waited for in vain


class Pacer:
    """Lets a sender send `rate` packets per second on average, never more than `burst` at once.

    Time that the sender lost, because the machine was busy, is made up for by at most one burst.
    A rate of None is "as fast as possible": bursts, and in between the event loop gets its turn.
    """

    def __init__(
        self,
        rate: float | None,
        burst: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._rate = rate
        self._burst = burst
        self._wanted = 1 if rate is None else max(1, min(burst, int(rate * _QUANTUM_S)))
        self._tokens = 1.0
        self._last = clock()

    async def grant(self) -> int:
        """Wait until packets may be sent; how many, 1 to `burst`."""
        await self._sleep(0)  # the receiver's turn, even when the schedule is behind
        if self._rate is None:
            return self._burst
        self._fill(self._rate)
        while self._tokens < 1 - _ROUNDING:
            await self._sleep((self._wanted - self._tokens) / self._rate)
            self._fill(self._rate)
        granted = int(self._tokens + _ROUNDING)
        self._tokens -= granted
        return granted

    def _fill(self, rate: float) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._last) * rate)
        self._last = now
