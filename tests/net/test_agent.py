# SPDX-License-Identifier: Apache-2.0
"""The host agent's protocol and life time."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mrc.agent_client import AgentClient, AgentError
from mrc.messages import (
    ProbeRequest,
    ProbeTarget,
    WriteRequest,
)
from tests.net.agents import (
    LEFT,
    LEFT_ADDRESS,
    PATIENCE_S,
    RIGHT,
    RIGHT_ADDRESS,
    Lone,
    agent,
    run,
    start_agent,
    until,
    until_ready,
    veth_pair,
)

pytestmark = pytest.mark.net


def converse(path: Path, *lines: bytes) -> list[dict[str, Any]]:
    """Send lines over one connection; the answers."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(path))
        connection.sendall(b"".join(lines))
        with connection.makefile("rb") as answers:
            return [json.loads(answers.readline()) for _ in lines]


def test_bad_commands_are_answered_with_what_is_allowed(lone: Lone) -> None:
    answers = converse(
        lone.client.path,
        b"nonsense\n",
        b"[1]\n",
        b"{}\n",
        b'{"command": "fly"}\n',
        b'{"command": "register"}\n',
        b'{"command": "stats", "verbose": true}\n',
        b'{"command": "read_digest", "rkey": 5}\n',
        b'{"command": "probe", "targets": []}\n',
        b'{"command": "register", "length": 16}\n',
    )
    assert [answer["ok"] for answer in answers] == [False] * 8 + [True]
    errors = [answer.get("error", "") for answer in answers]
    commands = (
        "probe, register, deregister, read_digest, create_qp, connect_qp, destroy_qp, write, "
        "stats, shutdown"
    )
    assert errors[0].startswith("command line: Expecting value")
    assert errors[1] == "command line: must be a JSON object"
    assert errors[2] == f"command = None: allowed are {commands}"
    assert errors[3] == f"command = 'fly': allowed are {commands}"
    assert errors[4] == "register: parameter 'length' is missing: allowed are length, va, rkey"
    assert errors[5] == "stats: unknown parameter 'verbose': allowed are none"
    assert errors[6] == "read_digest: rkey = 5: registered are none"
    assert errors[7] == "probe: targets: must be a list of at least one target"


def test_self_addressed_ev_probes_are_refused(lone: Lone) -> None:
    target = ProbeTarget(mac=lone.wire.mac_text, address=LEFT_ADDRESS, path_evs=[1])
    with pytest.raises(AgentError, match=r"targets\[0\]: fd4d.* is this host; a loop needs a carr"):
        run(lone.client.probe(ProbeRequest(targets=[target])))


def test_a_command_ends_when_its_client_hangs_up(lone: Lone) -> None:
    request = WriteRequest(
        address=RIGHT_ADDRESS,
        mac=lone.wire.mac_text,
        qp=1,
        va=0,
        rkey=0,
        length=8 << 20,
        seed=0,
        payload=256,
        rate=100,
    )

    async def hang_up() -> tuple[int, int]:
        with pytest.raises(AgentError, match=r"no answer to write within 0\.3 s"):
            await lone.client.call("write", request.to_json(), 0.3)
        sent: list[int] = []

        async def unchanged() -> bool:
            sent.append((await lone.client.stats())["frames_sent"])
            await asyncio.sleep(0.1)  # ten packets' time
            return bool((await lone.client.stats())["frames_sent"] == sent[-1])

        await until(unchanged)
        return sent[0], sent[-1]

    first, last = run(hang_up())
    assert 0 < first <= last < 100


def test_shutdown_answers_and_ends(tmp_path: Path) -> None:
    with veth_pair() as (left, _):
        control = tmp_path / "a.sock"
        process = start_agent(left, LEFT, LEFT_ADDRESS, control)
        try:
            client = AgentClient(control)

            async def shut_down() -> None:
                await until_ready(client)
                await client.shutdown()

            run(shut_down())
            _, errors = process.communicate(timeout=PATIENCE_S)
            assert (process.returncode, errors) == (0, "")
            assert not control.exists()
            with pytest.raises(AgentError, match="No such file"):
                run(client.stats())
        finally:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_the_middle_of_a_command(tmp_path: Path, number: int) -> None:
    with veth_pair() as (left, _):
        control = tmp_path / "a.sock"
        process = start_agent(left, LEFT, LEFT_ADDRESS, control)
        try:
            client = AgentClient(control)

            async def interrupt() -> None:
                await until_ready(client)
                target = ProbeTarget(mac="02:00:00:00:00:01", carrier="fcbb:bb00:2000:6000::")
                request = ProbeRequest(targets=[target], count=1000, rate=50)
                probing = asyncio.create_task(client.probe(request))

                async def started() -> bool:
                    return bool((await client.stats())["frames_sent"])

                await until(started)
                process.send_signal(number)
                with pytest.raises(AgentError, match="ended before it answered probe"):
                    await probing

            run(interrupt())
            _, errors = process.communicate(timeout=PATIENCE_S)
            assert (process.returncode, errors) == (0, "")
            assert not control.exists()
        finally:
            process.kill()
            process.communicate()


def failure(process: subprocess.Popen[str]) -> str:
    """What a process that must fail says."""
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode not in (0, None)
    return errors


def test_start_failures_say_why(tmp_path: Path) -> None:
    with veth_pair() as (left, right):
        control = tmp_path / "a.sock"
        errors = failure(start_agent(left, "eth7", LEFT_ADDRESS, control))
        assert errors == "mrc.agent: interface eth7: [Errno 19] No such device\n"
        errors = failure(start_agent(left, LEFT, "10.0.0.1", control))
        assert "--address 10.0.0.1: must be an IPv6 address" in errors
        errors = failure(start_agent(left, LEFT, LEFT_ADDRESS, tmp_path / "no" / "a.sock"))
        assert re.match(r"mrc\.agent: .*/no/a\.sock: \[Errno 2\]", errors)
        with agent(left, LEFT, LEFT_ADDRESS, control):
            errors = failure(start_agent(left, LEFT, LEFT_ADDRESS, tmp_path / "b.sock"))
            assert "UDP port 4791 in this namespace" in errors
            assert "is another agent running here?" in errors
            errors = failure(start_agent(right, RIGHT, RIGHT_ADDRESS, control))
            assert errors == f"mrc.agent: {control}: another agent listens on it\n"


def test_a_socket_left_by_a_killed_agent_is_replaced(tmp_path: Path) -> None:
    with veth_pair() as (left, _):
        control = tmp_path / "a.sock"
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(control))
        with agent(left, LEFT, LEFT_ADDRESS, control) as client:
            assert run(client.stats())["interface"] == LEFT
