# SPDX-License-Identifier: Apache-2.0
"""The NIC agent of a running fabric, as tests speak to it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from controller.ev_events import Event, EvState
from controller.nic_agent.client import SOCKET, NicAgentClient
from controller.nic_agent.registers import Op, PathCell, read_path, write_path
from topologies.emulation import NIC_AGENT, Emulation

WITHIN_S = 5.0
Path = tuple[int, int, int]
"""T0 group that it leads to, plane, uplink."""


def client(emulation: Emulation) -> NicAgentClient:
    """Its socket."""
    return NicAgentClient(emulation.run_dir.path / SOCKET)


def status(emulation: Emulation) -> dict[str, Any]:
    """How things are, by NIC."""
    return asyncio.run(client(emulation).status())


def exchange(emulation: Emulation, nic: str, op: Op, index: int = 0, value: int = 0) -> int:
    """Do a register operation on a NIC."""
    return asyncio.run(client(emulation).exchange(nic, op, index, value))


def set_state(emulation: Emulation, nic: str, path: Path, state: EvState) -> None:
    """As `mrcctl ev` does; with ASSUMED_BAD, which only NICs find, as if the NIC had found it."""

    async def write() -> None:
        registers = partial(client(emulation).exchange, nic)
        cell = await read_path(registers, emulation.fabric, *path)
        await write_path(registers, emulation.fabric, path, state, cell.generation)

    asyncio.run(write())


def cell(emulation: Emulation, nic: str, path: Path) -> PathCell:
    """What a NIC holds of a path."""
    registers = partial(client(emulation).exchange, nic)
    return asyncio.run(read_path(registers, emulation.fabric, *path))


def wait_until(holds: Callable[[], bool], what: str) -> float:
    """Seconds until it holds."""
    started = time.monotonic()
    while not holds():
        assert time.monotonic() - started < WITHIN_S, f"not within {WITHIN_S:g} s: {what}"
        time.sleep(0.005)
    return time.monotonic() - started


def wait_until_ready(emulation: Emulation) -> None:
    """Until the agent holds all NICs with their program."""

    def ready() -> bool:
        return all(nic["ready"] for nic in status(emulation).values())

    wait_until(ready, "the agent holds all NICs")


def restart_agent(emulation: Emulation) -> None:
    """Start it again after `Emulation.kill`."""
    asyncio.run(emulation.restart(NIC_AGENT))
    wait_until_ready(emulation)


@contextlib.contextmanager
def cut(emulation: Emulation, wire: str) -> Iterator[None]:
    """Neither end has carrier."""
    emulation.wires.cut(wire)
    try:
        yield
    finally:
        emulation.wires.restore(wire)


@contextlib.contextmanager
def black_hole(emulation: Emulation, wire: str) -> Iterator[None]:
    """Nothing arrives, and neither end sees it."""
    emulation.wires.blackhole(wire)
    try:
        yield
    finally:
        emulation.wires.restore(wire)


def heard(
    emulation: Emulation, during: Callable[[], None], enough: Callable[[Event], bool]
) -> list[Event]:
    """The events from before `during` until one is `enough`."""

    async def listen() -> list[Event]:
        found: list[Event] = []
        events = client(emulation).events()
        first = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.2)  # subscribed
        await asyncio.to_thread(during)
        async with asyncio.timeout(WITHIN_S):
            while True:
                event = await first
                assert not isinstance(event, int), "events were lost"
                found.append(event)
                if enough(event):
                    await events.aclose()  # type: ignore[attr-defined]
                    return found
                first = asyncio.ensure_future(anext(events))

    return asyncio.run(listen())
