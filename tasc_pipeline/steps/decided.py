"""A window's decision from its files, whichever analysis made it, and the same decision made again.

The report (``assessment.json``) is there after every assessment. Where the analysis plan selects engine v2, its own decision
(``decision.json``) stands beside it and is the one that counts; the two must speak of the same thing.

Neither is signed. A report must name the declaration, plan and traces of the window's signed link; whether it says what the
window's journal and evidence give is known only by making it again (``decided_again``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from tasc_collector.contracts.base import json_object
from tasc_collector.contracts.catalogue import record_class
from tasc_collector.contracts.decision import AssessmentDecision
from tasc_collector.contracts.operations import KeyRing
from tasc_collector.contracts.report import AssessmentReport
from tasc_collector.errors import DigestMismatch
from tasc_collector.limits import RECORD_MAX_BYTES
from tasc_collector.wire.json import RECORD_JSON, parse_json
from tasc_collector.wire.records import read_bounded
from tasc_pipeline.control.decided import Decided, of_decision, of_report
from tasc_pipeline.control.decisions.deciding import assess_decision
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import LoadedStudy
from tasc_pipeline.home.windows import WindowFolder
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.steps.assess_decision import engine_decision
from tasc_pipeline.steps.close import close
from tasc_pipeline.steps.decision_inputs import decision_inputs, read_material

ENGINE_V2: Final[str] = AssessmentDecision.model_fields["engine_version"].default
Recompute: TypeAlias = Callable[[Home, str, str], Decided]
"""Home, window key and instant to the decision that the window's records give as of then."""


def read_decided(loaded: LoadedStudy, folder: WindowFolder, ring: KeyRing) -> Decided:
    """The decision on a window that was assessed, as its files say.

    Raises:
        InputError: the window was not closed or assessed, or is a comparison's.
        DigestMismatch: the report is of another window, declaration, plan or traces than the signed link; or engine v2's
            decision is not that of the report beside it.
    """
    report, link = folder.report().record, folder.link(ring).record
    for name in ("window_key", "study_id", "declaration_digest", "plan_digest", "trace_set_digest"):
        _same(folder, name, getattr(report, name), getattr(link, name), "the report is not of the closed window")
    found = of_report(report, loaded.policies)
    if report.engine != ENGINE_V2:
        return found
    decision = of_decision(folder.decision().record)
    for name in ("phase", "status", "dataset_digest", "trace_set_digest", "evaluator_set_digest"):
        _same(
            folder, name, getattr(decision, name), getattr(found, name), "decision and report are not of one assessment"
        )
    return decision


def read_decision_file(path: Path) -> AssessmentReport | AssessmentDecision:
    """A decision of engine v2, or a report of our own analysis, from a file that an operator names.

    Raises:
        InputError: the file is neither.
    """
    value = json_object(parse_json(read_bounded(path, RECORD_MAX_BYTES), RECORD_JSON), where=path.name)
    if record_class(value, where=path.name) is AssessmentReport:
        return AssessmentReport.from_value(value, where=path.name).record
    return AssessmentDecision.from_value(value, where=path.name).record


def decided_record(loaded: LoadedStudy, record: AssessmentReport | AssessmentDecision) -> Decided:
    """What a report or decision says.

    Raises:
        InputError: it is the report of a comparison, or selects a policy that the study has no file of.
    """
    return of_report(record, loaded.policies) if isinstance(record, AssessmentReport) else of_decision(record)


def decided_again(home: Home, window_key: str, as_of: str) -> Decided:
    """The decision on a closed window, made again from journal, evidence and plan; nothing of it is read from its files.

    Args:
        home: the state folder.
        window_key: a closed window of a decision study.
        as_of: the instant that it is assessed for.

    Raises:
        InputError: a file is missing or breaks a rule.
        DigestMismatch: a file is not the one that the plan names.
    """
    approved = load_approved(home, window_key)
    material = read_material(home, approved, close(home, window_key), as_of)
    if material.engine_v2:
        return of_decision(engine_decision(home, material))
    return of_report(assess_decision(decision_inputs(home, material)), approved.study.policies)


def _same(folder: WindowFolder, field: str, found: str, wanted: str, problem: str) -> None:
    if found != wanted:
        raise DigestMismatch(
            problem,
            where=folder.window_key,
            field=field,
            way_out=f"assess the window again: tasc assess {folder.window_key}",
        )
