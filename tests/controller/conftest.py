# SPDX-License-Identifier: Apache-2.0
"""A running fabric as mrcctl sees one: an inventory, and a P4Runtime server for every device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.addressing import DeviceKind
from controller.entries import program_of
from controller.fabric import Fabric
from controller.inventory import Inventory, save_inventory
from tests.controller.fake_p4rt import FakeSwitch, serve
from topologies.schema import load_topology

MINI = Path(__file__).parents[2] / "topologies" / "mini.yaml"


@dataclass
class FakeFabric:
    """mini.yaml with a fake switch for every T0, T1 and NIC; commands use its run directory."""

    run_dir: Path
    fabric: Fabric
    switches: dict[str, FakeSwitch]


@pytest.fixture
def fake_fabric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeFabric]:
    fabric = Fabric.from_topology(load_topology(MINI))
    devices = list(fabric.devices(DeviceKind.T0, DeviceKind.T1, DeviceKind.NIC))
    switches = {device.name: FakeSwitch(device_id=device.row + 1) for device in devices}
    with ExitStack() as stack:
        running = {
            device.name: {
                "address": stack.enter_context(serve(switches[device.name])),
                "device_id": device.device_id,
                "program": program_of(device),
                "log": "/dev/null",
                "pid": os.getpid(),
            }
            for device in devices
        }
        inventory = Inventory.model_validate(
            {"topology": str(MINI), "target": "bmv2", "pid": os.getpid(), "devices": running}
        )
        save_inventory(inventory, tmp_path)
        monkeypatch.setenv("MRC_RUN_DIR", str(tmp_path))
        yield FakeFabric(tmp_path, fabric, switches)
