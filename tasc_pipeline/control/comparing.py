"""One candidate against the champion in one window: every figure, its interval, and the verdict. Pure.

Procedure:

1. Pairs per latency (``pairing``), and pairs of outcomes (``failures``).
2. A figure is *set aside*, shown and not deciding, where it cannot be read as a ratio of servers: no pairs; ITL where
   tokens per event differ or many gaps are zero (TPOT stands for it); a 95th percentile over too few groups.
3. This window's own figures with their fixed-size intervals, and the summary that later windows need of them.
4. A single window is ruled on these. A recurring study is ruled on the confidence sequences over all its windows up to
   this one (``sequences``): nothing else stays right when somebody looks every day.
5. Noise floor, fairness strip, verdict (``ruling``) and the sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasc_collector.contracts.comparison import ComparisonRule, Margins
from tasc_collector.contracts.report import (
    ComparisonResult,
    FailureResult,
    Interval,
    LatencyMetric,
    RatioResult,
    SequenceResult,
    Statistic,
    WindowSummary,
)
from tasc_pipeline.control import betting, fairness, sequences
from tasc_pipeline.control.drift import FIGURES, drift, mismatch_evidence
from tasc_pipeline.control.failures import FailurePairs, failure_bounds, failure_pairs, failure_rate
from tasc_pipeline.control.fairness import Conditions
from tasc_pipeline.control.intervals import (
    BOOTSTRAP_METHOD,
    P95_MINIMUM_GROUPS,
    SCORE_METHOD,
    Bounds,
    Levels,
    LogRatio,
    generator,
    median_log_ratio,
    p95_log_ratio,
)
from tasc_pipeline.control.noise import failure_noise_floor, noise_floor
from tasc_pipeline.control.observations import Observation
from tasc_pipeline.control.pairing import LATENCY_OF, Pairs, Unit, by_profile, latency_pairs
from tasc_pipeline.control.ruling import FailureGrounds, overall, within
from tasc_pipeline.control.sentences import Findings, sentence
from tasc_pipeline.control.summaries import counts_of
from tasc_pipeline.control.window_summary import tidy, window_summary

ZERO_SHARE = 0.05
"""Share of pairs with a zero gap above which ITL says more about how reads merged than about the server."""
_METHODS: dict[Statistic, str] = {"median": SCORE_METHOD, "p95": BOOTSTRAP_METHOD}


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a window.

    Args:
        rule: confidence, seed, minima, and whether the study is recurring.
        margins: what "no worse" means.
        window_key: the window; part of every seed.
        as_of: the window's close.
        champion: profile id.
        candidate: profile id.
    """

    rule: ComparisonRule
    margins: Margins
    window_key: str
    as_of: str
    champion: str
    candidate: str


@dataclass(frozen=True, slots=True)
class _Figure:
    """One ratio before its verdict: the pairs, this window's own interval, and why it is set aside if it is."""

    metric: LatencyMetric
    statistic: Statistic
    pairs: Pairs
    own: LogRatio
    set_aside: str | None


def compare(
    question: Question,
    observations: Sequence[Observation],
    earlier: Sequence[WindowSummary] = (),
    conditions: Mapping[str, Conditions] | None = None,
) -> ComparisonResult:
    """Compare one candidate with the champion; see the procedure of this module.

    Args:
        question: what is asked.
        observations: of the window, in any order; other profiles are left out.
        earlier: what the study's windows before this one left; counts only where the study is recurring.
        conditions: load and throttling by profile.
    """
    rule, reported = question.rule, conditions or {}
    first, second = by_profile(observations, question.champion), by_profile(observations, question.candidate)
    items = fairness.strip(
        list(first.values()),
        list(second.values()),
        reported.get(question.champion, fairness.NO_CONDITIONS),
        reported.get(question.candidate, fairness.NO_CONDITIONS),
    )
    pairs = {metric: latency_pairs(first, second, metric) for metric in LATENCY_OF}
    uneven = fairness.tokens_per_event_differ(items)
    asides = {figure: _set_aside(pairs[figure[0]], *figure, uneven=uneven) for figure in FIGURES}
    # the windows of a sequence must share one level, so there every figure counts, also one that is set aside today
    deciding = 1 + (len(FIGURES) if rule.recurring else sum(reason is None for reason in asides.values()))
    levels = Levels(rule.confidence, deciding)
    figures = [
        _Figure(metric, statistic, pairs[metric], _own(question, pairs[metric], metric, statistic, levels), reason)
        for (metric, statistic), reason in asides.items()
    ]
    failed = failure_pairs(first, second)
    own = {(item.metric, item.statistic): (item.own, item.pairs) for item in figures}
    summary = window_summary(question.window_key, question.as_of, own, failed)
    windows = sequences.up_to(summary, earlier) if rule.recurring else None
    ratios = tuple(_ratio(question, item, first, windows, levels) for item in figures)
    failures = _failures(question, (first, second), failed, windows, levels)
    counts = counts_of([*first.values(), *second.values()])
    coverage = (counts.success + counts.failure) / counts.planned if counts.planned else None
    silent = [
        profile
        for profile, found in ((question.champion, first), (question.candidate, second))
        if found and not any(item.outcome in ("success", "failure") for item in found.values())
    ]
    verdict, reasons = overall(rule, ratios, failures, _grounds(failed, windows), coverage, silent)
    findings = Findings(
        champion=question.champion,
        candidate=question.candidate,
        verdict=verdict,
        reasons=reasons,
        ratios=ratios,
        failures=failures,
        counts=counts,
        imbalances=fairness.warnings(items),
        windows=None if windows is None else len(windows),
    )
    return ComparisonResult(
        candidate_profile_id=question.candidate,
        verdict=verdict,
        sentence=sentence(findings),
        ratios=ratios,
        failures=failures,
        fairness=items,
        reasons=reasons,
        summary=summary,
        sequence=None if windows is None else _sequence(windows, levels),
    )


