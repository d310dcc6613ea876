# SPDX-License-Identifier: Apache-2.0
"""Carries out an STF test on a data plane without interfaces.

A test's result is always the same: each packet leaves before the next command is looked at, and the
switch's clock goes on by a second between a command and the packet after it, as p4c waits then, and
stands still otherwise.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from softswitch.dataplane import Dataplane
from softswitch.errors import AssertionFailed, DataplaneError, InvalidArgument, NotFound
from softswitch.stf.arrays import Arrays
from softswitch.stf.commands import (
    Add,
    CheckCounter,
    Command,
    Direct,
    Expect,
    NoPacket,
    Packet,
    Remove,
    SetDefault,
    StfError,
    Wait,
)
from softswitch.stf.entries import action_call, find, key_matches
from softswitch.stf.outputs import Outputs
from softswitch.stf.replication import Replication
from softswitch.tables import Table

COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MATCH_KINDS_WITH_PRIORITY = ("TERNARY", "RANGE")


@dataclass(slots=True)
class Report:
    """What came of a test: no `differences` means that it passed.

    `notes` are the answers to the commands that read something.
    """

    sent: int = 0
    received: int = 0
    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run_test(dataplane: Dataplane, commands: Sequence[Command]) -> Report:
    """Run a test on a data plane that has its program and is not started.

    Raises StfError for a command that cannot be carried out.
    """
    return _Run(dataplane, commands).run()


class _Run:
    def __init__(self, dataplane: Dataplane, commands: Sequence[Command]) -> None:
        self._dataplane = dataplane
        self._commands = commands
        self._report = Report()
        self._outputs = Outputs({c.port for c in commands if isinstance(c, Packet | Expect)})
        self._replication = Replication(dataplane)
        self._arrays = Arrays(dataplane)
        self._entries: list[tuple[Table, int, str | None]] = []
        self._second = 0
        self._commanded = True

    def run(self) -> Report:
        for command in self._commands:
            try:
                self._execute(command)
            except DataplaneError as error:
                raise StfError(command.line, str(error)) from error
        self._report.differences += self._outputs.differences()
        self._report.received = self._outputs.received
        return self._report

    def _execute(self, command: Command) -> None:
        if not isinstance(command, Packet | Expect | NoPacket | Wait):
            self._commanded = True
        match command:
            case Packet():
                self._send(command)
            case Expect():
                self._outputs.expect(command)
            case NoPacket():
                for port, count in self._outputs.surplus().items():
                    self._differ(command, f"{count} packets have left port {port}, expected none")
            case Add():
                self._add(command)
            case SetDefault():
                table = find(self._dataplane.tables, command.table, "table")
                table.set_default(action_call(table, command.action))
            case Remove():
                self._remove(command)
            case CheckCounter():
                self._check_counter(command)
            case Direct():
                self._direct(command)
            case Wait():
                pass  # every packet has left before the next command

    def _differ(self, command: Command, what: str) -> None:
        self._report.differences.append(f"line {command.line}: {what}")

    def _send(self, command: Packet) -> None:
        self._report.sent += 1
        self._second += self._commanded
        self._commanded = False
        self._dataplane.set_clock(self._second)
        try:
            for port, data in self._dataplane.process(command.port, command.data):
                self._outputs.left(port, data)
        except AssertionFailed as error:
            self._differ(command, str(error))

    def _add(self, command: Add) -> None:
        table = find(self._dataplane.tables, command.table, "table")
        if command.label is not None and any(e[2] == command.label for e in self._entries):
            raise InvalidArgument(f"there is an entry {command.label!r} already")
        if table.layout.kind in MATCH_KINDS_WITH_PRIORITY and command.priority is None:
            raise InvalidArgument(f"{table.name} has keys with masks or ranges: give a priority")
        handle = table.insert(
            key_matches(table, command.matches),
            command.priority or 0,
            action_call(table, command.action),
        )
        self._entries.append((table, handle, command.label))

    def _remove(self, command: Remove) -> None:
        chosen = [e for e in self._entries if command.label in (None, e[2])]
        if command.label is not None and not chosen:
            raise NotFound(f"no entry is called {command.label!r}")
        for entry in chosen:
            table, handle, _ = entry
            table.delete(handle)
            self._entries.remove(entry)

    def _check_counter(self, command: CheckCounter) -> None:
        packets, bytes_ = self._counter(command)
        got = packets if command.unit == "packets" else bytes_
        if command.comparison and not COMPARISONS[command.comparison](got, command.number):
            self._differ(
                command,
                f"{command.counter}({command.index}): {got} {command.unit}, "
                f"expected {command.comparison} {command.number}",
            )

    def _counter(self, command: CheckCounter) -> tuple[int, int]:
        """(packets, bytes): of a cell, or of an entry that has a label."""
        if isinstance(command.index, int):
            return self._arrays.counter(command.counter).read(command.index)
        for table, handle, label in self._entries:
            if label == command.index:
                if not table.has_counter:
                    raise NotFound(f"{table.name} has no direct counter")
                return table.read_counter(handle)
        raise NotFound(f"no entry is called {command.index!r}")

    def _direct(self, command: Direct) -> None:
        numbers = command.numbers
        match command.name:
            case "mirroring_add":
                self._replication.mirror_to_port(*numbers)
            case "mirroring_add_mc":
                self._replication.mirror_to_group(*numbers)
            case "mirroring_delete":
                self._replication.delete_session(*numbers)
            case "mirroring_get":
                text = self._replication.describe(numbers[0])
                self._note(command, f"mirroring session {numbers[0]}: {text}")
            case "mc_mgrp_create":
                self._replication.create_group(*numbers)
            case "mc_node_create":
                self._replication.create_node(numbers[0], numbers[1:])
            case "mc_node_update":
                self._replication.update_node(numbers[0], numbers[1:])
            case "mc_node_associate":
                self._replication.associate(*numbers)
            case _:
                if text := self._arrays.execute(command):
                    self._note(command, text)

    def _note(self, command: Command, text: str) -> None:
        self._report.notes.append(f"line {command.line}: {text}")
