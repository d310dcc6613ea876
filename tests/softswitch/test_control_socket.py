# SPDX-License-Identifier: Apache-2.0
"""softswitch-ctl against a running switch: its socket, scripts, and controllers beside it."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from finsy.proto import p4r

from softswitch import ctl
from softswitch.control import protocol
from softswitch.control.protocol import MAX_LINE_BYTES
from softswitch.control.server import listen
from tests.softswitch.p4rt import DATA, RawClient, load_config
from tests.softswitch.test_server_process import TIMEOUT_S, fails, switch

PROGRAM = str(DATA / "entities.json")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "control"


@contextmanager
def running(path: Path, *arguments: str) -> Iterator[tuple[Any, str]]:
    """A switch of which `path` is the control socket; gives its process and address."""
    given = arguments or (PROGRAM, "--device-id", "7")
    with switch("--control", str(path), *given) as (process, address):
        yield process, address


class Ctl:
    """softswitch-ctl in this process."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._path = path
        self._capsys = capsys

    def __call__(self, *words: str) -> str:
        """What it prints; it must succeed."""
        code, out, err = self.run(*words)
        assert (code, err) == (0, "")
        return out

    def run(self, *words: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        code = ctl.main(["--control", str(self._path), *words])
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err


@pytest.fixture
def command(path: Path, capsys: pytest.CaptureFixture[str]) -> Ctl:
    return Ctl(path, capsys)


def test_one_command(path: Path, command: Ctl) -> None:
    with running(path) as (process, _):
        assert command("table_add", "exact_table", "forward", "1", "=>", "2", "3") == (
            "entry 0 of EntitiesIngress.exact_table added\n"
        )
        assert json.loads(command("--json", "table_num_entries", "exact_table")) == 1
        assert command("-c", "table_num_entries lpm_table", "-c", "show_ports") == "0\nno ports\n"
        code, out, err = command.run("table_dump", "x")
        assert (code, out) == (1, "")
        assert err.startswith("softswitch-ctl: there is no table 'x'; there is: EntitiesIngress.")
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
        assert process.stderr.read() == ""


def test_script(path: Path, command: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """As scripts of simple_switch_CLI are written; what fails does not end it."""
    script = (
        "# entries\n\n"
        "table_set_default EntitiesIngress.lpm_table EntitiesIngress.drop\n"
        "table_add EntitiesIngress.lpm_table EntitiesIngress.forward 00:00:00:00:01:00/40 => 1 2\n"
        "table_add nowhere x 1 =>\n"
        "table_num_entries lpm_table\n"
        "help table_num_entries\n"
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(script))
    with running(path):
        code, out, err = command.run()
    assert code == 1
    assert out == (
        "default of EntitiesIngress.lpm_table set\n"
        "entry 0 of EntitiesIngress.lpm_table added\n"
        "1\n"
        "table_num_entries TABLE\n"
        "  How many entries a table has.\n"
    )
    assert err.startswith("softswitch-ctl: line 5: there is no table 'nowhere'; there is: ")


def test_controllers_read_what_commands_wrote(path: Path, command: Ctl) -> None:
    """And the other way round; a controller's program replaces the one of the command line."""
    with running(path) as (_, address):
        command("table_add", "exact_table", "to_cpu", "9", "=>")
        client = RawClient(address, load_config())
        client.stream().arbitrate(1)
        client.set_pipeline()
        assert command("table_num_entries", "exact_table") == "0\n"
        client.write(client.insert("exact_table", {"dst_mac": 1}, "drop"))
        assert "0x000000000001" in command("table_dump", "exact_table")
        command("table_add", "exact_table", "forward", "2", "=>", "3", "4")
        command("mc_mgrp_create", "5")
        found = client.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=0)))
        keys = {e.table_entry.match[0].exact.value for e in found if e.table_entry.match}
        assert {b"\x01", b"\x02"} <= keys
        assert "from a controller" in command("switch_info")
        client.close()


def test_a_line_that_is_too_long(path: Path, command: Ctl) -> None:
    with running(path):
        code, _, err = command.run("table_add", "x" * 3_000_000)
    assert (code, err) == (1, f"softswitch-ctl: a line of more than {MAX_LINE_BYTES} bytes\n")


def test_a_reader_that_has_seen_enough(path: Path) -> None:
    """`softswitch-ctl ... | head -1` is no error."""
    with running(path):
        done = subprocess.run(
            f"{sys.executable} -m softswitch.ctl --control {path} -c show_tables -c show_tables "
            "-c show_tables | head -c 1",
            shell=True,
            capture_output=True,
            cwd=Path(__file__).resolve().parents[2],
            timeout=60,
            check=True,
        )
    assert (len(done.stdout), done.stderr) == (1, b"")


