from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasc_pipeline.control.intervals import (
    Levels,
    generator,
    median_log_ratio,
    p95_log_ratio,
    weighted_median,
    weighted_p95,
)
from tests.support.comparison_rows import pairs

LEVELS = Levels(0.95, 4)
LATENCIES = st.lists(st.tuples(st.floats(1, 1e4), st.floats(1, 1e4), st.integers(0, 9)), min_size=12, max_size=60)


def _of(values):
    names = {name: index for index, name in enumerate(sorted({row[2] for row in values}))}
    return pairs([row[0] for row in values], [row[1] for row in values], [names[row[2]] for row in values])


def test_weighted_median_and_p95_by_hand() -> None:
    assert weighted_median(np.array([3.0, 1.0, 2.0]), np.ones(3)) == 2.0
    assert weighted_median(np.array([1.0, 2.0, 3.0, 4.0]), np.ones(4)) == 2.5
    assert weighted_median(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 5.0])) == 3.0
    assert weighted_p95(np.arange(1.0, 21.0), np.ones(20)) == 19.0
    assert weighted_p95(np.arange(1.0, 22.0), np.ones(21)) == 20.0


def test_the_score_interval_of_ten_single_pairs_by_hand() -> None:
    # scores just below and at the k-th of n values are (2k - 2 - n) / sqrt(n) and (2k - n) / sqrt(n); their mean is
    # -1.96 at k = (11 - 1.96 sqrt(10)) / 2 = 2.401, so the bounds lie at 2.401 and 8.599
    logs = np.log(np.arange(1.0, 11.0))
    found = median_log_ratio(pairs([1.0] * 10, list(np.arange(1.0, 11.0)), list(range(10))), Levels(0.95)).bounds
    assert found.estimate == pytest.approx((logs[4] + logs[5]) / 2)
    assert found.low == pytest.approx(logs[1] + 0.4010 * (logs[2] - logs[1]), abs=1e-4)
    assert found.high == pytest.approx(logs[7] + 0.5990 * (logs[8] - logs[7]), abs=1e-4)


def test_five_groups_bound_nothing_and_six_do() -> None:
    def bounds(groups: int):
        return median_log_ratio(
            pairs([1.0] * groups, list(np.arange(1.0, groups + 1)), list(range(groups))), Levels(0.95)
        ).bounds

    assert (bounds(5).low, bounds(5).high) == (None, None)
    assert bounds(6).low is not None
    assert bounds(6).high is not None


def test_no_pairs_give_nothing() -> None:
    nothing = pairs([1.0], [1.0], [0])
    empty = type(nothing)(*(np.array([]) for _ in range(3)), np.array([], dtype=np.int64), 0)
    assert median_log_ratio(empty, LEVELS).bounds.estimate is None
    assert p95_log_ratio(empty, LEVELS, draws=200, rng=generator("s")).ratio().estimate is None


@settings(max_examples=60, deadline=None)
@given(LATENCIES)
def test_exchanging_the_sides_inverts_the_ratio_and_its_bounds(values) -> None:
    one = median_log_ratio(_of(values), LEVELS).bounds
    other = median_log_ratio(_of([(b, a, group) for a, b, group in values]), LEVELS).bounds
    assert one.estimate == pytest.approx(-other.estimate, abs=1e-9)
    for low, high in ((one.low, other.high), (one.high, other.low)):
        assert (low is None) == (high is None)
        assert low is None or low == pytest.approx(-high, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(LATENCIES, st.floats(0.01, 100))
def test_the_unit_of_time_changes_nothing(values, factor) -> None:
    one = median_log_ratio(_of(values), LEVELS).bounds
    scaled = median_log_ratio(_of([(a * factor, b * factor, group) for a, b, group in values]), LEVELS).bounds
    assert one.estimate == pytest.approx(scaled.estimate, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(LATENCIES, st.randoms(use_true_random=False))
def test_the_order_of_pairs_changes_nothing(values, random) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)
    one, other = median_log_ratio(_of(values), LEVELS).bounds, median_log_ratio(_of(shuffled), LEVELS).bounds
    for first, second in zip((one.estimate, one.low, one.high), (other.estimate, other.low, other.high), strict=True):
        assert first == second or first == pytest.approx(second, abs=1e-9)


def test_repeating_pairs_inside_their_groups_does_not_narrow() -> None:
    rng = np.random.default_rng(5)
    before, after = np.exp(rng.normal(0, 0.2, 30)).tolist(), np.exp(rng.normal(0, 0.2, 30)).tolist()
    once = pairs(before, after, list(range(30)))
    tenfold = pairs(before * 10, after * 10, list(range(30)) * 10)
    one, many = median_log_ratio(once, LEVELS).bounds, median_log_ratio(tenfold, LEVELS).bounds
    assert one.low is not None
    # ten equal values are one place: the interval is that of thirty groups, not of three hundred pairs
    assert many.low == pytest.approx(one.low)
    assert many.high == pytest.approx(one.high)


def test_the_joint_bound_is_further_out_than_the_bound() -> None:
    rng = np.random.default_rng(6)
    found = pairs(np.exp(rng.normal(0, 0.2, 100)).tolist(), np.exp(rng.normal(0, 0.2, 100)).tolist(), list(range(100)))
    for result in (median_log_ratio(found, LEVELS), p95_log_ratio(found, LEVELS, draws=300, rng=generator("s"))):
        assert result.bounds.joint_low is not None
        assert result.bounds.joint_low < result.bounds.low < result.bounds.estimate < result.bounds.high


def test_p95_ratio_by_hand_and_its_interval_is_seeded() -> None:
    champion, candidate = list(np.arange(1.0, 101.0)), list(2 * np.arange(1.0, 101.0))
    found = pairs(champion, candidate, list(range(100)))
    one, two = (p95_log_ratio(found, LEVELS, draws=300, rng=generator("s", "w")) for _ in range(2))
    assert one == two
    # every resample's 95th percentiles keep their ratio of two exactly
    assert one.bounds.estimate == pytest.approx(math.log(2))
    assert one.standard_error == pytest.approx(0, abs=1e-12)
    other = p95_log_ratio(
        pairs(champion, candidate[::-1], list(range(100))), LEVELS, draws=300, rng=generator("s", "v")
    )
    assert other.standard_error > 0


def test_p95_of_few_groups_has_no_interval() -> None:
    found = p95_log_ratio(pairs([1.0] * 59, [2.0] * 59, list(range(59))), LEVELS, draws=200, rng=generator("s"))
    assert found.ratio().estimate == pytest.approx(2)
    assert found.bounds.low is None


def test_a_median_beyond_every_ratio_is_unknown() -> None:
    found = median_log_ratio(pairs([0.0] * 20, [1.0] * 20, list(range(20))), LEVELS).ratio()
    assert found.estimate is None
    assert found.low is None
