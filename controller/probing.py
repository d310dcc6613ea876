# SPDX-License-Identifier: Apache-2.0
"""Measuring: which probes answer a question, and all hosts' agents sending theirs at once.

Path probes test host pairs on chosen EVs; self-probes (to the T0 and back, over a T1 and back) test
single links, with one host's view only. What comes back are samples for `controller.quality`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller import addressing as addr
from controller.addressing import DeviceKind
from controller.fabric import Device, Fabric, FabricError
from controller.inventory import Inventory
from controller.samples import ProbeKind, SampleLog, Samples
from mrc.agent_client import AgentClient, AgentError
from mrc.messages import PathResult, ProbeRequest, ProbeTarget

# Probes per second of the whole fabric: each crosses up to ten devices, all on the same few cores.
# Above what the target carries, the measurement would report its own congestion as loss.
TOTAL_RATE: Mapping[str, float] = {"softswitch": 4000.0, "bmv2": 1000.0}
DEFAULT_COUNT = 10
DEFAULT_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class Probe:
    """One way to be tested: from `src` to `dst` (the same host for self-probes)."""

    kind: ProbeKind
    src: Device
    dst: Device
    plane: int
    uplink: int  # 0 where no T1 is crossed


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What was measured; `errors` are hosts whose agent could not probe, with the reason.

    `unsent` probes never left their host and are not part of the samples.
    """

    samples: Samples
    errors: Mapping[str, str]
    unsent: int


@dataclass(frozen=True, slots=True)
class Selection:
    """Which ways to probe; None means all. Numbers are checked by `choose`."""

    sources: Sequence[str] | None = None
    destinations: Sequence[str] | None = None
    planes: Sequence[int] | None = None
    uplinks: Sequence[int] | None = None
    paths: bool = True
    self_probes: bool = True


def choose(fabric: Fabric, selection: Selection) -> list[Probe]:
    """All ways of the selection: self-probes of the sources, then paths to the destinations.

    Raises FabricError for hosts, planes and uplinks that the fabric does not have.
    """
    hosts = list(fabric.devices(DeviceKind.HOST))
    sources = _hosts(fabric, selection.sources, hosts)
    destinations = _hosts(fabric, selection.destinations, hosts)
    planes = _numbers(fabric, "plane", selection.planes, fabric.planes)
    uplinks = _numbers(fabric, "uplink", selection.uplinks, fabric.uplinks)
    probes: list[Probe] = []
    for src in sources:
        if selection.self_probes:
            probes += [Probe(ProbeKind.T0_SELF, src, src, plane, 0) for plane in planes]
            probes += [
                Probe(ProbeKind.T1_SELF, src, src, plane, uplink)
                for plane in planes
                for uplink in uplinks
            ]
        if selection.paths:
            probes += [
                Probe(ProbeKind.PATH, src, dst, plane, uplink)
                for dst in destinations
                if dst != src
                for plane in planes
                for uplink in (uplinks if dst.group != src.group else [0])
            ]
    return probes


def _hosts(fabric: Fabric, names: Sequence[str] | None, hosts: list[Device]) -> list[Device]:
    return hosts if names is None else [fabric.host(name) for name in names]


def _numbers(fabric: Fabric, what: str, chosen: Sequence[int] | None, count: int) -> list[int]:
    for number in chosen or ():
        if not 0 <= number < count:
            raise FabricError(f"{fabric.name} has no {what} {number}; allowed: 0..{count - 1}")
    return list(range(count) if chosen is None else chosen)


async def run_probes(
    inventory: Inventory,
    fabric: Fabric,
    probes: Iterable[Probe],
    *,
    count: int = DEFAULT_COUNT,
    total_rate: float | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    on_progress: Callable[[int], None] | None = None,
) -> ProbeReport:
    """Send `count` probes on each way, all hosts at once, and collect the samples.

    `total_rate` is in probes per second over all hosts (default: what the target carries);
    `timeout_s` is after how many seconds a probe counts as lost. `on_progress` is told how many
    probes are done. A host whose agent fails is reported and does not stop the others. Raises
    FabricError when a source host is not running.
    """
    by_source: dict[str, list[Probe]] = {}
    for probe in probes:
        by_source.setdefault(probe.src.name, []).append(probe)
    absent = sorted(by_source.keys() - inventory.hosts.keys())
    if absent:
        raise FabricError(f"not in the running fabric: {', '.join(absent)}")
    all_hosts = TOTAL_RATE[inventory.target] if total_rate is None else total_rate
    rate = all_hosts / max(len(by_source), 1)
    log = SampleLog(fabric, time.time())
    errors: dict[str, str] = {}
    unsent = 0

    async def one(name: str, mine: list[Probe]) -> None:
        nonlocal unsent
        agent = AgentClient(inventory.hosts[name].control)
        try:
            for part in _requests(fabric, mine):
                request = ProbeRequest(
                    targets=[target for target, _ in part],
                    count=count,
                    rate=rate,
                    burst=1,  # a burst would measure the queue that it makes
                    timeout_s=timeout_s,
                )
                ways = [way for _, ways in part for way in ways]
                result = await agent.probe(request)
                for way, path in zip(ways, result.paths, strict=True):
                    unsent += path.send_errors
                    log.add(way.kind, way.src, way.dst, way.plane, way.uplink, _rtts(path))
                if on_progress is not None:
                    on_progress(count * len(ways))
        except AgentError as error:
            errors[name] = str(error)

    await asyncio.gather(*(one(name, mine) for name, mine in by_source.items()))
    return ProbeReport(log.finish(time.time()), errors, unsent)


Part = list[tuple[ProbeTarget, list[Probe]]]


def _requests(fabric: Fabric, probes: list[Probe]) -> list[Part]:
    """A host's probes as one request per kind: links first, then what lies behind them.

    Each target comes with the ways that its answer lists, in that order.
    """
    mac = addr.mac_text(fabric.mac(_nic(fabric, probes[0].src), addr.NIC_HOST_PORT))
    parts: dict[ProbeKind, Part] = {}
    paths: dict[Device, list[Probe]] = {}
    for probe in probes:
        if probe.kind is ProbeKind.PATH:
            paths.setdefault(probe.dst, []).append(probe)
        else:
            target = ProbeTarget(mac=mac, carrier=addr.ipv6(_carrier(fabric, probe)))
            parts.setdefault(probe.kind, []).append((target, [probe]))
    for dst, ways in paths.items():
        target = ProbeTarget(
            mac=mac,
            address=addr.ipv6(fabric.host_address(dst)),
            path_evs=[addr.path_ev(way.plane, way.uplink) for way in ways],
        )
        parts.setdefault(ProbeKind.PATH, []).append((target, ways))
    return [parts[kind] for kind in ProbeKind if kind in parts]


def _nic(fabric: Fabric, host: Device) -> Device:
    nic, _ = fabric.neighbour(host, addr.HOST_PORT)
    return nic


def _carrier(fabric: Fabric, probe: Probe) -> int:
    """The outer destination of a self-probe."""
    group, downlink = probe.src.group, probe.src.downlink
    assert group is not None and downlink is not None  # hosts have both
    if probe.kind is ProbeKind.T0_SELF:
        return addr.t0_local_carrier(fabric.block, probe.plane, group, downlink)
    return addr.t1_probe_carrier(fabric.block, probe.plane, group, probe.uplink, downlink)


def _rtts(path: PathResult) -> list[float | None]:
    """Round trips in seconds, None for each probe that left and was not answered in time."""
    lost = path.sent - path.send_errors - path.received
    return [rtt_ns / 1e9 for rtt_ns in path.rtt_ns] + [None] * lost
