"""The estimators of engine v2 (original project, section 6.3), to the last bit. Pure.

Sums run from the first to the last row, as a loop would add them: ``cumsum`` and ``bincount`` do, ``sum`` does not.

- Mean: sum of value times weight over sum of weights, in the order of the rows.
- Quantile of latencies: the first value, in ascending order, at which the cumulated weight reaches its share of the
  whole; equal values stay in the order of the rows.
- Effect of a case: the median over its replicates. Estimate: mean of effects by traffic weight, by group then case.
- Interval: every draw takes as many groups as there are, with replacement, and divides the sum of their numerators by
  the sum of their weights; ends are linearly interpolated quantiles of the sorted draws (type 7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tasc_collector.errors import InputError
from tasc_pipeline.control.engine_v2_random import indices
from tasc_pipeline.control.identifiers import Codes
from tasc_pipeline.control.pairing import Floats

P95: Final = 0.95
MAX_EFFECTS: Final = 100_000
MAX_REPLICATES: Final = 1_000_000
MAX_ITERATIONS: Final = 1_000_000
MAX_GROUP_DRAWS: Final = 100_000_000
"""Limits of the original's estimator; beyond them it refuses."""
_BLOCK: Final = 4_000_000
"""Indices that are drawn at once: 32 MB."""


@dataclass(frozen=True, slots=True)
class GroupedInterval:
    """The paired difference with its interval.

    Args:
        cases: number of case effects.
        groups: number of groups.
        mass: sum of traffic weights.
        estimate: weighted mean effect.
        low: lower end.
        high: upper end.
    """

    cases: int
    groups: int
    mass: float
    estimate: float
    low: float
    high: float


def total(values: Floats) -> float:
    """Sum from the first value to the last; 0 where there is none."""
    return float(np.cumsum(values)[-1]) if len(values) else 0.0


def weighted_mean(values: Floats, weights: Floats) -> float:
    """Weighted mean over at least one row."""
    return total(values * weights) / total(weights)


def weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    """The first value at which the cumulated weight reaches ``share`` of the whole; at least one row."""
    order = np.argsort(values, kind="stable")
    cumulated = np.cumsum(weights[order])
    place = int(np.searchsorted(cumulated, share * cumulated[-1]))
    return float(values[order[min(place, len(order) - 1)]])


def row_weights(case: Codes, weight: Floats) -> Floats:
    """Weight of each row: its case's, divided among the case's rows."""
    found: Floats = weight / np.bincount(case, minlength=1)[case]
    return found


def case_medians(case: Codes, values: Floats) -> tuple[Codes, Floats]:
    """The cases that have a row, ascending, and the median of each one's values."""
    order = np.lexsort((values, case))
    ordered, cases = values[order], case[order]
    start = np.flatnonzero(np.append(True, cases[1:] != cases[:-1]))
    count = np.diff(np.append(start, len(cases)))
    upper = start + count // 2
    middle = np.where(count % 2 == 1, ordered[upper], (ordered[np.maximum(upper - 1, 0)] + ordered[upper]) / 2)
    return cases[start], middle


def grouped_interval(
    effects: Floats, weights: Floats, group: Codes, *, alpha: float, iterations: int, seed: int
) -> GroupedInterval:
    """The weighted mean effect with its percentile interval over groups.

    Args:
        effects: one per case, cases ascending.
        weights: traffic weight of each.
        group: place of each case's group in sorted order; gaps are allowed.
        alpha: error of the interval, both sides together.
        iterations: draws.
        seed: of the generator.

    Raises:
        InputError: beyond the original's limits.
    """
    present, group = np.unique(group, return_inverse=True)
    groups = len(present)
    check_size(len(effects), iterations, groups)
    order = np.argsort(group, kind="stable")
    weighted = effects[order] * weights[order]
    numerators = np.bincount(group[order], weights=weighted).astype(np.float64)
    masses = np.bincount(group[order], weights=weights[order]).astype(np.float64)
    mass = total(weights[order])
    draws = np.sort(_draws(numerators, masses, iterations, seed))
    return GroupedInterval(
        cases=len(effects),
        groups=groups,
        mass=mass,
        estimate=total(weighted) / mass,
        low=sorted_quantile(draws, alpha / 2),
        high=sorted_quantile(draws, 1 - alpha / 2),
    )


def check_size(cases: int, iterations: int, groups: int) -> None:
    """Refuse what the original's estimator refuses.

    Raises:
        InputError: too many cases, draws, or draws times groups.
    """
    for what, found, most in (
        ("case effects", cases, MAX_EFFECTS),
        ("bootstrap iterations", iterations, MAX_ITERATIONS),
        ("iterations times groups", iterations * groups, MAX_GROUP_DRAWS),
    ):
        if found > most:
            raise InputError(
                f"{found} {what}, engine v2 takes at most {most}",
                rule="limits of the original's estimator",
                way_out="pin an analysis plan (tasc-analysis-plan-v1): our engine has no such limit",
            )


def sorted_quantile(values: Floats, share: float) -> float:
    """Linearly interpolated quantile of sorted values (type 7)."""
    position = (len(values) - 1) * share
    below, above = int(np.floor(position)), int(np.ceil(position))
    low, high = float(values[below]), float(values[above])
    return low if below == above else low + (high - low) * (position - below)


def _draws(numerators: Floats, masses: Floats, iterations: int, seed: int) -> Floats:
    groups = len(numerators)
    found = np.empty(iterations)
    step = max(1, _BLOCK // groups)
    for start in range(0, iterations, step):
        count = min(step, iterations - start)
        places = np.ascontiguousarray(indices(seed, start, count, groups).T)
        numerator, mass = np.zeros(count), np.zeros(count)
        for taken in places:
            numerator += numerators[taken]
            mass += masses[taken]
        found[start : start + count] = numerator / mass
    return found
