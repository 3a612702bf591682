"""What a team would use instead, on the same data: a plain two-sample interval, and GrowthBook's sequential one."""

from __future__ import annotations

import math

import numpy as np

from tasc_pipeline.control.intervals import normal_quantile
from tasc_pipeline.control.pairing import Pairs

GROWTHBOOK_TUNING = 5000
"""GrowthBook's default ``sequential_tuning_parameter``, in users."""


def two_sample_log_interval(pairs: Pairs, confidence: float = 0.95) -> tuple[float, float]:
    """Welch's interval (normal quantile) for the difference of mean log latencies: unpaired, every call independent."""
    centre, error = _difference(pairs)
    reach = normal_quantile((1 + confidence) / 2) * error
    return centre - reach, centre + reach


def growthbook_log_interval(
    windows: list[Pairs], alpha: float = 0.05, tuning: int = GROWTHBOOK_TUNING
) -> tuple[float, float]:
    """GrowthBook's sequential interval on the calls of all windows so far.

    Source: GrowthBook, ``packages/stats/gbstats/frequentist/tests.py``, ``sequential_rho`` and
    ``sequential_interval_halfwidth(s2, n, rho, alpha)``; ``power/midexperimentpower.py`` calls them with
    ``s2 = (n_a + n_b) * variance of the estimate`` and 5000 as the default tuning. They are equations 161 and 9 of
    Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, arXiv 2103.06476.

    ``rho = sqrt((-2 log(alpha) + log(-2 log(alpha) + 1)) / tuning)``; half width ``sqrt(s2) * sqrt(2 (n rho^2 + 1) *
    log(sqrt(n rho^2 + 1) / alpha) / (n rho)^2)`` with s2 = n times the squared standard error, n = calls on both sides.
    """
    champion, candidate, weight, group = (
        np.concatenate([getattr(item, name) for item in windows])
        for name in ("champion", "candidate", "weight", "group")
    )
    merged = Pairs(champion, candidate, weight, group, windows[0].groups)
    centre, error = _difference(merged)
    count = 2 * len(merged)
    rho2 = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha) + 1)) / tuning
    grown = count * rho2 + 1
    reach = (
        math.sqrt(count) * error * math.sqrt(2 * grown * math.log(math.sqrt(grown) / alpha) / (count * count * rho2))
    )
    return centre - reach, centre + reach


def _difference(pairs: Pairs) -> tuple[float, float]:
    first, second = np.log(pairs.champion), np.log(pairs.candidate)
    error = math.sqrt(first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second))
    return float(second.mean() - first.mean()), error
