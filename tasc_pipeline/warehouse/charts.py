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
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from tasc_collector.contracts.report import ComparisonResult, ExecutionCounts, ProfileSummary, RatioResult
from tasc_pipeline.warehouse.report_data import Curve, ReportData, Series

NARROW_PX = 340
"""Width of a chart in Dagster's metadata column."""
HALF_PX = 526
"""Two of these stand side by side on the HTML page."""
WIDE_PX = 1070
"""The HTML page's whole width."""
_DPI = 72
_INK = "#010203"
"""Drawn in this colour, replaced by ``currentColor`` in the text of the SVG."""
_STYLE = "<style>svg{color:#1f2328}@media(prefers-color-scheme:dark){svg{color:#e6edf3}}</style>"
_LINES = (("#2f7fd6", "-", "o"), ("#d9730d", "--", "^"), ("#8a63d2", ":", "s"), ("#1a9e77", "-.", "D"))
_FLOOR_ALPHA = 0.22
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
    (re.compile(r"(\d+\.\d\d)\d+(?![^<>]*</text>)"), r"\1"),
    (re.compile(r" transform=\"rotate\(-?0 [^)]*\)\""), ""),
    (re.compile(r"\s*\n\s*"), " "),
)
"""What matplotlib writes and nobody sees: dates, points where the page counts pixels, a nanometre's digits (not of what a text says)."""
_SETTINGS: dict[Any, Any] = {  # Any: matplotlib types each name apart
    "svg.fonttype": "none",
    "svg.hashsalt": "tasc",
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "text.color": _INK,
    "axes.titlelocation": "left",
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
}


def distribution(curves: Sequence[Curve], label: str, *, width_px: int = NARROW_PX) -> str:
    """Share of calls within a latency, one line per profile; the axis ends at the 99th percentile."""
    with mpl.rc_context(_settings(width_px)):
        figure, axes = _figure(width_px, 0.58)
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
        _legend_above(axes, width_px)
        return _svg(figure)


def intervals(result: ComparisonResult, *, width_px: int = NARROW_PX) -> str:
    """Every ratio with its interval, margin and noise floor; the shape of the mark is the verdict.

    The axis holds intervals, estimates and margins; a floor that is wider is cut at its ends.
    """
    rows = [item for item in result.ratios if item.estimate is not None]
    with mpl.rc_context(_settings(width_px)):
        figure, axes = _figure(width_px, max(0.58, (70 + 24 * len(rows)) / width_px))
        axes.set_xlim(*_reach(rows))
        for place, item in enumerate(reversed(rows)):
            colour = _VERDICT_COLOURS[item.verdict]
            if item.noise_floor is not None:
                low, high = 1 / (1 + item.noise_floor), 1 + item.noise_floor
                axes.barh(place, high - low, left=low, height=0.62, color=_INK, alpha=_FLOOR_ALPHA)
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
        if any(item.noise_floor is not None for item in rows):
            axes.plot([], [], color=_INK, alpha=_FLOOR_ALPHA, marker="s", linestyle="", label="noise floor")
        _frame(axes, x="candidate / champion")
        columns = 5 if width_px >= HALF_PX else 3
        axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=columns, handletextpad=0.1, columnspacing=0.8)
        return _svg(figure)


def _reach(rows: Sequence[RatioResult]) -> tuple[float, float]:
    """Ends of the axis of ratios: 1, every estimate, interval and margin, and a little air."""
    told = [(item.estimate, item.interval.low, item.interval.high, item.margin) for item in rows]
    values = [1.0, *(value for row in told for value in row if value is not None)]
    air = 0.05 * (max(values) - min(values)) or 0.05
    return min(values) - air, max(values) + air


def paired(curves: Sequence[tuple[str, Curve]], *, width_px: int = NARROW_PX) -> str:
    """Share of pairs below each ratio, one line per latency; left of 1 the candidate is faster."""
    with mpl.rc_context(_settings(width_px)):
        figure, axes = _figure(width_px, 0.58)
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
        _legend_above(axes, width_px)
        return _svg(figure)


