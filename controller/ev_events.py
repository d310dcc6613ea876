# SPDX-License-Identifier: Apache-2.0
"""What NICs say about their paths: the digest `ev_event_t` of nic.p4 in words and named links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

from controller.addressing import EntropyValue
from controller.fabric import Device, Fabric


class EvState(IntEnum):
    """State of a path (MRC's EV states); the numbers are ev_event.p4's."""

    GOOD = 0
    SKIP = 1
    ASSUMED_BAD = 2
    DENIED = 3


class EvCause(IntEnum):
    """What changed a state; the numbers are ev_event.p4's."""

    NONE = 0
    ACKED = 1
    SKIP_ONCE = 2
    TRIMMED = 3
    ALWAYS_SKIP = 4
    LOSS = 5
    PROBE = 6
    PROBE_MARKED = 7
    ROTATION = 8
    CONTROLLER = 9
    GENERATION = 10


class PlaneChange(IntEnum):
    """What the event did to the path's plane, for all paths of the group."""

    UNCHANGED = 0
    ASSUMED_DOWN = 1
    BACK = 2


@dataclass(frozen=True, slots=True)
class EvEvent:
    """One change of one path's state in one NIC.

    `group` is the T0 group that the path leads to, `time_us` microseconds since the NIC started,
    `qp` what the BTH names that caused it (0: the controller). With cause GENERATION all states
    of the group were reset, and plane and uplink mean nothing.
    """

    nic: str
    group: int
    plane: int
    uplink: int
    before: EvState
    after: EvState
    cause: EvCause
    plane_change: PlaneChange
    generation: int
    qp: int
    time_us: int

    @classmethod
    def from_sample(cls, nic: str, sample: Mapping[str, int]) -> EvEvent:
        """From the members of a digest. ValueError on a number that means nothing."""
        path = EntropyValue.from_wire(sample["path_ev"], 0)
        return cls(
            nic=nic,
            group=sample["path_group"],
            plane=path.plane,
            uplink=path.uplink,
            before=EvState(sample["from_state"]),
            after=EvState(sample["to_state"]),
            cause=EvCause(sample["cause"]),
            plane_change=PlaneChange(sample["plane_change"]),
            generation=sample["generation"],
            qp=sample["qp"],
            time_us=sample["time"],
        )

    def to_json(self) -> dict[str, Any]:
        """An object with names for the enumerations."""
        values = asdict(self)
        for name in ("before", "after", "cause", "plane_change"):
            values[name] = values[name].name
        return {"event": "path", **values}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> EvEvent:
        """The inverse of `to_json`. ValueError or KeyError on what is not one."""
        given = {name: value for name, value in values.items() if name != "event"}
        return cls(
            **given
            | {
                "before": EvState[given["before"]],
                "after": EvState[given["after"]],
                "cause": EvCause[given["cause"]],
                "plane_change": PlaneChange[given["plane_change"]],
            }
        )


@dataclass(frozen=True, slots=True)
class LinkEvent:
    """A NIC's plane port lost or got its carrier."""

    nic: str
    plane: int
    up: bool

    def to_json(self) -> dict[str, Any]:
        """An object that `from_json` takes."""
        return {"event": "link", **asdict(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> LinkEvent:
        """The inverse of `to_json`. TypeError on what is not one."""
        return cls(**{name: value for name, value in values.items() if name != "event"})


Event = EvEvent | LinkEvent


def event_from_json(values: Mapping[str, Any]) -> Event:
    """An event of either kind, as `to_json` wrote it."""
    return EvEvent.from_json(values) if values["event"] == "path" else LinkEvent.from_json(values)


def path_devices(fabric: Fabric, nic: Device, group: int, plane: int, uplink: int) -> list[Device]:
    """The switches that a path crosses from this NIC to T0 group `group`, in order.

    IndexError when the fabric has no such path.
    """
    if not (plane < fabric.planes and uplink < fabric.uplinks and group < fabric.groups):
        raise IndexError(
            f"no path by plane {plane}, uplink {uplink} to group {group}: {fabric.name} has "
            f"{fabric.planes} planes, {fabric.uplinks} uplinks, {fabric.groups} groups"
        )
    assert nic.group is not None
    first = fabric.device_at(fabric.t0_row(plane, nic.group))
    if group == nic.group:
        return [first]
    rows = (fabric.t1_row(plane, uplink), fabric.t0_row(plane, group))
    return [first, *(fabric.device_at(row) for row in rows)]
