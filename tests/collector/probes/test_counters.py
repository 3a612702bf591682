"""What happened between two scrapes: growth, resets, histogram deltas, quantiles; values written by hand."""

from __future__ import annotations

import pytest

from tasc_collector.contracts.observations import HistogramValue
from tasc_collector.probes.counters import CounterChange, counter_change, histogram_change


def histogram(*counts: int, bounds: tuple[float, ...] = (0.1, 0.5), total: float | None = 1.0) -> HistogramValue:
    return HistogramValue(metric="ttft-seconds", labels=(), upper_bounds=bounds, cumulative_counts=counts, sum=total)


@pytest.mark.parametrize(
    ("before", "after", "grown", "reset"),
    [
        (10.0, 14.0, 4.0, False),
        (10.0, 10.0, 0.0, False),
        (10.0, 3.0, 3.0, True),
        (None, 3.0, None, False),
        (3.0, None, None, False),
    ],
)
def test_a_counter_that_went_down_was_reset(
    before: float | None, after: float | None, grown: float | None, reset: bool
) -> None:
    assert counter_change(before, after) == CounterChange(grown, reset)


def test_a_histogram_delta_counts_what_came_in_between() -> None:
    change = histogram_change(histogram(4, 9, 10, total=2.0), histogram(6, 13, 15, total=3.5))
    assert change is not None
    assert (change.counts, change.sum, change.reset) == ((2, 2, 1), 1.5, False)
    assert change.count == 5
    assert change.mean == pytest.approx(0.3)


def test_a_histogram_that_went_down_was_reset_and_counts_since_then() -> None:
    change = histogram_change(histogram(4, 9, 10), histogram(1, 2, 2, total=0.4))
    assert change is not None
    assert (change.counts, change.sum, change.reset) == ((1, 1, 0), 0.4, True)


def test_a_shift_between_buckets_is_a_reset_although_the_total_grew() -> None:
    change = histogram_change(histogram(10, 10, 10), histogram(2, 20, 20))
    assert change is not None
    assert (change.reset, change.counts) == (True, (2, 18, 0))


def test_other_bounds_or_a_missing_scrape_give_nothing() -> None:
    assert histogram_change(histogram(1, 1, 1), histogram(1, 1, 1, bounds=(0.2, 0.5))) is None
    assert histogram_change(None, histogram(1, 1, 1)) is None


def test_a_quantile_is_linear_within_its_bucket() -> None:
    change = histogram_change(histogram(0, 0, 0), histogram(4, 8, 10))
    assert change is not None
    assert change.quantile(0.2) == pytest.approx(0.05)
    assert change.quantile(0.6) == pytest.approx(0.3)
    assert change.quantile(0.99) == 0.5


def test_no_observation_has_no_quantile_and_no_mean() -> None:
    change = histogram_change(histogram(4, 8, 10), histogram(4, 8, 10))
    assert change is not None
    assert (change.quantile(0.5), change.mean) == (None, None)
