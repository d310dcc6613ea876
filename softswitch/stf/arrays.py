# SPDX-License-Identifier: Apache-2.0
"""The commands that read and write counters, registers and meters."""

from __future__ import annotations

from collections.abc import Sequence

from softswitch.dataplane import CounterArray, Dataplane, RegisterArray
from softswitch.errors import InvalidArgument
from softswitch.stf.commands import Direct
from softswitch.stf.entries import find
from softswitch.values import MeterConfig

MICROSECONDS = 1_000_000
"""In a second."""


class Arrays:
    """The arrays of a program by the names that tests give them."""

    def __init__(self, dataplane: Dataplane) -> None:
        self._dataplane = dataplane

    def counter(self, name: str) -> CounterArray:
        """An indirect counter."""
        return find(self._dataplane.counters, name, "counter")

    def register(self, name: str) -> RegisterArray:
        """A register array."""
        return find(self._dataplane.registers, name, "register")

    def execute(self, command: Direct) -> str:
        """Carry out a command; its answer, "" when it has none."""
        numbers = command.numbers
        match command.name:
            case "counter_read":
                counter = self.counter(command.object)
                packets, bytes_ = counter.read(*numbers)
                return f"{counter.name}[{numbers[0]}]: {packets} packets, {bytes_} bytes"
            case "counter_write":
                self.counter(command.object).write(*numbers)
            case "register_read":
                register = self.register(command.object)
                return f"{register.name}[{numbers[0]}] = {register.read(*numbers)}"
            case "register_write":
                self.register(command.object).write(*numbers)
            case "register_reset":
                register = self.register(command.object)
                for index in range(register.size):
                    register.write(index, 0)
            case "meter_get_rates":
                meter = find(self._dataplane.meters, command.object, "meter")
                return f"{meter.name}[{numbers[0]}]: {_rates_text(meter.read(*numbers).config)}"
            case "meter_set_rates":
                meter = find(self._dataplane.meters, command.object, "meter")
                meter.configure(numbers[0], _meter_config(command.rates))
            case "meter_array_set_rates":
                meter = find(self._dataplane.meters, command.object, "meter")
                for index in range(meter.size):
                    meter.configure(index, _meter_config(command.rates))
            case name:
                raise InvalidArgument(f"{name} does not concern an array")
        return ""


def _meter_config(rates: Sequence[tuple[float, int]]) -> MeterConfig:
    """The committed and the peak (rate, burst); rates are in packets or bytes per microsecond."""
    if len(rates) != 2:
        raise InvalidArgument(f"a meter has two rates, not {len(rates)}")
    (committed, cburst), (peak, pburst) = rates
    return MeterConfig(round(committed * MICROSECONDS), cburst, round(peak * MICROSECONDS), pburst)


def _rates_text(config: MeterConfig | None) -> str:
    if config is None:
        return "no rates"
    return (
        f"{config.cir / MICROSECONDS:g}:{config.cburst} {config.pir / MICROSECONDS:g}:"
        f"{config.pburst} per microsecond"
    )
