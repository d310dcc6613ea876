# SPDX-License-Identifier: Apache-2.0
"""A port of a NIC goes down under load: its peers leave that plane out, and only towards this NIC.

All hosts but the last write to the last one, and one of them to its neighbour besides. The wire
between the last host's NIC and its T0 of plane 1 is cut, so that both see their carrier go, and the
NIC's agent tells the senders' NICs (port status updates). Then the wire is whole again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller import addressing as addr
from controller.addressing import DeviceKind
from controller.cli_common import plain_table
from controller.fabric import Device, Fabric
from controller.nic_agent.client import SOCKET, NicAgentClient
from controller.sampler import Recorder
from controller.timeseries import Line, phases, plane_lines
from mrc.agent_client import AgentError
from topologies.emulation import Emulation
from topologies.experiments.avoidance import Back, Left, Towards, back, left, plane_shares, towards
from topologies.experiments.capture import Capture, Packets
from topologies.experiments.events import logged_events
from topologies.experiments.report import Report
from topologies.experiments.traffic import Connection, Flow, connected, nic_of, sending
from topologies.netns import Namespace

PLANE = 1
RATE = 400.0  # packets/s of a flow
MESSAGE_S = 1.0
BEFORE_S, DOWN_S, AFTER_S = 2.5, 3.0, 2.5
SETTLING_S = 0.5  # from a change until rates and shares are those of the new state
EVERY_S = 0.1  # between readings of the counters
READY_S = 10.0
LOOK_S = 0.0002  # between looks at the carrier
ROUND_TRIPS = 10.0  # from a notice on, until the sender does what it asks for
KEPT = 0.9  # of the rate, while the receiver has a plane fewer
SHARE_TOLERANCE = 0.25  # of a fair share
QUEUE_PAIR = {"sack_gen_threshold": 4}


@dataclass(frozen=True)
class Outcome:
    """What the experiment saw, for tests: by sender, and times in seconds."""

    left: Sequence[Left]
    back: Sequence[Back]
    round_trip_s: float
    kept: float


@dataclass(frozen=True)
class _Times:
    """time.monotonic() of what happened: `lost` and `back` just before the carrier changed."""

    began: float
    lost: float
    back: float
    ended: float


async def port_down(emulation: Emulation, report: Report) -> Outcome:
    """Cut the wire of the last NIC to plane 1 under load and mend it; see the module."""
    fabric = emulation.fabric
    flows, bystander = port_down_flows(fabric)
    peer = nic_of(fabric, flows[0].dst)
    port = addr.nic_plane_port(PLANE)
    interface, wires = fabric.interface(peer, port), emulation.wires
    wire = wires.between(peer.name, fabric.neighbour(peer, port)[0].name)
    taps = _Taps(fabric)
    recorder = Recorder(emulation.inventory, _lines(fabric, flows, peer))
    async with (
        connected(emulation, [*flows, bystander], round(RATE * MESSAGE_S), **QUEUE_PAIR) as found,
        logged_events(emulation) as events,
    ):
        await _agent_ready(emulation)
        with Capture(wires, taps.interfaces) as capture:
            async with recorder.recording(EVERY_S), sending(found, RATE) as load:
                report.progress(f"{len(found)} flows of {RATE:.0f} packets/s each")
                began_s = time.monotonic()
                await load.last(BEFORE_S)
                round_trip_s = await _round_trip_s(found)
                recorder.mark(f"cut {wire}")
                lost_s = await _carrier(wires.cut, wire, interface, wanted=False)
                report.progress(f"cut: {wire}")
                await load.last(DOWN_S)
                capture.drain()
                recorder.mark(f"{wire} is whole again")
                back_s = await _carrier(wires.restore, wire, interface, wanted=True)
                report.progress(f"whole again: {wire}")
                await load.last(AFTER_S)
                times = _Times(began_s, lost_s, back_s, time.monotonic())
            seen = capture.packets()
    series = recorder.series(f"{fabric.name}: sent by the senders' NICs, received by {peer.name}")
    report.plot(series, "port-down")
    before, during, _ = (phase.rates[fabric.planes :] for phase in phases(series))

    senders = [taps.towards(fabric, flow, seen) for flow in flows]
    outcome = Outcome(
        [left(one, PLANE, times.lost, times.back) for one in senders],
        [back(one, PLANE, times.back, times.ended) for one in senders],
        round_trip_s,
        float(during.sum() / before.sum()),
    )
    report.console.print(
        f"\nround trip: {1e3 * round_trip_s:.2f} ms (median of the senders' estimates before)"
    )
    _judge_loss(report, flows, outcome, times)
    for what, start_s, end_s, planes in (
        ("before", times.began, times.lost, range(fabric.planes)),
        ("during", times.lost + SETTLING_S, times.back, _others(fabric)),
        ("after", times.back + SETTLING_S, times.ended, range(fabric.planes)),
    ):
        shares = [plane_shares(one, fabric.planes, start_s, end_s) for one in senders]
        _judge_shares(report, f"{what}, each sender's packets to {flows[0].dst}", shares, planes)
    of_bystander = plane_shares(
        taps.towards(fabric, bystander, seen), fabric.planes, times.lost, times.back
    )
    _judge_shares(report, f"during, {bystander}", [of_bystander], range(fabric.planes))
    report.check(
        outcome.kept >= KEPT,
        f"{peer.name} received {during.sum():.0f} packets/s on a plane fewer, {before.sum():.0f} "
        f"before: {outcome.kept:.1%} (wanted: {KEPT:.0%})",
    )
    _judge_return(report, flows, outcome, times, fabric.planes)
    again = sum((one.sent.retransmissions for one in found), start=Counter[str]())
    retired = events.retired().total()
    report.console.print(f"sent again by cause: {dict(again)}; paths retired for it: {retired}")
    damaged = sum(one.sent.damaged for one in found)
    messages = sum(len(one.sent.writes) for one in found)
    report.check(damaged == 0, f"{messages - damaged} of {messages} messages arrived intact")
    return outcome


def port_down_flows(fabric: Fabric) -> tuple[list[Flow], Flow]:
    """From every host to the last one, and from the first one to its neighbour."""
    hosts = [
        fabric.device_at(row).name for row in range(fabric.p4_device_count, fabric.device_count)
    ]
    *senders, last = hosts
    return [Flow(sender, last) for sender in senders], Flow(senders[0], senders[1])


def _lines(fabric: Fabric, flows: Sequence[Flow], peer: Device) -> list[Line]:
    senders = [nic_of(fabric, flow.src).name for flow in flows]
    return [
        *(
            replace(line, label=f"{line.label} sent")
            for line in plane_lines(fabric, senders, "sent")
        ),
        *(
            replace(line, label=f"{line.label} received")
            for line in plane_lines(fabric, [peer.name], "received")
        ),
    ]


class _Taps:
    """Where packets are captured: what all NICs send on their planes, and to their hosts."""

    def __init__(self, fabric: Fabric) -> None:
        nics = list(fabric.devices(DeviceKind.NIC))
        to_planes = [
            fabric.interface(nic, addr.nic_plane_port(plane))
            for nic in nics
            for plane in range(fabric.planes)
        ]
        self.interfaces = [
            *to_planes,
            *(fabric.interface(nic, addr.NIC_HOST_PORT) for nic in nics),
        ]
        self._to_planes = len(to_planes)

    def towards(self, fabric: Fabric, flow: Flow, seen: Packets) -> Towards:
        """What is seen of a flow and of the notices the other way."""
        host, peer = (
            (device.group or 0) << 16 | (device.downlink or 0)
            for device in map(fabric.device, (flow.src, flow.dst))
        )
        return towards(
            host,
            peer,
            seen.where(seen.end < self._to_planes),
            seen.where(seen.end >= self._to_planes),
        )


def _others(fabric: Fabric) -> list[int]:
    return [plane for plane in range(fabric.planes) if plane != PLANE]


async def _carrier(change: Callable[[str], None], wire: str, port: str, *, wanted: bool) -> float:
    """Cut or mend a wire; when its NIC's port was last seen without the carrier that is wanted."""
    with contextlib.closing(Namespace.current()) as here:
        # From now on, not from when a thread comes to look: then the first notices may be out, and
        # would be passed over.
        watching = asyncio.get_running_loop().run_in_executor(
            None, _last_seen, here, port, not wanted, time.monotonic()
        )
        await asyncio.to_thread(change, wire)
        return await watching


