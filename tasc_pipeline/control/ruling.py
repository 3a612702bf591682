"""From intervals to a verdict. Pure.

Rules:

1. A figure is ``no-worse`` where its whole interval is within the margin, ``worse`` where it is wholly beyond, else
   ``undecided``.
2. Fewer groups or less coverage than the study asks for leaves the whole undecided, and so does a server that gave no
   single answer: it was gone, which is told before any figure.
3. ``no-worse`` needs every deciding figure to be no worse. As each must hold, the error stays that of one figure.
4. ``worse`` needs one figure whose lower bound is beyond its margin also at the level that all deciding figures share
   (Bonferroni): of many figures one is beyond by chance.
5. All else is ``undecided``, and the reasons say which figures stand in the way. How many groups would tell is said of
   a single window alone, where no execution is unknown and it has fewer: what is unknown no number of groups makes known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasc_collector.contracts.comparison import ComparisonRule
from tasc_collector.contracts.report import FailureResult, RatioResult, Verdict
from tasc_pipeline.control import betting
from tasc_pipeline.control.intervals import Bounds
from tasc_pipeline.control.power import Wanted, failure_groups_needed
from tasc_pipeline.control.sentences import figure_name


@dataclass(frozen=True, slots=True)
class FailureGrounds:
    """What the bounds of the failure difference rest on: one window, or all windows of a sequence so far.

    Args:
        groups: case groups, summed over the windows.
        best: mean difference with every unknown execution in the candidate's favour, null of nothing.
        worst: the same with every unknown against it.
        windows: windows of the sequence, null for a single window.
    """

    groups: int
    best: float | None
    worst: float | None
    windows: int | None = None


def within(bounds: Bounds, margin: float) -> Verdict:
    """The verdict of one figure, rule 1."""
    if bounds.low is None or bounds.high is None:
        return "undecided"
    return "no-worse" if bounds.high <= margin else "worse" if bounds.low > margin else "undecided"


def overall(
    rule: ComparisonRule,
    ratios: Sequence[RatioResult],
    failures: FailureResult,
    grounds: FailureGrounds,
    coverage: float | None,
    silent: Sequence[str] = (),
) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict over all figures, rules 2 to 5, and why it is not more than it is.

    Args:
        rule: minimum groups and coverage, confidence.
        ratios: all ratios; only deciding ones count.
        failures: the failure difference.
        grounds: what its bounds rest on.
        coverage: share of planned executions with a known outcome, 0 to 1.
        silent: profiles of which no planned execution has an answer.
    """
    deciding = [result for result in ratios if result.deciding]
    results: tuple[RatioResult | FailureResult, ...] = (*deciding, failures)
    lacking = _lacking(rule, deciding, coverage, silent)
    if lacking:
        return "undecided", lacking
    if any(result.joint_low is not None and result.joint_low > result.margin for result in results):
        return "worse", ()
    if all(result.verdict == "no-worse" for result in results):
        return "no-worse", ()
    return "undecided", tuple(_in_the_way(deciding, failures, grounds, rule.confidence))


def _lacking(
    rule: ComparisonRule, deciding: Sequence[RatioResult], coverage: float | None, silent: Sequence[str]
) -> tuple[str, ...]:
    groups = max((result.groups for result in deciding), default=0)
    reasons = [f"no answer from {profile} in the whole window" for profile in silent]
    if groups < rule.minimum_groups:
        reasons.append(f"{groups} groups, the study asks for {rule.minimum_groups}")
    if coverage is None or coverage < rule.minimum_coverage:
        reasons.append(f"coverage {coverage or 0.0:.0%}, the study asks for {rule.minimum_coverage:.0%}")
    return tuple(reasons)


def _in_the_way(
    deciding: Sequence[RatioResult], failures: FailureResult, grounds: FailureGrounds, confidence: float
) -> list[str]:
    reasons: list[str] = []
    alone = [figure_name(result) for result in deciding if result.verdict == "worse"]
    alone += ["failures"] if failures.verdict == "worse" else []
    if alone:
        figures = len(deciding) + 1
        reasons.append(f"{', '.join(alone)} beyond the margin, but one of {figures} figures can be by chance")
    unclear = [figure_name(result) for result in deciding if result.verdict == "undecided"]
    if unclear:
        reasons.append(f"{', '.join(unclear)} can be on either side of the margin")
    if failures.verdict == "undecided":
        reasons.append(_failure_reason(failures, grounds, confidence))
    return reasons


def _failure_reason(failures: FailureResult, grounds: FailureGrounds, confidence: float) -> str:
    groups = f"{grounds.groups} groups" + ("" if grounds.windows is None else " over all windows")
    unclear = f"failures can be on either side of the margin of {failures.margin:.1%} with {groups}"
    best, worst = grounds.best, grounds.worst
    if best is None or worst is None:
        return "failures can be on either side of the margin"
    if best != worst:
        return f"{unclear}: executions without a known end alone leave {best:+.1%} to {worst:+.1%}"
    if grounds.windows is not None:
        return unclear
    if failures.champion_rate == failures.candidate_rate == 0.0:
        needed = betting.groups_without_failure(failures.margin, confidence)
        reason = f"no failure, and {groups} cannot exclude {failures.margin:.1%} more of them"
        return reason + (f" (about {needed} would)" if needed > grounds.groups else "")
    known = [rate for rate in (failures.champion_rate, failures.candidate_rate) if rate is not None]
    room = failures.margin - max(failures.difference or 0.0, 0.0)
    if not known or room <= 0:
        return unclear
    needed = failure_groups_needed(room, sum(known) / len(known), Wanted(confidence))
    return unclear + (f" (about {needed} would tell)" if needed > grounds.groups else "")
