# SPDX-License-Identifier: Apache-2.0
"""Two flows on one path that carries one and a half: ECN marks move the rest away, nothing is lost.

The policy leaves both senders one path; the other one is in one slot of many. One flow alone stays
on the path. When the second one joins, the queue fills, packets are marked, SACKs tell the senders,
and each NIC passes over the path as often as it hears of a mark. When it ends, the first returns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from controller import addressing as addr
from controller.sampler import Recorder
from controller.timeseries import t1_lines
from topologies.emulation import Emulation
from topologies.experiments.capture import Capture
from topologies.experiments.counted import at_queues, counters_at_rest, drops
from topologies.experiments.report import Report
from topologies.experiments.retirement import shares
from topologies.experiments.traffic import Connection, Flow, connected, nic_of
from topologies.losses import uncounted_losses

RATE = 200.0  # packets/s of a flow; the link carries 300
MESSAGE_S = 3.0  # how long one flow sends alone, and then both
SETTLING_S = 0.5  # from the second flow's start until queue and marks have found their level
EVERY_S = 0.1
STAYS, MOVES = 0.05, 0.1  # of a flow on the other path: alone at most, together at least
# The queue's whole depth at the link's rate, 0.2 s, is how late a packet may be that is not lost.
# timeout: 1.024 * 2^20 us.
QUEUE_PAIR = {"sack_gen_threshold": 4, "reorder_ns": 400_000_000, "timeout": 20}


@dataclass(frozen=True)
class Outcome:
    """What came of it, for tests: marks, and shares of the other path by flow."""

    marked_alone: int
    marked_together: int
    alone: float
    together: Sequence[float]


async def two_flows(emulation: Emulation, report: Report) -> Outcome:
    """Two hosts of T0 group 0 write to two of the last group; see the module."""
    fabric = emulation.fabric
    last = fabric.groups - 1
    flows = [
        Flow(*(fabric.device_at(fabric.host_row(group, host)).name for group in (0, last)))
        for host in range(2)
    ]
    senders = [(host, last) for host in range(2)]  # T0 group 0, downlink 0 and 1
    other = addr.path_ev(0, 1)
    interfaces = [
        fabric.interface(nic_of(fabric, flow.src), addr.nic_plane_port(plane))
        for flow in flows
        for plane in range(fabric.planes)
    ]
    recorder = Recorder(emulation.inventory, t1_lines(fabric))
    packets = round(RATE * MESSAGE_S)
    async with connected(emulation, flows, packets, **QUEUE_PAIR) as connections:
        first, second = connections
        with Capture(emulation.wires, interfaces) as capture:
            start = await counters_at_rest(emulation)
            async with recorder.recording(EVERY_S):
                report.progress(f"{first.flow} alone, {RATE:.0f} packets/s")
                await first.write(RATE)
                middle = await counters_at_rest(emulation)
                together_s = time.monotonic()
                recorder.mark(f"{first.flow} and {second.flow}")
                report.progress(f"{second.flow}, too")
                await asyncio.gather(*(c.write(RATE) for c in connections))
                recorder.mark("both have ended")
                end = await counters_at_rest(emulation)
            seen = capture.packets()
    report.plot(recorder.series(f"{fabric.name}: sent by T0s to each T1"), "two-flows")

    marked_alone, marked_together = (
        at_queues(fabric, counted, "ecn_marked_packets", to_hosts=False)
        for counted in (middle - start, end - middle)
    )
    alone = shares(seen.where(seen.at_s < together_s), senders[0], [other])[0]
    settled = seen.where(seen.at_s > together_s + SETTLING_S)
    together = [shares(settled, sender, [other])[0] for sender in senders]
    outcome = Outcome(marked_alone, marked_together, alone, together)
    _judge(report, outcome, connections)
    counted = end - start
    unseen, dropped = uncounted_losses(fabric, counted), drops(counted)
    trimmed = at_queues(fabric, counted, "trim_packets", to_hosts=False)
    report.check(not unseen and not dropped, f"lost: {sum(unseen.values())}, dropped: {dropped}")
    report.check(trimmed == 0, f"trimmed: {trimmed}")
    return outcome


def _judge(report: Report, outcome: Outcome, connections: Sequence[Connection]) -> None:
    report.check(
        outcome.marked_alone == 0 and outcome.alone <= STAYS,
        f"one flow alone is not marked ({outcome.marked_alone} packets) and stays on its path: "
        f"{outcome.alone:.1%} on the other",
    )
    report.check(
        outcome.marked_together > 0,
        f"the two filled the queue: {outcome.marked_together} packets marked, "
        f"{sum(c.sent.marked for c in connections)} marks heard of by the senders",
    )
    report.check(
        all(share >= MOVES for share in outcome.together),
        "and the marks moved packets of each to the other path: "
        + ", ".join(f"{share:.1%}" for share in outcome.together),
    )
    again = sum(sum(c.sent.retransmissions.values()) for c in connections)
    damaged = sum(c.sent.damaged for c in connections)
    packets = sum(c.sent.packets for c in connections)
    report.check(
        again == 0 and damaged == 0,
        f"{packets} packets sent and received, {again} sent again, {damaged} messages damaged",
    )
