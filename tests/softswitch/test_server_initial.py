# SPDX-License-Identifier: Apache-2.0
"""Entries that a program begins with: constant ones, and initial ones that can be changed.

p4c writes both alike into the JSON; P4Info's is_const_table tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from finsy.proto import p4r

from softswitch.dataplane import Dataplane
from softswitch.values import DataplaneOptions
from tests.softswitch.dataplanes import probe
from tests.softswitch.p4rt import DELETE, MODIFY, RawClient, entity, load_config, primary, update
from tests.softswitch.scenarios import PROGRAMS


def open_config() -> Any:
    """The program `match` with its constant entries as initial ones."""
    config = load_config("match", directory=PROGRAMS)
    for table in config.p4info.tables:
        table.is_const_table = False
    return config


@pytest.fixture
def switch() -> Iterator[tuple[Dataplane, RawClient]]:
    dataplane = Dataplane(DataplaneOptions(cpu_port=510))
    try:
        with primary(dataplane, open_config()) as client:
            yield dataplane, client
    finally:
        dataplane.close()


def entries(client: RawClient) -> list[Any]:
    return [e.table_entry for e in client.read(entity(table_entry=client.entry("fixed")))]


def ports(dataplane: Dataplane, *ops: int) -> list[int]:
    return [dataplane.process(1, probe(op=op))[0][0] for op in ops]


def key(value: int, mask: int) -> dict[str, Any]:
    return {"h.probe.op": (value, mask), "h.probe.$valid$": 1}


def test_initial_entries_can_be_changed_and_overtaken(switch: tuple[Dataplane, RawClient]) -> None:
    dataplane, client = switch
    found = entries(client)
    assert not any(e.is_const for e in found)
    by_priority = sorted(found, key=lambda e: -e.priority)
    assert ports(dataplane, 0x11, 0x80, 0x02) == [3, 2, 1]
    first = by_priority[0]  # 0x10 &&& 0xf0 to port 3
    first.action.action.CopyFrom(client.action("to", 4))
    client.write(update(MODIFY, table_entry=first))
    assert ports(dataplane, 0x12) == [4]
    # p4c made the table as large as its entries are many.
    client.write(*(update(DELETE, table_entry=entry) for entry in by_priority[3:]))
    low, high = first.priority - 1, first.priority + 1
    client.write(client.insert("fixed", key(0x12, 0xFF), "to", 2, priority=low))
    assert ports(dataplane, 0x12) == [4]
    client.write(client.insert("fixed", key(0x12, 0xFE), "to", 2, priority=high))
    assert ports(dataplane, 0x12, 0x15) == [2, 4]
    client.write(update(DELETE, table_entry=first))
    assert ports(dataplane, 0x15, 0x11, 0x80) == [1, 4, 2]


def test_reconciling_keeps_what_was_changed(switch: tuple[Dataplane, RawClient]) -> None:
    dataplane, client = switch
    first, second, *_ = sorted(entries(client), key=lambda e: -e.priority)
    client.write(update(DELETE, table_entry=second))
    first.action.action.CopyFrom(client.action("to", 4))
    client.write(update(MODIFY, table_entry=first))
    client.write(client.insert("fixed", key(2, 0xFF), "to", 3, priority=77))
    before = entries(client)
    client.set_pipeline("RECONCILE_AND_COMMIT")
    assert sorted(entries(client), key=str) == sorted(before, key=str)
    assert ports(dataplane, 0x12, 2) == [4, 3]


def test_constant_entries_stay() -> None:
    dataplane = Dataplane(DataplaneOptions(cpu_port=510))
    try:
        with primary(dataplane, load_config("match", directory=PROGRAMS)) as client:
            found = entries(client)
            assert all(e.is_const for e in found)
            changes = [update(kind, table_entry=e) for e in found for kind in (MODIFY, DELETE)]
            changes.append(client.insert("fixed", key(2, 0xFF), "to", 3, priority=77))
            outcomes = client.outcomes(*changes)
            assert {code for code, _ in outcomes} <= {"PERMISSION_DENIED", "INVALID_ARGUMENT"}
            client.set_pipeline("RECONCILE_AND_COMMIT")
            assert entries(client) == found
    finally:
        dataplane.close()


def test_a_changed_default_and_its_counter_survive(switch: tuple[Dataplane, RawClient]) -> None:
    _, client = switch
    default = client.entry("by_lpm", is_default_action=True)
    counted = p4r.CounterData(packet_count=3, byte_count=200)
    direct = p4r.DirectCounterEntry(table_entry=default, data=counted)
    client.write(update(MODIFY, direct_counter_entry=direct))
    client.set_pipeline("RECONCILE_AND_COMMIT")
    (found,) = client.read(entity(direct_counter_entry=direct))
    assert found.direct_counter_entry.data == counted
