"""Small SVG charts for a report: readable in light and dark, and without telling colours apart.

Text and axes are drawn in the page's own text colour (``currentColor``), so a chart is dark on light and light on dark.
A champion is a solid line with round marks, candidates are dashed with other marks; verdicts have shapes. The same
numbers give the same bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from tasc_collector.contracts.report import ComparisonResult, ExecutionCounts, ProfileSummary
from tasc_pipeline.warehouse.report_data import Curve, ReportData, Series

NARROW_PX = 340
"""Width of a chart in Dagster's metadata column; the HTML report puts three side by side."""
WIDE_PX = 1060
_DPI = 72
_INK = "#010203"
"""Drawn in this colour, replaced by ``currentColor`` in the text of the SVG."""
_STYLE = "<style>svg{color:#1f2328}@media(prefers-color-scheme:dark){svg{color:#e6edf3}}</style>"
_LINES = (("#2f7fd6", "-", "o"), ("#d9730d", "--", "^"), ("#8a63d2", ":", "s"), ("#1a9e77", "-.", "D"))
_VERDICT_MARKS = {"no-worse": "o", "worse": "X", "undecided": "D"}
_VERDICT_COLOURS = {"no-worse": "#1a9e77", "worse": "#d1442f", "undecided": "#8a8f98"}
_STATES = (
    ("success", "#1a9e77", ""),
    ("failure", "#d1442f", "//"),
    ("sent_unknown", "#d9730d", "xx"),
    ("not_sent", "#8a8f98", "||"),
    ("not_attempted", "#8a8f98", "--"),
)
_SMALLER = (
    (re.compile(r"<metadata>.*?</metadata>", re.DOTALL), ""),
    (re.compile(r'(width|height)="([0-9.]+)pt"'), r'\1="\2px"'),
    (re.compile(r"font-family: [^;]*sans-serif"), "font-family: sans-serif"),
    (re.compile(r"(\d+\.\d\d)\d+"), r"\1"),
    (re.compile(r" transform=\"rotate\(-?0 [^)]*\)\""), ""),
    (re.compile(r"\s*\n\s*"), " "),
)
"""What matplotlib writes and nobody sees: dates, points where the page counts pixels, a nanometre's digits."""
_SETTINGS: dict[Any, Any] = {  # Any: matplotlib types each name apart
    "svg.fonttype": "none",
    "svg.hashsalt": "tasc",
    "font.family": "sans-serif",
    "font.size": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "text.color": _INK,
    "axes.titlesize": 9.0,
    "axes.titlelocation": "left",
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
}


def distribution(curves: Sequence[Curve], label: str) -> str:
    """Share of calls within a latency, one line per profile; the axis ends at the 99th percentile."""
    with mpl.rc_context(_SETTINGS):
        figure, axes = _figure(NARROW_PX, 200)
        shares = [
            point / (len(curve.percentiles) - 1) for curve in curves[:1] for point in range(len(curve.percentiles))
        ]
        for index, curve in enumerate(curves):
            colour, dash, mark = _LINES[index % len(_LINES)]
            axes.plot(
                curve.percentiles,
                shares,
                color=colour,
                linestyle=dash,
                marker=mark,
                markevery=(10 + 5 * index, 25),
                markersize=4,
                linewidth=1.6,
                label=f"{curve.profile_id} ({curve.role})",
            )
        highest = max((curve.percentiles[99] for curve in curves), default=1.0)
        axes.set_xlim(0, highest * 1.05 or 1.0)
        _frame(axes, x=label, y="share of calls" if "TTFT" in label else "share of gaps")
        axes.set_ylim(0, 1.02)
        axes.legend(loc="lower right")
        return _svg(figure)


def intervals(result: ComparisonResult) -> str:
    """Every ratio with its interval and margin; the shape of the mark is the verdict."""
    rows = [item for item in result.ratios if item.estimate is not None]
    with mpl.rc_context(_SETTINGS):
        figure, axes = _figure(NARROW_PX, 70 + 24 * max(len(rows), 2))
        for place, item in enumerate(reversed(rows)):
            colour = _VERDICT_COLOURS[item.verdict]
            if item.interval.low is not None and item.interval.high is not None:
                axes.plot([item.interval.low, item.interval.high], [place, place], color=colour, linewidth=2.2)
            axes.plot([item.estimate], [place], color=colour, marker=_VERDICT_MARKS[item.verdict], markersize=6)
            axes.plot([item.margin] * 2, [place - 0.3, place + 0.3], color=_INK, linewidth=1.2)
        axes.axvline(1.0, color=_INK, alpha=0.4, linewidth=1, linestyle=":")
        axes.set_yticks(range(len(rows)), [f"{item.metric.upper()} {item.statistic}" for item in reversed(rows)])
        axes.set_ylim(-0.6, max(len(rows), 1) - 0.4)
        for verdict, mark in _VERDICT_MARKS.items():
            axes.plot([], [], color=_VERDICT_COLOURS[verdict], marker=mark, linestyle="", markersize=5, label=verdict)
        axes.plot([], [], color=_INK, marker="|", linestyle="", markersize=8, label="margin")
        _frame(axes, x="candidate / champion")
        axes.legend(loc="lower center", bbox_to_anchor=(0.35, 1.0), ncols=4, handletextpad=0.1, columnspacing=0.8)
        return _svg(figure)


