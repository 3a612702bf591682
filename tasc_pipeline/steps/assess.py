"""Assessing a closed window: command and asset call this, so they agree byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from tasc_collector.contracts.report import AssessmentReport
from tasc_collector.errors import InputError
from tasc_pipeline.clock import utc_now
from tasc_pipeline.control.verdicts import AssessmentInputs, assess_comparison
from tasc_pipeline.home.files import write_file
from tasc_pipeline.home.keys import collector_keys
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.windows import REPORT, WindowFolder
from tasc_pipeline.steps.approved import ApprovedPlan, load_approved
from tasc_pipeline.steps.assess_decision import assess_decision_window
from tasc_pipeline.steps.close import ClosedWindow, close
from tasc_pipeline.steps.conditions import conditions
from tasc_pipeline.steps.earlier import earlier_windows
from tasc_pipeline.steps.observing import observation
from tasc_pipeline.steps.publish import manifest_signer
from tasc_pipeline.steps.watch import counted
from tasc_pipeline.warehouse.database import build_views, connect
from tasc_pipeline.warehouse.publish import publish
from tasc_pipeline.warehouse.record_rows import decisions_table, gates_table, windows_table
from tasc_pipeline.warehouse.report import RenderedReport, render_report
from tasc_pipeline.warehouse.report_data import load

HTML, MARKDOWN = "report.html", "report.md"


def assess(
    home: Home, window_key: str, as_of: str | None = None, *, now: Callable[[], datetime] = utc_now
) -> AssessmentReport:
    """Assess a window, publish its gates and decision, and write its report; the same window gives the same bytes.

    Args:
        home: the state folder.
        window_key: the window.
        as_of: the instant that a decision is assessed for; its watermark if None. A comparison speaks for its close.
        now: the wall clock.

    Raises:
        InputError: the window is not closed, or something that it is assessed with is missing.
        DigestMismatch: a file is not the one that the plan names.
    """
    approved = load_approved(home, window_key)
    closed = close(home, window_key)
    tell = counted("assessing: figures, tables, report", 3)
    if approved.study.comparison is None:
        report = assess_decision_window(home, approved, closed, as_of, now())
    else:
        report = _comparison(home, approved, closed, as_of)
    tell(1)
    folder = WindowFolder(home, window_key)
    write_file(folder.path / REPORT, report.canonical(), replace=True)
    _publish(home, approved, closed, report)
    tell(1)
    rendered = render(home, report)
    write_file(folder.path / HTML, rendered.html.encode(), replace=True)
    write_file(folder.path / MARKDOWN, rendered.markdown.encode(), replace=True)
    tell(1)
    return report


def _comparison(home: Home, approved: ApprovedPlan, closed: ClosedWindow, as_of: str | None) -> AssessmentReport:
    assert approved.study.comparison is not None  # noqa: S101 - the caller looked
    rules, closed_at = approved.study.comparison.record, closed.link.closed_at
    if as_of not in (None, closed_at):
        raise InputError(
            "a comparison speaks for its window's close",
            where="--as-of",
            rule=closed_at,
            way_out="leave --as-of out: no evidence arrives later",
        )
    return assess_comparison(
        AssessmentInputs(
            rules,
            approved.plan.record,
            [observation(item) for item in closed.collected.executions],
            closed.collected.trace_set_digest,
            closed_at,
            earlier=earlier_windows(home, rules.digest, before=closed_at) if rules.rule.recurring else {},
            conditions=conditions(home, approved),
        )
    )


def _publish(home: Home, approved: ApprovedPlan, closed: ClosedWindow, report: AssessmentReport) -> None:
    signer = manifest_signer(home, approved)
    for name, rows in (
        (
            "windows",
            windows_table(
                approved.declaration.record,
                closed.link,
                purpose=approved.plan.record.purpose,
                fork=approved.study.fork,
            ),
        ),
        ("gates", gates_table(report)),
        ("decisions", decisions_table(report)),
    ):
        publish(home.warehouse, name, report.window_key, rows, sign=signer, clock=utc_now, source_digest=report.digest)
    build_views(home.root, clock=utc_now, keys=collector_keys(home))


def render(home: Home, report: AssessmentReport) -> RenderedReport:
    """The report as HTML and Markdown; its charts are drawn from the published views."""
    session = connect(home.root)
    try:
        return render_report(report, load(session, report.window_key))
    finally:
        session.close()


def written_markdown(home: Home, window_key: str) -> str:
    """The report that ``assess`` wrote, as Markdown: ``render`` would give the same and draw every chart again."""
    return (WindowFolder(home, window_key).path / MARKDOWN).read_text(encoding="utf-8")


def report_path(home: Home, window_key: str) -> Path:
    """The HTML report of a window."""
    return WindowFolder(home, window_key).path / HTML
