# SPDX-License-Identifier: Apache-2.0
"""Commands for counters, meters and registers.

The data plane is all that keeps these, so P4Runtime reads what commands wrote.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from softswitch.control.context import Answer, Context, Handler
from softswitch.control.words import CommandError, aligned, full_name, hexadecimal, natural, number
from softswitch.entities_entry import EntrySet
from softswitch.values import MeterConfig, MeterState

_COUNT = (1 << 63) - 1
_MAX_BURST = (1 << 32) - 1
_US_PER_S = 1_000_000


def _tables_of(context: Context, kind: str) -> dict[str, str]:
    """The tables of direct counters or meters, by the name of these."""
    program = context.running.program
    if kind == "counter":
        return dict(program.direct_counters)
    return {
        table.meter: table.name
        for pipeline in program.pipelines.values()
        for table in pipeline.tables.values()
        if table.meter is not None
    }


def _entries(context: Context, table: str) -> EntrySet:
    ids = {info.name: info.id for info in context.view.tables.values()}
    if table not in ids:
        raise CommandError(f"table {table} is not in the P4Info")
    return context.store.table(ids[table]).entries


def _handle(context: Context, table: str, word: str) -> int:
    handle = natural(word, "handle")
    if _entries(context, table).with_handle(handle) is None:
        raise CommandError(f"table {table} has no entry with handle {handle}")
    return handle


def _handles(context: Context, table: str) -> list[int]:
    return [entry.handle for entry in _entries(context, table).by_key.values()]


def _index(word: str, size: int) -> int:
    return natural(word, "index", size - 1)


def _list(kind: str, arrays: Mapping[str, int], direct: Mapping[str, str]) -> Answer:
    data: list[dict[str, Any]] = [{"name": name, "size": size} for name, size in arrays.items()]
    data += [{"name": name, "table": table} for name, table in direct.items()]
    data.sort(key=lambda item: str(item["name"]))
    rows = [
        [a["name"], f"{a['size']} cells" if "size" in a else f"direct, of table {a['table']}"]
        for a in data
    ]
    return Answer(aligned(rows) or f"the program has no {kind}", data)


# --- counters -----------------------------------------------------------------------------------


def show_counters(context: Context, words: list[str]) -> Answer:
    """All counters."""
    arrays = {name: counter.size for name, counter in context.dataplane.counters.items()}
    return _list("counter", arrays, _tables_of(context, "counter"))


def _counter(context: Context, given: str) -> tuple[str, str | None]:
    """A counter's name, and the table of a direct one."""
    direct = _tables_of(context, "counter")
    name = full_name(given, [*context.dataplane.counters, *direct], "counter")
    return name, direct.get(name)


def counter_read(context: Context, words: list[str]) -> Answer:
    """One cell, or those that are not 0."""
    name, table = _counter(context, words[0])
    cells: Iterable[int]
    read: Callable[[int], tuple[int, int]]
    if table is not None:
        read = context.dataplane.tables[table].read_counter
        cells = [_handle(context, table, words[1])] if words[1:] else _handles(context, table)
    else:
        array = context.dataplane.counters[name]
        read = array.read
        cells = [_index(words[1], array.size)] if words[1:] else range(array.size)
    values = [(cell, *read(cell)) for cell in cells]
    if not words[1:]:
        values = [value for value in values if any(value[1:])]
    data = [{"index": i, "packets": packets, "bytes": bytes_} for i, packets, bytes_ in values]
    lines = [f"{name}[{i}] = {packets} packets, {bytes_} bytes" for i, packets, bytes_ in values]
    return Answer("\n".join(lines) or f"{name}: all cells are 0", data)


def counter_write(context: Context, words: list[str]) -> Answer:
    """Set one cell."""
    name, table = _counter(context, words[0])
    packets, bytes_ = natural(words[2], "packets", _COUNT), natural(words[3], "bytes", _COUNT)
    if table is not None:
        index = _handle(context, table, words[1])
        context.dataplane.tables[table].write_counter(index, packets, bytes_)
    else:
        array = context.dataplane.counters[name]
        index = _index(words[1], array.size)
        array.write(index, packets, bytes_)
    return Answer(f"{name}[{index}] = {packets} packets, {bytes_} bytes", None)


def counter_reset(context: Context, words: list[str]) -> Answer:
    """All cells to 0."""
    name, table = _counter(context, words[0])
    reset_counter(context, name, table)
    return Answer(f"{name} reset", None)


def reset_counter(context: Context, name: str, table: str | None) -> None:
    """All cells of an array or of a table to 0."""
    if table is not None:
        target = context.dataplane.tables[table]
        for handle in _handles(context, table):
            target.write_counter(handle, 0, 0)
        target.write_default_counter(0, 0)
        return
    array = context.dataplane.counters[name]
    for index in range(array.size):
        array.write(index, 0, 0)


# --- registers ----------------------------------------------------------------------------------


def show_registers(context: Context, words: list[str]) -> Answer:
    """All registers."""
    registers = sorted(context.running.program.registers.values(), key=lambda r: r.name)
    data = [{"name": r.name, "size": r.size, "width": r.width} for r in registers]
    rows = [[r.name, f"{r.size} cells", f"{r.width} bits"] for r in registers]
    return Answer(aligned(rows) or "the program has no register", data)


