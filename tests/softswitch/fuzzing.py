# SPDX-License-Identifier: Apache-2.0
"""Build the fuzzing harness (fuzz/harness.c) for a scenario, and give it inputs to start from.

An input is a list of operations: packets, and writes to tables, profiles, replicas and cells. The
scenario's own entries are such a list too, which runs before every input: they are what
softswitch called the engine with while the scenario was written over P4Runtime.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softswitch.bmread import read_program
from softswitch.codegen import translate
from softswitch.codegen.layout import Layout
from softswitch.compile import C_DIR
from softswitch.dataplane import Dataplane
from softswitch.engine import NONE, PROTOTYPES, SwitchOptions
from softswitch.values import DataplaneOptions
from tests.softswitch.controller_port import CPU_PORT
from tests.softswitch.differential import SCENARIOS, config_of, write_entries
from tests.softswitch.p4rt import primary
from tests.softswitch.scenarios import Scenario, nothing, probe

SOURCES = Path(__file__).parent / "fuzz"
CHECKED = ("-g", "-O1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")
COMMON = ("-std=gnu11", "-D_GNU_SOURCE", "-fno-strict-aliasing", "-Wall", "-Wextra", "-pthread")
SEED_PACKETS = 4
"""Packets of one seed, so that what they leave behind meets the next."""
SEEDS = 50

FUZZED = {
    **SCENARIOS,
    # Not compared with BMv2: one is random, the other more than it takes.
    **{name: Scenario(name, nothing, probe) for name in ("random", "beyond")},
}

KEY_TYPES = {"exact": 0, "valid": 0, "lpm": 1, "ternary": 2, "range": 3}
MATCH_KINDS = ("EXACT", "LPM", "TERNARY", "RANGE", "KEYLESS")
OPERATIONS = (
    *("packet", "insert", "modify", "delete", "default", "member", "delete_member", "group"),
    *("delete_group", "replicas", "delete_replicas", "counter", "register"),
    *("meter", "value_set", "clock", "timeout"),
)

# ---- operations ----------------------------------------------------------------------------------


def operation(name: str, *parts: bytes) -> bytes:
    """One operation as the harness reads it."""
    payload = b"".join(parts)
    return bytes([OPERATIONS.index(name)]) + len(payload).to_bytes(2, "little") + payload


def packet(port: int, data: bytes) -> bytes:
    """A packet that arrives."""
    return operation("packet", _u16(port), data)


def _u8(value: int) -> bytes:
    return value.to_bytes(1)


def _u16(value: int) -> bytes:
    return value.to_bytes(2, "little")


def _u32(value: int) -> bytes:
    return (value & 0xFFFFFFFF).to_bytes(4, "little")


def _encode(layout: Layout, name: str, values: Sequence[Any]) -> bytes:
    """The operation that does what a call of the engine did; empty: nothing to repeat."""
    match name, values:
        case "ss_table_insert", (table, key, prefix_len, priority, kind, number, data, _, *_):
            kept = {"TERNARY": 2, "RANGE": 3}.get(layout.tables[table].kind, 1)
            assert len(key) == 8 * kept * layout.tables[table].words, layout.tables[table].name
            head = _u16(table) + _u16(prefix_len) + _u32(priority) + _u8(kind) + _u32(number)
            return operation("insert", head, data, key)
        case "ss_table_modify", (table, handle, kind, number, data, _, *_):
            return operation("modify", _u16(table), _u32(handle), _u8(kind), _u32(number), data)
        case "ss_table_delete", (table, handle):
            return operation("delete", _u16(table), _u32(handle))
        case "ss_table_set_default", (table, number, data, _, *_):
            if number == NONE:
                return operation("default", _u16(table), _u8(0))
            return operation("default", _u16(table), _u8(1), _u32(number), data)
        case "ss_profile_set_member", (profile, member, number, data, _):
            return operation("member", _u8(profile), _u32(member), _u32(number), data)
        case "ss_profile_delete_member", (profile, member):
            return operation("delete_member", _u8(profile), _u32(member))
        case "ss_profile_set_group", (profile, group, members, count, *_):
            listed = [_u32(member) for member in members]
            return operation("group", _u8(profile), _u32(group), _u8(count), *listed)
        case "ss_profile_delete_group", (profile, group):
            return operation("delete_group", _u8(profile), _u32(group))
        case "ss_meter_configure", (direct, meter, cell, mode, settings):
            head = _u8(direct) + _u8(meter) + _u32(cell) + _u8(mode)
            return operation("meter", head, bytes(settings or b""))
        case "ss_table_set_timeout", (table, handle, timeout_us):
            return operation("timeout", _u16(table), _u32(handle), _u32(timeout_us & NONE))
        case "ss_value_set_replace", (number, exact, exacts, ranges, count) if exacts < 2:
            return operation("value_set", _u8(number), _u8(exacts), _u8(count), exact, ranges)
        case "ss_set_replicas", (clones, number, pairs, count, truncate):
            head = _u8(clones) + _u16(number) + _u32(truncate) + _u8(count)
            return operation("replicas", head, *(_u16(value) for value in pairs))
        case "ss_delete_replicas", (clones, number):
            return operation("delete_replicas", _u8(clones), _u16(number))
    return b""


class Recorder:
    """The engine, with what was done to its tables since the last program was loaded."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._engine, name)

        def call(*arguments: Any) -> Any:
            if name == "ss_load":
                self.calls.clear()
            self.calls.append((name, arguments[1:]))
            return function(*arguments)

        return call


