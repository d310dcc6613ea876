# SPDX-License-Identifier: Apache-2.0
"""Probes what a NIC assumes to be bad, so that it comes back when it is good again.

A probe leaves the NIC as if the host had sent it, on exactly the path in question; any host behind
that T0 group answers, and the NIC's data plane takes the answer as it passes up. What the NIC said
while somebody else was its primary is lost to us, so each time the NIC is ours its registers are
read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from math import isinf
from typing import Final

from controller import addressing as addr
from controller.addressing import EntropyValue
from controller.ev_events import EvEvent, EvState
from controller.fabric import Fabric
from controller.nic_agent.bad_paths import UNUSABLE_WAIT_S, Bad, BadPath, BadPaths, DownPlane
from controller.nic_agent.frames import RequestIds, ev_probe
from controller.nic_agent.registers import Op, read_assumed_down, read_inactive, read_path
from controller.nic_agent.session import NicSession
from controller.p4rt import DeviceError
from mrc.pacing import Pacer

log = logging.getLogger(__name__)

PROBES_PER_S: Final = 500.0
"""Of all NICs of an agent together."""


class Turns:
    """Lets all NICs' probers send so many probes per second together, one NIC after the other."""

    def __init__(self, probes_per_s: float = PROBES_PER_S) -> None:
        self._pacer = Pacer(probes_per_s, burst=1)
        self._queue = asyncio.Lock()  # first come, first served

    async def take(self) -> None:
        """Wait until it is the caller's turn to send one."""
        async with self._queue:
            await self._pacer.grant()


class Prober:
    """Probes for one NIC. `sent` counts its probes."""

    def __init__(
        self, fabric: Fabric, session: NicSession, down_planes: Callable[[], int], turns: Turns
    ) -> None:
        """`down_planes` tells the mask of planes without carrier; all NICs share `turns`."""
        self.sent = 0
        self.bad = BadPaths()
        self._fabric = fabric
        self._nic = fabric.device(session.name)
        self._session = session
        self._down_planes = down_planes
        self._turns = turns
        self._request_ids = RequestIds()
        self._scan_wanted = False
        self._wake = asyncio.Event()

    def hear(self, event: EvEvent) -> None:
        """Take in what the NIC says."""
        fabric = self._fabric
        if (
            event.group < fabric.groups
            and event.plane < fabric.planes
            and event.uplink < fabric.uplinks
        ):
            self.bad.hear(event, time.monotonic())
            self._wake.set()
        else:  # whoever wrote its register (mrcctl, a test) named the path
            log.error("%s: there is no such path to probe: %s", self._nic.name, event)

    def scan(self) -> None:
        """Have all registers read again: the NIC is ours, who knows since when not."""
        self._scan_wanted = True
        self._wake.set()

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            self._wake.clear()
            await self._session.ready.wait()
            try:
                await self._work()
            except DeviceError as error:
                log.warning("%s: probing waits: %s", self._nic.name, error)
                await asyncio.sleep(UNUSABLE_WAIT_S)
                continue
            next_s = self.bad.next_s()
            try:
                async with asyncio.timeout(None if isinf(next_s) else next_s - time.monotonic()):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _work(self) -> None:
        """Do everything that is due. Raises DeviceError when the NIC cannot be reached."""
        if self._scan_wanted:
            self._scan_wanted = False
            try:
                await self._scan()
            except DeviceError:
                self._scan_wanted = True
                raise
        for what in self.bad.to_look_at(time.monotonic()):
            await self._look(what)
        for what in self.bad.to_probe(time.monotonic()):
            await self._turns.take()
            if what in self.bad:  # an event may have come meanwhile
                await self._probe(what)

    async def _scan(self) -> None:
        """Find what is bad by the registers. That something is not any more, looking will show."""
        exchange, fabric = self._session.exchange, self._fabric
        for group in range(fabric.groups):
            down, _ = await read_assumed_down(exchange, group)
            for plane in range(fabric.planes):
                if down >> plane & 1:
                    self.bad.add(DownPlane(group, plane), time.monotonic())
                if await read_inactive(exchange, group, plane) == 0:
                    continue
                for uplink in range(fabric.uplinks):
                    cell = await read_path(exchange, fabric, group, plane, uplink)
                    if cell.state is EvState.ASSUMED_BAD:
                        self.bad.add(BadPath(group, plane, uplink), time.monotonic())

    async def _look(self, what: Bad) -> None:
        exchange = self._session.exchange
        if isinstance(what, BadPath):
            cell = await read_path(exchange, self._fabric, *what)
            bad, successes = cell.state is EvState.ASSUMED_BAD, cell.successes
        else:
            down, _ = await read_assumed_down(exchange, what.group)
            bad, successes = bool(down >> what.plane & 1), 0
        self.bad.looked(what, time.monotonic(), bad=bad, successes=successes)

    async def _probe(self, what: Bad) -> None:
        targets = self._targets(what.group)
        if self._down_planes() >> what.plane & 1 or not targets:
            self.bad.postpone(what, time.monotonic())
            return
        # To another host each time: the one host's own link may be what is broken.
        target = targets[self.bad.probes(what) % len(targets)]
        # The uplink of the T0 group that the NIC itself is in does not matter.
        uplinks = 1 if what.group == self._nic.group else self._fabric.uplinks
        path = EntropyValue(what.plane, self.bad.uplink(what, uplinks))
        frame = ev_probe(
            self._fabric.host_address(self._nic).to_bytes(16, "big"),
            target.to_bytes(16, "big"),
            path.path_ev,
            self._request_ids.take(),
        )
        await self._session.packet_out(frame, op=Op.INJECT, index=0, value=0)
        self.sent += 1
        self.bad.probed(what, time.monotonic())

    def _targets(self, group: int) -> list[int]:
        """Addresses of the other hosts behind a T0 group."""
        own = (self._nic.group, self._nic.downlink)
        return [
            addr.host_address(group, downlink)
            for downlink in range(self._fabric.hosts_per_group)
            if (group, downlink) != own
        ]
