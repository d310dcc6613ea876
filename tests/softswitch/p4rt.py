# SPDX-License-Identifier: Apache-2.0
"""A P4Runtime server under test in this process, and a client made of raw stubs.

`FakeDataplane` keeps entries like the real one but forwards nothing; packets and digests "from the
data plane" are what a test puts into its queue. What concerns entities is tested with the real one
too, without ports: `make_dataplane`.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4i, p4r, p4r_grpc, rpc_status
from google.protobuf import text_format

from softswitch.bmread import read_program
from softswitch.boundary import DataplaneLike
from softswitch.dataplane import Dataplane
from softswitch.description import describe
from softswitch.errors import DataplaneError, NotFound
from softswitch.server import P4RuntimeServer
from softswitch.shadow import ShadowPipeline
from softswitch.values import DataplaneOptions, Digest, PacketIn, PortStatus

DATA = Path(__file__).parent / "data"
DEVICE_ID = 7
TIMEOUT_S = 10.0

INSERT: int = p4r.Update.INSERT
MODIFY: int = p4r.Update.MODIFY
DELETE: int = p4r.Update.DELETE


def load_config(name: str = "entities", cookie: int | None = None, directory: Path = DATA) -> Any:
    """The ForwardingPipelineConfig of a program compiled into `directory`."""
    config = p4r.ForwardingPipelineConfig()
    text_format.Parse((directory / f"{name}.p4info.txtpb").read_text(), config.p4info)
    config.p4_device_config = (directory / f"{name}.json").read_bytes()
    if cookie is not None:
        config.cookie.cookie = cookie
    return config


class FakeDataplane(ShadowPipeline):
    """A data plane that remembers what it was told. `refuse` makes the next load fail."""

    def __init__(self) -> None:
        self.tables = {}
        self.profiles = {}
        self.counters = {}
        self.registers = {}
        self.meters = {}
        self.value_sets = {}
        self.ports: dict[int, bool] = {}
        self.port_is_up = self.is_up
        self.loads = 0
        self.refuse: DataplaneError | None = None
        self.loading: threading.Event | None = None
        self.sent: queue.Queue[bytes] = queue.Queue()
        self.events: queue.Queue[PacketIn | Digest | PortStatus] = queue.Queue()

    def load(self, bmv2_json: bytes) -> None:
        if self.loading is not None:
            self.loading.wait(TIMEOUT_S)
        if self.refuse is not None:
            error, self.refuse = self.refuse, None
            raise error
        ShadowPipeline.__init__(self, describe(read_program(bmv2_json)), self.is_up)
        self.loads += 1

    def is_up(self, port: int) -> bool:
        if port not in self.ports:
            raise NotFound(f"port {port}")
        return self.ports[port]

    def set_port(self, port: int, up: bool) -> None:
        """A port that goes up or down, and an event that says so."""
        self.ports[port] = up
        self.events.put(PortStatus(port, up))

    def packet_out(self, data: bytes) -> None:
        self.sent.put(data)

    def next_event(self, timeout_s: float) -> PacketIn | Digest | PortStatus | None:
        try:
            # Short, so that a server under test ends at once.
            return (
                self.events.get(timeout=min(timeout_s, 0.02))
                if timeout_s
                else (self.events.get_nowait())
            )
        except queue.Empty:
            return None


DATAPLANES = ("fake", "real")
CPU_PORT = 510


@contextmanager
def make_dataplane(kind: str) -> Iterator[DataplaneLike]:
    """A data plane of one of `DATAPLANES`, closed at the end."""
    if kind == "fake":
        yield FakeDataplane()
        return
    dataplane = Dataplane(DataplaneOptions(cpu_port=CPU_PORT))
    try:
        yield dataplane
    finally:
        dataplane.close()


@contextmanager
def serving(dataplane: DataplaneLike, device_id: int = DEVICE_ID) -> Iterator[str]:
    """A server in a thread; gives its address."""
    started: queue.Queue[str | BaseException] = queue.Queue()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        server = P4RuntimeServer(dataplane, device_id)
        try:
            started.put(f"127.0.0.1:{await server.start('127.0.0.1:0')}")
            await stop.wait()
        finally:
            await server.stop()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        except BaseException as error:  # noqa: BLE001  (handed to the test's thread)
            started.put(error)
        finally:
            loop.close()

    thread = threading.Thread(target=run, name="server-under-test")
    thread.start()
    try:
        address = started.get(timeout=TIMEOUT_S)
        if isinstance(address, BaseException):
            raise address
        yield address
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        thread.join(TIMEOUT_S)
        assert not thread.is_alive(), "the server did not stop"


class Stream:
    """One open StreamChannel."""

    def __init__(self, stub: Any) -> None:
        self._requests: queue.Queue[Any] = queue.Queue()
        self.call = stub.StreamChannel(iter(self._requests.get, None))
        self.responses: queue.Queue[Any] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            for response in self.call:
                self.responses.put(response)
        except grpc.RpcError as error:
            self.responses.put(error)
        else:
            self.responses.put(None)

    def send(self, **update: Any) -> None:
        """Send a StreamMessageRequest: arbitration=, packet=, digest_ack= or other=."""
        self.send_message(p4r.StreamMessageRequest(**update))

    def send_message(self, message: Any) -> None:
        """Send a StreamMessageRequest as it is."""
        self._requests.put(message)

    def arbitrate(
        self, election_id: int | None, role: str | None = None, device_id: int = DEVICE_ID
    ) -> Any:
        """Send a MasterArbitrationUpdate and give the answer."""
        update = p4r.MasterArbitrationUpdate(device_id=device_id)
        if election_id is not None:
            set_election_id(update, election_id)
        if role is not None:
            update.role.name = role
        self.send(arbitration=update)
        return self.receive("arbitration")

    def receive(self, kind: str) -> Any:
        """The next message, which must be of this kind. Raises the RPC's error at its end."""
        response = self.responses.get(timeout=TIMEOUT_S)
        if isinstance(response, grpc.RpcError):
            raise response
        assert response is not None, "the stream ended"
        assert response.WhichOneof("update") == kind, response
        return getattr(response, kind)

    def close(self) -> None:
        """Send nothing more; the server then ends the stream."""
        self._requests.put(None)

    def cancel(self) -> None:
        """Break the stream off, as a client that dies."""
        self._requests.put(None)
        self.call.cancel()


