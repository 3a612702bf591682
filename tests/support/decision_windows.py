"""Made-up windows of a decision study for the tests of our own analysis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tasc_collector.contracts.authority import AuthorityKey
from tasc_collector.contracts.execution_profile import ExecutionProfile
from tasc_collector.contracts.operations import AnalysisPlan, CostModel, ProfileCost, TokenPrice
from tasc_collector.contracts.policy import PolicyBundle, policy_space
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.report import AssessmentReport, DecisionSources, DecisionSummary
from tasc_collector.signing import SigningKey
from tasc_pipeline.control.decisions.building import Row, calls_of, units_of
from tasc_pipeline.control.decisions.building import priced as priced_calls
from tasc_pipeline.control.decisions.capacity import Capacity
from tasc_pipeline.control.decisions.costs import CostRule
from tasc_pipeline.control.decisions.deciding import DecisionInputs, assess_decision
from tasc_pipeline.control.decisions.reporting import DecidedWindow
from tasc_pipeline.control.observations import Observation, with_costs
from tests.support.comparison_rows import BASE

SOME_DIGEST = "sha256:" + "1" * 64
START, WATERMARK = "2026-03-01T00:00:00.000Z", "2026-03-02T00:00:00.000Z"
PRICE = TokenPrice(
    kind="token-price",
    input_usd_per_million=1.0,
    cached_input_usd_per_million=None,
    output_usd_per_million=2.0,
)
GATES = {
    "minimumMeanScore": 0.7,
    "nonInferiorityMargin": -0.05,
    "maximumFailureRate": 0.1,
    "maximumP95TtftMs": 800.0,
    "maximumP95EndToEndMs": 3000.0,
    "maximumCostPerThousandRequestsUsd": 1.0,
    "minimumEvidenceCoverage": 0.9,
    "minimumIndependentGroups": 20,
    "minimumCriticalSliceGroups": 0,
    "serviceCapacity": {"kind": "disabled"},
}


def protocol(**gates: object) -> ExperimentProtocol:
    """A protocol with one candidate; gates in their JSON names."""
    keys = [SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([number] * 32))) for number in (1, 2)]
    authorities = [
        AuthorityKey(key_id=name, public_key_spki=key.public_key.spki).to_json()
        for name, key in zip(("dispatch-1", "collector-1"), keys, strict=True)
    ]
    slices = list(gates.pop("critical_slices", ()))  # type: ignore[call-overload]  # slugs
    value = {
        "version": "tasc-experiment-protocol-v2",
        "studyId": "swap",
        "protocolVersion": "v1",
        "owner": "tests",
        "createdAt": "2026-01-01T00:00:00.000Z",
        "expiresAt": "2026-12-31T00:00:00.000Z",
        "dispatchAuthority": authorities[0],
        "collectorAuthority": authorities[1],
        "splitMembership": {
            "algorithm": "tasc-seeded-sha256-group-bucket-v1",
            "seed": "split-1",
            "bucketCount": 2,
            "developmentBuckets": [0],
            "holdoutBuckets": [1],
        },
        "onlineWindowMembership": {
            "algorithm": "tasc-seeded-sha256-case-replicate-basis-points-v1",
            "seed": "window-1",
            "sampleBasisPoints": 10_000,
        },
        "profiles": [_profile("champion").to_json(), _profile("candidate").to_json()],
        "championProfileId": "champion",
        "candidateProfileIds": ["candidate"],
        "routeSignal": {
            "definitionId": "difficulty",
            "version": "1",
            "minimum": 0,
            "maximum": 1,
            "direction": "lower-is-more-confident",
            "calibrationDigest": SOME_DIGEST,
        },
        "evaluator": {
            "evaluatorId": "grader",
            "rubricVersion": "1",
            "calibrationDigest": SOME_DIGEST,
            "producerKind": "deterministic",
            "producerId": "grader",
            "producerVersion": "1",
            "requiredTrustedKeyIds": ["grader-1"],
        },
        "candidatePolicySpace": {
            "version": "tasc-declarative-policy-space-v1",
            "maxCandidates": 10,
            "predicates": [
                {
                    "signalDefinitionId": "difficulty",
                    "operator": "greater-than",
                    "threshold": 0.5,
                    "routeToProfileId": "champion",
                }
            ],
        },
        "gates": {**GATES, **gates},
        "criticalSlices": slices,
        "bootstrap": {"algorithm": "paired-group-percentile-v1", "seed": "draws-1", "iterations": 200, "alpha": 0.05},
        "shadowCollection": {
            "maximumLogicalExecutions": 10_000,
            "maximumConcurrency": 8,
            "attemptTimeoutMs": 30_000,
            "maximumAttempts": 1,
            "payloadPolicy": "keyed-identities-only",
        },
        "costAllocation": {"kind": "unavailable"},
        "endpointRequirements": [],
        "requiredCapabilities": [],
    }
    return ExperimentProtocol.from_value(value).record


def _profile(profile_id: str) -> ExecutionProfile:
    value = {
        "id": profile_id,
        "runtime": {"name": "vllm", "build": "0.26.0"},
        "backend": {"name": "cuda", "build": "12.8"},
        "model": {"id": "demo", "revision": "1"},
        "tokenizer": {"id": "demo", "revision": "1"},
        "hardware": {"architecture": "x86-64", "accelerator": "cpu", "acceleratorCount": 1},
        "quantization": {"format": "none", "configurationDigest": SOME_DIGEST},
        "chatTemplateDigest": SOME_DIGEST,
        "orchestration": {"kind": "direct", "configurationDigest": SOME_DIGEST},
        "deploymentConfigurationDigest": SOME_DIGEST,
    }
    return ExecutionProfile.model_validate(value)


def policy(rules: ExperimentProtocol, kind: str = "fast-only") -> PolicyBundle:
    """The candidate's policy of one kind."""
    return next(item for item in policy_space(rules, "2026-02-01T00:00:00.000Z") if item.kind == kind)


