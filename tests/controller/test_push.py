# SPDX-License-Identifier: Apache-2.0
"""Pushing to P4Runtime servers over real gRPC."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import pytest
from finsy import Action, Match, P4TableEntry
from finsy.proto import p4r

from controller.canonical import held_entries, wanted_entries
from controller.inventory import Device, Inventory
from controller.p4rt import DeviceError, connect, load_program
from controller.push import Progress, PushReport, push
from tests.controller.fake_p4rt import FakeSwitch, serve
from tests.controller.test_reconcile import ecmp_group, ecmp_route, route

FABRIC = load_program("fabric")


def inventory(addresses: Mapping[str, str]) -> Inventory:
    devices = {
        name: Device(address=address, device_id=1, program="fabric", log="/dev/null", pid=1)
        for name, address in addresses.items()
    }
    return Inventory(topology="/t.yaml", target="softswitch", pid=1, devices=devices)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def entries(count: int = 3) -> list[P4TableEntry]:
    routes = [route(node, 1 + node % 4) for node in range(count)]
    return [*routes, ecmp_group(1, [1, 2]), ecmp_route(9, 1)]


def push_to(
    switches: Mapping[str, FakeSwitch],
    desired: Mapping[str, Sequence[P4TableEntry]],
    times: int = 1,
) -> list[PushReport]:
    """Push ``times`` times to all switches, which run only meanwhile."""

    async def run() -> list[PushReport]:
        with ExitStack() as stack:
            addresses = {
                name: stack.enter_context(serve(switch)) for name, switch in switches.items()
            }
            running = inventory(addresses)
            return [await push(running, desired) for _ in range(times)]

    return asyncio.run(run())


@pytest.mark.parametrize("pad", [False, True])
def test_a_second_push_writes_nothing(pad: bool) -> None:
    switches = {name: FakeSwitch(pad=pad) for name in ("p0t0-0", "p0t0-1")}
    first, second = push_to(switches, {name: entries() for name in switches}, times=2)
    for name, switch in switches.items():
        report = first.devices[name]
        assert (report.pipeline_pushed, report.inserted, report.errors) == (True, 5, [])
        report = second.devices[name]
        assert (report.pipeline_pushed, report.written, report.unchanged) == (False, 0, 5)
        assert switch.programs_loaded == 1
        held = [p4r.Entity(table_entry=entry) for entry in switch.entries.values()]
        assert held_entries(held, FABRIC) == wanted_entries(entries(), FABRIC)
        assert not switch.streams, "the device is released after the push"


def test_what_a_device_should_not_hold_is_deleted_and_what_differs_modified() -> None:
    switch = FakeSwitch()
    push_to({"a": switch}, {"a": entries(4)})
    wanted = [route(0, 3), route(1, 2), route(7, 1)]
    (report,) = push_to({"a": switch}, {"a": wanted})
    counts = report.devices["a"]
    assert (counts.inserted, counts.modified, counts.deleted, counts.unchanged) == (1, 1, 4, 1)


def test_another_program_is_replaced() -> None:
    switch = FakeSwitch(config=load_program("nic").get_pipeline_config())
    (report,) = push_to({"a": switch}, {"a": entries()})
    assert report.devices["a"].pipeline_pushed
    assert report.ok


def test_batches_hold_at_most_1000_updates_and_progress_is_told() -> None:
    switch = FakeSwitch()
    told: list[Progress] = []

    async def run() -> PushReport:
        with serve(switch) as address:
            return await push(
                inventory({"a": address}), {"a": entries(2000)}, on_progress=told.append
            )

    report = asyncio.run(run())
    assert report.written == 2002
    assert [len(write.updates) for write in switch.writes] == [1000, 1000, 1, 1]
    writing = [(event.done, event.total) for event in told if event.step == "writing"]
    assert writing == [(0, 2002), (1000, 2002), (2000, 2002), (2001, 2002)]
    assert told[-1] == Progress("a", "done", 2002, 2002)


def test_refused_entries_are_reported_in_words_and_what_relies_on_them_is_not_written() -> None:
    group = FABRIC.tables["ecmp_groups"].id

    def refuse(update: p4r.Update) -> str | None:
        return "selector full" if update.entity.table_entry.table_id == group else None

    switch = FakeSwitch(refuse=refuse)
    (report,) = push_to({"p0t0-0": switch}, {"p0t0-0": entries()})
    device = report.devices["p0t0-0"]
    assert not report.ok
    (error,) = device.errors
    assert error.startswith("insert ecmp_groups group_id=1 -> ")
    assert error.endswith("RESOURCE_EXHAUSTED: selector full")
    assert (device.inserted, device.skipped) == (3, 1)


def test_many_refused_entries_are_counted() -> None:
    switch = FakeSwitch(refuse=lambda update: "x" * 200)
    (report,) = push_to({"a": switch}, {"a": [route(node, 1) for node in range(1500)]})
    device = report.devices["a"]
    assert len(device.errors) == 11
    assert device.errors[-1] == "and 1490 more entries were refused"
    assert (device.written, device.skipped) == (0, 0)


def test_a_dead_device_does_not_stop_the_others() -> None:
    switch = FakeSwitch()

    async def run() -> PushReport:
        with serve(switch) as address:
            dead = f"127.0.0.1:{free_port()}"
            running = inventory({"dead": dead, "alive": address})
            desired = {name: entries() for name in running.devices}
            return await push(running, desired, connect_timeout_s=0.3)

    report = asyncio.run(run())
    assert report.devices["alive"].ok
    (error,) = report.devices["dead"].errors
    assert "nothing answers at 127.0.0.1:" in error
    assert not report.ok


def test_a_program_that_is_refused_is_reported() -> None:
    switch = FakeSwitch(refuse_program="Invalid device config")
    (report,) = push_to({"a": switch}, {"a": entries()})
    assert report.devices["a"].errors == ["loading the program: UNKNOWN: Invalid device config"]


def test_a_wrong_entry_is_reported_without_touching_the_device() -> None:
    switch = FakeSwitch()
    wrong = P4TableEntry("usid_fib", match=Match(locator_node=1), action=Action("un"))
    (report,) = push_to({"a": switch}, {"a": [wrong]})
    assert "un" in report.devices["a"].errors[0]
    assert switch.programs_loaded == 0


def test_only_running_devices_can_be_pushed_to() -> None:
    with pytest.raises(DeviceError, match="p9t9-9"):
        push_to({"a": FakeSwitch()}, {"p9t9-9": []})


def test_a_connected_controller_is_superseded_and_seen() -> None:
    switch = FakeSwitch()

    async def run(address: str) -> tuple[int | None, int | None, int, int | None, PushReport]:
        async with connect("a", address, 1) as other:
            none = await other.primary()
            await other.become_primary()
            async with connect("a", address, 1) as watcher:
                first = await watcher.primary()
            report = await push(inventory({"a": address}), {"a": entries()})
            async with connect("a", address, 1) as second:
                raised = await second.become_primary()
                async with connect("a", address, 1) as watcher:
                    return none, first, raised, await watcher.primary(), report

    with serve(switch) as address:
        none, first, raised, seen, report = asyncio.run(run(address))
    assert (none, first, raised, seen) == (None, 1, 2, 2)
    assert report.ok


def test_the_election_id_that_a_device_remembers_is_used_and_not_raised() -> None:
    async def run(address: str) -> list[int]:
        ids = []
        for _ in range(3):
            async with connect("a", address, 1) as link:
                ids.append(await link.become_primary())
        return ids

    with serve(FakeSwitch(remembered=10)) as address:
        assert asyncio.run(run(address)) == [10, 10, 10]


def test_reading_without_a_program_says_so() -> None:
    async def run() -> None:
        with serve(FakeSwitch()) as address:
            async with connect("a", address, 1) as link:
                await link.read_tables()

    with pytest.raises(DeviceError, match="runs no program"):
        asyncio.run(run())
