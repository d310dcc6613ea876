# SPDX-License-Identifier: Apache-2.0
"""The demonstration of `make run`: sprayed MRC writes, where they went, and a cut that shows.

1. Every host writes reliably to every other one; digests of what was sent and of memory must agree.
2. The table of packets by plane and T1, and what had to be sent again, and why.
3. Probes of every link and of one pair of groups, and their heat maps: no fault must show.
4. A T0-T1 link is cut: the maps must show exactly that link.
5. It is restored: nothing is lost on it any more.

What is not as it should be is returned in words; nothing is passed over.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from controller import addressing as addr
from controller.addressing import DeviceKind, EntropyValue
from controller.cli_common import console
from controller.cli_devices import print_drops, print_spray
from controller.cli_quality import SAMPLES_FILE
from controller.counters import FabricCounters, read_fabric
from controller.fabric import Device
from controller.heatmap import HeatMap, pair_heatmap, plane_heatmap
from controller.heatmap_terminal import print_heatmap
from controller.probing import Selection, choose, run_probes
from controller.queue_pairs import HostQp, close_qps, open_qps
from controller.samples import Samples, save_samples
from mrc.agent_client import AgentClient, AgentError
from mrc.messages import Digest, RegionInfo, RegisterRequest, WriteResult
from topologies.emulation import Emulation
from topologies.losses import uncounted_losses

MESSAGE_BYTES = 4 << 20
MIN_MESSAGE_BYTES = 1 << 20
TOTAL_BYTES = 256 << 20  # of all messages: with more hosts each gets less
# Packets per second of all hosts together: what two cores carry through five devices each without
# loss, with room to spare. Links with a rate of their own may allow less.
TOTAL_RATE: Mapping[str, float] = {"softswitch": 4000.0, "bmv2": 2000.0}
BURST = 8  # of the 64 packets that a queue holds
LINK_SHARE = 0.7  # of a link's rate that a host plans with: spraying is random
PROBES_PER_WAY = 20
# With so many packets on a path on average, an empty one is no chance (e^-20).
PACKETS_PER_PATH = 20


PathPackets = Counter[tuple[int, int, int, int]]
"""Packets by (source group, destination group, plane, uplink)."""


class DemoError(Exception):
    """The demonstration could not be carried out; the message says why."""


@dataclass(frozen=True)
class Flow:
    """One message from one host to another, over a QP of its own."""

    src: Device
    dst: Device
    qp: HostQp
    region: RegionInfo

    @property
    def seed(self) -> int:
        """Of the message's data."""
        return self.src.index << 32 | self.dst.index


@dataclass(frozen=True)
class Outcome:
    """What became of a flow: at the sender, and in the receiver's memory."""

    flow: Flow
    sent: WriteResult
    digest: Digest


