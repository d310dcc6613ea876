# SPDX-License-Identifier: Apache-2.0
"""EV states of all paths of running NICs, read and written by the NIC agent's register channel.

    states = await read_states(client, fabric, overlay, ["n0-0"])
    targets = Targets.parse(fabric, ["p0t1-1"])
    changes = plan_denial(fabric, states, targets, min_active=1)
    await apply(client, fabric, changes)

What is written here holds in the NIC's data plane from the next packet on, and until the NIC gets
another program or its spray group begins another generation. What is to last is the policy's
`deny`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from finsy import P4TableAction

from controller.addressing import DeviceKind, EntropyValue
from controller.ev_events import EvState, path_devices
from controller.fabric import Device, Fabric, FabricError
from controller.nic_agent.client import NicAgentClient
from controller.nic_agent.registers import (
    Op,
    read_assumed_down,
    read_path,
    read_peer_down,
    write_path,
)
from controller.nic_entries import nic_entries
from controller.overlay import Overlay
from mrc.agent_client import AgentError

T = TypeVar("T")

IN_FLIGHT = 64
"""Register operations at a time."""


class PathStateError(Exception):
    """The states cannot be changed as asked; the message says which path is why."""


class Path(NamedTuple):
    """A path of a NIC to T0 group `group`. Within the NIC's own group `uplink` means nothing."""

    group: int
    plane: int
    uplink: int


class Known(NamedTuple):
    """What a NIC holds of a path."""

    state: EvState
    generation: int


@dataclass(frozen=True)
class NicStates:
    """One NIC at one time. Masks have bit p for plane p.

    paths         of each path that the policy uses
    down          planes whose port has no carrier
    assumed_down  planes by which a T0 group seems not to be reached, by group
    peers_down    planes that a host cannot be reached on, as its own NIC says, by host
    """

    nic: Device
    paths: dict[Path, Known]
    down: int
    assumed_down: dict[int, int]
    peers_down: dict[str, int]

    def planes(self) -> dict[tuple[int, int], dict[int, EvState]]:
        """(group, plane) -> uplink -> state, in order."""
        found: dict[tuple[int, int], dict[int, EvState]] = defaultdict(dict)
        for path, known in sorted(self.paths.items()):
            found[path.group, path.plane][path.uplink] = known.state
        return dict(found)

    def only(self, group: int) -> NicStates:
        """The same of the paths to one T0 group."""
        return replace(
            self,
            paths={path: known for path, known in self.paths.items() if path.group == group},
            assumed_down={group: self.assumed_down.get(group, 0)},
        )

    @property
    def all_good(self) -> bool:
        """Whether there is nothing to tell."""
        return not (
            self.down
            or any(self.assumed_down.values())
            or any(self.peers_down.values())
            or any(known.state is not EvState.GOOD for known in self.paths.values())
        )


def used_paths(overlay: Overlay, nic: Device) -> list[Path]:
    """The paths in a NIC's spray groups under a policy; none where it hashes flows."""
    path_group: dict[int, int] = {}
    evs: dict[int, set[int]] = defaultdict(set)
    for entry in nic_entries(overlay, nic):
        match: Mapping[str, Any] = entry.match or {}
        action = entry.action
        if entry.table_id == "group_cfg" and isinstance(action, P4TableAction):
            path_group[int(match["group_id"])] = int(action.args["path_group"])
        elif entry.table_id == "slots" and isinstance(action, P4TableAction):
            evs[int(match["group_id"])].add(int(action.args["path_ev"]))
    paths = set()
    for spray_group, group in path_group.items():
        for path_ev in evs[spray_group]:
            ev = EntropyValue.from_wire(path_ev, 0)
            paths.add(Path(group, ev.plane, ev.uplink))
    return sorted(paths)


async def read_states(
    client: NicAgentClient, fabric: Fabric, overlay: Overlay, nics: Sequence[str]
) -> list[NicStates]:
    """The states of these NICs. Raises AgentError, FabricError on a name that is no NIC."""
    devices = [fabric.device(name) for name in nics]
    for device in devices:
        if device.kind is not DeviceKind.NIC:
            raise FabricError(f"{device.name} is not a NIC")
    limit = asyncio.Semaphore(IN_FLIGHT)
    return await _together(_read(client, fabric, overlay, device, limit) for device in devices)


async def _read(
    client: NicAgentClient,
    fabric: Fabric,
    overlay: Overlay,
    nic: Device,
    limit: asyncio.Semaphore,
) -> NicStates:
    async def exchange(op: int, index: int, value: int) -> int:
        async with limit:
            return await client.exchange(nic.name, op, index, value)

    paths = used_paths(overlay, nic)
    groups = sorted({path.group for path in paths})
    hosts = [host for host in fabric.devices(DeviceKind.HOST) if host.index != nic.index]
    down = await exchange(Op.READ_DOWN_PLANES, 0, 0)
    cells = await _together(read_path(exchange, fabric, *path) for path in paths)
    assumed = await _together(read_assumed_down(exchange, group) for group in groups)
    peers = await _together(read_peer_down(exchange, fabric.host_address(host)) for host in hosts)
    return NicStates(
        nic=nic,
        paths={
            path: Known(cell.state, cell.generation)
            for path, cell in zip(paths, cells, strict=True)
        },
        down=down,
        assumed_down={group: mask for group, (mask, _) in zip(groups, assumed, strict=True)},
        peers_down={host.name: peer.planes for host, peer in zip(hosts, peers, strict=True)},
    )


async def _together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order; the first error ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


# ---- what is to change --------------------------------------------------------------------------


