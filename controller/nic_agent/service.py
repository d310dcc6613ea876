# SPDX-License-Identifier: Apache-2.0
"""The agent's unix socket (protocol: docs/nic-agent.md): JSON objects, one a line."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from controller.nic_agent.agent import NicAgent
from controller.nic_agent.registers import Op
from controller.p4rt import DeviceError

_LINE_LIMIT_BYTES = 1 << 16
COMMANDS = ("subscribe", "exchange", "status")


class ServiceError(Exception):
    """The socket cannot be opened; the message says why."""


@asynccontextmanager
async def serving(agent: NicAgent, path: Path) -> AsyncIterator[None]:
    """Listen on `path` while in the context. Raises ServiceError."""
    service = _Service(agent)
    if path.is_socket():
        try:
            _, writer = await asyncio.open_unix_connection(path)
        except ConnectionRefusedError:
            path.unlink()  # left by an agent that was killed
        else:
            writer.close()
            raise ServiceError(f"{path}: another NIC agent listens on it")
    try:
        server = await asyncio.start_unix_server(service.serve, path, limit=_LINE_LIMIT_BYTES)
    except OSError as error:
        raise ServiceError(f"{path}: {error}") from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        server.close()
        await service.close()


class _Service:
    def __init__(self, agent: NicAgent) -> None:
        self._agent = agent
        self._clients: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            while line := await reader.readline():
                request = self._parse(line)
                if request.get("command") == "subscribe":
                    await self._relay(reader, writer)
                    return
                await _send(writer, await self._answer(request))
        except ConnectionError:
            pass  # the client has gone
        except asyncio.CancelledError:
            writer.transport.abort()  # we are ending, and do not wait for one who does not read
        except ValueError:  # a line beyond the limit
            with contextlib.suppress(ConnectionError):
                await _send(writer, _error(f"a line has more than {_LINE_LIMIT_BYTES} bytes"))
        finally:
            self._clients.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def _parse(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
        except ValueError as error:
            return {"error": f"not JSON: {error}"}
        return request if isinstance(request, dict) else {"error": "must be a JSON object"}

    async def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            if "error" in request and "command" not in request:
                raise ValueError(request["error"])
            match request.get("command"):
                case "status":
                    return {"ok": True, "result": self._agent.status()}
                case "exchange":
                    return {"ok": True, "result": {"value": await self._exchange(request)}}
                case other:
                    raise ValueError(f"command = {other!r}: allowed are {', '.join(COMMANDS)}")
        except (ValueError, DeviceError) as error:
            return _error(str(error))

    async def _exchange(self, request: Mapping[str, Any]) -> int:
        limits = {"op": 8, "index": 16, "value": 64}
        numbers = {}
        for name, bits in limits.items():
            number = request.get(name)
            if type(number) is not int or not 0 <= number < 1 << bits:
                raise ValueError(
                    f"exchange: {name} = {number!r}: allowed are numbers of {bits} bits"
                )
            numbers[name] = number
        if numbers["op"] == Op.INJECT:
            raise ValueError(f"exchange: op = {Op.INJECT}: INJECT is not answered")
        session = self._agent.session(str(request.get("nic")))
        return await session.exchange(numbers["op"], numbers["index"], numbers["value"])

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Every event from now on, until the client hangs up."""
        hung_up = asyncio.create_task(_end_of(reader))
        with self._agent.listening() as listener:
            await _send(writer, {"ok": True, "result": {}})
            try:
                while not hung_up.done():
                    event = asyncio.create_task(listener.events.get())
                    await asyncio.wait({hung_up, event}, return_when=asyncio.FIRST_COMPLETED)
                    if not event.done():
                        event.cancel()
                        return
                    if listener.lost:
                        lost, listener.lost = listener.lost, 0
                        await _send(writer, {"event": "lost", "events": lost})
                    await _send(writer, event.result().to_json())
            finally:
                hung_up.cancel()


async def _end_of(reader: asyncio.StreamReader) -> None:
    """Until the client hangs up, whatever it says."""
    while await reader.read(_LINE_LIMIT_BYTES):
        pass


async def _send(writer: asyncio.StreamWriter, answer: Mapping[str, Any]) -> None:
    writer.write(json.dumps(answer).encode() + b"\n")
    await writer.drain()


def _error(text: str) -> dict[str, Any]:
    return {"ok": False, "error": text}