class Demonstration:
    """One demonstration on one running fabric."""

    def __init__(self, emulation: Emulation, progress: Callable[[str], None]) -> None:
        self._emulation = emulation
        self._fabric = emulation.fabric
        self._inventory = emulation.inventory
        self._progress = progress
        self._hosts = list(self._fabric.devices(DeviceKind.HOST))
        self._agents = {
            name: AgentClient(host.control) for name, host in self._inventory.hosts.items()
        }
        self._faults: list[str] = []
        pairs = len(self._hosts) * (len(self._hosts) - 1)
        share = TOTAL_BYTES // max(pairs, 1)
        self._message_bytes = min(MESSAGE_BYTES, max(MIN_MESSAGE_BYTES, share))

    def run(self) -> list[str]:
        """Do all of it. Returns the faults in words. Raises DemoError when it cannot go on."""
        try:
            self._transfer()
            self._maps()
            self._cut_and_restore()
        except AgentError as error:
            raise DemoError(str(error)) from error
        return self._faults

    def _check(self, holds: bool, fault: str) -> None:
        if not holds:
            self._faults.append(fault)

    # 1 and 2: traffic ----------------------------------------------------------------------------
    def _transfer(self) -> None:
        if len(self._hosts) < 2:
            raise DemoError("a fabric with one host has nobody to write to: see --no-demo")
        before, carried_before = self._counters(), asyncio.run(self._path_packets())
        outcomes = asyncio.run(self._write_all())
        counted = self._counters() - before
        carried = asyncio.run(self._path_packets()) - carried_before
        console.print("\n[bold]Packets by plane and T1[/]")
        print_spray(self._fabric, counted)
        print_drops(counted)
        for place, packets in uncounted_losses(self._fabric, counted).items():
            console.print(f"lost {place}, seen by no program: {packets}")
        self._check_loss(outcomes)
        self._check_paths(outcomes, carried)

    async def _write_all(self) -> list[Outcome]:
        flows = await self._open_flows()
        rate = self._rate_per_host()
        packets = rate * len(self._hosts)
        self._progress(
            f"traffic starts: {len(flows)} writes of {self._message_bytes / 2**20:.0f} MiB, "
            f"one from and to each host at a time, {packets:.0f} packets/s"
        )
        outcomes = []
        # In round s host i writes to host i + s: every host sends and receives one message.
        for shift in range(1, len(self._hosts)):
            round_ = [
                flow
                for flow in flows
                if (flow.dst.index - flow.src.index) % len(self._hosts) == shift
            ]
            outcomes += await asyncio.gather(*(self._write(flow, rate) for flow in round_))
        bytes_ = sum(outcome.sent.bytes for outcome in outcomes)
        self._progress(f"all {bytes_ / 1e6:.1f} MB have arrived")
        await close_qps(self._inventory, [flow.qp for flow in flows])
        await asyncio.gather(
            *(self._agents[flow.dst.name].deregister(flow.region.rkey) for flow in flows)
        )
        return outcomes

    async def _open_flows(self) -> list[Flow]:
        pairs = [(src, dst) for src in self._hosts for dst in self._hosts if src != dst]
        names = [(src.name, dst.name) for src, dst in pairs]
        qps = await open_qps(self._inventory, self._fabric, names)
        regions = await asyncio.gather(
            *(
                self._agents[dst.name].register(RegisterRequest(length=self._message_bytes))
                for _, dst in pairs
            )
        )
        return [
            Flow(src, dst, qp, region)
            for (src, dst), qp, region in zip(pairs, qps, regions, strict=True)
        ]

    def _rate_per_host(self) -> float:
        """Packets per second of each host, for what the machine and every link carry."""
        fabric, links = self._fabric, self._fabric.topology.link_rates
        limits = [TOTAL_RATE[self._inventory.target] / len(self._hosts)]
        if links.host_nic is not None:
            limits.append(LINK_SHARE * links.host_nic)
        if links.nic_t0 is not None:
            limits.append(LINK_SHARE * links.nic_t0 * fabric.planes)
        if links.t0_t1 is not None:
            uplinks = fabric.planes * fabric.uplinks
            limits.append(LINK_SHARE * links.t0_t1 * uplinks / fabric.hosts_per_group)
        return min(limits)

    async def _write(self, flow: Flow, rate: float) -> Outcome:
        end = flow.qp.here
        request = end.write_request(flow.region, seed=flow.seed, rate=rate, burst=BURST)
        sent = await end.agent.write(request)
        return Outcome(flow, sent, await flow.qp.there.agent.read_digest(flow.region.rkey))

    def _check_loss(self, outcomes: Sequence[Outcome]) -> None:
        sent = sum(outcome.sent.packets for outcome in outcomes)
        same = 0
        causes: Counter[str] = Counter()
        acknowledged: Counter[str] = Counter()
        for outcome in outcomes:
            words = f"{outcome.flow.src.name} to {outcome.flow.dst.name}"
            delivery = outcome.sent.delivery
            assert delivery is not None  # the writes are reliable
            causes += Counter(delivery.retransmissions)
            acknowledged += Counter(
                SACKs=delivery.sacks, marked=delivery.marked, NACKs=sum(delivery.nacks.values())
            )
            if outcome.digest.missing or outcome.digest.sha256 != outcome.sent.sha256:
                self._check(False, f"{words}: memory differs from what was sent (SHA-256)")
            else:
                same += 1
        again = causes.total()
        why = ", ".join(f"{cause} {count}" for cause, count in causes.items())
        console.print(
            f"{same} of {len(outcomes)} messages have the same SHA-256 in the receiver's memory; "
            f"sent again: {again} of {sent} packets ({again / sent:.3%})"
            + (f", because of {why}" if why else "")
            + f"; {acknowledged['SACKs']} SACKs, {acknowledged['marked']} with a mark, "
            f"{acknowledged['NACKs']} NACKs"
        )

    def _check_paths(self, outcomes: Sequence[Outcome], carried: PathPackets) -> None:
        """Every path between two T0 groups must have carried something."""
        by_pair: Counter[tuple[int, int]] = Counter()
        for outcome in outcomes:
            by_pair[_groups(outcome.flow)] += outcome.sent.packets
        unused = 0
        for (src, dst), packets in by_pair.items():
            uplinks = self._fabric.uplinks if src != dst else 1
            if packets < PACKETS_PER_PATH * self._fabric.planes * uplinks:
                continue
            for plane in range(self._fabric.planes):
                on_plane = [
                    carried[src, dst, plane, uplink] for uplink in range(self._fabric.uplinks)
                ]
                # Within a T0 group the uplink is not used, so that any may stand in the EV.
                counts = on_plane if src != dst else [sum(on_plane)]
                for uplink, count in enumerate(counts):
                    unused += count == 0
                    self._check(
                        count > 0,
                        f"nothing went from T0 group {src} to {dst} over plane {plane}"
                        + (f", T1 {uplink}" if src != dst else ""),
                    )
        paths = sum(
            self._fabric.planes * (self._fabric.uplinks if src != dst else 1)
            for src, dst in by_pair
        )
        console.print(f"{paths - unused} of {paths} paths between T0 groups carried packets")

    async def _path_packets(self) -> PathPackets:
        """Packets received so far."""
        carried: PathPackets = Counter()
        stats = await asyncio.gather(*(self._agents[host.name].stats() for host in self._hosts))
        group_of = {addr.ipv6(self._fabric.host_address(host)): host.group for host in self._hosts}
        for host, of_host in zip(self._hosts, stats, strict=True):
            for source in of_host["sources"]:
                for path_ev, packets in source["path_evs"].items():
                    ev = EntropyValue.from_wire(int(path_ev), source["source_port"])
                    src, dst = group_of[source["address"]], host.group
                    assert src is not None and dst is not None  # hosts have one
                    carried[src, dst, ev.plane, ev.uplink] += packets
        return carried

    # 3, 4 and 5: quality -------------------------------------------------------------------------
    def _maps(self) -> None:
        maps = self._probe_and_draw()
        self._check(not _bad_links(maps), f"links that are bad without a cut: {_bad_links(maps)}")

    def _cut_and_restore(self) -> None:
        fabric, wires = self._fabric, self._emulation.wires
        t0 = fabric.device_at(fabric.t0_row(fabric.planes - 1, 0))
        t1 = fabric.device_at(fabric.t1_row(fabric.planes - 1, fabric.uplinks - 1))
        wire = wires.between(t0.name, t1.name)
        wires.cut(wire)
        self._progress(f"cut: {t0.name} - {t1.name}")
        found = _bad_links(self._probe_and_draw())
        expected = [f"{t0.name} - {t1.name}"]
        self._check(found == expected, f"cut was {expected}, but the maps show {found}")
        wires.restore(wire)
        self._progress(f"restored: {t0.name} - {t1.name}")
        samples = self._probe(Selection(planes=[t1.plane], uplinks=[t1.index], paths=False))
        lost = int(np.isnan(samples.rtt_s).sum())
        console.print(f"{len(samples)} probes of it and the links around: {lost} lost")
        self._check(lost == 0, f"{lost} probes were lost after {wire} was restored")

    def _probe_and_draw(self) -> list[HeatMap]:
        """Probe and draw every link, and the paths of one pair of groups; the planes' maps."""
        last = self._fabric.groups - 1
        samples = self._probe(
            Selection(paths=False),
            Selection(self._names(0), self._names(last), self_probes=False),
        )
        save_samples(samples, self._emulation.run_dir.path / SAMPLES_FILE)
        planes = [
            plane_heatmap(samples, self._fabric, plane) for plane in range(self._fabric.planes)
        ]
        for drawn in (*planes, pair_heatmap(samples, self._fabric, 0, last)):
            console.print()
            print_heatmap(drawn, console)
        return planes

    def _names(self, group: int) -> list[str]:
        """The hosts of a T0 group."""
        return [host.name for host in self._hosts if host.group == group]

    def _probe(self, *selections: Selection) -> Samples:
        ways = [way for selection in selections for way in choose(self._fabric, selection)]
        self._progress(f"probing {len(ways)} paths and links, {PROBES_PER_WAY} times each")
        report = asyncio.run(run_probes(self._inventory, self._fabric, ways, count=PROBES_PER_WAY))
        if report.errors:
            listed = "; ".join(f"{host}: {error}" for host, error in report.errors.items())
            raise DemoError(f"not all hosts could probe: {listed}")
        self._check(report.unsent == 0, f"{report.unsent} probes could not be sent by their hosts")
        return report.samples

    def _counters(self) -> FabricCounters:
        found = asyncio.run(read_fabric(self._inventory))
        if found.errors:
            listed = "; ".join(f"{name}: {error}" for name, error in found.errors.items())
            raise DemoError(f"counters could not be read: {listed}")
        return found


def _groups(flow: Flow) -> tuple[int, int]:
    assert flow.src.group is not None and flow.dst.group is not None  # hosts have one
    return flow.src.group, flow.dst.group


def _bad_links(planes: Sequence[HeatMap]) -> list[str]:
    """Links that the planes' maps show as bad by their loss, or without data.

    Not by their round trip: under emulation that says how busy the machine was.
    """
    return [
        f"p{plane}t0-{heatmap.rows[t0]} - p{plane}t1-{heatmap.columns[t1]}"
        for plane, heatmap in enumerate(planes)
        for t0, t1 in np.argwhere(
            ~(heatmap.quality.loss < heatmap.thresholds.loss_bad)  # NaN: no data
        ).tolist()
    ]