def outcomes(profiles: Sequence[ProfileSummary], *, width_px: int = NARROW_PX) -> str:
    """What became of the planned executions, one bar per profile; states differ by hatching too."""
    with mpl.rc_context(_settings(width_px)):
        figure, axes = _figure(width_px, (80 + 26 * len(profiles)) / NARROW_PX)
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
    """Median TTFT over time, and below it what servers and devices were doing, on one time axis.

    Lines at the first call and at the last answer; what was sampled shortly before and after stands outside them.
    """
    panels: list[tuple[str, list[Series]]] = [("TTFT, median (ms)", list(data.latency))]
    for series in data.strip:
        title = _panel_title(series)
        if panels[-1][0] != title:
            panels.append((title, []))
        panels[-1][1].append(series)
    times = [at for _, held in panels for series in held for at, _ in series.points]
    first, last = min((0.0, *times)), max((data.seconds, 1e-3, *times))
    with mpl.rc_context(_settings(width_px)):
        size = (width_px / _DPI, (40 + 84 * len(panels)) / _DPI)
        figure = Figure(figsize=size, dpi=_DPI, layout="constrained")
        figure.patch.set_alpha(0)
        for place, (title, held) in enumerate(panels):
            axes = figure.add_subplot(len(panels), 1, place + 1)
            for index, series in enumerate(_champion_first(held) if place else held):
                colour, dash, mark = _LINES[index % len(_LINES)]
                axes.plot(
                    [at for at, _ in series.points],
                    [value for _, value in series.points],
                    color=colour,
                    linestyle=dash,
                    marker=mark,
                    markersize=3,
                    linewidth=1.2,
                    clip_on=False,
                    label=series.label.split(" of ")[-1],
                )
            for edge in (0.0, data.seconds):
                axes.axvline(edge, color=_INK, alpha=0.4, linewidth=1, linestyle=":")
            axes.set_title(title)
            margin = 0.01 * (last - first)
            axes.set_xlim(first - margin, last + margin)
            axes.set_ylim(0, (max(value for series in held for _, value in series.points) * 1.15 if held else 0) or 1.0)
            axes.yaxis.set_major_locator(MaxNLocator(nbins=3))
            _frame(axes, x="seconds since the first call" if place == len(panels) - 1 else "")
            if place < len(panels) - 1:
                axes.tick_params(labelbottom=False)
            if held:
                axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.96), ncols=4, borderaxespad=0.0)
        return _svg(figure)


_TITLES = {
    "requests-running": "requests running at the server",
    "requests-waiting": "requests waiting at the server",
    "kv-cache-usage": "KV cache in use (share)",
    "utilization": "device utilization",
    "memory_used": "device memory in use",
    "power": "device power",
    "temperature": "device temperature",
}


def _panel_title(series: Series) -> str:
    name = series.label.split(" of ")[0]
    title = _TITLES.get(name, name)
    return f"{title} ({series.unit})" if series.unit else title


def _champion_first(held: Sequence[Series]) -> list[Series]:
    """The champion keeps its line and mark in every panel; `tasc study new` names its endpoint so."""
    return sorted(held, key=lambda series: (not series.label.endswith(" of champion"), series.label))


def count_of(counts: ExecutionCounts, state: str) -> int:
    """Executions in one state."""
    return int(getattr(counts, state))


def _settings(width_px: int) -> dict[Any, Any]:  # Any: matplotlib types each name apart
    """Text as large as the page's own small print, whatever the width."""
    points = 8.5 if width_px <= NARROW_PX else 11.0
    return _SETTINGS | {"font.size": points, "axes.titlesize": points, "legend.fontsize": points}


def _legend_above(axes: Any, width_px: int) -> None:  # Any: matplotlib ships no types
    """Where it hides no line; one column where names are long for the width."""
    names = sum(len(text) for text in axes.get_legend_handles_labels()[1])
    columns = 1 if names * 5.5 > width_px else 3
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, borderaxespad=0.2, columnspacing=1.2)


def _figure(width_px: int, height_share: float) -> tuple[Figure, Any]:  # Any: matplotlib ships no types
    size = (width_px / _DPI, width_px * height_share / _DPI)
    figure = Figure(figsize=size, dpi=_DPI, layout="constrained")
    figure.patch.set_alpha(0)
    return figure, figure.add_subplot()


def _frame(axes: Any, *, x: str = "", y: str = "") -> None:  # Any: matplotlib ships no types
    axes.patch.set_alpha(0)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(visible=True, color=_INK, alpha=0.12, linewidth=0.6)
    axes.xaxis.set_minor_locator(NullLocator())


def _svg(figure: Figure) -> str:
    """The canvas draws once; ``savefig`` draws a second picture before it, for bounds that nothing asks for here."""
    buffer = io.StringIO()
    FigureCanvasSVG(figure).print_svg(  # type: ignore[no-untyped-call]  # as matplotlib ships it
        buffer, metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
    )
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    for pattern, smaller in _SMALLER:
        text = pattern.sub(smaller, text)
    opening = text.index(">") + 1
    return text[:opening] + _STYLE + text[opening:].strip()
