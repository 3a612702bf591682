"""Assessing a decision study's closed window: by our own analysis, or exactly as the original where the plan says so.

``as_of`` is explicit in the result. Its default is the watermark, or now where that is still to come: then the window is
``STALE`` and says how long to wait, by whichever analysis. An instant that is still to come is refused, because evidence may
arrive before it. Engine v2 compares a window's evidence with its manifest, and both name the instant of the check: so it
judges a window as of its watermark only.
"""

from __future__ import annotations

from datetime import datetime

from tasc_collector.contracts.decision import AssessmentDecision
from tasc_collector.contracts.report import AssessmentReport
from tasc_collector.contracts.scalars import format_timestamp, timestamp_ms
from tasc_collector.errors import InputError
from tasc_pipeline.control import engine_v2
from tasc_pipeline.control.decisions.deciding import assess_decision
from tasc_pipeline.control.decisions.from_engine_v2 import report_of
from tasc_pipeline.home.files import write_file
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.windows import DECISION, WindowFolder, window_keys
from tasc_pipeline.steps.approved import ApprovedPlan, load_approved
from tasc_pipeline.steps.close import ClosedWindow, close
from tasc_pipeline.steps.decision_inputs import (
    DecisionMaterial,
    decided_window,
    decision_inputs,
    policies_of,
    read_material,
    rejected_evidence,
)


def assess_decision_window(
    home: Home, approved: ApprovedPlan, closed: ClosedWindow, as_of: str | None, now: datetime
) -> AssessmentReport:
    """The assessment of a window as of an instant; engine v2 also leaves its own decision in the window's folder.

    Args:
        home: the state folder.
        approved: the window's plan with its study.
        closed: what was collected.
        as_of: the instant to assess for; see this module for its default.
        now: the wall clock.

    Raises:
        InputError: the instant is still to come, or no instant for this analysis; or a file is missing or breaks a rule.
        DigestMismatch: a file is not the one that the plan names.
    """
    material = read_material(home, approved, closed, _instant(approved, as_of, now))
    watermark = approved.declaration.record.ingestion_watermark
    if not material.engine_v2 or material.as_of < watermark:
        return assess_decision(decision_inputs(home, material))
    if closed.manifest is not None and material.as_of > watermark:
        raise InputError(
            "engine v2 judges a window as of its watermark only",
            where="--as-of",
            rule=f"the window's manifest names the evidence as it was checked at {watermark}",
            way_out=f"leave --as-of out: tasc assess {approved.window_key}",
        )
    decision = engine_decision(home, material)
    write_file(WindowFolder(home, approved.window_key).path / DECISION, decision.canonical(), replace=True)
    return report_of(
        decision,
        decided_window(material),
        material.protocol.record,
        material.observations,
        as_of=material.as_of,
        analysis_digest=material.analysis.digest,
        cost_model_digest=approved.plan.record.cost_model_digest,
        rejected=rejected_evidence(material),
    )


def engine_decision(home: Home, material: DecisionMaterial) -> AssessmentDecision:
    """The decision of engine v2; a holdout's nomination is made again from its own sources.

    Raises:
        InputError: see ``control.engine_v2``; or there is no nomination.
        DigestMismatch: the manifest was sealed over other sources, or the stored nomination is not what its sources give.
    """
    context = material.evidence.context
    if material.phase == "development":
        # a study's policies are files that were issued with its protocol; a nomination names one of them
        return engine_v2.assess_development(material.table, context, issued_at=material.protocol.record.created_at)
    if material.phase == "holdout":
        return engine_v2.assess_holdout(material.table, context, _nomination(home, material))
    manifest = material.closed.manifest
    assert manifest is not None  # noqa: S101 - windows of online purposes have one
    return engine_v2.assess_window(material.table, context, policies_of(material)[0], manifest)


def _instant(approved: ApprovedPlan, as_of: str | None, now: datetime) -> str:
    at, watermark = format_timestamp(now), approved.declaration.record.ingestion_watermark
    if as_of is None:
        return min(watermark, at)
    try:
        timestamp_ms(as_of)
    except ValueError as error:
        raise InputError(
            "this is no instant", where="--as-of", rule=str(error), way_out="write it like 2026-01-31T09:30:00.000Z"
        ) from None
    if as_of > at:
        raise InputError(
            "this instant is still to come",
            where="--as-of",
            rule=f"it is {at}; evidence may arrive until then",
            way_out=f"leave --as-of out: the default is the watermark, {watermark}",
        )
    return as_of


def _nomination(home: Home, material: DecisionMaterial) -> AssessmentDecision:
    wanted, ring = material.approved.plan.record.policy_digest, material.approved.ring
    for key in window_keys(home):
        folder = WindowFolder(home, key)
        if (
            not folder.has(DECISION)
            or folder.declaration(ring).record.study_id != material.table.sources.terms.protocol.study_id
        ):
            continue
        stored = folder.decision().record
        if stored.phase == "development" and stored.selected_policy_digest == wanted:
            approved = load_approved(home, key)
            as_of = folder.report().record.as_of
            again = read_material(home, approved, close(home, key), as_of)
            return engine_v2.confirmed(engine_decision(home, again), stored)
    raise InputError(
        "no development window nominated the frozen policy",
        where=material.approved.window_key,
        field="policyDigest",
        rule="holdout judges the policy that development nominated",
        way_out="assess the development window first: tasc status",
    )
