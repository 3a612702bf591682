"""The report and the catalogue as metadata: pictures drawn for a narrow column, numbers that plot over windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from tasc_collector.contracts.report import AssessmentReport
from tasc_pipeline.home.layout import Home
from tasc_pipeline.steps import assess
from tasc_pipeline.steps.catalogue import WindowLine


def assessment_metadata(
    home: Home, report: AssessmentReport
) -> Mapping[str, Any]:  # Any: whatever Dagster takes as a metadata value
    """Verdict and sentence, the report, and the figures as numbers."""
    figures: dict[str, float] = {}
    for result in report.comparisons:
        for ratio in result.ratios:
            if ratio.estimate is not None:
                figures[f"{ratio.metric}_{ratio.statistic}_ratio"] = ratio.estimate
        if result.failures.difference is not None:
            figures["failure_rate_difference"] = result.failures.difference
    for profile in report.profiles:
        for latency in profile.latencies:
            if latency.p50_ms is not None:
                figures[f"{profile.role}_{latency.metric}_p50_ms"] = latency.p50_ms
    return {
        "verdict": ", ".join(result.verdict for result in report.comparisons),
        "sentence": dg.MetadataValue.md("  \n".join(result.sentence for result in report.comparisons)),
        "report": dg.MetadataValue.md(assess.render(home, report).markdown),
        "report_file": dg.MetadataValue.path(str(assess.report_path(home, report.window_key))),
        "planned": report.counts.planned,
        "success": report.counts.success,
        "failure": report.counts.failure,
        "sent_unknown": report.counts.sent_unknown,
        "coverage": report.coverage if report.coverage is not None else 0.0,
        **figures,
    }


def catalogue_metadata(
    windows: Sequence[WindowLine],
) -> Mapping[str, Any]:  # Any: whatever Dagster takes as a metadata value
    """All windows as a table."""
    rows = [
        dg.TableRecord(
            {"window": line.window_key, "study": line.study_id, "stage": line.stage, "verdict": line.verdict or ""}
        )
        for line in windows
    ]
    schema = dg.TableSchema(columns=[dg.TableColumn(name) for name in ("window", "study", "stage", "verdict")])
    return {"windows": len(rows), "table": dg.MetadataValue.table(rows, schema=schema)} if rows else {"windows": 0}
