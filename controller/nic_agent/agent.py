# SPDX-License-Identifier: Apache-2.0
"""All NICs of a fabric: their sessions, the carrier of their plane ports, and who listens."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from controller.ev_events import Event, EvEvent, LinkEvent
from controller.fabric import Fabric
from controller.inventory import Inventory
from controller.nic_agent.links import link_notices
from controller.nic_agent.notices import Notices
from controller.nic_agent.plane_ports import PlaneStates, plane_ports
from controller.nic_agent.prober import Prober, Turns
from controller.nic_agent.registers import Op
from controller.nic_agent.session import NicSession, NicUnavailableError, Sample
from controller.p4rt import load_program

log = logging.getLogger(__name__)

LISTENER_EVENTS = 10_000  # that one listener may be behind; it loses older ones, and is told


class Listener:
    """One who is told of events, as they come. `lost` counts those that it was too slow for."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue(LISTENER_EVENTS)
        self.lost = 0

    def tell(self, event: Event) -> None:
        """Queue an event."""
        if self.events.full():
            self.events.get_nowait()
            self.lost += 1
        self.events.put_nowait(event)


class NicAgent:
    """Everything that the agent does for one fabric. `run` it as a task."""

    def __init__(self, fabric: Fabric, inventory: Inventory) -> None:
        schema = load_program("nic")
        self.fabric = fabric
        self.sessions = {
            name: NicSession(name, device, schema, self._prepare, self._on_sample)
            for name, device in inventory.devices.items()
            if device.program == "nic"
        }
        self._states = PlaneStates(plane_ports(fabric))
        self._masks = self._states.masks()
        self._in_force: dict[str, int] = {}
        self._mask_us: dict[str, float] = {}  # from notice to the NIC's answer
        self._changed = {name: asyncio.Event() for name in self.sessions}
        self._listeners: set[Listener] = set()
        self._notices = {
            name: Notices(fabric, session, partial(self._down_planes, name))
            for name, session in self.sessions.items()
        }
        turns = Turns()
        self._probers = {
            name: Prober(fabric, session, partial(self._down_planes, name), turns)
            for name, session in self.sessions.items()
        }

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_carrier())
            for name, session in self.sessions.items():
                tasks.create_task(session.run())
                tasks.create_task(self._keep_mask(name))
                tasks.create_task(self._notices[name].run())
                tasks.create_task(self._probers[name].run())

    # ---- listeners -----------------------------------------------------------------------------

    @contextmanager
    def listening(self) -> Iterator[Listener]:
        """A listener that hears of everything from now on."""
        listener = Listener()
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    def _tell(self, event: Event) -> None:
        for listener in self._listeners:
            listener.tell(event)

    def _on_sample(self, nic: str, sample: Sample) -> None:
        try:
            event = EvEvent.from_sample(nic, sample)
        except ValueError as error:
            log.error("%s: a digest means nothing to us (%s): %s", nic, error, sample)
            return
        self._probers[nic].hear(event)
        self._tell(event)

    def _down_planes(self, nic: str) -> int:
        return self._masks[nic]

    # ---- carrier -------------------------------------------------------------------------------

    async def _watch_carrier(self) -> None:
        async for notice in link_notices():
            if isinstance(notice, list):
                ports = self._states.replace(notice)
            else:
                ports = self._states.hear(notice)
            if not ports:
                continue
            self._masks = self._states.masks()
            for port in ports:
                up = not self._masks[port.nic] >> port.plane & 1
                log.info("%s: plane %d is %s", port.nic, port.plane, "up" if up else "down")
                self._tell(LinkEvent(port.nic, port.plane, up))
                if port.nic in self._changed:
                    self._changed[port.nic].set()
                    self._notices[port.nic].hear()

    async def _keep_mask(self, name: str) -> None:
        """Write the NIC's mask when it has changed, as long as the NIC is ours."""
        session = self.sessions[name]
        while True:
            await self._changed[name].wait()
            await session.ready.wait()
            self._changed[name].clear()
            try:
                await self._write_mask(session)
            except NicUnavailableError as error:
                log.warning("%s; its mask is written as soon as the NIC is ours again", error)
                self._changed[name].set()
                await asyncio.sleep(0.1)

    async def _prepare(self, session: NicSession) -> None:
        await self._write_mask(session)
        self._probers[session.name].scan()
        self._notices[session.name].hear()

    async def _write_mask(self, session: NicSession) -> None:
        """Write what is true now, until what is in force is what is true."""
        name = session.name
        started = time.monotonic_ns()
        while True:
            mask = self._masks[name]
            answer = await session.exchange(Op.WRITE_DOWN_PLANES, 0, mask)
            self._in_force[name] = answer
            if answer == self._masks[name]:
                self._mask_us[name] = (time.monotonic_ns() - started) / 1e3
                return
            if answer != mask:
                raise NicUnavailableError(f"{name}: wrote mask {mask:08b}, reads {answer:08b}")

    # ---- what others ask -----------------------------------------------------------------------

    def session(self, nic: str) -> NicSession:
        """The session of a NIC. ValueError with those there are."""
        try:
            return self.sessions[nic]
        except KeyError:
            raise ValueError(f"nic = {nic!r}: allowed are {', '.join(self.sessions)}") from None

    def status(self) -> dict[str, Any]:
        """How things are, as JSON, by NIC."""
        return {name: self._status_of(session) for name, session in self.sessions.items()}

    def _status_of(self, session: NicSession) -> dict[str, Any]:
        name, ready = session.name, session.ready.is_set()
        prober = self._probers[name]
        return {
            "attached": session.attached.is_set(),
            "ready": ready,
            "why_not": None if ready else session.why_not_ready,
            "down_planes": self._masks[name],
            "down_planes_in_force": self._in_force.get(name) if ready else None,
            "mask_write_us": self._mask_us.get(name),
            "bad_paths": prober.bad.paths,
            "assumed_down": prober.bad.planes,
            "probes": prober.sent,
            "notices": self._notices[name].sent,
            "counters": dict(session.counters),
        }
