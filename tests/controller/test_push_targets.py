# SPDX-License-Identifier: Apache-2.0
"""Pushing to the real targets, without interfaces: what they read back must not be a difference."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from finsy import P4TableEntry
from finsy.proto import p4r

from controller.canonical import to_message, wanted_entries
from controller.counters import read_device
from controller.inventory import Inventory
from controller.p4rt import UpdateError, connect, load_program
from controller.push import DeviceReport, push
from tests.controller.test_push import free_port
from tests.controller.test_reconcile import (
    ecmp_group,
    ecmp_route,
    group_entries,
    plane_set_entries,
    route,
)

TARGETS = ["softswitch", "bmv2"]
START_TIMEOUT_S = 60.0  # softswitch may have to compile its runtime first

FABRIC_ENTRIES = [
    *(ecmp_group(n, [1, 2, 3, 1]) for n in range(20)),
    *(ecmp_route(n, n) for n in range(20)),
    *(route(n, 1 + n % 500) for n in range(1500)),
]


def nic_entries(first_ev: int, planes: Sequence[int]) -> list[P4TableEntry]:
    paths = {plane: list(range(first_ev, first_ev + 8)) for plane in range(4)}
    groups = [entry for group in range(4) for entry in group_entries(group, paths, 0)]
    return plane_set_entries(0, planes) + groups


def command(target: str) -> list[str]:
    if target == "bmv2":
        if shutil.which("simple_switch_grpc") is None:
            pytest.skip("simple_switch_grpc is not on PATH")
        return ["simple_switch_grpc", "--thrift-port", str(free_port())]
    return [sys.executable, "-m", "softswitch"]


@contextmanager
def running(target: str, program: str, log: Path) -> Iterator[Inventory]:
    """One device of this target without interfaces, in an inventory; gone afterwards."""
    address = f"127.0.0.1:{free_port()}"
    options = ["--no-p4", "--device-id", "7", "--", "--grpc-server-addr", address]
    options += ["--cpu-port", "510", "--drop-port", "511"]
    with log.open("wb") as file:
        process = subprocess.Popen([*command(target), *options], stdout=file, stderr=file)
    try:
        wait_until_it_listens(process, address, log)
        device = {"address": address, "device_id": 7, "program": program, "log": str(log)}
        running = {"d": {**device, "pid": process.pid}}
        yield Inventory.model_validate(
            {"topology": "/t.yaml", "target": target, "pid": 1, "devices": running}
        )
    finally:
        process.terminate()
        process.wait(10)


def wait_until_it_listens(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    """Returns as soon as the device answers on TCP; fails with its log when it has ended."""
    host, port = address.split(":")
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the device ended: {log.read_text()[-2000:]}"
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.02)
    pytest.fail(f"nothing listens at {address} after {START_TIMEOUT_S:g} s")


def push_one(inventory: Inventory, entries: Sequence[P4TableEntry]) -> DeviceReport:
    wanted = {"d": entries}
    report = asyncio.run(push(inventory, wanted)).devices["d"]
    assert report.errors == []
    return report


@pytest.mark.parametrize("target", TARGETS)
def test_fabric_entries_are_pushed_once(target: str, tmp_path: Path) -> None:
    with running(target, "fabric", tmp_path / "log") as inventory:
        first = push_one(inventory, FABRIC_ENTRIES)
        assert (first.pipeline_pushed, first.inserted) == (True, len(FABRIC_ENTRIES))
        second = push_one(inventory, FABRIC_ENTRIES)
        assert (second.pipeline_pushed, second.written) == (False, 0)
        assert second.unchanged == len(FABRIC_ENTRIES)
        changed = [ecmp_group(0, [1, 2]), *FABRIC_ENTRIES[1:-1]]
        third = push_one(inventory, changed)
        assert (third.inserted, third.modified, third.deleted) == (0, 1, 1)
        emptied = push_one(inventory, [])
        assert emptied.deleted == len(changed)


@pytest.mark.parametrize("target", TARGETS)
def test_spray_groups_switch_generation(target: str, tmp_path: Path) -> None:
    with running(target, "nic", tmp_path / "log") as inventory:
        old, new = nic_entries(0, [0, 1, 2, 3]), nic_entries(1, [0, 1, 3])
        assert push_one(inventory, old).inserted == len(old)
        assert push_one(inventory, old).written == 0
        report = push_one(inventory, new)
        assert report.modified == 4, "group_cfg of each group"
        assert report.inserted == len(new) - 4
        assert report.deleted == len(old) - 4
        assert push_one(inventory, new).written == 0


@pytest.mark.parametrize("target", TARGETS)
def test_refused_updates_are_named_by_their_place_in_the_batch(target: str, tmp_path: Path) -> None:
    async def run(address: str) -> list[UpdateError]:
        async with connect("d", address, 7) as link:
            await link.become_primary()
            held = wanted_entries([route(1, 1), route(2, 1)], load_program("fabric"))
            updates = [
                p4r.Update(type=kind, entity=p4r.Entity(table_entry=to_message(*entry)))
                for entry in held.items()
                for kind in (p4r.Update.MODIFY, p4r.Update.INSERT)
            ]
            return await link.write(updates)

    with running(target, "fabric", tmp_path / "log") as inventory:
        push_one(inventory, [route(2, 1)])
        refused = asyncio.run(run(inventory.devices["d"].address))
    assert [(error.index, error.code) for error in refused] == [
        (0, "NOT_FOUND"),
        (3, "ALREADY_EXISTS"),
    ]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("program", ["fabric", "nic"])
def test_counters_of_an_idle_device_are_zero(target: str, program: str, tmp_path: Path) -> None:
    async def run(inventory: Inventory) -> None:
        device = inventory.devices["d"]
        async with connect("d", device.address, 7) as link:
            counters = await read_device(link, load_program(program))
            assert await link.primary() is None
        assert counters.port_in.shape == counters.port_out.shape == (512, 2)
        assert counters.drops.shape == (32, 2)
        assert not counters.port_in.any()
        assert not counters.drops.any()

    with running(target, program, tmp_path / "log") as inventory:
        push_one(inventory, [])
        asyncio.run(run(inventory))
