# SPDX-License-Identifier: Apache-2.0
"""A T1 is killed under load: senders leave their paths over it by themselves.

Every host writes to its like in the next T0 group, and nothing but the NICs and end points acts.
The killed T1 keeps carrier at its neighbours, so that only missing packets tell. Then it comes
back, and the NICs' probes bring its paths back.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controller import addressing as addr
from controller.addressing import DeviceKind
from controller.cli_common import plain_table
from controller.fabric import Device, Fabric
from controller.policy import Policy
from controller.sampler import Recorder
from controller.timeseries import t1_lines
from topologies.emulation import Emulation
from topologies.experiments.capture import Capture, Packets
from topologies.experiments.events import EventLog, logged_events
from topologies.experiments.report import Report
from topologies.experiments.retirement import (
    Retirement,
    Window,
    retirement,
    senders,
    shares,
)
from topologies.experiments.traffic import Connection, Flow, Load, connected, sending
from topologies.programming import program

FLOW_RATE = 200.0  # packets/s of a flow
TOTAL_RATE = 1000.0  # of all flows
MESSAGE_S = 1.0
BEFORE_S, DEAD_S, AFTER_S = 2.5, 3.0, 2.5
RETURN_S = 15.0  # for probes to bring every path back
EVERY_S = 0.1  # between readings of the counters
POLL_S = 0.2
# A SACK for every few packets: loss is seen in a few round trips also at such rates.
QUEUE_PAIR = {"sack_gen_threshold": 4}
SHARE_TOLERANCE = 0.5  # of a fair share, for what random spraying and short times do


@dataclass(frozen=True)
class Outcome:
    """What the experiment saw, for tests: by sender, and the round trip in seconds."""

    retirements: Sequence[Retirement]
    round_trip_s: float


async def t1_kill(emulation: Emulation, report: Report) -> Outcome:
    """Kill the first T1 of plane 0 under load and start it again; see the module."""
    fabric = emulation.fabric
    t1 = fabric.device_at(fabric.t1_row(0, 0))
    flows = neighbour_flows(fabric)
    rate = min(FLOW_RATE, TOTAL_RATE / len(flows))
    taps = _Taps(fabric, t1)
    recorder = Recorder(emulation.inventory, t1_lines(fabric))
    async with (
        connected(emulation, flows, round(rate * MESSAGE_S), **QUEUE_PAIR) as connections,
        logged_events(emulation) as events,
    ):
        with Capture(emulation.wires, taps.interfaces) as capture:
            async with recorder.recording(EVERY_S), sending(connections, rate) as load:
                report.progress(f"{len(flows)} flows of {rate:.0f} packets/s each")
                await load.last(BEFORE_S)
                round_trip_s = await _round_trip_s(connections)
                recorder.mark(f"kill {t1.name}")
                killed_s = time.monotonic()
                emulation.kill(t1.name)
                report.progress(f"killed: {t1.name}")
                await load.last(DEAD_S)
                capture.drain()
                back_s = time.monotonic()
                await emulation.restart(t1.name)
                await program(emulation, Policy(), [t1.name])
                recorder.mark(f"{t1.name} is back")
                report.progress(f"back: {t1.name}")
                used_s = await _used_again(load, capture, taps, back_s)
                if used_s is not None:
                    recorder.mark("all senders use it")
                    await load.last(AFTER_S)
            seen = capture.packets()
    report.plot(recorder.series(f"{fabric.name}: sent by T0s to each T1"), "t1-kill")
    outcome = Outcome(_retirements(taps, seen, Window(killed_s, back_s)), round_trip_s)
    _judge(report, fabric, outcome, connections)
    _print_events(report, fabric, events)
    _judge_return(report, taps, seen, used_s)
    return outcome


def neighbour_flows(fabric: Fabric) -> list[Flow]:
    """From every host to its like in the next T0 group: each sends and receives one flow."""
    return [
        Flow(
            host.name,
            fabric.device_at(
                fabric.host_row(((host.group or 0) + 1) % fabric.groups, host.downlink or 0)
            ).name,
        )
        for host in fabric.devices(DeviceKind.HOST)
    ]


class _Taps:
    """Where packets are captured: sent by hosts, by NICs to their planes, and by the T1."""

    def __init__(self, fabric: Fabric, t1: Device) -> None:
        hosts = list(fabric.devices(DeviceKind.HOST))
        nics = list(fabric.devices(DeviceKind.NIC))
        self.path_ev = addr.path_ev(t1.plane, t1.index)
        self.path_evs = [
            addr.path_ev(plane, uplink)
            for plane in range(fabric.planes)
            for uplink in range(fabric.uplinks)
        ]
        by_kind = (
            [fabric.interface(host, addr.HOST_PORT) for host in hosts],
            [
                fabric.interface(nic, addr.nic_plane_port(plane))
                for nic in nics
                for plane in range(fabric.planes)
            ],
            [fabric.interface(t1, addr.t1_port(t0)) for t0 in range(fabric.groups)],
        )
        self.interfaces = [name for names in by_kind for name in names]
        self._bounds = np.cumsum([0, *map(len, by_kind)]).tolist()

    def by_kind(self, packets: Packets) -> tuple[Packets, Packets, Packets]:
        """What hosts, NICs and the T1 sent."""
        from_host, from_nic, from_t1 = (
            packets.where((packets.end >= first) & (packets.end < last))
            for first, last in zip(self._bounds, self._bounds[1:], strict=False)
        )
        return from_host, from_nic, from_t1


async def _round_trip_s(connections: Sequence[Connection]) -> float:
    """The median of the senders' smoothed round trips."""
    found = [value for c in connections if (value := await c.srtt_s()) is not None]
    return float(np.median(found)) if found else float("nan")


