"""One policy against the control in engine v2: metrics, coverage, inference, gates, status (original, section 6.4). Pure.

Procedure:

1. Reasons: what either replay lacks, then coverage, cost, groups, slices and capacity. With any of them there is no
   inference and the status is ``INSUFFICIENT_EVIDENCE``, whatever the gates say.
2. Metrics are of the candidate's replayed rows; a row weighs its case's traffic over the case's replayed rows. Evidence
   coverage is an unweighted share of both replays' rows.
3. Pairs are the replicates with a score on both sides; the paired difference is over them.
4. Every gate compares one figure with the protocol's bound; an unknown figure fails. All pass: ``PASS``, else ``HOLD``.

The texts of ``Unavailable`` stand inside the decision and so inside its digest: they are part of the format.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np

from tasc_collector.contracts.decision import (
    Bounds,
    CandidateAssessment,
    Coverage,
    Gate,
    Inference,
    Metric,
    Metrics,
    Phase,
    SliceGroups,
)
from tasc_collector.contracts.manifest import CapacityReported, WindowManifest
from tasc_collector.contracts.policy import PolicyBundle
from tasc_collector.contracts.protocol import CapacityGate, ExperimentProtocol
from tasc_pipeline.control.engine_v2_estimators import (
    P95,
    case_medians,
    grouped_interval,
    row_weights,
    total,
    weighted_mean,
    weighted_quantile,
)
from tasc_pipeline.control.engine_v2_random import bootstrap_seed
from tasc_pipeline.control.engine_v2_rows import evidence_class, replay_rows
from tasc_pipeline.control.identifiers import Codes, first_rows
from tasc_pipeline.control.joined_rows import Backing, JoinedRows, Small
from tasc_pipeline.control.pairing import Floats
from tasc_pipeline.control.replay import Replay


class Unavailable(StrEnum):
    """Why a figure is not there, in the decision's own words."""

    NO_ROWS = "no-replay-rows"
    NO_EVIDENCE_ROWS = "no-policy-outcome-evidence"
    SCORES = "one or more policy outcomes lack score evidence"
    COSTS = "one or more attempted costs are unavailable"
    NOT_FINITE = "non-finite-metric"
    COVERAGE = "coverage failed before statistical inference"
    CAPACITY_DISABLED = "service-capacity-gate-disabled"
    CAPACITY_LATER = "service capacity is evaluated only from a sealed policy window"
    CAPACITY_MISSING = "exact-policy attested window service capacity is unavailable"
    CAPACITY_OTHER_POLICY = "window capacity declaration belongs to a different policy"
    STALE = "stale-assessment"
    CAPACITY_UNATTESTED = "window capacity declaration lacks trusted measurement attestation"


NO_CAPACITY = "required-service-capacity-unavailable"


