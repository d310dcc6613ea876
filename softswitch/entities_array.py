# SPDX-License-Identifier: Apache-2.0
"""Indirect counters and registers (P4Runtime 1.4, sections 9.3.2 and 9.7): arrays of cells.

BMv2's P4Runtime server cannot reach registers; this one can.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r

from softswitch.boundary import CounterArrayLike, RegisterArrayLike
from softswitch.p4info import ArrayInfo
from softswitch.status import OUT_OF_RANGE, Failure, Undo, invalid
from softswitch.wire import (
    ENTITY_COUNTER,
    ENTITY_REGISTER,
    counter_data,
    integer_field,
    message_field,
)

# CounterEntry and RegisterEntry number their fields alike: id, index, data.
_ID, _INDEX, _DATA = 1, 2, 3


def cells_of(message: Any, size: int, where: str) -> range:
    """The cells that an entry names: one, or all of them when `index` is unset."""
    if not message.HasField("index"):
        return range(size)
    index = message.index.index
    if index < 0:
        raise invalid(f"{where}: index {index} is negative")
    if index >= size:
        raise Failure(OUT_OF_RANGE, f"{where}: index {index} is not below its size {size}")
    return range(index, index + 1)


class CounterStore:
    """One indirect counter array."""

    def __init__(self, info: ArrayInfo, counters: CounterArrayLike) -> None:
        self.info = info
        self._counters = counters

    def modify(self, message: Any, undo: Undo | None) -> None:
        """MODIFY a CounterEntry: one cell or all of them; unset `data` changes nothing."""
        cells = cells_of(message, self.info.size, self._where)
        if not message.HasField("data"):
            return
        packets, bytes_ = message.data.packet_count, message.data.byte_count
        if packets < 0 or bytes_ < 0:
            raise invalid(f"{self._where}: a counter cannot be negative")
        if undo is not None:
            before = [self._counters.read(i) for i in cells]
            undo.append(lambda: self._write(cells, before))
        self._write(cells, [(packets, bytes_)] * len(cells))

    def _write(self, cells: range, values: list[tuple[int, int]]) -> None:
        for index, value in zip(cells, values, strict=True):
            self._counters.write(index, *value)

    def read(self, query: Any) -> Iterator[bytes]:
        """Serialised Entity messages of the cells that a CounterEntry asks for."""
        head = integer_field(_ID, self.info.id)
        for index in cells_of(query, self.info.size, self._where):
            content = (
                head
                + message_field(_INDEX, integer_field(1, index))
                + message_field(_DATA, counter_data(*self._counters.read(index)))
            )
            yield message_field(ENTITY_COUNTER, content)

    def export(self) -> Iterator[Any]:
        """CounterEntry messages of the cells that are not 0."""
        for index in range(self.info.size):
            packets, bytes_ = self._counters.read(index)
            if packets or bytes_:
                message = p4r.CounterEntry(counter_id=self.info.id)
                message.index.index = index
                message.data.packet_count = packets
                message.data.byte_count = bytes_
                yield message

    @property
    def _where(self) -> str:
        return f"counter {self.info.name!r}"


class RegisterStore:
    """One register array; every cell is one number, as BMv2's JSON has it."""

    def __init__(self, info: ArrayInfo, width: int, registers: RegisterArrayLike) -> None:
        assert info.type is not None
        if info.type.length != 1:
            raise invalid(
                f"P4Info: register {info.name!r}: its cells have {info.type.length} members"
            )
        self.info = info
        self._type = info.type
        self._width = width
        self._registers = registers

    def modify(self, message: Any, undo: Undo | None) -> None:
        """MODIFY a RegisterEntry: one cell or all of them."""
        cells = cells_of(message, self.info.size, self._where)
        if not message.HasField("data"):
            raise invalid(f"{self._where}: data is missing")
        (value,) = self._type.decode(message.data, self._where)
        if value >> self._width:
            raise invalid(f"{self._where}: 0x{value:x} does not fit in {self._width} bits")
        if undo is not None:
            before = [self._registers.read(i) for i in cells]
            undo.append(lambda: self._write(cells, before))
        self._write(cells, [value] * len(cells))

    def _write(self, cells: range, values: list[int]) -> None:
        for index, value in zip(cells, values, strict=True):
            self._registers.write(index, value)

    def read(self, query: Any) -> Iterator[bytes]:
        """Serialised Entity messages of the cells that a RegisterEntry asks for."""
        head = integer_field(_ID, self.info.id)
        for index in cells_of(query, self.info.size, self._where):
            data = self._type.encode(iter((self._registers.read(index),)))
            content = (
                head
                + message_field(_INDEX, integer_field(1, index))
                + message_field(_DATA, data.SerializeToString())
            )
            yield message_field(ENTITY_REGISTER, content)

    def export(self) -> Iterator[Any]:
        """RegisterEntry messages of the cells that are not 0."""
        for index in range(self.info.size):
            value = self._registers.read(index)
            if value:
                message = p4r.RegisterEntry(register_id=self.info.id)
                message.index.index = index
                message.data.CopyFrom(self._type.encode(iter((value,))))
                yield message

    @property
    def _where(self) -> str:
        return f"register {self.info.name!r}"
