"""A window's decision from its files, whichever analysis made it.

The report (``assessment.json``) is there after every assessment. Where the analysis plan selects engine v2, its own decision
(``decision.json``) stands beside it and is the one that counts; the two must speak of the same thing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tasc_collector.contracts.base import json_object
from tasc_collector.contracts.catalogue import record_class
from tasc_collector.contracts.decision import AssessmentDecision
from tasc_collector.contracts.report import AssessmentReport
from tasc_collector.errors import DigestMismatch
from tasc_collector.limits import RECORD_MAX_BYTES
from tasc_collector.wire.json import RECORD_JSON, parse_json
from tasc_collector.wire.records import read_bounded
from tasc_pipeline.control.decided import Decided, of_decision, of_report
from tasc_pipeline.home.studies import LoadedStudy
from tasc_pipeline.home.windows import WindowFolder

ENGINE_V2: Final[str] = AssessmentDecision.model_fields["engine_version"].default


def read_decided(loaded: LoadedStudy, folder: WindowFolder) -> Decided:
    """The decision on a window that was assessed.

    Raises:
        InputError: the window was not assessed, or is a comparison's.
        DigestMismatch: engine v2's decision is not that of the report beside it.
    """
    report = folder.report().record
    found = of_report(report, loaded.policies)
    if report.engine != ENGINE_V2:
        return found
    decision = of_decision(folder.decision().record)
    for name in ("phase", "status", "dataset_digest", "trace_set_digest", "evaluator_set_digest"):
        if getattr(decision, name) != getattr(found, name):
            raise DigestMismatch(
                "decision and report are not of one assessment",
                where=folder.window_key,
                field=name,
                way_out=f"assess the window again: tasc assess {folder.window_key}",
            )
    return decision


def decided_file(loaded: LoadedStudy, path: Path) -> Decided:
    """A decision of engine v2, or a report of our own analysis, that was made elsewhere.

    Raises:
        InputError: the file is neither.
    """
    value = json_object(parse_json(read_bounded(path, RECORD_MAX_BYTES), RECORD_JSON), where=path.name)
    if record_class(value, where=path.name) is AssessmentReport:
        return of_report(AssessmentReport.from_value(value, where=path.name).record, loaded.policies)
    return of_decision(AssessmentDecision.from_value(value, where=path.name).record)
