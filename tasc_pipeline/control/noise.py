"""The noise floor: how far the champion is from itself in the same window. Pure and seeded.

1. Replicates of one case are paired with each other: two replicates make one pair, R of them the R pairs of neighbours
   in a ring, both sides being the champion.
2. Which of the two plays the candidate is arbitrary, so it is drawn anew for every case, ``FLIPS`` times; each draw
   gives the same statistic as the comparison's (median of the ratio, ratio of 95th percentiles, or mean over groups of
   the difference of failures).
3. The floor is the 95 % quantile of how far the statistic is from 1, for failures from 0: a difference below it is one
   that the champion also shows against itself. It has as many pairs as the champion gives, at two replicates half as
   many as the comparison, so it is rather too high than too low. It is shown, and decides nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasc_collector.contracts.report import LatencyMetric, Statistic
from tasc_pipeline.control.intervals import weighted_median, weighted_p95
from tasc_pipeline.control.observations import Observation
from tasc_pipeline.control.pairing import BEYOND_LOG_RATIO, LATENCY_OF, Floats, Ints, Unit, log_ratios

FLIPS = 200
MINIMUM_CASES = 5
"""Below, the sign flips have too few outcomes to speak of a quantile."""
_QUANTILE = 0.95
_FAILED = {"success": 0.0, "failure": 1.0}


@dataclass(frozen=True, slots=True)
class _Ring:
    """The champion's neighbouring replicates as pairs; ``case`` and ``group`` count from 0, ``group`` is one per case."""

    first: Floats
    second: Floats
    weight: Floats
    case: Ints
    group: Ints


def noise_floor(
    champion: Mapping[Unit, Observation], metric: LatencyMetric, statistic: Statistic, rng: np.random.Generator
) -> float | None:
    """Relative difference of the champion against its own replicates, such as 0.03; null where it has none.

    Args:
        champion: the champion's observations by unit.
        metric: which latency.
        statistic: which figure.
        rng: seeded generator.
    """
    latency = LATENCY_OF[metric]
    ring = _ring(champion, lambda item: latency(item) if item.outcome == "success" else None)
    if ring is None:
        return None
    flips, ratios = _flips(ring, rng), log_ratios(ring.first, ring.second)
    if statistic == "median":
        distances = [abs(weighted_median(np.where(flip[ring.case], -ratios, ratios), ring.weight)) for flip in flips]
    else:
        distances = [_p95_distance(ring.first, ring.second, ring.weight, flip[ring.case]) for flip in flips]
    floor = float(np.quantile(distances, _QUANTILE))
    return None if floor >= BEYOND_LOG_RATIO / 2 else float(np.expm1(floor))


def failure_noise_floor(champion: Mapping[Unit, Observation], rng: np.random.Generator) -> float | None:
    """Difference of failure rates of the champion against its own replicates, such as 0.01; null where it has none.

    Args:
        champion: the champion's observations by unit; an execution whose outcome is not known is no replicate.
        rng: seeded generator.
    """
    ring = _ring(champion, lambda item: _FAILED.get(item.outcome))
    if ring is None:
        return None
    weight = np.bincount(ring.group[ring.case], ring.weight)
    share = np.bincount(ring.case, (ring.second - ring.first) * ring.weight) / weight[ring.group] / len(weight)
    distances = np.abs(np.where(_flips(ring, rng), -share, share).sum(axis=1))
    return float(np.quantile(distances, _QUANTILE))


def _ring(champion: Mapping[Unit, Observation], value: Callable[[Observation], float | None]) -> _Ring | None:
    """Rule 1; null with fewer than ``MINIMUM_CASES`` cases that have two values."""
    cases: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for unit in sorted(champion):
        found = value(champion[unit])
        if found is not None:
            cases[unit[:2]].append((found, champion[unit].weight))
    several = {name: replicates for name, replicates in cases.items() if len(replicates) > 1}
    if len(several) < MINIMUM_CASES:
        return None
    rows: list[tuple[float, float, float, int]] = []
    for index, replicates in enumerate(several.values()):
        ring = len(replicates) if len(replicates) > 2 else 1
        for place in range(ring):
            before, after = replicates[place], replicates[(place + 1) % len(replicates)]
            rows.append((before[0], after[0], before[1] / ring, index))
    groups = {name: index for index, name in enumerate(dict.fromkeys(group for group, _ in several))}
    first, second, weight = (np.array([row[column] for row in rows], dtype=np.float64) for column in range(3))
    return _Ring(
        first,
        second,
        weight,
        case=np.array([row[3] for row in rows], dtype=np.int64),
        group=np.array([groups[group] for group, _ in several], dtype=np.int64),
    )


def _flips(ring: _Ring, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Rule 2: per draw and case, whether the sides change places."""
    return rng.random((FLIPS, len(ring.group))) < 0.5


def _p95_distance(first: Floats, second: Floats, weight: Floats, turned: NDArray[np.bool_]) -> float:
    before = weighted_p95(np.where(turned, second, first), weight)
    after = weighted_p95(np.where(turned, first, second), weight)
    return abs(float(log_ratios(np.array([before]), np.array([after]))[0]))
