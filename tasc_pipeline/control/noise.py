"""The noise floor: how far the champion is from itself in the same window. Pure and seeded.

1. Replicates of one case are paired with each other: two replicates make one pair, R of them the R pairs of neighbours
   in a ring, both sides being the champion.
2. Which of the two plays the candidate is arbitrary, so it is drawn anew for every case, ``FLIPS`` times; each draw
   gives the same statistic as the comparison's (median of the ratio, or ratio of 95th percentiles).
3. The floor is the 95 % quantile of how far the statistic is from 1: a difference below it is one that the champion
   also shows against itself. It has as many pairs as the champion gives, at two replicates half as many as the
   comparison, so it is rather too high than too low. It is shown, and decides nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tasc_collector.contracts.report import LatencyMetric, Statistic
from tasc_pipeline.control.intervals import weighted_median, weighted_p95
from tasc_pipeline.control.observations import Observation
from tasc_pipeline.control.pairing import BEYOND_LOG_RATIO, LATENCY_OF, Floats, Unit, log_ratios

FLIPS = 200
MINIMUM_CASES = 5
"""Below, the sign flips have too few outcomes to speak of a quantile."""
_QUANTILE = 0.95


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
    value = LATENCY_OF[metric]
    cases: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for unit in sorted(champion):
        item = champion[unit]
        found = value(item)
        if item.outcome == "success" and found is not None:
            cases[unit[:2]].append((found, item.weight))
    rows: list[tuple[float, float, float, int]] = []
    several = [replicates for replicates in cases.values() if len(replicates) > 1]
    for index, replicates in enumerate(several):
        ring = len(replicates) if len(replicates) > 2 else 1
        for place in range(ring):
            before, after = replicates[place], replicates[(place + 1) % len(replicates)]
            rows.append((before[0], after[0], before[1] / ring, index))
    if len(several) < MINIMUM_CASES:
        return None
    first, second, weight = (np.array([row[column] for row in rows], dtype=np.float64) for column in range(3))
    case = np.array([row[3] for row in rows], dtype=np.int64)
    flips = rng.random((FLIPS, len(several))) < 0.5
    ratios = log_ratios(first, second)
    if statistic == "median":
        distances = [abs(weighted_median(np.where(flip[case], -ratios, ratios), weight)) for flip in flips]
    else:
        distances = [_p95_distance(first, second, weight, flip[case]) for flip in flips]
    floor = float(np.quantile(distances, _QUANTILE))
    return None if floor >= BEYOND_LOG_RATIO / 2 else float(np.expm1(floor))


def _p95_distance(first: Floats, second: Floats, weight: Floats, turned: NDArray[np.bool_]) -> float:
    before = weighted_p95(np.where(turned, second, first), weight)
    after = weighted_p95(np.where(turned, first, second), weight)
    return abs(float(log_ratios(np.array([before]), np.array([after]))[0]))
