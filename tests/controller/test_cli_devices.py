# SPDX-License-Identifier: Apache-2.0
"""mrcctl's commands that talk to devices, against P4Runtime servers that a test can break."""

from __future__ import annotations

from pathlib import Path

import pytest
from finsy.proto import p4r
from typer.testing import CliRunner, Result

from controller.cli import app
from controller.counters import QUEUE_COUNTERS
from controller.drops import DropReason
from controller.p4rt import load_program
from tests.controller.conftest import FakeFabric

FABRIC = load_program("fabric")
DENY_PLANE_0 = "version: 1\ndeny: {planes: [0]}\n"


def mrcctl(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def rows(output: str) -> dict[str, list[str]]:
    """The lines of a table by their first word."""
    return {words[0]: words[1:] for line in output.splitlines() if (words := line.split())}


def count(kind: str, switch_counters: list[p4r.Entity], index: int, packets: int) -> None:
    data = p4r.CounterData(packet_count=packets, byte_count=100 * packets)
    entry = p4r.CounterEntry(
        counter_id=FABRIC.counters[kind].id, index=p4r.Index(index=index), data=data
    )
    switch_counters.append(p4r.Entity(counter_entry=entry))


def test_push_programs_every_device_once(fake_fabric: FakeFabric) -> None:
    first = rows(mrcctl("push").output)
    assert list(first)[1:13] == list(fake_fabric.switches)
    assert all(first[name][0] == "loaded" for name in fake_fabric.switches)
    assert all(switch.entries for switch in fake_fabric.switches.values())
    again = mrcctl("push").output
    assert "0 updates on 12 devices" in again
    assert rows(again)["p0t0-0"][:4] == ["kept", "0", "0", "0"]


def test_push_one_device(fake_fabric: FakeFabric) -> None:
    mrcctl("push", "--device", "n0-0")
    programmed = [name for name, switch in fake_fabric.switches.items() if switch.entries]
    assert programmed == ["n0-0"]
    assert "not in the running fabric: x" in mrcctl("push", "--device", "x", code=1).stderr


def test_push_fails_with_the_entry_and_the_device(fake_fabric: FakeFabric) -> None:
    fake_fabric.switches["p1t0-1"].refuse = lambda update: (
        "no room" if update.entity.table_entry.table_id == FABRIC.tables["usid_fib"].id else None
    )
    result = mrcctl("push", code=1)
    assert "p1t0-1: insert usid_fib locator_node=fcbb:bb00:6400::/48 -> forward(" in result.stderr
    assert "RESOURCE_EXHAUSTED: no room" in result.stderr
    assert "1 of 12 devices are not as wanted: p1t0-1" in result.stderr


def test_status_before_and_after_a_push(fake_fabric: FakeFabric) -> None:
    before = mrcctl("status", code=1)
    assert rows(before.output)["p0t0-0"][:2] == ["other", "program"]
    mrcctl("push")
    count("port_in", fake_fabric.switches["p0t0-0"].counters, 1, 7)
    count("port_in", fake_fabric.switches["p0t0-0"].counters, 2, 3)
    count("drops", fake_fabric.switches["p0t0-0"].counters, DropReason.NOT_MY_SID, 5)
    after = mrcctl("status").output
    table = rows(after)
    assert table["n1-1"][:6] == ["ok", "none", "0", "0", "0", "0"]
    entries = "usid_fib 4, ipv6_fib 3, ecmp_groups 1"
    entries = f"locator_block 1, my_sid 1, local_sid 7, {entries}, replica_uplinks 2"
    entries = f"port_config 4, traffic_classes 6, {entries}"
    assert f"p0t0-0 ok none 0 10 0 5 {entries}" in " ".join(after.split())
    assert "p0t0-0 NOT_MY_SID 5 500" in " ".join(after.split())


def test_status_shows_what_differs_from_the_applied_policy(fake_fabric: FakeFabric) -> None:
    mrcctl("push")
    entries = fake_fabric.switches["p0t1-0"].entries
    entries.pop(next(iter(entries)))
    result = mrcctl("status", code=1)
    assert rows(result.output)["p0t1-0"][0] == "differs"
    assert "not as wanted: p0t1-0; `mrcctl push` repairs" in result.stderr


def test_counters_show_the_spread(fake_fabric: FakeFabric) -> None:
    mrcctl("push")
    my_sid = FABRIC.tables["my_sid"].id
    for plane, t1, packets in [(0, 0, 10), (0, 1, 30), (1, 0, 20), (1, 1, 20)]:
        for entry in fake_fabric.switches[f"p{plane}t1-{t1}"].entries.values():
            if entry.table_id == my_sid:
                entry.counter_data.packet_count = packets
    output = mrcctl("counters").output
    lines = [line.split() for line in output.splitlines()]
    assert lines[1] == ["0", "10", "30", "40", "1.500"]
    assert lines[2] == ["1", "20", "20", "40", "1.000"]
    assert "max/mean over all T1s 1.500, over planes 1.000" in output
    assert "no drops" in output


def test_counters_of_one_device(fake_fabric: FakeFabric) -> None:
    mrcctl("push")
    count("port_out", fake_fabric.switches["p0t0-1"].counters, 3, 4)
    table = rows(mrcctl("counters", "--device", "p0t0-1").output)
    assert table["3"] == ["p0t1-0", "0", "0", "4", "400", "0", "0", "0", "0", "0"]
    assert len(rows(mrcctl("counters", "--device", "n0-0").output)["1"]) == 5


def test_counters_show_queues_that_filled(fake_fabric: FakeFabric) -> None:
    mrcctl("push")
    assert "no packet marked, trimmed or dropped at a queue" in mrcctl("counters").output
    counters = fake_fabric.switches["p0t0-1"].counters
    for packets, kind in enumerate(QUEUE_COUNTERS, 5):
        count(kind, counters, 3, packets)
    found = rows(mrcctl("counters").output)
    assert found["Switch"] == [
        "Port",
        "Neighbour",
        "Marked",
        "Trimmed",
        "Trim-dropped",
        "Tail-dropped",
        "Copies-dropped",
    ]
    assert found["p0t0-1"] == ["3", "p0t1-0", "5", "6", "7", "8", "9"]
    assert rows(mrcctl("counters", "--device", "p0t0-1").output)["3"][-5:] == list("56789")


def test_a_policy_is_applied_remembered_and_shown(fake_fabric: FakeFabric, tmp_path: Path) -> None:
    mrcctl("push")
    assert "default" in mrcctl("policy", "show").output
    file = tmp_path / "deny.yaml"
    file.write_text(DENY_PLANE_0)
    assert "applied" in mrcctl("policy", "apply", str(file)).output
    assert mrcctl("policy", "show").output == DENY_PLANE_0
    assert "0 updates" in mrcctl("push").output, "push uses the applied policy"
    assert "denied" in mrcctl("path", "h0-0", "h1-0").output, "and so does path"
    mrcctl("status")


@pytest.mark.parametrize("text", ["version: 2\n", "version: 1\ndeny: {planes: [0, 1]}\n"])
def test_a_policy_that_cannot_be_is_not_remembered(
    fake_fabric: FakeFabric, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    assert str(file) in mrcctl("policy", "apply", str(file), code=1).stderr.replace("\n", "")
    assert not (fake_fabric.run_dir / "policy.yaml").exists()
    assert not any(switch.writes for switch in fake_fabric.switches.values())


def test_unreachable_devices_are_named(fake_fabric: FakeFabric, tmp_path: Path) -> None:
    inventory = fake_fabric.run_dir / "inventory.json"
    text = inventory.read_text().replace('"address": "127.0.0.1:', '"address": "127.0.0.9:', 1)
    inventory.write_text(text)
    for command in ("status", "counters", "push"):
        result = mrcctl(command, "--timeout", "0.2", code=1)
        assert "p0t0-0: nothing answers at 127.0.0.9:" in result.stderr
    pushed = rows(result.output)
    assert pushed["p0t0-0"][0] == "unknown"
    assert len(pushed["p0t0-0"]) == 2, "no numbers of a device that was not reached"
    assert pushed["p0t0-1"][0] == "loaded"
