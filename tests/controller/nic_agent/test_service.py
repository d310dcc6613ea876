# SPDX-License-Identifier: Apache-2.0
"""The agent's socket: requests and answers, subscribers fast and slow, and its end."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from controller.ev_events import LinkEvent
from controller.nic_agent.agent import LISTENER_EVENTS, Listener, NicAgent
from controller.nic_agent.client import NicAgentClient
from controller.nic_agent.service import ServiceError, serving
from controller.nic_agent.session import NicSession, NicUnavailableError
from mrc.agent_client import AgentError

EVENT = LinkEvent("n0-0", 1, up=False)


class FakeAgent(NicAgent):
    """An agent of no fabric, whose only NIC doubles values."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()

    def status(self) -> dict[str, Any]:
        return {"n0-0": {"ready": True}}

    def session(self, nic: str) -> NicSession:
        if nic != "n0-0":
            raise ValueError(f"nic = {nic!r}: allowed are n0-0")
        return cast(NicSession, self)

    async def exchange(self, op: int, index: int, value: int = 0) -> int:
        if op == 2:
            raise NicUnavailableError("n0-0: gone")
        return 2 * value

    def tell(self) -> None:
        self._tell(EVENT)

    @property
    def listeners(self) -> int:
        return len(self._listeners)


def with_agent(
    tmp_path: Path, work: Callable[[FakeAgent, NicAgentClient], Awaitable[None]]
) -> None:
    async def main() -> None:
        agent, path = FakeAgent(), tmp_path / "agent.sock"
        async with serving(agent, path):
            await work(agent, NicAgentClient(path))
        assert not path.exists()
        assert agent.listeners == 0

    asyncio.run(main())


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.001)


def test_requests_are_answered(tmp_path: Path) -> None:
    async def work(agent: FakeAgent, client: NicAgentClient) -> None:
        assert await client.status() == {"n0-0": {"ready": True}}
        assert await client.exchange("n0-0", 1, 0, 21) == 42
        with pytest.raises(AgentError, match="n0-0: gone"):
            await client.exchange("n0-0", 2, 0)
        with pytest.raises(AgentError, match="allowed are n0-0"):
            await client.exchange("n9-9", 1, 0)
        with pytest.raises(AgentError, match="INJECT is not answered"):
            await client.exchange("n0-0", 9, 0)

    with_agent(tmp_path, work)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"nonsense\n", "not JSON"),
        (b"[1]\n", "must be a JSON object"),
        (b"{}\n", "command = None: allowed are subscribe, exchange, status"),
        (
            b'{"command": "exchange", "nic": "n0-0", "op": true, "index": 0, "value": 0}\n',
            "op = True: allowed are numbers of 8 bits",
        ),
        (
            b'{"command": "exchange", "nic": "n0-0", "op": 1, "index": 65536, "value": 0}\n',
            "index = 65536: allowed are numbers of 16 bits",
        ),
        (b"x" * 70_000 + b"\n", "a line has more than 65536 bytes"),
    ],
)
def test_bad_lines_are_refused_in_words(tmp_path: Path, line: bytes, error: str) -> None:
    async def work(agent: FakeAgent, client: NicAgentClient) -> None:
        reader, writer = await asyncio.open_unix_connection(client.path)
        writer.write(line)
        answer = json.loads(await reader.readline())
        assert answer["ok"] is False
        assert error in answer["error"]
        writer.close()
        assert (await client.status())["n0-0"]["ready"]

    with_agent(tmp_path, work)


def test_subscribers_hear_of_everything_until_they_hang_up(tmp_path: Path) -> None:
    async def work(agent: FakeAgent, client: NicAgentClient) -> None:
        events = client.events()
        first = asyncio.ensure_future(anext(events))
        await until(lambda: agent.listeners == 1)
        for _ in range(100):
            agent.tell()
        assert await first == EVENT
        assert [await anext(events) for _ in range(99)] == [EVENT] * 99
        await events.aclose()  # type: ignore[attr-defined]
        await until(lambda: agent.listeners == 0)

    with_agent(tmp_path, work)


async def slow_reader(agent: FakeAgent, path: Path) -> socket.socket:
    """A subscriber whose socket is full."""
    slow = socket.socket(socket.AF_UNIX)
    slow.setblocking(False)
    await asyncio.get_running_loop().sock_connect(slow, str(path))
    slow.send(b'{"command": "subscribe"}\n')
    await until(lambda: agent.listeners == 1)
    for _ in range(3):
        for _ in range(LISTENER_EVENTS):
            agent.tell()
        await asyncio.sleep(0.1)
    return slow


def test_a_slow_subscriber_loses_the_oldest_events_and_is_told(tmp_path: Path) -> None:
    async def work(agent: FakeAgent, client: NicAgentClient) -> None:
        slow = await slow_reader(agent, client.path)
        reader, writer = await asyncio.open_connection(sock=slow)
        assert json.loads(await reader.readline())["ok"]
        told = lost = 0
        while told + lost < 3 * LISTENER_EVENTS:
            values = json.loads(await reader.readline())
            if values["event"] == "lost":
                lost += values["events"]
            else:
                told += 1
        assert lost > 0
        assert told >= LISTENER_EVENTS
        writer.close()

    with_agent(tmp_path, work)


def test_the_end_does_not_wait_for_a_subscriber_who_does_not_read(tmp_path: Path) -> None:
    started: list[float] = []
    kept: list[socket.socket] = []

    async def work(agent: FakeAgent, client: NicAgentClient) -> None:
        kept.append(await slow_reader(agent, client.path))
        started.append(time.monotonic())

    with_agent(tmp_path, work)
    assert time.monotonic() - started[0] < 1.0
    kept[0].close()


def test_a_socket_that_a_killed_agent_left_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()

    async def work(agent: FakeAgent, client: NicAgentClient) -> None:
        assert await client.status()

    with_agent(tmp_path, work)


def test_a_second_agent_is_refused_and_leaves_the_first_its_socket(tmp_path: Path) -> None:
    async def work(agent: FakeAgent, client: NicAgentClient) -> None:
        with pytest.raises(ServiceError, match="another NIC agent listens on it"):
            async with serving(FakeAgent(), client.path):
                pass
        assert await client.status()

    with_agent(tmp_path, work)


def test_what_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    path.write_text("precious")

    async def main() -> None:
        with pytest.raises(ServiceError, match=r"agent\.sock"):
            async with serving(FakeAgent(), path):
                pass

    asyncio.run(main())
    assert path.read_text() == "precious"
