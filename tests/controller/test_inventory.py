# SPDX-License-Identifier: Apache-2.0
"""The inventory file, and what is said when there is none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from controller.inventory import (
    Inventory,
    InventoryError,
    default_run_dir,
    load_inventory,
    running_fabric,
    save_inventory,
)


def example(pid: int) -> Inventory:
    return Inventory.model_validate(
        {
            "topology": "/abs/x.yaml",
            "target": "softswitch",
            "pid": pid,
            "devices": {
                "p0t0-0": {
                    "address": "127.0.0.1:50051",
                    "device_id": 1,
                    "program": "fabric",
                    "log": "/run/x.log",
                    "pid": 123,
                    "thrift_port": None,
                }
            },
            "hosts": {
                "h0-0": {
                    "pid": 4242,
                    "control": "/run/h0-0.sock",
                    "interface": "h0-0-eth0",
                    "address": "fd4d:5243::1",
                }
            },
            "wires": {
                "p0t0-0|p0t1-1": {
                    "ends": ["p0t0-0-eth3", "p0t1-1-eth1"],
                    "inner": ["w7a", "w7b"],
                    "bridge": "w7",
                }
            },
        }
    )


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    inventory = example(os.getpid())
    path = save_inventory(inventory, tmp_path / "new")
    assert running_fabric(tmp_path / "new") == inventory
    assert [file.name for file in path.parent.iterdir()] == ["inventory.json"]


def test_no_fabric(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match=r"no fabric is running .*start one with `make run`"):
        load_inventory(tmp_path)


def test_a_fabric_that_died(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    save_inventory(example(ended.pid), tmp_path)
    with pytest.raises(InventoryError, match=rf"process {ended.pid}, which has ended.*clean-net"):
        running_fabric(tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "file: Invalid JSON"),
        ('{"topology": "/x", "target": "tofino", "pid": 1, "devices": {}}', "target: "),
        ('{"topology": "/x", "target": "bmv2", "pid": 1}', "devices: Field required"),
        ('{"topology": "/x", "target": "bmv2", "pid": 1, "devices": {}, "x": 1}', "x: Extra"),
    ],
)
def test_a_malformed_file(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "inventory.json").write_text(text)
    with pytest.raises(InventoryError, match=f"inventory.json is not an inventory: .*{says}"):
        load_inventory(tmp_path)


def test_the_run_directory_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRC_RUN_DIR", "/tmp/elsewhere")
    assert default_run_dir() == Path("/tmp/elsewhere")
    monkeypatch.delenv("MRC_RUN_DIR")
    assert default_run_dir() == Path("/run/mrc-fabric")
