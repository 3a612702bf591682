"""The one-page report of a window: what was decided, on which figures, and what is missing.

Pure: the assessment's record gives every figure, ``report_data`` gives what charts draw. The same input gives the same
bytes. Order: the result in a sentence, its gates, distributions, failures, fairness, the time strip, what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tasc_collector.contracts.report import (
    AssessmentReport,
    ComparisonResult,
    FairnessItem,
    Interval,
    ProfileSummary,
)
from tasc_pipeline.control.fairness import LOOPBACK_PATH
from tasc_pipeline.control.sentences import asides, floor_text
from tasc_pipeline.warehouse import charts
from tasc_pipeline.warehouse.blocks import (
    Block,
    Bullets,
    Chart,
    Charts,
    Columns,
    Grid,
    Heading,
    Paragraph,
    Statement,
    Tile,
    Tiles,
    marked,
    to_html,
    to_markdown,
)
from tasc_pipeline.warehouse.decision_blocks import decision_blocks
from tasc_pipeline.warehouse.report_data import Curve, ReportData

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
    blocks += [
        *_fairness(report),
        *_strip(data),
        *_servers(data),
        *_harness(data),
        *_missing(report),
        *_sources(report),
    ]
    return RenderedReport(to_html(title, subtitle, blocks), to_markdown(title, subtitle, blocks))


def _results(report: AssessmentReport) -> list[Block]:
    blocks: list[Block] = []
    for result in report.comparisons:
        blocks += [Statement(result.verdict, result.sentence), _tiles(report, result), *_ratios(result)]
    if report.decision is not None:
        blocks += decision_blocks(report.decision)
    return blocks


def _tiles(report: AssessmentReport, result: ComparisonResult) -> Tiles:
    """The deciding medians and the failures: what a reader takes away."""
    sides = [item for item in report.profiles if item.role == "champion"]
    sides += [item for item in report.profiles if item.profile_id == result.candidate_profile_id]
    tiles = [
        Tile(
            f"{ratio.metric.upper()}, median",
            f"{' → '.join(_median(side, ratio.metric) for side in sides)} ms",
            f"ratio {brief(ratio.estimate)} ({_brief_interval(ratio.interval)}), margin {brief(ratio.margin)}, "
            f"noise floor {floor_text(ratio.noise_floor)}",
            ratio.verdict,
        )
        for ratio in result.ratios
        if ratio.statistic == "median" and ratio.deciding
    ]
    failures = result.failures
    tiles.append(
        Tile(
            "Failure rate",
            f"{percent(failures.champion_rate)} → {percent(failures.candidate_rate)}",
            f"{percent(failures.difference)} more ({_percent_interval(failures.interval)}), "
            f"margin {percent(failures.margin)}, noise floor {floor_text(failures.noise_floor)}",
            failures.verdict,
        )
    )
    return Tiles(tuple(tiles))


def _median(profile: ProfileSummary, metric: str) -> str:
    held = next((item for item in profile.latencies if item.metric == metric), None)
    return "?" if held is None or held.p50_ms is None else brief(held.p50_ms)


def _ratios(result: ComparisonResult) -> list[Block]:
    rows = [
        (
            f"{item.metric.upper()} {item.statistic} ratio" + ("" if item.deciding else " (shown only)"),
            number(item.estimate),
            interval_text(item.interval),
            f"≤ {number(item.margin)}",
            marked(item.verdict),
            f"{item.pairs} / {item.groups}",
            floor_text(item.noise_floor),
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
            marked(failures.verdict),
            f"{failures.pairs} / {failures.groups}",
            floor_text(failures.noise_floor),
        )
    )
    return [
        Heading(f"{result.candidate_profile_id} against the champion"),
        Grid(("figure", "estimate", "interval", "margin", "verdict", "pairs / groups", "noise floor"), tuple(rows)),
        *([Bullets(lines)] if (lines := asides(result)) else []),
    ]


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
        Paragraph(
            "Each call counts once: its ITL is the median of its gaps (itl_p50_ms in the view traces). Over all gaps of all "
            "calls together, where long answers count more: tasc sql @itl-pooled."
        ),
    ]


def _distributions(report: AssessmentReport, data: ReportData) -> list[Block]:
    items: list[Chart] = []
    if data.ttft:
        items.append(
            _chart(
                "Time to first token: share of calls within a time, up to the 99th percentile.",
                lambda width: charts.distribution(data.ttft, "TTFT (ms)", width_px=width),
            )
        )
    if data.itl:
        items.append(
            _chart(
                "Gaps between token events of all calls together.",
                lambda width: charts.distribution(data.itl, "ITL (ms)", width_px=width),
            )
        )
    for result in report.comparisons:
        name = result.candidate_profile_id
        if any(item.estimate is not None for item in result.ratios):
            items.append(
                _chart(
                    f"Ratios of {name}: interval, margin, noise floor around 1; left of 1 it is faster.",
                    partial(_intervals_of, result),
                )
            )
        curves = [(metric, curve) for (candidate, metric), curve in data.ratios.items() if candidate == name]
        if curves:
            items.append(_chart(f"{name} over champion on the same case and replicate.", partial(_pairs_of, curves)))
    return [Heading("Distributions"), Charts(tuple(items))] if items else []


def _intervals_of(result: ComparisonResult, width_px: int) -> str:
    return charts.intervals(result, width_px=width_px)


def _pairs_of(curves: Sequence[tuple[str, Curve]], width_px: int) -> str:
    return charts.paired(curves, width_px=width_px)


def _chart(caption: str, draw: Callable[[int], str]) -> Chart:
    """The same picture for Dagster's narrow column and for half the page."""
    return Chart(draw(charts.NARROW_PX), caption, draw(charts.HALF_PX))


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
    why = [Grid(("profile", "reason", "executions"), tuple(reasons))] if reasons else []
    chart = _chart(
        "What became of every planned execution.", lambda width: charts.outcomes(report.profiles, width_px=width)
    )
    return [Heading("Failures and unknowns"), Columns((counts, *why), (Charts((chart,)),))]


