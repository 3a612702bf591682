"""Intervals for weighted means over case groups: scores, failure rates, costs, shares of calls. Pure; draws are seeded.

1. The mean is a ratio of sums over groups: numerator over mass. Whole groups are resampled with replacement, all
   figures of a window on the same draws.
2. **Studentized cluster bootstrap** (Hall 1988, Annals of Statistics 16; Davison and Hinkley 1997, section 5.2): each
   draw gives (mean* - mean) / se*, se being the linearised standard error over groups widened by sqrt(G / (G - 1)); the
   interval is mean minus the draws' quantiles times se. A draw without spread counts as infinitely far out.
3. Where fewer than ``SPARSE_GROUPS`` groups differ from the commonest value, there is nothing to resample, and a mean of
   bounded values gets a bound that holds for any number of groups. Where nearly all groups, of equal mass, have a share of
   0 or nearly all a share of 1: that of Clopper and Pearson (1934) for the groups that do not, which also holds where
   groups differ from each other (Hoeffding 1956, Annals of Mathematical Statistics 27). Else that of ``betting``, groups
   counting by their mass over the largest mass.
4. What is not known is bounded (Manski 1990; Imbens and Manski 2004): the lower end is that of the window with every
   unknown at its lowest, the upper end that of the window with every unknown at its highest. The estimate is made from
   what is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from tasc_pipeline.control import betting
from tasc_pipeline.control.failures import SPARSE_GROUPS
from tasc_pipeline.control.intervals import Levels
from tasc_pipeline.control.pairing import Floats

BOOTSTRAP_METHOD, EXACT_METHOD = "studentized-cluster-bootstrap", "exact-binomial-over-groups"
_MOST_CELLS, _LEAST_DRAWS = 40_000_000, 400
_EVEN = 1e-9
_HALVINGS = 50
_DIGITS = 12
"""Decimals within which two groups' means are the same value."""


