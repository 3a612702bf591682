"""The original project's example study: files parse, digests inside are derived again, signatures verify."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.base import Parsed, Record
from tasc_collector.contracts.catalogue import record_class
from tasc_collector.contracts.cli_files import AssessmentWorkBudget, ShadowProfilesFile
from tasc_collector.contracts.context import AssessmentContext
from tasc_collector.contracts.controller import ControllerSnapshot
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.evidence import EvaluatorEvidence
from tasc_collector.contracts.evidence_trust import EvidenceStatus, check_evidence
from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.manifest import WindowManifest
from tasc_collector.contracts.membership import membership_digest
from tasc_collector.contracts.policy import policy_conflict, policy_space
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.sets import evaluator_set_digest, trace_set_digest
from tasc_collector.contracts.shadow_plan import ShadowRunPlan
from tasc_collector.contracts.trust_policy import CollectorTrustPolicy
from tasc_collector.contracts.trust_snapshot import EvaluatorTrustSnapshot
from tasc_collector.contracts.verification import StudyTerms, verify_trace
from tasc_collector.shadow.membership import exclusion, group_split
from tasc_collector.wire.records import read_ndjson_records, read_record_file
from tests.support.mutations import check_every_field

INTEROP = Path(__file__).resolve().parents[3] / "shared" / "interop"
FILES = sorted(INTEROP.glob("*.json")) + sorted(INTEROP.glob("*.ndjson"))
LIMITS = ("maxRequestBytes", "maxResponseBytes", "deadlineMs")
TRACE_FILES = sorted(INTEROP.glob("*-traces.ndjson"))

pytestmark = pytest.mark.skipif(not FILES, reason="the interop files are not beside this repository")


def _class(path: Path) -> type[Record]:
    if path.name == "work-budget.json":  # the one file without a schema id
        return AssessmentWorkBudget
    return record_class(
        json.loads(path.read_bytes().splitlines()[0] if path.suffix == ".ndjson" else path.read_bytes())
    )


def _records(path: Path) -> list[Parsed[Record]]:
    cls = _class(path)
    return [*read_ndjson_records(cls, path)] if path.suffix == ".ndjson" else [read_record_file(cls, path)]


@pytest.fixture(scope="module")
def protocol() -> Parsed[ExperimentProtocol]:
    return read_record_file(ExperimentProtocol, INTEROP / "protocol.json")


@pytest.fixture(scope="module")
def plan() -> ShadowRunPlan:
    return read_record_file(ShadowRunPlan, INTEROP / "shadow-run-plan.json").record


@pytest.fixture(scope="module")
def manifest() -> WindowManifest:
    return read_record_file(WindowManifest, INTEROP / "window-manifest.json").record


@pytest.fixture(scope="module")
def snapshot() -> EvaluatorTrustSnapshot:
    return read_record_file(EvaluatorTrustSnapshot, INTEROP / "trust-snapshot.json").record


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_parses_and_its_model_says_the_same(path: Path) -> None:
    for parsed in _records(path):
        cls, written = type(parsed.record), parsed.record.to_json()
        if path.name == "shadow-profiles.json":  # its HTTP limits leave defaults out
            for target in written["targets"]:
                target["httpLimits"] = {name: target["httpLimits"][name] for name in LIMITS}
        assert canonical_bytes(written) == canonical_bytes(parsed.value)
        assert cls.digest_of(written) == cls.digest_of(parsed.value)


@pytest.mark.parametrize("path", TRACE_FILES, ids=lambda path: path.name)
def test_a_published_trace_round_trips_byte_by_byte(path: Path) -> None:
    lines = path.read_bytes().splitlines()
    assert [parsed.record.canonical() for parsed in _records(path)] == lines


def test_the_protocol_digest_is_the_published_one(protocol: Parsed[ExperimentProtocol]) -> None:
    assert protocol.record.digest == "sha256:01bc0afec0f0db2fe57f619565508925f64e4af6c83adce66744bbbe810d4aee"


@pytest.mark.parametrize("path", TRACE_FILES, ids=lambda path: path.name)
def test_every_trace_is_signed_by_both_keys(path: Path, protocol: Parsed[ExperimentProtocol]) -> None:
    terms = StudyTerms.of_protocol(protocol)
    for trace in read_ndjson_records(TraceEnvelope, path):
        verify_trace(trace, terms, where=path.name)
        profile = protocol.record.profile(trace.record.profile_id)
        assert trace.record.execution_profile_digest == profile.digest


def test_every_digest_of_the_plan_is_derived_again(plan: ShadowRunPlan, protocol: Parsed[ExperimentProtocol]) -> None:
    assert plan.plan_digest == plan.digest
    assert plan.protocol_digest == protocol.record.digest == plan.protocol.digest
    assert plan.frozen_policy_digest == plan.frozen_policy.digest
    assert plan.controller_snapshot_digest == plan.controller_snapshot.digest
    published = read_record_file(ControllerSnapshot, INTEROP / "controller-snapshot.json").record
    assert plan.controller_snapshot == published
    assert {target.http_limits_digest for target in plan.collection_targets} == {HttpLimits(deadline_ms=10_000).digest}


def test_the_frozen_policy_is_in_the_policy_space(plan: ShadowRunPlan) -> None:
    policy = plan.frozen_policy
    assert policy_conflict(policy, plan.protocol) is None
    space = policy_space(plan.protocol, policy.issued_at)
    assert policy in space
    assert len(space) == len(plan.protocol.candidate_profile_ids) * 2


def test_the_manifest_closes_over_its_traces_and_membership(manifest: WindowManifest, plan: ShadowRunPlan) -> None:
    assert manifest.self_digest == manifest.digest
    expected = membership_digest(manifest.window_id, manifest.protocol_digest, manifest.membership_rule)
    assert manifest.membership_digest == expected == plan.window.membership_digest
    traces = [*read_ndjson_records(TraceEnvelope, INTEROP / "online-traces.ndjson")]
    assert trace_set_digest(TraceEnvelope.digest_of(trace.value) for trace in traces) == manifest.trace_set_digest
    assert trace_set_digest(trace.record.digest for trace in reversed(traces)) == manifest.trace_set_digest
    assert {exclusion(trace.record, manifest) for trace in traces} == {None}
    bindings = {
        trace.record.collection_binding.shadow_plan_digest for trace in traces if trace.record.collection_binding
    }
    assert bindings == {plan.plan_digest}


def test_development_groups_are_in_development_buckets(protocol: Parsed[ExperimentProtocol]) -> None:
    traces = read_ndjson_records(TraceEnvelope, INTEROP / "development-traces.ndjson")
    assert {group_split(protocol.record.split_membership, trace.record.group_id) for trace in traces} == {"dev"}


@pytest.mark.parametrize("name", ["development", "online"])
def test_every_piece_of_evidence_is_trusted(
    name: str, snapshot: EvaluatorTrustSnapshot, manifest: WindowManifest
) -> None:
    context = read_record_file(AssessmentContext, INTEROP / f"{name}-context.json").record
    assert context.operator_trust_policy_snapshot_digest == snapshot.digest
    assert context.evaluator_revocation_snapshot_digest == snapshot.revocations_digest
    receipts = [
        check_evidence(evidence, snapshot, context)
        for evidence in read_ndjson_records(EvaluatorEvidence, INTEROP / f"{name}-evidence.ndjson")
    ]
    assert {receipt.status for receipt in receipts} == {EvidenceStatus.TRUSTED}
    found = evaluator_set_digest(receipt.source_digest for receipt in receipts)
    if name == "online":
        assert found == manifest.evaluator_set_digest
    else:
        published = read_record_file(ControllerSnapshot, INTEROP / "controller-snapshot.json").record
        assert published.development_evidence is not None
        assert found == published.development_evidence.evaluator_set_digest


def test_development_trace_set_is_the_controllers() -> None:
    published = read_record_file(ControllerSnapshot, INTEROP / "controller-snapshot.json").record
    assert published.development_evidence is not None
    traces = read_ndjson_records(TraceEnvelope, INTEROP / "development-traces.ndjson")
    found = trace_set_digest(TraceEnvelope.digest_of(trace.value) for trace in traces)
    assert found == published.development_evidence.trace_set_digest


def test_endpoint_bindings_are_those_of_plan_and_profiles(plan: ShadowRunPlan) -> None:
    policy = read_record_file(CollectorTrustPolicy, INTEROP / "collector-trust.json").record
    bindings = {endpoint.alias: endpoint.binding_digest() for endpoint in policy.endpoints}
    assert {target.endpoint_alias: target.endpoint_binding_digest for target in plan.collection_targets} == bindings
    profiles = read_record_file(ShadowProfilesFile, INTEROP / "shadow-profiles.json").record
    for target in profiles.targets:
        assert target.instance.endpoint_descriptor_digest == bindings[target.endpoint.endpoint_alias]
        assert target.http_limits is not None
        assert target.http_limits.digest == HttpLimits(deadline_ms=10_000).digest


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_field_removed_retyped_or_added_is_refused_by_name(path: Path) -> None:
    data = path.read_bytes().splitlines()[0] if path.suffix == ".ndjson" else path.read_bytes()
    check_every_field(
        _class(path),
        json.loads(data),
        optional={"tokenizerDigest", "httpLimits", "contextDigest", "budgetDigest", "historyDigest", *LIMITS},
        untouched={"controllerSnapshot", "protocol"},  # inside the plan; their own files go through the same test
    )
