"""Fixed-size intervals of one window for log ratios of latencies. Pure; whatever is drawn is seeded.

Two estimands, each with the interval that kept its coverage in the simulations of ``docs/statistics.md``:

- **Median of the paired ratio.** The interval inverts the cluster-robust sign score: it holds every ratio whose score,
  the weighted count of pairs below it minus half, is within the normal quantile of its own spread over groups (Woodruff
  1952; Francisco and Fuller 1991). Between two pairs the score is interpolated (Hettmansperger and Sheather 1986). It
  draws nothing, needs no density, and is unbounded where the groups are too few: below six for 95 %.
- **Ratio of the two 95th percentiles over the same pairs.** Whole groups are drawn with replacement (Field and Welsh
  2007); the standard deviation of the log ratio over draws, widened by sqrt(G / (G - 1)), times the normal quantile.
  Fewer than ``P95_MINIMUM_GROUPS`` groups have too little beyond their 95th percentile: no interval.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from tasc_pipeline.control.pairing import BEYOND_LOG_RATIO, Floats, Ints, Pairs

P95_MINIMUM_GROUPS = 60
"""Three groups beyond the 95th percentile on average; below, the interval misses its coverage."""
SCORE_METHOD, BOOTSTRAP_METHOD = "cluster-sign-score", "cluster-bootstrap-normal"
_TAIL = 0.05
_MOST_GROUP_DRAWS, _LEAST_DRAWS = 40_000_000, 400
"""Work of one interval: from 20 000 groups on 2 000 draws become fewer; over 400 the deviation is exact to 3.5 %."""
_KEPT_SHARE, _KEPT_LEAST = 0.07, 100
"""What a resample is looked up in first; where its 95th percentile lies below, the whole side is looked up."""
_EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class Bounds:
    """An estimate with its interval, each null where the data cannot give it.

    Args:
        estimate: point estimate.
        low: lower bound.
        high: upper bound.
        joint_low: lower bound at the stricter level that all deciding figures share.
    """

    estimate: float | None
    low: float | None
    high: float | None
    joint_low: float | None = None


@dataclass(frozen=True, slots=True)
class Levels:
    """Confidence of an interval, and over how many figures its error is shared for "worse".

    Args:
        confidence: two-sided, such as 0.95.
        figures: number of figures that decide, at least 1.
    """

    confidence: float
    figures: int = 1

    @property
    def tail(self) -> float:
        """Error on one side."""
        return (1 - self.confidence) / 2

    @property
    def joint_tail(self) -> float:
        """Error on one side divided by the number of figures (Bonferroni)."""
        return self.tail / self.figures


@dataclass(frozen=True, slots=True)
class LogRatio:
    """A log ratio with its bounds on the log scale and its standard error.

    Args:
        bounds: log of the ratio; see ``Bounds``.
        standard_error: of the log ratio, null where there is no interval.
    """

    bounds: Bounds
    standard_error: float | None

    def ratio(self) -> Bounds:
        """The same on the scale of ratios."""
        bounds = self.bounds
        return Bounds(_exp(bounds.estimate), _exp(bounds.low), _exp(bounds.high), _exp(bounds.joint_low))


NO_LOG_RATIO = LogRatio(Bounds(None, None, None), None)


def generator(seed: str, *parts: str) -> np.random.Generator:
    """A generator that depends on nothing but the rule's seed and what it is for."""
    material = hashlib.sha256("\0".join((seed, *parts)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(material[:16], "big")))


def normal_quantile(share: float) -> float:
    """Quantile of the standard normal distribution."""
    return NormalDist().inv_cdf(share)


def weighted_median(values: Floats, weights: Floats) -> float:
    """The value at which the cumulated weight first reaches half, the mean of two where it is exactly half."""
    order = np.argsort(values, kind="stable")
    cumulated = np.cumsum(weights[order])
    half = cumulated[-1] / 2
    slack = _EPSILON * cumulated[-1]
    index = int(np.searchsorted(cumulated, half - slack))
    if index + 1 < len(values) and abs(cumulated[index] - half) <= slack:
        return float((values[order[index]] + values[order[index + 1]]) / 2)
    return float(values[order[index]])


def weighted_p95(values: Floats, weights: Floats, tail: float = _TAIL) -> float:
    """The first value at which the cumulated weight reaches 95 % of the whole, or all but another ``tail``."""
    order = np.argsort(values, kind="stable")
    return weighted_p95_in_order(values[order], weights[order], tail)


def weighted_p95_in_order(values: Floats, weights: Floats, tail: float = _TAIL) -> float:
    """``weighted_p95`` of values that ascend."""
    cumulated = np.cumsum(weights)
    return float(values[int(np.searchsorted(cumulated, (1 - tail - _EPSILON) * cumulated[-1]))])


def median_log_ratio(pairs: Pairs, levels: Levels) -> LogRatio:
    """Median over pairs of the log of candidate over champion, with the score interval.

    Args:
        pairs: the pairs of one latency.
        levels: confidence.
    """
    if len(pairs) == 0:
        return NO_LOG_RATIO
    values = pairs.log_ratio
    centre = weighted_median(values, pairs.weight)
    places, scores = _scores(values, pairs)
    critical, joint = normal_quantile(1 - levels.tail), normal_quantile(1 - levels.joint_tail)
    low, high = _crossing(places, scores, -critical), _crossing(places, scores, critical)
    error = None if low is None or high is None else (high - low) / (2 * critical)
    return LogRatio(Bounds(centre, low, high, _crossing(places, scores, -joint)), error)