def _last_seen(space: Namespace, port: str, running: bool, seen: float) -> float:
    """time.monotonic() before the last look at which the port was (not) running, as at `seen`."""
    while True:
        before = time.monotonic()
        if space.is_running(port) is not running:
            return seen
        seen = before
        time.sleep(LOOK_S)


async def _agent_ready(emulation: Emulation) -> None:
    """Until the NIC agent holds all NICs again, which the set-up of queue pairs took from it."""
    client = NicAgentClient(emulation.run_dir.path / SOCKET)
    deadline = time.monotonic() + READY_S
    while missing := [name for name, nic in (await client.status()).items() if not nic["ready"]]:
        if time.monotonic() > deadline:
            raise AgentError(f"the NIC agent does not hold {', '.join(missing)}")
        await asyncio.sleep(0.02)


async def _round_trip_s(connections: Sequence[Connection]) -> float:
    """The median of the senders' smoothed round trips."""
    found = [value for one in connections if (value := await one.srtt_s()) is not None]
    return float(np.median(found)) if found else float("nan")


def _judge_loss(report: Report, flows: Sequence[Flow], outcome: Outcome, times: _Times) -> None:
    report.console.print("\n[bold]The port goes down[/]: what each sender did")
    numbers = (
        "Carrier to notice",
        "Notice taken in",
        "Notice to last packet there",
        "Packets there before it was taken in",
        "After",
    )
    table = plain_table("Sender", *numbers, right=numbers)
    trip = outcome.round_trip_s
    for flow, one in zip(flows, outcome.left, strict=True):
        table.add_row(
            flow.src,
            _took(times.lost, one.told_s, trip),
            _took(one.told_s, one.taken_s, trip),
            _took(one.told_s, one.last_s, trip),
            str(one.unaware),
            str(one.later),
        )
    report.console.print(table)
    report.check(
        all(one.taken_s is not None for one in outcome.left), "every sender's NIC took a notice in"
    )
    took = [_after(one.told_s, one.last_s) / trip for one in outcome.left]
    report.check(
        all(value <= ROUND_TRIPS for value in took),
        f"within {ROUND_TRIPS:g} round trips of the notice no sender used plane {PLANE} any more: "
        + ", ".join(f"{value:.1f}" for value in took),
    )


