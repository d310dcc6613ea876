# SPDX-License-Identifier: Apache-2.0
"""Cables between interfaces, which can be cut, black-holed and made lossy.

A wire is veth - bridge - veth:

    p0t0-0-eth3 ==veth== w7a -[bridge w7]- w7b ==veth== p0t1-1-eth1

The outer ends belong to the switches and hosts and are never touched: setting a switch's own
interface down stops libpcap on every port of that BMv2. A cut sets the inner ends down, and both
switches lose carrier, as they would with a broken cable (dataplane.md, "Links and ports").

The bridges and inner ends lie in a namespace of their own, the patch panel. It is out of sight of
`ip link`, out of reach of the machine's firewall (with br_netfilter loaded, ip6tables would filter
bridged packets), and it goes away with this process, whatever ends it, taking both ends of every
veth pair along.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from topologies.netns import Namespace

CARRIER_TIMEOUT_S = 5.0
_CARRIER_POLL_S = 0.001
# Linux reports the loss of a veth's carrier at once only when the interface numbers of both sides
# differ (net/core/link_watch.c), else within a second. Numbers start from 1 in every namespace.
_FIRST_INNER_INDEX = 1_000_000
_LINK_GROUP = 4791  # of the inner ends, so that all go with one command
_NFT_TABLE = "mrc_fabric"
_LOSS_STEPS = 1_000_000  # of `numgen random`: losses down to 0.0001 %
# A switch sees what the kernel hands it: no half-done checksums, no packets larger than the MTU.
_OFFLOADS = ("rx", "tx", "tso", "gso", "gro", "rxvlan", "txvlan")


class WireError(Exception):
    """A wire that does not exist, or a fault that cannot be; the message says what is allowed."""


@dataclass(frozen=True)
class End:
    """One end of a wire as its device sees it. `mac` as text, `mtu` in bytes of an IP packet."""

    device: str
    interface: str
    mac: str
    mtu: int
    host_pid: int | None = None  # a process in the host's namespace; None: a switch, here


class Fault(Enum):
    """What is wrong with a wire."""

    NONE = "ok"
    CUT = "cut"
    BLACKHOLE = "blackhole"
    LOSS = "loss"


@dataclass(frozen=True)
class Wire:
    """One wire with the names of its inner parts."""

    ends: tuple[End, End]
    inner: tuple[str, str]
    bridge: str

    @property
    def name(self) -> str:
        """`p0t0-0|p0t1-1`, the end that is nearer to the host first."""
        return "|".join(end.device for end in self.ends)


class Wires:
    """All wires of a fabric, and their faults."""

    def __init__(self, cables: Sequence[tuple[End, End]]) -> None:
        """Plug in all cables. Raises NetnsError.

        The switches' ends are up when this returns, without IPv6 (the kernel would send noise of
        its own on a switch's port); a host's end is down and for the host to set up.
        """
        wires = [
            Wire(ends, (f"w{number}a", f"w{number}b"), f"w{number}")
            for number, ends in enumerate(cables)
        ]
        self._wires = {wire.name: wire for wire in wires}
        self._faults = dict.fromkeys(self._wires, Fault.NONE)
        self._panel = Namespace.new()
        self._here = Namespace.current()
        self._hosts: dict[int, Namespace] = {}
        try:
            for pid in {end.host_pid for wire in wires for end in wire.ends} - {None}:
                assert pid is not None
                self._hosts[pid] = Namespace.of_process(pid)
            self._create(wires)
        except BaseException:
            self.close()
            raise

    @property
    def all(self) -> Mapping[str, Wire]:
        """Wires by name."""
        return MappingProxyType(self._wires)

    @property
    def faults(self) -> Mapping[str, Fault]:
        """The fault of each wire, by name."""
        return MappingProxyType(self._faults)

    @property
    def panel(self) -> Namespace:
        """The namespace of bridges and inner ends."""
        return self._panel

    def between(self, a: str, b: str) -> str:
        """The name of the wire between two devices, in either order. Raises WireError."""
        for name in (f"{a}|{b}", f"{b}|{a}"):
            if name in self._wires:
                return name
        near = [name for name in self._wires if a in name.split("|")]
        allowed = (
            ", ".join(near) if near else f"two of its devices, as in {next(iter(self._wires))}"
        )
        raise WireError(f"there is no wire between {a} and {b}; allowed: {allowed}")

    def cut(self, name: str) -> None:
        """Cut a wire: both ends have lost carrier when this returns."""
        wire = self._find(name)
        if self._faults[name] is Fault.CUT:
            return
        self.restore(name)
        self._panel.ip([f"link set dev {inner} down" for inner in wire.inner])
        self._faults[name] = Fault.CUT
        self._wait_for_carrier(wire, False)

    def of_device(self, device: str) -> list[str]:
        """The names of all wires of a device. Raises WireError."""
        names = [name for name in self._wires if device in name.split("|")]
        if not names:
            devices = dict.fromkeys(end for name in self._wires for end in name.split("|"))
            raise WireError(f"{device} has no wires; allowed: {', '.join(devices)}")
        return names

    def blackhole(self, name: str) -> None:
        """Let a wire swallow everything in both directions, unseen by its ends."""
        self._drop(name, "")
        self._faults[name] = Fault.BLACKHOLE

    def loss(self, name: str, percent: float) -> None:
        """Let a wire lose packets at random, each direction by itself. Raises WireError."""
        steps = round(percent / 100 * _LOSS_STEPS)
        if not 0 < steps <= _LOSS_STEPS:
            raise WireError(
                f"a loss of {percent} % is not possible; allowed: {100 / _LOSS_STEPS:.4f} to 100"
            )
        self._drop(name, f"numgen random mod {_LOSS_STEPS} < {steps} ")
        self._faults[name] = Fault.LOSS

    def restore(self, name: str) -> None:
        """End whatever fault a wire has: nothing is lost from when this returns."""
        wire = self._find(name)
        match self._faults[name]:
            case Fault.CUT:
                self._panel.ip([f"link set dev {inner} up" for inner in wire.inner])
                self._wait_for_carrier(wire, True)
            case Fault.BLACKHOLE | Fault.LOSS:
                self._nft(f"flush chain netdev {_NFT_TABLE} {inner}" for inner in wire.inner)
                self._nft(f"delete chain netdev {_NFT_TABLE} {inner}" for inner in wire.inner)
            case Fault.NONE:
                pass
        self._faults[name] = Fault.NONE

    def close(self) -> None:
        """Pull all cables: every end is gone when this returns. To be called once."""
        # One command for all, because the kernel waits for its readers once per command.
        self._panel.run(["ip", "link", "delete", "group", str(_LINK_GROUP)])
        for namespace in (self._panel, self._here, *self._hosts.values()):
            namespace.close()

    def _create(self, wires: Sequence[Wire]) -> None:
        everywhere = [self._here, *self._hosts.values()]
        setting = "net.ipv6.conf.{}.disable_ipv6=1"
        self._panel.run(["sysctl", "-qw", setting.format("all"), setting.format("default")])
        self._panel.ip(list(_panel_lines(wires, self._space)), everywhere)
        self._panel.ip([f"link set group {_LINK_GROUP} up"])
        outer: dict[Namespace, list[str]] = {space: [] for space in everywhere}
        for wire in wires:
            for end in wire.ends:
                outer[self._space(end)].append(end.interface)
        outer[self._panel] = [inner for wire in wires for inner in wire.inner]
        offloads_off = [word for offload in _OFFLOADS for word in (offload, "off")]
        for space, interfaces in outer.items():
            space.run(
                ["xargs", "-I{}", "ethtool", "-K", "{}", *offloads_off], "\n".join(interfaces)
            )
        switch_ports = outer[self._here]
        if switch_ports:
            self._here.run(["xargs", "sysctl", "-qw"], "\n".join(map(setting.format, switch_ports)))
        self._here.ip([f"link set dev {interface} up" for interface in switch_ports])

    def _space(self, end: End) -> Namespace:
        return self._here if end.host_pid is None else self._hosts[end.host_pid]

    def _find(self, name: str) -> Wire:
        if name not in self._wires:
            raise WireError(f"there is no wire {name}; allowed: {', '.join(self._wires)}")
        return self._wires[name]

    def _drop(self, name: str, condition: str) -> None:
        """Drop what leaves the inner ends, which is what the outer ends would receive.

        The hook is on egress because AF_PACKET sees packets before the ingress hook does.
        """
        wire = self._find(name)
        self.restore(name)
        lines = [f"add table netdev {_NFT_TABLE}"]
        for inner in wire.inner:
            hook = f'type filter hook egress device "{inner}" priority 0;'
            lines.append(f"add chain netdev {_NFT_TABLE} {inner} {{ {hook} }}")
            lines.append(f"add rule netdev {_NFT_TABLE} {inner} {condition}drop")
        self._nft(lines)

    def _nft(self, lines: Iterable[str]) -> None:
        self._panel.run(["nft", "-f", "-"], "\n".join(lines) + "\n")

    def _wait_for_carrier(self, wire: Wire, wanted: bool) -> None:
        deadline = time.monotonic() + CARRIER_TIMEOUT_S
        for end in wire.ends:
            while self._space(end).is_running(end.interface) is not wanted:
                if time.monotonic() > deadline:
                    state = "no carrier" if wanted else "carrier"
                    raise WireError(
                        f"{end.interface} still has {state} after {CARRIER_TIMEOUT_S} s"
                    )
                time.sleep(_CARRIER_POLL_S)
        # The kernel shows the state a moment before it opens or closes the transmit queue, both
        # under one lock. Whatever takes that lock, too, returns when the queue is as it should be.
        self._panel.ip([f"link set dev {wire.bridge} up"])


def _panel_lines(wires: Sequence[Wire], space: Callable[[End], Namespace]) -> Iterator[str]:
    common = f"group {_LINK_GROUP} numtxqueues 1 numrxqueues 1"
    index = _FIRST_INNER_INDEX
    for wire in wires:
        mtu = max(end.mtu for end in wire.ends)
        yield (
            f"link add name {wire.bridge} index {index} group {_LINK_GROUP} mtu {mtu} "
            "type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
        )
        for offset, (inner, end) in enumerate(zip(wire.inner, wire.ends, strict=True), 1):
            yield (
                f"link add name {inner} index {index + offset} mtu {mtu} {common} type veth "
                f"peer name {end.interface} address {end.mac} mtu {end.mtu} "
                f"numtxqueues 1 numrxqueues 1 netns {space(end).path}"
            )
            # Two ports: whatever comes in at one goes out at the other. A bridge that learns would
            # drop a packet whose destination address it has seen on the side that it came from.
            yield f"link set dev {inner} master {wire.bridge}"
            yield f"link set dev {inner} type bridge_slave learning off flood on mcast_flood on"
        index += 3
