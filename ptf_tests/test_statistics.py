# SPDX-License-Identifier: Apache-2.0
"""The test of draws itself: fair ones pass, small biases do not."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ptf_tests.statistics import FALSE_ALARM, assert_drawn, chi_square_bound


def test_fair_draws_pass() -> None:
    source = random.Random(2026)
    for _ in range(50):
        assert_drawn(Counter(source.choices(range(64), k=2048)), dict.fromkeys(range(64), 1))


@pytest.mark.parametrize(
    "weights",
    [
        pytest.param([1, 1, 1, 2], id="one twice as heavy"),
        pytest.param([9, 10, 10, 16], id="somewhat heavier"),
        pytest.param([1, 1, 1, 0], id="one never"),
    ],
)
def test_biased_draws_fail(weights: list[int]) -> None:
    source = random.Random(2026)
    drawn = Counter(source.choices(range(4), weights, k=2048))
    with pytest.raises(AssertionError, match="chi-square"):
        assert_drawn(drawn, dict.fromkeys(range(4), 1))


def test_choice_of_weight_zero_must_not_be_drawn() -> None:
    with pytest.raises(AssertionError, match="not to be"):
        assert_drawn({0: 1000, 1: 1}, {0: 1, 1: 0})


def test_too_few_draws_are_no_test() -> None:
    with pytest.raises(AssertionError, match="too few"):
        assert_drawn({0: 9, 1: 9}, {0: 1, 1: 1})


def test_bound_is_above_the_exact_quantile() -> None:
    # Two degrees of freedom: P(X >= x) = exp(-x / 2), so the exact bound is known.
    exact = 46.05  # -2 ln(1e-10)
    assert FALSE_ALARM == 1e-10
    assert exact < chi_square_bound(2) < 1.5 * exact