def _set_aside(pairs: Pairs, metric: LatencyMetric, statistic: Statistic, *, uneven: bool) -> str | None:
    if len(pairs) == 0:
        return "no pair has it on both sides"
    if metric == "itl" and uneven:
        return "tokens per event differ: TPOT stands for it"
    if metric == "itl" and pairs.zero_share > ZERO_SHARE:
        return f"{pairs.zero_share:.0%} of pairs have a gap of zero, several events in one read: TPOT stands for it"
    if statistic == "p95" and pairs.groups < P95_MINIMUM_GROUPS:
        return f"{pairs.groups} groups, a 95th percentile needs {P95_MINIMUM_GROUPS}"
    return None


def _own(question: Question, pairs: Pairs, metric: LatencyMetric, statistic: Statistic, levels: Levels) -> LogRatio:
    if statistic == "median":
        return median_log_ratio(pairs, levels)
    rng = generator(question.rule.seed, question.window_key, question.candidate, metric, statistic)
    return p95_log_ratio(pairs, levels, draws=question.rule.draws, rng=rng)


def _ratio(
    question: Question,
    figure: _Figure,
    champion: Mapping[Unit, Observation],
    windows: Sequence[WindowSummary] | None,
    levels: Levels,
) -> RatioResult:
    metric, statistic = figure.metric, figure.statistic
    found, method = figure.own, _METHODS[statistic]
    if windows is not None:
        found = sequences.log_ratio_sequence(sequences.figures_of(windows, metric, statistic), levels)
        method = sequences.METHOD
    bounds = _tidied(found.ratio())
    margin: float = getattr(question.margins, f"{metric}_ratio")
    rng = generator(question.rule.seed, question.window_key, question.candidate, "noise", metric, statistic)
    floor = noise_floor(champion, metric, statistic, rng)
    return RatioResult(
        metric=metric,
        statistic=statistic,
        estimate=bounds.estimate,
        interval=Interval(low=bounds.low, high=bounds.high, confidence=levels.confidence, method=method),
        margin=margin,
        verdict=within(bounds, margin),
        deciding=figure.set_aside is None,
        pairs=len(figure.pairs),
        groups=figure.pairs.groups,
        noise_floor=None if floor is None else tidy(floor),
        joint_low=bounds.joint_low,
        set_aside=figure.set_aside,
    )


def _failures(
    question: Question,
    sides: tuple[Mapping[Unit, Observation], Mapping[Unit, Observation]],
    failed: FailurePairs,
    windows: Sequence[WindowSummary] | None,
    levels: Levels,
) -> FailureResult:
    margin = question.margins.failure_rate_difference
    if windows is None:
        found, method = failure_bounds(failed, levels)
    else:
        found, method = sequences.failure_sequence(windows, levels), betting.METHOD
    bounds = _tidied(found)
    worst, best = betting.mean(failed.worst), betting.mean(failed.best)
    champion_rate, candidate_rate = map(failure_rate, sides)
    rng = generator(question.rule.seed, question.window_key, question.candidate, "noise", "failures")
    floor = failure_noise_floor(sides[0], rng)
    return FailureResult(
        champion_rate=champion_rate,
        candidate_rate=candidate_rate,
        difference=bounds.estimate,
        interval=Interval(low=bounds.low, high=bounds.high, confidence=levels.confidence, method=method),
        worst_case=None if worst is None else tidy(worst),
        best_case=None if best is None else tidy(best),
        margin=margin,
        verdict=within(bounds, margin),
        pairs=failed.known_pairs,
        groups=failed.groups,
        joint_low=bounds.joint_low,
        noise_floor=None if floor is None else tidy(floor),
    )


def _grounds(failed: FailurePairs, windows: Sequence[WindowSummary] | None) -> FailureGrounds:
    if windows is None:
        return FailureGrounds(failed.groups, betting.mean(failed.best), betting.mean(failed.worst))
    best, worst = sequences.failure_differences(windows)
    return FailureGrounds(sum(worst.values()), betting.mean(best), betting.mean(worst), len(windows))


def _sequence(windows: Sequence[WindowSummary], levels: Levels) -> SequenceResult:
    alpha = 1 - levels.confidence
    missing = (sum(item.champion_missing for item in windows), sum(item.candidate_missing for item in windows))
    return SequenceResult(
        windows=len(windows),
        earlier_windows=tuple(window.window_key for window in windows[:-1]),
        alpha=tidy(alpha),
        spent=tidy(sequences.spent(len(windows), tidy(alpha))),
        tuned_to_windows=sequences.TUNED_TO_WINDOWS,
        drift=drift(windows),
        mismatch_evidence=tidy(mismatch_evidence(*missing)),
    )


def _tidied(bounds: Bounds) -> Bounds:
    values = (bounds.estimate, bounds.low, bounds.high, bounds.joint_low)
    return Bounds(*(None if value is None else tidy(value) for value in values))
