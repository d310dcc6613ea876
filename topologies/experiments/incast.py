# SPDX-License-Identifier: Apache-2.0
"""An incast, seven to one: what does not fit is trimmed, NACKed and sent again.

Nothing is lost without being trimmed or counted. A victim sends to another host of the receiver's
T0 group meanwhile, and must not notice: its rate is compared with what it was alone, before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from controller.fabric import Fabric
from controller.sampler import Recorder
from controller.timeseries import plane_lines
from topologies.emulation import Emulation
from topologies.experiments.counted import at_queues, counters_at_rest, drops
from topologies.experiments.report import Report
from topologies.experiments.traffic import Connection, Flow, connected, nic_of
from topologies.losses import uncounted_losses

SENDERS = 7
RATE = 100.0  # packets/s of each flow
PACKETS = 300  # of each message
EVERY_S = 0.1
KEPT = 0.95  # of the victim's rate
SOONER = 0.02  # of what was trimmed
# What waits behind a full queue on one plane is overtaken by what goes over another one.
QUEUE_PAIR = {"reorder_ns": 600_000_000, "timeout": 20}  # 1.024 * 2^20 us


@dataclass(frozen=True)
class Outcome:
    """What came of it, for tests."""

    trimmed: int
    nacks: int
    victim_alone: float
    victim_within: float


async def incast(emulation: Emulation, report: Report) -> Outcome:
    """Seven hosts write to the first one of the last T0 group; see the module."""
    fabric = emulation.fabric
    flows, victim = incast_flows(fabric)
    receiver = nic_of(fabric, flows[0].dst)
    recorder = Recorder(
        emulation.inventory, plane_lines(fabric, [receiver.name], direction="received")
    )
    async with (
        connected(emulation, [victim, *flows], PACKETS, **QUEUE_PAIR) as (
            of_victim,
            *connections,
        ),
        recorder.recording(EVERY_S),
    ):
        report.progress(f"{victim} alone, {RATE:.0f} packets/s")
        await of_victim.write(RATE)
        alone = of_victim.sent.rate
        before = await counters_at_rest(emulation)
        recorder.mark(f"{len(flows)} senders to {flows[0].dst}")
        report.progress(f"{len(flows)} senders of {RATE:.0f} packets/s each, and the victim")
        await asyncio.gather(*(connection.write(RATE) for connection in (of_victim, *connections)))
        recorder.mark("all is acknowledged")
        counted = await counters_at_rest(emulation) - before
    within = of_victim.sent.writes[-1].packets / (of_victim.sent.writes[-1].duration_ns / 1e9)
    title = f"{fabric.name}: received by {receiver.name} on each plane"
    report.plot(recorder.series(title), "incast")

    trimmed = at_queues(fabric, counted, "trim_packets", to_hosts=True)
    elsewhere = at_queues(fabric, counted, "trim_packets", to_hosts=False)
    nacks, again = _sums(connections)
    report.check(trimmed > 0, f"the queues to {flows[0].dst} were full: {trimmed} packets trimmed")
    report.check(elsewhere == 0, f"and no others: {elsewhere} packets trimmed between switches")
    # A busy machine may hold a NACK back for so long that a gap or a timeout tells before it does.
    nacked, sooner = nacks["trimmed_lasthop"], again.total() - again["nack_trimmed_lasthop"]
    report.check(
        nacks.total() == nacked <= trimmed <= nacked + sooner,
        f"each became a NACK at its sender, but for those that it had sent again before: "
        f"{dict(nacks)}, {sooner} sent again",
    )
    report.check(
        again["nack_trimmed_lasthop"] == nacked and sooner <= SOONER * trimmed,
        f"and what was sent again was what NACKs asked for, but for {SOONER:.0%} at most: "
        f"{dict(again)}",
    )
    unseen = uncounted_losses(fabric, counted)
    report.check(not unseen, f"lost without being trimmed or counted: {sum(unseen.values())}")
    dropped = drops(counted)
    report.check(not dropped, f"dropped: {sum(dropped.values())} {dropped or ''}")
    intact = sum(c.sent.damaged == 0 for c in (of_victim, *connections))
    report.check(
        intact == 1 + len(connections), f"{intact} of {1 + len(connections)} flows arrived intact"
    )
    report.check(not of_victim.sent.retransmissions, f"{victim} had nothing to send again")
    report.check(
        within >= KEPT * alone,
        f"{victim} kept {within / alone:.1%} of its {alone:.1f} packets/s (wanted: {KEPT:.0%})",
    )
    return Outcome(trimmed, nacks["trimmed_lasthop"], alone, within)


def incast_flows(fabric: Fabric) -> tuple[list[Flow], Flow]:
    """The senders' flows, from as many groups as there are, and the victim's."""
    last = fabric.groups - 1
    receiver = fabric.device_at(fabric.host_row(last, 0)).name
    victim = Flow(
        fabric.device_at(fabric.host_row(0, fabric.hosts_per_group - 1)).name,
        fabric.device_at(fabric.host_row(last, fabric.hosts_per_group - 1)).name,
    )
    taken = {receiver, victim.src, victim.dst}
    hosts = [
        fabric.device_at(row).name for row in range(fabric.p4_device_count, fabric.device_count)
    ]
    senders = [name for name in hosts if name not in taken][:SENDERS]
    return [Flow(sender, receiver) for sender in senders], victim


def _sums(connections: Sequence[Connection]) -> tuple[Counter[str], Counter[str]]:
    """NACKs by reason and retransmissions by cause, of all flows."""
    nacks: Counter[str] = Counter()
    again: Counter[str] = Counter()
    for connection in connections:
        nacks.update(connection.sent.nacks)
        again.update(connection.sent.retransmissions)
    return nacks, again
