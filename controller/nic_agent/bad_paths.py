# SPDX-License-Identifier: Apache-2.0
"""Which paths of one NIC are to be probed, and when: pure, fed with events, looks and a clock.

A path that its NIC assumes to be bad is probed until the NIC says otherwise: its data plane counts
the answers (policy key `spray.probe_successes`). A plane that it assumes to be down for a T0 group
comes back by one answered probe on any path of it, so all of them are tried.

Between probes the NIC's registers are looked at. That shows answers before they are enough, so that
probes then follow one another quickly, and it shows what no event told (another controller was
the NIC's primary, or the NIC was started again).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from controller.ev_events import EvCause, EvEvent, EvState, PlaneChange

FIRST_INTERVAL_S: Final = 0.02
LAST_INTERVAL_S: Final = 1.0
UNUSABLE_WAIT_S: Final = 0.1


class BadPath(NamedTuple):
    """A path to a T0 group that the NIC assumes to be bad."""

    group: int
    plane: int
    uplink: int

    @classmethod
    def of(cls, event: EvEvent) -> BadPath:
        """The path that an event is about."""
        return cls(event.group, event.plane, event.uplink)


class DownPlane(NamedTuple):
    """A plane that the NIC assumes not to lead to a T0 group."""

    group: int
    plane: int


Bad = BadPath | DownPlane


@dataclass(slots=True)
class _Plan:
    """When to look at the registers, when to probe, and what was found so far."""

    probe_s: float
    look_s: float = inf
    probed_s: float = 0.0
    interval_s: float = FIRST_INTERVAL_S
    successes: int = 0
    probes: int = 0
    uplink: int = 0  # of a plane: by which it was found to be down


class BadPaths:
    """What is being probed for one NIC. Times are in seconds on any one clock."""

    def __init__(self) -> None:
        self._plans: dict[Bad, _Plan] = {}

    def __contains__(self, what: Bad) -> bool:
        return what in self._plans

    @property
    def paths(self) -> list[BadPath]:
        """Those assumed to be bad."""
        return [what for what in self._plans if isinstance(what, BadPath)]

    @property
    def planes(self) -> list[DownPlane]:
        """Those assumed to be down."""
        return [what for what in self._plans if isinstance(what, DownPlane)]

    def add(self, what: Bad, now_s: float, uplink: int = 0) -> None:
        """Probe this from now on; `uplink`: the plane's first path to try."""
        if what not in self._plans:
            self._plans[what] = _Plan(now_s + FIRST_INTERVAL_S, uplink=uplink)

    def remove(self, what: Bad) -> None:
        """Do not probe this any more."""
        self._plans.pop(what, None)

    def hear(self, event: EvEvent, now_s: float) -> None:
        """Take in what the NIC says."""
        if event.cause is EvCause.GENERATION:  # all paths and planes of the group are GOOD again
            for what in [what for what in self._plans if what.group == event.group]:
                self.remove(what)
            return
        path = BadPath.of(event)
        if event.after is EvState.ASSUMED_BAD:
            self.add(path, now_s)
        else:
            self.remove(path)
        plane = DownPlane(event.group, event.plane)
        if event.plane_change is PlaneChange.ASSUMED_DOWN:
            self.add(plane, now_s, event.uplink)
        elif event.plane_change is PlaneChange.BACK:
            self.remove(plane)

    # ---- looking and probing -------------------------------------------------------------------

    def to_look_at(self, now_s: float) -> list[Bad]:
        """Whose registers should be looked at now, the longest due first."""
        due = [(plan.look_s, what) for what, plan in self._plans.items() if plan.look_s <= now_s]
        return [what for _, what in sorted(due)]

    def looked(self, what: Bad, now_s: float, *, bad: bool, successes: int) -> None:
        """The NIC's registers say: (still) bad or not, and how many probes were answered."""
        plan = self._plans.get(what)
        if plan is None:
            return
        if not bad:
            self.remove(what)
            return
        plan.look_s = inf
        if successes > plan.successes:
            plan.interval_s = FIRST_INTERVAL_S
            plan.probe_s = now_s
        else:
            plan.probe_s = plan.probed_s + plan.interval_s
            plan.interval_s = min(2 * plan.interval_s, LAST_INTERVAL_S)
        plan.successes = successes

    def to_probe(self, now_s: float) -> list[Bad]:
        """What should be probed now, the longest due first."""
        found = [
            (plan.probe_s, what) for what, plan in self._plans.items() if plan.probe_s <= now_s
        ]
        return [what for _, what in sorted(found)]

    def probed(self, what: Bad, now_s: float) -> None:
        """A probe has been sent."""
        plan = self._plans.get(what)
        if plan is not None:
            plan.probes += 1
            plan.probed_s = now_s
            plan.probe_s = inf
            plan.look_s = now_s + FIRST_INTERVAL_S

    def postpone(self, what: Bad, now_s: float) -> None:
        """It cannot be probed at the moment: its plane has no carrier."""
        if what in self._plans:
            self._plans[what].probe_s = now_s + UNUSABLE_WAIT_S

    def next_s(self) -> float:
        """When something is to be done; infinity when nothing is."""
        return min((min(plan.look_s, plan.probe_s) for plan in self._plans.values()), default=inf)

    def probes(self, what: Bad) -> int:
        """How many were sent since it has been known to be bad."""
        return self._plans[what].probes

    def uplink(self, what: Bad, uplinks: int) -> int:
        """By which of the T0's uplinks the next probe goes.

        Of a plane that is every other time the one by which it was found to be down, else the
        others in turn: that one may be broken for good, or be the only one that is not.
        """
        if isinstance(what, BadPath):
            return what.uplink
        plan = self._plans[what]
        others = (plan.probes + 1) // 2 if plan.probes % 2 else 0
        return (plan.uplink + others) % uplinks
