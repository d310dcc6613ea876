# SPDX-License-Identifier: Apache-2.0
"""The agent's hold on one NIC: a P4Runtime stream, register access over it, and the events.

The session takes the lowest election id, so that everybody who writes tables supersedes it
(`DeviceConnection.become_primary`) and nobody has to know of it. When the other one hangs up, BMv2
makes the session primary again by itself; softswitch remembers the highest id, has no primary, and
is offered that id. In between another program may have been loaded, so that each time the session
becomes primary it subscribes to the digest and `prepare` writes again what the agent wants there.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from typing import Final

from finsy import P4DigestList, P4PacketIn, P4PacketOut, P4Schema
from finsy.grpcutil import GRPCStatusCode
from finsy.proto import U128, p4r

from controller.inventory import Device
from controller.nic_agent.registers import Op
from controller.p4rt import FIRST_ELECTION_ID, DeviceConnection, DeviceError, connect

log = logging.getLogger(__name__)

DIGEST: Final = "ev_event_t"
DIGEST_LIST_SIZE: Final = 100
DIGEST_TIMEOUT_NS: Final = 10_000_000
DIGEST_ACK_TIMEOUT_NS: Final = 100_000_000
EXCHANGE_TIMEOUT_S: Final = 1.0
EXCHANGE_ATTEMPTS: Final = 3
PROGRAM_POLL_S: Final = 0.25
RETRY_S: Final = (0.1, 2.0)  # after the stream has ended: first, and doubled up to

Sample = dict[str, int]
_Asked = tuple[int, int, int]
"""Operation, index, and what of the value an answer repeats: see `_asked`."""


class NicUnavailableError(DeviceError):
    """The NIC cannot be reached through this session at the moment; the message says why."""


class NicSession:
    """Primary of one NIC whenever nobody else wants to be. `run` it as a task."""

    def __init__(
        self,
        name: str,
        device: Device,
        schema: P4Schema,
        prepare: Callable[[NicSession], Awaitable[None]],
        on_event: Callable[[str, Sample], None],
    ) -> None:
        """`prepare` is awaited each time the NIC is ours with its program; `on_event` hears of
        each digest, (NIC, members by name)."""
        self.name = name
        self.attached = asyncio.Event()  # the stream is up, and someone is primary
        self.ready = asyncio.Event()  # primary, and the program is there
        self.counters: dict[str, int] = defaultdict(int)
        self._device = device
        self._schema = schema
        self._prepare = prepare
        self._on_event = on_event
        self._link: DeviceConnection | None = None
        self._offered = FIRST_ELECTION_ID
        self._answers: dict[_Asked, deque[asyncio.Future[int]]] = defaultdict(deque)
        self._preparing: asyncio.Task[None] | None = None

    @property
    def why_not_ready(self) -> str:
        """In words."""
        if not self.attached.is_set():
            return "the NIC does not answer"
        if self._preparing is None:
            return "another controller holds the NIC"
        return "the NIC has no program yet"

    async def run(self) -> None:
        """Hold the NIC until cancelled, whatever becomes of it."""
        async with asyncio.TaskGroup() as tasks:  # what fails while preparing must not go unseen
            await self._hold(tasks)

    async def _hold(self, tasks: asyncio.TaskGroup) -> None:
        wait_s = RETRY_S[0]
        while True:
            try:
                async with connect(self.name, self._device.address, self._device.device_id) as link:
                    self._link = link
                    self._offered = FIRST_ELECTION_ID
                    messages = link.messages()
                    await link.offer(self._offered)
                    async for message in messages:
                        await self._take(link, message, tasks)
                        wait_s = RETRY_S[0]
                reason = "the NIC hung up"
            except DeviceError as error:
                reason = str(error)
            finally:
                await self._lose()
                self.attached.clear()
                self._link = None
            log.info("%s: %s; trying again in %.1f s", self.name, reason, wait_s)
            self.counters["reconnects"] += 1
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, RETRY_S[1])

    async def _take(
        self, link: DeviceConnection, message: p4r.StreamMessageResponse, tasks: asyncio.TaskGroup
    ) -> None:
        kind = message.WhichOneof("update")
        if kind == "arbitration":
            await self._on_arbitration(link, message.arbitration, tasks)
        elif kind == "packet":
            self._on_packet(P4PacketIn.decode(message, self._schema))
        elif kind == "digest":
            digests = P4DigestList.decode(message, self._schema)
            await link.send(digests.ack().encode_update(self._schema))
            for sample in digests.data:
                assert isinstance(sample, dict)
                self.counters["events"] += 1
                self._on_event(self.name, {name: int(value) for name, value in sample.items()})
        elif kind == "error":
            log.warning("%s: %s", self.name, message.error.message)

    # ---- arbitration ---------------------------------------------------------------------------

    async def _on_arbitration(
        self,
        link: DeviceConnection,
        answer: p4r.MasterArbitrationUpdate,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.attached.set()
        code = GRPCStatusCode(answer.status.code)
        highest = U128.decode(answer.election_id)
        if code == GRPCStatusCode.OK:
            if self._preparing is None:
                self._preparing = tasks.create_task(self._become_ready(link))
            return
        await self._lose()
        if code == GRPCStatusCode.NOT_FOUND and highest != self._offered:
            self._offered = highest
            await link.offer(highest)

    async def _lose(self) -> None:
        """Not primary any more."""
        self.ready.clear()
        preparing, self._preparing = self._preparing, None
        for waiting in self._answers.values():
            for future in waiting:
                if not future.done():
                    future.set_exception(NicUnavailableError(f"{self.name}: lost in between"))
        self._answers.clear()
        if preparing is not None:
            preparing.cancel()
            await asyncio.gather(preparing, return_exceptions=True)

    async def _become_ready(self, link: DeviceConnection) -> None:
        while True:
            try:
                while not await link.has_program(self._schema):
                    await asyncio.sleep(PROGRAM_POLL_S)
                await self._subscribe(link)
                await self._prepare(self)
            except DeviceError as error:
                log.warning("%s: %s", self.name, error)
                await asyncio.sleep(PROGRAM_POLL_S)
            else:
                self.ready.set()
                log.info("%s: held with election id %d", self.name, self._offered)
                return

    async def _subscribe(self, link: DeviceConnection) -> None:
        config = p4r.DigestEntry.Config(
            max_list_size=DIGEST_LIST_SIZE,
            max_timeout_ns=DIGEST_TIMEOUT_NS,
            ack_timeout_ns=DIGEST_ACK_TIMEOUT_NS,
        )
        entity = p4r.Entity(
            digest_entry=p4r.DigestEntry(digest_id=self._schema.digests[DIGEST].id, config=config)
        )
        errors = await link.write([p4r.Update(type=p4r.Update.INSERT, entity=entity)])
        if errors and errors[0].code != GRPCStatusCode.ALREADY_EXISTS.name:
            raise DeviceError(f"subscribing to {DIGEST}: {errors[0].code} {errors[0].message}")

    # ---- registers and packets -----------------------------------------------------------------

    async def exchange(self, op: int, index: int, value: int = 0) -> int:
        """Do a register operation of p4src/include/cpu.p4; the value that the NIC answers.

        Sent again when no answer comes, which is why all operations say what shall be, not what
        shall change. Raises NicUnavailableError.
        """
        if self._preparing is None:
            raise NicUnavailableError(f"{self.name}: {self.why_not_ready}")
        for _ in range(EXCHANGE_ATTEMPTS):
            answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            asked = _asked(op, index, value)
            self._answers[asked].append(answer)
            try:
                await self.packet_out(b"", op=op, index=index, value=value)
                async with asyncio.timeout(EXCHANGE_TIMEOUT_S):
                    return await answer
            except TimeoutError:
                self.counters["unanswered"] += 1
            finally:
                self._forget(asked, answer)
        raise NicUnavailableError(
            f"{self.name}: no answer to register operation {op} after {EXCHANGE_ATTEMPTS} attempts"
        )

    async def packet_out(self, payload: bytes, *, op: int, index: int, value: int) -> None:
        """Send a packet to the NIC's program. Raises DeviceError."""
        message = P4PacketOut(payload, op=op, index=index, value=value)
        await self._open_link().send(message.encode_update(self._schema))

    async def peers(self) -> set[int]:
        """Addresses of who has a QP with the host, by the table `peers`. Raises DeviceError."""
        table = self._schema.tables["peers"]
        address = table.match_fields["src_addr"].id
        everything = p4r.Entity(table_entry=p4r.TableEntry(table_id=table.id))
        return {
            int.from_bytes(match.exact.value, "big")
            async for entry in self._open_link().read(everything)
            for match in entry.table_entry.match
            if match.field_id == address
        }

    def _open_link(self) -> DeviceConnection:
        if self._link is None:
            raise NicUnavailableError(f"{self.name}: {self.why_not_ready}")
        return self._link

    def _on_packet(self, packet: P4PacketIn) -> None:
        value = int(packet["value"])
        asked = _asked(int(packet["op"]), int(packet["index"]), value)
        if asked not in self._answers:
            self.counters["answers_unasked"] += 1
            return
        answer = self._answers[asked][0]
        self._forget(asked, answer)
        if not answer.done():
            answer.set_result(value)

    def _forget(self, asked: _Asked, answer: asyncio.Future[int]) -> None:
        """This answer is not waited for any more."""
        waiting = self._answers.get(asked, ())
        if answer in waiting:
            self._answers[asked].remove(answer)
            if not self._answers[asked]:
                del self._answers[asked]


def _asked(op: int, index: int, value: int) -> _Asked:
    """What an answer has in common with its question.

    Paths of a plane share an index: when one's answer gets lost, the next one's must not be taken
    for it.
    """
    return op, index, value >> 32 if op in (Op.READ_PATH, Op.WRITE_PATH) else 0
