"""What happened between two scrapes of one server. Pure.

A counter that is smaller than before was reset: the process restarted, and what was counted since is all that is known.
A restart that has already counted past the old value cannot be seen here; build and start are watched elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tasc_collector.contracts.observations import HistogramValue


@dataclass(frozen=True, slots=True)
class CounterChange:
    """How much a counter grew.

    Args:
        grown: increase; since the reset where there was one. None where a value is missing.
        reset: the counter went down in between.
    """

    grown: float | None
    reset: bool


@dataclass(frozen=True, slots=True)
class HistogramChange:
    """Observations between two scrapes.

    Args:
        upper_bounds: finite bounds in seconds.
        counts: observations per bucket, not cumulative; the last is above every bound.
        sum: their sum in seconds, where the server gives one.
        reset: the histogram was reset in between; only what came since is counted.
    """

    upper_bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float | None
    reset: bool

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """Mean in seconds; None without observations or sum."""
        return self.sum / self.count if self.sum is not None and self.count else None

    def quantile(self, share: float) -> float | None:
        """Quantile in seconds, linear within its bucket, as ``histogram_quantile`` of Prometheus.

        Args:
            share: 0 to 1.

        Returns:
            None without observations; the greatest finite bound where the quantile lies above it.
        """
        if not self.count or not self.upper_bounds:
            return None
        rank, below, low = share * self.count, 0, 0.0
        for bound, count in zip(self.upper_bounds, self.counts, strict=False):
            if count and below + count >= rank:
                return low + (bound - low) * (rank - below) / count
            below, low = below + count, bound
        return self.upper_bounds[-1]


def counter_change(before: float | None, after: float | None) -> CounterChange:
    """How much a counter grew from one scrape to a later one."""
    if before is None or after is None:
        return CounterChange(None, reset=False)
    return CounterChange(after, reset=True) if after < before else CounterChange(after - before, reset=False)


def histogram_change(before: HistogramValue | None, after: HistogramValue | None) -> HistogramChange | None:
    """Observations from one scrape to a later one; None where one is missing or the bounds changed."""
    if before is None or after is None or before.upper_bounds != after.upper_bounds:
        return None
    old, new = _per_bucket(before), _per_bucket(after)
    reset = after.cumulative_counts[-1] < before.cumulative_counts[-1] or any(
        n < o for o, n in zip(old, new, strict=True)
    )
    if reset:
        return HistogramChange(after.upper_bounds, new, after.sum, reset=True)
    total = None if before.sum is None or after.sum is None else after.sum - before.sum
    return HistogramChange(after.upper_bounds, tuple(n - o for o, n in zip(old, new, strict=True)), total, reset=False)


def _per_bucket(histogram: HistogramValue) -> tuple[int, ...]:
    counts = histogram.cumulative_counts
    return (counts[0], *(after - before for before, after in pairwise(counts)))
