# SPDX-License-Identifier: Apache-2.0
"""Weights as numbers of slots, and slots in an order that spreads.

All functions are pure; chance comes in as a generator, so that the same seed gives the same tables.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float64]
Counts = NDArray[np.int64]


def apportion(weights: Weights, seats: int, order: Counts | None = None) -> Counts:
    """Divides `seats` in proportion to `weights` (largest remainder).

    Every positive weight gets at least one seat, a zero weight none; the result sums to `seats`.
    Equal claims are served in `order` (indices, most favoured first; default: by index). Raises
    `ValueError` when there are fewer seats than positive weights, or no positive weight at all.
    """
    weights = np.asarray(weights, dtype=np.float64)
    positive = weights > 0
    if not positive.any() or np.any(weights < 0) or not np.all(np.isfinite(weights)):
        raise ValueError(f"weights {weights.tolist()}; allowed: finite, >= 0, at least one above 0")
    if seats < positive.sum():
        raise ValueError(f"{seats} seats for {positive.sum()} weights above 0; allowed: as many")
    rank = np.arange(len(weights))
    if order is not None:
        rank[order] = np.arange(len(weights))
    # Dividing by the largest weight first keeps extreme weights from overflowing the sum.
    scaled = weights / weights.max()
    quota = scaled / scaled.sum() * seats
    counts: Counts = np.floor(quota).astype(np.int64)
    counts[positive & (counts == 0)] = 1
    remainder = quota - counts
    while (missing := seats - int(counts.sum())) > 0:
        best = np.lexsort((rank, -remainder))
        best = best[positive[best]][:missing]
        counts[best] += 1
        remainder[best] -= 1
    while (excess := int(counts.sum()) - seats) > 0:
        # The seats that small weights got for nothing come from those furthest above their quota.
        worst = np.lexsort((-rank, remainder))
        worst = worst[counts[worst] > 1][:excess]
        counts[worst] -= 1
        remainder[worst] += 1
    return counts


def interleave(counts: Counts, order: Counts | None = None) -> Counts:
    """A sequence in which index i occurs `counts[i]` times, evenly spread over its length.

    `order` breaks ties (indices, first to last; default: by index).
    """
    indices = np.repeat(np.arange(len(counts)), counts)
    first = np.cumsum(counts) - counts
    occurrence = np.arange(len(indices)) - np.repeat(first, counts)
    position = (occurrence + 0.5) / counts[indices]
    rank = np.arange(len(counts))
    if order is not None:
        rank[order] = np.arange(len(counts))
    spread: Counts = indices[np.lexsort((rank[indices], position))]
    return spread


def subset(weights: Weights, size: int, generator: np.random.Generator) -> Weights:
    """The same weights with all but `size` of the positive ones set to zero, drawn by weight.

    Efraimidis and Spirakis: the largest u^(1/w), here as the smallest exponential variate / w.
    """
    positive = np.flatnonzero(weights > 0)
    if len(positive) <= size:
        return weights
    keys = generator.exponential(size=len(positive)) / weights[positive]
    kept = positive[np.argsort(keys, kind="stable")[:size]]
    chosen = np.zeros_like(weights)
    chosen[kept] = weights[kept]
    return chosen


def fill_slots(weights: Weights, slots: int, generator: np.random.Generator) -> Counts:
    """Which path each of `slots` slots takes.

    With more paths than slots a random subset gets one each: that a path is left out for one
    destination evens out over many. Otherwise slots are apportioned; chance decides which path
    comes first and who gets the odd slot, so that senders do not all start on path 0.
    """
    chosen = subset(weights, slots, generator)
    order = generator.permutation(len(weights))
    if np.count_nonzero(weights) > slots:
        counts = (chosen > 0).astype(np.int64)
    else:
        counts = apportion(chosen, slots, order)
    return interleave(counts, order)


def smallest_proportion(weights: Weights, limit: int) -> Counts:
    """Small whole numbers in proportion to `weights`.

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
