# SPDX-License-Identifier: Apache-2.0
"""The hold on one NIC, against a link that says what a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from finsy import P4PacketOut
from finsy.grpcutil import GRPCStatusCode
from finsy.proto import U128, p4r, rpc_status

from controller.inventory import Device
from controller.nic_agent import session as session_module
from controller.nic_agent.registers import Op
from controller.nic_agent.session import NicSession, NicUnavailableError, Sample
from controller.p4rt import DeviceError, UpdateError, load_program

SCHEMA = load_program("nic")
DEVICE = Device(address="127.0.0.1:1", device_id=1, program="nic", log="/dev/null", pid=1)
INDEX = 1 << 3  # a plane of T0 group 1


class FakeLink:
    """Stands for a DeviceConnection; `say` makes the NIC say something."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[p4r.StreamMessageResponse | None] = asyncio.Queue()
        self.offers: list[int] = []
        self.asked: asyncio.Queue[P4PacketOut] = asyncio.Queue()
        self.subscriptions = 0

    async def messages(self) -> AsyncIterator[p4r.StreamMessageResponse]:
        while (message := await self.said.get()) is not None:
            yield message

    async def offer(self, election_id: int) -> None:
        self.offers.append(election_id)

    async def send(self, message: p4r.StreamMessageRequest) -> None:
        assert message.WhichOneof("update") == "packet"
        values = {
            meta.metadata_id: int.from_bytes(meta.value, "big") for meta in message.packet.metadata
        }
        self.asked.put_nowait(P4PacketOut(b"", op=values[1], index=values[2], value=values[3]))

    async def has_program(self, schema: Any) -> bool:
        return True

    async def write(self, updates: list[p4r.Update]) -> list[UpdateError]:
        self.subscriptions += 1
        return []

    def arbitrate(self, code: GRPCStatusCode, election_id: int) -> None:
        self.said.put_nowait(
            p4r.StreamMessageResponse(
                arbitration=p4r.MasterArbitrationUpdate(
                    device_id=1,
                    election_id=U128.encode(election_id),
                    status=rpc_status.Status(code=code.value),
                )
            )
        )

    def answer(self, op: int, index: int, value: int) -> None:
        packet = p4r.PacketIn(
            metadata=[
                p4r.PacketMetadata(metadata_id=number, value=value.to_bytes(8, "big"))
                for number, value in enumerate((op, index, value), 1)
            ]
        )
        self.said.put_nowait(p4r.StreamMessageResponse(packet=packet))


class Held:
    """A session that runs, with the links that it has opened."""

    def __init__(self, prepare: Callable[[NicSession], Awaitable[None]] | None = None) -> None:
        self.links: list[FakeLink] = []
        self.prepared = 0
        self.samples: list[Sample] = []
        self.session = NicSession(
            "n0-0", DEVICE, SCHEMA, prepare or self._prepare, lambda _, s: self.samples.append(s)
        )

    async def _prepare(self, _: NicSession) -> None:
        self.prepared += 1

    @property
    def link(self) -> FakeLink:
        return self.links[-1]

    @asynccontextmanager
    async def connect(self, *_: Any) -> AsyncIterator[FakeLink]:
        self.links.append(FakeLink())
        yield self.link

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not holds():
                await asyncio.sleep(0.001)

    async def ready(self) -> FakeLink:
        await self.until(lambda: bool(self.links) and bool(self.link.offers))
        self.link.arbitrate(GRPCStatusCode.OK, self.link.offers[-1])
        await self.until(self.session.ready.is_set)
        return self.link


def with_session(
    monkeypatch: pytest.MonkeyPatch,
    work: Callable[[Held, asyncio.Task[None]], Awaitable[None]],
    prepare: Callable[[NicSession], Awaitable[None]] | None = None,
) -> None:
    async def main() -> None:
        held = Held(prepare)
        monkeypatch.setattr(session_module, "connect", held.connect)
        running = asyncio.create_task(held.session.run())
        try:
            await work(held, running)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())


def test_one_path_is_not_taken_for_another_when_an_answer_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_module, "EXCHANGE_TIMEOUT_S", 0.05)

    async def work(held: Held, _: asyncio.Task[None]) -> None:
        link = await held.ready()
        paths = [8 << 32, 9 << 32]
        first, second = (
            asyncio.create_task(held.session.exchange(Op.READ_PATH, INDEX, path)) for path in paths
        )
        await link.asked.get()
        await link.asked.get()
        link.answer(Op.READ_PATH, INDEX, paths[1] | 0x80)  # that to the first is lost
        assert await second == paths[1] | 0x80
        again = await link.asked.get()
        assert (again.metadata["op"], again.metadata["value"]) == (Op.READ_PATH, paths[0])
        link.answer(Op.READ_PATH, INDEX, paths[0])
        assert await first == paths[0]
        link.answer(Op.READ_PATH, INDEX, paths[0])
        await held.until(lambda: held.session.counters["answers_unasked"] == 1)
        assert held.session.counters["unanswered"] == 1

    with_session(monkeypatch, work)


def test_who_is_superseded_knows_at_once_and_comes_back_with_the_id_that_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(held: Held, _: asyncio.Task[None]) -> None:
        link = await held.ready()
        waiting = asyncio.create_task(held.session.exchange(Op.READ_DOWN_PLANES, 0))
        await link.asked.get()
        link.arbitrate(GRPCStatusCode.ALREADY_EXISTS, 2)
        with pytest.raises(NicUnavailableError, match="lost in between"):
            await waiting
        assert not held.session.ready.is_set()
        with pytest.raises(NicUnavailableError, match="another controller holds the NIC"):
            await held.session.exchange(Op.READ_DOWN_PLANES, 0)
        assert link.offers == [1]
        link.arbitrate(GRPCStatusCode.NOT_FOUND, 2)
        await held.until(lambda: link.offers == [1, 2])
        await held.ready()
        assert (held.prepared, link.subscriptions) == (2, 2)

    with_session(monkeypatch, work)


def test_a_nic_that_hangs_up_is_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "RETRY_S", (0.01, 0.02))

    async def work(held: Held, _: asyncio.Task[None]) -> None:
        link = await held.ready()
        waiting = asyncio.create_task(held.session.exchange(Op.READ_DOWN_PLANES, 0))
        await link.asked.get()
        link.said.put_nowait(None)
        with pytest.raises(NicUnavailableError):
            await waiting
        await held.until(lambda: len(held.links) == 2)
        assert await held.ready() is held.links[1]
        assert held.session.counters["reconnects"] == 1

    with_session(monkeypatch, work)


def test_preparing_is_tried_again_as_long_as_the_nic_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_module, "PROGRAM_POLL_S", 0.01)
    failures = [DeviceError("not now"), NicUnavailableError("nor now")]

    async def prepare(_: NicSession) -> None:
        if failures:
            raise failures.pop()

    async def work(held: Held, _: asyncio.Task[None]) -> None:
        await held.ready()
        assert failures == []

    with_session(monkeypatch, work, prepare)


def test_what_goes_wrong_in_preparing_ends_the_session_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def prepare(_: NicSession) -> None:
        raise KeyError("a mistake in the program")

    async def work(held: Held, running: asyncio.Task[None]) -> None:
        await held.until(lambda: bool(held.links) and bool(held.link.offers))
        held.link.arbitrate(GRPCStatusCode.OK, 1)
        with pytest.raises(ExceptionGroup) as caught:
            await running
        assert isinstance(caught.value.exceptions[0], KeyError)

    with_session(monkeypatch, work, prepare)
