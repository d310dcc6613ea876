# SPDX-License-Identifier: Apache-2.0
"""Meters over P4Runtime: indirect ones, direct ones, in table entries, counters of colors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from finsy.proto import p4r

from softswitch.boundary import DataplaneLike
from softswitch.dataplane import Dataplane
from tests.softswitch.dataplanes import probe
from tests.softswitch.p4rt import (
    DATAPLANES,
    DELETE,
    INSERT,
    MODIFY,
    RawClient,
    codes,
    entity,
    load_config,
    make_dataplane,
    only_error,
    primary,
    read_error,
    update,
)
from tests.softswitch.scenarios import PROGRAMS

CONFIG = load_config("meters", directory=PROGRAMS)
HEADERS = 14 + 37


@pytest.fixture(scope="module", params=DATAPLANES)
def dataplane(request: pytest.FixtureRequest) -> Iterator[DataplaneLike]:
    with make_dataplane(request.param) as dataplane:
        yield dataplane


@pytest.fixture(scope="module")
def switch(dataplane: DataplaneLike) -> Iterator[RawClient]:
    with primary(dataplane, CONFIG) as client:
        yield client


@pytest.fixture
def client(switch: RawClient) -> RawClient:
    switch.set_pipeline()
    return switch


def rates(cir: int, cburst: int, pir: int, pburst: int, **more: int) -> Any:
    return p4r.MeterConfig(cir=cir, cburst=cburst, pir=pir, pburst=pburst, **more)


def cell(client: RawClient, index: int | None = None, name: str = "by_packets", **more: Any) -> Any:
    entry = p4r.MeterEntry(meter_id=client.id("meters", name), **more)
    if index is not None:
        entry.index.index = index
    return entry


def read_cells(client: RawClient, query: Any) -> list[Any]:
    return [e.meter_entry for e in client.read(entity(meter_entry=query))]


def direct(client: RawClient, x: int, **more: Any) -> Any:
    return p4r.DirectMeterEntry(table_entry=client.entry("direct", {"h.probe.x": x}), **more)


# ---- indirect --------------------------------------------------------------------------------


def test_a_cell_keeps_its_configuration_until_it_is_reset(client: RawClient) -> None:
    config = rates(1, 2, 3, 4)
    client.write(update(MODIFY, meter_entry=cell(client, 3, config=config)))
    (found,) = read_cells(client, cell(client, 3))
    assert found.config == config
    assert not found.HasField("counter_data")
    zero = rates(0, 0, 0, 0)
    client.write(update(MODIFY, meter_entry=cell(client, 3, config=zero)))
    (found,) = read_cells(client, cell(client, 3))
    assert found.HasField("config")
    assert found.config == zero
    client.write(update(MODIFY, meter_entry=cell(client, 3)))
    (found,) = read_cells(client, cell(client, 3))
    assert not found.HasField("config")


def test_wildcards(client: RawClient) -> None:
    config = rates(5, 6, 7, 8)
    client.write(update(MODIFY, meter_entry=cell(client, config=config)))
    found = read_cells(client, cell(client))
    assert [e.index.index for e in found] == list(range(8))
    assert all(e.config == config for e in found)
    everything = read_cells(client, p4r.MeterEntry())
    assert len(everything) == 8 + 8 + 4
    assert sum(e.HasField("config") for e in everything) == 8
    client.write(update(MODIFY, meter_entry=cell(client)))
    assert not any(e.HasField("config") for e in read_cells(client, cell(client)))


@pytest.mark.parametrize("kind", [INSERT, DELETE])
def test_meters_can_only_be_modified(client: RawClient, kind: int) -> None:
    assert only_error(client, update(kind, meter_entry=cell(client, 0)))[0] == "INVALID_ARGUMENT"
    change = update(kind, direct_meter_entry=direct(client, 0))
    assert only_error(client, change)[0] == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (rates(-1, 0, 0, 0), "cir -1 is negative"),
        (rates(0, -1, 0, 0), "cburst -1 is negative"),
        (rates(0, 0, -5, 0), "pir -5 is negative"),
        (rates(0, 0, 0, -1), "pburst -1 is negative"),
        (rates(0, 0, 0, 0, eburst=-1), "eburst -1 is negative"),
        (rates(2, 0, 1, 0), "pir 1 is below cir 2"),
        (rates(1, 1, 1, 1, eburst=1), "no eburst"),
    ],
)
def test_wrong_configurations(client: RawClient, config: Any, message: str) -> None:
    client.write(client.insert("direct", {"h.probe.x": 1}, "report"))
    inserted = client.insert("direct", {"h.probe.x": 2}, "report", meter_config=config)
    for change in (
        update(MODIFY, meter_entry=cell(client, 0, config=config)),
        update(MODIFY, direct_meter_entry=direct(client, 1, config=config)),
        inserted,
    ):
        code, text = only_error(client, change)
        assert (code, message in text) == ("INVALID_ARGUMENT", True), text
    assert not client.read(entity(table_entry=inserted.entity.table_entry))


def test_indices_outside(client: RawClient) -> None:
    for index, code in ((-1, "INVALID_ARGUMENT"), (8, "OUT_OF_RANGE")):
        assert only_error(client, update(MODIFY, meter_entry=cell(client, index)))[0] == code
        assert read_error(client, entity(meter_entry=cell(client, index))) == code
    unknown = p4r.MeterEntry(meter_id=12345)
    assert only_error(client, update(MODIFY, meter_entry=unknown))[0] == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (1, rates(5, 6, 5, 6, eburst=7), rates(5, 6, 8, 6)),
        (2, rates(5, 6, 5, 6), rates(5, 6, 5, 6, eburst=1)),
        (2, rates(5, 6, 5, 6), rates(5, 6, 5, 7)),
    ],
)
def test_single_rate_meters(client: RawClient, kind: int, good: Any, bad: Any) -> None:
    config = p4r.ForwardingPipelineConfig()
    config.CopyFrom(CONFIG)
    for meter in config.p4info.meters:
        meter.spec.type = kind
    client.set_pipeline(config=config)
    client.write(update(MODIFY, meter_entry=cell(client, 1, config=good)))
    (found,) = read_cells(client, cell(client, 1))
    assert found.config == good
    change = update(MODIFY, meter_entry=cell(client, 1, config=bad))
    assert only_error(client, change)[0] == "INVALID_ARGUMENT"


# ---- direct ----------------------------------------------------------------------------------


def test_table_entries_carry_their_meters(client: RawClient) -> None:
    config = rates(1, 2, 3, 4)
    change = client.insert("direct", {"h.probe.x": 1}, "report", meter_config=config)
    client.write(change, client.insert("direct", {"h.probe.x": 2}, "report"))
    query = client.entry("direct", meter_config=p4r.MeterConfig())
    found = {
        e.table_entry.match[0].exact.value: e.table_entry
        for e in client.read(entity(table_entry=query))
    }
    assert found[b"\x01"].meter_config == config
    assert not found[b"\x02"].HasField("meter_config")
    plain = client.read(entity(table_entry=client.entry("direct")))
    assert not any(e.table_entry.HasField("meter_config") for e in plain)
    # MODIFY without a configuration resets it (9.1.9).
    change.type = MODIFY
    change.entity.table_entry.ClearField("meter_config")
    client.write(change)
    found_again = client.read(entity(table_entry=query))
    assert not any(e.table_entry.HasField("meter_config") for e in found_again)


def test_direct_meter_entries(client: RawClient) -> None:
    client.write(*(client.insert("direct", {"h.probe.x": x}, "report") for x in range(3)))
    config = rates(1, 2, 3, 4)
    client.write(update(MODIFY, direct_meter_entry=direct(client, 1, config=config)))
    (found,) = client.read(entity(direct_meter_entry=direct(client, 1)))
    assert found.direct_meter_entry.config == config
    assert not found.direct_meter_entry.table_entry.HasField("action")
    for table in (client.entry("direct"), p4r.TableEntry()):
        query = entity(direct_meter_entry=p4r.DirectMeterEntry(table_entry=table))
        everything = [e.direct_meter_entry for e in client.read(query)]
        assert sum(e.HasField("config") for e in everything) == 1
        assert len(everything) == 3
    client.write(update(MODIFY, direct_meter_entry=direct(client, 1)))
    (found,) = client.read(entity(direct_meter_entry=direct(client, 1)))
    assert not found.direct_meter_entry.HasField("config")


def test_direct_meters_that_are_not_there(client: RawClient) -> None:
    missing = direct(client, 5)
    assert only_error(client, update(MODIFY, direct_meter_entry=missing))[0] == "NOT_FOUND"
    assert read_error(client, entity(direct_meter_entry=missing)) == "NOT_FOUND"
    default = p4r.DirectMeterEntry(table_entry=client.entry("direct", is_default_action=True))
    assert only_error(client, update(MODIFY, direct_meter_entry=default))[0] == "UNIMPLEMENTED"
    assert read_error(client, entity(direct_meter_entry=default)) == "UNIMPLEMENTED"


def test_a_failed_atomic_batch_takes_meters_back(client: RawClient) -> None:
    before, after = rates(1, 1, 1, 1), rates(2, 2, 2, 2)
    client.write(
        client.insert("direct", {"h.probe.x": 1}, "report", meter_config=before),
        client.insert("direct", {"h.probe.x": 2}, "report", meter_config=before),
        update(MODIFY, meter_entry=cell(client, 1, config=before)),
    )
    rollback = p4r.WriteRequest.ROLLBACK_ON_ERROR
    outcomes = client.outcomes(
        update(MODIFY, meter_entry=cell(client, config=after)),
        update(MODIFY, direct_meter_entry=direct(client, 1, config=after)),
        update(DELETE, table_entry=client.entry("direct", {"h.probe.x": 1})),
        update(DELETE, table_entry=client.entry("direct", {"h.probe.x": 2})),
        update(DELETE, table_entry=client.entry("direct", {"h.probe.x": 7})),
        atomicity=rollback,
    )
    assert codes(outcomes) == ["ABORTED"] * 4 + ["NOT_FOUND"]
    assert [e.HasField("config") for e in read_cells(client, cell(client))] == [False, True] + [
        False
    ] * 6
    for x in (1, 2):
        (found,) = client.read(entity(direct_meter_entry=direct(client, x)))
        assert found.direct_meter_entry.config == before


def test_reconciling_keeps_meters(client: RawClient) -> None:
    config = rates(1, 2, 3, 4)
    client.write(
        client.insert("direct", {"h.probe.x": 1}, "report", meter_config=config),
        update(MODIFY, meter_entry=cell(client, 2, config=config)),
    )
    client.set_pipeline("RECONCILE_AND_COMMIT")
    (found,) = client.read(entity(direct_meter_entry=direct(client, 1)))
    assert found.direct_meter_entry.config == config
    (kept,) = read_cells(client, cell(client, 2))
    assert kept.config == config


def test_a_p4info_must_agree_with_the_program(client: RawClient) -> None:
    config = p4r.ForwardingPipelineConfig()
    config.CopyFrom(CONFIG)
    config.p4info.meters[0].spec.unit = 3 - config.p4info.meters[0].spec.unit
    with pytest.raises(Exception, match=r"counts bytes, in the program packets"):
        client.set_pipeline(config=config)


# ---- counters of colors ----------------------------------------------------------------------


def test_colors_are_counted_and_reset(dataplane: DataplaneLike, client: RawClient) -> None:
    if not isinstance(dataplane, Dataplane):
        pytest.skip("no packets pass here")
    closed = rates(0, 1, 0, 2)
    client.write(
        update(MODIFY, meter_entry=cell(client, 0, config=closed)),
        client.insert("direct", {"h.probe.x": 0}, "report", meter_config=closed),
    )
    for _ in range(5):
        dataplane.process(1, probe())

    def counts(message: Any) -> list[tuple[int, int]]:
        return [
            (c.packet_count, c.byte_count) for c in (message.green, message.yellow, message.red)
        ]

    expected = [(1, HEADERS), (1, HEADERS), (3, 3 * HEADERS)]
    wanted = p4r.MeterCounterData()
    (array,) = read_cells(client, cell(client, 0, counter_data=wanted))
    assert counts(array.counter_data) == expected
    (one,) = client.read(entity(direct_meter_entry=direct(client, 0, counter_data=wanted)))
    assert counts(one.direct_meter_entry.counter_data) == expected
    query = client.entry("direct", meter_counter_data=wanted)
    (entry,) = client.read(entity(table_entry=query))
    assert counts(entry.table_entry.meter_counter_data) == expected

    unequal = p4r.MeterCounterData(red=p4r.CounterData(packet_count=1))
    for change in (
        update(MODIFY, meter_entry=cell(client, 0, config=closed, counter_data=unequal)),
        update(MODIFY, direct_meter_entry=direct(client, 0, counter_data=unequal)),
        client.insert("direct", {"h.probe.x": 3}, "report", meter_counter_data=unequal),
    ):
        assert only_error(client, change)[0] == "INVALID_ARGUMENT"
    client.write(
        update(MODIFY, meter_entry=cell(client, 0, config=closed, counter_data=wanted)),
        update(MODIFY, direct_meter_entry=direct(client, 0, counter_data=wanted)),
    )
    (array,) = read_cells(client, cell(client, 0, counter_data=wanted))
    assert counts(array.counter_data) == [(0, 0)] * 3
    (one,) = client.read(entity(direct_meter_entry=direct(client, 0, counter_data=wanted)))
    assert counts(one.direct_meter_entry.counter_data) == [(0, 0)] * 3


def test_tables_without_a_meter(client: RawClient) -> None:
    other = load_config("match", directory=PROGRAMS)
    client.set_pipeline(config=other)
    info, client.info = client.info, other.p4info
    try:
        table = client.entry("by_lpm", {"h.probe.a": 1})
        change = update(MODIFY, direct_meter_entry=p4r.DirectMeterEntry(table_entry=table))
        assert only_error(client, change)[0] == "INVALID_ARGUMENT"
        entry = client.insert("by_lpm", {"h.probe.a": 1}, "drop", meter_config=rates(1, 1, 1, 1))
        assert only_error(client, entry)[0] == "INVALID_ARGUMENT"
        assert client.read(entity(meter_entry=p4r.MeterEntry())) == []
    finally:
        client.info = info
