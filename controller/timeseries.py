# SPDX-License-Identifier: Apache-2.0
"""Rates over time: which counters make a line, and what readings of them say per second.

A line (a plane, a T1) is the sum of cells of indexed counters, on one device or several. Readings
have the time at which each device answered, because devices of a busy machine do not answer at
once. What could not be read is NaN, and so is the time in which a counter went back (the device was
started again): a gap, not a zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from controller import addressing as addr
from controller.addressing import DeviceKind
from controller.fabric import Fabric, FabricError

Floats = NDArray[np.float64]
Direction = Literal["sent", "received"]
PORT_COUNTER: dict[Direction, str] = {"sent": "port_out", "received": "port_in"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of an indexed counter."""

    device: str
    counter: str
    index: int


@dataclass(frozen=True)
class Line:
    """One line of a plot: the sum of its cells."""

    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Event:
    """What happened, `at_s` seconds after the first reading began."""

    at_s: float
    text: str


def plane_lines(
    fabric: Fabric, nics: Sequence[str] = (), direction: Direction = "sent"
) -> tuple[Line, ...]:
    """A line per plane: packets that NICs (all of them, or those named) sent to or took from it."""
    devices = [fabric.device(name) for name in nics] or list(fabric.devices(DeviceKind.NIC))
    for device in devices:
        if device.kind is not DeviceKind.NIC:
            raise FabricError(f"{device.name} is a {device.kind.name}; allowed: a NIC, as in n0-0")
    counter = PORT_COUNTER[direction]
    return tuple(
        Line(
            f"plane {plane}",
            tuple(Cell(nic.name, counter, addr.nic_plane_port(plane)) for nic in devices),
        )
        for plane in range(fabric.planes)
    )


def t1_lines(fabric: Fabric) -> tuple[Line, ...]:
    """A line per T1: packets that the T0s sent to it, which they count also when it is dead."""
    t0s = list(fabric.devices(DeviceKind.T0))
    return tuple(
        Line(
            t1.name,
            tuple(
                Cell(t0.name, "port_out", addr.t0_uplink_port(fabric.hosts_per_group, t1.index))
                for t0 in t0s
                if t0.plane == t1.plane
            ),
        )
        for t1 in fabric.devices(DeviceKind.T1)
    )


@dataclass(frozen=True)
class Readings:
    """N readings of the cells of L lines on D devices.

    `at_s` (N, D): when each device answered, in seconds. `packets` (N, C): the cells, in the order
    of `cells`. NaN where a device could not be read.
    """

    lines: tuple[Line, ...]
    devices: tuple[str, ...]
    cells: tuple[Cell, ...]
    at_s: Floats
    packets: Floats


@dataclass(frozen=True)
class Series:
    """Rates by line, constant between two times.

    `edges_s` (N,): from the first reading; `rates` (N - 1, L) in packets per second, NaN where
    nothing is known.
    """

    title: str
    labels: tuple[str, ...]
    edges_s: Floats
    rates: Floats
    events: tuple[Event, ...] = ()

    @property
    def seconds(self) -> float:
        """From the first reading to the last."""
        return float(self.edges_s[-1] - self.edges_s[0]) if len(self.edges_s) else 0.0

    def between(self, start_s: float, end_s: float) -> Floats:
        """Mean rates (L,) from one time to another; NaN where nothing is known of it."""
        mean: Floats = bins(self, np.array([start_s, end_s]))[0]
        return mean


def rates(readings: Readings, title: str, events: Sequence[Event] = ()) -> Series:
    """What two readings each say about the time between them."""
    device_of = {name: number for number, name in enumerate(readings.devices)}
    columns = np.array([device_of[cell.device] for cell in readings.cells], dtype=np.int64)
    with np.errstate(invalid="ignore", divide="ignore"):
        grown = np.diff(readings.packets, axis=0)
        per_cell = grown / np.diff(readings.at_s, axis=0)[:, columns]
    per_cell[grown < 0] = np.nan
    number_of = {cell: number for number, cell in enumerate(readings.cells)}
    by_line = [
        per_cell[:, [number_of[cell] for cell in line.cells]].sum(axis=1) for line in readings.lines
    ]
    known = np.asarray(~np.isnan(readings.at_s).all(axis=1))
    edges = np.full(len(known), np.nan)
    edges[known] = np.nanmean(readings.at_s[known], axis=1)
    # A reading that no device answered is between its neighbours, wherever that was.
    edges[~known] = np.interp(np.flatnonzero(~known), np.flatnonzero(known), edges[known])
    return Series(
        title,
        tuple(line.label for line in readings.lines),
        edges,
        np.stack(by_line, axis=1),
        tuple(events),
    )


def bins(series: Series, edges_s: Floats) -> Floats:
    """Mean rates (len(edges_s) - 1, L) in other intervals, of the part of each that is known."""
    width = np.diff(series.edges_s)
    known = ~np.isnan(series.rates)
    result = np.full((len(edges_s) - 1, len(series.labels)), np.nan)
    for line in range(len(series.labels)):
        packets = np.where(known[:, line], series.rates[:, line], 0.0) * width
        of_known = _grown(series.edges_s, width * known[:, line], edges_s)
        total = _grown(series.edges_s, packets, edges_s)
        np.divide(total, of_known, out=result[:, line], where=of_known > 1e-9)
    return result


def _grown(edges_s: Floats, amounts: Floats, wanted_s: Floats) -> Floats:
    """How much of what came evenly within each interval falls into the wanted ones."""
    sums = np.concatenate([[0.0], np.cumsum(amounts)])
    return np.diff(np.interp(wanted_s, edges_s, sums))


@dataclass(frozen=True)
class Phase:
    """The time between two events, and the mean rates (L,) in it."""

    start_s: float
    end_s: float
    rates: Floats


def phases(series: Series) -> list[Phase]:
    """The times before, between and after the events, as far as there were readings."""
    if len(series.edges_s) < 2:
        return []
    first, last = float(series.edges_s[0]), float(series.edges_s[-1])
    cuts = sorted({first, last, *(min(max(event.at_s, first), last) for event in series.events)})
    means = bins(series, np.array(cuts))
    return [Phase(*ends, mean) for ends, mean in zip(pairwise(cuts), means, strict=True)]


def nice_ceiling(value: float) -> float:
    """The next of 1, 2, 5, 10, 20 .. that is not less: where an axis may end."""
    if not value > 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(value))
    return next(float(step * power) for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


def event_letters(events: Sequence[Event]) -> list[tuple[str, Event]]:
    """Events by time with a letter each, as plots refer to them; after Z comes a number."""
    in_order = sorted(events, key=lambda event: event.at_s)
    return [
        (chr(ord("A") + number) if number < 26 else str(number + 1), event)
        for number, event in enumerate(in_order)
    ]