# ---- the plan ------------------------------------------------------------------------------------


def _numbers(layout: Layout, fixed: Set[str]) -> Iterator[int]:
    """What plan.h describes, but for the set-up. `fixed`: tables whose default action is."""
    yield CPU_PORT
    places = {number: place for place, number in enumerate(layout.actions)}
    yield len(places)
    for number, action in layout.actions.items():
        yield from (number, len(action.params), *(width for _, width in action.params))
    yield len(layout.tables)
    for table in layout.tables:
        profile = NONE if table.profile is None else table.profile
        yield from (MATCH_KINDS.index(table.kind), table.words, profile)
        yield from (table.with_meters, table.with_timeouts, table.name in fixed)
        yield len(table.keys)
        for key in table.keys:
            yield from (KEY_TYPES[key.match_type], key.width, key.shift)
        yield from (len(table.actions), *(places[number] for number in table.actions))
    yield len(layout.profiles)
    for index in range(len(layout.profiles)):
        users = [table for table in layout.tables if table.profile == index]
        numbers = sorted({number for table in users for number in table.actions})
        yield from (len(numbers), *(places[number] for number in numbers))
    yield len(layout.counters)
    for _, size in layout.counters:
        yield from (size, 0)
    yield len(layout.registers)
    for register in layout.registers:
        yield from (register.size, register.width)
    yield len(layout.meters)
    for _, size in layout.meters:
        yield from (size, 0)
    yield len(layout.value_sets)
    for value_set in layout.value_sets:
        yield from (len(value_set.widths), *value_set.widths)


@dataclass(frozen=True)
class Plan:
    """What the harness is told about a program, the program's C, and inputs to start from."""

    content: bytes
    source: str
    seeds: Sequence[bytes]