def test_only_the_owner(path: Path) -> None:
    with listen(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_live_switch_keeps_its_socket(path: Path, command: Ctl) -> None:
    with running(path, "--no-p4") as (process, _):
        error = fails("--no-p4", "--control", str(path), "--", "--grpc-server-addr", "127.0.0.1:0")
        assert error == f"softswitch: ERROR: --control: a running switch listens at {path}\n"
        command("switch_info")
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
    assert not path.exists()


def test_a_dead_switch_does_not(path: Path, command: Ctl) -> None:
    with running(path, "--no-p4") as (process, _):
        process.send_signal(signal.SIGKILL)
        process.wait(TIMEOUT_S)
    assert path.exists()
    code, _, err = command.run("switch_info")
    assert (code, err.startswith(f"softswitch-ctl: no switch listens at {path}")) == (1, True)
    with running(path, "--no-p4"):
        command("switch_info")


def test_what_is_no_socket_stays(path: Path) -> None:
    path.write_text("mine")
    with pytest.raises(OSError, match=f"--control: {path} exists and is not a socket"):
        listen(path)
    assert path.read_text() == "mine"


def test_a_place_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "no" / "control"
    with pytest.raises(OSError, match=f"--control: {path}: No such file or directory"):
        listen(path)
    path = tmp_path / ("x" * 200)
    with pytest.raises(OSError, match=f"--control: {path}: AF_UNIX path too long"):
        listen(path)


_BAD_REQUESTS = (
    (b"show_tables\n", "not a line of JSON"),
    (b"[]\n", "not a JSON object"),
    (b'{"words": ["show_tables"]}\n', "version None of the protocol; this side has 1"),
    (b'{"version": 1, "words": []}\n', "a request needs words"),
    (b'{"version": 1, "words": [1]}\n', "a request needs words"),
    (b"x" * (protocol.MAX_LINE_BYTES + 10) + b"\n", "a line of more than 1048576 bytes"),
)


def test_bad_requests_and_clients_that_stay(path: Path, command: Ctl) -> None:
    """Each is answered; an open connection does not keep the switch from ending."""
    with running(path, "--no-p4") as (process, _), socket.socket(socket.AF_UNIX) as client:
        code, _, err = command.run("show_tables")
        assert (code, err) == (
            1,
            "softswitch-ctl: the switch has no program yet; a controller can load one\n",
        )
        for line, error in _BAD_REQUESTS:
            with socket.socket(socket.AF_UNIX) as other:
                other.settimeout(TIMEOUT_S)
                other.connect(str(path))
                other.sendall(line)
                answer = other.makefile("rb").readline()
                assert error in json.loads(answer)["error"]
        client.connect(str(path))
        client.sendall(b'{"version"')
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
        assert process.stderr.read() == ""


def test_default_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert protocol.default_path(3) == Path("/run/softswitch/device-3.sock")
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert protocol.default_path(3) == tmp_path / "softswitch/device-3.sock"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/somewhere")
    assert protocol.default_path(3) == Path("/somewhere/softswitch-1234/device-3.sock")


def test_run_time_dir_is_private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    monkeypatch.setattr(protocol, "run_time_dir", lambda: directory)
    protocol.make_run_time_dir()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    directory.chmod(0o777)
    protocol.make_run_time_dir()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    directory.rmdir()
    directory.symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="is not a directory of this user"):
        protocol.make_run_time_dir()


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Needs no switch."""
    assert ctl.main(["table_add", "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("table_add TABLE ACTION KEY... => [PARAMETER...] [PRIORITY]\n  Add an ")
    assert ctl.main(["help", "swap_configs"]) == 1
    assert capsys.readouterr().err == (
        "softswitch-ctl: there is no command 'swap_configs': programs are replaced by P4Runtime's "
        "SetForwardingPipelineConfig\n"
    )
    assert ctl.main(["help"]) == 0
    assert "\n  set_queue_rate PACKETS_PER_SECOND [PORT [PRIORITY]]\n" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        ctl.main(["--device-id", "x", "show_tables"])
    assert ended.value.code == 2


def test_nobody_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert ctl.main(["--control", str(tmp_path / "none"), "show_tables"]) == 1
    assert capsys.readouterr().err.startswith(
        f"softswitch-ctl: no switch listens at {tmp_path / 'none'}"
    )
