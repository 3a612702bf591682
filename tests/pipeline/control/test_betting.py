from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasc_pipeline.control import betting
from tasc_pipeline.control.intervals import Levels

VALUES = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=1, max_size=200)


def test_wealth_of_one_group_by_hand() -> None:
    # stake c multiplies by 1 - c + c (1 - D) / (1 - m): with D = 0, m = 0.5 by 1 + c, with D = 1 by 1 - c
    stakes = (1.0, 0.7, 0.5, 0.35, 0.25, 0.175, 0.125, 0.0875, 0.0625, 0.03, 0.015)
    assert math.exp(betting.log_wealth({0.0: 1}, 0.5)) == pytest.approx(0.5 * 2 + 0.05 * sum(1 + c for c in stakes[1:]))
    assert math.exp(betting.log_wealth({1.0: 1}, 0.5)) == pytest.approx(0.05 * sum(1 - c for c in stakes[1:]))


def test_groups_without_a_difference_exclude_at_least_what_the_full_stake_does() -> None:
    # half of the wealth on c = 1 grows by 1 / (1 - m) per group: 0.5 (1 - m)^-24 = 40 at m = 1 - 0.0125^(1/24)
    bound = betting.upper_bound({0.0: 24}, 0.025)
    assert 0.160 < bound <= 1 - 0.0125 ** (1 / 24)
    assert betting.lower_bound({0.0: 24}, 0.025) == pytest.approx(-bound)


def test_groups_that_a_margin_needs() -> None:
    assert betting.groups_without_failure(0.02, 0.95) == 217  # ln(0.0125) / ln(0.98) = 216.9
    assert betting.groups_without_failure(0.05, 0.95) == 86  # ln(0.0125) / ln(0.95) = 85.4
    assert betting.upper_bound({0.0: 217}, 0.025) <= 0.02


@settings(max_examples=80, deadline=None)
@given(VALUES)
def test_bounds_hold_the_mean_and_turn_with_the_sign(values) -> None:
    found = betting.counted(values)
    low, high = betting.lower_bound(found, 0.025), betting.upper_bound(found, 0.025)
    assert low <= betting.mean(found) <= high
    turned = betting.counted([-value for value in values])
    assert betting.upper_bound(turned, 0.025) == pytest.approx(-low, abs=1e-9)


def test_wealth_is_a_supermartingale_where_groups_differ() -> None:
    # two groups with failure differences of mean 0 and 0.2 (mean 0.1): expected wealth against m = 0.1 at most 1
    outcomes = [((first, 1.0), 0.5 * 0.2) for first in (-1.0, 1.0)] + [
        ((first, 0.0), 0.5 * 0.8) for first in (-1.0, 1.0)
    ]
    expected = sum(chance * math.exp(betting.log_wealth(betting.counted(pair), 0.1)) for pair, chance in outcomes)
    assert expected <= 1.0


def test_a_false_alarm_at_the_margin_is_rarer_than_alpha_over_all_looks() -> None:
    rng = np.random.default_rng(11)
    wrong = 0
    for _ in range(200):
        windows: list[dict[float, int]] = []
        ever = False
        for _ in range(20):
            values = (rng.random(40) < 0.12).astype(float) - (rng.random(40) < 0.02)
            windows.append(betting.counted(values.tolist()))
            ever |= betting.log_wealth(betting.merged(windows), 0.1) >= math.log(1 / 0.025)
        wrong += ever
    assert wrong <= 200 * 0.025 + 3


def test_unknown_executions_widen_both_ways() -> None:
    levels = Levels(0.95)
    plain = betting.difference_bounds({0.0: 50}, {0.0: 50}, {0.0: 50}, levels)
    unknown = betting.difference_bounds({0.0: 48}, {-1.0: 1, 0.0: 49}, {0.0: 49, 1.0: 1}, levels)
    assert unknown.estimate == plain.estimate == 0.0
    assert unknown.low < plain.low
    assert unknown.high > plain.high
