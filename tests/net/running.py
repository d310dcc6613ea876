# SPDX-License-Identifier: Apache-2.0
"""A programmed fabric in this process, for a test to look at from all sides."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, cast

from controller.counters import FabricCounters, read_fabric
from controller.fabric import Fabric
from controller.policy import Policy
from topologies.emulation import Emulation
from topologies.netns import Namespace
from topologies.programming import program
from topologies.rundir import RunDir
from topologies.schema import load_topology

TARGET = cast(Literal["softswitch", "bmv2"], os.environ.get("MRC_TARGET", "softswitch"))
CONNECT_TIMEOUT_S = 20.0


@contextmanager
def running(
    topology: Path, run_dir: Path, linux_switches: Collection[str] = ()
) -> Iterator[Emulation]:
    """A fabric of this topology file, programmed with the default policy."""
    fabric = Fabric.from_topology(load_topology(topology))
    with (
        RunDir(run_dir) as locked,
        Emulation(fabric, topology, TARGET, locked, linux_switches=linux_switches) as emulation,
    ):
        apply(emulation, Policy())
        yield emulation


def apply(emulation: Emulation, policy: Policy) -> None:
    """Bring all devices to what the policy wants."""
    asyncio.run(program(emulation, policy))


def counters(emulation: Emulation) -> FabricCounters:
    """All counters of all devices."""
    found = asyncio.run(read_fabric(emulation.inventory, connect_timeout_s=CONNECT_TIMEOUT_S))
    assert not found.errors, found.errors
    return found


@contextmanager
def namespace_of(emulation: Emulation, node: str) -> Iterator[Namespace]:
    """The network namespace of a host, or of a switch that Linux plays."""
    namespace = Namespace.of_process(emulation.net[node].pid)
    try:
        yield namespace
    finally:
        namespace.close()


@contextmanager
def udp_socket(emulation: Emulation, host: str, port: int) -> Iterator[socket.socket]:
    """A UDP socket on a host's address."""
    with namespace_of(emulation, host) as namespace:
        opened = namespace.open_socket(socket.AF_INET6, socket.SOCK_DGRAM)
    with opened:
        opened.bind((emulation.inventory.hosts[host].address, port))
        opened.settimeout(5.0)
        yield opened


# ---- Linux as a peer ----------------------------------------------------------------------------

NEXT_HOP = "fe80::1"  # stands for the neighbour on each link; it is never asked for


def via(interface: str, mac: str) -> tuple[str, str]:
    """(neighbour entry, next hop of a route) for a neighbour that cannot be asked for its MAC."""
    return (
        f"neigh replace {NEXT_HOP} lladdr {mac} dev {interface} nud permanent",
        f"via {NEXT_HOP} dev {interface} onlink",
    )
