"""Why the controller does not take a fact: the rules that a row of the table does not show (section 3.14). Pure.

Each function yields conditions with their rules in order; the first that does not hold is the answer. ``_common`` does
not look into the fact, ``_STANDING`` asks what must be there already, ``_CONTENT`` compares a fact with the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from tasc_collector.contracts.controller import ControllerSnapshot
from tasc_collector.contracts.controller_facts import (
    AssessmentProjection,
    ControllerFact,
    DeploymentObserved,
    DevelopmentAssessmentRecorded,
    HoldoutAssessmentRecorded,
    IdentityDriftRecorded,
    ProtocolExpiryObserved,
    ProtocolRegistered,
    ShadowAssessmentStarted,
    WindowAssessmentRecorded,
    WindowManifestRecorded,
    WindowProjection,
)
from tasc_collector.limits import (
    MAX_CONTROLLER_ASSESSMENTS,
    MAX_CONTROLLER_EVENTS,
    MAX_CONTROLLER_WINDOW_REVISIONS,
    MAX_CONTROLLER_WINDOWS,
)
from tasc_pipeline.control.controller_table import AFTER_EXPIRY, FactKind, either, taken_in

MAX_STALE_REASONS: Final = 64
"""As the snapshot's contract has it."""

Checks: TypeAlias = Iterator[tuple[bool, str]]
"""Conditions with their rules, in order; the first that does not hold is the answer."""


def first_broken(checks: Checks) -> str | None:
    """The first rule that does not hold."""
    return next((rule for holds, rule in checks if not holds), None)


def kind_refusal(snapshot: ControllerSnapshot, kind: FactKind, at: str) -> str | None:
    """Why no fact of a kind is taken now, whatever its content; None where one may be."""
    return first_broken(_common(snapshot, kind, at)) or first_broken(_STANDING.get(kind, _nothing)(snapshot, at))


def content_refusal(snapshot: ControllerSnapshot, fact: ControllerFact, at: str) -> str | None:
    """Why a fact of a kind that may be taken is not; None where it is."""
    return first_broken(_CONTENT[fact.kind](snapshot, fact, at))


def _common(snapshot: ControllerSnapshot, kind: FactKind, at: str) -> Checks:
    yield snapshot.state != "RETIRED", "a retired controller takes nothing more"
    states = taken_in(kind)
    yield snapshot.state in states, f"{kind} is taken in {either(states)}; the controller is in {snapshot.state}"
    yield (
        at >= snapshot.protocol_created_at,
        f"nothing happens before the protocol's creation at {snapshot.protocol_created_at}",
    )
    last = snapshot.last_event_at
    yield last is None or at >= last, f"time does not go back: the last event was at {last}"
    if kind not in AFTER_EXPIRY:
        expiry, policy = snapshot.protocol_expires_at, snapshot.selected_policy
        yield at < expiry, f"the protocol expired at {expiry}: only drift, expiry and retirement are taken"
        if policy is not None:
            yield at < policy.expires_at, f"the selected policy expired at {policy.expires_at}"
    yield snapshot.sequence < MAX_CONTROLLER_EVENTS, f"a controller has at most {MAX_CONTROLLER_EVENTS} events"


def _nothing(_snapshot: ControllerSnapshot, _at: str) -> Checks:
    yield from ()


def _window_to_assess(snapshot: ControllerSnapshot, _at: str) -> Checks:
    yield bool(snapshot.windows), "a window's manifest is recorded before its assessment; none was"
    yield from _room_for_assessment(snapshot)


def _room_for_assessment(snapshot: ControllerSnapshot) -> Checks:
    yield (
        len(snapshot.assessments) < MAX_CONTROLLER_ASSESSMENTS,
        f"a controller has at most {MAX_CONTROLLER_ASSESSMENTS} assessments",
    )


def _expired(snapshot: ControllerSnapshot, at: str) -> Checks:
    yield at >= snapshot.protocol_expires_at, f"the protocol does not expire before {snapshot.protocol_expires_at}"


