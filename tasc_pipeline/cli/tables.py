"""An assessment as tables that a person reads in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from tasc_collector.contracts.report import AssessmentReport, DecisionResult, Interval
from tasc_pipeline.control.fairness import LOOPBACK_PATH
from tasc_pipeline.control.sentences import asides, floor_text
from tasc_pipeline.warehouse.decision_blocks import gate_grid

_NAMES = {"ttft": "TTFT", "itl": "ITL", "tpot": "TPOT", "e2e": "E2E"}


def print_assessment(console: Console, report: AssessmentReport) -> None:
    """Executions by state, latencies per profile, paired ratios with intervals, fairness, and the verdict in one sentence."""
    console.print(_states(report))
    console.print(_latencies(report))
    for result in report.comparisons:
        table = Table(
            "candidate / champion",
            "ratio",
            "interval",
            "margin",
            "verdict",
            "pairs",
            "noise floor",
            title=f"{result.candidate_profile_id}, paired",
        )
        for ratio in result.ratios:
            name = f"{_NAMES[ratio.metric]} {ratio.statistic}" + ("" if ratio.deciding else " (shown only)")
            table.add_row(
                name,
                _number(ratio.estimate, "{:.3f}"),
                _bounds(ratio.interval, "{:.3f}"),
                f"{ratio.margin:.2f}",
                ratio.verdict,
                str(ratio.pairs),
                floor_text(ratio.noise_floor),
            )
        failures = result.failures
        table.add_row(
            "failure rate difference",
            _number(failures.difference, "{:+.3f}"),
            _bounds(failures.interval, "{:+.3f}"),
            f"{failures.margin:.2f}",
            failures.verdict,
            str(failures.pairs),
            floor_text(failures.noise_floor),
        )
        console.print(table)
        strip = Table("fairness", "champion", "candidate", "unit", "")
        for item in result.fairness:
            strip.add_row(
                item.item,
                _number(item.champion, "{:.3f}"),
                _number(item.candidate, "{:.3f}"),
                item.unit,
                ("path differs" if item.item == LOOPBACK_PATH else "differs") if item.imbalanced else "",
            )
        console.print(strip)
    if report.decision is not None:
        print_gates(console, report.decision)
    for result in report.comparisons:
        for line in asides(result):
            console.print(f"note: {line}", markup=False)
    for line in (*report.warnings, *report.missing):
        console.print(f"note: {line}", markup=False)
    sentences = [result.sentence for result in report.comparisons]
    if report.decision is not None:
        sentences.append(f"{report.decision.status}: {report.decision.sentence}")
    for sentence in sentences:
        console.print()
        console.print(sentence, markup=False, style="bold")


def print_gates(console: Console, decision: DecisionResult) -> None:
    """Every gate with its figure, interval, the bounds of what is not known, and what became of it."""
    if not decision.gates:
        return
    shown = gate_grid(decision.gates)
    table = Table(*shown.names, title="gates")
    for row in shown.rows:
        table.add_row(*row)
    console.print(table)


def _states(report: AssessmentReport) -> Table:
    table = Table(
        "profile",
        "role",
        "planned",
        "success",
        "failure",
        "unknown",
        "not sent",
        "not attempted",
        title="executions by state",
    )
    for profile in report.profiles:
        counts = profile.counts
        table.add_row(
            profile.profile_id,
            profile.role,
            *(
                str(count)
                for count in (
                    counts.planned,
                    counts.success,
                    counts.failure,
                    counts.sent_unknown,
                    counts.not_sent,
                    counts.not_attempted,
                )
            ),
        )
    return table


def _latencies(report: AssessmentReport) -> Table:
    table = Table(
        "profile",
        *(f"{_NAMES[metric]} {share} ms" for metric in ("ttft", "itl", "tpot") for share in ("p50", "p95")),
        title="latency per profile",
    )
    for profile in report.profiles:
        by_metric = {latency.metric: latency for latency in profile.latencies}
        cells = []
        for metric in ("ttft", "itl", "tpot"):
            cells += [_number(by_metric[metric].p50_ms, "{:.2f}"), _number(by_metric[metric].p95_ms, "{:.2f}")]
        table.add_row(profile.profile_id, *cells)
    return table


def _number(value: float | None, form: str) -> str:
    return "unknown" if value is None else form.format(value)


def _bounds(interval: Interval, form: str) -> str:
    if interval.low is None or interval.high is None:
        return "none"
    return f"{form.format(interval.low)} to {form.format(interval.high)}"
