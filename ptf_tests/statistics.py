# SPDX-License-Identifier: Apache-2.0
"""Bounds for counts that are drawn at random, with a false alarm once in ten billion tests."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TypeVar

FALSE_ALARM = 1e-10
_K = TypeVar("_K", bound=Hashable)


def chi_square_bound(degrees: int) -> float:
    """What a chi-square variable of so many degrees of freedom exceeds with FALSE_ALARM at most.

    Laurent and Massart (2000), lemma 1: P(X >= k + 2 sqrt(k t) + 2 t) <= exp(-t).
    """
    t = -math.log(FALSE_ALARM)
    return degrees + 2 * math.sqrt(degrees * t) + 2 * t


def assert_drawn(counts: Mapping[_K, int], weights: Mapping[_K, float]) -> None:
    """The counts look like independent draws with these weights (Pearson's test).

    Every choice must be expected often enough (ten times) for its count to be nearly normal; one
    of weight 0 must not have been drawn at all.
    """
    drawn, total = sum(counts.values()), sum(weights.values())
    strangers = [choice for choice in counts if not weights.get(choice)]
    assert not strangers, f"drawn, but not to be: {strangers}"
    expected = {choice: drawn * weight / total for choice, weight in weights.items() if weight}
    assert min(expected.values()) >= 10, "too few draws for this test"
    distance = sum((counts.get(c, 0) - mean) ** 2 / mean for c, mean in expected.items())
    bound = chi_square_bound(len(expected) - 1)
    assert distance <= bound, f"chi-square {distance:.1f} > {bound:.1f}: {counts} for {weights}"
