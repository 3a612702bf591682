"""The one-page report of a window: what was decided, on which figures, and what is missing.

Pure: the assessment's record gives every figure, ``report_data`` gives what charts draw. The same input gives the same
bytes. Order: the result in a sentence, its gates, distributions, failures, fairness, the time strip, what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass

from tasc_collector.contracts.report import AssessmentReport, ComparisonResult, DecisionResult, Interval, ProfileSummary
from tasc_pipeline.control.sentences import asides
from tasc_pipeline.warehouse import charts
from tasc_pipeline.warehouse.blocks import (
    Block,
    Bullets,
    Chart,
    Charts,
    Grid,
    Heading,
    Paragraph,
    Statement,
    to_html,
    to_markdown,
)
from tasc_pipeline.warehouse.report_data import ReportData

UNKNOWN = "not available"


@dataclass(frozen=True, slots=True)
class RenderedReport:
    """The same report twice."""

    html: str
    markdown: str


def render_report(report: AssessmentReport, data: ReportData) -> RenderedReport:
    """Write a report down.

    Args:
        report: the assessment.
        data: the numbers of the window's charts.
    """
    title = f"{report.study_id}: window {report.window_key}"
    subtitle = f"Assessed as of {report.as_of}. {_coverage(report)}"
    blocks = [*_results(report), *_profiles(report), *_distributions(report, data), *_failures(report)]
    blocks += [*_fairness(report), *_strip(data), *_missing(report), *_sources(report)]
    return RenderedReport(to_html(title, subtitle, blocks), to_markdown(title, subtitle, blocks))


def _results(report: AssessmentReport) -> list[Block]:
    blocks: list[Block] = []
    for result in report.comparisons:
        blocks += [Statement(result.verdict, result.sentence), *_ratios(result)]
    if report.decision is not None:
        blocks += [Statement(report.decision.status, report.decision.sentence), _gates(report.decision)]
    return blocks


def _ratios(result: ComparisonResult) -> list[Block]:
    rows = [
        (
            f"{item.metric.upper()} {item.statistic} ratio" + ("" if item.deciding else " (shown only)"),
            number(item.estimate),
            interval_text(item.interval),
            f"≤ {number(item.margin)}",
            item.verdict,
            f"{item.pairs} / {item.groups}",
            number(item.noise_floor),
        )
        for item in result.ratios
    ]
    failures = result.failures
    rows.append(
        (
            "failure rate difference",
            number(failures.difference),
            interval_text(failures.interval),
            f"≤ {number(failures.margin)}",
            failures.verdict,
            f"{failures.pairs} / {failures.groups}",
            UNKNOWN,
        )
    )
    return [
        Heading(f"{result.candidate_profile_id} against the champion"),
        Grid(("figure", "estimate", "interval", "margin", "verdict", "pairs / groups", "noise floor"), tuple(rows)),
        *([Bullets(lines)] if (lines := asides(result)) else []),
    ]


def _gates(decision: DecisionResult) -> Grid:
    return Grid(
        ("gate", "actual", "interval", "bound", "evidence", "result"),
        tuple(
            (
                gate.id,
                number(gate.actual),
                interval_text(gate.interval),
                f"{'≥' if gate.operator == '>=' else '≤'} {number(gate.threshold)}",
                gate.evidence_class,
                ("passed" if gate.passed else "failed") + (f" ({gate.reason})" if gate.reason else ""),
            )
            for gate in decision.gates
        ),
    )


def _profiles(report: AssessmentReport) -> list[Block]:
    def latency(profile: ProfileSummary, metric: str) -> str:
        held = next((item for item in profile.latencies if item.metric == metric), None)
        return UNKNOWN if held is None or held.p50_ms is None else f"{number(held.p50_ms)} / {number(held.p95_ms)}"

    return [
        Heading("Latency of each profile, median / 95th percentile in milliseconds"),
        Grid(
            ("profile", "successful", "planned", "TTFT", "ITL", "TPOT", "E2E"),
            tuple(
                (
                    f"{profile.profile_id} ({profile.role})",
                    str(profile.counts.success),
                    str(profile.counts.planned),
                    *(latency(profile, metric) for metric in ("ttft", "itl", "tpot", "e2e")),
                )
                for profile in report.profiles
            ),
        ),
    ]


def _distributions(report: AssessmentReport, data: ReportData) -> list[Block]:
    items: list[Chart] = []
    if data.ttft:
        items.append(
            Chart(
                charts.distribution(data.ttft, "TTFT (ms)"),
                "Time to first token: share of calls within a time, up to the 99th percentile.",
            )
        )
    if data.itl:
        items.append(
            Chart(charts.distribution(data.itl, "ITL (ms)"), "Gaps between token events of all calls together.")
        )
    for result in report.comparisons:
        name = result.candidate_profile_id
        if any(item.estimate is not None for item in result.ratios):
            items.append(
                Chart(charts.intervals(result), f"Ratios of {name} with intervals and margins; left of 1 it is faster.")
            )
        curves = [(metric, curve) for (candidate, metric), curve in data.ratios.items() if candidate == name]
        if curves:
            items.append(Chart(charts.paired(curves), f"{name} over champion on the same case and replicate."))
    return [Heading("Distributions"), Charts(tuple(items))] if items else []


def _failures(report: AssessmentReport) -> list[Block]:
    reasons = [
        (profile.profile_id, item.reason, str(item.count))
        for profile in report.profiles
        for item in profile.counts.reasons
    ]
    counts = Grid(
        ("profile", *(name.replace("_", " ") for name in STATES), "planned"),
        tuple(
            (
                profile.profile_id,
                *(str(charts.count_of(profile.counts, name)) for name in STATES),
                str(profile.counts.planned),
            )
            for profile in report.profiles
        ),
    )
    blocks: list[Block] = [Heading("Failures and unknowns"), counts]
    if reasons:
        blocks.append(Grid(("profile", "reason", "executions"), tuple(reasons)))
    blocks.append(Charts((Chart(charts.outcomes(report.profiles), "What became of every planned execution."),)))
    return blocks


STATES = ("success", "failure", "sent_unknown", "not_sent", "not_attempted")


def _fairness(report: AssessmentReport) -> list[Block]:
    blocks: list[Block] = []
    for result in report.comparisons:
        if result.fairness:
            blocks += [
                Heading(f"Fairness: did {result.candidate_profile_id} and the champion do the same work?"),
                Grid(
                    ("quantity", "champion", "candidate", "unit", "balance"),
                    tuple(
                        (
                            item.item,
                            number(item.champion),
                            number(item.candidate),
                            item.unit,
                            "⚠ imbalanced" if item.imbalanced else "balanced",
                        )
                        for item in result.fairness
                    ),
                ),
            ]
    return blocks


def _strip(data: ReportData) -> list[Block]:
    if not data.latency and not data.strip:
        return []
    caption = "Latency, servers and devices on one time axis."
    chart = Chart(charts.strip(data, width_px=charts.NARROW_PX), caption, charts.strip(data, width_px=charts.WIDE_PX))
    return [Heading("Over time"), Charts((chart,))]


def _missing(report: AssessmentReport) -> list[Block]:
    items = (*report.missing, *report.warnings)
    shown = Bullets(items) if items else Paragraph("Nothing: every figure that this study asks for is above.")
    return [Heading("What is missing or needs care"), shown]


def _sources(report: AssessmentReport) -> list[Block]:
    return [
        Heading("Sources"),
        Bullets(
            (
                f"declaration {report.declaration_digest}",
                f"plan {report.plan_digest}",
                f"trace set {report.trace_set_digest}",
                f"engine {report.engine}",
                f"the same figures in SQL: tasc sql @latency --window {report.window_key}",
            )
        ),
    ]


def _coverage(report: AssessmentReport) -> str:
    accepted = report.counts.success + report.counts.failure + report.counts.sent_unknown
    share = UNKNOWN if report.coverage is None else f"{100 * report.coverage:.1f} %"
    return f"{accepted} of {report.counts.planned} planned executions have an envelope; coverage {share}."


def number(value: float | None) -> str:
    """Four significant digits, or that there is none."""
    return UNKNOWN if value is None else f"{value:.4g}"


def interval_text(interval: Interval | None) -> str:
    """``low to high (95 %)``, or that there is none."""
    if interval is None or interval.low is None or interval.high is None:
        return UNKNOWN
    return f"{number(interval.low)} to {number(interval.high)} ({100 * interval.confidence:g} %)"