def analysis(
    rules: ExperimentProtocol, *, sequential: bool = False, slice_gates: tuple[str, ...] = (), draws: int = 400
) -> AnalysisPlan:
    return AnalysisPlan(
        study_id="swap",
        protocol_digest=rules.digest,
        timing_source="timeline",
        interval="studentized-cluster-bootstrap",
        confidence=0.95,
        draws=draws,
        seed="tests-1",
        sequential=sequential,
        minimum_coverage=0.0,
        slice_gates=slice_gates,
        pinned_at="2026-02-01T00:00:00.000Z",
    )


def rows(
    seed: int,
    *,
    groups: int = 100,
    replicates: int = 1,
    score: float = 0.9,
    candidate_score: float = 0.9,
    ttft: float = 1.0,
    signal: float | None = None,
    slices: Sequence[str] = (),
) -> list[Row]:
    """Two profiles over the same cases: scores vary by case and a little by profile, TTFT is around 300 ms."""
    rng = np.random.default_rng(seed)
    found = []
    for case in range(groups):
        hard, level = float(rng.normal(0, 0.04)), float(np.exp(rng.normal(0, 0.3)))
        for replicate in range(replicates):
            for name, mean, slower in (("champion", score, 1.0), ("candidate", candidate_score, ttft)):
                first = 300 * level * slower * float(np.exp(rng.normal(0, 0.05)))
                value = min(max(mean + hard + float(rng.normal(0, 0.03)), 0.0), 1.0)
                observation = replace(
                    BASE,
                    case_id=f"case-{case:03d}",
                    group_id=f"group-{case:03d}",
                    replicate=replicate,
                    profile_id=name,
                    ttft_ms=first,
                    itl_p50_ms=10.0,
                    itl_p95_ms=12.0,
                    tpot_ms=10.0,
                    e2e_ms=first + 640.0,
                )
                found.append(Row(observation, tuple(slices), signal, 1000.0 * case, value))
    return found


