# SPDX-License-Identifier: Apache-2.0
"""A running fabric as mrcctl sees one: an inventory, P4Runtime servers, agents' sockets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from controller.addressing import DeviceKind, ipv6
from controller.entries import program_of
from controller.fabric import Fabric
from controller.inventory import Inventory, save_inventory
from tests.controller.fake_agent import FakeAgent, serve_agent
from tests.controller.fake_p4rt import FakeSwitch, serve
from topologies.schema import load_topology

MINI = Path(__file__).parents[2] / "topologies" / "mini.yaml"


@dataclass
class FakeFabric:
    """mini.yaml with a fake switch per device and a fake agent per host; commands find it."""

    run_dir: Path
    fabric: Fabric
    switches: dict[str, FakeSwitch]
    agents: dict[str, FakeAgent]


@pytest.fixture
def fake_fabric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeFabric]:
    fabric = Fabric.from_topology(load_topology(MINI))
    devices = list(fabric.devices(DeviceKind.T0, DeviceKind.T1, DeviceKind.NIC))
    switches = {device.name: FakeSwitch(device_id=device.row + 1) for device in devices}
    agents = {host.name: FakeAgent() for host in fabric.devices(DeviceKind.HOST)}
    # A unix socket's path has at most 107 bytes; pytest's directories may be longer.
    with ExitStack() as stack, TemporaryDirectory(prefix="mrc") as sockets:
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
        hosts = {}
        for name, agent in agents.items():
            control = Path(sockets) / f"{name}.sock"
            stack.enter_context(serve_agent(agent, control))
            hosts[name] = {
                "pid": os.getpid(),
                "control": str(control),
                "interface": f"{name}-eth0",
                "address": ipv6(fabric.host_address(fabric.device(name))),
            }
        inventory = Inventory.model_validate(
            {
                "topology": str(MINI),
                "target": "bmv2",
                "pid": os.getpid(),
                "devices": running,
                "hosts": hosts,
            }
        )
        save_inventory(inventory, tmp_path)
        monkeypatch.setenv("MRC_RUN_DIR", str(tmp_path))
        yield FakeFabric(tmp_path, fabric, switches, agents)
