# SPDX-License-Identifier: Apache-2.0
"""A switch that only softswitch-ctl sets up: ports, entries and queues while packets flow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from softswitch import ctl
from tests.net.test_switch_ports import NODE, bound, links, packet, passes, wait_for
from tests.softswitch.scenarios import PROGRAMS
from tests.softswitch.test_server_process import TIMEOUT_S, switch

pytestmark = pytest.mark.net

__all__ = ["links"]


class Ctl:
    """softswitch-ctl for one switch."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._path = path
        self._capsys = capsys

    def __call__(self, line: str) -> Any:
        """The answer to a command, which must succeed."""
        code = ctl.main(["--control", str(self._path), "--json", "-c", line])
        captured = self._capsys.readouterr()
        assert (code, captured.err) == (0, "")
        return json.loads(captured.out)


@pytest.fixture
def command(links: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Ctl]:
    """A switch with a program and without ports, entries or controller."""
    del links
    path = tmp_path / "control"
    with switch("--control", str(path), str(PROGRAMS / "un.json")) as (process, _):
        yield Ctl(path, capsys)
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
        assert process.stderr.read() == ""


def queue(command: Ctl) -> tuple[int, int]:
    """Packets that wait at port 2, and that it dropped."""
    (state,) = command("show_queues 2")
    return state["waiting"], state["dropped"]


def set_up(command: Ctl) -> None:
    command("port_add sp1 1")
    command("port_add sp2 2")
    wait_for(lambda: all(port["up"] for port in command("show_ports")), "both ports are up")
    command(f"table_add routes forward {NODE:#x} => 2 02:00:00:00:00:01 02:00:00:00:00:02")


def test_it_forwards(command: Ctl) -> None:
    set_up(command)
    passes()
    first, second = command("show_ports")
    assert (first["interface"], first["rx_packets"]) == ("sp1", 1)
    assert (second["interface"], second["tx_packets"]) == ("sp2", 1)
    command("port_remove 2")
    assert [port["port"] for port in command("show_ports")] == [1]


def test_queues_change_at_once(command: Ctl) -> None:
    set_up(command)
    command("set_queue_rate 1 2")
    command("set_queue_depth 3 2")
    with bound("sp1p") as sender, bound("sp2p") as receiver:
        sender.send(packet(b"0"))
        assert receiver.recv(100)[-1:] == b"0"
        for number in b"123456":
            sender.send(packet(bytes((number,))))
        wait_for(lambda: queue(command)[1] == 3, "three packets wait, three are dropped")
        command("set_queue_rate 0")
        assert [receiver.recv(100)[-1:] for _ in range(3)] == [b"1", b"2", b"3"]
    assert queue(command) == (0, 3)
