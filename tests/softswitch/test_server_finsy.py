# SPDX-License-Identifier: Apache-2.0
"""finsy, unchanged, as the client: what the controller of this project does all day."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import finsy as fy
import pytest
from finsy.p4client import P4ClientError

from softswitch.values import Digest, PacketIn
from tests.softswitch.p4rt import DATA, DEVICE_ID, TIMEOUT_S, FakeDataplane, serving

P4INFO = DATA / "entities.p4info.txtpb"
PROGRAM = DATA / "entities.json"

Handler = Callable[[fy.Switch], Awaitable[None]]


@pytest.fixture
def dataplane() -> FakeDataplane:
    return FakeDataplane()


@pytest.fixture
def address(dataplane: FakeDataplane) -> Iterator[str]:
    with serving(dataplane) as address:
        yield address


def options(p4info: Path | None = P4INFO, **fields: Any) -> fy.SwitchOptions:
    return fy.SwitchOptions(
        p4info=p4info, p4blob=PROGRAM if p4info else None, device_id=DEVICE_ID, **fields
    )


def run(address: str, handler: Handler) -> None:
    """Run `handler` with a connected switch that has the program."""

    async def session() -> None:
        async with fy.Switch("sw", address, options()) as switch:
            await asyncio.wait_for(handler(switch), TIMEOUT_S)

    asyncio.run(session())


async def read_all(switch: Any, query: fy.P4TableEntry) -> list[Any]:
    """Everything that a read gives (`Any`: finsy declares its overloads as coroutines)."""
    return [e async for e in switch.read(query)]


def entry(mac: int, port: int = 1) -> fy.P4TableEntry:
    return fy.P4TableEntry(
        "exact_table",
        match=fy.Match(dst_mac=mac),
        action=fy.Action("forward", port=port, dst_mac=mac),
    )


def test_thousand_entries_in_one_write(address: str) -> None:
    async def handler(switch: fy.Switch) -> None:
        assert switch.is_primary
        assert str(switch.p4runtime_version).startswith("1.4")
        entries = [entry(mac) for mac in range(1, 1001)]
        await switch.write([+e for e in entries])
        read = await read_all(switch, fy.P4TableEntry("exact_table"))
        assert read == entries
        read = await read_all(
            switch, fy.P4TableEntry("exact_table", counter_data=fy.P4CounterData())
        )
        assert all(e.counter_data == fy.P4CounterData() for e in read)
        await switch.write([~entry(5, 3), -entry(6)])
        read = await read_all(switch, fy.P4TableEntry("exact_table"))
        assert len(read) == 999
        assert entry(5, 3) in read
        await switch.delete_all()
        read = await read_all(switch, fy.P4TableEntry())
        assert {e.table_id for e in read} == {"const_table"}

    run(address, handler)


def test_errors_have_the_updates_index(address: str) -> None:
    async def handler(switch: fy.Switch) -> None:
        with pytest.raises(P4ClientError) as caught:
            await switch.write([+entry(1), +entry(2), +entry(1), -entry(9)])
        details = caught.value.details
        assert sorted(details) == [2, 3]
        assert details[2].canonical_code == fy.GRPCStatusCode.ALREADY_EXISTS
        assert details[3].canonical_code == fy.GRPCStatusCode.NOT_FOUND
        await switch.delete([entry(9)], strict=False)

    run(address, handler)


def test_delete_all_leaves_nothing(address: str, dataplane: FakeDataplane) -> None:
    async def handler(switch: fy.Switch) -> None:
        one = fy.P4TableEntry(
            "ecmp",
            match=fy.Match(ether_type=0x800),
            action=fy.IndirectAction(
                action_set=[
                    (2, fy.Action("forward", port=1, dst_mac=1)),
                    (1, fy.Action("forward", port=2, dst_mac=1)),
                ]
            ),
        )
        await switch.write(
            [
                +one,
                +fy.P4MulticastGroupEntry(1, replicas=[1, 2]),
                +fy.P4CloneSessionEntry(5, replicas=[510]),
                +fy.P4DigestEntry("learn_t", max_list_size=1),
            ]
        )
        assert await read_all(switch, fy.P4TableEntry("ecmp")) == [one]
        await switch.delete_all()
        assert await read_all(switch, fy.P4TableEntry("ecmp")) == []

    run(address, handler)
    assert dataplane.profiles["EntitiesIngress.selector"].members == 0


def test_packets_and_digests(address: str, dataplane: FakeDataplane) -> None:
    async def handler(switch: fy.Switch) -> None:
        packets = switch.read_packets()
        digests = switch.read_digests("learn_t")
        first_packet = asyncio.ensure_future(anext(packets))
        first_digest = asyncio.ensure_future(anext(digests))
        await asyncio.sleep(0)  # let both open their queues
        await switch.write([fy.P4PacketOut(b"frame", egress_port=2, pad=0)])
        sent = await asyncio.to_thread(dataplane.sent.get, timeout=TIMEOUT_S)
        assert sent == b"\x01\x00frame"
        dataplane.events.put(PacketIn(b"\x01\x80frame"))
        packet = await first_packet
        assert (packet.payload, packet["ingress_port"]) == (b"frame", 3)

        await switch.write([+fy.P4DigestEntry("learn_t", max_list_size=1, ack_timeout_ns=10**12)])
        dataplane.events.put(Digest("learn_t", [0x0200, 4], 0))
        digest = await first_digest
        assert digest.data == [{"src_mac": 0x0200, "port": 4}]
        await switch.write([digest.ack()])

    run(address, handler)


def test_program_stays_when_its_cookie_is_known(address: str, dataplane: FakeDataplane) -> None:
    async def insert(switch: fy.Switch) -> None:
        await switch.write([+entry(1)])

    async def look(switch: fy.Switch) -> None:
        assert await read_all(switch, fy.P4TableEntry("exact_table")) == [entry(1)]

    run(address, insert)
    run(address, look)
    assert dataplane.loads == 1


def test_backup_takes_over_when_the_primary_leaves(address: str) -> None:
    async def session() -> None:
        primary = fy.Switch("primary", address, options())
        backup = fy.Switch("backup", address, options(p4info=None))
        async with backup_of(primary, backup):
            assert (primary.is_primary, backup.is_primary) == (True, False)
            with pytest.raises(P4ClientError) as caught:
                await backup.write([+entry(1)])
            assert caught.value.code == fy.GRPCStatusCode.PERMISSION_DENIED
            promoted = backup.ee.event_future(fy.SwitchEvent.BECOME_PRIMARY)
            await primary.__aexit__(None, None, None)
            await asyncio.wait_for(promoted, TIMEOUT_S)
            await backup.write([+entry(1)])

    asyncio.run(session())


class backup_of:  # noqa: N801  (a context manager)
    """Connect two switches; only the backup is closed at the end."""

    def __init__(self, primary: fy.Switch, backup: fy.Switch) -> None:
        self.primary, self.backup = primary, backup

    async def __aenter__(self) -> None:
        await self.primary.__aenter__()
        await self.backup.__aenter__()

    async def __aexit__(self, *error: object) -> None:
        await self.backup.__aexit__(None, None, None)
