"""Assessing a closed window: command and asset call this, so they agree byte for byte."""

from __future__ import annotations

from pathlib import Path

from tasc_collector.contracts.report import AssessmentReport
from tasc_collector.errors import InputError
from tasc_pipeline.control.observations import Observation
from tasc_pipeline.control.verdicts import AssessmentInputs, assess_comparison
from tasc_pipeline.home.files import write_file
from tasc_pipeline.home.keys import collector_keys
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.windows import REPORT, WindowFolder
from tasc_pipeline.steps.close import ClosedWindow, close
from tasc_pipeline.steps.collect import manifest_signer, utc_now
from tasc_pipeline.steps.conditions import conditions
from tasc_pipeline.steps.earlier import earlier_windows
from tasc_pipeline.steps.plan import ApprovedPlan, load_approved
from tasc_pipeline.warehouse.database import build_views, connect
from tasc_pipeline.warehouse.publish import publish
from tasc_pipeline.warehouse.record_rows import decisions_table, gates_table, windows_table
from tasc_pipeline.warehouse.report import RenderedReport, render_report
from tasc_pipeline.warehouse.report_data import load
from tasc_pipeline.warehouse.rows import Execution, execution_row

HTML, MARKDOWN = "report.html", "report.md"


def assess(home: Home, window_key: str) -> AssessmentReport:
    """Assess a window, publish its gates and decision, and write its report; the same window gives the same bytes.

    Raises:
        InputError: the window is not closed, or its study is of another kind.
    """
    approved = load_approved(home, window_key)
    closed = close(home, window_key)
    if approved.study.comparison is None:
        raise InputError(
            "this study is a decision study; its assessment needs evaluator evidence",
            where=approved.study.study.study_id,
            field="kind",
            way_out="run a comparison of the same servers first: tasc study new",
        )
    rules, closed_at = approved.study.comparison.record, closed.link.closed_at
    report = assess_comparison(
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
    folder = WindowFolder(home, window_key)
    write_file(folder.path / REPORT, report.canonical(), replace=True)
    _publish(home, approved, closed, report)
    rendered = render(home, report)
    write_file(folder.path / HTML, rendered.html.encode(), replace=True)
    write_file(folder.path / MARKDOWN, rendered.markdown.encode(), replace=True)
    return report


def observation(execution: Execution) -> Observation:
    """What statistics see of an execution: the warehouse's own row, so that SQL and verdict agree."""
    row = execution_row(execution)
    return Observation(
        case_id=row.case_id,
        group_id=row.group_id,
        replicate=row.replicate,
        profile_id=row.profile_id,
        state=row.state,
        dispatch_state=row.dispatch_state,  # type: ignore[arg-type]  # words of the same lists
        status=row.status,  # type: ignore[arg-type]
        reason=row.failure_category or row.fault_reason,
        weight=row.weight,
        ttft_ms=row.ttft_ms,
        itl_p50_ms=row.itl_p50_ms,
        itl_p95_ms=row.itl_p95_ms,
        tpot_ms=row.tpot_ms,
        e2e_ms=row.e2e_ms,
        queue_ms=row.queue_ms,
        connect_ms=row.connect_ms,
        tls_ms=row.tls_ms,
        collector_lag_ms=row.collector_lag_ms,
        timing_flagged=row.timing_flagged,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cached_input_tokens=row.input_tokens_cached,
        tokens_per_event=row.tokens_per_event,
        cost_usd=row.cost_usd,
    )


def _publish(home: Home, approved: ApprovedPlan, closed: ClosedWindow, report: AssessmentReport) -> None:
    signer = manifest_signer(home, approved)
    for name, rows in (
        ("windows", windows_table(approved.declaration.record, closed.link, purpose=approved.plan.record.purpose)),
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


def report_path(home: Home, window_key: str) -> Path:
    """The HTML report of a window."""
    return WindowFolder(home, window_key).path / HTML
