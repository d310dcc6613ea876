# SPDX-License-Identifier: Apache-2.0
"""Tests that make interfaces and switches: in a private network namespace or not at all."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptf_tests.namespace import NamespaceError, require_private_namespace
from tests.net.agents import (
    LEFT,
    LEFT_ADDRESS,
    RIGHT,
    RIGHT_ADDRESS,
    Lone,
    Pair,
    WireEnd,
    agent,
    run,
    veth_pair,
)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with (
        veth_pair() as (left, right),
        agent(left, LEFT, LEFT_ADDRESS, tmp_path / "left.sock") as left_client,
        agent(right, RIGHT, RIGHT_ADDRESS, tmp_path / "right.sock") as right_client,
    ):
        macs = [run(client.stats())["mac"] for client in (left_client, right_client)]
        yield Pair(left_client, right_client, left, right, *macs)


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[Lone]:
    with (
        veth_pair() as (left, right),
        agent(left, LEFT, LEFT_ADDRESS, tmp_path / "left.sock") as client,
    ):
        wire = WireEnd(right, RIGHT)
        try:
            mac = bytes.fromhex(run(client.stats())["mac"].replace(":", ""))
            yield Lone(client, wire, mac)
        finally:
            wire.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PTF's switches stay for the rest of the session, on ports that fabrics need: they go last."""
    items.sort(key=lambda item: item.nodeid.startswith("ptf_tests/"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to run in the machine's own namespace, before anything is made."""
    if session.config.option.collectonly:
        return
    try:
        require_private_namespace()
    except NamespaceError as error:
        raise pytest.UsageError(str(error)) from None
    subprocess.run(["ip", "link", "set", "dev", "lo", "up"], check=True)
