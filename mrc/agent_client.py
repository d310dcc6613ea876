# SPDX-License-Identifier: Apache-2.0
"""Typed client of the host agent (protocol: `mrc.agent`).

    client = AgentClient("/run/mrc-fabric/h0-0.sock")
    region = await client.register(RegisterRequest(length=1 << 20))

Every call has a connection of its own, so any number may be in flight at once (`asyncio.gather`);
cancelling a call cancels the command in the agent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mrc.messages import (
    ConnectQpRequest,
    CreateQpRequest,
    Digest,
    ProbeRequest,
    ProbeResult,
    QpInfo,
    RegionInfo,
    RegisterRequest,
    WriteRequest,
    WriteResult,
)

_ANSWER_LIMIT_BYTES = 256 << 20
_PROMPT_S = 10.0  # for commands that do no waiting of their own, on a busy machine
_RETRIES_S = 60.0  # for a reliable write's time-outs and repetitions
_UNPACED_PER_S = 2000.0  # what an unpaced sender is trusted to reach at the least


class AgentError(RuntimeError):
    """The agent cannot be reached, does not answer in time, or refuses; says which and why."""


class AgentClient:
    """One agent, by the path of its control socket."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    async def probe(self, request: ProbeRequest) -> ProbeResult:
        """Probe paths; returns when every probe is answered or its time is over."""
        probes = request.count * sum(len(target.path_evs or [0]) for target in request.targets)
        seconds = probes / (request.rate or _UNPACED_PER_S) + request.timeout_s
        answer = await self.call("probe", request.to_json(), _PROMPT_S + 2 * seconds)
        return ProbeResult.from_json(answer)

    async def register(self, request: RegisterRequest) -> RegionInfo:
        """Register a memory region of zero bytes."""
        return RegionInfo.from_json(await self.call("register", request.to_json()))

    async def deregister(self, rkey: int) -> None:
        """Forget a region."""
        await self.call("deregister", {"rkey": rkey})

    async def read_digest(self, rkey: int) -> Digest:
        """SHA-256 of a region, and what has not arrived."""
        return Digest.from_json(await self.call("read_digest", {"rkey": rkey}))

    async def create_qp(self, qp: int | None = None) -> QpInfo:
        """Make a QP, with this number or one of the agent's choice."""
        return QpInfo.from_json(await self.call("create_qp", CreateQpRequest(qp).to_json()))

    async def connect_qp(self, request: ConnectQpRequest) -> None:
        """Tell a QP its peer."""
        await self.call("connect_qp", request.to_json())

    async def destroy_qp(self, qp: int) -> None:
        """Forget a QP."""
        await self.call("destroy_qp", {"qp": qp})

    async def write(self, request: WriteRequest, timeout_s: float | None = None) -> WriteResult:
        """Send a WRITE message; returns when its last packet is sent, or is acknowledged.

        Waits `timeout_s` for that (None: what the rate needs, twice).
        """
        if timeout_s is None:
            packets = request.length / (request.payload or 256)
            timeout_s = _PROMPT_S + 2 * packets / (request.rate or _UNPACED_PER_S)
            if request.reliable:
                timeout_s += _RETRIES_S
        answer = await self.call("write", request.to_json(), timeout_s)
        return WriteResult.from_json(answer)

    async def resend(
        self, request: WriteRequest, sent: WriteResult, ranges: list[list[int]]
    ) -> WriteResult:
        """Send again, with rtx = 1, the packets of a written message that overlap `ranges`.

        `ranges` is `Digest.missing` of the receiver when the message fills its region.
        """
        return await self.write(
            replace(
                request,
                ranges=ranges,
                payload=sent.payload,
                first_psn=sent.first_psn,
                msn=sent.msn,
                rqmsn=sent.rqmsn,
            )
        )

    async def stats(self) -> dict[str, Any]:
        """All counters of the agent, by name."""
        return await self.call("stats", {})

    async def shutdown(self) -> None:
        """End the agent."""
        await self.call("shutdown", {})

    async def call(
        self, command: str, parameters: Mapping[str, Any], timeout_s: float = _PROMPT_S
    ) -> dict[str, Any]:
        """Send one command and return its result as the JSON object that it is."""
        try:
            async with asyncio.timeout(timeout_s):
                line = await self._exchange({"command": command, **parameters})
        except TimeoutError as error:
            raise AgentError(
                f"agent at {self.path}: no answer to {command} within {timeout_s:.1f} s"
            ) from error
        except OSError as error:
            raise AgentError(f"agent at {self.path}: {error}") from error
        if not line.endswith(b"\n"):
            raise AgentError(f"agent at {self.path}: ended before it answered {command}")
        answer = json.loads(line)
        if not answer["ok"]:
            raise AgentError(f"agent at {self.path}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    async def _exchange(self, request: dict[str, Any]) -> bytes:
        reader, writer = await asyncio.open_unix_connection(
            str(self.path), limit=_ANSWER_LIMIT_BYTES
        )
        try:
            writer.write(json.dumps(request).encode() + b"\n")
            await writer.drain()
            return await reader.readline()
        finally:
            # Not waited for: an answer is complete, and a cancelled call must end at once.
            writer.close()
