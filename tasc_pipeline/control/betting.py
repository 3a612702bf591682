"""Bounds for the mean of paired failure differences, right at any number of groups and after any number of looks. Pure.

What is bounded: every case group of a window gives one difference D between -1 and 1, the failure share of the
candidate minus that of the champion over the group's pairs. The parameter is the mean of the groups' expectations.

How (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting", JRSS B 86): against "the
mean is at least m" a gambler who stakes the share c of his wealth on every group multiplies it by

    1 - c + c (1 - D) / (1 - m).

With independent groups and one c for all of them, the expected wealth never grows if the hypothesis holds: the product
of the groups' expectations is at most that of their mean (geometric below arithmetic mean), also where groups differ
from each other. A mixture over several c keeps this, at every window and for ever (Ville 1939). Wealth of 1/alpha
therefore refutes m with error alpha, in one window as over a sequence of windows, with no normal approximation. The
upper bound is the smallest refuted m; the lower bound is minus the upper bound of the differences with their sign
turned.

Half of the wealth starts on c = 1, the stake that is best where nothing fails: n groups without a difference exclude
every m above 1 - (alpha / 2) ** (1 / n), alpha being the error on that side.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tasc_pipeline.control.intervals import Bounds, Levels
from tasc_pipeline.control.pairing import Floats

METHOD = "betting"
_STAKES: Floats = np.array([1.0, 0.7, 0.5, 0.35, 0.25, 0.175, 0.125, 0.0875, 0.0625, 0.03, 0.015])
_PRIOR: Floats = np.array([0.5] + [0.5 / (len(_STAKES) - 1)] * (len(_STAKES) - 1))
_SECTIONS, _ROUNDS = 64, 5
"""The range from -1 to 1 is cut into sections, the right one again, and so on: to 2e-9, on the wide side."""
DIGITS = 9
"""Decimals that a difference keeps when groups with the same difference are counted together."""

Differences = Mapping[float, int]
"""How many groups have which difference."""


def counted(values: Iterable[float]) -> dict[float, int]:
    """Differences by how often they occur, ascending."""
    return dict(sorted(Counter(round(value, DIGITS) + 0.0 for value in values).items()))


def merged(parts: Sequence[Differences]) -> dict[float, int]:
    """The differences of several windows together."""
    total: Counter[float] = Counter()
    for part in parts:
        total.update(part)
    return dict(sorted(total.items()))


def log_wealth(differences: Differences, mean: float) -> float:
    """Log of the wealth against "the mean difference is at least ``mean``".

    Args:
        differences: groups by their difference, each from -1 to 1.
        mean: the hypothesis, below 1.
    """
    return float(_log_wealths(differences, np.array([mean]))[0])


def upper_bound(differences: Differences, alpha: float) -> float:
    """The smallest mean that the wealth refutes at ``alpha``, at most 1; wealth grows with the mean, so by sections."""
    low, high = -1.0, 1.0
    for _ in range(_ROUNDS):
        means = np.linspace(low, high, _SECTIONS + 1)
        refuted = np.flatnonzero(_log_wealths(differences, means[1:-1]) >= -math.log(alpha))
        place = int(refuted[0]) + 1 if len(refuted) else _SECTIONS
        low, high = float(means[place - 1]), float(means[place])
    return high


def lower_bound(differences: Differences, alpha: float) -> float:
    """The largest mean that is refuted from below at ``alpha``, at least -1."""
    return -upper_bound({-value: count for value, count in differences.items()}, alpha)


def mean(differences: Differences) -> float | None:
    """Mean over groups, null of nothing."""
    groups = sum(differences.values())
    return sum(value * count for value, count in differences.items()) / groups if groups else None


def difference_bounds(known: Differences, best: Differences, worst: Differences, levels: Levels) -> Bounds:
    """Estimate from what is known; bounds that hold whatever the unknown executions were.

    Args:
        known: groups by difference over pairs whose both outcomes are known.
        best: the same with every unknown in the candidate's favour; gives the lower bounds.
        worst: the same with every unknown against it; gives the upper bound.
        levels: confidence.
    """
    if not sum(known.values()):
        return Bounds(None, None, None)
    return Bounds(
        mean(known),
        lower_bound(best, levels.tail),
        upper_bound(worst, levels.tail),
        lower_bound(best, levels.joint_tail),
    )


def groups_without_failure(margin: float, confidence: float) -> int:
    """How many groups without any difference exclude a difference above a margin.

    Args:
        margin: failure-rate difference, such as 0.02.
        confidence: two-sided, such as 0.95.
    """
    return math.ceil(math.log((1 - confidence) / 2 * float(_PRIOR[0])) / math.log(1 - margin))


def margin_without_failure(groups: int, confidence: float) -> float:
    """The smallest margin that so many groups without any difference are within; see ``groups_without_failure``."""
    least: float = 1 - ((1 - confidence) / 2 * float(_PRIOR[0])) ** (1 / groups)
    return least


def _log_wealths(differences: Differences, means: Floats) -> Floats:
    """As ``log_wealth``, for several hypotheses at once."""
    values = np.array(list(differences.keys()), dtype=np.float64)
    counts = np.array(list(differences.values()), dtype=np.float64)
    gain = (1.0 - values) / (1.0 - means[:, None])
    factors = 1.0 - _STAKES[:, None, None] + _STAKES[:, None, None] * gain
    with np.errstate(divide="ignore"):
        logs = np.log(np.maximum(factors, 0.0)) @ counts + np.log(_PRIOR)[:, None]
    found: Floats = np.logaddexp.reduce(logs, axis=0)
    return found
