"""Pairs of champion and candidate on one case replicate, as arrays. Pure.

How a window enters the statistics:

1. A *unit* is one replicate of one case. A pair exists where both calls of the unit succeeded and both values are
   known.
2. Every case counts by its traffic weight, however many of its replicates paired: a pair weighs the case's weight
   divided by the number of the case's pairs. Replicates make a case more exact; they do not make it more important.
3. Cases of one group are not independent, so only groups are: every interval works on sums per group.
4. A value of zero is a value (the median gap of a call is zero where reads held several events). Ratios with a zero
   keep their rank: two zeros are equal, one zero is beyond every finite ratio.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tasc_collector.contracts.report import LatencyMetric
from tasc_pipeline.control.observations import Observation

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Unit: TypeAlias = tuple[str, str, int]

BEYOND_LOG_RATIO = float(np.log(1e6))
"""Stands for the log of a ratio with one zero: further out than any ratio of two measured latencies."""

LATENCY_OF: dict[LatencyMetric, Callable[[Observation], float | None]] = {
    "ttft": lambda item: item.ttft_ms,
    "itl": lambda item: item.itl_p50_ms,
    "tpot": lambda item: item.tpot_ms,
    "e2e": lambda item: item.e2e_ms,
}
"""Each latency of a call in milliseconds; ITL of a call is the median gap of its token events."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Paired values of one latency.

    Args:
        champion: milliseconds, one per pair.
        candidate: milliseconds, one per pair.
        weight: weight of each pair, positive.
        group: index of each pair's case group, 0 to ``groups`` - 1.
        groups: number of groups.
    """

    champion: Floats
    candidate: Floats
    weight: Floats
    group: Ints
    groups: int

    def __len__(self) -> int:
        return len(self.champion)

    @property
    def log_ratio(self) -> Floats:
        """Log of candidate over champion, one per pair."""
        return log_ratios(self.champion, self.candidate)

    @property
    def zero_share(self) -> float:
        """Share of pairs with a zero on either side."""
        return float(np.mean((self.champion == 0) | (self.candidate == 0))) if len(self) else 0.0


def log_ratios(champion: Floats, candidate: Floats) -> Floats:
    """Log of candidate over champion; see rule 4 of this module for zeros."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios: Floats = np.log(candidate) - np.log(champion)
    ratios[(champion == 0) & (candidate == 0)] = 0.0
    return ratios.clip(-BEYOND_LOG_RATIO, BEYOND_LOG_RATIO)


def by_profile(observations: Sequence[Observation], profile_id: str) -> dict[Unit, Observation]:
    """One profile's observations by unit."""
    return {item.unit: item for item in observations if item.profile_id == profile_id}


def latency_pairs(
    champion: Mapping[Unit, Observation], candidate: Mapping[Unit, Observation], metric: LatencyMetric
) -> Pairs:
    """The pairs of one latency."""
    value = LATENCY_OF[metric]
    rows: list[tuple[Unit, float, float, float]] = []
    for unit in sorted(champion.keys() & candidate.keys()):
        first, second = champion[unit], candidate[unit]
        before, after = value(first), value(second)
        if first.outcome == second.outcome == "success" and before is not None and after is not None:
            rows.append((unit, before, after, first.weight))
    per_case = Counter(row[0][:2] for row in rows)
    names = {name: index for index, name in enumerate(dict.fromkeys(row[0][0] for row in rows))}
    return Pairs(
        champion=np.array([row[1] for row in rows], dtype=np.float64),
        candidate=np.array([row[2] for row in rows], dtype=np.float64),
        weight=np.array([row[3] / per_case[row[0][:2]] for row in rows], dtype=np.float64),
        group=np.array([names[row[0][0]] for row in rows], dtype=np.int64),
        groups=len(names),
    )
