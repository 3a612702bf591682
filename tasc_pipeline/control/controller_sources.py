"""From records to facts: what a plan, a manifest or a decision tells a controller (section 3.14). Pure.

Rules:

1. A fact holds digests and instants of a record, never the record. Nothing is added that the record does not say.
2. Only decisive windows move a controller. A window that was declared an observation is refused here, with that reason,
   whatever its purpose; a class is declared before collection and no revision changes it.
3. A decision of phase development tells two facts, in this order: that its evidence is complete, and what was decided.
4. A decision that waits for its watermark is refused (``decided``, rule 4).
5. What an operator alone can know is written by the operator: a deployment somewhere, a drift, the end of the study.
   Such facts are read from his file; facts that follow from records are never taken from a file.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.base import input_error
from tasc_collector.contracts.collection import CollectionPlan
from tasc_collector.contracts.controller_facts import (
    CollectionStarted,
    ControllerFact,
    ControllerRetired,
    DevelopmentAssessment,
    DevelopmentAssessmentRecorded,
    DevelopmentEvidence,
    DevelopmentEvidenceReady,
    HoldoutAssessment,
    HoldoutAssessmentRecorded,
    ProtocolExpiryObserved,
    ProtocolRegistered,
    WindowAssessment,
    WindowAssessmentRecorded,
    WindowManifestRecorded,
    WindowProjection,
)
from tasc_collector.contracts.manifest import WindowManifest
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.window import WindowDeclaration
from tasc_collector.errors import DigestMismatch, InputError, NotAuthorized
from tasc_pipeline.control.controller_table import FactKind
from tasc_pipeline.control.decided import Decided

OPERATOR_FACTS: Final[frozenset[FactKind]] = frozenset(
    ("deployment-observed", "identity-drift-recorded", "protocol-expiry-observed", "controller-retired")
)
"""Rule 5."""
_OPERATOR_FACT: Final[TypeAdapter[ControllerFact]] = TypeAdapter(ControllerFact)


def registration(protocol: ExperimentProtocol) -> ProtocolRegistered:
    """The protocol's registration."""
    return ProtocolRegistered(protocol_created_at=protocol.created_at, protocol_expires_at=protocol.expires_at)


def collection_start(plan: CollectionPlan, declaration: WindowDeclaration) -> CollectionStarted:
    """Collection of development evidence begins with an approved plan of that purpose; its id is the window's key.

    Raises:
        NotAuthorized: the window is an observation, or the plan is for another purpose.
    """
    check_decisive(declaration)
    if plan.purpose != "development":
        raise NotAuthorized(
            f"a plan for {plan.purpose} starts no development collection",
            where=declaration.window_key,
            field="purpose",
            rule="purpose development",
            way_out=f"issue one: tasc plan {declaration.window_key} --purpose development",
        )
    return CollectionStarted(collection_id=declaration.window_key)


def evidence_ready(decision: Decided) -> DevelopmentEvidenceReady:
    """That the evidence of a development decision is complete (rule 3).

    Raises:
        InputError: the decision is of another phase.
        NotAuthorized: it waits for its watermark (rule 4).
    """
    _projection(decision, "development")
    return DevelopmentEvidenceReady(
        evidence=DevelopmentEvidence(
            dataset_digest=decision.dataset_digest,
            trace_set_digest=decision.trace_set_digest,
            evaluator_set_digest=decision.evaluator_set_digest,
        )
    )


def development_assessment(decision: Decided) -> DevelopmentAssessmentRecorded:
    """What was decided on the development evidence.

    Raises:
        InputError: the decision is of another phase.
    """
    return DevelopmentAssessmentRecorded(
        projection=DevelopmentAssessment.model_validate(_projection(decision, "development"))
    )


def holdout_assessment(decision: Decided) -> HoldoutAssessmentRecorded:
    """What was decided on held-out groups.

    Raises:
        InputError: the decision is of another phase.
    """
    return HoldoutAssessmentRecorded(projection=HoldoutAssessment.model_validate(_projection(decision, "holdout")))


def manifest_record(declaration: WindowDeclaration, manifest: WindowManifest) -> WindowManifestRecorded:
    """A sealed window's manifest.

    Raises:
        NotAuthorized: the window is an observation.
        DigestMismatch: declaration and manifest are of two windows.
    """
    check_decisive(declaration)
    _same_window(declaration, manifest)
    return WindowManifestRecorded(
        projection=WindowProjection(
            window_id=manifest.window_id,
            manifest_digest=manifest.self_digest,
            protocol_digest=manifest.protocol_digest,
            frozen_policy_digest=manifest.frozen_policy_digest,
            event_time_start_inclusive=manifest.event_time_start_inclusive,
            event_time_end_exclusive=manifest.event_time_end_exclusive,
            ingestion_watermark=manifest.ingestion_watermark,
            revision=manifest.revision,
            predecessor_manifest_digest=manifest.predecessor_manifest_digest,
            trace_set_digest=manifest.trace_set_digest,
            evaluator_set_digest=manifest.evaluator_set_digest,
            capacity_evidence_digest=manifest.capacity_evidence_digest,
        )
    )


