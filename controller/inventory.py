# SPDX-License-Identifier: Apache-2.0
"""What is running.

The builder writes ``inventory.json`` into the run directory, ``mrcctl`` reads it. The file names
every switch and NIC with its P4Runtime address, every host with its agent's control socket, and
every wire with the interfaces that a cut needs. It exists exactly while a fabric runs.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

FILE_NAME = "inventory.json"
DEFAULT_RUN_DIR = Path("/run/mrc-fabric")


class InventoryError(Exception):
    """There is no usable inventory; the message says why and what to do."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Device(_Model):
    """A running switch or NIC process."""

    address: str = Field(description="gRPC address of its P4Runtime server, host:port")
    device_id: int = Field(ge=1, description="P4Runtime device id")
    program: Literal["fabric", "nic"]
    log: str = Field(description="path of its log file")
    pid: int = Field(ge=1)
    thrift_port: int | None = Field(default=None, description="BMv2 only")


class Host(_Model):
    """A host namespace and its agent."""

    pid: int = Field(ge=1, description="a process in the host's namespaces")
    control: str = Field(description="path of the agent's unix socket")
    interface: str
    address: str = Field(description="IPv6 address")


class Wire(_Model):
    """One wire, built as veth - bridge - veth so that a cut never touches a switch's interface."""

    ends: tuple[str, str] = Field(description="the switches' or hosts' interfaces")
    inner: tuple[str, str] = Field(description="the bridge's side of each veth pair")
    bridge: str


class Inventory(_Model):
    """Everything that runs, by name."""

    topology: str = Field(description="absolute path of the topology file")
    target: Literal["softswitch", "bmv2"]
    pid: int = Field(ge=1, description="the process that built the fabric and will tear it down")
    devices: dict[str, Device]
    hosts: dict[str, Host] = Field(default_factory=dict)
    wires: dict[str, Wire] = Field(default_factory=dict)


def default_run_dir() -> Path:
    """The run directory: ``$MRC_RUN_DIR`` or /run/mrc-fabric."""
    return Path(os.environ.get("MRC_RUN_DIR") or DEFAULT_RUN_DIR)


def save_inventory(inventory: Inventory, run_dir: Path) -> Path:
    """Write the inventory atomically: a reader sees the old file or the whole new one."""
    run_dir.mkdir(parents=True, exist_ok=True)
    path = run_dir / FILE_NAME
    write_atomically(path, inventory.model_dump_json(indent=1) + "\n")
    return path


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` by way of a temporary file in the same directory."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load_inventory(run_dir: Path) -> Inventory:
    """Read the inventory of ``run_dir``; InventoryError when there is none or it is malformed."""
    path = run_dir / FILE_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InventoryError(
            f"no fabric is running (no {path}): start one with `make run`, "
            "or name its run directory with --run-dir or MRC_RUN_DIR"
        ) from None
    except OSError as error:
        raise InventoryError(f"cannot read {path}: {error.strerror}") from error
    try:
        return Inventory.model_validate_json(text)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'file'}: {item['msg']}" for item in error.errors()
        )
        raise InventoryError(f"{path} is not an inventory: {problems}") from error


def running_fabric(run_dir: Path) -> Inventory:
    """The inventory of a fabric that is still alive; InventoryError when its process has gone."""
    inventory = load_inventory(run_dir)
    if not Path(f"/proc/{inventory.pid}").exists():
        raise InventoryError(
            f"no fabric is running: {run_dir / FILE_NAME} was left behind by process "
            f"{inventory.pid}, which has ended; `make clean-net` removes what it left"
        )
    return inventory