def _judge_return(
    report: Report, flows: Sequence[Flow], outcome: Outcome, times: _Times, planes: int
) -> None:
    report.console.print("\n[bold]The port is up again[/]: what each sender did")
    numbers = (
        "Carrier to notice",
        "Notice taken in",
        "Notice to first packet there",
        "Packets elsewhere in between",
    )
    table = plain_table("Sender", *numbers, right=numbers)
    trip = outcome.round_trip_s
    for flow, one in zip(flows, outcome.back, strict=True):
        table.add_row(
            flow.src,
            _took(times.back, one.told_s, trip),
            _took(one.told_s, one.taken_s, trip),
            _took(one.told_s, one.first_s, trip),
            str(one.passed),
        )
    report.console.print(table)
    report.check(
        all(one.first_s is not None and one.passed < 2 * planes for one in outcome.back),
        f"once its NIC had taken the notice in, every sender used plane {PLANE} within two rounds "
        f"over the planes, packets elsewhere: {', '.join(str(one.passed) for one in outcome.back)}",
    )
    took = [_after(one.told_s, one.taken_s) / trip for one in outcome.back]
    report.check(
        all(value <= ROUND_TRIPS for value in took),
        f"and it had within {ROUND_TRIPS:g} round trips: "
        + ", ".join(f"{value:.1f}" for value in took),
    )


def _judge_shares(
    report: Report, what: str, found: Sequence[Sequence[float]], planes: Sequence[int]
) -> None:
    """Each of the planes carries its fair share, and the others nothing."""
    fair = 1 / len(planes)
    wanted = [fair if plane in planes else 0.0 for plane in range(len(found[0]))]
    report.check(
        all(
            abs(share - want) <= SHARE_TOLERANCE * fair
            for shares in found
            for share, want in zip(shares, wanted, strict=True)
        ),
        f"{what}, by plane: "
        + "; ".join(" ".join(f"{share:.1%}" for share in shares) for shares in found),
    )


def _after(start_s: float | None, end_s: float | None) -> float:
    """Seconds from one to the other, 0 if that came before it; NaN if one never came."""
    if start_s is None or end_s is None:
        return float("nan")
    return max(0.0, end_s - start_s)


def _took(start_s: float | None, end_s: float | None, trip_s: float) -> str:
    if start_s is None or end_s is None:
        return "-"
    return f"{1e3 * (end_s - start_s):.1f} ms ({(end_s - start_s) / trip_s:.1f})"
