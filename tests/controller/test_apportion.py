# SPDX-License-Identifier: Apache-2.0
"""Laws of apportionment and interleaving."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from controller.apportion import (
    Counts,
    Weights,
    apportion,
    fill_slots,
    interleave,
    smallest_proportion,
    subset,
)

weights = st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 1e3)), min_size=1, max_size=24).filter(
    any
)


@given(weights, st.integers(1, 64))
def test_apportion_laws(values: list[float], seats: int) -> None:
    w = np.array(values)
    assume(seats >= np.count_nonzero(w))
    rank = np.random.default_rng(seats).permutation(len(w))
    counts = apportion(w, seats, rank)
    quota = w / w.sum() * seats
    assert counts.sum() == seats
    assert np.array_equal(counts > 0, w > 0)
    # More weight never gets fewer seats; the same weight at most one less.
    for i in range(len(w)):
        for j in range(len(w)):
            if w[i] > w[j]:
                assert counts[i] >= counts[j]
            elif w[i] == w[j]:
                assert abs(counts[i] - counts[j]) <= 1
    # Within one of the exact share, unless small weights had to be lifted to one seat.
    if np.all(quota[w > 0] >= 1):
        assert np.all(np.abs(counts - quota) < 1)
    assert np.all(counts <= np.ceil(quota + 1e-9))


@given(st.integers(1, 40), st.integers(0, 64))
def test_equal_weights_get_equal_shares(n: int, extra: int) -> None:
    counts = apportion(np.ones(n), n + extra)
    assert counts.max() - counts.min() <= 1


def test_rank_decides_who_gets_the_odd_seat() -> None:
    assert apportion(np.ones(3), 4).tolist() == [2, 1, 1]
    assert apportion(np.ones(3), 4, np.array([1, 2, 0])).tolist() == [1, 1, 2]


@given(st.lists(weights, min_size=1, max_size=5), st.integers(24, 64))
def test_many_rows_are_like_one_after_the_other(rows: list[list[float]], seats: int) -> None:
    """Each row gets what it gets alone: some have too many seats given away, some too few."""
    width = max(map(len, rows))
    w = np.array([row + [0.0] * (width - len(row)) for row in rows])
    rank = np.random.default_rng(seats).random(w.shape)
    counts = apportion(w, seats, rank)
    assert counts.tolist() == [apportion(w[i], seats, rank[i]).tolist() for i in range(len(w))]
    assert interleave(counts, rank).tolist() == [
        interleave(counts[i], rank[i]).tolist() for i in range(len(w))
    ]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any))
def test_interleave_keeps_counts_and_spreads(counts: list[int]) -> None:
    sequence = interleave(np.array(counts))
    total = sum(counts)
    assert np.bincount(sequence, minlength=len(counts)).tolist() == counts
    for index, count in enumerate(counts):
        at = np.flatnonzero(sequence == index)
        # The k-th occurrence lies near the middle of the k-th of `count` equal parts: at most one
        # other of each index can be in between.
        ideal = (np.arange(count) + 0.5) / max(count, 1) * total - 0.5
        assert np.all(np.abs(at - ideal) <= len(counts) / 2 + 1)


def test_round_robin_over_equal_paths_takes_turns() -> None:
    assert interleave(np.array([2, 2, 2])).tolist() == [0, 1, 2, 0, 1, 2]
    assert interleave(np.array([2, 2, 2]), np.array([1, 2, 0])).tolist() == [2, 0, 1, 2, 0, 1]
    assert interleave(np.array([3, 1])).tolist() in ([0, 0, 1, 0], [0, 1, 0, 0])


def fill(w: Weights, slots: int, seed: int) -> Counts:
    """Slots by chance."""
    generator = np.random.default_rng(seed)
    return fill_slots(w, slots, generator.standard_exponential(w.shape), generator.random(w.shape))


@given(weights, weights, st.integers(0, 6), st.integers(0, 1000))
def test_slots_use_what_has_weight_and_nothing_else(
    first: list[float], second: list[float], log_slots: int, seed: int
) -> None:
    width, slots = max(len(first), len(second)), 1 << log_slots
    w = np.array([row + [0.0] * (width - len(row)) for row in (first, second)])
    chosen = fill(w, slots, seed)
    assert chosen.tolist() == fill(w, slots, seed).tolist()
    assert chosen.shape == (2, slots)
    for row in range(2):
        used = set(chosen[row].tolist())
        allowed = set(np.flatnonzero(w[row] > 0).tolist())
        assert used <= allowed
        assert len(used) == min(len(allowed), slots)


@given(st.integers(0, 1000))
def test_chance_decides_which_path_comes_first(seed: int) -> None:
    for paths, slots in ((4, 8), (16, 8)):
        starts = fill(np.ones((64, paths)), slots, seed)[:, 0]
        assert len(set(starts.tolist())) >= 3


def test_subsets_follow_the_weights() -> None:
    w = np.tile([1.0, 1.0, 8.0, 0.0], (4000, 1))
    drawn = subset(w, 1, np.random.default_rng(1).standard_exponential(w.shape))
    share = np.bincount(drawn.ravel(), minlength=4) / len(w)
    assert np.allclose(share, [0.1, 0.1, 0.8, 0.0], atol=0.03)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 1, 1, 1], [1, 1, 1, 1]),
        ([2, 1], [2, 1]),
        ([0.5, 0.25, 0, 0.25], [2, 1, 0, 1]),
        ([1e-6, 1], [1, 15]),
        ([10, 10, 0], [1, 1, 0]),
        ([0.3, 1, 1, 1], [1, 5, 5, 5]),
    ],
)
def test_smallest_proportion(values: list[float], expected: list[int]) -> None:
    assert smallest_proportion(np.array(values, dtype=float), 16).tolist() == expected


def test_what_cannot_be_apportioned() -> None:
    with pytest.raises(ValueError, match="2 seats for 3 weights"):
        apportion(np.ones(3), 2)
    for bad in ([0.0], [-1.0, 2.0], [np.inf], [np.nan, 1.0]):
        with pytest.raises(ValueError, match="allowed: finite"):
            apportion(np.array(bad), 8)
