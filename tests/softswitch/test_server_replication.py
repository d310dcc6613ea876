# SPDX-License-Identifier: Apache-2.0
"""Multicast groups and clone sessions over gRPC."""

from __future__ import annotations

from typing import Any

import pytest
from finsy.proto import p4r

from softswitch.dataplane import Dataplane
from softswitch.values import DataplaneOptions
from tests.softswitch.p4rt import (
    DELETE,
    INSERT,
    MODIFY,
    RawClient,
    clone,
    codes,
    entity,
    multicast,
    only_error,
    primary,
    read_error,
    update,
)

INVALID = "INVALID_ARGUMENT"


@pytest.mark.parametrize("make", [lambda n: multicast(n, (b"\x01", 5)), lambda n: clone(n, 1)])
def test_life_of_groups_and_sessions(client: RawClient, make: Any) -> None:
    def read(query: Any) -> list[Any]:
        found = client.read(entity(packet_replication_engine_entry=query))
        return [e.packet_replication_engine_entry for e in found]

    def change(kind: int, message: Any) -> Any:
        return update(kind, packet_replication_engine_entry=message)

    client.write(change(INSERT, make(1)), change(INSERT, make(2)))
    assert read(make(0)) == [make(1), make(2)]
    assert read(make(2)) == [make(2)]
    assert read_error(client, entity(packet_replication_engine_entry=make(3))) == "NOT_FOUND"
    client.write(change(MODIFY, make(1)))
    outcomes = client.outcomes(
        change(INSERT, make(1)),
        change(MODIFY, make(3)),
        change(DELETE, make(3)),
        change(INSERT, make(0)),
        change(INSERT, make(1 << 16)),
        change(INSERT, p4r.PacketReplicationEngineEntry()),
    )
    assert codes(outcomes) == [
        "ALREADY_EXISTS",
        "NOT_FOUND",
        "NOT_FOUND",
        INVALID,
        "OUT_OF_RANGE",
        INVALID,
    ]
    outcomes = client.outcomes(
        change(DELETE, make(1)),
        change(INSERT, make(5)),
        change(INSERT, make(5)),
        atomicity=p4r.WriteRequest.ROLLBACK_ON_ERROR,
    )
    assert codes(outcomes)[2] == "ALREADY_EXISTS"
    assert sorted(map(str, read(make(0)))) == sorted(map(str, [make(1), make(2)]))
    client.write(change(DELETE, make(1)), change(DELETE, make(2)))
    assert read(make(0)) == []


def test_replicas(client: RawClient) -> None:
    def code(message: Any) -> str:
        return only_error(client, update(INSERT, packet_replication_engine_entry=message))[0]

    assert code(multicast(1, (b"\x01", 5), (b"\x00\x01", 5))) == INVALID
    assert code(multicast(1, (b"\x02\x00", 5))) == INVALID
    assert code(multicast(1, (b"", 5))) == INVALID
    assert code(multicast(1, (b"\x01", 1 << 16))) == INVALID
    without_port = multicast(1, (b"\x01", 5))
    without_port.multicast_group_entry.replicas[0].ClearField("port")
    assert code(without_port) == INVALID
    assert code(clone(1, 1, packet_length_bytes=-1)) == INVALID

    old = multicast(1, metadata=b"note")
    old.multicast_group_entry.replicas.add(egress_port=3, instance=1)
    old.multicast_group_entry.replicas.add(port=b"\x00\x04", instance=1)
    client.write(update(INSERT, packet_replication_engine_entry=old))
    (found,) = client.read(entity(packet_replication_engine_entry=multicast(1)))
    old.multicast_group_entry.replicas[1].port = b"\x04"
    assert found.packet_replication_engine_entry == old


def test_class_of_service() -> None:
    """It is the egress queue of a session's copies, so there must be such a queue."""
    dataplane = Dataplane(DataplaneOptions(priority_queues=2))
    try:
        with primary(dataplane) as client:
            session = update(
                INSERT, packet_replication_engine_entry=clone(5, 1, class_of_service=1)
            )
            client.write(session)
            other = update(INSERT, packet_replication_engine_entry=clone(6, 1, class_of_service=2))
            code, message = only_error(client, other)
            assert code == INVALID
            assert "priority 2; there are 2 queues a port" in message
            (found,) = client.read(entity(packet_replication_engine_entry=clone(5)))
            assert found == session.entity
    finally:
        dataplane.close()
