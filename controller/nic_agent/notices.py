# SPDX-License-Identifier: Apache-2.0
"""Tells a NIC's peers which of its plane ports are up (Endpoint Request op 0, section 3.11).

A NIC keeps its own packets off a dead port; only its peers can keep theirs off it. Their NICs
forget what is not repeated for 5 s (p4src/include/peer_ports.p4), so a notice that is lost, the
last one too, and an agent that dies do no lasting harm.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from math import inf, isinf
from typing import Final

from controller.addressing import DeviceKind, EntropyValue, parse_host_address
from controller.fabric import Fabric
from controller.nic_agent.frames import RequestIds, port_status_update
from controller.nic_agent.registers import Op
from controller.nic_agent.session import NicSession
from controller.p4rt import DeviceError

log = logging.getLogger(__name__)

AT_A_CHANGE: Final = 3
"""Notices to each peer at once, over different planes."""
REPEAT_S: Final = 1.0
"""As long as a port is down, and once after all are up again."""
RETRY_S: Final = 0.1


class NoticeSchedule:
    """How many notices each peer gets, and when. Pure: `now_s` is any clock's."""

    def __init__(self) -> None:
        self.next_s = inf
        self._down = 0
        self._wanted = 0

    def change(self, down: int, now_s: float) -> None:
        """The mask of planes without carrier is this; nothing happens if it was already."""
        if down != self._down:
            self._down = down
            self.again(AT_A_CHANGE, now_s)

    def again(self, wanted: int, at_s: float) -> None:
        """So many are wanted then, and the repetitions follow."""
        self._wanted = wanted
        self.next_s = at_s

    def due(self, now_s: float) -> int:
        """How many to send now; they count as sent."""
        if now_s < self.next_s:
            return 0
        wanted, self._wanted = self._wanted, 1
        ended = self._down == 0 and wanted == 1
        self.next_s = inf if ended else now_s + REPEAT_S
        return wanted


def way(planes: int, down: int, uplinks: int, turn: int) -> EntropyValue | None:
    """The path of a notice; the next turns take the other live planes. None if none is alive."""
    live = [plane for plane in range(planes) if not down >> plane & 1]
    if not live:
        return None
    return EntropyValue(live[turn % len(live)], turn // len(live) % uplinks)


class Notices:
    """Those of one NIC. `run` it as a task; `sent` counts them."""

    def __init__(self, fabric: Fabric, session: NicSession, down_planes: Callable[[], int]) -> None:
        """`down_planes` tells the mask of planes without carrier."""
        self.sent = 0
        self._fabric = fabric
        self._nic = fabric.device(session.name)
        self._session = session
        self._down_planes = down_planes
        self._schedule = NoticeSchedule()
        self._peers = self._all_others()
        self._request_ids = RequestIds()
        self._turn = 0
        self._wake = asyncio.Event()

    def hear(self) -> None:
        """A port's carrier has changed, or the NIC is ours."""
        self._wake.set()

    async def run(self) -> None:
        """Send what is due until cancelled."""
        while True:
            self._wake.clear()
            await self._session.ready.wait()
            self._schedule.change(self._down_planes(), time.monotonic())
            if count := self._schedule.due(time.monotonic()):
                await self._tell(count)
                continue
            next_s = self._schedule.next_s
            try:
                async with asyncio.timeout(None if isinf(next_s) else next_s - time.monotonic()):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _tell(self, count: int) -> None:
        """So many notices to each peer, and to those that have become peers since the last ones.

        Who the peers are is looked up behind the notices, which must not wait for it.
        """
        known = self._peers
        try:
            await self._send(known, count)
            self._peers = await self._peers_now()
            await self._send(sorted(set(self._peers) - set(known)), count)
        except DeviceError as error:
            log.warning("%s: telling its peers of its ports: %s", self._nic.name, error)
            self._schedule.again(count, time.monotonic() + RETRY_S)

    async def _send(self, peers: Sequence[int], count: int) -> None:
        fabric = self._fabric
        source = fabric.host_address(self._nic).to_bytes(16, "big")
        for _ in range(count if peers else 0):
            for peer in peers:
                group, _ = parse_host_address(peer)
                # The uplink of the T0 group that the NIC itself is in does not matter.
                uplinks = 1 if group == self._nic.group else fabric.uplinks
                down = self._down_planes()  # what is true now
                path = way(fabric.planes, down, uplinks, self._turn)
                if path is None:
                    return
                frame = port_status_update(
                    source,
                    peer.to_bytes(16, "big"),
                    path.path_ev,
                    self._request_ids.take(),
                    (1 << fabric.planes) - 1 & ~down,
                )
                await self._session.packet_out(frame, op=Op.INJECT, index=0, value=0)
                self.sent += 1
            self._turn += 1

    async def _peers_now(self) -> Sequence[int]:
        """Addresses of those who send to the host: who has a QP with it, by the NIC's table.

        If it has none, every other host: QPs need not be entered there.
        """
        found = await self._session.peers()
        return sorted(found - {self._fabric.host_address(self._nic)}) or self._all_others()

    def _all_others(self) -> Sequence[int]:
        return [
            self._fabric.host_address(nic)
            for nic in self._fabric.devices(DeviceKind.NIC)
            if nic.name != self._nic.name
        ]
