"""The report and the catalogue as metadata: pictures drawn for a narrow column, numbers that plot over windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from tasc_collector.contracts.report import AssessmentReport
from tasc_pipeline.home.layout import Home
from tasc_pipeline.steps import assess
from tasc_pipeline.steps.catalogue import WindowLine

CATALOGUE_ROWS = 100
"""Windows in the table of the catalogue's metadata; `tasc status` and SQL show all."""


def assessment_metadata(
    home: Home, report: AssessmentReport
) -> Mapping[str, Any]:  # Any: whatever Dagster takes as a metadata value
    """Verdict and sentence, the report, and the figures as numbers."""
    figures: dict[str, float] = {}
    several = len(report.comparisons) > 1

    def of(profile_id: str) -> str:
        """What tells the candidates' figures apart, where there are several."""
        return f"_{profile_id}".replace("-", "_") if several else ""

    for result in report.comparisons:
        mark = of(result.candidate_profile_id)
        for ratio in result.ratios:
            if ratio.estimate is not None:
                figures[f"{ratio.metric}_{ratio.statistic}_ratio{mark}"] = ratio.estimate
            if ratio.noise_floor is not None:
                figures[f"{ratio.metric}_{ratio.statistic}_noise_floor{mark}"] = ratio.noise_floor
        if result.failures.difference is not None:
            figures[f"failure_rate_difference{mark}"] = result.failures.difference
        if result.failures.noise_floor is not None:
            figures[f"failure_rate_noise_floor{mark}"] = result.failures.noise_floor
    for profile in report.profiles:
        mark = of(profile.profile_id) if profile.role == "candidate" else ""
        for latency in profile.latencies:
            if latency.p50_ms is not None:
                figures[f"{profile.role}_{latency.metric}_p50_ms{mark}"] = latency.p50_ms
    if report.coverage is not None:
        figures["coverage"] = report.coverage
    verdicts, sentences = outcomes(report)
    if report.decision is not None:
        for gate in report.decision.gates:
            if gate.actual is not None:
                figures[f"gate_{gate.id}{f'_{gate.slice}' if gate.slice else ''}".replace("-", "_")] = gate.actual
    return {
        "verdict": ", ".join(verdicts),
        "sentence": dg.MetadataValue.md("  \n".join(sentences)),
        "report": dg.MetadataValue.md(assess.written_markdown(home, report.window_key)),
        "report_file": dg.MetadataValue.path(str(assess.report_path(home, report.window_key))),
        "planned": report.counts.planned,
        "success": report.counts.success,
        "failure": report.counts.failure,
        "sent_unknown": report.counts.sent_unknown,
        **figures,
    }


def outcomes(report: AssessmentReport) -> tuple[list[str], list[str]]:
    """Verdicts or status, and the sentences that a person reads."""
    results: list[tuple[str, str]] = [(result.verdict, result.sentence) for result in report.comparisons]
    if report.decision is not None:
        results.append((report.decision.status, report.decision.sentence))
    return [verdict for verdict, _ in results], [sentence for _, sentence in results]


def catalogue_metadata(
    windows: Sequence[WindowLine],
) -> Mapping[str, Any]:  # Any: whatever Dagster takes as a metadata value
    """Counts over all windows as numbers, and the newest current ones as a table: an event is no place for 20,000 rows."""
    current = sorted((line for line in windows if line.current), key=lambda line: line.ends_at, reverse=True)
    stages = Counter(line.stage for line in current)
    found: dict[str, Any] = {  # Any: as above
        "windows": len(current),
        "revisions_replaced": len(windows) - len(current),
        "dagster/row_count": len(windows),
        **{f"windows_{stage}": count for stage, count in sorted(stages.items())},
    }
    if current:
        rows = [
            dg.TableRecord(
                {"window": line.window_key, "study": line.study_id, "stage": line.stage, "verdict": line.verdict or ""}
            )
            for line in current[:CATALOGUE_ROWS]
        ]
        schema = dg.TableSchema(columns=[dg.TableColumn(name) for name in ("window", "study", "stage", "verdict")])
        found["table"] = dg.MetadataValue.table(rows, schema=schema)
    return found