_STANDING: Final[Mapping[FactKind, Callable[[ControllerSnapshot, str], Checks]]] = {
    "window-assessment-recorded": _window_to_assess,
    "protocol-expiry-observed": _expired,
}
"""What must hold already, whatever the fact's content."""


def _protocol_registered(snapshot: ControllerSnapshot, fact: ProtocolRegistered, _at: str) -> Checks:
    yield (
        (fact.protocol_created_at, fact.protocol_expires_at)
        == (snapshot.protocol_created_at, snapshot.protocol_expires_at),
        "the validity that is registered is the protocol's",
    )


def _any_content(_snapshot: ControllerSnapshot, _fact: ControllerFact, _at: str) -> Checks:
    yield from ()


def _of_protocol(snapshot: ControllerSnapshot, projection: AssessmentProjection) -> Checks:
    yield projection.protocol_digest == snapshot.protocol_digest, "the assessment is of the controller's protocol"
    yield (
        projection.decision_digest not in {item.decision_digest for item in snapshot.assessments},
        "a decision is recorded once",
    )
    yield from _room_for_assessment(snapshot)


def _development(snapshot: ControllerSnapshot, fact: DevelopmentAssessmentRecorded, at: str) -> Checks:
    projection, evidence = fact.projection, snapshot.development_evidence
    yield from _of_protocol(snapshot, projection)
    yield (
        evidence is not None
        and (projection.dataset_digest, projection.trace_set_digest, projection.evaluator_set_digest)
        == (evidence.dataset_digest, evidence.trace_set_digest, evidence.evaluator_set_digest),
        "the assessment is of the development evidence that was announced",
    )
    policy = projection.selected_policy
    if policy is not None:
        yield policy.issued_at >= snapshot.protocol_created_at, "the policy is issued within the protocol's validity"
        yield policy.expires_at == snapshot.protocol_expires_at, "the policy expires with the protocol"
        yield policy.issued_at <= at, "a policy is not recorded before it is issued"


def _shadow_started(snapshot: ControllerSnapshot, fact: ShadowAssessmentStarted, _at: str) -> Checks:
    policy = snapshot.selected_policy
    yield (
        policy is not None and fact.frozen_policy_digest == policy.policy_digest,
        "the frozen policy is the one that was nominated",
    )


def _holdout(snapshot: ControllerSnapshot, fact: HoldoutAssessmentRecorded, _at: str) -> Checks:
    yield from _of_protocol(snapshot, fact.projection)
    yield fact.projection.selected_policy == snapshot.selected_policy, "the assessment is of the nominated policy"


def _manifest(snapshot: ControllerSnapshot, fact: WindowManifestRecorded, at: str) -> Checks:
    new, policy = fact.projection, snapshot.selected_policy
    recorded = {item.manifest_digest for ledger in snapshot.windows for item in ledger.revisions}
    ledger = next((item for item in snapshot.windows if item.window_id == new.window_id), None)
    yield new.protocol_digest == snapshot.protocol_digest, "the manifest is of the controller's protocol"
    yield (
        policy is not None and new.frozen_policy_digest == policy.policy_digest,
        "the manifest is of the policy that was nominated",
    )
    yield (
        snapshot.protocol_created_at <= new.event_time_start_inclusive
        and new.ingestion_watermark < snapshot.protocol_expires_at,
        "the window lies within the protocol's validity",
    )
    yield new.manifest_digest not in recorded, "a manifest is recorded once"
    yield at >= new.ingestion_watermark, f"a manifest is not recorded before its watermark at {new.ingestion_watermark}"
    yield (
        len(recorded) < MAX_CONTROLLER_WINDOW_REVISIONS,
        f"a controller has at most {MAX_CONTROLLER_WINDOW_REVISIONS} manifests",
    )
    if ledger is None:
        yield new.revision == 1, "the first manifest of a window is revision 1"
        yield (
            len(snapshot.windows) < MAX_CONTROLLER_WINDOWS,
            f"a controller has at most {MAX_CONTROLLER_WINDOWS} windows",
        )
    else:
        yield from _revision(ledger.revisions[-1], new)


