"""The one sentence that a person reads. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasc_collector.contracts.report import ComparisonResult, ExecutionCounts, FailureResult, RatioResult, Verdict

NAMES = {"ttft": "TTFT", "itl": "ITL", "tpot": "TPOT", "e2e": "E2E"}
_WHOLE_PERCENT = 9.95
"""From here two significant digits are whole per cent, and from 99.5 on they would be an exponent."""
_OPENINGS: dict[Verdict, str] = {
    "no-worse": "{candidate} is no worse than {champion}",
    "worse": "{candidate} is worse than {champion}",
    "undecided": "Undecided whether {candidate} is worse than {champion}",
}


@dataclass(frozen=True, slots=True)
class Findings:
    """What a sentence is made of.

    Args:
        champion: profile id.
        candidate: profile id.
        verdict: over all figures.
        reasons: why it is not more than it is.
        ratios: every ratio.
        failures: the failure difference.
        counts: executions of both profiles.
        imbalances: what was not equal on both sides, in words.
        windows: how many windows a sequence is over, null for a single window.
    """

    champion: str
    candidate: str
    verdict: Verdict
    reasons: Sequence[str]
    ratios: Sequence[RatioResult]
    failures: FailureResult
    counts: ExecutionCounts
    imbalances: Sequence[str]
    windows: int | None


def sentence(findings: Findings) -> str:
    """Verdict, its reasons, the figures that made it, what is unknown, and what was not equal."""
    text = _OPENINGS[findings.verdict].format(candidate=findings.candidate, champion=findings.champion)
    text += f" in {', '.join(_worse(findings))}" if findings.verdict == "worse" else ""
    text += f" ({'; '.join(findings.reasons)})" if findings.reasons else ""
    figures = [_ratio(result) for result in findings.ratios if _told(result)]
    text += ": " + ", ".join([*figures, _failures(findings.failures)])
    first = next((result for result in findings.ratios if result.deciding), None)
    if first is not None:
        text += f", over {first.pairs} pairs in {first.groups} groups"
    if findings.windows is not None:
        text += f" and {findings.windows} {'window' if findings.windows == 1 else 'windows'}"
    text += "."
    counts = findings.counts
    unknown = counts.sent_unknown + counts.not_sent + counts.not_attempted
    if unknown:
        text += (
            f" {unknown} of {counts.planned} planned executions have no answer that counts ("
            f"{counts.sent_unknown} unknown, {counts.not_sent} not sent, {counts.not_attempted} not attempted)."
        )
    if findings.imbalances:
        text += f" Not equal on both sides: {', '.join(findings.imbalances)}."
    return text


def asides(result: ComparisonResult) -> tuple[str, ...]:
    """What a reader of the figures must know beside them: figures that do not decide, and what a sequence has spent."""
    by_reason: dict[str, list[str]] = {}
    for ratio in result.ratios:
        if ratio.set_aside is not None:
            by_reason.setdefault(ratio.set_aside, []).append(figure_name(ratio))
    lines = [f"{', '.join(names)} shown only: {reason}" for reason, names in by_reason.items()]
    sequence = result.sequence
    if sequence is not None:
        windows = f"{sequence.windows} {'window' if sequence.windows == 1 else 'windows'}"
        lines.append(
            f"intervals hold over all looks, so far at {windows}; they have used {sequence.spent:.2%} "
            f"of an error of {sequence.alpha:.1%} per figure"
        )
    return tuple(lines)


def figure_name(result: RatioResult) -> str:
    """How a ratio is called: ``TTFT``, or ``TTFT p95``."""
    return NAMES[result.metric] + ("" if result.statistic == "median" else " p95")


def floor_text(floor: float | None) -> str:
    """A noise floor as it stands beside a difference: ``±1.2 %``, or that there is none.

    Args:
        floor: share of 1, as the report has it.
    """
    if floor is None:
        return "unavailable"
    percent = 100 * floor
    return f"±{percent:,.0f} %" if percent >= _WHOLE_PERCENT else f"±{percent:.2g} %"


def _worse(findings: Findings) -> list[str]:
    """The figures that made the verdict ``worse``, and no others."""
    named: list[tuple[str, RatioResult | FailureResult]] = [("failures", findings.failures)]
    named[:0] = [(figure_name(result), result) for result in findings.ratios if result.deciding]
    return [name for name, result in named if result.joint_low is not None and result.joint_low > result.margin]


def _told(result: RatioResult) -> bool:
    """Deciding medians always; a 95th percentile where it is what is worse."""
    return result.deciding and (result.statistic == "median" or result.verdict == "worse")


def _ratio(result: RatioResult) -> str:
    name = figure_name(result)
    if result.estimate is None:
        return f"{name} unknown"
    low, high = result.interval.low, result.interval.high
    if low is None or high is None:
        return f"{name} {result.estimate:.2f}x (no interval)"
    return f"{name} {result.estimate:.2f}x ({low:.2f} to {high:.2f}, margin {result.margin:.2f})"


def _failures(result: FailureResult) -> str:
    if result.difference is None:
        return "failure rates unknown"
    low, high = result.interval.low, result.interval.high
    if low is None or high is None:
        return f"failures {result.difference:+.1%} (no interval)"
    return f"failures {result.difference:+.1%} ({low:+.1%} to {high:+.1%}, margin {result.margin:.1%})"
