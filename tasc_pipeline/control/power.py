"""How many case groups and replicates a margin needs, from earlier windows or from a guess. Pure.

For a log ratio with spread s per group (standard error times the root of the number of groups) the interval of one
window is within the margin with the wanted power at

    groups = ((z(1 - alpha / 2) + z(power)) * s / (log margin - log ratio)) ** 2,

``ratio`` being what the candidate really is. A recurring study replaces the normal quantile by the radius of its
sequence. A guess gives s for the median only: 1.2533 (root of pi / 2) times the standard deviation of a case's log
ratio, between cases and, shared by its replicates, within. What a 95th percentile needs is known from earlier windows
only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tasc_collector.contracts.comparison import ComparisonRule, Margins
from tasc_collector.contracts.report import LatencyMetric, Statistic, WindowSummary
from tasc_pipeline.control import betting
from tasc_pipeline.control.drift import FIGURES
from tasc_pipeline.control.intervals import P95_MINIMUM_GROUPS, normal_quantile
from tasc_pipeline.control.sequences import figures_of, radius

MEDIAN_FACTOR = math.sqrt(math.pi / 2)
MAXIMUM_WINDOWS = 1_000
"""Windows after which a sequence is not followed further: years of daily looks."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a study should be able to say.

    Args:
        confidence: two-sided, such as 0.95.
        power: chance of ``no-worse`` if the candidate is what is assumed, such as 0.8.
        ratio: candidate over champion that is assumed, such as 1.0.
    """

    confidence: float = 0.95
    power: float = 0.8
    ratio: float = 1.0

    def room(self, margin: float) -> float:
        """Distance on the log scale between what is assumed and the margin; at most zero where nothing can show it."""
        return math.log(margin) - math.log(self.ratio)


@dataclass(frozen=True, slots=True)
class Spread:
    """Spread of one figure: standard deviation of the log ratio per case group."""

    metric: LatencyMetric
    statistic: Statistic
    per_group: float
    windows: int
    """Windows that it comes from, 0 for a guess."""


def spreads_of(windows: Sequence[WindowSummary]) -> list[Spread]:
    """Spreads of all figures that earlier windows have, the root of the mean square over windows."""
    found = []
    for metric, statistic in FIGURES:
        figures = figures_of(windows, metric, statistic)
        if figures:
            square = math.fsum(item.standard_error**2 * item.groups for item in figures) / len(figures)
            found.append(Spread(metric, statistic, math.sqrt(square), len(figures)))
    return found


def guessed_spread(between: float, within: float, replicates: int) -> float:
    """Spread per group of the median from a guess, one case per group.

    Args:
        between: standard deviation over cases of the log ratio that a case really has.
        within: standard deviation of the log of one call's latency when the same call is repeated.
        replicates: per case and profile, at least 1.
    """
    return MEDIAN_FACTOR * math.sqrt(between**2 + 2 * within**2 / replicates)


def groups_needed(spread: Spread, margin: float, wanted: Wanted) -> int | None:
    """Case groups for one window; null where the assumed ratio is not within the margin."""
    room = wanted.room(margin)
    if room <= 0:
        return None
    reach = normal_quantile((1 + wanted.confidence) / 2) + normal_quantile(wanted.power)
    least = P95_MINIMUM_GROUPS if spread.statistic == "p95" else 6
    return max(math.ceil((reach * spread.per_group / room) ** 2), least)


def windows_needed(spread: Spread, margin: float, groups: int, wanted: Wanted) -> int | None:
    """Windows of ``groups`` groups until a recurring study's sequence is within the margin with the wanted power.

    Returns:
        The number, or null where ``MAXIMUM_WINDOWS`` do not suffice.
    """
    room, error = wanted.room(margin), spread.per_group / math.sqrt(groups)
    slack = normal_quantile(wanted.power)
    for windows in range(1, MAXIMUM_WINDOWS + 1):
        if error * (radius(windows, 1 - wanted.confidence) + slack / math.sqrt(windows)) <= room:
            return windows
    return None


def failure_groups_needed(margin: float, rate: float, wanted: Wanted) -> int:
    """Case groups that show a failure-rate difference within a margin where both sides fail at the same rate.

    Args:
        margin: largest difference that is no worse, such as 0.02; what is left of it where a difference was seen.
        rate: failure rate of both sides, 0 for none; failures of the two sides are taken as independent.
        wanted: confidence and power.
    """
    without = betting.groups_without_failure(margin, wanted.confidence)
    if rate <= 0:
        return without
    reach = normal_quantile((1 + wanted.confidence) / 2) + normal_quantile(wanted.power)
    return max(without, math.ceil(reach**2 * 2 * rate * (1 - rate) / margin**2))


def study_notes(groups: int, margins: Margins, rule: ComparisonRule, failure_rate: float = 0.0) -> list[str]:
    """What windows of so many case groups can and cannot say, for a user before the first one.

    Args:
        groups: case groups of a window.
        margins: the study's.
        rule: the study's.
        failure_rate: expected on both sides.
    """
    margin = margins.failure_rate_difference
    needed = failure_groups_needed(margin, failure_rate, Wanted(rule.confidence))
    least = betting.margin_without_failure(groups, rule.confidence)
    notes = [
        f"failures: if none occurs, {groups} case groups exclude more than {least:.1%} of them; the margin of {margin:.1%} "
        f"takes {needed} groups"
        + ("" if failure_rate <= 0 else f" where both sides fail {failure_rate:.1%} of the time")
    ]
    if groups < needed:
        windows = math.ceil(needed / groups)
        notes[0] += (
            f", or {windows} windows of this recurring study; until then its verdict is undecided or worse"
            if rule.recurring
            else ", so a window stays undecided or worse -> use more prompts or a larger --failure-margin, "
            f"or make the study --recurring ({windows} windows)"
        )
    if groups < rule.minimum_groups:
        notes.append(f"{groups} case groups, the study asks for {rule.minimum_groups}: every window stays undecided")
    elif groups < P95_MINIMUM_GROUPS:
        notes.append(f"95th percentiles are shown and do not decide below {P95_MINIMUM_GROUPS} case groups")
    return notes
