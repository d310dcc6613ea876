# SPDX-License-Identifier: Apache-2.0
"""The commands that read and write counters, registers and meters."""

from __future__ import annotations

from softswitch.dataplane import CounterArray, Dataplane, RegisterArray
from softswitch.errors import Unsupported
from softswitch.stf.commands import Direct
from softswitch.stf.entries import find


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
            case _:
                raise Unsupported(command.object, f"{command.name} is not supported")
        return ""
