"""Experiment budget, history and proposal."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from tasc_collector.contracts.catalogue import record_class
from tasc_collector.contracts.proposal import (
    DIAGNOSES,
    Diagnosis,
    ExperimentBudget,
    ExperimentHistory,
    FrozenControl,
    HeldExperiment,
    ProposedExperiment,
    intent_digest,
)
from tasc_collector.errors import DigestMismatch, InputError
from tests.support.mutations import check_every_field

Value = dict[str, Any]
D = "sha256:" + "1" * 64
E = "sha256:" + "2" * 64
BUDGET = ExperimentBudget.issue(max_logical_executions=16, max_attempts=16, max_cost_usd=1.0, max_wall_clock_ms=300_000)


def _proposal(diagnosis: Diagnosis = "ttft-regression", **changes: Any) -> Value:
    rule = DIAGNOSES[diagnosis]
    value: Value = {
        "version": "tasc-experiment-proposal-decision-v2",
        "status": "PROPOSED",
        "parentAssessmentDigest": D,
        "parentProtocolDigest": D,
        "historyDigest": D,
        "budget": BUDGET.to_json(),
        "diagnosis": diagnosis,
        "hypothesis": "another profile reaches the first-token gate",
        "changedVariable": {"kind": rule.variable, "targetId": rule.target_id},
        "frozenControls": list(rule.frozen_controls),
        "evidenceRequirements": [{"kind": kind} for kind in rule.evidence],
        "stopCondition": {"kind": "first-budget-limit", "budgetDigest": BUDGET.budget_digest},
        "expectedDecision": {"ifSupported": "REASSESS_WITH_REGISTERED_PROTOCOL", "otherwise": "HOLD"},
        "authority": "operator-registration-required",
        "attestation": "unattested",
    }
    if diagnosis == "capability-mismatch":
        value["changedVariable"] = {"kind": "required-capability", "targetId": "streaming", "profileId": "candidate"}
        value["evidenceRequirements"] = [
            {"kind": "runtime-capability-evidence", "protocolDigest": D, "profileId": "candidate",
             "capabilityId": "streaming", "evidenceDigest": E}
        ]  # fmt: skip
    value |= changes
    value["experimentIntentDigest"] = intent_digest(value)
    return {**value, "decisionDigest": ProposedExperiment.digest_of(value)}


def _hold(**changes: Any) -> Value:
    value: Value = {
        "version": "tasc-experiment-proposal-decision-v2",
        "status": "HOLD",
        "parentAssessmentDigest": D,
        "parentProtocolDigest": D,
        "historyDigest": D,
        "budget": BUDGET.to_json(),
        "holdReason": "no-actionable-diagnosis",
        "relatedProtocolDigest": None,
        "authority": "operator-registration-required",
        "attestation": "unattested",
        **changes,
    }
    return {**value, "decisionDigest": HeldExperiment.digest_of(value)}


@pytest.mark.parametrize("diagnosis", get_args(Diagnosis))
def test_each_diagnosis_has_a_proposal(diagnosis: Diagnosis) -> None:
    value = _proposal(diagnosis)
    assert record_class(value) is ProposedExperiment
    assert ProposedExperiment.from_value(value).record.to_json() == value


def test_a_diagnosis_freezes_all_controls_but_at_most_one() -> None:
    for rule in DIAGNOSES.values():
        assert set(get_args(FrozenControl)) - set(rule.frozen_controls) == ({rule.released} - {None})
        assert list(rule.evidence) == sorted(rule.evidence)


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (
            _proposal(changedVariable={"kind": "routing-policy", "targetId": "selected-policy"}),
            "the diagnosis points to",
        ),
        (_proposal(changedVariable={"kind": "execution-profile", "targetId": "other"}), "targetId"),
        (_proposal(frozenControls=["payload-policy"]), "frozenControls"),
        (_proposal(evidenceRequirements=[{"kind": "attempt-cost-evidence"}]), "evidenceRequirements"),
        (_proposal("capability-mismatch", parentProtocolDigest=E), "evidenceRequirements"),
        (_proposal(stopCondition={"kind": "first-budget-limit", "budgetDigest": E}), "stopCondition"),
        (_proposal(budget={**BUDGET.to_json(), "maxAttempts": 17}), "budgetDigest"),
        ({**_proposal(), "experimentIntentDigest": E}, "experimentIntentDigest"),
        (_proposal(hypothesis=""), "at least 1"),
    ],
)
def test_a_proposal_follows_from_its_diagnosis(value: Value, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        ProposedExperiment.from_value(value)


def test_a_hold_names_a_protocol_only_for_a_duplicate() -> None:
    assert record_class(_hold()) is HeldExperiment
    assert HeldExperiment.from_value(_hold()).record.hold_reason == "no-actionable-diagnosis"
    duplicate = _hold(holdReason="duplicate-registered-experiment", relatedProtocolDigest=E)
    assert HeldExperiment.from_value(duplicate).record.related_protocol_digest == E
    for wrong in (_hold(relatedProtocolDigest=E), _hold(holdReason="duplicate-registered-experiment")):
        with pytest.raises(InputError, match="relatedProtocolDigest"):
            HeldExperiment.from_value(wrong)


def test_each_field_is_refused_by_name() -> None:
    check_every_field(ProposedExperiment, _proposal())
    check_every_field(ProposedExperiment, _proposal("capability-mismatch"))
    check_every_field(HeldExperiment, _hold())


def test_a_budget_covers_an_attempt_per_execution() -> None:
    with pytest.raises(ValueError, match="maxAttempts must cover"):
        ExperimentBudget.issue(max_logical_executions=2, max_attempts=1, max_cost_usd=0.0, max_wall_clock_ms=1)


def _registered(intent: str, protocol: str) -> Value:
    return {
        "parentProtocolDigest": D, "experimentIntentDigest": intent, "registeredProtocolDigest": protocol,
        "outcomeAssessmentDigest": None,
    }  # fmt: skip


def test_a_history_has_one_digest_in_any_order() -> None:
    first, second = _registered(D, D), _registered(E, E)
    histories = [
        ExperimentHistory.from_value(
            {"version": "tasc-experiment-history-v1", "registeredExperiments": order, "findings": []}
        ).record
        for order in ([first, second], [second, first])
    ]
    assert histories[0].history_digest == histories[1].history_digest == histories[1].digest
    with pytest.raises(DigestMismatch):
        ExperimentHistory.from_value({**histories[0].to_json(), "registeredExperiments": [first]})


@pytest.mark.parametrize(
    ("registered", "rule"),
    [([_registered(D, D), _registered(D, E)], "an intent"), ([_registered(D, D), _registered(E, D)], "a protocol")],
)
def test_a_history_names_each_experiment_once(registered: list[Value], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        ExperimentHistory.from_value(
            {"version": "tasc-experiment-history-v1", "registeredExperiments": registered, "findings": []}
        )
