# SPDX-License-Identifier: Apache-2.0
"""Peers of NICs: `mrcctl peers`, and what a push does to them, on fakes and on both targets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from finsy.proto import p4r
from typer.testing import CliRunner, Result

from controller.addressing import host_address
from controller.canonical import to_message, wanted_entries
from controller.cli import app
from controller.inventory import Inventory
from controller.p4rt import DeviceError, connect, load_program
from controller.peers import Peer, PeerKey, PeersError, add_peers, delete_peers, read_peers
from controller.push import push
from tests.controller.conftest import FakeFabric
from tests.controller.fake_p4rt import FakeSwitch, serve
from tests.controller.test_push_targets import TARGETS, nic_entries, running
from tests.controller.test_reconcile import peer_entry

NIC = load_program("nic")
SENDER = host_address(1, 1)


def peer(number: int, peer_qp: int = 9) -> Peer:
    return Peer(SENDER, 100 + number, peer_qp)


def one_nic(address: str) -> Inventory:
    device = {"address": address, "device_id": 1, "program": "nic", "log": "/dev/null", "pid": 1}
    return Inventory.model_validate(
        {"topology": "/t.yaml", "target": "bmv2", "pid": 1, "devices": {"n0-0": device}}
    )


def programmed() -> FakeSwitch:
    return FakeSwitch(config=NIC.get_pipeline_config())


# ---- the command --------------------------------------------------------------------------------


def mrcctl(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["peers", *arguments])
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


@pytest.fixture
def pushed(fake_fabric: FakeFabric) -> FakeFabric:
    assert CliRunner().invoke(app, ["push"]).exit_code == 0
    return fake_fabric


ADD = ("add", "n0-0", "--source", "h1-1", "--qp", "101")


def test_add_list_delete(pushed: FakeFabric) -> None:
    assert mrcctl("list").output == "no peers\nno trimmed packet arrived\n"
    assert mrcctl(*ADD, "--peer-qp", "9").output.strip() == (
        "n0-0: fd4d:5243::1:2 to QP 101 from QP 9 added"
    )
    assert "was there already" in mrcctl(*ADD, "--peer-qp", "9").output
    mrcctl("add", "n0-0", "--source", "fd4d:5243::1:1", "--qp", "5", "--peer-qp", "7")
    switch = pushed.switches["n0-0"]
    trimmed = NIC.counters["trimmed"].id
    for fate, packets in enumerate((3, 2, 1)):
        data = p4r.CounterData(packet_count=packets, byte_count=122 * packets)
        index = p4r.Index(index=fate)
        cell = p4r.CounterEntry(counter_id=trimmed, index=index, data=data)
        switch.counters.append(p4r.Entity(counter_entry=cell))
    lines = [line.split() for line in mrcctl("list", "n0-0").output.splitlines()]
    assert lines[1:3] == [
        ["n0-0", "fd4d:5243::1:1", "h1-0", "5", "7", "0", "0"],
        ["n0-0", "fd4d:5243::1:2", "h1-1", "101", "9", "0", "0"],
    ]
    assert lines[4] == ["n0-0", "3", "2", "1"]
    assert mrcctl("list", "n0-1").output == "no peers\nno trimmed packet arrived\n"
    assert "1 deleted" in mrcctl("delete", "n0-0", "--source", "h1-1", "--qp", "101").output
    assert "1 deleted" in mrcctl("delete", "n0-0", "--all").output
    assert mrcctl("list", "n0-1").output.startswith("no peers")
    assert all(not switch.streams for switch in pushed.switches.values()), "NICs are released"


def test_push_and_status_leave_peers_alone(pushed: FakeFabric) -> None:
    mrcctl(*ADD, "--peer-qp", "9")
    again = CliRunner().invoke(app, ["push"])
    assert "0 updates on 12 devices" in again.output
    assert "h1-1" in mrcctl("list").output
    status = CliRunner().invoke(app, ["status"])
    assert status.exit_code == 0
    assert "peers 1" in status.output


def test_push_that_loads_the_program_ends_them(pushed: FakeFabric) -> None:
    pushed.switches["n0-0"].config = load_program("fabric").get_pipeline_config()
    assert CliRunner().invoke(app, ["push", "--device", "n0-0"]).exit_code == 0
    assert pushed.switches["n0-0"].programs_loaded == 2
    assert mrcctl("list", "n0-0").output.startswith("no peers"), "gone with the program"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "n9-9", *ADD[2:], "--peer-qp", "9"), "n9-9 is not in the running fabric; allowed"),
        (("add", "p0t0-0", *ADD[2:], "--peer-qp", "9"), "p0t0-0 is a switch; allowed are its NICs"),
        ((*ADD, "--peer-qp", str(1 << 24)), "peer's QP 16777216: allowed are 0..16777215"),
        ((*ADD, "--peer-qp", "-1"), "peer's QP -1: allowed are 0..16777215"),
        ((*ADD, "--peer-qp", "2"), "peer's QP 2: allowed are 0..16777215 without 2"),
        ((*ADD[:4], "--qp", "2", "--peer-qp", "9"), "own QP 2: allowed are"),
        ((*ADD[:3], "h9-9", "--qp", "1", "--peer-qp", "9"), "has no device 'h9-9'"),
        ((*ADD[:3], "n1-1", "--qp", "1", "--peer-qp", "9"), "n1-1 is a NIC; allowed: a host"),
        ((*ADD[:3], "::1", "--qp", "1", "--peer-qp", "9"), "--source ::1: ::1 is no host's"),
        ((*ADD[:3], "x:y", "--qp", "1", "--peer-qp", "9"), "--source x:y: "),
        (
            (*ADD[:3], "fd4d:5243::7:1", "--qp", "1", "--peer-qp", "9"),
            "--source fd4d:5243::7:1: mini has no T0 group 7; allowed: 0..1",
        ),
        (("delete", "n0-0", "--source", "h1-1"), "name --source and --qp, or --all"),
        (("delete", "n0-0", "--qp", "1", "--all"), "--all goes without"),
        (("delete", "n0-0", "--source", "h1-1", "--qp", "1"), "has no peer for fd4d:5243::1:2 to"),
        (("list", "h0-0"), "h0-0 is not in the running fabric; allowed are its NICs: n0-0, n0-1"),
    ],
)
def test_bad_input(pushed: FakeFabric, arguments: tuple[str, ...], words: str) -> None:
    writes = [len(switch.writes) for switch in pushed.switches.values()]
    assert words in " ".join(mrcctl(*arguments, code=1).stderr.split())
    assert [len(switch.writes) for switch in pushed.switches.values()] == writes


def test_nic_without_the_program(fake_fabric: FakeFabric) -> None:
    words = mrcctl(*ADD, "--peer-qp", "9", code=1).stderr
    assert "n0-0 does not run the program of p4src/build: run `mrcctl push`" in words


# ---- all or none --------------------------------------------------------------------------------


def test_another_qp_of_the_peer_is_refused_and_nothing_is_written() -> None:
    switch = programmed()
    with serve(switch) as address:
        nic = one_nic(address)
        assert asyncio.run(add_peers(nic, "n0-0", [peer(1), peer(2), peer(1)])) == 2
        with pytest.raises(PeersError, match="QP 102 has peer's QP 9, not 10; delete first"):
            asyncio.run(add_peers(nic, "n0-0", [peer(3), peer(2, 10)]))
        with pytest.raises(PeersError, match="QP 103: given twice, with different QPs"):
            asyncio.run(add_peers(nic, "n0-0", [peer(3), peer(3, 10)]))
        with pytest.raises(PeersError, match="has no peer for fd4d:5243::1:2 to QP 107"):
            asyncio.run(delete_peers(nic, "n0-0", [peer(1).key, peer(7).key]))
        found = asyncio.run(read_peers(nic, "n0-0"))
    assert [count.peer for count in found.peers] == [peer(1), peer(2)]


def test_refused_peers_are_taken_back() -> None:
    switch = programmed()
    with serve(switch) as address:
        nic = one_nic(address)
        asyncio.run(add_peers(nic, "n0-0", [peer(0)]))
        full = 1500
        switch.refuse = lambda update: (
            "full" if update.type == p4r.Update.INSERT and len(switch.entries) >= full else None
        )
        with pytest.raises(DeviceError, match="n0-0 refused a peer: RESOURCE_EXHAUSTED: full"):
            asyncio.run(add_peers(nic, "n0-0", [peer(number) for number in range(2000)]))
        found = asyncio.run(read_peers(nic, "n0-0"))
    assert [count.peer for count in found.peers] == [peer(0)]


def test_more_peers_than_the_table_holds() -> None:
    switch = programmed()
    size = NIC.tables["peers"].size
    held = wanted_entries([peer_entry(SENDER, 100 + n, 9) for n in range(size - 1)], NIC)
    switch.entries = {key: to_message(key, value) for key, value in held.items()}
    with serve(switch) as address:
        nic = one_nic(address)
        with pytest.raises(
            PeersError, match="holds 16383 peers, 2 more are wanted; allowed: 16384"
        ):
            asyncio.run(add_peers(nic, "n0-0", [peer(size), peer(size + 1), peer(0)]))
        assert len(switch.entries) == size - 1
        assert asyncio.run(add_peers(nic, "n0-0", [peer(size), peer(0)])) == 1


# ---- both targets -------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_peers_outlive_pushes_and_end_with_the_program(target: str, tmp_path: Path) -> None:
    async def work(nic: Inventory) -> None:
        first, second = nic_entries(0, [0, 1]), nic_entries(8, [0, 1])
        assert (await push(nic, {"d": first})).ok
        peers = [peer(number, 1000 + number) for number in range(1200)]
        assert await add_peers(nic, "d", peers) == len(peers)
        assert await add_peers(nic, "d", peers[:7]) == 0
        report = await push(nic, {"d": second})
        assert report.ok and report.written
        assert (await push(nic, {"d": second})).written == 0
        assert [count.peer for count in (await read_peers(nic, "d")).peers] == peers
        keys = [item.key for item in peers[:1100]]
        assert await delete_peers(nic, "d", keys) == len(keys)
        assert await delete_peers(nic, "d", None) == 100
        assert (await read_peers(nic, "d")).peers == ()
        await add_peers(nic, "d", peers[:1])
        async with connect("d", nic.devices["d"].address, 7) as link:
            await link.become_primary()
            await link.set_program(NIC)
        assert (await read_peers(nic, "d")).peers == ()

    with running(target, "nic", tmp_path / "log") as nic:
        asyncio.run(work(nic))


@pytest.mark.parametrize("target", TARGETS)
def test_peers_and_pushes_at_the_same_time(target: str, tmp_path: Path) -> None:
    async def pushes(nic: Inventory) -> None:
        for first in (0, 8, 0, 8):
            report = await push(nic, {"d": nic_entries(first, [0, 1])})
            assert report.ok, report.devices["d"].errors

    async def peers(nic: Inventory) -> None:
        for number in range(12):
            assert await add_peers(nic, "d", [peer(number)]) == 1
            if number % 2:
                assert await delete_peers(nic, "d", [PeerKey(SENDER, 100 + number)]) == 1

    async def work(nic: Inventory) -> None:
        await push(nic, {"d": nic_entries(0, [0, 1])})
        await asyncio.gather(pushes(nic), peers(nic))
        assert (await push(nic, {"d": nic_entries(8, [0, 1])})).written == 0
        found = [count.peer for count in (await read_peers(nic, "d")).peers]
        assert found == [peer(number) for number in range(0, 12, 2)]

    with running(target, "nic", tmp_path / "log") as nic:
        asyncio.run(work(nic))
