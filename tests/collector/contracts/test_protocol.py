"""Protocol and policy: each rule that spans fields."""

from __future__ import annotations

from typing import Any

import pytest

from tasc_collector.contracts.policy import PolicyBundle, control_policy, policy_conflict, policy_space
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.errors import DigestMismatch, InputError

Value = dict[str, Any]


def _predicate(**changes: Any) -> Value:
    predicate = {
        "signalDefinitionId": "confidence", "operator": "less-than", "threshold": 0.7, "routeToProfileId": "champion",
    }  # fmt: skip
    return {**predicate, **changes}


@pytest.mark.parametrize(
    ("path", "item", "rule"),
    [
        ("expiresAt", "2026-07-20T00:00:00.000Z", "expiresAt must be after createdAt"),
        ("collectorAuthority.keyId", "dispatch", "different key ids"),
        ("splitMembership.holdoutBuckets", [2], "partition"),
        ("splitMembership.holdoutBuckets", [], "at least 1"),
        ("splitMembership.bucketCount", 5, "partition"),
        ("onlineWindowMembership.sampleBasisPoints", 10001, "less than or equal to 10000"),
        ("championProfileId", "candidate", "exactly one candidate"),
        ("candidateProfileIds", ["another"], "exactly one candidate"),
        ("routeSignal.maximum", 0, "maximum must exceed minimum"),
        ("candidatePolicySpace.maxCandidates", 1, "maxCandidates"),
        ("candidatePolicySpace.predicates", [_predicate(threshold=1.1)], "threshold"),
        ("candidatePolicySpace.predicates", [_predicate(signalDefinitionId="other")], "routeSignal"),
        ("candidatePolicySpace.predicates", [_predicate(routeToProfileId="candidate")], "champion"),
        ("candidatePolicySpace.predicates", [_predicate(), _predicate()], "must not repeat"),
        ("criticalSlices", [], "minimumCriticalSliceGroups"),
        ("gates.nonInferiorityMargin", 0.1, "less than or equal to 0"),
        ("gates.serviceCapacity", {"kind": "minimum"}, "not one of the kinds"),
        ("bootstrap.alpha", 0, "greater than 0"),
        ("bootstrap.alpha", 1, "less than 1"),
        ("shadowCollection.maximumAttempts", 9, "less than or equal to 8"),
        ("endpointRequirements.1.runtimeName", "tgi", "profile's runtime"),
        ("endpointRequirements.1.endpointAlias", "endpoint-a", "alias may stand once"),
        ("requiredCapabilities", ["tools"], "chat-completions"),
        ("studyId", "Study", "pattern"),
        ("owner", " team", "white space"),
        ("dispatchAuthority.publicKeySpki", "MCowBQYDK2VwAyEA" + "A" * 43, "low-order"),
    ],
)
def test_a_broken_rule_is_refused_by_name(protocol_value: Value, path: str, item: Any, rule: str) -> None:
    *parents, last = path.split(".")
    target: Any = protocol_value
    for part in parents:
        target = target[int(part)] if isinstance(target, list) else target[part]
    target[last] = item
    with pytest.raises(InputError, match=rule):
        ExperimentProtocol.from_value(protocol_value)


def test_the_two_authorities_are_two_keys(protocol_value: Value) -> None:
    protocol_value["collectorAuthority"]["publicKeySpki"] = protocol_value["dispatchAuthority"]["publicKeySpki"]
    with pytest.raises(InputError, match="different keys"):
        ExperimentProtocol.from_value(protocol_value)


def test_a_number_written_as_a_fraction_is_the_same_number(protocol_value: Value) -> None:
    before = ExperimentProtocol.from_value(protocol_value).record.digest
    protocol_value["gates"]["maximumP95TtftMs"] = 1000.0
    assert ExperimentProtocol.from_value(protocol_value).record.digest == before


def test_the_policy_space_has_one_policy_per_candidate_and_one_per_predicate(protocol_value: Value) -> None:
    protocol = ExperimentProtocol.from_value(protocol_value).record
    issued = "2026-07-21T00:00:00.000Z"
    space = policy_space(protocol, issued)
    assert sorted((policy.kind, policy.primary_profile_id) for policy in space) == [
        ("cascade", "candidate"),
        ("fast-only", "candidate"),
    ]
    assert [policy.policy_digest for policy in space] == sorted(policy.policy_digest for policy in space)
    for policy in (*space, control_policy(protocol, issued)):
        assert policy_conflict(policy, protocol) is None
        assert PolicyBundle.from_value(policy.to_json()).record == policy


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"protocol_digest": "sha256:" + "9" * 64}, "protocol's digest"),
        ({"expires_at": "2026-08-31T00:00:00.000Z"}, "expire with the protocol"),
        ({"issued_at": "2026-07-19T00:00:00.000Z"}, "within the protocol's validity"),
        ({"primary_profile_id": "another"}, "role"),
    ],
)
def test_a_policy_of_another_protocol_conflicts(protocol_value: Value, change: Value, rule: str) -> None:
    protocol = ExperimentProtocol.from_value(protocol_value).record
    policy = next(item for item in policy_space(protocol, "2026-07-21T00:00:00.000Z") if item.kind == "fast-only")
    fields = {name: getattr(policy, name) for name in type(policy).model_fields if name != "policy_digest"}
    conflict = policy_conflict(PolicyBundle.issue(**{**fields, **change}), protocol)
    assert conflict is not None
    assert rule in conflict


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"predicates": []}, "exactly one predicate"),
        ({"fallbackProfileId": None}, "falls back to the expert"),
        ({"kind": "fast-only"}, "no predicate"),
        ({"kind": "expert-only", "predicates": [], "fallbackProfileId": None}, "exactly for expert-only"),
    ],
)
def test_a_policy_has_the_parts_of_its_kind(protocol_value: Value, change: Value, rule: str) -> None:
    protocol = ExperimentProtocol.from_value(protocol_value).record
    policy = next(item for item in policy_space(protocol, "2026-07-21T00:00:00.000Z") if item.kind == "cascade")
    with pytest.raises(InputError, match=rule):
        PolicyBundle.from_value({**policy.to_json(), **change})


def test_an_edited_policy_has_another_digest(protocol_value: Value) -> None:
    protocol = ExperimentProtocol.from_value(protocol_value).record
    value = {**control_policy(protocol, "2026-07-21T00:00:00.000Z").to_json(), "issuedAt": "2026-07-22T00:00:00.000Z"}
    with pytest.raises(DigestMismatch) as caught:
        PolicyBundle.from_value(value)
    assert caught.value.field == "policyDigest"
