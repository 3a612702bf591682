"""What each profile did in a window: counts by state, latencies, tokens, cost, and what is not known. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np

from tasc_collector.contracts.reasons import ReasonCount
from tasc_collector.contracts.report import ExecutionCounts, LatencySummary, ProfileSummary
from tasc_pipeline.control.observations import Observation
from tasc_pipeline.control.pairing import LATENCY_OF

_WANTED: tuple[tuple[str, Callable[[Observation], object]], ...] = (
    ("token times", lambda item: item.ttft_ms),
    ("output token counts", lambda item: item.output_tokens),
    ("cached input tokens", lambda item: item.cached_input_tokens),
    ("costs", lambda item: item.cost_usd),
)
"""What a reader would look for, with the words for its absence."""


def counts_of(rows: Sequence[Observation]) -> ExecutionCounts:
    """Executions by state; they add up to ``planned``."""
    outcomes = Counter(item.outcome for item in rows)
    reasons = Counter(item.reason for item in rows if item.reason and item.outcome != "success")
    return ExecutionCounts(
        planned=len(rows),
        success=outcomes["success"],
        failure=outcomes["failure"],
        sent_unknown=outcomes["sent_unknown"],
        not_sent=outcomes["not_sent"],
        not_attempted=outcomes["not_attempted"],
        reasons=tuple(ReasonCount(reason=reason, count=count) for reason, count in sorted(reasons.items())),
    )


def profile_summary(
    rows: Sequence[Observation], profile_id: str, role: Literal["champion", "candidate"]
) -> ProfileSummary:
    """One profile's counts, latencies over its successful executions, tokens and cost."""
    own = [item for item in rows if item.profile_id == profile_id]
    good = [item for item in own if item.outcome == "success"]
    per_event = [item.tokens_per_event for item in good if item.tokens_per_event is not None]
    costs = [item.cost_usd for item in own if item.cost_usd is not None]
    return ProfileSummary(
        profile_id=profile_id,
        role=role,
        counts=counts_of(own),
        latencies=tuple(_latency(good, metric, value) for metric, value in LATENCY_OF.items()),
        input_tokens=_sum(item.input_tokens for item in good),
        output_tokens=_sum(item.output_tokens for item in good),
        cached_input_tokens=_sum(item.cached_input_tokens for item in good),
        tokens_per_event=float(np.mean(per_event)) if per_event else None,
        cost_usd=float(sum(costs)) if costs else None,
        timing_flagged=sum(item.timing_flagged is True for item in good),
    )


def timing_warnings(rows: Sequence[Observation]) -> list[str]:
    """Answers whose first token is known less exactly than the collector promises."""
    flagged = sum(item.timing_flagged is True for item in rows)
    answers = "1 answer" if flagged == 1 else f"{flagged} answers"
    return [f"{answers} whose first token is known less exactly than 3 ms"] if flagged else []


def missing_words(rows: Sequence[Observation]) -> tuple[str, ...]:
    """What is unknown for some successful executions, in words."""
    good = [item for item in rows if item.outcome == "success"]
    lacking = [(words, sum(value(item) is None for item in good)) for words, value in _WANTED]
    return tuple(
        f"{words}: unknown for {count} of {len(good)} successful executions" for words, count in lacking if count
    )


def _latency(
    good: Sequence[Observation],
    metric: Literal["ttft", "itl", "tpot", "e2e"],
    value: Callable[[Observation], float | None],
) -> LatencySummary:
    values = np.array([found for item in good if (found := value(item)) is not None], dtype=np.float64)
    if len(values) == 0:
        return LatencySummary(metric=metric, count=0, p50_ms=None, p95_ms=None, mean_ms=None)
    return LatencySummary(
        metric=metric,
        count=len(values),
        p50_ms=float(np.quantile(values, 0.5)),
        p95_ms=float(np.quantile(values, 0.95)),
        mean_ms=float(values.mean()),
    )


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
