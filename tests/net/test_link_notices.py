# SPDX-License-Identifier: Apache-2.0
"""What the kernel says about interfaces, as the NIC agent hears it."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator

import pytest

from controller.nic_agent.links import link_notices
from controller.nic_agent.plane_ports import LinkNotice
from ptf_tests.namespace import VethPairs

pytestmark = pytest.mark.net

PORT, PEER, BRIDGE = "ln-port", "ln-peer", "ln-bridge"
QUIET_S = 0.2


def ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)


@pytest.fixture
def veth() -> Iterator[None]:
    with VethPairs([(PORT, PEER)]):
        yield


async def dump(notices: AsyncIterator[list[LinkNotice] | LinkNotice]) -> dict[str, LinkNotice]:
    found = await anext(notices)
    assert isinstance(found, list)
    return {notice.interface: notice for notice in found}


async def heard(notices: AsyncIterator[list[LinkNotice] | LinkNotice]) -> list[LinkNotice]:
    """What is said about PORT until nothing more is."""
    found = []
    waiting = asyncio.ensure_future(anext(notices))
    while (await asyncio.wait({waiting}, timeout=QUIET_S))[0]:
        notice = waiting.result()
        assert isinstance(notice, LinkNotice)
        found += [notice] if notice.interface == PORT else []
        waiting = asyncio.ensure_future(anext(notices))
    waiting.cancel()
    return found


def test_first_everything_then_what_changes(veth: None) -> None:
    async def work() -> None:
        notices = link_notices()
        found = await dump(notices)
        assert found["lo"].running
        assert found[PORT].running
        ip(f"link set {PEER} down")
        changes = await heard(notices)
        assert changes
        assert (changes[-1].index, changes[-1].running) == (found[PORT].index, False)

    asyncio.run(work())


def test_an_interface_that_leaves_a_bridge_is_still_there(veth: None) -> None:
    async def work() -> None:
        ip(f"link add {BRIDGE} type bridge")
        try:
            ip(f"link set {PORT} master {BRIDGE}")
            notices = link_notices()
            assert (await dump(notices))[PORT].running
            ip(f"link set {PORT} nomaster")
            changes = await heard(notices)
            assert changes
            assert all(notice.running for notice in changes)
        finally:
            ip(f"link delete {BRIDGE}")

    asyncio.run(work())


def test_an_interface_that_is_deleted_is_not() -> None:
    async def work() -> None:
        with VethPairs([(PORT, PEER)]):
            notices = link_notices()
            await dump(notices)
        changes = await heard(notices)
        assert changes[-1].present is False

    asyncio.run(work())


def test_when_more_is_said_than_was_read_everything_is_read_again(veth: None) -> None:
    async def work() -> None:
        notices = link_notices()
        assert (await dump(notices))[PORT].running
        changes = [f"link set {PEER} mtu {1400 + number % 2}" for number in range(4000)]
        lines = "\n".join([*changes, f"link set {PEER} down"])
        # While this blocks the loop the socket overflows.
        subprocess.run(["ip", "-batch", "-"], input=lines, text=True, check=True)
        async with asyncio.timeout(5):
            while not isinstance(found := await anext(notices), list):
                pass
        assert not next(notice for notice in found if notice.interface == PORT).running

    asyncio.run(work())
