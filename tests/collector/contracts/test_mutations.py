"""Each field of each of the original's records that the example study has no file of: removed, retyped, joined."""

from __future__ import annotations

from typing import Any

import pytest

from tasc_collector.contracts.controller import ControllerAnchor, ControllerEvent, ControllerSnapshot, fact_digest
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
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.policy import PolicyBundle
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.shadow_plan import ShadowRunPlan
from tests.support.mutations import check_every_field

Value = dict[str, Any]
D = "sha256:" + "1" * 64


def test_protocol(protocol_value: Value) -> None:
    check_every_field(ExperimentProtocol, protocol_value)


def test_trace(trace_value: Value) -> None:
    check_every_field(TraceEnvelope, trace_value)


def test_plan_and_policy(plan_value: Value) -> None:
    check_every_field(ShadowRunPlan, plan_value, untouched={"protocol", "controllerSnapshot", "frozenPolicy"})
    check_every_field(PolicyBundle, plan_value["frozenPolicy"])


_POLICY = SelectedPolicy(policy_digest=D, issued_at="2026-07-21T00:00:00.000Z", expires_at="2026-09-01T00:00:00.000Z")
_SETS = {"dataset_digest": D, "trace_set_digest": D, "evaluator_set_digest": D}
_PROJECTION = {"decision_digest": D, "assessment_context_digest": D, "protocol_digest": D, **_SETS}
FACTS: tuple[ControllerFact, ...] = (
    ProtocolRegistered(protocol_created_at="2026-07-20T00:00:00.000Z", protocol_expires_at="2026-09-01T00:00:00.000Z"),
    CollectionStarted(collection_id="collection"),
    DevelopmentEvidenceReady(evidence=DevelopmentEvidence(**_SETS)),
    DevelopmentAssessmentRecorded(
        projection=DevelopmentAssessment(**_PROJECTION, selected_policy=_POLICY, status="NOMINATED")
    ),
    ShadowAssessmentStarted(frozen_policy_digest=D),
    HoldoutAssessmentRecorded(projection=HoldoutAssessment(**_PROJECTION, selected_policy=_POLICY, status="PASS")),
    WindowManifestRecorded(
        projection=WindowProjection(
            window_id="window", manifest_digest=D, protocol_digest=D, frozen_policy_digest=D,
            event_time_start_inclusive="2026-07-23T00:00:00.000Z", event_time_end_exclusive="2026-07-23T01:00:00.000Z",
            ingestion_watermark="2026-07-23T02:00:00.000Z", revision=1, predecessor_manifest_digest=None,
            trace_set_digest=D, evaluator_set_digest=D, capacity_evidence_digest=D,
        )
    ),
    WindowAssessmentRecorded(
        window_id="window",
        projection=WindowAssessment(
            **_PROJECTION, selected_policy=_POLICY, status="HOLD", window_manifest_digest=D
        ),
    ),
    IdentityDriftRecorded(scope="policy", expected_digest=D, observed_digest="sha256:" + "2" * 64, reason_code="drift"),
    ProtocolExpiryObserved(as_of="2026-09-01T00:00:00.000Z"),
    ControllerRetired(reason_code="replaced"),
)  # fmt: skip


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.kind)
def test_event_of_each_fact(fact: ControllerFact) -> None:
    event = ControllerEvent.issue(
        controller_id="controller", study_id="study", protocol_digest=D, sequence=9, predecessor_event_id=D,
        occurred_at="2026-07-24T00:00:00.000Z", fact=fact, fact_digest=fact_digest(fact),
    )  # fmt: skip
    check_every_field(ControllerEvent, event.to_json())


def test_snapshot_and_anchor() -> None:
    genesis = ControllerSnapshot.genesis(
        controller_id="controller", study_id="study", protocol_digest=D, created_at="2026-07-20T00:00:00.000Z",
        expires_at="2026-09-01T00:00:00.000Z",
    )  # fmt: skip
    check_every_field(ControllerSnapshot, genesis.to_json())
    anchor = ControllerAnchor(
        controller_id="controller", study_id="study", protocol_digest=D, sequence=3, last_event_id=D, snapshot_digest=D
    )
    check_every_field(ControllerAnchor, anchor.to_json())
    check_every_field(ControllerAnchor, genesis.anchor.to_json())


def test_event() -> None:
    seen = DeploymentObservation(
        observation_id="seen", environment_id="production", policy_digest=D, observed_at="2026-07-24T00:00:00.000Z"
    )
    fact = DeploymentObserved(observation=seen)
    event = ControllerEvent.issue(
        controller_id="controller", study_id="study", protocol_digest=D, sequence=9, predecessor_event_id=D,
        occurred_at="2026-07-24T00:00:00.000Z", fact=fact, fact_digest=fact_digest(fact),
    )  # fmt: skip
    check_every_field(ControllerEvent, event.to_json())


@pytest.mark.parametrize("name", ["version", "dispatchIntent.version", "terminalOutputId.algorithm"])
def test_a_default_in_python_is_no_default_in_a_file(trace_value: Value, name: str) -> None:
    value: Any = trace_value
    *parents, last = name.split(".")
    for part in parents:
        value = value[part]
    del value[last]
    with pytest.raises(Exception, match="required field is missing"):
        TraceEnvelope.from_value(trace_value)
