# SPDX-License-Identifier: Apache-2.0
"""One P4Runtime connection to one device: the edge between the controller and a switch.

finsy's messages, P4Info schema, entities and error decoding are used; its ``Switch`` and
``P4Client`` are not, because they retry for ever in the background where a command must report,
give every request ten seconds (the first pipeline load compiles the program on softswitch), and
refuse answers over 4 MB (a full ``slots`` table is 8 MB).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

import grpc
from finsy import P4Schema
from finsy.grpcutil import GRPC_EOF, GRPCStatusCode
from finsy.p4client import P4ClientError, P4RpcStatus
from finsy.proto import U128, p4r, p4r_grpc

T = TypeVar("T")

BUILD_DIR: Final = Path(__file__).resolve().parents[1] / "p4src" / "build"
PROGRAMS: Final = ("fabric", "nic")

CONNECT_TIMEOUT_S: Final = 5.0
REQUEST_TIMEOUT_S: Final = 60.0
PIPELINE_TIMEOUT_S: Final = 180.0  # softswitch compiles the program when its cache is empty
BATCH_UPDATES: Final = 1000
CONCURRENT_DEVICES: Final = 32
HANG_UP_TIMEOUT_S: Final = 1.0
FIRST_ELECTION_ID: Final = 1
ELECTION_ATTEMPTS: Final = 16
OFFER_S: Final = 0.01  # between offers, when others make offers, too
TURN_S: Final = 0.1  # how long to let another controller work that wants the device, too

# A batch of failing updates answers with about 8 KiB and 100 B per update in the trailer.
_CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", 4 << 20),
    ("grpc.absolute_max_metadata_size", 4 << 20),
    ("grpc.enable_http_proxy", 0),
    # One connection per device object, never one that another test or fabric left in the pool.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)


class DeviceError(Exception):
    """A device could not be reached or refused a request; the message says which and why."""


class PipelineMissingError(DeviceError):
    """The device runs no program yet."""


class NotPrimaryError(DeviceError):
    """Another controller holds the device."""


@dataclass(frozen=True, slots=True)
class UpdateError:
    """One update of a batch that the device refused."""

    index: int
    code: str
    message: str


@cache
def load_program(name: str, build_dir: Path = BUILD_DIR) -> P4Schema:
    """P4Info and BMv2 JSON of a program as p4c left them in ``build_dir``.

    Raises DeviceError when they are not there.
    """
    p4info, config = build_dir / f"{name}.p4info.txtpb", build_dir / f"{name}.json"
    for path in (p4info, config):
        if not path.is_file():
            raise DeviceError(f"{path} is missing: restore p4src/build from git or run `make p4`")
    return P4Schema(p4info, config)


def load_programs(build_dir: Path = BUILD_DIR) -> Mapping[str, P4Schema]:
    """Both programs, by name."""
    return {name: load_program(name, build_dir) for name in PROGRAMS}


def _describe(error: grpc.aio.AioRpcError) -> str:
    status = P4RpcStatus.from_rpc_error(error)
    return f"{status.code.name}: {status.message}" if status.message else status.code.name


class DeviceConnection:
    """An open channel to one device. Use ``connect()``; all methods raise DeviceError."""

    def __init__(self, name: str, device_id: int, channel: grpc.aio.Channel) -> None:
        self.name = name
        self.device_id = device_id
        self._stub = p4r_grpc.P4RuntimeStub(channel)
        self._stream: grpc.aio.StreamStreamCall | None = None
        self._drain: asyncio.Task[None] | None = None
        self._election_id = 0
        self._sending = asyncio.Lock()

    # ---- arbitration ---------------------------------------------------------------------------

    async def become_primary(self) -> int:
        """Become the device's primary controller and return the election id.

        The smallest election id that wins is taken, so that a controller which connects later
        with a default one is not shut out. A primary that is there already (a link agent, a shell)
        is superseded until this connection closes.
        """
        election_id = FIRST_ELECTION_ID
        for attempt in range(ELECTION_ATTEMPTS):
            if attempt > 1:
                # Others make offers at the same time: out of step with them, and on a new stream,
                # where news of what became of theirs is not taken for an answer to ours.
                await self._close_stream()
                await asyncio.sleep(random.uniform(0, OFFER_S * attempt))
            answer = await self._arbitrate(election_id)
            if answer is None:  # this very id is taken, and others may be looking for one, too
                election_id += random.randint(1, 1 + attempt)
                continue
            code = GRPCStatusCode(answer.status.code)
            if code == GRPCStatusCode.OK:
                self._election_id = election_id
                self._drain = asyncio.create_task(self._discard_messages(self._stream))
                return election_id
            highest = U128.decode(answer.election_id)
            # Without a primary (NOT_FOUND) the id that the device remembers is free to be used.
            election_id = highest if code == GRPCStatusCode.NOT_FOUND else highest + 1
        raise NotPrimaryError(
            f"another controller kept the device after {ELECTION_ATTEMPTS} attempts "
            f"(last election id {election_id})"
        )

    async def as_primary(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do ``work`` as the device's primary controller.

        When another one takes the device over meanwhile, its turn is now, and then ``work`` is done
        again from the start: it must find what it has written. NotPrimaryError when that happens
        again and again.
        """
        for attempt in range(1, ELECTION_ATTEMPTS + 1):
            await self.become_primary()
            try:
                return await work()
            except NotPrimaryError:
                await self._close_stream()
                if attempt == ELECTION_ATTEMPTS:
                    raise
                await asyncio.sleep(random.uniform(0, TURN_S * attempt))
        raise AssertionError("not reached")

    async def primary(self) -> int | None:
        """The election id of the device's primary controller, None when it has none.

        Asks as a backup without an election id, which changes nothing on the device.
        """
        answer = await self._arbitrate(None)
        await self._close_stream()
        if answer is None or GRPCStatusCode(answer.status.code) != GRPCStatusCode.ALREADY_EXISTS:
            return None
        return int(U128.decode(answer.election_id))

    # ---- staying --------------------------------------------------------------------------------

    def messages(self) -> AsyncIterator[p4r.StreamMessageResponse]:
        """Open the stream; all that comes on it, for one who stays (`offer`, `send`).

        Ends when the device hangs up. Raises DeviceError when the connection breaks.
        """
        self._stream = self._stub.StreamChannel()
        return self._all_messages(self._stream)

    async def _all_messages(
        self, stream: grpc.aio.StreamStreamCall
    ) -> AsyncIterator[p4r.StreamMessageResponse]:
        try:
            while (message := await stream.read()) is not GRPC_EOF:
                yield message
        except grpc.aio.AioRpcError as error:
            raise DeviceError(f"the stream ended: {_describe(error)}") from None

    async def offer(self, election_id: int) -> None:
        """Offer an election id on the open stream; the answer is one of its `messages`."""
        self._election_id = election_id
        offer = p4r.MasterArbitrationUpdate(
            device_id=self.device_id, election_id=U128.encode(election_id)
        )
        await self.send(p4r.StreamMessageRequest(arbitration=offer))

    async def send(self, message: p4r.StreamMessageRequest) -> None:
        """Send on the open stream. Raises DeviceError when it has ended."""
        if self._stream is None:
            raise DeviceError("there is no stream")
        try:
            async with self._sending:  # a stream takes one message at a time
                await self._stream.write(message)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise DeviceError(f"the stream ended: {error}") from None

    async def _arbitrate(
        self, election_id: int | None, *, again: bool = True
    ) -> p4r.MasterArbitrationUpdate | None:
        """Offer an election id and return the answer; None when that id is in use."""
        if self._stream is None:
            self._stream = self._stub.StreamChannel()
        offer = p4r.MasterArbitrationUpdate(device_id=self.device_id)
        if election_id is not None:
            offer.election_id.CopyFrom(U128.encode(election_id))
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await self._stream.write(p4r.StreamMessageRequest(arbitration=offer))
                while True:
                    message = await self._stream.read()
                    if message is GRPC_EOF:
                        raise DeviceError("the device closed the stream during arbitration")
                    if message.WhichOneof("update") == "arbitration":
                        return message.arbitration
        except TimeoutError:
            await self._close_stream()
            raise DeviceError(f"no answer to arbitration in {REQUEST_TIMEOUT_S:g} s") from None
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            await self._close_stream()
            code = error.code() if isinstance(error, grpc.aio.AioRpcError) else None
            if code == grpc.StatusCode.INVALID_ARGUMENT:
                # BMv2 takes an unset id for 0, which another one that only asks may have.
                return None
            # gRPC's words for writing on a stream that has just ended: InvalidStateError, INTERNAL.
            if again and code in (None, grpc.StatusCode.INTERNAL):
                return await self._arbitrate(election_id, again=False)
            reason = _describe(error) if isinstance(error, grpc.aio.AioRpcError) else str(error)
            raise DeviceError(f"arbitration: {reason}") from None

    async def _discard_messages(self, stream: grpc.aio.StreamStreamCall) -> None:
        """Read the stream as long as it lasts, or a server that sends packets would block on it."""
        try:
            while await stream.read() is not GRPC_EOF:
                pass
        except grpc.aio.AioRpcError:
            # The requests that need the primary role will fail and say so.
            return

    async def _close_stream(self) -> None:
        """Hang up and wait until the device has noticed, so that who comes next finds it free."""
        stream, drain = self._stream, self._drain
        self._stream = self._drain = None
        if stream is None:
            return
        drain = drain or asyncio.create_task(self._discard_messages(stream))
        try:
            async with asyncio.timeout(HANG_UP_TIMEOUT_S):
                if not stream.done():
                    await stream.done_writing()
                await drain
        except (TimeoutError, grpc.aio.AioRpcError):
            pass  # the device is gone or stuck, and holds nothing of ours that matters then
        finally:
            stream.cancel()
            drain.cancel()
            await asyncio.gather(drain, return_exceptions=True)

    # ---- pipeline ------------------------------------------------------------------------------

    async def pipeline(self) -> p4r.ForwardingPipelineConfig | None:
        """Cookie and P4Info of the program that the device runs, None when it runs none."""
        request = p4r.GetForwardingPipelineConfigRequest(
            device_id=self.device_id,
            response_type=p4r.GetForwardingPipelineConfigRequest.P4INFO_AND_COOKIE,
        )
        try:
            answer = await self._stub.GetForwardingPipelineConfig(
                request, timeout=REQUEST_TIMEOUT_S
            )
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                return None
            raise DeviceError(f"reading the pipeline: {_describe(error)}") from None
        return answer.config

    async def has_program(self, schema: P4Schema) -> bool:
        """Whether the device runs exactly this program: its P4Info, its cookie over all of it."""
        config = await self.pipeline()
        return (
            config is not None
            and config.cookie.cookie == schema.p4cookie
            and schema.has_p4info(config.p4info)
        )

    async def set_program(self, schema: P4Schema) -> None:
        """Load the program; every table entry and counter of the device is gone afterwards."""
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self.device_id,
            election_id=U128.encode(self._election_id),
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=schema.get_pipeline_config(),
        )
        try:
            await self._stub.SetForwardingPipelineConfig(request, timeout=PIPELINE_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.PERMISSION_DENIED:
                raise NotPrimaryError(
                    "loading the program: another controller took the device over"
                ) from None
            raise DeviceError(f"loading the program: {_describe(error)}") from None

    # ---- entities ------------------------------------------------------------------------------

    async def read(self, *entities: p4r.Entity) -> AsyncIterator[p4r.Entity]:
        """Entities that match; an unset field of a request is a wildcard (P4Runtime 11)."""
        request = p4r.ReadRequest(device_id=self.device_id, entities=entities)
        try:
            async for answer in self._stub.Read(request, timeout=REQUEST_TIMEOUT_S):
                for entity in answer.entities:
                    yield entity
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                raise PipelineMissingError("the device runs no program") from None
            raise DeviceError(f"reading: {_describe(error)}") from None

    async def read_tables(self) -> list[p4r.Entity]:
        """All entries of all tables, without counters and default actions, and all multicast
        groups."""
        groups = p4r.PacketReplicationEngineEntry(multicast_group_entry=p4r.MulticastGroupEntry())
        everything = (
            p4r.Entity(table_entry=p4r.TableEntry()),
            p4r.Entity(packet_replication_engine_entry=groups),
        )
        return [entity async for entity in self.read(*everything)]

    async def write(self, updates: Sequence[p4r.Update]) -> list[UpdateError]:
        """Write one batch; returns the updates that were refused, the others are in force.

        Raises DeviceError when the request failed as a whole, NotPrimaryError when another
        controller holds the device by now.
        """
        request = p4r.WriteRequest(
            device_id=self.device_id,
            election_id=U128.encode(self._election_id),
            updates=updates,
        )
        try:
            await self._stub.Write(request, timeout=REQUEST_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.PERMISSION_DENIED:
                raise NotPrimaryError("writing: another controller took the device over") from None
            details = P4ClientError(error, "Write").details
            if not details:
                raise DeviceError(f"writing: {_describe(error)}") from None
            return [
                UpdateError(index, detail.canonical_code.name, detail.message)
                for index, detail in sorted(details.items())
            ]
        return []

    async def close(self) -> None:
        """End the stream; the device then has no primary, or the next one."""
        await self._close_stream()


@asynccontextmanager
async def connect(
    name: str, address: str, device_id: int, timeout_s: float = CONNECT_TIMEOUT_S
) -> AsyncIterator[DeviceConnection]:
    """A connection to the P4Runtime server at ``address`` (host:port).

    Raises DeviceError when nothing answers there within ``timeout_s`` seconds.
    """
    channel = grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)
    connection = DeviceConnection(name, device_id, channel)
    try:
        try:
            async with asyncio.timeout(timeout_s):
                await channel.channel_ready()
        except TimeoutError:
            raise DeviceError(
                f"nothing answers at {address} within {timeout_s:g} s; see the device's log"
            ) from None
        yield connection
    finally:
        await connection.close()
        await channel.close()
