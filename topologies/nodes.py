# SPDX-License-Identifier: Apache-2.0
"""Mininet's view of the fabric: hosts, switches of both targets, NICs, links.

Mininet gives hosts their namespaces and the prompt its nodes. Interfaces, addresses and processes
are made in bulk elsewhere (wires.py, hosts.py, processes.py), because one shell command after the
other would take a fabric of 100 interfaces most of a minute.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import Popen
from typing import Any

from mininet.link import Intf, Link
from mininet.net import Mininet
from mininet.node import Host, Node, Switch

from controller.addressing import CPU_PORT, DROP_PORT
from topologies.processes import die_with_us
from topologies.wires import Wires

# TCP ports, each plus the device id.
FIRST_GRPC_PORT = 50050
FIRST_THRIFT_PORT = 9090
# Queues: 1 is served first and carries control packets and trimmed headers, 0 data.
PRIORITY_QUEUES = 2
# How many packets per second control gets for each of the data: while a link sends a packet of
# 4,500 bytes, it could send 36 trimmed ones.
CONTROL_RATE = 16
DEFAULT_QUEUE_DEPTH = 64  # packets, of both targets


class _Bound(Node):
    """A node whose shell ends with us."""

    def _popen(self, cmd: Sequence[str], **params: Any) -> Popen[bytes]:
        return super()._popen(die_with_us(cmd), **params)


class FabricHost(_Bound, Host):
    """A host: its own network and mount namespaces. hosts.py configures it."""

    def config(self, **_: Any) -> dict[str, Any]:
        """Nothing to do here."""
        return {}


class P4Switch(_Bound, Switch):
    """A switch or NIC as a process of the target; emulation.py starts it."""

    def __init__(self, name: str, *, device_id: int, **params: Any) -> None:
        super().__init__(name, dpid=f"{device_id:x}", **params)
        self.device_id = device_id
        self.grpc_port = FIRST_GRPC_PORT + device_id
        self.queue_rates: dict[int, int] = {}  # packets per second by port
        self.queue_depth = DEFAULT_QUEUE_DEPTH

    def start(self, controllers: Sequence[object]) -> None:
        """Nothing to do here."""

    def stop(self, deleteIntfs: bool = False) -> None:  # noqa: N803 - Mininet's name
        """Nothing to do here: interfaces go with their wires."""

    def command(self, pcap: Path | None) -> list[str]:
        """The command line that starts the target with this switch's ports."""
        raise NotImplementedError

    @property
    def grpc_address(self) -> str:
        """Where its P4Runtime server listens."""
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def thrift_port(self) -> int | None:
        """TCP port of the target's Thrift server, None where it has none."""
        return None

    def data_ports(self) -> Mapping[int, str]:
        """Interface by port number."""
        return {port: intf.name for port, intf in self.intfs.items() if port > 0}

    def _options(self, pcap: Path | None) -> list[str]:
        options = ["--no-p4", "--device-id", str(self.device_id), "--log-console"]
        for port, interface in self.data_ports().items():
            options += ["-i", f"{port}@{interface}"]
        return options if pcap is None else [*options, f"--pcap={pcap}"]

    def _target_options(self) -> list[str]:
        return [
            *("--grpc-server-addr", self.grpc_address),
            *("--cpu-port", str(CPU_PORT)),
            *("--drop-port", str(DROP_PORT)),
            *("--priority-queues", str(PRIORITY_QUEUES)),
        ]


class SoftSwitch(P4Switch):
    """softswitch; its queues are set up by options."""

    def command(self, pcap: Path | None) -> list[str]:
        """See P4Switch."""
        command = [sys.executable, "-m", "softswitch", *self._options(pcap), "--"]
        command += [*self._target_options(), "--queue-depth", str(self.queue_depth)]
        for port, rate in self.queue_rates.items():
            command += ["--queue-rate", f"{port}.0={rate}"]
            command += ["--queue-rate", f"{port}.1={CONTROL_RATE * rate}"]
        return command


class Bmv2Switch(P4Switch):
    """BMv2's simple_switch_grpc; its queues are set up by Thrift once it runs."""

    @property
    def thrift_port(self) -> int | None:
        """See P4Switch."""
        return FIRST_THRIFT_PORT + self.device_id

    def command(self, pcap: Path | None) -> list[str]:
        """See P4Switch."""
        return [
            "simple_switch_grpc",
            *self._options(pcap),
            *("--log-level", "warn"),
            *("--thrift-port", str(self.thrift_port)),
            "--",
            *self._target_options(),
        ]

    def queue_commands(self) -> list[str]:
        """What simple_switch_CLI is to do: a rate for data and control each, as a port-wide rate
        would hold headers back behind data (dataplane.md, "Congestion")."""
        commands = []
        if self.queue_depth != DEFAULT_QUEUE_DEPTH:
            commands += [f"set_queue_depth {self.queue_depth} {port}" for port in self.data_ports()]
        for port, rate in self.queue_rates.items():
            commands += [
                f"set_queue_rate {rate} {port} 0",
                f"set_queue_rate {CONTROL_RATE * rate} {port} 1",
            ]
        return commands


class FabricIntf(Intf):
    """An interface that wires.py has made."""

    def __init__(self, name: str, node: Node, port: int, mac: str, address: str | None) -> None:
        self.address = address
        # It is where it belongs already: nothing to move.
        super().__init__(name, node=node, port=port, mac=mac, moveIntfFn=lambda *_: None)

    def config(self, **_: Any) -> dict[str, Any]:
        """Nothing to do here."""
        return {}

    def IP(self) -> str | None:  # noqa: N802 - Mininet's name
        """The host's IPv6 address; Mininet would look for an IPv4 one."""
        return self.address

    def updateIP(self) -> str | None:  # noqa: N802 - Mininet's name
        """What the prompt puts in place of a host's name."""
        return self.address

    def ifconfig(self, *args: str) -> str:
        """Mininet sets links down and up with this: it is the wire that goes down, never the
        interface of a switch."""
        if args == ("down",):
            self.link.cut()
        elif args == ("up",):
            self.link.restore()
        else:
            return super().ifconfig(*args)
        return ""

    def delete(self) -> None:
        """Nothing to do here: interfaces go with their wires."""


class WireLink(Link):
    """A wire as a link between two nodes."""

    def __init__(self, wires: Wires, name: str, intf1: FabricIntf, intf2: FabricIntf) -> None:
        self.intf1, self.intf2 = intf1, intf2
        intf1.link = intf2.link = self
        self._wires, self._name = wires, name

    def status(self) -> str:
        """The wire's fault, for the prompt's `links`."""
        return self._wires.faults[self._name].value

    def cut(self) -> None:
        """Cut the wire."""
        self._wires.cut(self._name)

    def restore(self) -> None:
        """End the wire's fault."""
        self._wires.restore(self._name)

    def stop(self) -> None:
        """Nothing to do here: wires go all at once."""


def empty_network() -> Mininet:
    """A Mininet without nodes.

    Mininet would raise system-wide limits (sysctl) when the first one is made, and leave them so.
    """
    Mininet.inited = True
    return Mininet(build=False, controller=None, host=FabricHost, link=WireLink)
