# SPDX-License-Identifier: Apache-2.0
"""What senders did about a path that died, from packets captured on the wires (pure).

A sender is a NIC and the T0 group it sends to: what shares the states of its paths. Its packets
are seen three times: as its host sends them, as its NIC sends them on a path, and as the T1 sends
them on. What the NIC put on the dead path and the T1 did not send on is lost. The NIC learns of a
loss by the retransmission, at the place of that packet in the host's order: later WRITEs of the
host must take other paths, whatever the time at which they leave the NIC.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topologies.experiments.capture import ENDPOINT_OPS, WRITES, Packets

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Window:
    """The time in which a path was dead, on the clock of the packets."""

    start_s: float
    end_s: float


@dataclass(frozen=True)
class Retirement:
    """What one sender did. Times are in seconds on the clock of the packets; None: never.

    `before` packets took the path before it died, `lost` on it afterwards. `first_lost_s`: the
    first of them left the NIC; `retired_s`: the first of them was sent again; `last_s`: the last
    packet but for probes left the NIC on the dead path. `later` WRITEs took it behind the first
    retransmission in the host's order, and `others` packets of other kinds (SACKs) after it.
    """

    host: int
    group: int
    before: int
    lost: int
    others: int
    first_lost_s: float | None
    retired_s: float | None
    last_s: float | None
    later: int


def senders(packets: Packets) -> list[tuple[int, int]]:
    """(host, T0 group sent to) of all that sent WRITEs, sorted."""
    written = packets.where(_is_write(packets))
    pairs = np.unique(np.stack([written.src, written.dst >> 16], axis=1), axis=0)
    return [(host, group) for host, group in pairs.tolist()]


def retirement(
    sender: tuple[int, int],
    path_ev: int,
    window: Window,
    from_host: Packets,
    from_nic: Packets,
    from_t1: Packets,
) -> Retirement:
    """What a sender did about its path `path_ev`, which was dead in the window."""
    host, group = sender
    given = _of(from_host, host, group)
    on_path = _of(from_nic, host, group)
    on_path = on_path.where((on_path.path_ev == path_ev) & (on_path.at_s < window.end_s))
    forwarded = _of(from_t1, host, group)
    dead = on_path.where(on_path.at_s >= window.start_s)
    writes = on_path.where(_is_write(on_path))
    arrived = forwarded.where(_is_write(forwarded))
    lost = writes.where(~_known(writes, arrived))
    probes = np.isin(dead.opcode, ENDPOINT_OPS)
    plain = dead.where(~probes)

    position, at_s = _first_repeated(given, lost)
    later = others = 0
    if position is not None and at_s is not None:
        behind = given.where(np.arange(len(given)) > position)
        later = int((_is_write(dead) & _known(dead, behind)).sum())
        others = int((~_is_write(plain) & (plain.at_s > at_s)).sum())
    return Retirement(
        host=host,
        group=group,
        before=int((on_path.at_s < window.start_s).sum()),
        lost=len(lost),
        others=others,
        first_lost_s=float(lost.at_s[0]) if len(lost) else None,
        retired_s=at_s,
        last_s=float(plain.at_s[-1]) if len(plain) else None,
        later=later,
    )


def shares(packets: Packets, sender: tuple[int, int], path_evs: Iterable[int]) -> list[float]:
    """The shares of these paths of a sender's WRITEs; NaN when there are none."""
    sent = _of(packets, *sender)
    sent = sent.where(_is_write(sent))
    total = len(sent) or np.nan
    return [float((sent.path_ev == path_ev).sum() / total) for path_ev in path_evs]


def _of(packets: Packets, host: int, group: int) -> Packets:
    return packets.where((packets.src == host) & (packets.dst >> 16 == group))


def _is_write(packets: Packets) -> Mask:
    return np.isin(packets.opcode, WRITES)


def _known(packets: Packets, others: Packets) -> Mask:
    """Which transmissions are among the others."""
    result: Mask = np.zeros(len(packets), dtype=np.bool_)
    for dst in np.unique(packets.dst).tolist():
        mine = packets.dst == dst
        theirs = others.where(others.dst == dst)
        result[mine] = np.isin(packets.key[mine], theirs.key)
    return result


def _first_repeated(given: Packets, lost: Packets) -> tuple[int | None, float | None]:
    """Where in the host's order, and when, the first lost packet was sent again."""
    again = given.where(given.rtx)
    positions = np.flatnonzero(given.rtx)
    firsts = [
        positions[np.flatnonzero((again.dst == dst) & np.isin(again.psn, psns))]
        for dst, psns in ((dst, lost.psn[lost.dst == dst]) for dst in np.unique(lost.dst).tolist())
    ]
    found = np.concatenate([*firsts, np.zeros(0, dtype=np.int64)])
    if not len(found):
        return None, None
    position = int(found.min())
    return position, float(given.at_s[position])
