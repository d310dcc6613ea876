# SPDX-License-Identifier: Apache-2.0
"""What the NICs say about their paths while an experiment runs, by way of the NIC agent."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from controller.ev_events import EvCause, Event, EvEvent, EvState
from controller.nic_agent.client import SOCKET, NicAgentClient
from mrc.agent_client import AgentError
from topologies.emulation import Emulation


@dataclass
class EventLog:
    """Events with the time.monotonic() at which they came; `lost` says how many did not."""

    events: list[tuple[float, Event]] = field(default_factory=list)
    lost: int = 0

    def retired(self) -> Counter[tuple[int, int]]:
        """How often a path by (plane, uplink) was left because of a loss, over all NICs."""
        return Counter(
            (event.plane, event.uplink)
            for _, event in self.events
            if isinstance(event, EvEvent)
            and event.cause is EvCause.LOSS
            and event.after is EvState.ASSUMED_BAD
        )

    def probed_back(self) -> Counter[tuple[int, int]]:
        """How often answered probes brought a path by (plane, uplink) back."""
        return Counter(
            (event.plane, event.uplink)
            for _, event in self.events
            if isinstance(event, EvEvent) and event.before is EvState.ASSUMED_BAD
        )


@asynccontextmanager
async def logged_events(emulation: Emulation) -> AsyncIterator[EventLog]:
    """Listen within the block. Raises AgentError when the agent ends in the middle."""
    log = EventLog()
    client = NicAgentClient(emulation.run_dir.path / SOCKET)

    async def listen() -> None:
        async for event in client.events():
            if isinstance(event, int):
                log.lost += event
            else:
                log.events.append((time.monotonic(), event))
        raise AgentError("the NIC agent has ended")

    listening = asyncio.create_task(listen())
    try:
        yield log
    finally:
        listening.cancel()
        (outcome,) = await asyncio.gather(listening, return_exceptions=True)
    if isinstance(outcome, Exception):
        raise outcome
