"""Across windows: does a figure drift, and do both sides lose answers alike? Pure. Both warn; neither decides.

Drift is Cochran's Q over windows (Cochran 1954): the weighted squared distances of the windows' log ratios from their
common mean, chi-square with t - 1 degrees of freedom where nothing drifts. Its p-value is for one look; the warning's
threshold is small because there are many looks.

Sample-ratio mismatch is an e-value, right at every look (a Beta(1/2, 1/2) mixture against one half; Lindon and Malek
2022): under "an execution without an answer is as likely the champion's as the candidate's" it exceeds 1/alpha ever
with probability at most alpha.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from tasc_collector.contracts.report import DriftItem, LatencyMetric, Statistic, WindowSummary
from tasc_pipeline.control.sequences import figures_of

DRIFT_P_VALUE = 0.001
MISMATCH_EVIDENCE = 1000.0
FIGURES: tuple[tuple[LatencyMetric, Statistic], ...] = tuple(
    (metric, statistic) for metric in ("ttft", "itl", "tpot", "e2e") for statistic in ("median", "p95")
)


def drift(windows: Sequence[WindowSummary]) -> tuple[DriftItem, ...]:
    """Heterogeneity of every figure that at least three windows have with an error above zero."""
    items = []
    for metric, statistic in FIGURES:
        figures = [item for item in figures_of(windows, metric, statistic) if item.standard_error > 0]
        if len(figures) < 3:
            continue
        weights = [item.standard_error**-2 for item in figures]
        common = math.fsum(weight * item.log_ratio for weight, item in zip(weights, figures, strict=True)) / math.fsum(
            weights
        )
        q = math.fsum(weight * (item.log_ratio - common) ** 2 for weight, item in zip(weights, figures, strict=True))
        items.append(
            DriftItem(
                metric=metric,
                statistic=statistic,
                windows=len(figures),
                q=float(f"{q:.9g}"),
                p_value=float(f"{chi_square_tail(q, len(figures) - 1):.6g}"),
            )
        )
    return tuple(items)


def mismatch_evidence(champion_missing: int, candidate_missing: int) -> float:
    """E-value against equal chances of either side to have no answer that counts; 1 where nothing is missing."""
    total = champion_missing + candidate_missing
    log_beta = math.lgamma(champion_missing + 0.5) + math.lgamma(candidate_missing + 0.5) - math.lgamma(total + 1)
    log_e = log_beta - 2 * math.lgamma(0.5) + total * math.log(2)
    return math.exp(min(log_e, 500.0))


def chi_square_tail(value: float, freedom: int) -> float:
    """Upper tail of a chi-square distribution, by Wilson and Hilferty's cube root (1931)."""
    if value <= 0:
        return 1.0
    spread = 2 / (9 * freedom)
    return 1 - NormalDist().cdf(((value / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))
