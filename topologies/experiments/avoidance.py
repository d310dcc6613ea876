# SPDX-License-Identifier: Apache-2.0
"""What senders did about a plane that their peer's NIC lost, from captured packets (pure).

A sender's packets are seen as its NIC sends them on its planes; the peer's notices (port status
updates) as they leave the peer's NIC, and as the sender's NIC hands them to its host, having taken
them in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from topologies.experiments.capture import ENDPOINT_OPS, WRITES, Packets


@dataclass(frozen=True)
class Turn:
    """A plane is lost, or comes back: what one sender did. Times in seconds, None: never.

    `told_s`: the first notice of it to this sender left the peer's NIC; `taken_s`: the first left
    the sender's NIC to its host.
    """

    told_s: float | None
    taken_s: float | None


@dataclass(frozen=True)
class Left(Turn):
    """The plane is lost. `last_s`: of all packets on it.

    `unaware` of them came between the loss and `taken_s`, `later` after that.
    """

    unaware: int
    last_s: float | None
    later: int


@dataclass(frozen=True)
class Back(Turn):
    """The plane is up again. `first_s`: of the packets on it.

    `passed` packets went elsewhere between `taken_s` and that.
    """

    first_s: float | None
    passed: int


@dataclass(frozen=True)
class Towards:
    """What is seen of a sender and its peer: packets, and notices leaving and taken in."""

    sent: Packets
    told: Packets
    taken: Packets


def towards(host: int, peer: int, to_planes: Packets, to_hosts: Packets) -> Towards:
    """Packets from host to peer but endpoint operations, and notices from peer to host.

    Both as T0 group << 16 | downlink; what all NICs sent to planes, and to their hosts.
    """
    sent = to_planes.where((to_planes.src == host) & (to_planes.dst == peer))
    told, taken = (
        seen.where((seen.src == peer) & (seen.dst == host) & (seen.ports >= 0))
        for seen in (to_planes, to_hosts)
    )
    return Towards(sent.where(~np.isin(sent.opcode, ENDPOINT_OPS)), told, taken)


def left(of: Towards, plane: int, start_s: float, end_s: float) -> Left:
    """What the sender did about the plane that was lost at `start_s`, until `end_s`."""
    told_s, taken_s = _noticed(of, plane, start_s, up=False)
    on_plane = _within(_on(of.sent, plane), -np.inf, end_s)
    aware_s = end_s if taken_s is None else taken_s
    return Left(
        told_s=told_s,
        taken_s=taken_s,
        unaware=len(_within(on_plane, start_s, aware_s)),
        last_s=float(on_plane.at_s[-1]) if len(on_plane) else None,
        later=len(_within(on_plane, aware_s, end_s)),
    )


def back(of: Towards, plane: int, start_s: float, end_s: float) -> Back:
    """What the sender did about the plane that was up again at `start_s`, until `end_s`."""
    told_s, taken_s = _noticed(of, plane, start_s, up=True)
    on_plane = _within(_on(of.sent, plane), start_s, end_s)
    until_s = float(on_plane.at_s[0]) if len(on_plane) else end_s
    return Back(
        told_s=told_s,
        taken_s=taken_s,
        first_s=until_s if len(on_plane) else None,
        passed=len(_within(of.sent, start_s if taken_s is None else taken_s, until_s)),
    )


def plane_shares(of: Towards, planes: int, start_s: float, end_s: float) -> list[float]:
    """The shares of all planes of the sender's WRITEs in this time; NaN when there are none."""
    writes = _within(of.sent, start_s, end_s)
    writes = writes.where(np.isin(writes.opcode, WRITES))
    total = len(writes) or np.nan
    return [len(_on(writes, plane)) / total for plane in range(planes)]


def _on(packets: Packets, plane: int) -> Packets:
    return packets.where(packets.path_ev >> 13 == plane)


def _within(packets: Packets, start_s: float, end_s: float) -> Packets:
    return packets.where((packets.at_s >= start_s) & (packets.at_s < end_s))


def _noticed(
    of: Towards, plane: int, start_s: float, *, up: bool
) -> tuple[float | None, float | None]:
    """When the first notice of the plane's state left the peer, and when one was taken in."""
    found: list[float | None] = []
    for notices in (of.told, of.taken):
        said = (notices.ports >> plane & 1 == int(up)) & (notices.at_s >= start_s)
        found.append(float(notices.at_s[said][0]) if said.any() else None)
    return found[0], found[1]