@dataclass(frozen=True, slots=True)
class Resamples:
    """How often each draw took each group, shared by every figure of a window.

    Args:
        counts: draws x groups.
    """

    counts: Floats

    @classmethod
    def draw(cls, groups: int, draws: int, rng: np.random.Generator) -> Self:
        """Draw whole groups with replacement; fewer draws, and never below 400, where the groups are very many."""
        affordable = min(draws, max(_LEAST_DRAWS, _MOST_CELLS // max(groups, 1)))
        counts = np.empty((affordable, groups))
        for row in counts:
            row[:] = np.bincount(rng.integers(0, groups, groups), minlength=groups)
        return cls(counts)


@dataclass(frozen=True, slots=True)
class GroupSums:
    """A weighted mean by groups; groups without mass are left out.

    Args:
        numerator: per group, sum of weight times value.
        mass: per group, sum of weights.
    """

    numerator: Floats
    mass: Floats

    @property
    def mean(self) -> float | None:
        """Null of nothing."""
        total = float(self.mass.sum())
        return float(self.numerator.sum()) / total if total > 0 else None

    @property
    def values(self) -> Floats:
        """Mean of every group that has mass."""
        held = self.mass > 0
        return self.numerator[held] / self.mass[held]

    @property
    def differing(self) -> int:
        """Groups that do not have the commonest value."""
        rounded = np.round(self.values, _DIGITS)
        return len(rounded) - int(np.unique(rounded, return_counts=True)[1].max()) if len(rounded) else 0

    @property
    def sparse(self) -> bool:
        """Whether too few groups differ to resample them."""
        return self.differing < SPARSE_GROUPS

    @property
    def at_its_end(self) -> bool:
        """Whether nearly all groups, all of one mass, have a share of 0, or nearly all a share of 1."""
        held = self.mass[self.mass > 0]
        if not self.sparse or len(held) == 0 or float(held.max() - held.min()) > _EVEN * float(held.max()):
            return False
        values = self.values
        return min(int(np.count_nonzero(values > 0.0)), int(np.count_nonzero(values < 1.0))) < SPARSE_GROUPS

    @property
    def standard_error(self) -> float:
        """Linearised over groups, widened for few of them; infinite with fewer than two."""
        centre, groups = self.mean, int(np.count_nonzero(self.mass > 0))
        if centre is None or groups < 2 or not math.isfinite(centre):
            return math.inf
        rest = self.numerator - centre * self.mass
        return math.sqrt(groups / (groups - 1) * float(rest @ rest)) / float(self.mass.sum())


@dataclass(frozen=True, slots=True)
class Span:
    """The values that a bounded quantity can have."""

    low: float
    high: float


UNIT, SIGNED = Span(0.0, 1.0), Span(-1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean with its interval, null where the data cannot give it.

    Args:
        estimate: over what is known.
        low: lower end of the interval, unknowns at their lowest.
        high: upper end, unknowns at their highest.
        lowest: the mean with every unknown at its lowest.
        highest: the mean with every unknown at its highest.
        standard_error: the larger of the two; null where the groups are too few for one.
        method: how the interval was made.
    """

    estimate: float | None
    low: float | None
    high: float | None
    lowest: float | None
    highest: float | None
    standard_error: float | None
    method: str


def mean_interval(
    known: GroupSums, lowest: GroupSums, highest: GroupSums, levels: Levels, resamples: Resamples, span: Span | None
) -> Mean:
    """Estimate and interval of one mean; see the rules of this module.

    Args:
        known: sums over what is known.
        lowest: sums over all that was planned, unknowns at their lowest value.
        highest: the same at their highest; infinite where nothing bounds them.
        levels: confidence.
        resamples: the window's draws.
        span: of the values; null for an unbounded quantity such as cost.
    """
    low, of_low = lower_end(lowest, levels.tail, resamples, span)
    high, of_high = upper_end(highest, levels.tail, resamples, span)
    errors = [error for error in (adjusted_error(lowest, span), adjusted_error(highest, span)) if math.isfinite(error)]
    return Mean(
        estimate=known.mean,
        low=low,
        high=high,
        lowest=_finite(lowest.mean),
        highest=_finite(highest.mean),
        standard_error=max(errors) if len(errors) == 2 else None,
        method=of_low if of_low == of_high else next(item for item in (of_low, of_high) if item != BOOTSTRAP_METHOD),
    )


def lower_end(sums: GroupSums, tail: float, resamples: Resamples, span: Span | None) -> tuple[float | None, str]:
    """Lower end of a one-sided interval of a mean, and the method that gave it.

    Args:
        sums: value and mass of each case group.
        tail: probability that the mean lies below it.
        resamples: draws of rule 2.
        span: within which every value lies, if anything bounds them; sparse groups then get the bounds of rule 3.

    Returns:
        The end, None where nothing bounds it, and the method's name.
    """
    if span == UNIT and sums.at_its_end:
        return binomial_lower(int(np.count_nonzero(sums.values >= 1.0)), len(sums.values), tail), EXACT_METHOD
    turned = GroupSums(-sums.numerator, sums.mass)
    high, method = upper_end(turned, tail, resamples, None if span is None else Span(-span.high, -span.low))
    return (None if high is None else 0.0 - high), method


def upper_end(sums: GroupSums, tail: float, resamples: Resamples, span: Span | None) -> tuple[float | None, str]:
    """Upper end of a one-sided interval of a mean, and the method that gave it; arguments as of ``lower_end``."""
    if sums.mean is None or not np.all(np.isfinite(sums.numerator)):
        return None, BOOTSTRAP_METHOD
    if span is not None and sums.sparse:
        if span == UNIT and sums.at_its_end:
            return binomial_upper(int(np.count_nonzero(sums.values > 0.0)), len(sums.values), tail), EXACT_METHOD
        return _betting_upper(sums, tail, span), betting.METHOD
    high = _studentized_upper(sums, tail, resamples)
    if high is None:
        return (None, BOOTSTRAP_METHOD) if span is None else (span.high, BOOTSTRAP_METHOD)
    return (high if span is None else min(high, span.high)), BOOTSTRAP_METHOD


def binomial_upper(count: int, groups: int, tail: float) -> float:
    """The largest chance under which at most ``count`` of ``groups`` still happens with probability ``tail``."""
    return _root(lambda chance: _at_most(count, groups, chance) - tail) if count < groups else 1.0


def binomial_lower(count: int, groups: int, tail: float) -> float:
    """The smallest chance under which at least ``count`` of ``groups`` still happens with probability ``tail``."""
    return _root(lambda chance: _at_most(count - 1, groups, chance) - (1 - tail)) if count > 0 else 0.0


def adjusted_error(sums: GroupSums, span: Span | None) -> float:
    """Standard error; of a bounded quantity with next to no spread that of two more groups at its two ends."""
    if span is None or not sums.sparse:
        return sums.standard_error
    values = np.append(sums.values, (span.low, span.high))
    return float(np.sqrt(np.sum((values - values.mean()) ** 2))) / len(values)


def _studentized_upper(sums: GroupSums, tail: float, resamples: Resamples) -> float | None:
    """Mean minus the lower quantile of the studentized draws times the standard error; null where it is unbounded."""
    centre, error = sums.mean, sums.standard_error
    if centre is None or not math.isfinite(error):
        return None
    rest, mass = sums.numerator - centre * sums.mass, sums.mass
    columns = np.stack([rest, mass, rest * rest, rest * mass, mass * mass], axis=1)
    shift, total, square, cross, masses = (resamples.counts @ columns).T
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = shift / total
        spread = np.sqrt(np.maximum(square - 2 * moved * cross + moved * moved * masses, 0.0))
        spread[spread <= 1e-9 * np.sqrt(np.maximum(square, 0.0))] = 0.0
        drawn = np.where(spread > 0, shift / spread, np.sign(shift) * np.inf)
    drawn = np.sort(np.where(np.isnan(drawn), 0.0, drawn))
    place = max(math.floor((len(drawn) + 1) * tail) - 1, 0)
    lowest = float(drawn[place])
    return None if math.isinf(lowest) else centre - lowest * error


def _betting_upper(sums: GroupSums, tail: float, span: Span) -> float:
    """Exact bound: groups weigh their mass over the largest, which keeps every weighed value within the span."""
    held = sums.mass > 0
    weights = sums.mass[held] / sums.mass.max()
    width = span.high - span.low
    if span.low < 0 < span.high:
        weighed = weights * sums.values / max(span.high, -span.low)
        bound = betting.upper_bound(betting.counted(weighed.tolist()), tail) * max(span.high, -span.low)
        return min(bound / float(weights.mean()), span.high)
    scaled = weights * (sums.values - span.low) / width
    bound = max(betting.upper_bound(betting.counted(scaled.tolist()), tail), 0.0)
    return min(span.low + width * bound / float(weights.mean()), span.high)


def _at_most(count: int, groups: int, chance: float) -> float:
    """Probability of at most ``count`` among ``groups`` that each have the chance."""
    if chance <= 0.0 or chance >= 1.0:
        return 1.0 if chance <= 0.0 or count >= groups else 0.0
    logs = (
        math.lgamma(groups + 1)
        - math.lgamma(item + 1)
        - math.lgamma(groups - item + 1)
        + item * math.log(chance)
        + (groups - item) * math.log1p(-chance)
        for item in range(count + 1)
    )
    return min(math.fsum(math.exp(value) for value in logs), 1.0)


def _root(falling: Callable[[float], float]) -> float:
    """Where a falling function of a chance passes zero, by halving."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