def set_election_id(message: Any, election_id: int) -> None:
    """Set the 128-bit election id of a message."""
    message.election_id.high = election_id >> 64
    message.election_id.low = election_id & (1 << 64) - 1


class RawClient:
    """Unary calls and streams of one controller; `info` finds ids by name."""

    def __init__(self, address: str, config: Any | None = None, election_id: int = 1) -> None:
        self.channel = grpc.insecure_channel(
            address,
            options=(("grpc.max_metadata_size", 4 << 20), ("grpc.use_local_subchannel_pool", 1)),
        )
        self.stub = p4r_grpc.P4RuntimeStub(self.channel)
        self.election_id = election_id
        self.config = config or load_config()
        self.info: Any = self.config.p4info

    def close(self) -> None:
        self.channel.close()

    def stream(self) -> Stream:
        return Stream(self.stub)

    def set_pipeline(self, action: str = "VERIFY_AND_COMMIT", config: Any = ...) -> None:
        """SetForwardingPipelineConfig with the client's own config unless another is given."""
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=DEVICE_ID,
            action=p4r.SetForwardingPipelineConfigRequest.Action.Value(action),
            config=self.config if config is ... else config,
        )
        set_election_id(request, self.election_id)
        self.stub.SetForwardingPipelineConfig(request, timeout=TIMEOUT_S)

    def write(self, *updates: Any, atomicity: int = 0, role: str = "") -> None:
        request = p4r.WriteRequest(
            device_id=DEVICE_ID, updates=updates, atomicity=atomicity, role=role
        )
        set_election_id(request, self.election_id)
        self.stub.Write(request, timeout=TIMEOUT_S)

    def outcomes(self, *updates: Any, atomicity: int = 0) -> list[tuple[str, str]]:
        """(code, message) of each update of a write that fails."""
        try:
            self.write(*updates, atomicity=atomicity)
        except grpc.RpcError as error:
            return details(error, len(updates))
        raise AssertionError("the write succeeded")

    def read(self, *entities: Any) -> list[Any]:
        """The entities that a read gives."""
        request = p4r.ReadRequest(device_id=DEVICE_ID, entities=entities)
        return [e for r in self.stub.Read(request, timeout=TIMEOUT_S) for e in r.entities]

    # --- messages by name ---------------------------------------------------------------------

    def _object(self, kind: str, name: str) -> Any:
        return next(o for o in getattr(self.info, kind) if o.preamble.alias == name)

    def id(self, kind: str, name: str) -> int:
        """The P4Info id of an object, e.g. id("tables", "acl")."""
        return int(self._object(kind, name).preamble.id)

    def action(self, name: str, *params: int) -> Any:
        """A p4.v1.Action with canonical parameters."""
        action = self._object("actions", name)
        return p4r.Action(
            action_id=action.preamble.id,
            params=[
                p4r.Action.Param(param_id=p.id, value=byte_string(v))
                for p, v in zip(action.params, params, strict=True)
            ],
        )

    def entry(self, table: str, match: Mapping[str, Any] | None = None, **fields: Any) -> Any:
        """A TableEntry. Match values: int (exact or optional), (value, mask or prefix or high)."""
        info = self._object("tables", table)
        entry = p4r.TableEntry(table_id=info.preamble.id, **fields)
        for field in info.match_fields:
            if field.name in (match or {}):
                entry.match.append(field_match(field, (match or {})[field.name]))
        return entry

    def insert(self, table: str, match: Mapping[str, Any], *action: Any, **fields: Any) -> Any:
        """An INSERT of an entry with a direct action, e.g. insert("acl", {...}, "drop")."""
        entry = self.entry(table, match, **fields)
        entry.action.action.CopyFrom(self.action(*action))
        return update(INSERT, table_entry=entry)


