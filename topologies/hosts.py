# SPDX-License-Identifier: Apache-2.0
"""Hosts: addresses, routes and neighbours set once, and a kernel that sends nothing by itself.

Everything a host would find out by asking is written down, because no switch answers: neighbours,
routes, addresses. What the kernel sends unasked (router solicitations, duplicate address
detection, multicast listener reports) would end as drops in the NIC's counters and is off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from topologies.netns import Namespace
from topologies.schema import HOST_PREFIX

# `all` and `default` of net.ipv6.conf. addr_gen_mode 1: no link-local address.
_QUIET = {
    "disable_ipv6": 0,
    "accept_ra": 0,
    "autoconf": 0,
    "accept_dad": 0,
    "dad_transmits": 0,
    "router_solicitations": 0,
    "addr_gen_mode": 1,
}


@dataclass(frozen=True)
class HostAddress:
    """A host's interface. `mac` and `address` as text, `pid` of a process in its namespace."""

    pid: int
    interface: str
    mac: str
    address: str


def quieten(pid: int) -> None:
    """Settings for interfaces that will come into a host's namespace. Raises NetnsError."""
    settings = [
        f"net.ipv6.conf.{which}.{key}={value}"
        for which in ("all", "default")
        for key, value in _QUIET.items()
    ]
    # The NIC writes the path into the flow label; Linux would put a random number there.
    settings.append("net.ipv6.auto_flowlabels=0")
    namespace = Namespace.of_process(pid)
    try:
        namespace.run(["sysctl", "-qw", *settings])
    finally:
        namespace.close()


def configure(hosts: Sequence[HostAddress]) -> None:
    """Give all hosts their addresses, routes and neighbours. Raises NetnsError."""
    for host in hosts:
        namespace = Namespace.of_process(host.pid)
        try:
            namespace.ip(list(_commands(host, hosts)))
        finally:
            namespace.close()


def _commands(host: HostAddress, hosts: Sequence[HostAddress]) -> Iterator[str]:
    yield "link set dev lo up"
    # Without ARP (for IPv6: neighbour discovery) Linux joins no solicited-node group and so
    # reports none.
    yield f"link set dev {host.interface} arp off up"
    yield f"addr add {host.address}/128 dev {host.interface} nodad noprefixroute"
    yield f"route add {HOST_PREFIX} dev {host.interface}"
    for other in hosts:
        if other != host:
            yield (
                f"neigh add {other.address} lladdr {other.mac} dev {host.interface} nud permanent"
            )
