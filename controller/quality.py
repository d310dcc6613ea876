# SPDX-License-Identifier: Apache-2.0
"""From probe samples to the quality of links and paths: loss and round trip, per cell of an array.

"No data" is its own value throughout: 0 probes, NaN loss, NaN round trip; a path whose probes were
all lost has a loss of 1 and a NaN round trip.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from controller.fabric import Fabric
from controller.samples import ProbeKind, Samples

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

INFORMATIVE_SURVIVAL = 0.5
"""A host that loses more than this share on its own link says nothing of the links behind it."""


class Grade(IntEnum):
    """What a cell is worth; the order is that of severity."""

    NO_DATA = 0
    GOOD = 1
    DEGRADED = 2
    BAD = 3


@dataclass(frozen=True)
class Thresholds:
    """Where good ends. A cell has the worse of its two grades.

    Loss is a fraction of the probes sent. Round trips are compared as multiples of the median over
    the cells of the same map, because they depend on the fabric's size and on the target.
    """

    loss_degraded: float = 0.001
    loss_bad: float = 0.01
    rtt_degraded: float = 3.0
    rtt_bad: float = 10.0
    min_probes: int = 1
    """Fewer probes than this are no data."""

    def __post_init__(self) -> None:
        if not 0 < self.loss_degraded <= self.loss_bad <= 1:
            raise ValueError(
                f"loss thresholds {self.loss_degraded} and {self.loss_bad}; allowed: fractions "
                "with 0 < degraded <= bad <= 1"
            )
        if not 1 < self.rtt_degraded <= self.rtt_bad:
            raise ValueError(
                f"round-trip thresholds {self.rtt_degraded} and {self.rtt_bad}; allowed: multiples "
                "of the median with 1 < degraded <= bad"
            )
        if self.min_probes < 1:
            raise ValueError(f"min_probes {self.min_probes}; allowed: 1 or more")


@dataclass(frozen=True)
class Quality:
    """Loss and round trip of the cells of an array; all members have its shape.

    sent          probes
    loss          fraction, NaN without data
    rtt_median_s  seconds, NaN without an answer; rtt_p99_s: nearest rank
    """

    sent: Counts
    loss: Floats
    rtt_median_s: Floats
    rtt_p99_s: Floats

    def grades(self, thresholds: Thresholds, reference_rtt_s: float) -> NDArray[np.uint8]:
        """`Grade` values. `reference_rtt_s` is what round-trip thresholds multiply; NaN when no
        cell has a round trip."""
        grades = np.full(self.sent.shape, Grade.GOOD, dtype=np.uint8)
        rtt = self.rtt_median_s / reference_rtt_s
        # Comparisons with NaN are False: a lost round trip is judged by its loss alone.
        degraded = (self.loss >= thresholds.loss_degraded) | (rtt >= thresholds.rtt_degraded)
        bad = (self.loss >= thresholds.loss_bad) | (rtt >= thresholds.rtt_bad)
        grades[degraded] = Grade.DEGRADED
        grades[bad] = Grade.BAD
        grades[(self.sent < thresholds.min_probes) | np.isnan(self.loss)] = Grade.NO_DATA
        return grades

    def reference_rtt_s(self) -> float:
        """The median of the cells' median round trips in seconds; NaN when there is none."""
        measured = self.rtt_median_s[~np.isnan(self.rtt_median_s)]
        return float(np.median(measured)) if len(measured) else float("nan")


