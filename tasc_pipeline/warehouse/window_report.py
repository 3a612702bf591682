"""A window's report from its assessment and the published tables."""

from __future__ import annotations

from pathlib import Path

from tasc_collector.contracts.report import AssessmentReport
from tasc_pipeline.warehouse.database import connect
from tasc_pipeline.warehouse.report import RenderedReport, render_report
from tasc_pipeline.warehouse.report_data import load


def render_window(home: Path, report: AssessmentReport) -> RenderedReport:
    """The report of one assessment, its charts from the views as they are now.

    Args:
        home: the state folder.
        report: the assessment.

    Raises:
        InputError: there is no warehouse.
        PartCorruptError: a part that the charts need is missing or damaged.
    """
    with connect(home) as session:
        return render_report(report, load(session, report.window_key))
