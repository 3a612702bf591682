from __future__ import annotations

import math

import numpy as np
import pytest

from tasc_pipeline.control import betting
from tasc_pipeline.control.decisions.means import (
    BOOTSTRAP_METHOD,
    EXACT_METHOD,
    SIGNED,
    UNIT,
    GroupSums,
    Resamples,
    binomial_lower,
    binomial_upper,
    lower_end,
    mean_interval,
    upper_end,
)
from tasc_pipeline.control.decisions.tails import Latencies, p95_interval
from tasc_pipeline.control.intervals import Levels

LEVELS = Levels(0.95)


def sums(values: object, mass: object = None) -> GroupSums:
    value = np.asarray(values, dtype=np.float64)
    weight = np.ones_like(value) if mass is None else np.asarray(mass, dtype=np.float64)
    return GroupSums(value * weight, weight)


def resamples(groups: int, draws: int = 1000) -> Resamples:
    return Resamples.draw(groups, draws, np.random.default_rng(1))


def test_the_bounds_of_a_share_are_those_of_clopper_and_pearson() -> None:
    assert binomial_upper(0, 72, 0.025) == pytest.approx(1 - 0.025 ** (1 / 72))
    assert binomial_upper(2, 100, 0.025) == pytest.approx(0.0704, abs=1e-4)
    assert binomial_lower(2, 100, 0.025) == pytest.approx(0.0024, abs=1e-4)
    assert (binomial_upper(5, 5, 0.025), binomial_lower(0, 5, 0.025)) == (1.0, 0.0)


def test_few_groups_with_a_failure_get_the_exact_bound() -> None:
    found = sums([1.0, 1.0] + [0.0] * 98)
    assert upper_end(found, 0.025, resamples(100), UNIT) == (binomial_upper(2, 100, 0.025), EXACT_METHOD)
    assert lower_end(found, 0.025, resamples(100), UNIT) == (binomial_lower(2, 100, 0.025), EXACT_METHOD)


def test_a_constant_difference_is_bounded_by_betting_and_not_by_a_point() -> None:
    high, method = upper_end(sums([0.0] * 90), 0.025, resamples(90), SIGNED)
    assert method == betting.METHOD
    assert high == pytest.approx(1 - (0.025 / 2) ** (1 / 90), abs=1e-3)


def test_groups_of_different_mass_are_never_bounded_tighter_than_equal_ones() -> None:
    equal, _ = upper_end(sums([0.0] * 50), 0.025, resamples(50), SIGNED)
    uneven, _ = upper_end(sums([0.0] * 50, [1.0] * 49 + [20.0]), 0.025, resamples(50), SIGNED)
    assert equal is not None and uneven is not None and uneven > equal


def test_the_studentized_interval_of_many_groups_is_close_to_the_normal_one() -> None:
    values = np.random.default_rng(3).normal(0.2, 0.1, 400)
    found = sums(values)
    low, method = lower_end(found, 0.025, resamples(400, 4000), SIGNED)
    reach = 1.96 * values.std(ddof=1) / 20
    assert method == BOOTSTRAP_METHOD
    assert low == pytest.approx(values.mean() - reach, abs=0.15 * reach)


def test_a_skewed_cost_reaches_further_up_than_down() -> None:
    values = np.random.default_rng(4).exponential(1.0, 40)
    found = sums(values)
    low, _ = lower_end(found, 0.025, resamples(40), None)
    high, _ = upper_end(found, 0.025, resamples(40), None)
    assert low is not None and high is not None
    assert high - values.mean() > values.mean() - low


def test_an_unknown_that_nothing_bounds_leaves_no_upper_end() -> None:
    known = sums(np.linspace(1, 2, 30))
    highest = GroupSums(np.append(known.numerator[:-1], math.inf), known.mass)
    found = mean_interval(known, known, highest, LEVELS, resamples(30), None)
    assert found.high is None and found.highest is None and found.low is not None


def test_one_group_has_no_spread_to_speak_of() -> None:
    found = mean_interval(sums([3.0]), sums([3.0]), sums([3.0]), LEVELS, resamples(1), None)
    assert (found.estimate, found.low, found.high) == (3.0, None, None)


def calls(values: object, known: object = None) -> Latencies:
    value = np.asarray(values, dtype=np.float64)
    held = np.ones(len(value), dtype=bool) if known is None else np.asarray(known)
    return Latencies(np.where(held, value, np.inf), held, np.ones(len(value)), np.arange(len(value)), len(value))


def test_a_percentile_without_unknowns_takes_seventy_two_groups() -> None:
    for groups, bounded in ((71, False), (72, True)):
        found = p95_interval(calls(np.arange(groups)), LEVELS, resamples(groups))
        assert (found.bounds.high is not None) == bounded
    assert found.bounds.high == 71.0, "the largest of 72"


@pytest.mark.parametrize(("unknown", "needed"), [(1, 110), (2, 142)])
def test_every_unknown_call_takes_more_groups(unknown: int, needed: int) -> None:
    for groups, bounded in ((needed - 1, False), (needed, True)):
        known = np.arange(groups) >= unknown
        found = p95_interval(calls(np.arange(groups), known), LEVELS, resamples(groups))
        assert (found.bounds.high is not None) == bounded, groups
        assert found.highest is not None and found.lowest is not None


def test_an_unknown_call_counts_as_longest_for_the_upper_end_and_as_none_for_the_lower() -> None:
    values = np.random.default_rng(6).lognormal(5, 0.3, 300)
    known = np.arange(300) >= 6
    clear, hidden = (
        p95_interval(calls(values), LEVELS, resamples(300)),
        p95_interval(calls(values, known), LEVELS, resamples(300)),
    )
    for one in (clear, hidden):
        assert one.bounds.low is not None and one.bounds.estimate is not None and one.bounds.high is not None
        assert one.bounds.low < one.bounds.estimate < one.bounds.high
    assert hidden.bounds.high > clear.bounds.high  # type: ignore[operator]  # looked at above
    assert hidden.bounds.low <= clear.bounds.low  # type: ignore[operator]  # looked at above


def test_the_same_seed_draws_the_same() -> None:
    assert np.array_equal(resamples(20).counts, resamples(20).counts)
    assert resamples(20).counts.sum(axis=1).tolist() == [20.0] * 1000
