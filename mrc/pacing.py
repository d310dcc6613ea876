# SPDX-License-Identifier: Apache-2.0
"""Pacing of senders by a schedule of tokens."""

from __future__ import annotations

import asyncio
import time

_QUANTUM_S = 0.0005  # a sleeping sender wakes at most this often


class Pacer:
    """Lets a sender send `rate` packets per second on average, never more than `burst` at once.

    Time that the sender lost, because the machine was busy, is made up for by at most one burst.
    A rate of None is "as fast as possible": bursts, and in between the event loop gets its turn.
    """

    def __init__(self, rate: float | None, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._wanted = 1 if rate is None else max(1, min(burst, int(rate * _QUANTUM_S)))
        self._tokens = 1.0
        self._last = time.monotonic()

    async def grant(self) -> int:
        """Wait until packets may be sent; how many, 1 to `burst`."""
        if self._rate is None:
            await asyncio.sleep(0)
            return self._burst
        self._fill(self._rate)
        if self._tokens >= 1:
            await asyncio.sleep(0)  # the receiver's turn, even when the schedule is behind
        while self._tokens < 1:
            await asyncio.sleep((self._wanted - self._tokens) / self._rate)
            self._fill(self._rate)
        granted = int(self._tokens)
        self._tokens -= granted
        return granted

    def give_back(self, packets: int) -> None:
        """Return what was granted and not used."""
        self._tokens += packets

    def _fill(self, rate: float) -> None:
        now = time.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._last) * rate)
        self._last = now
