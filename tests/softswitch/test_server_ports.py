# SPDX-License-Identifier: Apache-2.0
"""Ports that go down: members that watch them are passed over, replicas move to their backups.

The data plane is the real one without interfaces; the tests say which ports are up.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from finsy.proto import p4r

from softswitch.dataplane import Dataplane
from softswitch.errors import NotFound
from softswitch.values import DataplaneOptions, Digest, PacketIn, PortStatus
from tests.softswitch.p4rt import (
    CPU_PORT,
    DELETE,
    INSERT,
    MODIFY,
    RawClient,
    codes,
    entity,
    load_config,
    multicast,
    only_error,
    primary,
    update,
)

INVALID = "INVALID_ARGUMENT"
PORTS = (1, 2, 3, 4)
DEADLINE_S = 5.0
ETHER_TYPE = 1


class Ported(Dataplane):
    """A data plane whose ports are up when a test says so."""

    def __init__(self, **options: Any) -> None:
        super().__init__(DataplaneOptions(cpu_port=CPU_PORT, **options))
        self.ports = dict.fromkeys(PORTS, True)
        self._told: queue.Queue[PortStatus] = queue.Queue()

    def port_is_up(self, number: int) -> bool:
        if number not in self.ports:
            raise NotFound(f"port {number}")
        return self.ports[number]

    def set_port(self, number: int, up: bool) -> None:
        self.ports[number] = up
        self._told.put(PortStatus(number, up))

    def next_event(self, timeout_s: float) -> PacketIn | Digest | PortStatus | None:
        try:
            return self._told.get(timeout=min(timeout_s, 0.01)) if timeout_s else None
        except queue.Empty:
            return super().next_event(0)


@contextmanager
def switch(config: Any = None, **options: Any) -> Iterator[tuple[Ported, RawClient]]:
    dataplane = Ported(**options)
    try:
        with primary(dataplane, config) as client:
            yield dataplane, client
    finally:
        dataplane.close()


def packet(number: int) -> bytes:
    source = (number * 0x9E3779B97F4A & (1 << 48) - 1).to_bytes(6, "big")
    return number.to_bytes(6, "big") + source + ETHER_TYPE.to_bytes(2, "big")


def leaves_at(dataplane: Dataplane, count: int = 64) -> list[int]:
    """The port at which each of some packets leaves; 0 for those that are dropped."""
    left = (dataplane.process(9, packet(number)) for number in range(count))
    return [packets[0][0] if packets else 0 for packets in left]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def write_group(client: RawClient, watch: str) -> None:
    """Members 1 to 3, each to the port of its number and watching it; 3 with weight 2."""
    profile = client.id("action_profiles", "selector")
    group = p4r.ActionProfileGroup(action_profile_id=profile, group_id=1)
    for number in (1, 2, 3):
        made = p4r.ActionProfileMember(action_profile_id=profile, member_id=number)
        made.action.CopyFrom(client.action("forward", number, 1))
        client.write(update(INSERT, action_profile_member=made))
        member = group.members.add(member_id=number, weight=2 if number == 3 else 1)
        set_watch(member, watch, number)
    client.write(update(INSERT, action_profile_group=group))
    entry = client.entry("ecmp", {"ether_type": ETHER_TYPE})
    entry.action.action_profile_group_id = 1
    client.write(update(INSERT, table_entry=entry))


def action_set(client: RawClient, watch: str, **fields: Any) -> Any:
    entry = client.entry("ecmp", {"ether_type": ETHER_TYPE})
    chosen = entry.action.action_profile_action_set
    for name, value in fields.items():
        setattr(chosen, name, value)
    for number in (1, 2, 3):
        one = chosen.action_profile_actions.add(weight=2 if number == 3 else 1)
        one.action.CopyFrom(client.action("forward", number, 1))
        set_watch(one, watch, number)
    return entry


def set_watch(message: Any, watch: str, number: int) -> None:
    if watch == "watch_port":
        message.watch_port = bytes((number,))
    elif watch == "watch":
        message.watch = number


@pytest.mark.parametrize("watch", ["watch_port", "watch"])
@pytest.mark.parametrize("one_shot", [False, True])
def test_members_of_ports_that_are_down_are_passed_over(watch: str, one_shot: bool) -> None:
    with switch() as (dataplane, client):
        if one_shot:
            client.write(update(INSERT, table_entry=action_set(client, watch)))
        else:
            write_group(client, watch)
        group = p4r.ActionProfileGroup(action_profile_id=client.id("action_profiles", "selector"))
        reads = [entity(action_profile_group=group), entity(table_entry=client.entry("ecmp"))]
        before, all_up = client.read(*reads), leaves_at(dataplane)
        assert set(all_up) == {1, 2, 3}

        dataplane.set_port(2, up=False)
        wait_for(lambda: 2 not in leaves_at(dataplane))
        assert set(leaves_at(dataplane)) == {1, 3}
        assert client.read(*reads) == before, "reads show what was written"
        dataplane.set_port(1, up=False)
        wait_for(lambda: set(leaves_at(dataplane)) == {3})
        dataplane.set_port(3, up=False)
        wait_for(lambda: set(leaves_at(dataplane)) == {0})
        for number in (1, 2, 3):
            dataplane.set_port(number, up=True)
        wait_for(lambda: leaves_at(dataplane) == all_up)


def test_a_group_written_while_a_port_is_down() -> None:
    with switch() as (dataplane, client):
        dataplane.ports[3] = False
        write_group(client, "watch_port")
        assert set(leaves_at(dataplane)) == {1, 2}
        profile = client.id("action_profiles", "selector")
        group = p4r.ActionProfileGroup(action_profile_id=profile, group_id=1)
        group.members.add(member_id=3, weight=1, watch_port=b"\0\1")
        client.write(update(MODIFY, action_profile_group=group))
        assert set(leaves_at(dataplane)) == {3}, "it watches port 1 now"
        (found,) = client.read(entity(action_profile_group=group))
        assert found.action_profile_group.members[0].watch_port == b"\1"
        del dataplane.ports[1]  # taken away
        dataplane.set_port(1, up=False)
        del dataplane.ports[1]
        wait_for(lambda: set(leaves_at(dataplane)) == {0})


@pytest.mark.parametrize("one_shot", [False, True])
def test_ports_that_cannot_be_watched(one_shot: bool) -> None:
    with switch() as (_, client):
        profile = client.id("action_profiles", "selector")
        made = p4r.ActionProfileMember(action_profile_id=profile, member_id=1)
        made.action.CopyFrom(client.action("drop"))
        if not one_shot:
            client.write(update(INSERT, action_profile_member=made))
        for field, value in (("watch_port", b"\x07"), ("watch_port", b"\x02\0"), ("watch", -1)):
            if one_shot:
                entry = action_set(client, "")
                setattr(
                    entry.action.action_profile_action_set.action_profile_actions[0], field, value
                )
                change = update(INSERT, table_entry=entry)
            else:
                group = p4r.ActionProfileGroup(action_profile_id=profile, group_id=1)
                setattr(group.members.add(member_id=1, weight=1), field, value)
                change = update(INSERT, action_profile_group=group)
            code, message = only_error(client, change)
            assert code == INVALID
            assert "watch" in message


def test_selection_at_random() -> None:
    """Per packet, whatever the hash says; deleting the entry and inserting it again works too."""
    with switch(seed=1) as (dataplane, client):
        random = p4r.ActionProfileActionSet.RANDOM
        entry = action_set(client, "watch_port", action_selection_mode=random)
        client.write(update(INSERT, table_entry=entry))
        same = [dataplane.process(9, packet(1))[0][0] for _ in range(400)]
        assert set(same) == {1, 2, 3}
        assert 140 < same.count(3) < 260, "weight 2 of 4"
        dataplane.set_port(3, up=False)
        wait_for(lambda: dataplane.process(9, packet(1))[0][0] != 3)
        assert 3 not in [dataplane.process(9, packet(1))[0][0] for _ in range(50)]
        client.write(update(DELETE, table_entry=entry))
        hashed = action_set(
            client, "", action_selection_mode=p4r.ActionProfileActionSet.HASH,
            size_semantics=p4r.ActionProfileActionSet.SUM_OF_MEMBERS,
        )  # fmt: skip
        client.write(update(INSERT, table_entry=hashed))
        assert len({dataplane.process(9, packet(1))[0][0] for _ in range(50)}) == 1


def test_size_semantics_of_an_action_set() -> None:
    """The selector's max_group_size is of weights by itself, of members where a set says so."""
    config = load_config()
    selector = next(p for p in config.p4info.action_profiles if p.with_selector)
    selector.max_group_size = 10
    with switch(config) as (_, client):
        entry = action_set(client, "")
        chosen = entry.action.action_profile_action_set
        chosen.action_profile_actions[0].weight = 9
        assert only_error(client, update(INSERT, table_entry=entry))[0] == INVALID
        chosen.size_semantics = p4r.ActionProfileActionSet.SUM_OF_MEMBERS
        client.write(update(INSERT, table_entry=entry))
        chosen.size_semantics = 7
        assert only_error(client, update(MODIFY, table_entry=entry))[0] == INVALID
        chosen.size_semantics = 0
        chosen.action_selection_mode = 7
        assert only_error(client, update(MODIFY, table_entry=entry))[0] == INVALID