async def _used_again(load: Load, capture: Capture, taps: _Taps, back_s: float) -> float | None:
    """When the last of the senders used the path again; None when one does not in time."""
    deadline = time.monotonic() + RETURN_S
    while time.monotonic() < deadline:
        await load.last(POLL_S)
        _, from_nic, _ = taps.by_kind(capture.packets())
        later = from_nic.where((from_nic.path_ev == taps.path_ev) & (from_nic.at_s > back_s))
        if set(senders(later)) == set(senders(from_nic)):
            return time.monotonic()
    return None


def _retirements(taps: _Taps, seen: Packets, window: Window) -> list[Retirement]:
    by_kind = taps.by_kind(seen)
    return [retirement(sender, taps.path_ev, window, *by_kind) for sender in senders(by_kind[1])]


def _judge(
    report: Report, fabric: Fabric, outcome: Outcome, connections: Sequence[Connection]
) -> None:
    found, trip = outcome.retirements, outcome.round_trip_s
    report.console.print(
        f"\n[bold]What each sender lost[/], and how long it went on, in round trips of "
        f"{1e3 * trip:.1f} ms"
    )
    numbers = ("Packets lost", "First loss to retirement", "To last packet there", "Packets later")
    table = plain_table("Sender", "To T0 group", *numbers, right=numbers)
    for one in found:
        table.add_row(
            _nic_name(fabric, one.host),
            str(one.group),
            str(one.lost),
            *(_trips(one.first_lost_s, at_s, trip) for at_s in (one.retired_s, one.last_s)),
            str(one.later),
        )
    report.console.print(table)
    retried = sum((c.sent.retransmissions for c in connections), start=Counter[str]())
    report.console.print(
        f"sent again by cause: {dict(retried)}; "
        f"SACKs and the like on the dead path after retirement: {sum(one.others for one in found)}"
    )
    report.check(
        all(one.before > 0 for one in found) and len(found) == len(connections),
        f"all {len(connections)} senders used the T1 before",
    )
    lost = [one.lost for one in found]
    report.check(all(lost), f"every sender lost packets in it: {sum(lost)} in all")
    report.check(
        all(one.retired_s is not None for one in found), "every sender sent what it lost again"
    )
    report.check(
        all(one.later == 0 for one in found),
        f"after its first loss was known no sender used the path: "
        f"{sum(one.later for one in found)} packets",
    )
    damaged = sum(c.sent.damaged for c in connections)
    messages = sum(len(c.sent.writes) for c in connections)
    report.check(damaged == 0, f"{messages - damaged} of {messages} messages arrived intact")


def _print_events(report: Report, fabric: Fabric, events: EventLog) -> None:
    """How often NICs left a path and took it back, by T1."""
    for words, found in (("left after a loss", events.retired()), ("back", events.probed_back())):
        listed = ", ".join(
            f"{fabric.device_at(fabric.t1_row(*path)).name} {count} x"
            for path, count in sorted(found.items())
        )
        report.console.print(f"paths {words}, as the NICs say, by T1: {listed or 'none'}")


def _judge_return(report: Report, taps: _Taps, seen: Packets, used_s: float | None) -> None:
    report.check(used_s is not None, f"all senders use the T1 again within {RETURN_S:g} s")
    if used_s is None:
        return
    _, from_nic, _ = taps.by_kind(seen)
    after = from_nic.where(from_nic.at_s > used_s)
    fair = 1 / len(taps.path_evs)
    found = [shares(after, sender, [taps.path_ev])[0] for sender in senders(from_nic)]
    report.check(
        all(abs(share - fair) <= SHARE_TOLERANCE * fair for share in found),
        "and carries its share of each again: "
        + ", ".join(f"{share:.1%}" for share in found)
        + f" (even: {fair:.1%})",
    )


def _nic_name(fabric: Fabric, host: int) -> str:
    return fabric.device_at(fabric.nic_row(host >> 16, host & 0xFFFF)).name


def _trips(start_s: float | None, end_s: float | None, trip_s: float) -> str:
    if start_s is None or end_s is None:
        return "-"
    return f"{(end_s - start_s) / trip_s:.1f} ({1e3 * (end_s - start_s):.0f} ms)"
