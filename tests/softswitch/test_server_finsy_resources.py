# SPDX-License-Identifier: Apache-2.0
"""finsy, unchanged, as the client of meters and idle time-outs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import finsy as fy

from softswitch.dataplane import Dataplane
from softswitch.values import DataplaneOptions
from tests.softswitch.p4rt import DEVICE_ID, TIMEOUT_S, serving
from tests.softswitch.scenarios import PROGRAMS

Handler = Callable[[Any], Awaitable[None]]


def run(program: str, handler: Handler) -> None:
    """Run `handler` with a connected switch that has a feature program."""
    options = fy.SwitchOptions(
        p4info=PROGRAMS / f"{program}.p4info.txtpb",
        p4blob=PROGRAMS / f"{program}.json",
        device_id=DEVICE_ID,
    )

    async def session(address: str) -> None:
        async with fy.Switch("sw", address, options) as switch:
            await asyncio.wait_for(handler(switch), TIMEOUT_S)

    dataplane = Dataplane(DataplaneOptions(cpu_port=510))
    try:
        with serving(dataplane) as address:
            asyncio.run(session(address))
    finally:
        dataplane.close()


async def everything(switch: Any, query: Any) -> list[Any]:
    return [entity async for entity in switch.read(query)]


def test_meters() -> None:
    config = fy.P4MeterConfig(cir=10, cburst=20, pir=30, pburst=40)

    async def handler(switch: Any) -> None:
        await switch.write([~fy.P4MeterEntry("by_packets", index=3, config=config)])
        cells = await everything(switch, fy.P4MeterEntry("by_packets"))
        assert [cell.config for cell in cells] == [config if i == 3 else None for i in range(8)]
        table = fy.P4TableEntry("direct")
        entry = fy.P4TableEntry(
            "direct",
            match=fy.Match(x=1),
            action=fy.Action("report"),
            meter_config=config,
        )
        await switch.write([+entry])
        (found,) = await everything(switch, fy.P4TableEntry("direct", meter_config=config))
        assert found == entry
        named = fy.P4TableEntry("direct", match=fy.Match(x=1))
        other = fy.P4MeterConfig(cir=1, cburst=2, pir=3, pburst=4)
        await switch.write([~fy.P4DirectMeterEntry(table_entry=named, config=other)])
        (found,) = await everything(switch, fy.P4DirectMeterEntry(table_entry=table))
        assert found.config == other
        await switch.delete_all()
        assert await everything(switch, fy.P4DirectMeterEntry(table_entry=table)) == []

    run("meters", handler)


def test_idle_time_outs() -> None:
    async def handler(switch: Any) -> None:
        key = fy.Match(op=1, a=2)
        entry = fy.P4TableEntry(
            "flows", match=key, action=fy.Action("mark", value=1), idle_timeout_ns=30 * 10**6
        )
        timeouts = switch.read_idle_timeouts()
        first = asyncio.ensure_future(anext(timeouts))
        await asyncio.sleep(0)
        await switch.write([+entry])
        notification = await first
        (expired,) = notification.table_entry
        assert expired.match == key
        await switch.write([-expired])
        assert await everything(switch, fy.P4TableEntry("flows")) == []

    run("idle", handler)
