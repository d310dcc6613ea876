# SPDX-License-Identifier: Apache-2.0
"""The same question to many devices at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from finsy import P4Schema

from controller.inventory import Inventory
from controller.p4rt import (
    CONCURRENT_DEVICES,
    CONNECT_TIMEOUT_S,
    DeviceConnection,
    DeviceError,
    connect,
    load_programs,
)

T = TypeVar("T")
Visit = Callable[[str, DeviceConnection, P4Schema], Awaitable[T]]


async def visit_all(
    inventory: Inventory,
    visit: Visit[T],
    *,
    names: Iterable[str] | None = None,
    programs: Mapping[str, P4Schema] | None = None,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
) -> tuple[dict[str, T], dict[str, str]]:
    """Call ``visit(name, connection, program)`` for every device (or for ``names``), concurrently.

    Returns the answers and, for devices that failed with DeviceError, the reasons, both by name.
    """
    schemas = load_programs() if programs is None else programs
    gate = asyncio.Semaphore(CONCURRENT_DEVICES)
    answers: dict[str, T] = {}
    errors: dict[str, str] = {}

    async def one(name: str) -> None:
        device = inventory.devices[name]
        address, number = device.address, device.device_id
        try:
            async with gate, connect(name, address, number, connect_timeout_s) as link:
                answers[name] = await visit(name, link, schemas[device.program])
        except DeviceError as error:
            errors[name] = str(error)

    wanted = list(inventory.devices if names is None else names)
    await asyncio.gather(*(one(name) for name in wanted))
    return {name: answers[name] for name in wanted if name in answers}, errors
