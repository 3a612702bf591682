"""Confidence sequences over the windows of a recurring study: right however often and whenever somebody looks. Pure.

Log ratios (asymptotic confidence sequence; Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas 2024, "Time-uniform central
limit theory and asymptotic confidence sequences", Annals of Statistics 52; Robbins 1970 for the mixture):

1. Each window gives an estimate x and its standard error s. The parameter is the mean over the windows seen so far of
   what each window's estimate is expected to be; it may drift, and the sequence then covers the mean of the drifting
   values.
2. With t windows, mean x of the estimates and mean square v of the standard errors, the sequence is

       mean(x) +- sqrt(v) * sqrt( 2 (t r + 1) / (t^2 r) * log( sqrt(t r + 1) / alpha ) ),

   r being such that it is narrowest near ``TUNED_TO_WINDOWS`` windows. It holds at all t at once with error alpha, as
   well as the windows' estimates are normal. Windows without a standard error add nothing.
3. The sequence is about the study's own cases: repeating them makes the figure for these cases exact and says nothing
   of cases that are not in the study.

Failure differences use the wealth of ``betting``, which multiplies over windows. What earlier windows give comes from
their ``WindowSummary``; a window never changes what an earlier one said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from tasc_collector.contracts.report import DifferenceCount, LatencyMetric, Statistic, WindowFigure, WindowSummary
from tasc_pipeline.control import betting
from tasc_pipeline.control.intervals import NO_LOG_RATIO, Bounds, Levels, LogRatio

METHOD = "asymptotic-confidence-sequence"
TUNED_TO_WINDOWS = 10
"""Two weeks of working days: narrowest where a team first expects an answer, usable long after."""
_GRID_POINTS = 801
_GRID_REACH = 1.02


def up_to(last: WindowSummary, earlier: Sequence[WindowSummary]) -> list[WindowSummary]:
    """The windows of a sequence in the order in which they closed, ``last`` at the end; later ones do not count yet."""
    before = [window for window in earlier if _place(window) < _place(last)]
    return [*sorted(before, key=_place), last]


def figures_of(windows: Sequence[WindowSummary], metric: LatencyMetric, statistic: Statistic) -> list[WindowFigure]:
    """One figure of every window that has it."""
    return [
        item for window in windows for item in window.figures if (item.metric, item.statistic) == (metric, statistic)
    ]


def radius(windows: int, alpha: float) -> float:
    """Half width of the sequence in units of one window's standard error.

    Args:
        windows: how many, at least 1.
        alpha: two-sided error of the whole sequence.
    """
    rate = _rate(alpha)
    reach = windows * rate + 1
    return math.sqrt(2 * reach / (windows * windows * rate) * math.log(math.sqrt(reach) / alpha))


def log_ratio_sequence(figures: Sequence[WindowFigure], levels: Levels) -> LogRatio:
    """Mean log ratio over windows with the sequence's bounds.

    Args:
        figures: the same figure of each window.
        levels: confidence of the whole sequence.
    """
    if not figures:
        return NO_LOG_RATIO
    windows = len(figures)
    centre = math.fsum(item.log_ratio for item in figures) / windows
    error = math.sqrt(math.fsum(item.standard_error**2 for item in figures) / windows)
    reach = error * radius(windows, 2 * levels.tail)
    joint = error * radius(windows, 2 * levels.joint_tail)
    return LogRatio(Bounds(centre, centre - reach, centre + reach, centre - joint), error / math.sqrt(windows))


def failure_differences(windows: Sequence[WindowSummary]) -> tuple[betting.Differences, betting.Differences]:
    """Groups of all windows by difference, every unknown once in the candidate's favour and once against it."""
    best = betting.merged([_differences(window.differences_best) for window in windows])
    return best, betting.merged([_differences(window.differences_worst) for window in windows])


def failure_sequence(windows: Sequence[WindowSummary], levels: Levels) -> Bounds:
    """Bounds of the failure difference over all windows; the estimate is the middle of what the unknown allows."""
    best, worst = failure_differences(windows)
    low, high = betting.mean(best), betting.mean(worst)
    if low is None or high is None:
        return Bounds(None, None, None)
    return Bounds(
        estimate=(low + high) / 2,
        low=betting.lower_bound(best, levels.tail),
        high=betting.upper_bound(worst, levels.tail),
        joint_low=betting.lower_bound(best, levels.joint_tail),
    )


@cache
def spent(windows: int, alpha: float) -> float:
    """The part of alpha that looks at windows 1 to ``windows`` have used, for normal estimates of equal information.

    Recursive integration of the sub-density of the sum over looks (Armitage, McPherson and Rowe 1969).
    """
    if windows == 0:
        return 0.0
    limits = [look * radius(look, alpha) for look in range(1, windows + 1)]
    half = limits[-1] * _GRID_REACH
    places = np.linspace(-half, half, _GRID_POINTS)
    step = places[1] - places[0]
    kernel = np.exp(-((places[:, None] - places[None, :]) ** 2) / 2) / math.sqrt(2 * math.pi) * step
    density = np.exp(-(places**2) / 2) / math.sqrt(2 * math.pi)
    density[np.abs(places) > limits[0]] = 0.0
    for limit in limits[1:]:
        density = kernel @ density
        density[np.abs(places) > limit] = 0.0
    return float(min(max(1.0 - density.sum() * step, 0.0), alpha))


def _place(window: WindowSummary) -> tuple[str, str]:
    return window.as_of, window.window_key


def _differences(counts: Sequence[DifferenceCount]) -> dict[float, int]:
    return {item.value: item.count for item in counts}


def _rate(alpha: float) -> float:
    """The mixture's rate that makes the sequence narrowest near the tuned number of windows (the paper, appendix)."""
    spread = -2 * math.log(alpha)
    return (spread + math.log(spread) + 1) / TUNED_TO_WINDOWS
