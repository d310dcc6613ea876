# SPDX-License-Identifier: Apache-2.0
"""p4runtime-shell 0.0.6, unchanged, from a virtual environment of its own, on softswitch."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc

from ptf_tests.switch import SwitchProcess

pytestmark = pytest.mark.net

ROOT = Path(__file__).resolve().parents[2]
SESSION = Path(__file__).with_name("shell_session.py")
PROGRAM = ROOT / "tests" / "softswitch" / "data" / "entities"
DEVICE_ID = 901
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def shell_python() -> Path:
    """The interpreter that has p4runtime-shell."""
    venv = Path(os.environ.get("MRC_SHELL_VENV", ROOT / ".venv-shell"))
    python = venv / "bin" / "python"
    if not python.exists():
        pytest.fail(
            f"p4runtime-shell is not installed in {venv}: run `make shell-deps`, or set "
            "MRC_SHELL_VENV to a virtual environment made from requirements-shell.txt"
        )
    return python


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[SwitchProcess]:
    """A switch whose ports 1 and 2 are the ends of one veth pair."""
    names = ("shell-eth1", "shell-eth2")
    subprocess.run(
        ["ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1]], check=True
    )
    process = SwitchProcess("softswitch", DEVICE_ID, dict(enumerate(names, 1)), tmp_path / "log")
    try:
        for name in names:
            # No neighbour discovery: its packets would be counted too.
            subprocess.run(["sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=1"], check=True)
            subprocess.run(["ip", "link", "set", "dev", name, "up"], check=True)
        process.start()
        yield process
    finally:
        process.stop()
        subprocess.run(["ip", "link", "delete", names[0]], check=True)


def wait_until_ready(switch: SwitchProcess) -> None:
    """Wait until P4Runtime answers; raises SwitchError with the log when the switch has ended."""
    deadline = time.monotonic() + TIMEOUT_S
    with grpc.insecure_channel(switch.address) as channel:
        stub = p4r_grpc.P4RuntimeStub(channel)
        while True:
            switch.check()
            try:
                stub.Capabilities(p4r.CapabilitiesRequest(), wait_for_ready=True, timeout=1)
            except grpc.RpcError:
                assert time.monotonic() < deadline, switch.log_tail()
            else:
                return


def test_shell_session(switch: SwitchProcess, shell_python: Path) -> None:
    wait_until_ready(switch)
    done = subprocess.run(
        [
            *(shell_python, SESSION, switch.address, str(DEVICE_ID)),
            *(f"{PROGRAM}.p4info.txtpb", f"{PROGRAM}.json"),
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    report = f"{done.stdout}\n{done.stderr}\nswitch:\n{switch.log_tail()}"
    assert done.returncode == 0, report
    assert done.stdout.count("ok: ") == 14, report
