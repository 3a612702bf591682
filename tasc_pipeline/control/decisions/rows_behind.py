"""What a decision rests on, and the figures that are shown beside its gates. Pure."""

from __future__ import annotations

import numpy as np

from tasc_collector.contracts.report import DecisionEvidence, DecisionFigure, EvidenceClass, Interval
from tasc_pipeline.control.decisions import figures
from tasc_pipeline.control.decisions.building import NS_PER_MS
from tasc_pipeline.control.decisions.means import UNIT, Resamples, mean_interval
from tasc_pipeline.control.decisions.tails import METHOD, p95_interval
from tasc_pipeline.control.decisions.units import Flags, Lack, Outcome, Side, Units
from tasc_pipeline.control.intervals import Bounds, Levels
from tasc_pipeline.control.window_summary import tidy

_LATENCIES: tuple[tuple[str, str, bool], ...] = (
    ("p95-ttft", "ttft_ns", False),
    ("p95-itl", "itl_ns", True),
    ("p95-tpot", "tpot_ns", True),
    ("p95-e2e", "e2e_ns", False),
)
"""Name, column, and whether a successful call may have none."""


def shown_figures(
    units: Units, sides: tuple[Side, Side], levels: Levels, resamples: Resamples, *, cascade: bool
) -> tuple[DecisionFigure, ...]:
    """95th percentiles, mean score, failure rate and cost of champion and policy, with this window's own intervals.

    Args:
        units: of the window.
        sides: champion and policy.
        levels: confidence.
        resamples: the window's draws.
        cascade: the policy's values are modeled, because nobody was served by it.
    """
    found: list[DecisionFigure] = []
    for side_name, side in zip(("champion", "policy"), sides, strict=True):
        modeled = cascade and side_name == "policy"
        measured: EvidenceClass = "modeled" if modeled else "measured"
        for name, column, one_may_lack in _LATENCIES:
            calls = figures.latencies(units, side, getattr(side, column), one_may_lack=one_may_lack)
            bounds = _ms(p95_interval(calls, levels, resamples).bounds)
            found.append(_figure(name, side_name, bounds, "ms", measured, METHOD, levels, int(calls.known.sum())))
        for name, sums, span, unit, known, kind in (
            ("mean-score", figures.mean_score(units, side), UNIT, "score", ~np.isnan(side.score), "reported"),
            ("failure-rate", figures.failure_rate(units, side), UNIT, "share", side.known, measured),
            (
                "cost-per-thousand",
                figures.cost_per_thousand(units, side),
                figures.cost_span(side),
                "usd",
                ~np.isnan(side.cost_usd),
                "modeled",
            ),
        ):
            mean = mean_interval(sums.known, sums.lowest, sums.highest, levels, resamples, span)
            evidence: EvidenceClass = "modeled" if modeled else kind  # type: ignore[assignment]  # words of the table above
            bounds = Bounds(mean.estimate, mean.low, mean.high)
            found.append(_figure(name, side_name, bounds, unit, evidence, mean.method, levels, int(known.sum())))
    return tuple(found)


def evidence_of(sides: tuple[Side, Side], units: Units) -> DecisionEvidence:
    """What the rows of champion and policy rest on; a row that succeeded without a score lacks its evidence."""
    outcome = np.concatenate([side.outcome for side in sides])
    scored = ~np.isnan(np.concatenate([side.score for side in sides]))
    bare = (outcome == Outcome.SUCCESS) & ~scored
    lack = np.concatenate([side.lack for side in sides])
    return DecisionEvidence(
        rows=2 * len(units),
        scored=_count((outcome == Outcome.SUCCESS) & scored),
        protocol_failures=_count(outcome == Outcome.FAILURE),
        abstained=_count(bare & (lack == Lack.ABSTAINED)),
        missing=_count(bare & (lack <= Lack.MISSING)),
        invalid=_count(bare & (lack == Lack.INVALID)),
        sent_unknown=_count(outcome == Outcome.UNKNOWN),
        not_sent=_count(outcome == Outcome.NOT_SENT),
        not_attempted=_count(outcome == Outcome.NOT_ATTEMPTED),
        unrouted=_count(outcome == Outcome.ABSENT),
    )


def _figure(
    name: str,
    side: str,
    bounds: Bounds,
    unit: str,
    evidence_class: EvidenceClass,
    method: str,
    levels: Levels,
    executions: int,
) -> DecisionFigure:
    known = bounds.estimate is not None
    interval = Interval(
        low=None if bounds.low is None else tidy(bounds.low),
        high=None if bounds.high is None else tidy(bounds.high),
        confidence=levels.confidence,
        method=method,
    )
    return DecisionFigure(
        id=name,
        side="champion" if side == "champion" else "policy",
        estimate=None if bounds.estimate is None else tidy(bounds.estimate),
        interval=interval if known else None,
        unit=unit,
        evidence_class=evidence_class if known else "unavailable",
        executions=executions,
    )


def _ms(bounds: Bounds) -> Bounds:
    values = (bounds.estimate, bounds.low, bounds.high)
    return Bounds(*(None if value is None else value / NS_PER_MS for value in values))


def _count(flags: Flags) -> int:
    return int(np.count_nonzero(flags))