def p95_log_ratio(pairs: Pairs, levels: Levels, *, draws: int, rng: np.random.Generator) -> LogRatio:
    """Log of the ratio of the two 95th percentiles over the same pairs, with the bootstrap interval.

    Args:
        pairs: the pairs of one latency.
        levels: confidence.
        draws: number of resamples; fewer, and never below 400, where the groups are very many.
        rng: seeded generator.
    """
    if len(pairs) == 0:
        return NO_LOG_RATIO
    before, after = weighted_p95(pairs.champion, pairs.weight), weighted_p95(pairs.candidate, pairs.weight)
    if before == 0 or after == 0:
        return NO_LOG_RATIO
    centre = float(np.log(after) - np.log(before))
    if pairs.groups < P95_MINIMUM_GROUPS:
        return LogRatio(Bounds(centre, None, None), None)
    error = _bootstrap_error(pairs, draws, rng)
    if error is None:
        return LogRatio(Bounds(centre, None, None), None)
    reach, joint = normal_quantile(1 - levels.tail) * error, normal_quantile(1 - levels.joint_tail) * error
    return LogRatio(Bounds(centre, centre - reach, centre + reach, centre - joint), error)


def _scores(values: Floats, pairs: Pairs) -> tuple[Floats, Floats]:
    """Distinct values in ascending order, and the studentized sign score at each (mean of just below and at it).

    The score of a group at a place is its weight at or below the place minus half its weight; the variance is the sum
    of squares over groups, as under the hypothesis that the place is the median.
    """
    order = np.argsort(values, kind="stable")
    group, weight = pairs.group[order], pairs.weight[order]
    start = -np.bincount(group, weights=weight, minlength=pairs.groups) / 2
    after = start[group] + _running_sums(group, weight)
    variance = np.sum(start**2) + np.concatenate([[0.0], np.cumsum(after**2 - (after - weight) ** 2)])
    total = start.sum() + np.concatenate([[0.0], np.cumsum(weight)])
    with np.errstate(divide="ignore", invalid="ignore"):
        score = np.where(variance > 1e-12 * np.sum(start**2), total / np.sqrt(np.maximum(variance, 0.0)), 0.0)
    ordered = values[order]
    last = np.flatnonzero(np.append(np.diff(ordered) > 0, True))
    edges = np.concatenate([[score[0]], score[last + 1]])
    return ordered[last], (edges[1:] + edges[:-1]) / 2


def _running_sums(group: Ints, weight: Floats) -> Floats:
    """Sum of the weights of a pair's own group up to and with the pair, in the order given."""
    by_group = np.argsort(group, kind="stable")
    sums = np.cumsum(weight[by_group])
    first = np.flatnonzero(np.append(True, np.diff(group[by_group]) > 0))
    offset = np.concatenate([[0.0], sums])[first]
    lengths = np.diff(np.append(first, len(group)))
    result = np.empty_like(weight)
    result[by_group] = sums - np.repeat(offset, lengths)
    return result


def _crossing(places: Floats, scores: Floats, level: float) -> float | None:
    """Where the score passes a level, interpolated; null where it does not pass it within the values.

    The studentized score need not be monotone; of several crossings the outermost counts, the wider interval.
    """
    if level < 0:
        inside = np.flatnonzero(scores > level)
        right = int(inside[0]) if len(inside) else 0
    else:
        inside = np.flatnonzero(scores < level)
        right = int(inside[-1]) + 1 if len(inside) else 0
    if right == 0 or right == len(scores):
        return None
    share = (level - scores[right - 1]) / (scores[right] - scores[right - 1])
    return float(places[right - 1] + share * (places[right] - places[right - 1]))


def _bootstrap_error(pairs: Pairs, draws: int, rng: np.random.Generator) -> float | None:
    """Standard deviation of the log ratio of 95th percentiles over draws of groups; null where one of them is zero."""
    sides = (_Tail(pairs.champion, pairs), _Tail(pairs.candidate, pairs))
    mass = np.bincount(pairs.group, weights=pairs.weight, minlength=pairs.groups)
    affordable = min(draws, max(_LEAST_DRAWS, _MOST_GROUP_DRAWS // pairs.groups))
    found = np.empty((affordable, 2))
    for row in range(affordable):
        counts = np.bincount(rng.integers(0, pairs.groups, pairs.groups), minlength=pairs.groups).astype(np.float64)
        allowed = _TAIL * float(counts @ mass)
        found[row] = [side.quantile(counts, allowed) for side in sides]
    if np.any(found <= 0):
        return None
    widen = np.sqrt(pairs.groups / (pairs.groups - 1))
    return float(np.std(np.log(found[:, 1]) - np.log(found[:, 0])) * widen)


class _Tail:
    """The largest values of one side, where the 95th percentile of nearly every resample lies."""

    def __init__(self, values: Floats, pairs: Pairs) -> None:
        order = np.argsort(-values, kind="stable")
        self._values, self._weights, self._groups = values[order], pairs.weight[order], pairs.group[order]
        self._kept = min(len(values), round(len(values) * _KEPT_SHARE) + _KEPT_LEAST)

    def quantile(self, counts: Floats, allowed: float) -> float:
        """The largest value that has at most ``allowed`` weight above it and more with its own."""
        for end in (self._kept, len(self._values)):
            cumulated = np.cumsum(counts[self._groups[:end]] * self._weights[:end])
            index = int(np.searchsorted(cumulated, allowed * (1 + _EPSILON), side="right"))
            if index < end:
                return float(self._values[index])
        return float(self._values[-1])


def _exp(value: float | None) -> float | None:
    """Exponential; null where a zero latency makes the ratio meaningless."""
    if value is None or abs(value) >= BEYOND_LOG_RATIO - _EPSILON:
        return None
    return float(np.exp(value))
