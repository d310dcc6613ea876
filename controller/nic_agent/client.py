# SPDX-License-Identifier: Apache-2.0
"""Typed client of the NIC agent (protocol: docs/nic-agent.md)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

from controller.ev_events import Event, event_from_json
from mrc.agent_client import AgentClient, AgentError

SOCKET: Final = "nic-agent.sock"
"""Its name in the run directory."""


class NicAgentClient:
    """The NIC agent behind the unix socket `path`. All methods raise `AgentError`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._client = AgentClient(path)

    async def status(self) -> dict[str, Any]:
        """How each NIC is, by name (docs/nic-agent.md)."""
        return await self._client.call("status", {})

    async def exchange(self, nic: str, op: int, index: int, value: int = 0) -> int:
        """Do a register operation (`registers.Op`) on a NIC; the value that it answers."""
        parameters = {"nic": nic, "op": op, "index": index, "value": value}
        answer = await self._client.call("exchange", parameters)
        return int(answer["value"])

    async def events(
        self, on_subscribed: Callable[[], None] = lambda: None
    ) -> AsyncIterator[Event | int]:
        """Everything that happens from `on_subscribed` on; a number: so many events were lost.

        Ends when the agent does.
        """
        try:
            reader, writer = await asyncio.open_unix_connection(self.path)
        except OSError as error:
            raise AgentError(f"NIC agent at {self.path}: {error}") from error
        try:
            writer.write(json.dumps({"command": "subscribe"}).encode() + b"\n")
            answer = json.loads(await reader.readline() or '{"ok": false, "error": "it has ended"}')
            if not answer["ok"]:
                raise AgentError(f"NIC agent at {self.path}: {answer['error']}")
            on_subscribed()
            while line := await reader.readline():
                values = json.loads(line)
                lost = values["event"] == "lost"
                yield values["events"] if lost else event_from_json(values)
        except ConnectionError as error:
            raise AgentError(f"NIC agent at {self.path}: {error}") from error
        finally:
            writer.close()
