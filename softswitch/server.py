# SPDX-License-Identifier: Apache-2.0
"""The P4Runtime 1.4 service over gRPC.

One event loop does all work, so every request is handled as a whole: a client that goes away in the
middle of a write leaves a complete batch behind. Only the data plane's blocking calls, waiting for
packets and loading a program, run in threads of their own.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import grpc
from finsy.proto import p4r

from softswitch.arbitration import Arbitration, Client
from softswitch.boundary import DataplaneLike
from softswitch.entities import EntityStore
from softswitch.errors import DataplaneError
from softswitch.pipeline import PipelineManager
from softswitch.status import Failure, batch_status, code_name, failure_of, invalid
from softswitch.stream import Outbox, StreamHub
from softswitch.tls import server_credentials
from softswitch.values import Digest, PacketIn, PortStatus, TlsFiles
from softswitch.wire import responses

log = logging.getLogger("softswitch.server")

API_VERSION = "1.4.1"
SERVICE = "p4.v1.P4Runtime"

# As BMv2's server: a program or a batch may be far larger than gRPC's default of 4 MiB.
_MAX_REQUEST_BYTES = 256 << 20
# How long the event thread sleeps in the data plane before it looks whether it should end. Short,
# so that a switch ends quickly; waking up this often costs nothing measurable.
_EVENT_WAIT_S = 0.2
_EVENT_BATCH = 256
_STOP_GRACE_S = 0.2
# How long a DATAPLANE_ATOMIC write waits for packets in paced egress queues: a full queue of 64 at
# 50 packets/s. New packets wait in the interfaces' receive buffers meanwhile.
_FREEZE_S = 1.5

_Result = TypeVar("_Result")
_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


class _WriteCall:
    """A WriteRequest as it came, and parsed."""

    __slots__ = ("request", "wire")

    def __init__(self, wire: bytes) -> None:
        self.wire = wire
        self.request = p4r.WriteRequest.FromString(wire)


class P4RuntimeServer:
    """Serves one data plane as one P4Runtime device.

    `pipeline` is the program and its entities, for who else works on them.
    """

    def __init__(self, dataplane: DataplaneLike, device_id: int) -> None:
        self._dataplane = dataplane
        self._arbitration = Arbitration(device_id)
        self._outboxes: dict[Client, Outbox] = {}
        self._hub = StreamHub(self._arbitration, dataplane, self._outboxes.__getitem__)
        self.pipeline = PipelineManager(dataplane, self._hub)
        self._server: Any = None
        self._stopping = threading.Event()
        self._events: asyncio.Future[None] | None = None

    async def start(self, address: str, tls: TlsFiles | None = None) -> int:
        """Listen on `address` (HOST:PORT, port 0 for any) and return the TCP port.

        Raises OSError when the address cannot be bound or a file of `tls` cannot be used.
        """
        credentials = None if tls is None else server_credentials(tls)
        options = (
            ("grpc.max_receive_message_length", _MAX_REQUEST_BYTES),
            # Without this two switches could share a port, and clients would reach either.
            ("grpc.so_reuseport", 0),
        )
        server = grpc.aio.server(options=options)
        server.add_generic_rpc_handlers((self._handlers(),))
        try:
            port = int(
                server.add_insecure_port(address)
                if credentials is None
                else server.add_secure_port(address, credentials)
            )
        except RuntimeError:
            raise OSError(f"cannot listen on {address}: is the port taken?") from None
        await server.start()
        self._server = server
        self._events = asyncio.ensure_future(
            asyncio.to_thread(self._pump_events, asyncio.get_running_loop())
        )
        return port

    async def serve_until(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. Raises what ended the event thread, should that happen."""
        assert self._events is not None, "not started"
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait((stopped, self._events), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if self._events.done():
            self._events.result()

    async def stop(self) -> None:
        """Close all streams and the port, and wait until nothing uses the data plane any more."""
        self._stopping.set()
        self.pipeline.close()
        if self._server is not None:
            await self._server.stop(_STOP_GRACE_S)
        if self._events is not None:
            await asyncio.wait((self._events,))
        async with self.pipeline.lock:
            pass  # a program that is still being loaded, whose client is gone

    def _handlers(self) -> Any:
        unary = grpc.unary_unary_rpc_method_handler
        methods = {
            "Write": unary(self._write, _WriteCall, _serialize),
            # Answers to reads are put together as bytes already.
            "Read": grpc.unary_stream_rpc_method_handler(self._read, p4r.ReadRequest.FromString),
            "SetForwardingPipelineConfig": unary(
                self._set_pipeline, p4r.SetForwardingPipelineConfigRequest.FromString, _serialize
            ),
            "GetForwardingPipelineConfig": unary(
                self._get_pipeline, p4r.GetForwardingPipelineConfigRequest.FromString, _serialize
            ),
            "StreamChannel": grpc.stream_stream_rpc_method_handler(
                self._stream_channel, p4r.StreamMessageRequest.FromString, _serialize
            ),
            "Capabilities": unary(
                self._capabilities, p4r.CapabilitiesRequest.FromString, _serialize
            ),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    # --- unary calls --------------------------------------------------------------------------

    async def _write(self, call: _WriteCall, context: Any) -> Any:
        request = call.request
        try:
            if request.atomicity == p4r.WriteRequest.DATAPLANE_ATOMIC:
                # A client that gives up waiting must not leave the data plane frozen.
                outcomes = await _to_its_end(self._write_frozen(call))
            else:
                async with self.pipeline.lock:
                    store = self._check_write(request)
                    outcomes = store.write(
                        request.updates, rollback=_needs_rollback(request), wire=call.wire
                    )
        except Failure as failure:
            await _abort(context, failure, "Write")
        failures = [outcome for outcome in outcomes if outcome is not None]
        if failures:
            log.info(
                "Write: %d of %d updates failed; the first: %s",
                len(failures),
                len(outcomes),
                failures[0].message,
            )
            await _abort_batch(context, outcomes, "Write")
        return p4r.WriteResponse()

    async def _write_frozen(self, call: _WriteCall) -> list[Failure | None]:
        """Apply a batch of which every packet sees either all or nothing."""
        async with self.pipeline.lock:
            store = self._check_write(call.request)
            try:
                await asyncio.to_thread(store.pipeline.freeze, _FREEZE_S)
            except DataplaneError as error:
                failure = failure_of(error)
                raise Failure(failure.code, f"DATAPLANE_ATOMIC: {error}; nothing changed") from None
            try:
                return store.write(call.request.updates, rollback=True, wire=call.wire)
            finally:
                store.pipeline.thaw()

    def _check_write(self, request: Any) -> EntityStore:
        """The store that a write goes to. Raises `Failure` unless the primary sent it."""
        self._arbitration.check_primary(request)
        return self.pipeline.store

    async def _read(self, request: Any, context: Any) -> None:
        try:
            self._arbitration.check_device(request.device_id)
            async with self.pipeline.lock:
                found, outcomes = self.pipeline.store.read(request.entities)
        except Failure as failure:
            await _abort(context, failure, "Read")
        for response in responses(found):
            await context.write(response)
        if any(outcome is not None for outcome in outcomes):
            await _abort_batch(context, outcomes, "Read")

    async def _set_pipeline(self, request: Any, context: Any) -> Any:
        # A client that gives up waiting must not leave a half-made switch of programs behind.
        try:
            await _to_its_end(self._set_pipeline_locked(request))
        except Failure as failure:
            await _abort(context, failure, "SetForwardingPipelineConfig")
        return p4r.SetForwardingPipelineConfigResponse()

    async def _set_pipeline_locked(self, request: Any) -> None:
        async with self.pipeline.lock:
            self._arbitration.check_primary(request)
            await self.pipeline.set(request)

    async def _get_pipeline(self, request: Any, context: Any) -> Any:
        try:
            self._arbitration.check_device(request.device_id)
            return self.pipeline.get(request.response_type)
        except Failure as failure:
            await _abort(context, failure, "GetForwardingPipelineConfig")

    async def _capabilities(self, request: Any, context: Any) -> Any:
        if request.device_id:
            try:
                self._arbitration.check_device(request.device_id)
            except Failure as failure:
                await _abort(context, failure, "Capabilities")
        return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    # --- the stream -----------------------------------------------------------------------------

    async def _stream_channel(self, requests: AsyncIterator[Any], context: Any) -> None:
        outbox = Outbox()
        client = Client(outbox.notify)
        self._outboxes[client] = outbox
        writer = asyncio.create_task(_write_all(outbox, context))
        peer = context.peer()
        log.info("%s opened a stream", peer)
        failure: Failure | None = None
        try:
            async for message in requests:
                if message.WhichOneof("update") == "arbitration":
                    self._arbitration.update(client, message.arbitration)
                else:
                    self._hub.handle_message(client, message)
        except Failure as error:
            failure = error
        except asyncio.CancelledError:
            writer.cancel()  # the client is gone
            raise
        finally:
            self._arbitration.remove(client)
            del self._outboxes[client]
            outbox.close()
            log.info("the stream of %s ended; %d messages dropped", peer, outbox.dropped)
        # A client that has sent everything still gets the answers.
        await writer
        if failure is not None:
            await _abort(context, failure, f"stream of {peer}")

    # --- events of the data plane ---------------------------------------------------------------

    def _pump_events(self, loop: asyncio.AbstractEventLoop) -> None:
        """Bring packets and digests to the event loop. Runs in a thread of its own.

        The next batch is fetched when the last one was handled, so that a flood queues up, and is
        dropped and counted, in the data plane and not in this process's memory.
        """
        while not self._stopping.is_set():
            event = self._dataplane.next_event(_EVENT_WAIT_S)
            if event is None:
                continue
            batch = [event]
            while len(batch) < _EVENT_BATCH and (event := self._dataplane.next_event(0)):
                batch.append(event)
            handled = threading.Event()
            try:
                loop.call_soon_threadsafe(self._handle_events, batch, handled)
            except RuntimeError:
                return  # the loop is closed: the switch is ending
            while not handled.wait(_EVENT_WAIT_S) and not self._stopping.is_set():
                pass

    def _handle_events(
        self, batch: list[PacketIn | Digest | PortStatus], handled: threading.Event
    ) -> None:
        try:
            for event in batch:
                if isinstance(event, PortStatus):
                    self.pipeline.port_changed(event.port, event.up)
                else:
                    self._hub.handle_event(event)
        finally:
            handled.set()


def _needs_rollback(request: Any) -> bool:
    """Whether a batch must be taken back when an update fails."""
    atomicity = request.atomicity
    if atomicity == p4r.WriteRequest.CONTINUE_ON_ERROR:
        return False
    if atomicity == p4r.WriteRequest.ROLLBACK_ON_ERROR:
        return True
    raise invalid(f"unknown atomicity {atomicity}")


async def _to_its_end(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Await work that goes on when the client gives up, and whose failure then nobody asks for."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    return await asyncio.shield(task)


def _serialize(message: Any) -> bytes:
    return bytes(message.SerializeToString())


async def _write_all(outbox: Outbox, context: Any) -> None:
    """Write a client's messages until its outbox is closed and empty."""
    while (message := await outbox.next()) is not None:
        await context.write(message)


async def _abort(context: Any, failure: Failure, what: str) -> None:
    log.info("%s: %s: %s", what, code_name(failure.code), failure.message)
    await context.abort(_STATUS_CODES[failure.code], failure.message)


async def _abort_batch(context: Any, outcomes: list[Failure | None], what: str) -> None:
    """End a Write or Read with one p4.v1.Error per update or query."""
    failed = sum(outcome is not None for outcome in outcomes)
    message = f"{what}: {failed} of {len(outcomes)} failed"
    details = batch_status(outcomes, message)
    context.set_trailing_metadata((("grpc-status-details-bin", details),))
    await context.abort(grpc.StatusCode.UNKNOWN, message)