def window_assessment(
    declaration: WindowDeclaration, manifest: WindowManifest, decision: Decided
) -> WindowAssessmentRecorded:
    """What was decided on a sealed window.

    Raises:
        NotAuthorized: the window is an observation.
        InputError: the decision is of another phase or manifest.
    """
    check_decisive(declaration)
    _same_window(declaration, manifest)
    if decision.window_manifest_digest not in (None, manifest.self_digest):
        raise DigestMismatch(
            "the decision is of another manifest",
            where=declaration.window_key,
            field="windowManifestDigest",
            way_out=f"assess the window: tasc assess {declaration.window_key}",
        )
    projection = {
        **_projection(decision, "window"),
        "window_manifest_digest": manifest.self_digest,
    }
    return WindowAssessmentRecorded(
        window_id=manifest.window_id, projection=WindowAssessment.model_validate(projection)
    )


def operator_fact(value: dict[str, Any], *, where: str) -> ControllerFact:  # Any: a JSON object
    """A fact that an operator wrote (rule 5).

    Raises:
        InputError: a field is unknown, missing or wrong, or the fact follows from records.
    """
    try:
        fact = _OPERATOR_FACT.validate_json(canonical_bytes(value), by_alias=True, by_name=False)
    except ValidationError as error:
        raise input_error(error, where=where, value=value) from None
    if fact.kind not in OPERATOR_FACTS:
        raise NotAuthorized(
            f"{fact.kind} follows from records and is not taken from a file",
            where=where,
            field="kind",
            rule=f"one of {', '.join(sorted(OPERATOR_FACTS))}",
            way_out="run tasc controller advance without a file: it reads the records",
        )
    if fact.to_json() != value:
        missing = next(name for name in fact.to_json() if name not in value)
        raise InputError("required field is missing", where=where, field=missing, way_out="add it")
    return fact


def retirement(reason_code: str) -> ControllerRetired:
    """The operator ends the controller."""
    return ControllerRetired(reason_code=reason_code)


def expiry(protocol_expires_at: str) -> ProtocolExpiryObserved:
    """The protocol's end was seen; the same fact whenever it is seen."""
    return ProtocolExpiryObserved(as_of=protocol_expires_at)


def _projection(decision: Decided, phase: str) -> dict[str, Any]:  # Any: fields of a projection
    if decision.phase != phase:
        raise InputError(
            f"the decision is of phase {decision.phase}",
            where=decision.decision_digest,
            field="phase",
            rule=phase,
            way_out=f"name the decision of phase {phase}",
        )
    if decision.waits:
        raise NotAuthorized(
            "the decision was made before its window's watermark and says nothing yet",
            where=decision.decision_digest,
            field="status",
            rule="a controller does not come back from STALE",
            way_out="assess the window again after its watermark: tasc assess KEY",
        )
    return {
        "decision_digest": decision.decision_digest,
        "assessment_context_digest": decision.assessment_context_digest,
        "protocol_digest": decision.protocol_digest,
        "dataset_digest": decision.dataset_digest,
        "trace_set_digest": decision.trace_set_digest,
        "evaluator_set_digest": decision.evaluator_set_digest,
        "selected_policy": decision.selected_policy,
        "status": decision.status,
    }


def check_decisive(declaration: WindowDeclaration) -> None:
    """Rule 2, for facts that name no window themselves.

    Raises:
        NotAuthorized: the window is an observation.
    """
    if declaration.window_class != "decisive":
        raise NotAuthorized(
            "an observation window does not move a controller",
            where=declaration.window_key,
            field="windowClass",
            rule="a window is declared decisive before it is collected",
            way_out=f"seal a decisive one: tasc seal {declaration.study_id} --decisive",
        )


def _same_window(declaration: WindowDeclaration, manifest: WindowManifest) -> None:
    for name in (
        "window_id",
        "revision",
        "protocol_digest",
        "event_time_start_inclusive",
        "event_time_end_exclusive",
        "ingestion_watermark",
    ):
        if getattr(declaration, name) != getattr(manifest, name):
            raise DigestMismatch(
                "the manifest is not of the declared window",
                where=declaration.window_key,
                field=name,
                way_out=f"run: tasc verify {declaration.window_key}",
            )
