# SPDX-License-Identifier: Apache-2.0
"""The network namespace that the tests run in, and the veth pairs between tests and switches."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

# A jumbo frame of 9,000 bytes of IPv6 with an outer header of 40 and a little to spare.
MTU_BYTES = 9216


class NamespaceError(Exception):
    """The tests may not run here, or a command of iproute2 failed; the message says what to do."""


def require_private_namespace() -> None:
    """Raise NamespaceError unless this network namespace is empty, as `unshare --net` makes it.

    The tests make interfaces and listen on fixed ports, and a machine's own namespace is no place
    for either. (Comparing with /proc/1/ns/net would say less, and containers forbid to read it.)
    """
    done = subprocess.run(["ip", "-brief", "link", "show", "up"], text=True, capture_output=True)
    if done.returncode:
        raise NamespaceError(f"ip link: {done.stderr.strip()}")
    others = [name for name, *_ in map(str.split, done.stdout.splitlines()) if name != "lo"]
    if others:
        raise NamespaceError(
            f"the PTF tests need a network namespace of their own, and this one has "
            f"{', '.join(others)}: run `make ptf`, or "
            "`unshare --net -- .venv/bin/python -m pytest ptf_tests`"
        )


def _ip(commands: Iterable[str]) -> None:
    """Run iproute2 commands in one process."""
    done = subprocess.run(
        ["ip", "-batch", "-"], input="\n".join(commands), text=True, capture_output=True
    )
    if done.returncode:
        raise NamespaceError(f"ip -batch failed: {done.stderr.strip()}")


class VethPairs:
    """Veth pairs without IPv6, offloads or limits that a test would notice.

    ``ends`` are (switch's end, test's end). Use as a context manager; the pairs are gone after it.
    """

    def __init__(self, ends: Sequence[tuple[str, str]]) -> None:
        self._ends = ends

    def __enter__(self) -> VethPairs:
        # For interfaces to come: no router solicitations, no neighbour discovery.
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
        _ip(["link set lo up"])
        try:
            for switch_end, test_end in self._ends:
                _ip([f"link add {switch_end} mtu {MTU_BYTES} type veth peer name {test_end}"])
            interfaces = [name for pair in self._ends for name in pair]
            _ip(f"link set {name} mtu {MTU_BYTES} up" for name in interfaces)
            for name in interfaces:
                self._offloads_off(name)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _remove(self) -> None:
        existing = {name for _, name in socket.if_nameindex()}
        _ip(f"link del {name}" for name, _ in self._ends if name in existing)

    @staticmethod
    def _offloads_off(name: str) -> None:
        done = subprocess.run(
            ["ethtool", "-K", name, "rx", "off", "tx", "off", "gro", "off", "gso", "off"],
            text=True,
            capture_output=True,
        )
        if done.returncode:
            raise NamespaceError(f"ethtool -K {name}: {done.stderr.strip()}")
