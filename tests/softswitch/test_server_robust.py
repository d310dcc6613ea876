# SPDX-License-Identifier: Apache-2.0
"""Clients that misbehave: none of them may harm the switch or another client."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from finsy.proto import p4r

from softswitch.dataplane import Dataplane
from softswitch.values import DataplaneOptions, PacketIn
from tests.softswitch.p4rt import (
    DELETE,
    DEVICE_ID,
    FakeDataplane,
    RawClient,
    entity,
    load_config,
    primary,
    serving,
    set_election_id,
    update,
)

FIRST_OF_TWO_KEYS = {"port": 1, "ether_type": 0}
ROOT = Path(__file__).resolve().parents[2]


def insert_request(client: RawClient, first: int, count: int) -> Any:
    updates = [
        client.insert("exact_table", {"dst_mac": first + i}, "forward", 1, first + i)
        for i in range(count)
    ]
    request = p4r.WriteRequest(device_id=DEVICE_ID, updates=updates)
    set_election_id(request, client.election_id)
    return request


def entries(client: RawClient) -> int:
    return len(client.read(entity(table_entry=client.entry("exact_table"))))


def test_client_that_goes_away_during_a_write_leaves_whole_batches() -> None:
    with primary() as client:
        address = client.channel._channel.target().decode().removeprefix("dns:///")
        for delay in range(10):
            client.set_pipeline()
            dying = RawClient(address)
            call = dying.stub.Write.future(insert_request(client, 1, 1000))
            threading.Event().wait(delay / 1000)
            call.cancel()
            dying.close()
            # A write that follows on another connection comes after the cancelled one.
            client.write()
            assert entries(client) in (0, 1000)


def test_garbage_on_the_port() -> None:
    with primary() as client:
        address = client.channel._channel.target().decode().removeprefix("dns:///")
        host, _, port = address.rpartition(":")
        rng = random.Random(1)
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        for i in range(50):
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                noise = rng.randbytes(rng.randrange(1, 5000))
                connection.sendall((preface if i % 2 else b"") + noise)
        # Messages that are no protobuf, on every method.
        for method in (
            "Write",
            "Read",
            "SetForwardingPipelineConfig",
            "GetForwardingPipelineConfig",
            "Capabilities",
        ):
            call = client.channel.unary_unary(f"/p4.v1.P4Runtime/{method}")
            with pytest.raises(grpc.RpcError):
                call(b"\xff" * 20, timeout=5)
        stream = client.channel.stream_stream("/p4.v1.P4Runtime/StreamChannel")
        with pytest.raises(grpc.RpcError):
            list(stream(iter([b"\xff" * 20]), timeout=5))
        client.write(client.insert("exact_table", {"dst_mac": 1}, "drop"))
        assert entries(client) == 1


def test_mutated_requests() -> None:
    """Valid requests with random bytes changed are answered, whatever they say."""
    rng = random.Random(2)
    with primary() as client:
        good = insert_request(client, 1, 5).SerializeToString()
        read = p4r.ReadRequest(
            device_id=DEVICE_ID, entities=[entity(table_entry=client.entry("acl"))]
        ).SerializeToString()
        write = client.channel.unary_unary("/p4.v1.P4Runtime/Write")
        reader = client.channel.unary_stream("/p4.v1.P4Runtime/Read")
        for _ in range(300):
            for call, message in ((write, good), (reader, read)):
                mutated = bytearray(message)
                for _ in range(rng.randrange(1, 4)):
                    mutated[rng.randrange(len(mutated))] = rng.randrange(256)
                try:
                    result = call(bytes(mutated), timeout=5)
                    if call is reader:
                        list(result)
                except grpc.RpcError as error:
                    # "Unexpected <class ...>" is what gRPC says when a handler has a bug.
                    known = "Unexpected" not in error.details() or "DecodeError" in error.details()
                    assert known, error.details()
        client.set_pipeline()
        client.write(client.insert("exact_table", {"dst_mac": 1}, "drop"))
        assert entries(client) == 1


def test_a_hundred_clients_at_once() -> None:
    dataplane = FakeDataplane()
    with primary(dataplane) as client:
        address = client.channel._channel.target().decode().removeprefix("dns:///")

        def work(number: int) -> int:
            one = RawClient(address)
            try:
                stream = one.stream()
                # Election id 1 is the fixture's; the others are roles of their own.
                assert stream.arbitrate(1, role=f"role{number}").status.code == 0
                for i in range(5):
                    updates = [
                        one.insert(
                            "exact_table", {"dst_mac": number << 16 | i}, "drop", metadata=b"x"
                        )
                    ]
                    one.write(*updates, role=f"role{number}")
                    one.read(entity(table_entry=one.entry("exact_table")))
                dataplane.events.put(PacketIn(b"\x00\x80"))
                stream.receive("packet")
                return 5
            finally:
                one.close()

        with ThreadPoolExecutor(100) as pool:
            assert sum(pool.map(work, range(1, 101))) == 500
        assert entries(client) == 500


def test_many_streams_open_and_break() -> None:
    with primary() as client:
        streams = [client.stream() for _ in range(100)]
        for stream in streams:
            stream.send(arbitration=p4r.MasterArbitrationUpdate(device_id=DEVICE_ID))
        for stream in streams:
            stream.receive("arbitration")
        for stream in streams:
            stream.cancel()
        client.write()


@pytest.mark.parametrize("atomicity", [0, 1, 2])
def test_a_full_table(atomicity: int) -> None:
    """What fits is inserted, or nothing when the batch is one; the reason is said."""
    dataplane = Dataplane(DataplaneOptions())
    try:
        with primary(dataplane) as client:
            request = [
                client.insert("two_keys", {"port": 1, "ether_type": n}, "drop") for n in range(70)
            ]
            outcomes = client.outcomes(*request, atomicity=atomicity)
            query = entity(table_entry=client.entry("two_keys"))
            assert len(client.read(query)) == (0 if atomicity else 64)
            failed = [outcome for outcome in outcomes if outcome[0] == "RESOURCE_EXHAUSTED"]
            assert len(failed) == (1 if atomicity else 6)
            assert "no room is left" in failed[0][1]
            if atomicity:
                client.write(*request[:64], atomicity=atomicity)
            client.write(update(DELETE, table_entry=client.entry("two_keys", FIRST_OF_TWO_KEYS)))
            client.write(request[65], atomicity=atomicity)
            assert len(client.read(query)) == 64
    finally:
        dataplane.close()


def test_two_controllers_push_different_programs() -> None:
    with serving(FakeDataplane()) as address:
        first, second = RawClient(address, election_id=1), RawClient(address, election_id=2)
        one, two = first.stream(), second.stream()
        one.arbitrate(1)
        first.set_pipeline(config=load_config(cookie=1))
        first.write(first.insert("exact_table", {"dst_mac": 1}, "drop"))
        two.arbitrate(2)
        with pytest.raises(grpc.RpcError) as caught:
            first.set_pipeline(config=load_config(cookie=3))
        assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED
        with pytest.raises(grpc.RpcError) as caught:
            first.write()
        assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED
        assert entries(first) == 1, "a backup may read"
        second.set_pipeline(config=load_config(cookie=2))
        assert entries(first) == 0
        first.close()
        second.close()


def test_taken_port_is_an_error() -> None:
    with serving(FakeDataplane()) as address, socket.socket() as probe:
        probe.settimeout(5)
        probe.connect(("127.0.0.1", int(address.rpartition(":")[2])))
        code = (
            "import asyncio, sys\n"
            "from softswitch.server import P4RuntimeServer\n"
            "from tests.softswitch.p4rt import FakeDataplane\n"
            "try:\n"
            f"    asyncio.run(P4RuntimeServer(FakeDataplane(), 1).start('{address}'))\n"
            "except OSError as error:\n"
            "    sys.exit(f'refused: {error}')\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "GRPC_VERBOSITY": "NONE"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == f"refused: cannot listen on {address}: is the port taken?\n"
