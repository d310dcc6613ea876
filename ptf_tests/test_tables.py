# SPDX-License-Identifier: Apache-2.0
"""Both programs: tables that are full, entries that are there already or not at all."""

from __future__ import annotations

from finsy import P4TableAction

from controller.addressing import carrier, host_address
from controller.drops import DropReason
from mrc.opcodes import Opcode
from ptf_tests import nic_world, world
from ptf_tests.bench import Bench, Drop, Forward
from ptf_tests.device import entry
from ptf_tests.nic_world import own_address
from ptf_tests.packets import NO_NEXT_HEADER, ethernet, ipv6, mrc
from ptf_tests.world import BLOCK, T0_USID, T1_USID, arriving, leaving, my_sid, usid_route

BLOCKS = 4  # size of locator_block
OWN_ADDRESSES = 16
FULL = ("RESOURCE_EXHAUSTED", "UNKNOWN")  # BMv2 says the latter


def test_full_table_refuses_one_more_and_keeps_the_others(fabric: Bench) -> None:
    blocks = [BLOCK + n for n in range(BLOCKS)]
    fabric.device.insert(*map(world.locator_block, blocks), my_sid(T0_USID))
    assert fabric.device.refused(world.locator_block(BLOCK + BLOCKS)) in FULL
    assert len(fabric.device.entries("locator_block")) == BLOCKS
    frames = [ethernet(arriving(1), ipv6(1, carrier(b, 1), b"", NO_NEXT_HEADER)) for b in blocks]
    fabric.check(*(Drop(1, frame, DropReason.NOT_MY_SID) for frame in frames))
    # There is room again as soon as one goes.
    fabric.device.delete(world.locator_block(BLOCK))
    fabric.device.insert(world.locator_block(BLOCK + BLOCKS))
    fabric.check(Drop(1, frames[0], DropReason.NO_ROUTE), Drop(1, frames[1], DropReason.NOT_MY_SID))


def test_full_table_of_the_nic(nic: Bench) -> None:
    addresses = [host_address(9, n) for n in range(OWN_ADDRESSES)]
    nic.device.insert(nic_world.link(nic_world.HOST_PORT), *map(own_address, addresses))
    one_more = host_address(9, OWN_ADDRESSES)
    assert nic.device.refused(own_address(one_more)) in FULL
    port = 3
    packets = [mrc(Opcode.SACK, nic_world.PEER, address) for address in [*addresses, one_more]]
    frames = [ethernet(nic_world.arriving(port), packet) for packet in packets]
    host = nic_world.leaving(nic_world.HOST_PORT)
    nic.check(
        *(
            Forward(port, frame, nic_world.HOST_PORT, ethernet(host, packet))
            for frame, packet in zip(frames[:-1], packets[:-1], strict=True)
        ),
        Drop(port, frames[-1], DropReason.NOT_OWN_ADDRESS),
    )


def test_second_entry_with_the_same_key_is_refused(fabric: Bench) -> None:
    first, second = usid_route(T1_USID, 5), usid_route(T1_USID, 6)
    fabric.device.insert(world.locator_block(), my_sid(T0_USID), first)
    assert fabric.device.refused(second) == "ALREADY_EXISTS"
    before, after = (
        ipv6(1, carrier(BLOCK, *usids), b"", NO_NEXT_HEADER, hop_limit=hops)
        for usids, hops in (((T0_USID, T1_USID), 64), ((T1_USID,), 63))
    )
    fabric.forwards(1, ethernet(arriving(1), before), 5, ethernet(leaving(5), after))


def test_entries_read_back_as_written(fabric: Bench) -> None:
    routes = [usid_route(world.t1_usid(u), 5 + u) for u in range(4)]
    fabric.device.insert(*routes, world.local_ua(7), world.local_dt6())
    held = {item["locator_node"]: item.action for item in fabric.device.entries("usid_fib")}
    assert held == {item["locator_node"]: item.action for item in routes}
    actions = [item.action for item in fabric.device.entries("local_sid")]
    assert sorted(str(action) for action in actions) == sorted(
        str(action) for action in (world.next_hop("ua", 7), P4TableAction("dt6"))
    )


def test_only_default_actions_cannot_be_entries(fabric: Bench) -> None:
    item = entry("usid_fib", {"locator_node": BLOCK << 16 | T1_USID}, P4TableAction("unknown_usid"))
    assert fabric.device.refused(item) in ("INVALID_ARGUMENT", "PERMISSION_DENIED")
