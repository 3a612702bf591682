"""The next experiment: every diagnosis, every reason to hold, their order, and one intent per experiment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import pytest

from tasc_collector.contracts.controller_facts import SelectedPolicy
from tasc_collector.contracts.proposal import (
    DIAGNOSES,
    CapabilityFinding,
    Diagnosis,
    ExperimentBudget,
    ExperimentHistory,
    HeldExperiment,
    ProposedExperiment,
    RegisteredExperiment,
)
from tasc_pipeline.control.decided import MISSING_CAPACITY, Decided, DecidedPolicy, Phase
from tasc_pipeline.control.proposals import HYPOTHESES, propose

D, E, POLICY, OTHER = (f"sha256:{digit * 64}" for digit in "1234")
BUDGET = ExperimentBudget.issue(max_logical_executions=16, max_attempts=16, max_cost_usd=1.0, max_wall_clock_ms=300_000)
EMPTY = ExperimentHistory.issue(registered_experiments=(), findings=())
FINDING = CapabilityFinding(
    protocol_digest=D, profile_id="candidate", capability_id="streaming", capability_evidence_digest=E
)


def candidate(digest: str = POLICY, gates: Sequence[str] = (), reasons: Sequence[str] = ()) -> DecidedPolicy:
    return DecidedPolicy(digest, frozenset(gates), frozenset(reasons))


def decision(
    phase: Phase = "window",
    status: str = "HOLD",
    *candidates: DecidedPolicy,
    selected: str | None = POLICY,
    stale: Sequence[str] = (),
) -> Decided:
    policy = (
        None
        if selected is None
        else SelectedPolicy(
            policy_digest=selected, issued_at="2026-07-21T00:00:00.000Z", expires_at="2026-09-01T00:00:00.000Z"
        )
    )
    return Decided(
        phase=phase,
        status=status,
        decision_digest=E,
        assessment_context_digest=D,
        protocol_digest=D,
        dataset_digest=D,
        trace_set_digest=D,
        evaluator_set_digest=D,
        window_manifest_digest=D if phase == "window" else None,
        selected_policy=policy,
        stale_reasons=tuple(stale),
        policies=candidates or (candidate(),),
    )


def failing(*gates: str) -> Decided:
    return decision("window", "HOLD", candidate(gates=gates))


INSUFFICIENT = "INSUFFICIENT_EVIDENCE"
CASES: dict[Diagnosis, Decided] = {
    "insufficient-evidence": decision("window", INSUFFICIENT, candidate(reasons=["missing-evaluator-evidence"])),
    "evaluator-drift": decision(
        "window", "STALE", stale=["evaluator-evidence-stale", "evaluator-evidence-key-expired"]
    ),
    "quality-regression": failing("paired-quality"),
    "critical-slice-regression": failing("slice-quality"),
    "ttft-regression": failing("maximum-p95-ttft"),
    "tail-latency-regression": failing("maximum-p95-end-to-end"),
    "error-regression": failing("maximum-failure-rate"),
    "cost-regression": failing("maximum-cost-per-thousand"),
    "unavailable-capacity": decision("window", INSUFFICIENT, candidate(reasons=[MISSING_CAPACITY])),
    "capability-mismatch": decision("window", "HOLD"),
    "sealed-shadow-replication": decision("development", "NOMINATED"),
}


@pytest.mark.parametrize("diagnosis", get_args(Diagnosis))
def test_each_diagnosis_is_reached_and_changes_one_variable(diagnosis: Diagnosis) -> None:
    history = EMPTY
    if diagnosis == "capability-mismatch":
        history = ExperimentHistory.issue(registered_experiments=(), findings=(FINDING,))
    found = propose(CASES[diagnosis], history, BUDGET)
    assert isinstance(found, ProposedExperiment)
    assert ProposedExperiment.from_value(found.to_json()).record == found
    assert (found.diagnosis, found.hypothesis) == (diagnosis, HYPOTHESES[diagnosis])
    assert found.changed_variable.kind == DIAGNOSES[diagnosis].variable
    assert (found.authority, found.stop_condition.budget_digest) == (
        "operator-registration-required",
        BUDGET.budget_digest,
    )


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("quality-regression", ["minimum-mean-score", "maximum-p95-ttft", "maximum-cost-per-thousand"]),
        ("critical-slice-regression", ["slice-quality", "maximum-p95-ttft"]),
        ("ttft-regression", ["maximum-p95-ttft", "maximum-p95-end-to-end", "maximum-failure-rate"]),
        ("tail-latency-regression", ["maximum-p95-end-to-end", "maximum-failure-rate"]),
        ("error-regression", ["maximum-failure-rate", "maximum-cost-per-thousand"]),
    ],
)
def test_the_first_that_shows_is_the_diagnosis(first: Diagnosis, later: list[str]) -> None:
    found = propose(failing(*reversed(later)), EMPTY, BUDGET)
    assert isinstance(found, ProposedExperiment) and found.diagnosis == first


def test_evidence_that_lacks_goes_before_every_regression_but_capacity_does_not() -> None:
    slow = ["maximum-p95-ttft"]
    lacking = decision(
        "window", INSUFFICIENT, candidate(gates=slow, reasons=[MISSING_CAPACITY, "evaluator-abstention"])
    )
    capacity = decision("window", INSUFFICIENT, candidate(gates=slow, reasons=[MISSING_CAPACITY]))
    assert [found.diagnosis for item in (lacking, capacity) if isinstance(found := propose(item, EMPTY, BUDGET), ProposedExperiment)] == [
        "insufficient-evidence",
        "ttft-regression",
    ]  # fmt: skip


def test_capacity_that_is_not_known_is_observed_next() -> None:
    found = propose(CASES["unavailable-capacity"], EMPTY, BUDGET)
    assert isinstance(found, ProposedExperiment)
    assert (found.changed_variable.kind, found.changed_variable.target_id) == (
        "capacity-observation",
        "nominated-window",
    )
    assert [item.kind for item in found.evidence_requirements] == ["exact-policy-capacity-evidence"]


@pytest.mark.parametrize(("gate", "diagnosis"), [
    ("maximum-share-beyond-ttft", "ttft-regression"),
    ("maximum-share-beyond-end-to-end", "tail-latency-regression"),
])  # fmt: skip
def test_the_shares_of_a_sequential_plan_stand_for_their_percentiles(gate: str, diagnosis: str) -> None:
    found = propose(failing(gate), EMPTY, BUDGET)
    assert isinstance(found, ProposedExperiment) and found.diagnosis == diagnosis


def test_development_without_a_nomination_is_read_over_all_its_candidates() -> None:
    candidates = (candidate(POLICY, ["maximum-p95-end-to-end"]), candidate(OTHER, ["maximum-p95-ttft"]))
    found = propose(decision("development", "NO_CANDIDATE", *candidates, selected=None), EMPTY, BUDGET)
    assert isinstance(found, ProposedExperiment) and found.diagnosis == "ttft-regression"
    nominated = propose(decision("development", "NOMINATED", *candidates, candidate(D), selected=D), EMPTY, BUDGET)
    assert isinstance(nominated, ProposedExperiment) and nominated.diagnosis == "sealed-shadow-replication"


SMALL = ExperimentBudget.issue(max_logical_executions=1, max_attempts=8, max_cost_usd=1.0, max_wall_clock_ms=1)
NO_TIME = ExperimentBudget.issue(max_logical_executions=2, max_attempts=2, max_cost_usd=1.0, max_wall_clock_ms=0)


@pytest.mark.parametrize(
    ("found", "budget", "reason"),
    [
        (decision("holdout", "STALE", stale=["protocol-expired"]), SMALL, "holdout-tuning-forbidden"),
        (decision("holdout", "PASS"), BUDGET, "holdout-tuning-forbidden"),
        (decision("window", "PASS"), SMALL, "assessment-already-passing"),
        (decision("window", "STALE", stale=["protocol-expired"]), SMALL, "structural-staleness"),
        (
            decision("window", "STALE", stale=["evaluator-evidence-stale", "execution-profile-drift"]),
            BUDGET,
            "structural-staleness",
        ),
        (CASES["ttft-regression"], SMALL, "insufficient-proposal-budget"),
        (CASES["ttft-regression"], NO_TIME, "insufficient-proposal-budget"),
        (decision("window", "HOLD"), BUDGET, "no-actionable-diagnosis"),
        (decision("window", "HOLD", candidate(gates=["minimum-evidence-coverage"])), BUDGET, "no-actionable-diagnosis"),
    ],
)  # fmt: skip
def test_each_reason_to_hold_in_its_order(found: Decided, budget: ExperimentBudget, reason: str) -> None:
    held = propose(found, EMPTY, budget)
    assert isinstance(held, HeldExperiment)
    assert (held.hold_reason, held.related_protocol_digest) == (reason, None)
    assert HeldExperiment.from_value(held.to_json()).record == held


def test_what_was_registered_is_not_proposed_again_but_a_smaller_budget_is_another_experiment() -> None:
    found = propose(CASES["ttft-regression"], EMPTY, BUDGET)
    assert isinstance(found, ProposedExperiment)
    registered = RegisteredExperiment(
        parent_protocol_digest=D,
        experiment_intent_digest=found.experiment_intent_digest,
        registered_protocol_digest=OTHER,
        outcome_assessment_digest=None,
    )
    history = ExperimentHistory.issue(registered_experiments=(registered,), findings=())
    held = propose(CASES["ttft-regression"], history, BUDGET)
    assert isinstance(held, HeldExperiment)
    assert (held.hold_reason, held.related_protocol_digest) == ("duplicate-registered-experiment", OTHER)
    other = ExperimentBudget.issue(
        max_logical_executions=8, max_attempts=8, max_cost_usd=1.0, max_wall_clock_ms=300_000
    )
    assert isinstance(propose(CASES["ttft-regression"], history, other), ProposedExperiment)


def test_a_finding_of_another_protocol_is_no_mismatch() -> None:
    other = FINDING.model_copy(update={"protocol_digest": OTHER})
    history = ExperimentHistory.issue(registered_experiments=(), findings=(other,))
    held = propose(decision("window", "HOLD"), history, BUDGET)
    assert isinstance(held, HeldExperiment) and held.hold_reason == "no-actionable-diagnosis"
