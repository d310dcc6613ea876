# SPDX-License-Identifier: Apache-2.0
"""Meters of a loaded program, as Python programs them."""

from __future__ import annotations

import ctypes
from typing import Any

from softswitch.engine import check
from softswitch.errors import NotFound
from softswitch.values import Counts, MeterConfig, MeterState

_OFF, _TWO_RATES, _ONE_RATE = range(3)
_SETTINGS = 4
_Settings = ctypes.c_uint64 * _SETTINGS
_Counts = ctypes.c_uint64 * 6
_State = ctypes.c_uint64 * (_SETTINGS + 6)


class Meters:
    """The meters of an array by cell, or (`direct`) of a table by its entries' handles."""

    def __init__(self, engine: Any, switch: int, index: int, *, direct: bool, name: str) -> None:
        self.name = name
        self._engine = engine
        self._where = switch, direct, index

    def configure(self, cell: int, config: MeterConfig | None) -> None:
        """Set a meter, whose buckets are full then; None: all packets are green."""
        mode, settings = _OFF, _Settings()
        if config is not None and config.single_rate:
            mode, settings = _ONE_RATE, _Settings(config.cir, config.cburst, 0, config.eburst)
        elif config is not None:
            mode = _TWO_RATES
            settings = _Settings(config.cir, config.cburst, config.pir, config.pburst)
        check(self._engine.ss_meter_configure(*self._where, cell, mode, settings), self.name)

    def read(self, cell: int) -> MeterState:
        """Configuration and counters."""
        out = _State()
        mode = check(self._engine.ss_meter_read(*self._where, cell, out), self.name)
        cir, cburst, pir, pburst, *counts = out
        config = None
        if mode == _TWO_RATES:
            config = MeterConfig(cir, cburst, pir, pburst)
        elif mode == _ONE_RATE:
            config = MeterConfig(cir, cburst, cir, cburst, pburst, single_rate=True)
        green, yellow, red = zip(counts[::2], counts[1::2], strict=True)
        return MeterState(config, (green, yellow, red))

    def count(self, cell: int, counts: Counts) -> None:
        """Set the counters of the colors."""
        flat = _Counts(*(value for pair in counts for value in pair))
        check(self._engine.ss_meter_count(*self._where, cell, flat), self.name)


class MeterArray(Meters):
    """An indirect meter."""

    def __init__(self, engine: Any, switch: int, index: int, name: str, size: int) -> None:
        super().__init__(engine, switch, index, direct=False, name=name)
        self.size = size

    def configure(self, cell: int, config: MeterConfig | None) -> None:
        """Set a meter; NotFound outside of the array."""
        super().configure(self._cell(cell), config)

    def read(self, cell: int) -> MeterState:
        """Configuration and counters; NotFound outside of the array."""
        return super().read(self._cell(cell))

    def count(self, cell: int, counts: Counts) -> None:
        """Set the counters of the colors; NotFound outside of the array."""
        super().count(self._cell(cell), counts)

    def _cell(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise NotFound(f"{self.name}: index {index}; allowed: 0 to {self.size - 1}")
        return index
