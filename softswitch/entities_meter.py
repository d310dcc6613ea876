# SPDX-License-Identifier: Apache-2.0
"""Meters (P4Runtime 1.4, section 9.4): their configurations, and indirect meters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r

from softswitch.boundary import MeterArrayLike
from softswitch.entities_array import cells_of
from softswitch.p4info import MeterInfo, MeterKind
from softswitch.status import Undo, invalid
from softswitch.values import MeterConfig, MeterState
from softswitch.wire import ENTITY_METER, counter_data, integer_field, message_field

_ID, _INDEX, _CONFIG, _COUNTER_DATA = 1, 2, 3, 4  # fields of MeterEntry
NO_COUNTS = ((0, 0),) * 3


def parse_config(message: Any, kind: MeterKind, where: str) -> MeterConfig:
    """A MeterConfig that a meter of this kind accepts. Raises `Failure` INVALID_ARGUMENT."""
    for name in ("cir", "cburst", "pir", "pburst", "eburst"):
        if getattr(message, name) < 0:
            raise invalid(f"{where}: {name} {getattr(message, name)} is negative")
    cir, cburst, pir, pburst = message.cir, message.cburst, message.pir, message.pburst
    if message.eburst and kind is not MeterKind.SINGLE_RATE_THREE_COLOR:
        raise invalid(f"{where} is a {kind.name} meter, so it has no eburst")
    if kind is not MeterKind.TWO_RATE_THREE_COLOR:
        if (cir, cburst) != (pir, pburst):
            raise invalid(
                f"{where} is a {kind.name} meter: pir {pir} and pburst {pburst} must be cir {cir} "
                f"and cburst {cburst}"
            )
    elif pir < cir:
        raise invalid(f"{where}: pir {pir} is below cir {cir}")
    single = kind is MeterKind.SINGLE_RATE_THREE_COLOR
    return MeterConfig(cir, cburst, pir, pburst, message.eburst, single)


def config_content(config: MeterConfig) -> bytes:
    """The content of a MeterConfig message."""
    values = (config.cir, config.cburst, config.pir, config.pburst, config.eburst)
    return b"".join(integer_field(number, value) for number, value in enumerate(values, start=1))


def counts_content(state: MeterState) -> bytes:
    """The content of a MeterCounterData message."""
    return b"".join(
        message_field(number, counter_data(*pair))
        for number, pair in enumerate(state.counts, start=1)
    )


def config_message(config: MeterConfig) -> Any:
    """A MeterConfig message."""
    return p4r.MeterConfig.FromString(config_content(config))


def check_reset(message: Any, where: str) -> None:
    """Counters of colors can only be set to 0. Raises `Failure` INVALID_ARGUMENT."""
    for color in (message.green, message.yellow, message.red):
        if color.byte_count or color.packet_count:
            raise invalid(f"{where}: the counters of a meter's colors can only be set to 0")


class MeterStore:
    """One indirect meter array."""

    def __init__(self, info: MeterInfo, meters: MeterArrayLike) -> None:
        self.info = info
        self._meters = meters

    def modify(self, message: Any, undo: Undo | None) -> None:
        """MODIFY a MeterEntry: one cell or all; an unset `config` makes all packets green."""
        cells = cells_of(message, self.info.size, self._where)
        config = None
        if message.HasField("config"):
            config = parse_config(message.config, self.info.kind, self._where)
        reset = message.HasField("counter_data")
        if reset:
            check_reset(message.counter_data, self._where)
        if undo is not None:
            before = [self._meters.read(cell) for cell in cells]
            undo.append(lambda: self._restore(cells, before))
        for cell in cells:
            self._meters.configure(cell, config)
            if reset:
                self._meters.count(cell, NO_COUNTS)

    def _restore(self, cells: range, states: list[MeterState]) -> None:
        for cell, state in zip(cells, states, strict=True):
            self._meters.configure(cell, state.config)
            self._meters.count(cell, state.counts)

    def read(self, query: Any) -> Iterator[bytes]:
        """Serialised Entity messages of the cells that a MeterEntry asks for."""
        head = integer_field(_ID, self.info.id)
        with_counts = query.HasField("counter_data")
        for cell in cells_of(query, self.info.size, self._where):
            state = self._meters.read(cell)
            content = head + message_field(_INDEX, integer_field(1, cell))
            if state.config is not None:
                content += message_field(_CONFIG, config_content(state.config))
            if with_counts:
                content += message_field(_COUNTER_DATA, counts_content(state))
            yield message_field(ENTITY_METER, content)

    def export(self) -> Iterator[Any]:
        """MeterEntry messages of the cells that have a configuration."""
        for cell in range(self.info.size):
            state = self._meters.read(cell)
            if state.config is not None:
                message = p4r.MeterEntry(meter_id=self.info.id, config=config_message(state.config))
                message.index.index = cell
                yield message

    @property
    def _where(self) -> str:
        return f"meter {self.info.name!r}"