@dataclass(frozen=True, slots=True)
class Setting:
    """What an assessment is made under.

    Args:
        protocol: gates, slices and bootstrap.
        manifest: of the window; null in development and holdout.
        phase: which of the three.
    """

    protocol: ExperimentProtocol
    manifest: WindowManifest | None
    phase: Phase


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Rows of the two replays that have a score on both sides, in order of their units."""

    candidate: Codes
    control: Codes
    cases: int
    groups: Codes
    """Distinct groups."""
    mass: float
    """Traffic of the distinct cases, in their order."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything of an assessment but its rows, however many those are.

    Args:
        metrics: of the candidate's replay.
        coverage: of the pairs.
        inference: null where there are reasons.
        gates: every gate.
        reasons: why evidence is insufficient, sorted.
    """

    metrics: Metrics
    coverage: Coverage
    inference: Inference | None
    gates: tuple[Gate, ...]
    reasons: tuple[str, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        """The gates that do not hold, as rejection reasons."""
        return tuple(f"failed-gate:{gate.id}" for gate in self.gates if not gate.passed)


def figures_of(rows: JoinedRows, candidate: Replay, control: Replay, setting: Setting) -> Figures:
    """Judge one policy by the procedure of this module.

    Args:
        rows: the joined table.
        candidate: the policy's replay.
        control: the expert-only policy's replay; the same object for the control itself.
        setting: protocol, manifest and phase.
    """
    protocol = setting.protocol
    pairs = _pairs(candidate, control)
    scored = [item.scored for item in ((candidate,) if candidate is control else (candidate, control))]
    known, every = sum(int(np.count_nonzero(item)) for item in scored), sum(map(len, scored))
    share = known / every if every else 0.0
    coverage_metric = _known(share, Backing.MEASURED) if every else _unavailable(Unavailable.NO_EVIDENCE_ROWS)
    metrics = _metrics(candidate, _capacity(setting, candidate.policy.policy_digest), coverage_metric)
    slices = _slice_groups(rows, candidate, pairs, protocol)
    reasons = {*candidate.reasons, *control.reasons, *candidate.lacks, *control.lacks}
    if isinstance(protocol.gates.service_capacity, CapacityGate) and setting.phase == "window":
        reasons.add(NO_CAPACITY)
    reasons |= _shortfalls(protocol, metrics, pairs, slices)
    inference = None if reasons else _inference(candidate, control, pairs, protocol)
    coverage = Coverage(
        case_count=pairs.cases,
        replicate_count=len(pairs.candidate),
        group_count=len(pairs.groups),
        effective_traffic_mass=pairs.mass if inference is None else inference.effective_traffic_mass,
        critical_slice_groups=slices,
        failure_count=int(np.count_nonzero(~candidate.succeeded)),
        missing_evidence_count=every - known,
        evidence_coverage=share,
    )
    gates = _gates(setting, metrics, inference, pairs, slices)
    return Figures(metrics, coverage, inference, gates, tuple(sorted(reasons)))


def assess_candidate(rows: JoinedRows, candidate: Replay, control: Replay, setting: Setting) -> CandidateAssessment:
    """``figures_of`` with the replayed rows, as a decision holds it; same arguments.

    Raises:
        InputError: more rows than a decision of engine v2 may hold.
    """
    replayed = replay_rows(rows, candidate)
    found = figures_of(rows, candidate, control, setting)
    return CandidateAssessment(
        policy=candidate.policy,
        policy_digest=candidate.policy.policy_digest,
        status="INSUFFICIENT_EVIDENCE" if found.reasons else "HOLD" if found.failed else "PASS",
        replay=replayed,
        metrics=found.metrics,
        gates=found.gates,
        coverage=found.coverage,
        inference=found.inference,
        insufficiency_reasons=found.reasons,
        rejection_reasons=tuple(sorted((*found.reasons, *found.failed))),
    )


def stale_candidate(policy: PolicyBundle, reasons: tuple[str, ...]) -> CandidateAssessment:
    """What stands for a policy in a decision that is stale: nothing but why."""
    nothing = _unavailable(Unavailable.STALE)
    return CandidateAssessment(
        policy=policy,
        policy_digest=policy.policy_digest,
        status="STALE",
        replay=(),
        metrics=Metrics(**dict.fromkeys(Metrics.model_fields, nothing)),
        gates=(),
        coverage=Coverage(
            case_count=0,
            replicate_count=0,
            group_count=0,
            effective_traffic_mass=0,
            critical_slice_groups=(),
            failure_count=0,
            missing_evidence_count=0,
            evidence_coverage=0,
        ),
        inference=None,
        insufficiency_reasons=(),
        rejection_reasons=reasons,
    )


def _pairs(candidate: Replay, control: Replay) -> _Pairs:
    left, right = np.flatnonzero(candidate.scored), np.flatnonzero(control.scored)
    _, first, second = np.intersect1d(
        candidate.unit[left], control.unit[right], assume_unique=True, return_indices=True
    )
    rows, others = left[first], right[second]
    case = candidate.case[rows]
    starts = rows[np.append(True, case[1:] != case[:-1])] if len(rows) else rows
    return _Pairs(
        candidate=rows,
        control=others,
        cases=len(starts),
        groups=np.unique(candidate.group[rows]),
        mass=total(candidate.weight[starts]),
    )


def _slice_groups(
    rows: JoinedRows, candidate: Replay, pairs: _Pairs, protocol: ExperimentProtocol
) -> tuple[SliceGroups, ...]:
    executions = rows.executions
    found = []
    for name in sorted(protocol.critical_slices):
        member = executions.slices[candidate.row[pairs.candidate], executions.slice_ids.index(name)]
        groups = np.unique(candidate.group[pairs.candidate[member]])
        found.append(SliceGroups(slice_id=name, group_count=len(groups)))
    return tuple(found)


def _shortfalls(
    protocol: ExperimentProtocol, metrics: Metrics, pairs: _Pairs, slices: tuple[SliceGroups, ...]
) -> set[str]:
    gates, coverage = protocol.gates, metrics.evidence_coverage.value
    reasons = set()
    if coverage is None or coverage < gates.minimum_evidence_coverage:
        reasons.add("insufficient-evaluator-coverage")
    if metrics.cost_per_thousand_requests_usd.value is None:
        reasons.add("required-cost-evidence-unavailable")
    if len(pairs.groups) < gates.minimum_independent_groups:
        reasons.add("insufficient-independent-groups")
    return reasons | {
        f"insufficient-critical-slice-groups:{item.slice_id}"
        for item in slices
        if item.group_count < gates.minimum_critical_slice_groups
    }


def _inference(candidate: Replay, control: Replay, pairs: _Pairs, protocol: ExperimentProtocol) -> Inference:
    delta = candidate.score[pairs.candidate] - control.score[pairs.control]
    case = candidate.case[pairs.candidate]
    cases, effects = case_medians(case, delta)
    starts = pairs.candidate[first_rows(case, int(cases[-1]) + 1)[cases]]
    seed = bootstrap_seed(protocol.bootstrap.seed)
    found = grouped_interval(
        effects,
        candidate.weight[starts],
        candidate.group[starts],
        alpha=protocol.bootstrap.alpha,
        iterations=protocol.bootstrap.iterations,
        seed=seed,
    )
    return Inference(
        alpha=protocol.bootstrap.alpha,
        case_count=found.cases,
        replicate_count=len(pairs.candidate),
        group_count=found.groups,
        effective_traffic_mass=found.mass,
        estimate=found.estimate,
        interval=Bounds(lo=found.low, hi=found.high),
        iterations=protocol.bootstrap.iterations,
        seed=seed,
        positive=found.low > 0,
    )


def _metrics(replay: Replay, capacity: Metric, coverage: Metric) -> Metrics:
    if not len(replay):
        names = Metrics.model_fields.keys() - {"evidence_coverage", "service_capacity"}
        nothing = dict.fromkeys(names, _unavailable(Unavailable.NO_ROWS))
        return Metrics(**nothing, evidence_coverage=coverage, service_capacity=capacity)
    weights = row_weights(replay.case, replay.weight)
    whole, priced = bool(np.all(replay.scored)), not np.any(np.isnan(replay.cost_usd))
    modeled = _weakest(replay.e2e_class) is Backing.MODELED
    return Metrics(
        mean_score=_mean(replay.score, weights, replay.score_class) if whole else _unavailable(Unavailable.SCORES),
        failure_rate=_known(
            weighted_mean((~replay.succeeded).astype(np.float64), weights),
            Backing.MODELED if modeled else Backing.MEASURED,
        ),
        ttft_ms=_known(weighted_quantile(replay.ttft_ms, weights, P95), _weakest(replay.ttft_class)),
        end_to_end_latency_ms=_known(weighted_quantile(replay.e2e_ms, weights, P95), _weakest(replay.e2e_class)),
        cost_per_thousand_requests_usd=_mean(replay.cost_usd * 1000, weights, replay.cost_class)
        if priced
        else _unavailable(Unavailable.COSTS),
        evidence_coverage=coverage,
        service_capacity=capacity,
    )


def _capacity(setting: Setting, policy_digest: str) -> Metric:
    manifest = setting.manifest
    if not isinstance(setting.protocol.gates.service_capacity, CapacityGate):
        return _unavailable(Unavailable.CAPACITY_DISABLED)
    if setting.phase != "window":
        return _unavailable(Unavailable.CAPACITY_LATER)
    if manifest is None or not isinstance(manifest.capacity_evidence, CapacityReported):
        return _unavailable(Unavailable.CAPACITY_MISSING)
    if manifest.frozen_policy_digest != policy_digest:
        return _unavailable(Unavailable.CAPACITY_OTHER_POLICY)
    return _unavailable(Unavailable.CAPACITY_UNATTESTED)


def _gates(
    setting: Setting, metrics: Metrics, inference: Inference | None, pairs: _Pairs, slices: tuple[SliceGroups, ...]
) -> tuple[Gate, ...]:
    bounds = setting.protocol.gates
    quality = (
        _unavailable(Unavailable.COVERAGE) if inference is None else _known(inference.interval.lo, Backing.MODELED)
    )
    gates = [
        _at_least("paired-quality", quality, bounds.non_inferiority_margin),
        _at_least("minimum-mean-score", metrics.mean_score, bounds.minimum_mean_score),
        _at_most("maximum-failure-rate", metrics.failure_rate, bounds.maximum_failure_rate),
        _at_most("maximum-p95-ttft", metrics.ttft_ms, bounds.maximum_p95_ttft_ms),
        _at_most("maximum-p95-end-to-end", metrics.end_to_end_latency_ms, bounds.maximum_p95_end_to_end_ms),
        _at_most(
            "maximum-cost-per-thousand",
            metrics.cost_per_thousand_requests_usd,
            bounds.maximum_cost_per_thousand_requests_usd,
        ),
        _at_least("minimum-evidence-coverage", metrics.evidence_coverage, bounds.minimum_evidence_coverage),
        _at_least(
            "minimum-independent-groups", _known(len(pairs.groups), Backing.MEASURED), bounds.minimum_independent_groups
        ),
        *(
            _at_least(
                f"minimum-critical-slice-groups:{item.slice_id}",
                _known(item.group_count, Backing.MEASURED),
                bounds.minimum_critical_slice_groups,
            )
            for item in slices
        ),
    ]
    if setting.phase == "window" and isinstance(bounds.service_capacity, CapacityGate):
        gates.append(_at_least("minimum-service-capacity", metrics.service_capacity, bounds.service_capacity.minimum))
    return tuple(gates)


def _at_least(gate_id: str, metric: Metric, threshold: float) -> Gate:
    return _gate(gate_id, metric, ">=", threshold, passed=metric.value is not None and metric.value >= threshold)


def _at_most(gate_id: str, metric: Metric, threshold: float) -> Gate:
    return _gate(gate_id, metric, "<=", threshold, passed=metric.value is not None and metric.value <= threshold)


def _gate(gate_id: str, metric: Metric, operator: Literal[">=", "<="], threshold: float, *, passed: bool) -> Gate:
    return Gate(
        id=gate_id,
        operator=operator,
        threshold=threshold,
        actual=metric.value,
        evidence_class=metric.evidence_class,
        passed=passed,
        reason=metric.reason,
    )


def _mean(values: Floats, weights: Floats, classes: Small) -> Metric:
    return _known(weighted_mean(values, weights), _weakest(classes))


def _weakest(classes: Small) -> Backing:
    return Backing(int(classes.max()))


def _known(value: float, backing: Backing) -> Metric:
    if not np.isfinite(value):
        return _unavailable(Unavailable.NOT_FINITE)
    return Metric(value=float(value), evidence_class=evidence_class(backing))


def _unavailable(reason: str) -> Metric:
    return Metric(value=None, evidence_class="unavailable", reason=str(reason))
