# SPDX-License-Identifier: Apache-2.0
"""Whole writes at once: the plain table entries of a WriteRequest, decoded and applied in C.

csrc/batch.c says which updates are plain. Python sees them as runs, one for consecutive updates of
one kind and table, and touches each of their entries only to remember it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import POINTER, c_uint32
from dataclasses import dataclass
from struct import Struct, iter_unpack
from typing import Any

from softswitch.codegen.layout import words_of
from softswitch.tables import Table
from softswitch.values import TablePlan

_KINDS = {"EXACT": 0, "LPM": 1, "TERNARY": 2, "RANGE": 3}  # enum ss_match_kind
_UPDATE = Struct("=10IQ")  # struct ss_update
_SPAN = Struct("=8x2I32x")  # its `entry` and `entry_bytes`
_TIMEOUT = Struct("=40xQ")  # its `timeout_us`
_KEY_AT = 16  # offset of its `key`
_RUN = Struct("=4I")  # struct ss_run
_NOT_TRIED = -100


class _Plan(ctypes.Structure):
    """struct ss_plan."""

    _fields_ = (
        ("tables", POINTER(c_uint32)),
        ("fields", POINTER(c_uint32)),
        ("actions", POINTER(c_uint32)),
        ("params", POINTER(c_uint32)),
        ("table_count", c_uint32),
    )


@dataclass(frozen=True, slots=True)
class Run:
    """`count` updates from `first` on. Kind 0: not plain; otherwise a p4.v1.Update.Type.

    `keys` tell the entries of a table apart, `wires` are their serialised TableEntry messages.
    """

    kind: int
    table: str
    first: int
    count: int
    keys: Sequence[bytes] = ()
    wires: Sequence[bytes] = ()


class Batch:
    """One decoded WriteRequest, and its way into the tables."""

    def __init__(self, planned: Planned, wire: bytes, count: int) -> None:
        """`count` is how many updates the request has."""
        self._planned = planned
        self._wire = wire
        self._updates = ctypes.create_string_buffer(count * _UPDATE.size)
        self._keys = ctypes.create_string_buffer(count * 8 * planned.longest_key)
        self._data = ctypes.create_string_buffer(count * 8 * planned.longest_data)
        runs = ctypes.create_string_buffer(count * _RUN.size)
        found = planned.engine.ss_batch_decode(
            planned.reference, wire, len(wire), count, self._updates, self._keys, self._data, runs
        )
        if found < 0:  # a form of the request that no serialiser writes: not plain as a whole
            self.runs = [Run(0, "", 0, count)]
            return
        self.runs = [self._run(*run) for run in iter_unpack("=4I", runs.raw[: found * _RUN.size])]

    def _run(self, kind: int, table: int, first: int, count: int) -> Run:
        if not kind:
            return Run(0, "", first, count)
        plan = self._planned
        size = 8 * plan.key_words[table]
        updates = memoryview(self._updates)[first * _UPDATE.size : (first + count) * _UPDATE.size]
        start = 8 * int.from_bytes(updates[_KEY_AT : _KEY_AT + 4], "little")
        keys = memoryview(self._keys)[start : start + count * size]
        wire = self._wire
        return Run(
            kind,
            plan.names[table],
            first,
            count,
            [key for (key,) in iter_unpack(f"{size}s", keys)],
            [wire[at : at + length] for at, length in _SPAN.iter_unpack(updates)],
        )

    def insert(self, run: Run, *, stop: bool) -> list[int]:
        """Insert a run's entries: handles, negative where that failed.

        With `stop` nothing is tried after the first failure.
        """
        handles = (ctypes.c_int32 * run.count)(*(_NOT_TRIED,) * run.count)
        plan = self._planned
        plan.engine.ss_batch_insert(
            plan.switch,
            plan.reference,
            self._at(run),
            run.count,
            self._keys,
            self._data,
            stop,
            handles,
        )
        return list(handles)

    def timeouts(self, run: Run) -> list[float]:
        """The idle time-out of each of a run's entries, in seconds; 0: none."""
        start = run.first * _UPDATE.size
        updates = memoryview(self._updates)[start : start + run.count * _UPDATE.size]
        return [timeout_us / 1e6 for (timeout_us,) in _TIMEOUT.iter_unpack(updates)]

    def modify(self, run: Run, handles: Sequence[int]) -> int:
        """Give entries the run's actions; how many of them are done, the rest finds no memory.

        A handle of `engine.NONE` is passed over.
        """
        plan = self._planned
        array = (c_uint32 * run.count)(*handles)
        return int(
            plan.engine.ss_batch_modify(
                plan.switch, plan.reference, self._at(run), run.count, self._data, array
            )
        )

    def delete(self, run: Run, handles: Sequence[int]) -> None:
        """Remove the entries with these handles, all of the run's table."""
        plan = self._planned
        array = (c_uint32 * len(handles))(*handles)
        plan.engine.ss_batch_delete(plan.switch, plan.indices[run.table], array, len(handles))

    def _at(self, run: Run) -> Any:
        return ctypes.byref(self._updates, run.first * _UPDATE.size)


class Planned:
    """What csrc/batch.c knows of the tables of a loaded program."""

    def __init__(
        self, engine: Any, switch: int, plans: Sequence[TablePlan], tables: Mapping[str, Table]
    ) -> None:
        self.engine = engine
        self.switch = switch
        self.names = [plan.name for plan in plans]
        self.indices = {plan.name: tables[plan.name].layout.index for plan in plans}
        self.key_words = [tables[plan.name].packer.total_words + 1 for plan in plans]
        self.longest_key = max(self.key_words, default=1)
        self.longest_data = 1
        flat: dict[str, list[int]] = {"tables": [], "fields": [], "actions": [], "params": []}
        for plan in plans:
            self._add(plan, tables[plan.name], flat)
        self.arrays = {name: (c_uint32 * len(n))(*n) for name, n in flat.items()}
        self._plan = _Plan(table_count=len(plans), **self.arrays)
        self.reference = ctypes.byref(self._plan)

    def _add(self, plan: TablePlan, table: Table, flat: dict[str, list[int]]) -> None:
        """Append one table as the structs of csrc/batch.c have it."""
        layout = table.layout
        flat["tables"] += [
            *(plan.id, layout.index, _KINDS[layout.kind], layout.words, plan.needs_priority),
            *(len(flat["fields"]) // 4, len(plan.fields)),
            *(len(flat["actions"]) // 5, len(plan.actions)),
            layout.with_timeouts and plan.timeouts,
        ]
        for (number, kind, width), place in zip(plan.fields, layout.keys, strict=True):
            flat["fields"] += [number, kind, width, place.shift]
        for number, name, params in plan.actions:
            action = table.action_set.named(name)
            at = 0
            flat["actions"] += [number, action.id, action.words]
            flat["actions"] += [len(flat["params"]) // 3, len(params)]
            for (param, width), (_, own) in zip(params, action.params, strict=True):
                flat["params"] += [param, width, at]
                at += words_of(own)
            self.longest_data = max(self.longest_data, action.words)

    def decode(self, wire: bytes, count: int) -> Batch:
        """The runs of a serialised WriteRequest with `count` updates."""
        return Batch(self, wire, count)