def test_backup_replicas() -> None:
    with switch() as (dataplane, client):
        message = multicast(3, (b"\1", 5), (b"\2", 6))
        first, _ = message.multicast_group_entry.replicas
        first.backup_replicas.add(port=b"\3", instance=7)
        first.backup_replicas.add(port=b"\0\4", instance=8)
        flood = client.insert("exact_table", {"dst_mac": 1}, "flood", 3)
        client.write(update(INSERT, packet_replication_engine_entry=message), flood)

        def goes_to() -> list[int]:
            return sorted(port for port, _ in dataplane.process(9, packet(1)))

        assert goes_to() == [1, 2]
        dataplane.set_port(1, up=False)
        wait_for(lambda: goes_to() == [2, 3])
        dataplane.set_port(3, up=False)
        wait_for(lambda: goes_to() == [2, 4])
        dataplane.set_port(4, up=False)
        wait_for(lambda: goes_to() == [1, 2])  # nothing is better than its own port
        dataplane.set_port(2, up=False)  # it has no backup
        dataplane.set_port(3, up=True)
        wait_for(lambda: goes_to() == [2, 3])
        (found,) = client.read(entity(packet_replication_engine_entry=multicast(3)))
        first.backup_replicas[1].port = b"\4"
        assert found.packet_replication_engine_entry == message


def test_wrong_backup_replicas() -> None:
    with switch() as (_, client):
        for port, instance in ((b"\1", 6), (b"\2", 6), (b"", 1), (b"\2\0", 1), (b"\3", 1 << 16)):
            message = multicast(3, (b"\1", 5), (b"\2", 6))
            backup = message.multicast_group_entry.replicas[0].backup_replicas
            backup.add(port=port, instance=instance)
            change = update(INSERT, packet_replication_engine_entry=message)
            assert codes(client.outcomes(change)) == [INVALID], (port, instance)
