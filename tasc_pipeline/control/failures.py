"""The paired difference of failure rates of one window, with every unknown taken both ways. Pure.

1. A pair is a unit that was planned on both sides. A success counts 0, a failure 1. An execution without an answer that
   counts (``sent_unknown``, ``not_sent``, ``not_attempted``) is never zero: it is taken once in the candidate's favour
   and once against it.
2. A group's difference is the weighted mean over its pairs of candidate minus champion; the parameter is the mean over
   groups.
3. The interval of one window adds one group with difference +1 and one with -1 and takes the normal interval (Bonett
   and Price 2012, after Agresti and Min 2005). Where fewer than ``SPARSE_GROUPS`` groups differ at all, a normal
   approximation has nothing to stand on: the exact bounds of ``betting`` are used.
4. Lower bounds use the differences in the candidate's favour, upper bounds those against it, so a verdict holds
   whatever the unknown executions were.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from tasc_pipeline.control import betting
from tasc_pipeline.control.betting import Differences
from tasc_pipeline.control.intervals import Bounds, Levels, normal_quantile
from tasc_pipeline.control.observations import Observation
from tasc_pipeline.control.pairing import Unit

METHOD = "adjusted-normal-paired"
SPARSE_GROUPS = 8
"""Groups with a difference below which the normal interval gives way to the exact one."""


@dataclass(frozen=True, slots=True)
class FailurePairs:
    """Differences per group, three times.

    Args:
        known: over pairs with both outcomes known.
        best: unknown executions in the candidate's favour.
        worst: unknown executions against it.
        known_pairs: number of pairs with both outcomes known.
        planned_pairs: number of pairs.
        champion_missing: the champion's executions without an answer that counts.
        candidate_missing: the candidate's.
    """

    known: Differences
    best: Differences
    worst: Differences
    known_pairs: int
    planned_pairs: int
    champion_missing: int
    candidate_missing: int

    @property
    def groups(self) -> int:
        """Groups with a pair whose both outcomes are known."""
        return sum(self.known.values())


def failure_pairs(champion: Mapping[Unit, Observation], candidate: Mapping[Unit, Observation]) -> FailurePairs:
    """The pairs of one window; see the rules of this module."""
    units = sorted(champion.keys() & candidate.keys())
    return FailurePairs(
        known=_differences(units, champion, candidate, unknown=None),
        best=_differences(units, champion, candidate, unknown=(1.0, 0.0)),
        worst=_differences(units, champion, candidate, unknown=(0.0, 1.0)),
        known_pairs=sum(_known(champion[unit]) and _known(candidate[unit]) for unit in units),
        planned_pairs=len(units),
        champion_missing=sum(not _known(champion[unit]) for unit in units),
        candidate_missing=sum(not _known(candidate[unit]) for unit in units),
    )


def failure_bounds(pairs: FailurePairs, levels: Levels) -> tuple[Bounds, str]:
    """Difference and interval of one window, and the method that gave it."""
    if not pairs.groups:
        return Bounds(None, None, None), METHOD
    differing = min(sum(count for value, count in part.items() if value) for part in (pairs.best, pairs.worst))
    if differing < SPARSE_GROUPS:
        return betting.difference_bounds(pairs.known, pairs.best, pairs.worst, levels), betting.METHOD
    low, joint = (_normal_bound(pairs.best, -normal_quantile(1 - tail)) for tail in (levels.tail, levels.joint_tail))
    high = _normal_bound(pairs.worst, normal_quantile(1 - levels.tail))
    return Bounds(betting.mean(pairs.known), low, high, joint), METHOD


def failure_rate(observations: Mapping[Unit, Observation]) -> float | None:
    """Share of failures among executions whose outcome is known, null without any."""
    known = [item for item in observations.values() if _known(item)]
    return sum(item.outcome == "failure" for item in known) / len(known) if known else None


def _normal_bound(differences: Differences, quantile: float) -> float:
    adjusted = Counter(differences)
    adjusted.update({1.0: 1, -1.0: 1})
    groups = sum(adjusted.values())
    centre = sum(value * count for value, count in adjusted.items()) / groups
    spread = sum((value - centre) ** 2 * count for value, count in adjusted.items())
    return min(max(centre + quantile * math.sqrt(spread) / groups, -1.0), 1.0)


def _differences(
    units: list[Unit],
    champion: Mapping[Unit, Observation],
    candidate: Mapping[Unit, Observation],
    *,
    unknown: tuple[float, float] | None,
) -> dict[float, int]:
    """Groups by difference; an unknown side takes its value of ``unknown`` (champion, candidate), or drops the pair."""
    replicates: Counter[tuple[str, str]] = Counter()
    rows: list[tuple[Unit, float, float]] = []
    for unit in units:
        sides = (champion[unit], candidate[unit])
        if unknown is None and not all(map(_known, sides)):
            continue
        first, second = (
            float(item.outcome == "failure") if unknown is None or _known(item) else unknown[place]
            for place, item in enumerate(sides)
        )
        replicates[unit[:2]] += 1
        rows.append((unit, second - first, sides[0].weight))
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for unit, difference, weight in rows:
        share = weight / replicates[unit[:2]]
        sums[unit[0]][0] += share * difference
        sums[unit[0]][1] += share
    return betting.counted(total / mass for total, mass in sums.values())


def _known(item: Observation) -> bool:
    return item.outcome in ("success", "failure")
