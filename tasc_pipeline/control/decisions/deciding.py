"""The assessment of a decision study's window by its analysis plan: a pure function, the same bytes for the same inputs.

Procedure:

1. *Stale.* Before the watermark evidence may still arrive; an expired protocol, or a policy that was not valid in the
   window, is no ground either. Such a window is ``STALE``, says until when, and judges nothing.
2. The policy is run over the units (``routing``), and every figure is made with the unknown taken both ways (``figures``).
3. Groups are resampled once per policy and window; the seed depends on the plan's seed, the window and the policy,
   not on the revision: whoever revises a window draws nothing anew.
4. A single window is ruled on its own intervals; with ``sequential`` every performance gate is ruled on all windows up to
   this one (``sequential``).
5. The gates rule (``gates``). In development every policy of the study is ruled and the best of those that pass is
   nominated: by cost, then 95th percentile of E2E, then digest. Holdout and window rule the one frozen policy.
6. What is not known is said in words, and the result in one sentence (``words``). So is evidence that the manifest does
   not name, because it came after the close or was checked as of another instant: figures use it, a controller does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tasc_collector.contracts.operations import AnalysisPlan
from tasc_collector.contracts.policy import PolicyBundle
from tasc_collector.contracts.protocol import CapacityGate, ExperimentProtocol
from tasc_collector.contracts.report import (
    AssessmentReport,
    DecisionResult,
    DecisionSources,
    DecisionStatus,
    DecisionSummary,
    GateResult,
    PolicyResult,
)
from tasc_pipeline.control import fairness
from tasc_pipeline.control.decisions import gates, words
from tasc_pipeline.control.decisions.capacity import Capacity
from tasc_pipeline.control.decisions.reporting import DecidedWindow, window_report
from tasc_pipeline.control.decisions.rows_behind import evidence_of, shown_figures
from tasc_pipeline.control.decisions.ruling import Judged, Judgement, judge
from tasc_pipeline.control.decisions.sequential import window_state
from tasc_pipeline.control.decisions.units import Units
from tasc_pipeline.control.decisions.words import BesideManifest
from tasc_pipeline.control.fairness import Conditions
from tasc_pipeline.control.intervals import Levels
from tasc_pipeline.control.observations import Observation, ordered

ENGINE = "tasc-decision-engine-1"


@dataclass(frozen=True, slots=True)
class DecisionInputs:
    """What a decision is a function of.

    Args:
        protocol: gates and critical slices.
        protocol_digest: its digest.
        analysis: the plan pinned before the first window.
        analysis_digest: its digest.
        window: which window it is.
        policies: what is ruled on: the frozen policy, in development every policy of the study.
        units: the window as arrays, with every profile's side.
        observations: one per planned execution, for counts, latencies and fairness.
        capacity: per profile, what its server's scrapes say.
        sources: digests of the rest, and the phase.
        as_of: the instant the assessment speaks for.
        cost_reason: why calls have no cost, null where they have one.
        rejected: evidence that does not count, by reason.
        beside_manifest: how the evidence is not the set that the window's manifest was closed over, null where it is.
        earlier: what the study's windows before this one left.
        conditions: per profile, load and throttling while the window was open.
    """

    protocol: ExperimentProtocol
    protocol_digest: str
    analysis: AnalysisPlan
    analysis_digest: str
    window: DecidedWindow
    policies: Sequence[PolicyBundle]
    units: Units
    observations: Sequence[Observation]
    capacity: Mapping[str, Capacity]
    sources: DecisionSources
    as_of: str
    cost_reason: str | None = None
    rejected: Mapping[str, int] = field(default_factory=dict)
    beside_manifest: BesideManifest | None = None
    earlier: Sequence[DecisionSummary] = ()
    conditions: Mapping[str, Conditions] = field(default_factory=dict)


def assess_decision(inputs: DecisionInputs) -> AssessmentReport:
    """Assess one closed window of a decision study; see the procedure of this module."""
    window, protocol = inputs.window, inputs.protocol
    rows = ordered(inputs.observations)
    stale = _stale(inputs)
    decision = _stale_result(inputs, stale) if stale else _ruled(inputs, rows)
    beside = None
    if inputs.beside_manifest is not None and not stale:
        beside = words.beside_manifest(inputs.beside_manifest, window.window_key, window.watermark)
        decision = decision.model_copy(update={"sentence": f"{decision.sentence} {beside}"})
    return window_report(
        window,
        protocol,
        decision,
        rows,
        engine=ENGINE,
        protocol_digest=inputs.protocol_digest,
        analysis_digest=inputs.analysis_digest,
        as_of=inputs.as_of,
        coverage=next((item.actual for item in decision.gates if item.id == gates.COVERAGE.id), None),
        warnings=(*words.warnings(decision), *(() if beside is None else (beside,))),
        missing=words.missing(decision, inputs.rejected, inputs.cost_reason, window.window_key),
    )


def _stale(inputs: DecisionInputs) -> tuple[str, ...]:
    """Why nothing may be judged at ``as_of``, rule 1; empty where it may."""
    protocol, as_of = inputs.protocol, inputs.as_of
    online = inputs.sources.phase == "window"
    found = {
        "before-watermark": as_of < inputs.window.watermark,
        "protocol-not-yet-valid": as_of < protocol.created_at,
        "protocol-expired": as_of >= protocol.expires_at,
        "policy-not-yet-valid": any(as_of < policy.issued_at for policy in inputs.policies),
        "policy-issued-after-window-start": online
        and any(policy.issued_at > inputs.window.start for policy in inputs.policies),
    }
    return tuple(sorted(reason for reason, holds in found.items() if holds))


def _stale_result(inputs: DecisionInputs, reasons: tuple[str, ...]) -> DecisionResult:
    waits = "before-watermark" in reasons
    return DecisionResult(
        status="STALE",
        policy_digest=inputs.window.policy_digest,
        gates=(),
        reasons=reasons,
        sentence=words.stale(reasons, inputs.window.window_key, inputs.as_of, inputs.window.watermark),
        wait_until=inputs.window.watermark if waits else None,
        sources=inputs.sources,
    )


def _ruled(inputs: DecisionInputs, rows: Sequence[Observation]) -> DecisionResult:
    judged = [_judge(inputs, policy) for policy in sorted(inputs.policies, key=lambda item: item.policy_digest)]
    development = inputs.sources.phase == "development"
    chosen, status = _nominated(judged) if development else (judged[0], judged[0].status)
    policy = chosen.policy
    champion = inputs.protocol.champion_profile_id
    sides = (inputs.units.sides[champion], chosen.side)
    strip = fairness.strip(
        [row for row in rows if row.profile_id == champion],
        [row for row in rows if row.profile_id == policy.primary_profile_id],
        inputs.conditions.get(champion, fairness.NO_CONDITIONS),
        inputs.conditions.get(policy.primary_profile_id, fairness.NO_CONDITIONS),
    )
    evidence = evidence_of(sides, inputs.units)
    levels = Levels(inputs.analysis.confidence)
    return DecisionResult(
        status=status,
        policy_digest=policy.policy_digest,
        gates=chosen.gates,
        reasons=gates.reasons(chosen.gates),
        sentence=words.sentence(
            status,
            policy,
            chosen.gates,
            evidence,
            fairness.warnings(strip),
            windows=len(chosen.windows) if inputs.analysis.sequential else None,
        ),
        figures=shown_figures(inputs.units, sides, levels, chosen.resamples, cascade=policy.kind == "cascade"),
        evidence=evidence,
        fairness=strip,
        summary=None if development else chosen.windows[-1],
        windows=window_state(chosen.windows, levels, sequential=inputs.analysis.sequential),
        policies=tuple(
            PolicyResult(policy_digest=item.policy.policy_digest, status=item.status, gates=item.gates)
            for item in judged
        )
        if development
        else (),
        sources=inputs.sources,
    )


def _judge(inputs: DecisionInputs, policy: PolicyBundle) -> Judged:
    protocol = inputs.protocol
    capacity = None
    if isinstance(protocol.gates.service_capacity, CapacityGate) and inputs.sources.phase == "window":
        capacity = inputs.capacity.get(policy.primary_profile_id, Capacity(None, None, "no-metric-scrape"))
    return judge(
        Judgement(
            protocol=protocol,
            analysis=inputs.analysis,
            analysis_digest=inputs.analysis_digest,
            policy=policy,
            champion=protocol.champion_profile_id,
            window_key=inputs.window.window_key,
            collected_as=inputs.window.collected_as,
            watermark=inputs.window.watermark,
            capacity=capacity,
            cost_reason=inputs.cost_reason,
        ),
        inputs.units,
        inputs.earlier,
    )


def _nominated(judged: Sequence[Judged]) -> tuple[Judged, DecisionStatus]:
    """The best policy that passes, or the one that a reader is shown where none does."""

    def key(item: Judged) -> tuple[float, float, str]:
        return (_actual(item.gates, gates.COST.id), _actual(item.gates, gates.P95_E2E.id), item.policy.policy_digest)

    passing = [item for item in judged if item.status == "PASS"]
    if passing:
        return min(passing, key=key), "NOMINATED"
    best = min(judged, key=lambda item: (-sum(gate.passed for gate in item.gates), key(item)))
    lacking = all(item.status == "INSUFFICIENT_EVIDENCE" for item in judged)
    return best, "INSUFFICIENT_EVIDENCE" if lacking else "NO_CANDIDATE"


def _actual(found: Sequence[GateResult], gate_id: str) -> float:
    value = next((item.actual for item in found if item.id == gate_id), None)
    return float("inf") if value is None else value
