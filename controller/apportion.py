# SPDX-License-Identifier: Apache-2.0
"""Weights as numbers of slots, and slots in an order that spreads.

All functions are pure and work on the last axis of their arrays, so that one call serves a single
set of weights or all that a NIC has. Chance comes in as numbers that were drawn before: the same
numbers give the same tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float64]
Counts = NDArray[np.int64]
Ranks = NDArray[Any]


def apportion(weights: Weights, seats: int, rank: Ranks | None = None) -> Counts:
    """Divides `seats` in proportion to `weights` (largest remainder).

    Every positive weight gets at least one seat, a zero weight none; the result sums to `seats`.
    Of equal claims that with the lower `rank` is served first (default: by index). Raises
    `ValueError` when there are fewer seats than positive weights, or no positive weight at all.
    """
    weights = np.asarray(weights, dtype=np.float64)
    positive = weights > 0
    used = np.count_nonzero(positive, axis=-1)
    if not np.all(used) or np.any(weights < 0) or not np.all(np.isfinite(weights)):
        raise ValueError(f"weights {weights.tolist()}; allowed: finite, >= 0, at least one above 0")
    if np.any(used > seats):
        raise ValueError(f"{seats} seats for {used.max()} weights above 0; allowed: as many")
    ranks = _ranks(weights.shape, rank)
    # Dividing by the largest weight first keeps extreme weights from overflowing the sum.
    scaled = weights / weights.max(axis=-1, keepdims=True)
    quota = scaled / scaled.sum(axis=-1, keepdims=True) * seats
    counts: Counts = np.floor(quota).astype(np.int64)
    counts[positive & (counts == 0)] = 1
    while np.any(missing := seats - counts.sum(axis=-1, keepdims=True)):
        # The furthest below its quota gets a seat more; the seats that small weights got for
        # nothing come from those furthest above.
        above = counts - quota
        more = _first(positive, above, ranks) < missing
        fewer = _first(counts > 1, -above, -ranks) < -missing
        counts += (more & positive).astype(np.int64)
        counts -= (fewer & (counts > 1)).astype(np.int64)
    return counts


def _ranks(shape: tuple[int, ...], rank: Ranks | None) -> Ranks:
    return np.broadcast_to(np.arange(shape[-1]) if rank is None else rank, shape)


def _first(eligible: NDArray[np.bool_], claim: Weights, ranks: Ranks) -> Counts:
    """The place of each in the order of claims, lowest first; those not eligible are last."""
    order = np.lexsort((ranks, claim, ~eligible), axis=-1)
    place = np.empty_like(order)
    np.put_along_axis(place, order, _ranks(order.shape, None), axis=-1)
    return place


def interleave(counts: Counts, rank: Ranks | None = None) -> Counts:
    """Sequences in which index i occurs `counts[i]` times, evenly spread over their length.

    All have the same length. The lower `rank` comes first in ties (default: by index).
    """
    indices = np.broadcast_to(np.arange(counts.shape[-1]), counts.shape)
    sequence = np.repeat(indices.ravel(), counts.ravel()).reshape(*counts.shape[:-1], -1)
    first = np.cumsum(counts, axis=-1) - counts
    occurrence = np.arange(sequence.shape[-1]) - np.take_along_axis(first, sequence, axis=-1)
    position = (occurrence + 0.5) / np.take_along_axis(counts, sequence, axis=-1)
    ranks = np.take_along_axis(_ranks(counts.shape, rank), sequence, axis=-1)
    order = np.lexsort((ranks, position), axis=-1)
    return np.take_along_axis(sequence, order, axis=-1)


def subset(weights: Weights, size: int, exponential: Weights) -> Counts:
    """The indices of `size` positive weights, drawn by weight; each has at least as many.

    Efraimidis and Spirakis: the largest u^(1/w), here as the smallest exponential variate / w.
    """
    keys = np.full(weights.shape, np.inf)
    np.divide(exponential, weights, out=keys, where=weights > 0)
    return np.argpartition(keys, size - 1, axis=-1)[..., :size]


def fill_slots(weights: Weights, slots: int, exponential: Weights, rank: Ranks) -> Counts:
    """Which path each of `slots` slots takes; weights (N, paths), result (N, slots).

    With more paths than slots a random subset gets one each: that a path is left out for one
    destination evens out over many. Otherwise slots are apportioned. `exponential` decides on the
    subset, `rank` which path comes first and who gets the odd slot, so that senders do not all
    start on path 0; both are random numbers, (N, paths).
    """
    filled = np.empty((len(weights), slots), dtype=np.int64)
    many = np.count_nonzero(weights, axis=-1) > slots
    if np.any(many):
        drawn = subset(weights[many], slots, exponential[many])
        order = np.argsort(np.take_along_axis(rank[many], drawn, axis=-1), axis=-1)
        filled[many] = np.take_along_axis(drawn, order, axis=-1)
    if not np.all(many):
        few = ~many
        filled[few] = interleave(apportion(weights[few], slots, rank[few]), rank[few])
    return filled


def smallest_proportion(weights: Weights, limit: int) -> Counts:
    """Small whole numbers in proportion to one set of `weights`.

    Exact with the smallest sum up to `limit`, else the nearest with the sum `limit`. Zero stays
    zero, all others are at least 1.
    """
    weights = np.asarray(weights, dtype=np.float64)
    share = weights / weights.max()
    share /= share.sum()
    for total in range(np.count_nonzero(weights), limit):
        rounded: Counts = np.round(share * total).astype(np.int64)
        if np.allclose(share * total, rounded, rtol=0, atol=1e-9) and rounded[weights > 0].all():
            return rounded
    return apportion(weights, limit)