def _revision(before: WindowProjection, new: WindowProjection) -> Checks:
    yield new.revision == before.revision + 1, f"the next revision of this window is {before.revision + 1}"
    yield new.predecessor_manifest_digest == before.manifest_digest, "a revision names the manifest before it"
    yield (
        (before.event_time_start_inclusive, before.event_time_end_exclusive)
        == (new.event_time_start_inclusive, new.event_time_end_exclusive),
        "a revision keeps the window's bounds",
    )
    yield new.ingestion_watermark >= before.ingestion_watermark, "a revision never moves the watermark back"
    yield (
        (before.trace_set_digest, before.evaluator_set_digest, before.capacity_evidence_digest)
        != (new.trace_set_digest, new.evaluator_set_digest, new.capacity_evidence_digest),
        "a revision changes a source or the capacity",
    )


def _window(snapshot: ControllerSnapshot, fact: WindowAssessmentRecorded, _at: str) -> Checks:
    projection = fact.projection
    ledger = next((item for item in snapshot.windows if item.window_id == fact.window_id), None)
    yield ledger is not None, "a window's manifest is recorded before its assessment"
    yield from _of_protocol(snapshot, projection)
    yield projection.selected_policy == snapshot.selected_policy, "the assessment is of the nominated policy"
    newest = ledger.revisions[-1] if ledger is not None else None
    yield (
        newest is not None and projection.window_manifest_digest == newest.manifest_digest,
        "the assessment is of the window's newest revision",
    )
    yield (
        newest is not None
        and (projection.trace_set_digest, projection.evaluator_set_digest)
        == (newest.trace_set_digest, newest.evaluator_set_digest),
        "the assessment is of exactly the manifest's source sets",
    )


def _deployment(snapshot: ControllerSnapshot, fact: DeploymentObserved, at: str) -> Checks:
    seen, policy = fact.observation, snapshot.selected_policy
    yield (
        policy is not None and seen.policy_digest == policy.policy_digest,
        "the policy that was seen is the nominated one",
    )
    yield seen.observed_at >= snapshot.protocol_created_at, "it was seen within the protocol's validity"
    yield seen.observed_at <= at, "an observation is not recorded before it is made"


def _drift(snapshot: ControllerSnapshot, fact: IdentityDriftRecorded, _at: str) -> Checks:
    known = snapshot.stale_reasons
    yield (
        fact.reason_code in known or len(known) < MAX_STALE_REASONS,
        f"a controller has at most {MAX_STALE_REASONS} reasons to be stale",
    )


def _expiry(snapshot: ControllerSnapshot, fact: ProtocolExpiryObserved, at: str) -> Checks:
    yield from _expired(snapshot, fact.as_of)
    yield fact.as_of <= at, "an expiry is not recorded before it is seen"
    yield (
        "protocol-expired" in snapshot.stale_reasons or len(snapshot.stale_reasons) < MAX_STALE_REASONS,
        f"a controller has at most {MAX_STALE_REASONS} reasons to be stale",
    )


_CONTENT: Final[Mapping[FactKind, Callable[[ControllerSnapshot, Any, str], Checks]]] = {  # Any: the kind's own class
    "protocol-registered": _protocol_registered,
    "collection-started": _any_content,
    "development-evidence-ready": _any_content,
    "development-assessment-recorded": _development,
    "shadow-assessment-started": _shadow_started,
    "holdout-assessment-recorded": _holdout,
    "window-manifest-recorded": _manifest,
    "window-assessment-recorded": _window,
    "deployment-observed": _deployment,
    "identity-drift-recorded": _drift,
    "protocol-expiry-observed": _expiry,
    "controller-retired": _any_content,
}
"""By kind of fact."""