@dataclass(frozen=True)
class Targets:
    """Which paths are meant: those that cross any of the switches or links, or have this plane and
    uplink."""

    switches: frozenset[str] = frozenset()
    links: frozenset[frozenset[str]] = frozenset()
    ways: frozenset[tuple[int, int]] = frozenset()

    @classmethod
    def parse(cls, fabric: Fabric, texts: Sequence[str]) -> Targets:
        """From `p0t1-1` (a switch), `p0t0-0,p0t1-1` (a link) or `0/1` (plane and uplink).

        Raises PathStateError, or FabricError on a name that the fabric does not have.
        """
        switches, links, ways = set(), set(), set()
        for text in texts:
            if "/" in text:
                ways.add(_way(fabric, text))
            elif "," in text or "|" in text:
                links.add(_link(fabric, text))
            else:
                if fabric.device(text).kind not in (DeviceKind.T0, DeviceKind.T1):
                    raise PathStateError(f"{text} is not a switch; allowed: T0s and T1s")
                switches.add(text)
        return cls(frozenset(switches), frozenset(links), frozenset(ways))

    def mean(self, fabric: Fabric, nic: Device, path: Path) -> bool:
        """Whether a path of a NIC is one of them."""
        if (path.plane, path.uplink) in self.ways and path.group != nic.group:
            return True
        crossed = [nic.name, *(device.name for device in path_devices(fabric, nic, *path))]
        return bool(self.switches.intersection(crossed)) or any(
            frozenset(link) in self.links for link in pairwise(crossed)
        )


def _way(fabric: Fabric, text: str) -> tuple[int, int]:
    plane, _, uplink = text.partition("/")
    if not (plane.isdecimal() and uplink.isdecimal()):
        raise PathStateError(f"{text}: a path is plane/uplink, as in 0/1")
    if int(plane) >= fabric.planes or int(uplink) >= fabric.uplinks:
        raise PathStateError(
            f"{text}: {fabric.name} has planes 0 to {fabric.planes - 1} and uplinks 0 to "
            f"{fabric.uplinks - 1}"
        )
    return int(plane), int(uplink)


def _link(fabric: Fabric, text: str) -> frozenset[str]:
    names = [name.strip() for name in text.replace("|", ",").split(",")]
    if len(names) != 2:
        raise PathStateError(f"{text}: a link is named by its two ends, as in p0t0-0,p0t1-1")
    ends = [fabric.device(name) for name in names]
    if not any(_wired(fabric, ends[0], ends[1])):
        raise PathStateError(f"{text}: {names[0]} and {names[1]} are not wired to each other")
    return frozenset(names)


def _wired(fabric: Fabric, a: Device, b: Device) -> Iterator[bool]:
    for port in fabric.ports.port[fabric.ports.of(a.row)].tolist():
        yield fabric.neighbour(a, port)[0].row == b.row


class Change(NamedTuple):
    """One path's state is to become another one."""

    nic: str
    path: Path
    known: Known
    wanted: EvState


def plan_denial(
    fabric: Fabric, states: Sequence[NicStates], targets: Targets, min_active: int
) -> list[Change]:
    """The changes that deny these paths in these NICs.

    Raises PathStateError when a plane of a NIC would be left with fewer than `min_active` paths to
    a T0 group that are not denied (all of them, where it has no more): the NIC does not look at
    other planes when it has none left, so that packets would be lost.
    """
    changes = []
    for nic in states:
        meant = {path for path in nic.paths if targets.mean(fabric, nic.nic, path)}
        for (group, plane), uplinks in nic.planes().items():
            here = {uplink for uplink in uplinks if Path(group, plane, uplink) in meant}
            left = [
                uplink
                for uplink, state in uplinks.items()
                if state is not EvState.DENIED and uplink not in here
            ]
            least = min(max(min_active, 1), len(uplinks))
            if here and len(left) < least:
                raise PathStateError(
                    f"{nic.nic.name}: of its {len(uplinks)} paths to T0 group {group} by plane "
                    f"{plane} {len(left)} would be left; allowed: at least {least} "
                    "(ev_min_active). Whole planes are denied by a policy's deny, which moves "
                    "their share to the others"
                )
        changes += [
            Change(nic.nic.name, path, nic.paths[path], EvState.DENIED)
            for path in sorted(meant)
            if nic.paths[path].state is not EvState.DENIED
        ]
    return changes


def plan_allowance(
    fabric: Fabric, states: Sequence[NicStates], targets: Targets | None
) -> list[Change]:
    """The changes that make denied paths GOOD again; `None`: all that are denied."""
    return [
        Change(nic.nic.name, path, known, EvState.GOOD)
        for nic in states
        for path, known in sorted(nic.paths.items())
        if known.state is EvState.DENIED
        and (targets is None or targets.mean(fabric, nic.nic, path))
    ]


async def apply(client: NicAgentClient, fabric: Fabric, changes: Sequence[Change]) -> None:
    """Make all changes, or none: what was changed before a NIC failed is put back.

    Raises AgentError, which says what could not be put back.
    """
    done: list[Change] = []
    try:
        for change in changes:
            await _write(client, fabric, change, change.wanted)
            done.append(change)
    except AgentError as error:
        kept = []
        for change in reversed(done):
            try:
                await _write(client, fabric, change, change.known.state)
            except AgentError:
                kept.append(change.nic)
        names = ", ".join(sorted(set(kept)))
        rest = f"; could not be put back in {names}" if kept else "; nothing is changed"
        raise AgentError(f"{error}{rest}") from error


async def _write(client: NicAgentClient, fabric: Fabric, change: Change, state: EvState) -> None:
    exchange = partial(client.exchange, change.nic)
    await write_path(exchange, fabric, change.path, state, change.known.generation)
