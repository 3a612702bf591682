"""The original authors' example study through import, join, assessment, controller and proposal, every number compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.cli_files import AssessmentWorkBudget
from tasc_collector.contracts.context import AssessmentContext
from tasc_collector.contracts.controller import ControllerSnapshot
from tasc_collector.contracts.controller_facts import CollectionStarted, ShadowAssessmentStarted
from tasc_collector.contracts.decision import AssessmentDecision
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.evidence import EvaluatorEvidence
from tasc_collector.contracts.evidence_trust import check_evidence
from tasc_collector.contracts.manifest import WindowManifest
from tasc_collector.contracts.proposal import ExperimentBudget, ExperimentHistory, ProposedExperiment
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.trust_snapshot import EvaluatorTrustSnapshot
from tasc_collector.errors import DigestMismatch, InputError
from tasc_collector.wire.records import read_ndjson_records, read_record, read_record_file
from tasc_pipeline.control.controller import extend
from tasc_pipeline.control.controller_sources import development_assessment, evidence_ready, registration
from tasc_pipeline.control.decided import of_decision
from tasc_pipeline.control.engine_v2 import (
    Table,
    assess_development,
    assess_holdout,
    assess_window,
    confirmed,
    table_of,
)
from tasc_pipeline.control.engine_v2_dataset import Sources
from tasc_pipeline.control.proposals import propose
from tasc_pipeline.control.trace_checks import ProtocolTerms

INTEROP = Path(__file__).resolve().parents[3] / "shared" / "interop"

pytestmark = pytest.mark.skipif(not INTEROP.is_dir(), reason="the interop files are not beside this repository")


@pytest.fixture(scope="module")
def protocol() -> Parsed[ExperimentProtocol]:
    return read_record_file(ExperimentProtocol, INTEROP / "protocol.json")


@pytest.fixture(scope="module")
def manifest() -> WindowManifest:
    return read_record_file(WindowManifest, INTEROP / "window-manifest.json").record


@pytest.fixture(scope="module")
def published() -> ControllerSnapshot:
    return read_record_file(ControllerSnapshot, INTEROP / "controller-snapshot.json").record


def sources(name: str, protocol: Parsed[ExperimentProtocol]) -> tuple[Sources, AssessmentContext]:
    snapshot = read_record_file(EvaluatorTrustSnapshot, INTEROP / "trust-snapshot.json").record
    context = read_record_file(AssessmentContext, INTEROP / f"{name}-context.json").record
    evidence = read_ndjson_records(EvaluatorEvidence, INTEROP / f"{name}-evidence.ndjson")
    receipts = [check_evidence(item, snapshot, context) for item in evidence]
    traces = list(read_ndjson_records(TraceEnvelope, INTEROP / f"{name}-traces.ndjson"))
    return Sources(ProtocolTerms.of(protocol), traces, receipts, snapshot), context


@pytest.fixture(scope="module")
def development(protocol: Parsed[ExperimentProtocol]) -> tuple[Table, AssessmentContext]:
    found, context = sources("development", protocol)
    return table_of(found), context


@pytest.fixture(scope="module")
def nomination(development: tuple[Table, AssessmentContext]) -> AssessmentDecision:
    return assess_development(*development)


@pytest.fixture(scope="module")
def window(
    protocol: Parsed[ExperimentProtocol], nomination: AssessmentDecision, manifest: WindowManifest
) -> AssessmentDecision:
    found, context = sources("online", protocol)
    assert nomination.selected_policy is not None
    return assess_window(table_of(found), context, nomination.selected_policy, manifest)


def test_the_joined_table_is_the_published_one(
    development: tuple[Table, AssessmentContext], published: ControllerSnapshot
) -> None:
    evidence, dataset = published.development_evidence, development[0].dataset
    assert evidence is not None
    assert dataset.digest == evidence.dataset_digest
    assert dataset.trace_set_digest == evidence.trace_set_digest
    assert dataset.evaluator_set_digest == evidence.evaluator_set_digest


def test_development_nominates_by_the_published_decision(
    nomination: AssessmentDecision, published: ControllerSnapshot
) -> None:
    (recorded,) = published.assessments
    assert nomination.status == recorded.status == "NOMINATED"
    assert nomination.decision_digest == recorded.decision_digest
    assert nomination.assessment_context_digest == recorded.assessment_context_digest
    assert recorded.selected_policy is not None
    assert nomination.selected_policy_digest == recorded.selected_policy.policy_digest


def test_development_figures(nomination: AssessmentDecision) -> None:
    cascade, fast = nomination.candidates
    assert (cascade.policy.kind, cascade.status) == ("cascade", "PASS")
    assert cascade.inference is not None
    # two cases differ by -0.02, two go to the champion and differ by 0
    assert cascade.inference.estimate == pytest.approx(-0.01, abs=1e-15)
    assert (cascade.inference.interval.lo, cascade.inference.seed) == (-0.015000000000000013, 3191464213)
    assert [row.cost_usd for row in cascade.replay] == [0.002, 0.002, 0.01, 0.01]
    assert {gate.id: gate.actual for gate in cascade.gates} == {
        "paired-quality": -0.015000000000000013,
        "minimum-mean-score": 0.965,
        "maximum-failure-rate": 0.0,
        "maximum-p95-ttft": 100.0,
        "maximum-p95-end-to-end": 500.0,
        "maximum-cost-per-thousand": 6.0,
        "minimum-evidence-coverage": 1.0,
        "minimum-independent-groups": 4.0,
        "minimum-critical-slice-groups:account-recovery": 2.0,
    }
    assert (fast.policy.kind, fast.status) == ("fast-only", "HOLD")
    assert fast.rejection_reasons == ("failed-gate:minimum-mean-score", "failed-gate:paired-quality")
    assert nomination.warnings == ("service-capacity-gate-deferred-to-sealed-window",)
    assert nomination.unavailable_metrics == ("serviceCapacity",)


def test_the_window_lacks_capacity_and_nothing_else(window: AssessmentDecision, manifest: WindowManifest) -> None:
    (candidate,) = window.candidates
    assert window.status == candidate.status == "INSUFFICIENT_EVIDENCE"
    assert candidate.insufficiency_reasons == ("required-service-capacity-unavailable",)
    assert [gate.id for gate in candidate.gates if not gate.passed] == ["paired-quality", "minimum-service-capacity"]
    assert candidate.inference is None
    assert window.window_manifest_digest == manifest.self_digest
    assert window.trace_set_digest == manifest.trace_set_digest
    assert window.evaluator_set_digest == manifest.evaluator_set_digest
    # published policy: two cases stay (0.94, 0.95), two go to the champion (0.99, 0.98)
    assert candidate.metrics.mean_score.value == pytest.approx((0.94 + 0.95 + 0.99 + 0.98) / 4, abs=1e-15)


def test_a_decision_is_read_back_from_its_bytes(window: AssessmentDecision, nomination: AssessmentDecision) -> None:
    for decision in (window, nomination):
        assert read_record(AssessmentDecision, decision.canonical()).record == decision
    assert confirmed(nomination, nomination) is nomination
    with pytest.raises(DigestMismatch, match="not what its sources give"):
        confirmed(nomination, window)


def test_the_order_of_the_sources_changes_nothing(
    protocol: Parsed[ExperimentProtocol], nomination: AssessmentDecision
) -> None:
    found, context = sources("development", protocol)
    turned = Sources(found.terms, list(found.traces)[::-1], list(found.receipts)[::-1], found.snapshot)
    assert assess_development(table_of(turned), context) == nomination


def test_development_traces_are_neither_holdout_nor_window(
    development: tuple[Table, AssessmentContext], nomination: AssessmentDecision, manifest: WindowManifest
) -> None:
    table, context = development
    with pytest.raises(InputError, match="takes traces of the split holdout only"):
        assess_holdout(table, context, nomination)
    assert nomination.selected_policy is not None
    with pytest.raises(DigestMismatch, match="sealed over other sources"):
        assess_window(table, context, nomination.selected_policy, manifest)


def test_the_published_work_budget_covers_it(development: tuple[Table, AssessmentContext]) -> None:
    budget = read_record_file(AssessmentWorkBudget, INTEROP / "work-budget.json").record
    rows = development[0].rows
    assert len(rows) <= budget.max_trace_rows
    assert rows.units * 2 == len(rows) == 8


def test_the_decision_moves_the_controller_as_published(
    nomination: AssessmentDecision, published: ControllerSnapshot, protocol: Parsed[ExperimentProtocol]
) -> None:
    terms = protocol.record
    snapshot = ControllerSnapshot.genesis(
        controller_id=published.controller_id,
        study_id=terms.study_id,
        protocol_digest=terms.digest,
        created_at=terms.created_at,
        expires_at=terms.expires_at,
    )
    assert published.collection_id is not None and published.last_event_at is not None
    assert nomination.selected_policy is not None
    as_of = nomination.selected_policy.issued_at
    for fact, at in (
        (registration(terms), terms.created_at),
        (CollectionStarted(collection_id=published.collection_id), terms.created_at),
        (evidence_ready(of_decision(nomination)), as_of),
        (development_assessment(of_decision(nomination)), as_of),
        (
            ShadowAssessmentStarted(frozen_policy_digest=nomination.selected_policy.policy_digest),
            published.last_event_at,
        ),
    ):
        snapshot = extend(snapshot, fact, at).snapshot
    reached, wanted = snapshot.to_json(), published.to_json()
    assert reached["state"] == "SHADOW_ASSESSING"
    # instants of the first events are not published, and an event's id covers its instant
    assert {name for name in wanted if wanted[name] != reached[name]} == {"lastEventId", "snapshotDigest"}
    same = {**reached, "lastEventId": published.last_event_id}
    assert ControllerSnapshot.digest_of(same) == published.snapshot_digest


def test_the_next_experiment_is_about_unavailable_capacity(
    window: AssessmentDecision, protocol: Parsed[ExperimentProtocol]
) -> None:
    history = read_record_file(ExperimentHistory, INTEROP / "experiment-history.json").record
    budget = read_record_file(ExperimentBudget, INTEROP / "experiment-budget.json").record
    found = propose(of_decision(window), history, budget)
    assert isinstance(found, ProposedExperiment)
    assert (found.status, found.diagnosis) == ("PROPOSED", "unavailable-capacity")
    assert (found.changed_variable.kind, found.changed_variable.target_id) == (
        "capacity-observation",
        "nominated-window",
    )
    assert [item.kind for item in found.evidence_requirements] == ["exact-policy-capacity-evidence"]
    assert found.parent_assessment_digest == window.decision_digest
    assert found.parent_protocol_digest == protocol.record.digest
