# SPDX-License-Identifier: Apache-2.0
"""DATAPLANE_ATOMIC: no packet sees a part of a batch, and one that fails leaves nothing behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from finsy.proto import p4r

from softswitch.dataplane import Dataplane
from softswitch.errors import DataplaneError
from softswitch.values import DataplaneOptions, QueueSetting
from tests.softswitch.p4rt import (
    CPU_PORT,
    DELETE,
    MODIFY,
    RawClient,
    Stream,
    codes,
    entity,
    load_config,
    serving,
    set_election_id,
    update,
)

ATOMIC = p4r.WriteRequest.DATAPLANE_ATOMIC
FLIPS = 120
TURNS = 3


@contextmanager
def running(**options: Any) -> Iterator[tuple[Dataplane, RawClient, Stream]]:
    """A switch without interfaces whose thread forwards, with the program `atomic`."""
    dataplane = Dataplane(DataplaneOptions(cpu_port=CPU_PORT, **options))
    try:
        dataplane.start()
        with serving(dataplane) as address:
            client = RawClient(address, load_config("atomic"))
            stream = client.stream()
            try:
                stream.arbitrate(1)
                client.set_pipeline()
                yield dataplane, client, stream
            finally:
                stream.cancel()
                client.close()
    finally:
        dataplane.close()


def packet(turns: int = 0) -> bytes:
    return bytes((turns,)) + bytes(8)


def put(client: RawClient, table: str, value: int, kind: int | None = None) -> Any:
    """INSERT, or `kind`, of the entry that writes `value` into packets."""
    change = client.insert(table, {"key": 0}, f"set_{table}", value)
    if kind is not None:
        change.type = kind
    return change


def test_packets_see_a_batch_as_a_whole() -> None:
    with running() as (dataplane, client, stream):
        client.write(put(client, "first", 1), put(client, "second", 1))
        stop = threading.Event()

        def send() -> None:
            while not stop.is_set():
                try:
                    dataplane.packet_out(packet(TURNS))
                except DataplaneError:
                    time.sleep(0.001)  # too many wait

        sender = threading.Thread(target=send)
        sender.start()
        try:
            for value in range(2, FLIPS):
                client.write(
                    put(client, "first", value, MODIFY),
                    put(client, "second", value, MODIFY),
                    atomicity=ATOMIC,
                )
        finally:
            stop.set()
            sender.join()
        seen: set[bytes] = set()
        while len(seen) < FLIPS // 4 or not stream.responses.empty():
            payload = stream.receive("packet").payload
            first, second = payload[1:5], payload[5:9]
            assert first == second
            seen.add(first)


def test_a_failing_batch_changes_nothing() -> None:
    with running() as (dataplane, client, stream):
        client.write(put(client, "first", 1), put(client, "second", 1))
        tables = [entity(table_entry=client.entry(name)) for name in ("first", "second")]
        before = client.read(*tables)
        outcomes = client.outcomes(
            put(client, "first", 2, MODIFY),
            put(client, "second", 2, DELETE),
            put(client, "first", 3),
            put(client, "second", 3),
            atomicity=ATOMIC,
        )
        assert codes(outcomes) == ["ABORTED", "ABORTED", "ALREADY_EXISTS", "ABORTED"]
        assert client.read(*tables) == before
        dataplane.packet_out(packet())
        assert stream.receive("packet").payload == packet()[:1] + (b"\0\0\0\1" * 2)


def test_packets_that_wait_too_long_are_an_error() -> None:
    """A queue that sends a packet a second is not emptied in time: the write says so."""
    with running(queues=(QueueSetting(CPU_PORT, rate=1),)) as (dataplane, client, stream):
        client.write(put(client, "first", 1), put(client, "second", 1))
        for _ in range(5):
            dataplane.packet_out(packet())
        stream.receive("packet")
        with pytest.raises(grpc.RpcError) as caught:
            client.write(put(client, "first", 2, MODIFY), atomicity=ATOMIC)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert "packets still wait in egress queues" in caught.value.details()
        # It goes on forwarding, with what was there before.
        assert stream.receive("packet").payload[1:] == b"\0\0\0\1" * 2
        client.write(put(client, "first", 2, MODIFY))


def test_a_client_that_gives_up_leaves_no_frozen_switch() -> None:
    with running() as (dataplane, client, stream):
        client.write(put(client, "first", 1), put(client, "second", 1))
        request = p4r.WriteRequest(device_id=7, atomicity=ATOMIC)
        request.updates.extend(put(client, "first", value, MODIFY) for value in range(2000))
        set_election_id(request, 1)
        for delay in range(8):
            call = client.stub.Write.future(request)
            time.sleep(delay / 1000)
            call.cancel()
        client.write(put(client, "first", 5, MODIFY), put(client, "second", 5, MODIFY))
        dataplane.packet_out(packet())
        assert stream.receive("packet").payload[1:] == b"\0\0\0\5" * 2


def test_unknown_atomicity_and_a_switch_without_packets() -> None:
    with running() as (_, client, _):
        client.write(put(client, "first", 1), atomicity=ATOMIC)
        with pytest.raises(grpc.RpcError) as caught:
            client.write(update(DELETE), atomicity=9)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