def plan_of(scenario: Scenario, cache_dir: Path) -> Plan:
    """The plan of a scenario with its entries. The seeds are its packets, and its writes."""
    dataplane = Dataplane(DataplaneOptions(cpu_port=CPU_PORT, cache_dir=cache_dir))
    try:
        recorder = Recorder(dataplane._engine)
        vars(dataplane)["_engine"] = recorder
        vars(dataplane)["plan"] = lambda plans: None  # one call for each entry, not for many
        config = config_of(scenario)
        with primary(dataplane, config) as client:
            write_entries(client, scenario)
    finally:
        dataplane.close()
    program = read_program(config.p4_device_config)
    fixed = {
        table.name
        for pipeline in program.pipelines.values()
        for table in pipeline.tables.values()
        if table.default_const
    }
    translation = translate(program)
    layout = translation.layout
    writes = [write for call in recorder.calls if (write := _encode(layout, *call))]
    setup = b"".join(writes)
    numbers = b"".join(_u32(number) for number in _numbers(layout, fixed))
    arriving = [packet(*each) for each in scenario.packets(1, SEED_PACKETS * SEEDS)]
    seeds = [b"".join(arriving[i::SEEDS]) for i in range(SEEDS)]
    seeds += [write + arriving[0] for write in writes[:: max(1, len(writes) // SEEDS)]]
    return Plan(numbers + _u32(len(setup)) + setup, translation.source, seeds)


# ---- building ------------------------------------------------------------------------------------

_C_TYPES: dict[Any, str] = {
    None: "void",
    ctypes.c_void_p: "void *",
    ctypes.c_char_p: "const void *",
    ctypes.c_bool: "bool",
    ctypes.c_int32: "int32_t",
    ctypes.c_int64: "int64_t",
    ctypes.c_uint16: "uint16_t",
    ctypes.c_uint32: "uint32_t",
    ctypes.c_uint64: "uint64_t",
    ctypes.c_double: "double",
}


def _c_type(kind: Any) -> str:
    if kind in _C_TYPES:
        return _C_TYPES[kind]
    if issubclass(kind, ctypes.Array):
        return _c_type(kind._type_) + " *"
    if issubclass(kind, ctypes.Structure):
        return "void"
    if not hasattr(kind, "_type_"):  # a function
        return "void *"
    return _c_type(kind._type_) + " *"  # a pointer


def api_header() -> str:
    """The engine's functions and options as softswitch/engine.py has them."""
    lines = ["#include <stdbool.h>", "#include <stdint.h>", "struct ss_options {"]
    lines += [f"    {_c_type(field[1])} {field[0]};" for field in SwitchOptions._fields_]
    lines.append("};")
    for name, (result, arguments) in PROTOTYPES.items():
        listed = ", ".join(_c_type(argument) for argument in arguments) or "void"
        lines.append(f"{_c_type(result)} {name}({listed});")
    return "\n".join([*lines, ""])


@dataclass(frozen=True)
class Compiler:
    """One that can build the harness.

    `driver` is the source in fuzz/ that feeds it; empty: libFuzzer does.
    """

    command: str
    driver: str = ""
    sanitizers: str = "address,undefined"

    @classmethod
    def find(cls) -> Compiler:
        """Clang where it is installed, otherwise gcc."""
        if path := shutil.which("clang"):
            return cls(path)
        return cls.gcc("standalone.c")

    @classmethod
    def gcc(cls, driver: str, sanitizers: str = "address,undefined") -> Compiler:
        """Gcc, which has no libFuzzer."""
        return cls(shutil.which("gcc") or "gcc", driver, sanitizers)

    def _flags(self, fuzzer: str) -> list[str]:
        wanted = self.sanitizers if self.driver else f"{self.sanitizers},{fuzzer}"
        return [*COMMON, *CHECKED, f"-fsanitize={wanted}", f"-I{C_DIR}"]

    def harness(self, directory: Path) -> Path:
        """The harness with the engine, in `directory`."""
        (directory / "api.h").write_text(api_header())
        driver = (self.driver,) if self.driver else ()
        sources = [SOURCES / name for name in ("harness.c", "plan.c", *driver)]
        sources += sorted(C_DIR.glob("*.c"))
        output = directory / "harness"
        more = [f"-I{directory}", "-rdynamic", "-o", str(output), *map(str, sources), "-ldl"]
        self._run([*self._flags("fuzzer"), *more])
        return output

    def program(self, source: str, directory: Path) -> Path:
        """A program that the harness loads."""
        (directory / "program.c").write_text(source)
        output = directory / "program.so"
        more = ["-fPIC", "-shared", "-o", str(output), str(directory / "program.c")]
        self._run([*self._flags("fuzzer-no-link"), *more])
        return output

    def _run(self, arguments: list[str]) -> None:
        subprocess.run([self.command, *arguments], check=True)


def make_ready(scenario: Scenario, compiler: Compiler, directory: Path) -> dict[str, str]:
    """Build what the harness needs for a scenario; the environment that names it.

    `directory` then has the seeds too, as files in `seeds`.
    """
    plan = plan_of(scenario, directory / "cache")
    (directory / "plan").write_bytes(plan.content)
    program = compiler.program(plan.source, directory)
    (directory / "seeds").mkdir()
    for number, seed in enumerate(plan.seeds):
        (directory / "seeds" / f"{number:03}").write_bytes(seed)
    found = {"SS_FUZZ_PLAN": str(directory / "plan"), "SS_FUZZ_PROGRAM": str(program)}
    return {**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1", **found}