def path_quality(samples: Samples, fabric: Fabric, src_group: int, dst_group: int) -> Quality:
    """(P, U) the paths from one T0 group to another, over all pairs of their hosts.

    Within one group there is one path per plane: (P, 1). Raises `SamplesError` when the samples are
    of another fabric.
    """
    samples.check_fabric(fabric)
    per_group = fabric.hosts_per_group
    chosen = (
        (samples.kind == ProbeKind.PATH)
        & (samples.src // per_group == src_group)
        & (samples.dst // per_group == dst_group)
    )
    return _paths(samples, fabric, chosen, local=src_group == dst_group)


def host_path_quality(samples: Samples, fabric: Fabric, src: int, dst: int) -> Quality:
    """(P, U), or (P, 1) within one T0 group: the paths from one host (index) to another."""
    samples.check_fabric(fabric)
    chosen = (samples.kind == ProbeKind.PATH) & (samples.src == src) & (samples.dst == dst)
    per_group = fabric.hosts_per_group
    return _paths(samples, fabric, chosen, local=src // per_group == dst // per_group)


def nic_link_quality(samples: Samples, fabric: Fabric) -> Quality:
    """(P, hosts) the NIC-T0 links, from T0 self-probes."""
    samples.check_fabric(fabric)
    chosen = samples.kind == ProbeKind.T0_SELF
    cell = samples.plane[chosen] * fabric.host_count + samples.src[chosen]
    return _quality(cell, samples.rtt_s[chosen], (fabric.planes, fabric.host_count))


def link_quality(samples: Samples, fabric: Fabric) -> Quality:
    """(P, T, U) the T0-T1 links, from T1 self-probes.

    A T1 self-probe crosses the NIC-T0 link as well. What is lost there is known from the T0
    self-probes of the same host and taken out: loss = 1 - answered / expected, where a link without
    loss of its own would answer sent x survival of the host's link. Hosts whose own link loses more
    than half are left out; without T0 self-probes a host's link is taken as good.
    """
    samples.check_fabric(fabric)
    own = nic_link_quality(samples, fabric)
    survival = np.where(np.isnan(own.loss), 1.0, 1.0 - own.loss)
    survival[survival < INFORMATIVE_SURVIVAL] = 0.0

    shape = (fabric.planes, fabric.groups, fabric.uplinks)
    of_host = survival[samples.plane, samples.src]
    chosen = (samples.kind == ProbeKind.T1_SELF) & (of_host > 0)
    group = samples.src[chosen] // fabric.hosts_per_group
    cell = np.ravel_multi_index((samples.plane[chosen], group, samples.uplink[chosen]), shape)
    rtt = samples.rtt_s[chosen]
    raw = _quality(cell, rtt, shape)

    expected = np.bincount(cell, weights=of_host[chosen], minlength=raw.sent.size).reshape(shape)
    answered = np.bincount(cell[~np.isnan(rtt)], minlength=raw.sent.size).reshape(shape)
    loss = np.full(shape, np.nan)
    np.divide(answered, expected, out=loss, where=expected > 0)
    return Quality(raw.sent, np.clip(1.0 - loss, 0.0, 1.0), raw.rtt_median_s, raw.rtt_p99_s)


def _paths(samples: Samples, fabric: Fabric, chosen: NDArray[np.bool_], *, local: bool) -> Quality:
    columns = 1 if local else fabric.uplinks
    uplink = 0 if local else samples.uplink[chosen]
    cell = samples.plane[chosen] * columns + uplink
    return _quality(cell, samples.rtt_s[chosen], (fabric.planes, columns))


def _quality(cell: Counts, rtt_s: Floats, shape: tuple[int, ...]) -> Quality:
    """The statistics of samples by the flat index of their cell."""
    size = int(np.prod(shape))
    sent = np.bincount(cell, minlength=size)
    answered_at = ~np.isnan(rtt_s)
    answered = np.bincount(cell[answered_at], minlength=size)
    loss = np.full(size, np.nan)
    np.divide(sent - answered, sent, out=loss, where=sent > 0)

    # Sorted by cell, then round trip: a percentile of a cell is one element of its stretch.
    order = np.lexsort((rtt_s[answered_at], cell[answered_at]))
    ordered = np.append(rtt_s[answered_at][order], np.nan)  # so that an index is always valid
    start = np.cumsum(answered) - answered
    some = answered > 0

    def ranked(rank: Counts) -> Floats:
        return np.where(some, ordered[np.where(some, start + rank, -1)], np.nan)

    middle = (ranked((answered - 1) // 2) + ranked(answered // 2)) / 2
    p99 = ranked(np.ceil(0.99 * answered).astype(np.int64) - 1)
    return Quality(
        sent.reshape(shape), loss.reshape(shape), middle.reshape(shape), p99.reshape(shape)
    )
