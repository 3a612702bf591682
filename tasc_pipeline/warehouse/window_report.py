"""A window's report from its assessment and the published tables."""

from __future__ import annotations

from pathlib import Path

import duckdb

from tasc_collector.contracts.report import AssessmentReport
from tasc_collector.errors import InputError
from tasc_pipeline.warehouse.database import SQL_FILE, connect
from tasc_pipeline.warehouse.report import RenderedReport, render_report
from tasc_pipeline.warehouse.report_data import load


def render_window(home: Path, report: AssessmentReport) -> RenderedReport:
    """The report of one assessment, its charts from the views as they are now.

    Args:
        home: the state folder.
        report: the assessment.

    Raises:
        InputError: there is no warehouse, or its views were made by an older version.
        PartCorruptError: a part that the charts need is missing or damaged.
    """
    with connect(home) as session:
        try:
            return render_report(report, load(session, report.window_key))
        except (duckdb.CatalogException, duckdb.BinderException):
            raise InputError(
                "the views were made by an older version of this program",
                where=SQL_FILE,
                way_out="make them again with: tasc init",
            ) from None
