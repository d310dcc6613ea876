# SPDX-License-Identifier: Apache-2.0
"""`python -m softswitch` as a process: how it starts, ends and fails. Needs no root."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc

from tests.softswitch.p4rt import DATA, RawClient, load_config

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60
READY = "Server listening on "


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "softswitch", *arguments]


@contextmanager
def switch(
    *arguments: str, address: str = "127.0.0.1:0", target: Sequence[str] = ()
) -> Iterator[Any]:
    """A running switch; gives the process and its address. It is killed when it is still there."""
    process = subprocess.Popen(
        # A control socket only where a test says so: its default place is shared by all processes.
        command("--control", "none", *arguments, "--", "--grpc-server-addr", address, *target),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith(READY):
            _, error = process.communicate(timeout=TIMEOUT_S)
            raise AssertionError(f"the switch did not start: {line}{error}")
        yield process, line.removeprefix(READY).strip()
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def fails(*arguments: str) -> str:
    """Run a command line that must fail; gives its single line of standard error."""
    done = subprocess.run(
        command(*arguments),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_with_code_0(number: signal.Signals, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with switch("--no-p4", "--device-id", "3", "--log-file", str(log)) as (process, address):
        with grpc.insecure_channel(address) as channel:
            stub = p4r_grpc.P4RuntimeStub(channel)
            answer = stub.Capabilities(p4r.CapabilitiesRequest(device_id=3), timeout=TIMEOUT_S)
            assert answer.p4runtime_api_version.startswith("1.4")
            # An open stream must not keep it from ending.
            stream = stub.StreamChannel(iter(()))
            process.send_signal(number)
            assert process.wait(TIMEOUT_S) == 0
            del stream
        assert process.stderr.read() == ""
    text = log.read_text()
    assert "device 3 serves P4Runtime on 127.0.0.1:" in text
    assert "ending on a signal" in text


@pytest.mark.parametrize("module", ["asyncio.events", "argparse", "ctypes", "grpc", "finsy.proto"])
def test_interrupted_while_it_starts(module: str) -> None:
    """Whatever it is importing then, or serving soon after: it ends without a word."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-X", "importtime"),
            *command("--no-p4", "--control", "none", "--", *LOCAL)[1:],
        ],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if line.rpartition("|")[2].strip() == module:
                break
        process.send_signal(signal.SIGINT)
        # Not `communicate`, which misses what the loop has read ahead and begins within a line.
        error = process.stderr.read()
        process.wait(TIMEOUT_S)
    finally:
        process.kill()
        process.communicate()
    words = [line for line in error.splitlines() if not line.startswith("import time:")]
    assert words == []
    assert process.returncode in (0, -signal.SIGINT)


def test_killed_and_started_again() -> None:
    """Its clients are told, its port is free at once, and the next one starts afresh."""
    program = str(DATA / "entities.json")
    with switch(program, "--device-id", "7") as (process, address):
        client = RawClient(address, load_config())
        stream = client.stream()
        stream.arbitrate(5)
        client.election_id = 5
        client.set_pipeline()
        client.write(client.insert("exact_table", {"dst_mac": 1}, "drop"))
        process.kill()
        assert process.wait(TIMEOUT_S) == -signal.SIGKILL
        with pytest.raises(grpc.RpcError) as caught:
            stream.receive("packet")
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        client.close()
    with switch(program, "--device-id", "7", address=address):
        client = RawClient(address, load_config())
        # Election ids start afresh too (a full restart): a lower one is the primary.
        assert client.stream().arbitrate(1).status.code == 0
        with pytest.raises(grpc.RpcError) as caught:
            client.write()
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        client.set_pipeline()
        client.write(client.insert("exact_table", {"dst_mac": 1}, "drop"))
        client.close()


def test_program_from_the_command_line() -> None:
    """It runs, but P4Runtime knows no entities before a P4Info was set, as in BMv2."""
    with switch(str(DATA / "entities.json"), "--device-id", "7") as (process, address):
        client = RawClient(address, load_config())
        request = p4r.GetForwardingPipelineConfigRequest(device_id=7)
        response = client.stub.GetForwardingPipelineConfig(request, timeout=TIMEOUT_S)
        assert not response.HasField("config")
        client.stream().arbitrate(1)
        client.set_pipeline()
        client.write(client.insert("exact_table", {"dst_mac": 1}, "drop"))
        client.close()
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0


def test_ignored_options_are_named_on_standard_error() -> None:
    with switch("--no-p4", "--thrift-port", "9090") as (process, _):
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
        assert process.stderr.read() == (
            "softswitch: WARNING: --thrift-port has no effect: softswitch has no Thrift server; "
            "use P4Runtime or softswitch-ctl\n"
        )


def test_taken_tcp_port(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        error = fails("--no-p4", "--log-file", str(log), "--", "--grpc-server-addr", address)
    assert error == f"softswitch: ERROR: cannot listen on {address}: is the port taken?\n"
    assert f"cannot listen on {address}" in log.read_text()


def test_address_that_is_none() -> None:
    error = fails("--no-p4", "--", "--grpc-server-addr", "nonsense")
    assert "nonsense" in error


def test_missing_interface(tmp_path: Path) -> None:
    log = tmp_path / "log"
    error = fails("--no-p4", "-i", "1@no-such-if", "--log-file", str(log), "--", *LOCAL)
    assert "no-such-if" in error
    assert "no-such-if" in log.read_text()


LOCAL = ("--grpc-server-addr", "127.0.0.1:0")


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not JSON"), ("[]", "BMv2 JSON"), ('{"__meta__": {"version": [9, 0]}}', "9")],
)
def test_bad_program(tmp_path: Path, text: str, message: str) -> None:
    program = tmp_path / "program.json"
    program.write_text(text)
    assert message in fails(str(program), "--", *LOCAL)


def test_missing_program(tmp_path: Path) -> None:
    assert "nothing.json" in fails(str(tmp_path / "nothing.json"), "--", *LOCAL)


def test_log_file_that_cannot_be_written(tmp_path: Path) -> None:
    error = fails("--no-p4", "--log-file", str(tmp_path / "none" / "log"), "--", *LOCAL)
    assert "--log-file" in error


def test_wrong_option_is_one_line() -> None:
    assert fails("--no-such-option").startswith("softswitch: error: unrecognized arguments")


def test_option_on_the_wrong_side_of_the_dashes() -> None:
    assert "come after --" in fails("--no-p4", *LOCAL)