def paired(curves: Sequence[tuple[str, Curve]]) -> str:
    """Share of pairs below each ratio, one line per latency; left of 1 the candidate is faster."""
    with mpl.rc_context(_SETTINGS):
        figure, axes = _figure(NARROW_PX, 200)
        low, high = 1.0, 1.0
        for index, (metric, curve) in enumerate(curves):
            colour, dash, mark = _LINES[index % len(_LINES)]
            last = len(curve.percentiles) - 1
            axes.plot(
                curve.percentiles,
                [point / last for point in range(last + 1)],
                color=colour,
                linestyle=dash,
                marker=mark,
                markevery=(10 + 5 * index, 25),
                markersize=4,
                linewidth=1.6,
                label=metric.upper(),
            )
            low, high = min(low, curve.percentiles[1]), max(high, curve.percentiles[99])
        axes.axvline(1.0, color=_INK, alpha=0.4, linewidth=1, linestyle=":")
        margin = 0.05 * (high - low) or 0.1
        axes.set_xlim(low - margin, high + margin)
        _frame(axes, x="candidate / champion, pair by pair", y="share of pairs")
        axes.set_ylim(0, 1.02)
        axes.legend(loc="lower right")
        return _svg(figure)


def outcomes(profiles: Sequence[ProfileSummary]) -> str:
    """What became of the planned executions, one bar per profile; states differ by hatching too."""
    with mpl.rc_context(_SETTINGS):
        figure, axes = _figure(NARROW_PX, 80 + 26 * len(profiles))
        for place, profile in enumerate(reversed(profiles)):
            left = 0
            for name, colour, hatch in _STATES:
                width = count_of(profile.counts, name)
                if width:
                    axes.barh(
                        place, width, left=left, height=0.6, color=colour, hatch=hatch, edgecolor=_INK, linewidth=0.4
                    )
                left += width
        for name, colour, hatch in _STATES:
            axes.barh(0, 0, color=colour, hatch=hatch, edgecolor=_INK, linewidth=0.4, label=name.replace("_", " "))
        axes.set_yticks(range(len(profiles)), [profile.profile_id for profile in reversed(profiles)])
        _frame(axes, x="planned executions")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        axes.legend(loc="lower center", bbox_to_anchor=(0.35, 1.0), ncols=3, handlelength=1.4, columnspacing=0.8)
        return _svg(figure)


def strip(data: ReportData, *, width_px: int) -> str:
    """Median TTFT over time, and below it what servers and devices were doing, on one time axis."""
    panels: list[tuple[str, list[Series]]] = [("TTFT, median (ms)", list(data.latency))]
    for series in data.strip:
        name = series.label.split(" of ")[0]
        title = f"{name} ({series.unit})" if series.unit else name
        if panels[-1][0] != title:
            panels.append((title, []))
        panels[-1][1].append(series)
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(width_px / _DPI, (40 + 80 * len(panels)) / _DPI), dpi=_DPI, layout="constrained")
        figure.patch.set_alpha(0)
        for place, (title, held) in enumerate(panels):
            axes = figure.add_subplot(len(panels), 1, place + 1)
            for index, series in enumerate(held):
                colour, dash, mark = _LINES[index % len(_LINES)]
                axes.plot(
                    [at for at, _ in series.points],
                    [value for _, value in series.points],
                    color=colour,
                    linestyle=dash,
                    marker=mark,
                    markersize=2.5,
                    linewidth=1.2,
                    label=series.label.split(" of ")[-1],
                )
            axes.set_title(title)
            axes.set_xlim(0, data.seconds or 1.0)
            axes.set_ylim(bottom=0)
            _frame(axes, x="seconds since the first call" if place == len(panels) - 1 else "")
            if len(held) > 1 or place:
                axes.legend(loc="upper right", ncols=2)
        return _svg(figure)


def count_of(counts: ExecutionCounts, state: str) -> int:
    """Executions in one state."""
    return int(getattr(counts, state))


def _figure(width_px: int, height_px: int) -> tuple[Figure, Any]:  # Any: matplotlib ships no types
    figure = Figure(figsize=(width_px / _DPI, height_px / _DPI), dpi=_DPI, layout="constrained")
    figure.patch.set_alpha(0)
    return figure, figure.add_subplot()


def _frame(axes: Any, *, x: str = "", y: str = "") -> None:  # Any: matplotlib ships no types
    axes.patch.set_alpha(0)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(visible=True, color=_INK, alpha=0.12, linewidth=0.6)
    axes.xaxis.set_minor_locator(NullLocator())


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    for pattern, smaller in _SMALLER:
        text = pattern.sub(smaller, text)
    opening = text.index(">") + 1
    return text[:opening] + _STYLE + text[opening:].strip()