def lost(row: Row, state: str = "sent_unknown") -> Row:
    """The same execution, of which nobody knows what became."""
    unknown: dict[str, object] = dict(  # noqa: C408  # reads as keywords
        ttft_ms=None,
        itl_p50_ms=None,
        itl_p95_ms=None,
        tpot_ms=None,
        e2e_ms=None,
        input_tokens=None,
        output_tokens=None,
        tokens_per_event=None,
        status=None,
    )
    if state == "sent_unknown":
        changed = replace(row.observation, dispatch_state="sent_unknown", reason="transport", **unknown)  # type: ignore[arg-type]  # words
    else:
        changed = replace(row.observation, state=state, dispatch_state=None, reason=state, **unknown)  # type: ignore[arg-type]  # words
    return replace(row, observation=changed, score=None, started_ms=None)


def failed(row: Row) -> Row:
    """The same execution, failed: score 0, no times."""
    changed: Observation = replace(
        row.observation,
        status="failure",
        reason="provider-error",
        ttft_ms=None,
        tpot_ms=None,
        itl_p50_ms=None,
        output_tokens=None,
    )
    return replace(row, observation=changed, score=0.0)


def changed(found: Sequence[Row], profile_id: str, places: int, change: Callable[[Row], Row]) -> list[Row]:
    """The first so many executions of a profile, changed."""
    left = places
    result = []
    for row in found:
        if row.observation.profile_id == profile_id and left:
            left, row = left - 1, change(row)
        result.append(row)
    return result


def cost_model(rules: ExperimentProtocol) -> CostModel:
    return CostModel(
        model_id="list-prices",
        profiles=tuple(ProfileCost(profile_id=item.id, price=PRICE) for item in rules.profiles),
    )


def decided(
    found: Sequence[Row],
    *,
    rules: ExperimentProtocol | None = None,
    plan: AnalysisPlan | None = None,
    kind: str = "fast-only",
    as_of: str = WATERMARK,
    window: int = 0,
    priced: bool = True,
    capacity: Capacity | None = None,
    earlier: Sequence[DecisionSummary] = (),
    policies: Sequence[PolicyBundle] | None = None,
    phase: str = "window",
) -> AssessmentReport:
    """The assessment of a made-up window."""
    rules = rules or protocol()
    plan = plan or analysis(rules)
    chosen = policy(rules, kind)
    cost = {item.id: CostRule(PRICE, 128, 30_000) for item in rules.profiles} if priced else {}
    names = sorted({*plan.slice_gates, *rules.critical_slices})
    calls = priced_calls(calls_of(found), cost)
    return assess_decision(
        DecisionInputs(
            protocol=rules,
            protocol_digest=rules.digest,
            analysis=plan,
            analysis_digest=plan.digest,
            window=DecidedWindow(
                study_id="swap",
                window_key=f"swap.r01-{window:08x}",
                collected_as=f"swap.r01-{window:08x}",
                declaration_digest=SOME_DIGEST,
                plan_digest=SOME_DIGEST,
                policy_digest=chosen.policy_digest,
                trace_set_digest=SOME_DIGEST,
                start=START,
                watermark=WATERMARK,
            ),
            policies=[chosen] if policies is None else policies,
            units=units_of(calls, cost, names),
            observations=with_costs([row.observation for row in found], calls.cost_usd),
            capacity={} if capacity is None else {"candidate": capacity},
            sources=DecisionSources(
                phase=phase,  # type: ignore[arg-type]  # a word of the list
                assessment_context_digest=SOME_DIGEST,
                dataset_digest=SOME_DIGEST,
                evaluator_set_digest=SOME_DIGEST,
                cost_model_digest=None,
                window_manifest_digest=SOME_DIGEST if phase == "window" else None,
            ),
            as_of=as_of,
            cost_reason=None if priced else "no-cost-model",
            earlier=earlier,
        )
    )
