# SPDX-License-Identifier: Apache-2.0
"""Commands for custom CRCs and for the switch as a whole."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from finsy.proto import p4r

from softswitch.control.arrays import reset_counter, reset_register
from softswitch.control.context import DELETE, INSERT, MODIFY, Answer, Context, Handler
from softswitch.control.words import (
    CommandError,
    aligned,
    full_name,
    hexadecimal,
    number,
)

# --- custom CRCs --------------------------------------------------------------------------------

_TRUTH = {"true": True, "1": True, "false": False, "0": False}


def _truth(word: str) -> bool:
    if word.lower() not in _TRUTH:
        raise CommandError(f"{word!r} is neither true nor false")
    return _TRUTH[word.lower()]


def _hex(word: str, width: int, what: str) -> int:
    """As simple_switch_CLI reads it: hexadecimal, with or without 0x."""
    return number(word if word.lower().startswith("0x") else f"0x{word}", width, what)


def _set_crc(context: Context, words: list[str], bits: int) -> Answer:
    hashes = {n: h for n, h in context.dataplane.hashes.items() if h.bits == bits}
    name = full_name(words[0], hashes, f"custom CRC of {bits} bits")
    polynomial, initial, final_xor = (
        _hex(word, bits, what)
        for word, what in zip(
            words[1:4], ("polynomial", "initial remainder", "final xor"), strict=True
        )
    )
    hashes[name].set_crc(
        polynomial,
        initial,
        final_xor,
        reflect_data=_truth(words[4]),
        reflect_remainder=_truth(words[5]),
    )
    return Answer(f"{name} set", None)


def set_crc16_parameters(context: Context, words: list[str]) -> Answer:
    """Parameters of a crc16_custom."""
    return _set_crc(context, words, 16)


def set_crc32_parameters(context: Context, words: list[str]) -> Answer:
    """Parameters of a crc32_custom."""
    return _set_crc(context, words, 32)


def show_crcs(context: Context, words: list[str]) -> Answer:
    """All custom CRCs."""
    data: list[dict[str, Any]] = [
        {
            "name": name,
            "bits": crc.bits,
            **{
                key: hexadecimal(getattr(crc.parameters, key), crc.bits)
                for key in ("polynomial", "initial", "final_xor")
            },
            "reflect_data": crc.parameters.reflect_data,
            "reflect_remainder": crc.parameters.reflect_remainder,
        }
        for name, crc in context.dataplane.hashes.items()
    ]
    rows = [[str(key) for key in data[0]]] if data else []
    rows += [[str(value) for value in item.values()] for item in data]
    return Answer(aligned(rows) or "the program has no custom CRC", data)


# --- the switch ---------------------------------------------------------------------------------


def _memory_bytes() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def switch_info(context: Context, words: list[str]) -> Answer:
    """What this switch is and has done."""
    dataplane, options = context.dataplane, context.dataplane.options
    stats = [dataplane.port_stats(port) for port in dataplane.interfaces]
    events_lost, recirculated_lost = dataplane.losses()
    running = context.pipeline.running
    data: dict[str, Any] = {
        "device_id": options.device_id,
        "pid": os.getpid(),
        "p4runtime": context.address,
        "program": None,
        "uptime_s": round(time.monotonic() - context.started, 1),
        "ports": len(dataplane.interfaces),
        "cpu_port": options.cpu_port or None,
        "drop_port": options.drop_port,
        "priority_queues": options.priority_queues,
        "rx_packets": sum(s.rx_packets for s in stats),
        "tx_packets": sum(s.tx_packets for s in stats),
        "events_lost": events_lost,
        "recirculated_lost": recirculated_lost,
        "memory_bytes": _memory_bytes(),
    }
    if running is not None:
        tables = running.store.view.tables
        data["program"] = {
            "from": "a controller" if running.from_controller else "the command line",
            "tables": len(tables),
            "entries": sum(len(running.store.table(i).entries.by_key) for i in tables),
        }
    program = data["program"]
    shown_data = {
        **data,
        "program": "none"
        if program is None
        else f"from {program['from']}, {program['tables']} tables, {program['entries']} entries",
        "cpu_port": "none" if data["cpu_port"] is None else data["cpu_port"],
        "memory_bytes": f"{data['memory_bytes']} ({data['memory_bytes'] / 1e6:.1f} MB)",
    }
    return Answer(aligned([key, str(value)] for key, value in shown_data.items()), data)


def get_time_elapsed(context: Context, words: list[str]) -> Answer:
    """What time stamps count."""
    elapsed = context.dataplane.time_us()
    return Answer(str(elapsed), elapsed)


def reset_state(context: Context, words: list[str]) -> Answer:
    """Back to the program as it was loaded, but for digests, which are a controller's."""
    updates = context.store.export()
    for update in reversed(updates):
        which = update.entity.WhichOneof("entity")
        if which == "table_entry" and update.entity.table_entry.is_default_action:
            default = p4r.TableEntry(
                table_id=update.entity.table_entry.table_id, is_default_action=True
            )
            context.write(MODIFY, table_entry=default)
        elif update.type == INSERT and which != "digest_entry":
            context.write(DELETE, **{which: getattr(update.entity, which)})
    dataplane = context.dataplane
    for name in dataplane.counters:
        reset_counter(context, name, None)
    for name, table in context.running.program.direct_counters.items():
        reset_counter(context, name, table)
    for name in dataplane.registers:
        reset_register(context, name)
    for meter in dataplane.meters.values():
        for index in range(meter.size):
            meter.configure(index, None)
    for value_set_id in context.view.value_sets:
        context.write(MODIFY, value_set_entry=p4r.ValueSetEntry(value_set_id=value_set_id))
    context.nodes.clear()
    return Answer("reset", None)


HANDLERS: dict[str, Handler] = {
    "show_crcs": show_crcs,
    "set_crc16_parameters": set_crc16_parameters,
    "set_crc32_parameters": set_crc32_parameters,
    "switch_info": switch_info,
    "get_time_elapsed": get_time_elapsed,
    "reset_state": reset_state,
}
