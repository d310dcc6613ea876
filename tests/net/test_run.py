# SPDX-License-Identifier: Apache-2.0
"""`python -m topologies.run` from outside: what it prints, how it ends, and that nothing stays."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

import pytest

from tests.net.running import TARGET
from topologies.processes import REPOSITORY

pytestmark = pytest.mark.net

START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 20.0
READY = "programmed: "


class Runner:
    """Runs of one test, all with one run directory."""

    def __init__(self, directory: Path) -> None:
        self.run_dir = directory / "run"
        self.environment = {**os.environ, "MRC_RUN_DIR": str(self.run_dir)}
        self._output = directory / "output"
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Start a run that stays, and wait until its fabric is programmed."""
        command = [sys.executable, "-m", "topologies.run", "--target", TARGET, *options]
        with self._output.open("wb") as output:
            run = subprocess.Popen(
                [*command, "--stay", "--no-demo"],
                cwd=REPOSITORY,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.started.append(run)
        wait_for(lambda: READY in self.output or run.poll() is not None, START_TIMEOUT_S)
        assert run.poll() is None, self.output
        return run

    @property
    def output(self) -> str:
        """What the last run has printed."""
        return self._output.read_text()

    def tool(self, module: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run another module of ours to its end."""
        return subprocess.run(
            [sys.executable, "-m", module, *options],
            cwd=REPOSITORY,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def processes(self) -> list[str]:
        """Command lines of living processes that have our run directory in their environment."""
        mark = f"MRC_RUN_DIR={self.run_dir}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
            except OSError:  # it has ended, or is a zombie
                continue
        return found


def wait_for(condition: Callable[[], bool], timeout_s: float = END_TIMEOUT_S) -> None:
    """Wait until a condition holds; fail when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def interfaces() -> str:
    """All interfaces here."""
    return subprocess.run(["ip", "-brief", "link"], check=True, capture_output=True).stdout.decode()


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    """A runner whose runs are ended in any case."""
    made = Runner(tmp_path)
    yield made
    for run in made.started:
        if run.poll() is None:
            run.kill()
            run.wait()


def test_whole_run_without_a_terminal(runner: Runner) -> None:
    before = interfaces()
    started = time.monotonic()
    answer = runner.tool("topologies.run", "--target", TARGET)
    took = time.monotonic() - started
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "12 of 12 messages have the same SHA-256" in answer.stdout
    # A map per plane and one of paths, before and after the cut: only one link, and its path.
    assert answer.stdout.count("T0-T1 links of plane") == 4
    assert answer.stdout.count(" 100 % ") == 2
    assert "cut: p1t0-0 - p1t1-1" in answer.stdout
    assert took < 60
    assert runner.processes() == []
    assert interfaces() == before
    assert not runner.run_dir.exists()


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name
)
def test_signal_takes_everything_down(runner: Runner, number: signal.Signals) -> None:
    before = interfaces()
    run = runner.start()
    assert "p0t0-0-eth1" in interfaces()
    assert len(runner.processes()) >= 1 + 12 + 4  # runner, switches and NICs, agents
    run.send_signal(number)
    assert run.wait(END_TIMEOUT_S) == 128 + number
    assert "all is removed" in runner.output
    assert runner.processes() == []
    assert interfaces() == before
    assert not runner.run_dir.exists()


def test_kill_leaves_only_files_and_the_next_start_works(runner: Runner) -> None:
    before = interfaces()
    run = runner.start()
    run.kill()
    run.wait()
    # At once, while the kernel still takes the first one apart.
    second = runner.start()
    second.kill()
    second.wait()
    wait_for(lambda: runner.processes() == [] and interfaces() == before)
    assert (runner.run_dir / "inventory.json").exists()
    answer = runner.tool("controller", "status")
    assert answer.returncode == 1
    assert "make clean-net" in answer.stderr
    answer = runner.tool("topologies.clean")
    assert answer.returncode == 0, answer.stderr
    assert not runner.run_dir.exists()


def test_kill_of_the_runner_during_bring_up_leaves_no_process(runner: Runner) -> None:
    before = interfaces()
    for delay_s in (0.6, 0.9, 1.2):
        run = subprocess.Popen(
            [sys.executable, "-m", "topologies.run", "--target", TARGET, "--no-demo", "--stay"],
            cwd=REPOSITORY,
            env=runner.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        runner.started.append(run)
        time.sleep(delay_s)  # wherever that is
        run.kill()
        run.wait()
        wait_for(lambda: runner.processes() == [] and interfaces() == before)


def test_only_one_fabric_at_a_time(runner: Runner) -> None:
    run = runner.start()
    for module, *options in (("topologies.run", "--no-demo"), ("topologies.clean",)):
        answer = runner.tool(module, *options)
        assert answer.returncode == 1
        assert f"another fabric is running in this network namespace (process {run.pid})" in (
            answer.stderr
        )
    assert run.poll() is None
    run.terminate()
    assert run.wait(END_TIMEOUT_S) == 128 + signal.SIGTERM


def test_switch_that_cannot_start_is_shown_with_its_log(runner: Runner) -> None:
    before = interfaces()
    program = "simple_switch_grpc" if TARGET == "bmv2" else "cc"
    broken = runner.run_dir.parent / "bin"
    broken.mkdir()
    (broken / program).write_text("#!/bin/sh\necho this switch is broken >&2\nexit 3\n")
    (broken / program).chmod(0o755)
    runner.environment["PATH"] = f"{broken}:{os.environ['PATH']}"
    runner.environment["XDG_CACHE_HOME"] = str(broken)  # nothing compiled before is to be used
    answer = runner.tool("topologies.run", "--target", TARGET, "--no-demo")
    assert answer.returncode == 1
    assert "this switch is broken" in answer.stderr
    assert runner.processes() == []
    assert interfaces() == before
    assert not runner.run_dir.exists()


def test_port_that_is_taken_is_named(runner: Runner) -> None:
    before = interfaces()
    with socket.create_server(("127.0.0.1", 50053), reuse_port=True):
        answer = runner.tool("topologies.run", "--target", TARGET, "--no-demo")
    assert answer.returncode == 1
    assert "p1t0-0 needs TCP port 50053, and another program has it" in answer.stderr
    assert runner.processes() == []
    assert interfaces() == before


def test_foreign_files_in_the_run_directory_are_safe(runner: Runner) -> None:
    runner.run_dir.mkdir()
    (runner.run_dir / "thesis.txt").write_text("years of work")
    for module, *options in (("topologies.run", "--no-demo"), ("topologies.clean",)):
        answer = runner.tool(module, *options)
        assert answer.returncode == 1
        assert "MRC_RUN_DIR" in answer.stderr
    assert (runner.run_dir / "thesis.txt").read_text() == "years of work"


def test_run_directory_too_long_for_sockets_is_refused(runner: Runner) -> None:
    runner.environment["MRC_RUN_DIR"] = f"/tmp/{'x' * 100}"
    answer = runner.tool("topologies.run", "--no-demo")
    assert answer.returncode == 1
    assert "shorter path" in answer.stderr


def test_fabric_that_is_too_large_is_refused_before_anything_is_made(runner: Runner) -> None:
    answer = runner.tool("topologies.run", "--topo", "topologies/full-131k.yaml", "--no-demo")
    assert answer.returncode == 1
    assert "cannot be emulated" in answer.stderr
    assert not runner.run_dir.exists()


def test_captures_every_switch_port(runner: Runner, tmp_path: Path) -> None:
    captures = tmp_path / "captures"
    run = runner.start("--pcap", str(captures))
    run.terminate()
    run.wait(END_TIMEOUT_S)
    names = {path.name for path in captures.iterdir()}
    assert {"p0t0-0-eth1_in.pcap", "n1-1-eth3_out.pcap"} <= names
    assert len(names) == 2 * (4 * 4 + 4 * 2 + 4 * 3)  # in and out of T0s, T1s, NICs


def test_prompt_on_a_terminal(runner: Runner) -> None:
    before = interfaces()
    terminal, other_end = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-m", "topologies.run", "--target", TARGET, "--no-demo"],
        cwd=REPOSITORY,
        env={**runner.environment, "TERM": "dumb", "HOME": str(runner.run_dir.parent)},
        stdin=other_end,
        stdout=other_end,
        stderr=other_end,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C works
    )
    runner.started.append(run)
    os.close(other_end)
    with FileIO(terminal, "r+b") as screen:
        read_until(screen, b"fabric> ", START_TIMEOUT_S)

        def command(line: str) -> str:
            screen.write(f"{line}\n".encode())
            return read_until(screen, b"fabric> ", END_TIMEOUT_S)

        assert "p0t0-0|p0t1-1: cut" in command("cut p0t0-0 p0t1-1")
        assert "p0t0-0-eth4<->p0t1-1-eth1 cut" in command("links")
        assert "p0t0-0|p0t1-1: ok" in command("link p0t0-0 p0t1-1 up")
        assert "n1-0|p1t0-1: loss" in command("loss n1-0 p1t0-1 12.5%")
        assert "n1-0|p1t0-1: blackhole" in command("blackhole p1t0-1 n1-0")
        assert "n1-0|p1t0-1: restored" in command("restore")
        assert "no faults" in command("faults")
        both = command("blackhole p0t1-0")
        assert "p0t0-0|p0t1-0: blackhole" in both
        assert "p0t0-1|p0t1-0: blackhole" in both
        assert "p0t0-1|p0t1-0: ok" in command("restore p0t1-0")
        assert "p0t1-0: killed" in command("kill p0t1-0")
        assert "p0t1-0: killed" in command("faults")
        assert re.search(r"\n[1-9]\d* updates on 1 devices", command("restart p0t1-0"))
        assert "no faults" in command("faults")
        assert "p0t1-0 is running" in command("restart p0t1-0")
        assert "allowed: p0t0-0" in command("kill h0-0")
        assert "allowed: h0-0|n0-0" in command("cut h0-0 h1-1")
        assert "usage: cut A B" in command("cut p0t1-0")
        assert "usage: loss A B PERCENT" in command("loss a b")
        assert "fd4d:5243::1:2" in command("h0-0 echo h1-1")
        assert "dev h0-0-eth0" in command("h0-0 ip -6 route")
        assert "p0t1-1" in command("mrcctl path h0-0 h1-1 --ev 0x00080000")
        assert "is of no use" in command("pingall")
        assert "Interrupt" in command("\x03")  # Ctrl-C is the prompt's own and ends nothing
        screen.write(b"exit\n")
        assert run.wait(END_TIMEOUT_S) == 0
    assert runner.processes() == []
    assert interfaces() == before


def read_until(screen: FileIO, mark: bytes, timeout_s: float) -> str:
    """What a terminal shows up to `mark`."""
    shown = b""
    deadline = time.monotonic() + timeout_s
    while not shown.endswith(mark):
        ready, _, _ = select.select([screen], [], [], max(deadline - time.monotonic(), 0))
        assert ready, f"no {mark!r} within {timeout_s} s after {shown.decode(errors='replace')}"
        shown += screen.read(4096) or b""
    return shown.decode()
