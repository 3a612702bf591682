"""Shadow run plan: everything inside is derived again, and each rule that spans records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tasc_collector.contracts.controller import ControllerSnapshot
from tasc_collector.contracts.policy import PolicyBundle
from tasc_collector.contracts.shadow_plan import ShadowRunPlan
from tasc_collector.contracts.work_budget import WorkBudget
from tasc_collector.errors import DigestMismatch, InputError

Value = dict[str, Any]
Reissue = Callable[[Value], Value]
NINES = "sha256:" + "9" * 64


def test_a_plan_is_read_and_written_again(plan_value: Value) -> None:
    plan = ShadowRunPlan.from_value(plan_value).record
    assert plan.to_json() == plan_value
    assert plan.plan_digest == plan.digest


def test_an_edited_plan_has_another_digest(plan_value: Value) -> None:
    plan_value["workBudget"]["maxCases"] = 5
    with pytest.raises(DigestMismatch) as caught:
        ShadowRunPlan.from_value(plan_value)
    assert caught.value.field == "planDigest"


@pytest.mark.parametrize(
    ("path", "item", "rule"),
    [
        ("controllerSnapshotDigest", NINES, "controllerSnapshotDigest"),
        ("protocolDigest", NINES, "protocolDigest"),
        ("frozenPolicyDigest", NINES, "frozenPolicyDigest"),
        ("controllerSnapshot.snapshotDigest", NINES, "snapshotDigest"),
        ("frozenPolicy.policyDigest", NINES, "policyDigest"),
        ("protocol.owner", "another team", "protocolDigest"),
        ("window.membershipDigest", NINES, "membershipDigest"),
        ("window.membershipRule.sampleBasisPoints", 5000, "membershipRule must be the protocol's"),
        ("window.eventTimeStartInclusive", "2026-07-21T23:59:59.999Z", "must not start before issuedAt"),
        ("window.eventTimeEndExclusive", "2026-07-23T00:00:00.000Z", "end must be after the start"),
        ("window.eventTimeEndExclusive", "2026-07-23T01:00:00.001Z", "must not end after expiresAt"),
        ("issuedAt", "2026-07-21T23:59:59.999Z", "controller's last event"),
        ("expiresAt", "2026-09-01T00:00:00.001Z", "protocol's expiry"),
        ("collectionTargets.0.runtimeName", "vllm", "endpointRequirements"),
        ("collectionTargets.0.transport", "loopback-http", "endpointRequirements"),
        ("collectionTargets.0.endpointAlias", "endpoint-c", "endpointRequirements"),
        ("collectionTargets.0.executionProfileDigest", NINES, "executionProfileDigest"),
        ("collectionTargets.0.profileId", "champion", "sorted by profileId"),
        ("workBudget.maxProfiles", 1, "maxProfiles"),
        ("workBudget.maxLogicalExecutions", 17, "maxLogicalExecutions"),
        ("workBudget.maxConcurrency", 3, "maxConcurrency"),
        ("workBudget.maxWallClockMs", 3600001, "maxWallClockMs"),
        ("workBudget.maxCases", 0, "greater than or equal to 1"),
    ],
)
def test_a_broken_rule_is_refused_by_name(plan_value: Value, reissue: Reissue, path: str, item: Any, rule: str) -> None:
    *parents, last = path.split(".")
    target: Any = plan_value
    for part in parents:
        target = target[int(part)] if isinstance(target, list) else target[part]
    target[last] = item
    with pytest.raises(InputError, match=rule):
        ShadowRunPlan.from_value(reissue(plan_value))


def test_a_missing_target_is_refused(plan_value: Value, reissue: Reissue) -> None:
    del plan_value["collectionTargets"][1]
    with pytest.raises(InputError, match="one per protocol profile"):
        ShadowRunPlan.from_value(reissue(plan_value))


def test_only_the_selected_policy_is_planned(plan_value: Value, reissue: Reissue) -> None:
    policy = {**plan_value["frozenPolicy"], "issuedAt": "2026-07-20T12:00:00.000Z"}
    policy["policyDigest"] = PolicyBundle.digest_of(policy)
    plan_value |= {"frozenPolicy": policy, "frozenPolicyDigest": policy["policyDigest"]}
    with pytest.raises(InputError, match="controller selected"):
        ShadowRunPlan.from_value(reissue(plan_value))


def test_only_a_controller_that_assesses_shadows_plans(plan_value: Value, reissue: Reissue) -> None:
    snapshot = {**plan_value["controllerSnapshot"], "state": "NOMINATED", "sequence": 4}
    snapshot["snapshotDigest"] = ControllerSnapshot.digest_of(snapshot)
    plan_value |= {"controllerSnapshot": snapshot, "controllerSnapshotDigest": snapshot["snapshotDigest"]}
    with pytest.raises(InputError, match="SHADOW_ASSESSING"):
        ShadowRunPlan.from_value(reissue(plan_value))


def test_a_work_budget_has_a_digest(plan_value: Value) -> None:
    budget = WorkBudget.from_value(plan_value["workBudget"]).record
    assert budget.digest.startswith("sha256:")
    assert budget.digest != budget.model_copy(update={"max_cases": 5}).digest
