"""Rows of what assessment leaves: windows, evidence, reported scores, gates, decisions, notices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tasc_pipeline.warehouse.columns import flag, identity, instant, integer, number, word
from tasc_pipeline.warehouse.tables_collection import PROFILE_ID, TRACE_ID, WINDOW_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRow:
    """One sealed window: its declaration, plan and final counts."""

    window_key: Annotated[str, WINDOW_KEY]
    study_id: Annotated[str, word("Study.")]
    study_kind: Annotated[str, word("comparison or decision.")]
    window_id: Annotated[str, word("Window without its revision.")]
    revision: Annotated[int, integer("From 1; a revision adds late evidence and sends nothing.", "count")]
    window_class: Annotated[str, word("observation or decisive; only decisive ones move a controller.")]
    purpose: Annotated[str, word("comparison, development, holdout, window or monitoring.")]
    predecessor_study_id: Annotated[str | None, word("Study that this one was forked from, null where it was not.")] = (
        None
    )
    lineage_id: Annotated[
        str, word("First study of the line: the same for a study and all its successors, so it unites their windows.")
    ]
    event_time_start: Annotated[int, instant("First instant of the window.")]
    event_time_end: Annotated[int, instant("First instant after the window.")]
    ingestion_watermark: Annotated[int, instant("Evidence counts until then.")]
    closed_at: Annotated[int | None, instant("When every planned execution was final.")] = None
    planned: Annotated[int, integer("Planned executions.", "count")]
    accepted: Annotated[int, integer("Executions with an envelope.", "count")]
    not_sent: Annotated[int, integer("Executions proved not sent.", "count")]
    not_attempted: Annotated[int, integer("Executions never attempted.", "count")]
    declaration_digest: Annotated[str, identity("Digest of the declaration.", prefix="sha256:")]
    plan_digest: Annotated[str, identity("Digest of the collection plan.", prefix="sha256:")]
    trace_set_digest: Annotated[str | None, identity("Digest over all envelopes of the window.", prefix="sha256:")] = (
        None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRow:
    """One piece of evaluator evidence, and whether it was trusted."""

    window_key: Annotated[str, WINDOW_KEY]
    evidence_digest: Annotated[str, identity("Digest of the evidence.", prefix="sha256:")]
    trace_id: Annotated[str, TRACE_ID]
    profile_id: Annotated[str, PROFILE_ID]
    case_id: Annotated[str, word("Case.")]
    evaluator_id: Annotated[str, word("Evaluator.")]
    rubric_version: Annotated[str, word("Rubric.")]
    producer_kind: Annotated[str, word("Kind of producer, such as human or model.")]
    outcome: Annotated[str, word("scored, missing, invalid or abstained.")]
    score: Annotated[float | None, number("Primary score; null unless scored.", "0..1")] = None
    trust_status: Annotated[str, word("Result of verification, such as trusted or unknown-key.")]
    trusted: Annotated[bool, flag("True where it may enter a gate.")]
    produced_at: Annotated[int, instant("When it was produced.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedScoreRow:
    """One score as reported; nothing here was computed by this project, and no gate reads it."""

    window_key: Annotated[str, WINDOW_KEY]
    source: Annotated[str, word("evaluator-evidence, or lm-evaluation-harness: scores of other generations.")]
    evidence_digest: Annotated[
        str | None, identity("Digest of the evidence; null where it is not signed evidence.", prefix="sha256:")
    ] = None
    trace_id: Annotated[str | None, TRACE_ID] = None
    profile_id: Annotated[str, PROFILE_ID]
    case_id: Annotated[str, word("Case; of a harness <task>-<document id>.")]
    score_id: Annotated[str, word("'primary', the subscore's id, or the harness's metric and filter.")]
    score: Annotated[float, number("As reported.", "of its range")]
    range_minimum: Annotated[float | None, number("Lowest possible score; null where not stated.", "of its range")] = (
        None
    )
    range_maximum: Annotated[float | None, number("Highest possible score; null where not stated.", "of its range")] = (
        None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRow:
    """One gate of a decision, or one margin of a comparison."""

    window_key: Annotated[str, WINDOW_KEY]
    study_id: Annotated[str, word("Study.")]
    candidate_profile_id: Annotated[str | None, word("Candidate of a comparison; null for a decision's gate.")] = None
    gate: Annotated[
        str,
        word(
            "Gate id, with its slice where it has one; of a comparison metric and statistic, such as ttft-median-ratio."
        ),
    ]
    operator: Annotated[str, word("<= or >=.")]
    threshold: Annotated[float, number("Bound.", "of the gate")]
    actual: Annotated[float | None, number("Estimate.", "of the gate")] = None
    interval_low: Annotated[float | None, number("Lower end of the interval.", "of the gate")] = None
    interval_high: Annotated[float | None, number("Upper end of the interval.", "of the gate")] = None
    confidence: Annotated[float | None, number("Confidence of the interval.", "share")] = None
    interval_method: Annotated[str | None, word("How the interval was made.")] = None
    noise_floor: Annotated[
        float | None,
        number(
            "Difference that the champion shows against its own replicates, of a ratio relative; null with fewer than "
            "two, of a decision's gate and of a part older than this column.",
            "share",
        ),
    ] = None
    evidence_class: Annotated[str, word("measured, reported, modeled or unavailable.")]
    verdict: Annotated[
        str, word("passed, failed, undecided or unavailable; of a comparison no-worse, worse or undecided.")
    ]
    deciding: Annotated[bool, flag("False for a figure that is shown but does not enter the verdict.")]
    pairs: Annotated[int | None, integer("Pairs behind the estimate.", "count")] = None
    reason: Annotated[str | None, word("Why it is what it is, where a word says it.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """The result of one assessment: a verdict per candidate, or a decision."""

    window_key: Annotated[str, WINDOW_KEY]
    study_id: Annotated[str, word("Study.")]
    study_kind: Annotated[str, word("comparison or decision.")]
    candidate_profile_id: Annotated[str | None, word("Candidate of a comparison; null for a decision.")] = None
    result: Annotated[str, word("no-worse, worse, undecided; PASS, HOLD, INSUFFICIENT_EVIDENCE or STALE.")]
    sentence: Annotated[str, word("The result in one sentence.")]
    coverage: Annotated[
        float | None, number("Share of planned executions whose end is known: success or failure.", "share")
    ] = None
    as_of: Annotated[int, instant("Instant the assessment speaks for.")]
    report_digest: Annotated[str, identity("Digest of the assessment report.", prefix="sha256:")]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeRow:
    """Something changed that a person should look at; content-free."""

    window_key: Annotated[str, WINDOW_KEY]
    study_id: Annotated[str, word("Study.")]
    kind: Annotated[str, word("verdict-changed, coverage-low, window-missing or run-failed.")]
    before: Annotated[str | None, word("Before the change.")] = None
    after: Annotated[str | None, word("After the change.")] = None
    noticed_at: Annotated[int, instant("When it was noticed.")]