def _register(context: Context, given: str) -> str:
    return full_name(given, context.dataplane.registers, "register")


def register_read(context: Context, words: list[str]) -> Answer:
    """One cell or all."""
    name = _register(context, words[0])
    array = context.dataplane.registers[name]
    width = context.running.program.registers[name].width
    if words[1:]:
        index = _index(words[1], array.size)
        value = array.read(index)
        return Answer(f"{name}[{index}] = {value}", {"index": index, "value": value})
    values = [array.read(index) for index in range(array.size)]
    data = [hexadecimal(value, width) for value in values]
    return Answer(f"{name} = {', '.join(map(str, values))}", data)


def register_write(context: Context, words: list[str]) -> Answer:
    """Set one cell."""
    name = _register(context, words[0])
    array = context.dataplane.registers[name]
    index = _index(words[1], array.size)
    value = number(words[2], context.running.program.registers[name].width, f"register {name}")
    array.write(index, value)
    return Answer(f"{name}[{index}] = {value}", None)


def register_reset(context: Context, words: list[str]) -> Answer:
    """All cells to 0."""
    name = _register(context, words[0])
    reset_register(context, name)
    return Answer(f"{name} reset", None)


def reset_register(context: Context, name: str) -> None:
    """All cells of an array to 0."""
    array = context.dataplane.registers[name]
    for index in range(array.size):
        array.write(index, 0)


# --- meters -------------------------------------------------------------------------------------


def show_meters(context: Context, words: list[str]) -> Answer:
    """All meters."""
    arrays = {name: meter.size for name, meter in context.dataplane.meters.items()}
    return _list("meter", arrays, _tables_of(context, "meter"))


def _meter(context: Context, given: str) -> tuple[str, str | None]:
    """A meter's name, and the table of a direct one."""
    direct = _tables_of(context, "meter")
    name = full_name(given, [*context.dataplane.meters, *direct], "meter")
    return name, direct.get(name)


def _config(words: list[str]) -> MeterConfig:
    (cir, cburst), (pir, pburst) = (_rate(word) for word in words)
    if pir < cir:
        raise CommandError(f"the second rate {words[1]} is below the first, {words[0]}")
    return MeterConfig(cir, cburst, pir, pburst)


def _rate(word: str) -> tuple[int, int]:
    """(tokens per second, burst) of RATE:BURST with a rate per microsecond."""
    rate_word, _, burst_word = word.partition(":")
    try:
        rate = float(rate_word)
    except ValueError:
        rate = math.nan
    if not 0 <= rate <= _MAX_BURST or not burst_word:
        raise CommandError(
            f"{word!r} is not RATE:BURST with packets or bytes per microsecond, such as 0.001:10"
        )
    return round(rate * _US_PER_S), natural(burst_word, "burst", _MAX_BURST)


def meter_get_rates(context: Context, words: list[str]) -> Answer:
    """One cell."""
    name, table = _meter(context, words[0])
    state: MeterState
    if table is not None:
        index = _handle(context, table, words[1])
        state = context.dataplane.tables[table].read_meter(index)
    else:
        meter = context.dataplane.meters[name]
        index = _index(words[1], meter.size)
        state = meter.read(index)
    config = state.config
    rates = "no rates, all packets are green"
    if config is not None:
        rates = (
            f"committed {config.cir / _US_PER_S:g}:{config.cburst}, "
            f"peak {config.pir / _US_PER_S:g}:{config.pburst} (per microsecond)"
        )
    colors = dict(zip(("green", "yellow", "red"), state.counts, strict=True))
    lines = [f"{name}[{index}]: {rates}"]
    lines += [
        f"  {c}: {packets} packets, {bytes_} bytes" for c, (packets, bytes_) in colors.items()
    ]
    data: dict[str, Any] = {"config": None if config is None else asdict(config)}
    data.update((c, {"packets": p, "bytes": b}) for c, (p, b) in colors.items())
    return Answer("\n".join(lines), data)


def meter_set_rates(context: Context, words: list[str]) -> Answer:
    """Configure one cell."""
    name, table = _meter(context, words[0])
    config = _config(words[2:])
    if table is not None:
        index = _handle(context, table, words[1])
        context.dataplane.tables[table].configure_meter(index, config)
    else:
        meter = context.dataplane.meters[name]
        index = _index(words[1], meter.size)
        meter.configure(index, config)
    return Answer(f"{name}[{index}] set", None)


def meter_array_set_rates(context: Context, words: list[str]) -> Answer:
    """Configure all cells."""
    name, table = _meter(context, words[0])
    config = _config(words[1:])
    if table is not None:
        for handle in _handles(context, table):
            context.dataplane.tables[table].configure_meter(handle, config)
    else:
        meter = context.dataplane.meters[name]
        for index in range(meter.size):
            meter.configure(index, config)
    return Answer(f"{name} set", None)


HANDLERS: dict[str, Handler] = {
    "show_counters": show_counters,
    "counter_read": counter_read,
    "counter_write": counter_write,
    "counter_reset": counter_reset,
    "show_registers": show_registers,
    "register_read": register_read,
    "register_write": register_write,
    "register_reset": register_reset,
    "show_meters": show_meters,
    "meter_get_rates": meter_get_rates,
    "meter_set_rates": meter_set_rates,
    "meter_array_set_rates": meter_array_set_rates,
}
