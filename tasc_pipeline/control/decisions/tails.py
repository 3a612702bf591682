"""95th percentiles of a latency with intervals, by inversion of the share of calls beyond a value. Pure.

1. The estimate is the first value at which the cumulated weight of the known calls reaches 95 %.
2. The 95th percentile is at most v where at most 5 % of the calls take longer than v. So the upper end of the interval is
   the smallest value for which the upper bound of that share (``means``, rules 2 and 3) is at most 5 %, the lower end
   the smallest value for which its lower bound is. One mechanism gives every interval of a decision.
3. A call whose latency is not known takes longer than everything for the upper end and nothing for the lower one. Failed
   calls have no latency; the failure gate is about them.
4. With few groups, or many unknown calls, no value is large enough: the interval is then unbounded above. At 95 % it
   takes 72 groups without any unknown call, 110 with one, 142 with two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tasc_collector.canonical import MAX_SAFE_INTEGER
from tasc_pipeline.control.decisions.means import UNIT, GroupSums, Resamples, lower_end, upper_end
from tasc_pipeline.control.decisions.units import Flags, group_sums
from tasc_pipeline.control.identifiers import ordered
from tasc_pipeline.control.intervals import Bounds, Levels, weighted_p95, weighted_p95_in_order
from tasc_pipeline.control.pairing import Floats, Ints

METHOD = "cluster-bootstrap-inverted"
BEYOND = 0.05
"""Share of the calls that may take longer than the 95th percentile."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """One latency over the calls that have one.

    Args:
        values: latency per call, infinite where it is not known.
        known: where it is.
        weight: weight of each call.
        group: index of its case group.
        groups: number of groups.
    """

    values: Floats
    known: Flags
    weight: Floats
    group: Ints
    groups: int

    def beyond(self, bound: float, *, unknown_beyond: bool) -> GroupSums:
        """The share of calls that take longer than a bound, by groups."""
        longer = np.where(self.known, self.values > bound, unknown_beyond)
        return GroupSums(self._sums(self.weight * longer), self._sums(self.weight))

    def beyond_among_known(self, bound: float) -> GroupSums:
        """The same over the calls whose latency is known."""
        weight = self.weight * self.known
        return GroupSums(self._sums(weight * (self.values > bound)), self._sums(weight))

    def _sums(self, values: Floats) -> Floats:
        return group_sums(self.group, values, self.groups)


@dataclass(frozen=True, slots=True)
class Percentile:
    """A 95th percentile with its interval.

    Args:
        bounds: estimate and interval.
        lowest: with every unknown call taking no time.
        highest: with every unknown call taking longer than all; null where it is one of those.
    """

    bounds: Bounds
    lowest: float | None
    highest: float | None


NO_PERCENTILE = Percentile(Bounds(None, None, None), None, None)


def p95_interval(calls: Latencies, levels: Levels, resamples: Resamples, *, share_beyond: float = BEYOND) -> Percentile:
    """Estimate and interval of the 95th percentile; see the rules of this module.

    Args:
        calls: one latency.
        levels: confidence.
        resamples: the window's draws.
        share_beyond: share of the calls that may take longer; 0.01 makes it the 99th percentile.
    """
    if not calls.known.any():
        return NO_PERCENTILE
    values, weight, held, unknown = (
        calls.values,
        calls.weight,
        np.flatnonzero(calls.known),
        np.flatnonzero(~calls.known),
    )
    rising = held[_in_order(values[held])]

    def quantile(order: Ints, values: Floats) -> float:
        return weighted_p95_in_order(values[order], weight[order], share_beyond)

    estimate = quantile(rising, values)
    descending = _Descending.of(calls)

    def upper_share(place: int) -> float:
        return _share(upper_end(descending.beyond(place, unknown_beyond=True), levels.tail, resamples, UNIT))

    def lower_share(place: int) -> float:
        return _share(lower_end(descending.beyond(place, unknown_beyond=False), levels.tail, resamples, UNIT))

    highest = quantile(np.append(rising, unknown), values) if len(unknown) else estimate
    lowest = weighted_p95(np.where(calls.known, values, 0.0), weight, share_beyond) if len(unknown) else estimate
    low, high = (descending.smallest(share, share_beyond) for share in (lower_share, upper_share))
    return Percentile(
        Bounds(estimate, low, high),
        lowest,
        highest if np.isfinite(highest) else None,
    )


@dataclass(frozen=True, slots=True)
class _Descending:
    """Known calls from the longest down, so that a share beyond a value only looks at those before it."""

    values: Floats
    weight: Floats
    group: Ints
    unknown: Floats
    """Weight of the unknown calls per group."""
    mass: Floats

    @classmethod
    def of(cls, calls: Latencies) -> _Descending:
        held = np.flatnonzero(calls.known)
        order = held[_in_order(-calls.values[held])]
        unknown = group_sums(calls.group, calls.weight * ~calls.known, calls.groups)
        mass = group_sums(calls.group, calls.weight, calls.groups)
        return cls(calls.values[order], calls.weight[order], calls.group[order], unknown, mass)

    def beyond(self, place: int, *, unknown_beyond: bool) -> GroupSums:
        longer = group_sums(self.group[:place], self.weight[:place], len(self.mass))
        return GroupSums(longer + self.unknown if unknown_beyond else longer, self.mass)

    def smallest(self, share: Callable[[int], float], share_beyond: float) -> float | None:
        """The smallest value beyond which at most that share lies by this bound; the bound falls with the value."""
        starts = np.flatnonzero(np.append(True, np.diff(self.values) < 0))
        within, beyond = 0, len(starts)
        if share(0) > share_beyond:
            return None
        while beyond - within > 1:
            middle = (within + beyond) // 2
            within, beyond = (middle, beyond) if share(int(starts[middle])) <= share_beyond else (within, middle)
        return float(self.values[starts[within]])


def _share(found: tuple[float | None, str]) -> float:
    return 1.0 if found[0] is None else found[0]


def _in_order(values: Floats) -> Ints:
    """The places of values in ascending order, equal ones as they come; whole numbers, as nanoseconds are, much faster."""
    if len(values) and np.abs(values).max() < MAX_SAFE_INTEGER:
        whole = values.astype(np.int64)
        if np.array_equal(whole, values):
            return ordered(whole - whole.min())
    return np.argsort(values, kind="stable")
