# SPDX-License-Identifier: Apache-2.0
"""Heat maps of path quality as data: what is drawn, before anything is drawn.

`pair_heatmap` is plane x T1 for a pair of T0 groups, `plane_heatmap` T0 x T1 for a plane. Drawing
is in `controller.heatmap_terminal` and `controller.heatmap_figure`. Every grade has a sign besides
its colour, so that a map can be read in monochrome and with any colour vision.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.fabric import Fabric, FabricError
from controller.overlay import Overlay
from controller.quality import Grade, Quality, Thresholds, link_quality, path_quality
from controller.samples import Samples


@dataclass(frozen=True)
class Sign:
    """How a grade looks: text for terminals that know Unicode and for others, and its name."""

    text: str
    ascii: str
    name: str


SIGNS = {
    Grade.GOOD: Sign("•", ".", "good"),
    Grade.DEGRADED: Sign("▲", "!", "degraded"),
    Grade.BAD: Sign("✖", "X", "bad"),
    Grade.NO_DATA: Sign("?", "?", "no data"),
}
DENIED = Sign("⊘", "/", "denied by policy")
"""Drawn beside a cell's grade, because what is denied may still be probed."""


@dataclass(frozen=True)
class HeatMap:
    """A matrix of cells. `quality`, `grades` and `denied` have the shape (rows, columns)."""

    fabric: str
    subject: str
    started: float
    finished: float
    row_label: str
    column_label: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    quality: Quality
    denied: NDArray[np.bool_]
    thresholds: Thresholds

    @property
    def reference_rtt_s(self) -> float:
        """What round-trip thresholds multiply: the median round trip of this map's cells."""
        return self.quality.reference_rtt_s()

    @property
    def grades(self) -> NDArray[np.uint8]:
        """`Grade` of each cell."""
        return self.quality.grades(self.thresholds, self.reference_rtt_s)

    @property
    def title(self) -> str:
        """What is shown, of which fabric."""
        return f"{self.fabric}: {self.subject}"

    @property
    def subtitle(self) -> str:
        """When it was measured, and on how many probes it rests."""
        start = datetime.datetime.fromtimestamp(self.started, datetime.UTC)
        return (
            f"{start:%Y-%m-%d %H:%M:%S} UTC, {self.finished - self.started:.1f} s, "
            f"{int(self.quality.sent.sum()):,} probes"
        )

    def legend(self) -> list[tuple[Grade | None, str]]:
        """What each grade (None: the mark of denied cells) means, with thresholds and units."""
        t = self.thresholds
        rtt = self.reference_rtt_s

        def limits(word: str, loss: float, factor: float) -> str:
            text = f"loss {word} {format_loss(loss)}"
            if not math.isnan(rtt):
                text += f" {'and' if word == '<' else 'or'} RTT {word} {format_rtt(rtt * factor)}"
            return text

        few = f"fewer than {t.min_probes} probes" if t.min_probes > 1 else "no probe"
        entries: list[tuple[Grade | None, str]] = [
            (Grade.GOOD, limits("<", t.loss_degraded, t.rtt_degraded)),
            (Grade.DEGRADED, limits("≥", t.loss_degraded, t.rtt_degraded)),
            (Grade.BAD, limits("≥", t.loss_bad, t.rtt_bad)),
            (Grade.NO_DATA, few),
        ]
        if self.denied.any():
            entries.append((None, "marked over the measured grade"))
        return entries

    def note(self) -> str:
        """What the numbers are."""
        if math.isnan(self.reference_rtt_s):
            return "Loss of probes."
        t = self.thresholds
        return (
            f"Loss of probes and median round trip; RTT limits are {t.rtt_degraded:g} and "
            f"{t.rtt_bad:g} times this map's median, {format_rtt(self.reference_rtt_s)}."
        )


def pair_heatmap(
    samples: Samples,
    fabric: Fabric,
    src_group: int,
    dst_group: int,
    overlay: Overlay | None = None,
    thresholds: Thresholds | None = None,
) -> HeatMap:
    """Plane x T1: the paths from one T0 group to another, measured by EV probes.

    Within one T0 group a plane has one path, over its T0. Raises `FabricError` for groups that the
    fabric does not have and `SamplesError` for samples of another fabric.
    """
    for group in (src_group, dst_group):
        if not 0 <= group < fabric.groups:
            raise FabricError(
                f"{fabric.name} has no T0 group {group}; allowed: 0..{fabric.groups - 1}"
            )
    quality = path_quality(samples, fabric, src_group, dst_group)
    local = src_group == dst_group
    columns = 1 if local else fabric.uplinks
    denied = np.zeros((fabric.planes, columns), dtype=np.bool_)
    if overlay is not None:
        denied = overlay.denied_paths(src_group, dst_group)[:, :columns]
    return HeatMap(
        fabric.name,
        f"paths within T0 group {src_group}"
        if local
        else f"paths from T0 group {src_group} to T0 group {dst_group}",
        samples.started,
        samples.finished,
        "plane",
        "T0" if local else "T1 (= uplink)",
        tuple(str(plane) for plane in range(fabric.planes)),
        (str(src_group),) if local else tuple(str(uplink) for uplink in range(fabric.uplinks)),
        quality,
        denied,
        thresholds or Thresholds(),
    )


def plane_heatmap(
    samples: Samples,
    fabric: Fabric,
    plane: int,
    overlay: Overlay | None = None,
    thresholds: Thresholds | None = None,
) -> HeatMap:
    """T0 x T1: the links of one plane, measured by T1 self-probes.

    Raises `FabricError` for a plane that the fabric does not have and `SamplesError` for samples of
    another fabric.
    """
    if not 0 <= plane < fabric.planes:
        raise FabricError(f"{fabric.name} has no plane {plane}; allowed: 0..{fabric.planes - 1}")
    links = link_quality(samples, fabric)
    quality = Quality(
        links.sent[plane], links.loss[plane], links.rtt_median_s[plane], links.rtt_p99_s[plane]
    )
    denied = np.zeros(quality.sent.shape, dtype=np.bool_)
    if overlay is not None:
        denied = overlay.denied_links()[plane]
    return HeatMap(
        fabric.name,
        f"T0-T1 links of plane {plane}",
        samples.started,
        samples.finished,
        "T0",
        "T1 (= uplink)",
        tuple(str(t0) for t0 in range(fabric.groups)),
        tuple(str(t1) for t1 in range(fabric.uplinks)),
        quality,
        denied,
        thresholds or Thresholds(),
    )


def format_loss(fraction: float) -> str:
    """A loss as per cent, short: `0 %`, `0.1 %`, `12 %`."""
    percent = 100 * fraction
    if percent == 0 or percent >= 10:
        return f"{percent:.0f} %"
    return f"{percent:.2g} %"


def format_rtt(seconds: float) -> str:
    """A round trip with three digits at most: `9.1 µs`, `312 µs`, `1.2 ms`."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        value = seconds * factor
        if value >= 0.9995 or unit == "µs":
            return f"{value:.0f} {unit}" if value >= 99.5 else f"{value:.2g} {unit}"
    raise AssertionError("unreachable")