STATES = ("success", "failure", "sent_unknown", "not_sent", "not_attempted")


def _fairness(report: AssessmentReport) -> list[Block]:
    blocks: list[Block] = []
    for result in report.comparisons:
        blocks += _fairness_strip(
            f"Fairness: did {result.candidate_profile_id} and the champion do the same work?", result.fairness
        )
    if report.decision is not None:
        blocks += _fairness_strip("Fairness: did policy and champion do the same work?", report.decision.fairness)
    return blocks


def _fairness_strip(title: str, items: Sequence[FairnessItem]) -> list[Block]:
    if not items:
        return []
    unknown = [item.item for item in items if item.champion is None and item.candidate is None]
    return [
        Heading(title),
        Grid(
            ("quantity", "champion", "candidate", "unit", "balance"),
            tuple(
                (item.item, number(item.champion), number(item.candidate), item.unit, _balance(item))
                for item in items
                if item.item not in unknown
            ),
        ),
        *([Paragraph(f"Known of neither side: {', '.join(unknown)}.")] if unknown else []),
    ]


def _balance(item: FairnessItem) -> str:
    if item.champion is None or item.candidate is None:
        return "◆ known of one side only"
    if not item.imbalanced:
        return "balanced"
    return "⚠ path differs" if item.item == LOOPBACK_PATH else "⚠ imbalanced"


def _strip(data: ReportData) -> list[Block]:
    if not data.latency and not data.strip:
        return []
    caption = "Latency, servers and devices on one time axis; dotted: the first call and the last answer."
    chart = Chart(charts.strip(data, width_px=charts.NARROW_PX), caption, charts.strip(data, width_px=charts.WIDE_PX))
    return [Heading("Over time"), Charts((chart,))]


_SERVER_LATENCIES = {"ttft-seconds": "TTFT", "itl-seconds": "ITL", "tpot-seconds": "TPOT", "e2e-seconds": "E2E"}


def _servers(data: ReportData) -> list[Block]:
    if not data.servers:
        return []
    rows = (
        (
            f"{item.endpoint_alias}, {_SERVER_LATENCIES[item.metric]}",
            str(item.count),
            number(item.p50_ms),
            number(item.p95_ms),
        )
        for item in data.servers
        if item.lowest_ms is None
    )
    coarse = [
        f"{item.endpoint_alias}, {_SERVER_LATENCIES[item.metric]}: all {item.count} observations lie in the lowest bucket "
        f"of its histogram, below {number(item.lowest_ms)} ms; nothing more is known of them"
        for item in data.servers
        if item.lowest_ms is not None
    ]
    table = Grid(("server and latency", "observations", "median", "95th percentile"), tuple(rows))
    return [
        Heading("What the servers say of themselves, in milliseconds"),
        *([table] if table.rows else []),
        *([Bullets(tuple(coarse))] if coarse else []),
        Paragraph(
            "From the servers' own histograms between the first and the last scrape, so as coarse as their buckets and "
            "of every client that they had."
        ),
    ]


def _harness(data: ReportData) -> list[Block]:
    if not data.harness:
        return []
    rows = ((item.profile_id, item.source, item.score_id, str(item.cases), number(item.mean)) for item in data.harness)
    return [
        Heading("Scores of other answers, in no gate"),
        Grid(("profile", "from", "metric", "cases", "mean"), tuple(rows)),
        Paragraph("A harness scored generations of its own with these servers, not the answers of this window."),
    ]


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


def percent(value: float | None) -> str:
    """A share in per cent, or that there is none."""
    return UNKNOWN if value is None else f"{100 * value:.3g} %"


def brief(value: float | None) -> str:
    """Three significant digits, for a glance."""
    return UNKNOWN if value is None else f"{value:.3g}"


def _percent_interval(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return "no interval"
    return f"{100 * interval.low:.3g} to {percent(interval.high)}"


def _brief_interval(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return "no interval"
    return f"{brief(interval.low)} to {brief(interval.high)}"


def number(value: float | None) -> str:
    """Four significant digits, all of them before the point, or that there is none."""
    return UNKNOWN if value is None else f"{value:,.0f}" if abs(value) >= 9999.5 else f"{value:.4g}"


def interval_text(interval: Interval | None) -> str:
    """``low to high (95 %)``, or that there is none."""
    if interval is None or interval.low is None or interval.high is None:
        return UNKNOWN
    return f"{number(interval.low)} to {number(interval.high)} ({100 * interval.confidence:g} %)"
