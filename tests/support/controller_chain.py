"""A controller's facts written by hand, one helper per kind, and the walk to each state."""

from __future__ import annotations

from typing import Any

from tasc_collector.contracts.controller import ControllerSnapshot
from tasc_collector.contracts.controller_facts import (
    CollectionStarted,
    ControllerFact,
    ControllerRetired,
    DeploymentObservation,
    DeploymentObserved,
    DevelopmentAssessment,
    DevelopmentAssessmentRecorded,
    DevelopmentEvidence,
    DevelopmentEvidenceReady,
    HoldoutAssessment,
    HoldoutAssessmentRecorded,
    IdentityDriftRecorded,
    ProtocolExpiryObserved,
    ProtocolRegistered,
    SelectedPolicy,
    ShadowAssessmentStarted,
    WindowAssessment,
    WindowAssessmentRecorded,
    WindowManifestRecorded,
    WindowProjection,
)
from tasc_pipeline.control.controller import extend

CREATED, EXPIRES = "2026-07-20T00:00:00.000Z", "2026-09-01T00:00:00.000Z"
AT = "2026-07-25T00:00:00.000Z"
"""When every fact of a walk is recorded: after the watermark of ``window``'s windows."""


def d(number: int) -> str:
    """A digest that is told from others."""
    return f"sha256:{number:064x}"


PROTOCOL, POLICY_DIGEST, CONTEXT = d(1), d(2), d(3)
POLICY = SelectedPolicy(policy_digest=POLICY_DIGEST, issued_at="2026-07-22T00:00:00.000Z", expires_at=EXPIRES)
EVIDENCE = DevelopmentEvidence(dataset_digest=d(4), trace_set_digest=d(5), evaluator_set_digest=d(6))


def genesis(**changes: str) -> ControllerSnapshot:
    """The empty DRAFT."""
    fields = {
        "controller_id": "study-controller",
        "study_id": "study",
        "protocol_digest": PROTOCOL,
        "created_at": CREATED,
        "expires_at": EXPIRES,
    }
    return ControllerSnapshot.genesis(**{**fields, **changes})


def _assessment(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "decision_digest": d(number),
        "assessment_context_digest": CONTEXT,
        "protocol_digest": PROTOCOL,
        "dataset_digest": d(4),
        "trace_set_digest": d(5),
        "evaluator_set_digest": d(6),
        "selected_policy": POLICY,
        **changes,
    }


def registered() -> ProtocolRegistered:
    """The protocol's registration."""
    return ProtocolRegistered(protocol_created_at=CREATED, protocol_expires_at=EXPIRES)


def development(status: str = "NOMINATED", number: int = 10, **changes: Any) -> DevelopmentAssessmentRecorded:
    """A development decision."""
    policy = POLICY if status == "NOMINATED" else None
    fields = _assessment(number, **{"selected_policy": policy, **changes})
    return DevelopmentAssessmentRecorded(projection=DevelopmentAssessment(status=status, **fields))  # type: ignore[arg-type]  # a status as text


def holdout(status: str = "PASS", number: int = 11, **changes: Any) -> HoldoutAssessmentRecorded:
    """A holdout decision."""
    return HoldoutAssessmentRecorded(projection=HoldoutAssessment(status=status, **_assessment(number, **changes)))  # type: ignore[arg-type]  # a status as text


def manifest(revision: int = 1, window_id: str = "window-1", **changes: Any) -> WindowManifestRecorded:
    """A window's manifest in one revision."""
    base = int.from_bytes(window_id.encode(), "big") % 1_000_000 * 1000
    fields: dict[str, Any] = {
        "window_id": window_id,
        "manifest_digest": d(base + revision),
        "protocol_digest": PROTOCOL,
        "frozen_policy_digest": POLICY_DIGEST,
        "event_time_start_inclusive": "2026-07-23T00:00:00.000Z",
        "event_time_end_exclusive": "2026-07-23T01:00:00.000Z",
        "ingestion_watermark": "2026-07-23T02:00:00.000Z",
        "revision": revision,
        "predecessor_manifest_digest": None if revision == 1 else d(base + revision - 1),
        "trace_set_digest": d(base + revision),
        "evaluator_set_digest": d(6),
        "capacity_evidence_digest": d(7),
    }
    return WindowManifestRecorded(projection=WindowProjection(**{**fields, **changes}))


def window(
    status: str = "PASS", number: int = 12, revision: int = 1, window_id: str = "window-1", **changes: Any
) -> WindowAssessmentRecorded:
    """A decision on a window's revision."""
    sealed = manifest(revision, window_id).projection
    fields = _assessment(
        number, trace_set_digest=sealed.trace_set_digest, window_manifest_digest=sealed.manifest_digest
    )
    return WindowAssessmentRecorded(
        window_id=window_id,
        projection=WindowAssessment(status=status, **{**fields, **changes}),  # type: ignore[arg-type]  # a status as text
    )


def deployed(**changes: Any) -> DeploymentObserved:
    """Somebody deployed the policy."""
    fields = {
        "observation_id": "seen",
        "environment_id": "production",
        "policy_digest": POLICY_DIGEST,
        "observed_at": "2026-07-24T00:00:00.000Z",
    }
    return DeploymentObserved(observation=DeploymentObservation(**{**fields, **changes}))


def drift(reason: str = "evaluator-changed") -> IdentityDriftRecorded:
    """Something is no longer what the study fixed."""
    return IdentityDriftRecorded(scope="evaluator", expected_digest=d(8), observed_digest=d(9), reason_code=reason)


def expired(as_of: str = EXPIRES) -> ProtocolExpiryObserved:
    """The protocol's validity ended."""
    return ProtocolExpiryObserved(as_of=as_of)


RETIRED = ControllerRetired(reason_code="replaced")
STARTED = CollectionStarted(collection_id="collection-1")
READY = DevelopmentEvidenceReady(evidence=EVIDENCE)
SHADOW = ShadowAssessmentStarted(frozen_policy_digest=POLICY_DIGEST)

_TO_SHADOW: tuple[ControllerFact, ...] = (registered(), STARTED, READY, development(), SHADOW)
_TO_RECOMMENDED = (*_TO_SHADOW, holdout(), manifest(), window())
WALKS: dict[str, tuple[ControllerFact, ...]] = {
    "DRAFT": (),
    "REGISTERED": _TO_SHADOW[:1],
    "COLLECTING": _TO_SHADOW[:2],
    "DEV_READY": _TO_SHADOW[:3],
    "NOMINATED": _TO_SHADOW[:4],
    "SHADOW_ASSESSING": _TO_SHADOW,
    "HOLDOUT_CONFIRMED": (*_TO_SHADOW, holdout(), manifest()),
    "PROMOTION_RECOMMENDED": _TO_RECOMMENDED,
    "MONITORING": (*_TO_RECOMMENDED, deployed()),
    "HOLD": (*_TO_SHADOW[:3], development("NO_CANDIDATE")),
    "STALE": (*_TO_SHADOW[:3], development("STALE")),
    "ROLLBACK_RECOMMENDED": (*_TO_RECOMMENDED, deployed(), manifest(2), window("HOLD", 13, 2)),
    "RETIRED": (*_TO_SHADOW[:1], RETIRED),
}
"""Facts that lead to each state."""


def walk(*facts: ControllerFact, at: str = AT) -> ControllerSnapshot:
    """The snapshot after facts, all recorded at one instant."""
    snapshot = genesis()
    for fact in facts:
        snapshot = extend(snapshot, fact, at).snapshot
    return snapshot


def reached(state: str) -> ControllerSnapshot:
    """A snapshot in a state."""
    return walk(*WALKS[state])