def field_match(field: Any, value: Any) -> Any:
    """A p4.v1.FieldMatch for a P4Info match field."""
    message = p4r.FieldMatch(field_id=field.id)
    kind = p4i.MatchField.MatchType.Name(field.match_type)
    first, second = value if isinstance(value, tuple) else (value, 0)
    if kind == "EXACT":
        message.exact.value = byte_string(first)
    elif kind == "OPTIONAL":
        message.optional.value = byte_string(first)
    elif kind == "LPM":
        message.lpm.value = byte_string(first)
        message.lpm.prefix_len = second
    elif kind == "TERNARY":
        message.ternary.value = byte_string(first)
        message.ternary.mask = byte_string(second)
    else:
        message.range.low = byte_string(first)
        message.range.high = byte_string(second)
    return message


def byte_string(value: int | bytes) -> bytes:
    """Bytes as they are; an integer as P4Runtime's canonical byte string."""
    if isinstance(value, bytes):
        return value
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def update(kind: int, **entity: Any) -> Any:
    """A p4.v1.Update of one entity."""
    return p4r.Update(type=kind, entity=p4r.Entity(**entity))


def entity(**fields: Any) -> Any:
    """A p4.v1.Entity, to read."""
    return p4r.Entity(**fields)


def details(error: grpc.RpcError, count: int) -> list[tuple[str, str]]:
    """The p4.v1.Error list of a failed batch, which must have `count` elements."""
    assert error.code() == grpc.StatusCode.UNKNOWN, error
    metadata = dict(error.trailing_metadata())
    status = rpc_status.Status.FromString(metadata["grpc-status-details-bin"])
    assert status.code == grpc.StatusCode.UNKNOWN.value[0]
    assert status.message == error.details()
    assert len(status.details) == count
    result = []
    for item in status.details:
        one = p4r.Error()
        assert item.Unpack(one)
        code = next(c for c in grpc.StatusCode if c.value[0] == one.canonical_code)
        result.append((code.name, one.message))
    return result


def codes(outcomes: Iterable[tuple[str, str]]) -> list[str]:
    """Only the codes of `RawClient.outcomes`."""
    return [code for code, _ in outcomes]


def only_error(client: RawClient, change: Any) -> tuple[str, str]:
    """(code, message) of a single update that fails."""
    ((code, message),) = client.outcomes(change)
    return code, message


def read_error(client: RawClient, query: Any) -> str:
    """The code of a single query that fails."""
    try:
        client.read(query)
    except grpc.RpcError as error:
        return details(error, 1)[0][0]
    raise AssertionError("the read succeeded")


def multicast(number: int, *replicas: tuple[bytes, int], **fields: Any) -> Any:
    """A multicast group of (port, instance)."""
    return p4r.PacketReplicationEngineEntry(
        multicast_group_entry=p4r.MulticastGroupEntry(
            multicast_group_id=number,
            replicas=[p4r.Replica(port=p, instance=i) for p, i in replicas],
            **fields,
        )
    )


def clone(number: int, *ports: int, **fields: Any) -> Any:
    """A clone session."""
    return p4r.PacketReplicationEngineEntry(
        clone_session_entry=p4r.CloneSessionEntry(
            session_id=number,
            replicas=[p4r.Replica(port=p.to_bytes(2, "big").lstrip(b"\0")) for p in ports],
            **fields,
        )
    )


@contextmanager
def primary(dataplane: DataplaneLike | None = None, config: Any = None) -> Iterator[RawClient]:
    """A server with the program `entities` pushed by a client that is the primary."""
    with serving(dataplane or FakeDataplane()) as address:
        client = RawClient(address, config)
        stream = client.stream()
        try:
            assert stream.arbitrate(1).status.code == 0
            client.set_pipeline()
            yield client
        finally:
            stream.cancel()
            client.close()
