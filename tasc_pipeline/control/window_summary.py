"""What a window leaves for later ones: a few figures with their errors, and counted failure differences. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tasc_collector.contracts.report import DifferenceCount, LatencyMetric, Statistic, WindowFigure, WindowSummary
from tasc_pipeline.control.betting import Differences
from tasc_pipeline.control.failures import FailurePairs
from tasc_pipeline.control.intervals import LogRatio
from tasc_pipeline.control.pairing import Pairs


def tidy(value: float) -> float:
    """Nine significant digits: what a report can mean, and the same bytes where two machines differ in the last bit."""
    return float(f"{value:.9g}")


def window_summary(
    window_key: str,
    as_of: str,
    figures: Mapping[tuple[LatencyMetric, Statistic], tuple[LogRatio, Pairs]],
    failed: FailurePairs,
) -> WindowSummary:
    """Summarize a window; a figure without an interval is left out."""
    return WindowSummary(
        window_key=window_key,
        as_of=as_of,
        figures=tuple(
            WindowFigure(
                metric=metric,
                statistic=statistic,
                log_ratio=tidy(found.bounds.estimate),
                standard_error=tidy(found.standard_error),
                pairs=len(pairs),
                groups=pairs.groups,
            )
            for (metric, statistic), (found, pairs) in figures.items()
            if found.bounds.estimate is not None and found.standard_error is not None
        ),
        differences_best=_counts(failed.best),
        differences_worst=_counts(failed.worst),
        planned_pairs=failed.planned_pairs,
        champion_missing=failed.champion_missing,
        candidate_missing=failed.candidate_missing,
    )


def _counts(differences: Differences) -> tuple[DifferenceCount, ...]:
    return tuple(DifferenceCount(value=value, count=count) for value, count in differences.items())
