# SPDX-License-Identifier: Apache-2.0
"""A pipeline that keeps entries but forwards nothing.

It stands in for a program that is not running: between VERIFY_AND_SAVE and COMMIT the controller's
updates go here, and RECONCILE_AND_COMMIT tries here whether the old entries fit the new program
before the running one is touched (P4Runtime 1.4, section 14). It has the sizes of the tables, so it
refuses what the real one would refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from softswitch.boundary import TableTarget
from softswitch.counted import counted_entry, counted_key
from softswitch.description import Description, TableDescription
from softswitch.errors import TableFull
from softswitch.values import (
    ActionCall,
    Counts,
    FieldMatch,
    MeterConfig,
    MeterState,
    TablePlan,
)


class ShadowTable:
    """The counters of a table's entries, by handle."""

    def __init__(self, description: TableDescription) -> None:
        self._name = description.name
        self._size = description.size
        self._counters: dict[int, tuple[int, int]] = {}
        self._missed = (0, 0)
        self._meters = ShadowMeters()
        self._next = 0
        self.initial_handles = [self._new() for _ in description.entries]

    def _new(self) -> int:
        handle = self._next
        self._next += 1
        self._counters[handle] = (0, 0)
        return handle

    def unfix(self) -> None:
        """Nothing is fixed here."""

    def insert(self, match: Sequence[FieldMatch], priority: int, action: TableTarget) -> int:
        if len(self._counters) >= self._size:
            raise TableFull(f"table {self._name!r} has {self._size} entries, its size")
        return self._new()

    def modify(self, handle: int, action: TableTarget) -> None:
        """Nothing depends on an entry's action here."""

    def delete(self, handle: int) -> None:
        del self._counters[handle]
        self._meters.forget(handle)

    def set_default(self, action: ActionCall | None) -> None:
        """Nothing depends on the default action here."""

    def read_counter(self, handle: int) -> tuple[int, int]:
        return self._counters[handle]

    def write_counter(self, handle: int, packets: int, bytes_: int) -> None:
        self._counters[handle] = (packets, bytes_)

    def counted(
        self, handles: Sequence[int], wires: Sequence[bytes], *, direct: bool
    ) -> list[bytes]:
        encode = counted_key if direct else counted_entry
        return [
            encode(wire, *self._counters[handle])
            for handle, wire in zip(handles, wires, strict=True)
        ]

    def read_default_counter(self) -> tuple[int, int]:
        return self._missed

    def write_default_counter(self, packets: int, bytes_: int) -> None:
        self._missed = (packets, bytes_)

    def configure_meter(self, handle: int, config: MeterConfig | None) -> None:
        self._meters.configure(handle, config)

    def read_meter(self, handle: int) -> MeterState:
        return self._meters.read(handle)

    def count_meter(self, handle: int, counts: Counts) -> None:
        self._meters.count(handle, counts)

    def set_timeout(self, handle: int, timeout_ns: int) -> None:
        """Nothing times out here."""

    def idle_ns(self, handle: int) -> int:
        return 0

    def expired(self, most: int) -> tuple[list[int], float | None]:
        return [], None


class ShadowProfile:
    """The handles of a profile's members and groups."""

    def __init__(self, name: str, max_size: int) -> None:
        self._name = name
        self._max_size = max_size
        self._members: set[int] = set()
        self._next = 0

    @property
    def members(self) -> int:
        """How many members there are."""
        return len(self._members)

    def _new(self) -> int:
        self._next += 1
        return self._next - 1

    def add_member(self, action: ActionCall, weight: int = 1) -> int:
        if len(self._members) >= self._max_size:
            raise TableFull(f"action profile {self._name!r} has {self._max_size} members, its size")
        member = self._new()
        self._members.add(member)
        return member

    def modify_member(self, member: int, action: ActionCall) -> None:
        """Nothing depends on a member's action here."""

    def delete_member(self, member: int) -> None:
        self._members.remove(member)

    def create_group(self, max_size: int) -> int:
        return self._new()

    def set_group(
        self,
        group: int,
        members: Sequence[tuple[int, int]],
        *,
        down: Collection[int] = (),
        at_random: bool = False,
    ) -> None:
        """Nothing depends on a group's members here."""

    def delete_group(self, group: int) -> None:
        """A group takes no room."""


class ShadowCounters:
    """An indirect counter array."""

    def __init__(self, size: int) -> None:
        self._cells = [(0, 0)] * size

    def read(self, index: int) -> tuple[int, int]:
        return self._cells[index]

    def write(self, index: int, packets: int, bytes_: int) -> None:
        self._cells[index] = (packets, bytes_)


class ShadowMeters:
    """Meters by cell or handle; those that nobody has set are not kept."""

    def __init__(self) -> None:
        self._states: dict[int, MeterState] = {}

    def configure(self, cell: int, config: MeterConfig | None) -> None:
        self._states[cell] = MeterState(config, self.read(cell).counts)

    def read(self, cell: int) -> MeterState:
        return self._states.get(cell, MeterState(None))

    def count(self, cell: int, counts: Counts) -> None:
        self._states[cell] = MeterState(self.read(cell).config, counts)

    def forget(self, cell: int) -> None:
        """The entry with this handle is gone."""
        self._states.pop(cell, None)


class ShadowRegisters:
    """A register array."""

    def __init__(self, size: int) -> None:
        self._cells = [0] * size

    def read(self, index: int) -> int:
        return self._cells[index]

    def write(self, index: int, value: int) -> None:
        self._cells[index] = value


class ShadowValueSet:
    """A parser value set."""

    def replace(self, members: Sequence[tuple[FieldMatch, ...]]) -> None:
        """The server knows the size, and nothing else depends on the members."""


class ShadowPipeline:
    """A program's entities, empty at first. `port_is_up` tells of the ports of the switch."""

    def __init__(self, description: Description, port_is_up: Callable[[int], bool]) -> None:
        self.port_is_up = port_is_up
        self.tables = {name: ShadowTable(t) for name, t in description.tables.items()}
        self.profiles = {n: ShadowProfile(n, size) for n, size in description.profiles.items()}
        self.counters = {name: ShadowCounters(n) for name, n in description.counters.items()}
        self.registers = {
            name: ShadowRegisters(n) for name, (n, _) in description.registers.items()
        }
        self.meters = {name: ShadowMeters() for name in description.meters}
        self.value_sets = {name: ShadowValueSet() for name in description.value_sets}

    def set_multicast_group(self, group_id: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Every group fits."""

    def delete_multicast_group(self, group_id: int) -> None:
        """A group takes no room."""

    def set_clone_session(
        self,
        session_id: int,
        replicas: Sequence[tuple[int, int]],
        truncate_len: int,
        priority: int = 0,
    ) -> None:
        """Every session fits."""

    def delete_clone_session(self, session_id: int) -> None:
        """A session takes no room."""

    def plan(self, plans: Sequence[TablePlan]) -> None:
        """Entries are written one by one here."""

    def freeze(self, timeout_s: float) -> None:
        """No packets come here."""

    def thaw(self) -> None:
        """No packets come here."""
