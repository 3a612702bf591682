"""Engine v2: development, holdout and window decisions, the original's to the last byte (original, section 6). Pure.

Procedure:

1. Every envelope passes ``trace_checks``; evidence was checked against the operator's snapshot; both are joined
   (``joining``) and the joined table is digested (``engine_v2_dataset``). All executions are of the phase's split.
2. Stale reasons. With any of them the decision is ``STALE`` and nothing is computed.
3. Orphan, duplicate or conflicting rows, a trace outside the window, or evidence later than its watermark: no decision,
   an error that names the first rule.
4. The expert-only control and every policy are replayed and assessed (``replay``, ``engine_v2_gates``).
5. Development tries every policy of the protocol's space and nominates, of those that pass, the cheapest, then the one
   with the lowest 95th percentile end to end, then the lowest digest. Holdout and window judge the one frozen policy.

The clock is the context's ``as_of``; nothing here reads another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tasc_collector.contracts.context import AssessmentContext
from tasc_collector.contracts.decision import AssessmentDecision, CandidateAssessment, DecisionStatus, Estimator, Phase
from tasc_collector.contracts.evidence_trust import EvidenceStatus
from tasc_collector.contracts.manifest import CapacityReported, WindowManifest
from tasc_collector.contracts.policy import PolicyBundle, control_policy, policy_conflict, policy_space
from tasc_collector.contracts.protocol import CapacityGate, ExperimentProtocol
from tasc_collector.contracts.scalars import timestamp_ms
from tasc_collector.errors import DigestMismatch, InputError
from tasc_collector.shadow.membership import exclusion
from tasc_pipeline.control.engine_v2_dataset import Dataset, Sources, dataset_of
from tasc_pipeline.control.engine_v2_gates import Setting, assess_candidate, stale_candidate
from tasc_pipeline.control.engine_v2_random import bootstrap_seed
from tasc_pipeline.control.identifiers import texts
from tasc_pipeline.control.joined_rows import SPLITS, Evidence, Executions, JoinedRows, Problem
from tasc_pipeline.control.joining import join
from tasc_pipeline.control.record_columns import evidence_of, executions_of
from tasc_pipeline.control.replay import replay
from tasc_pipeline.control.trace_checks import check_traces

_SPLIT_OF: Final[dict[Phase, str]] = {"development": "dev", "holdout": "holdout", "window": "online"}
_STALE_STATUSES: Final = (
    EvidenceStatus.REVOKED,
    EvidenceStatus.STALE,
    EvidenceStatus.FUTURE_DATED,
    EvidenceStatus.KEY_NOT_YET_VALID,
    EvidenceStatus.KEY_EXPIRED,
)


@dataclass(frozen=True, slots=True)
class Table:
    """A joined table with what it was joined from.

    Args:
        sources: envelopes and checked evidence.
        evidence: the columns of the evidence.
        rows: the joined rows.
        dataset: its digests.
    """

    sources: Sources
    evidence: Evidence
    rows: JoinedRows
    dataset: Dataset


def table_of(sources: Sources, *, verified: bool = False) -> Table:
    """Check, join and digest (step 1).

    Args:
        sources: envelopes and checked evidence.
        verified: the envelopes' signatures have been checked before.

    Raises:
        InputError: an envelope does not belong to the protocol, or executions that must share a fact do not.
        SignatureError: a signature is not the study's.
    """
    check_traces(sources.traces, sources.terms, verified=verified)
    executions = executions_of(sources.traces, sources.terms.protocol)
    return joined_table(sources, executions, evidence_of(sources.receipts, sources.terms))


def joined_table(sources: Sources, executions: Executions, evidence: Evidence) -> Table:
    """Join and digest what was checked.

    Args:
        sources: envelopes and checked evidence.
        executions: the envelopes' columns, in their order.
        evidence: the evidence's columns, in its order.

    Raises:
        InputError: executions that must share a fact do not.
    """
    rows = join(executions, evidence)
    return Table(sources, evidence, rows, dataset_of(rows, executions, evidence, sources))


def assess_development(table: Table, context: AssessmentContext, *, issued_at: str | None = None) -> AssessmentDecision:
    """Try every policy of the protocol's space on development traces.

    Args:
        table: of development traces.
        context: clock and trust.
        issued_at: when the policies were issued, where a study issued them before its first window; the original issues
            them as of the assessment.

    Raises:
        InputError: see step 3, or a row of another split.
    """
    protocol = table.sources.terms.protocol
    policies = policy_space(protocol, issued_at or _issued_at(protocol, context))
    return _assess(table, context, Setting(protocol, None, "development"), policies)


def assess_holdout(table: Table, context: AssessmentContext, nomination: AssessmentDecision) -> AssessmentDecision:
    """Judge the nominated policy on held-out traces.

    Args:
        table: of the held-out traces.
        context: clock and trust.
        nomination: the development decision; whoever calls has made it again from its sources (``confirmed``).

    Raises:
        InputError: no nomination, see step 3, or a row of another split.
    """
    if nomination.selected_policy is None or nomination.phase != "development":
        raise InputError(
            "there is no nomination to confirm",
            where="development decision",
            field="status",
            rule="holdout judges the policy that development nominated",
            way_out="assess development first; it must be NOMINATED",
        )
    return _frozen(table, context, nomination.selected_policy, None, "holdout")


def assess_window(
    table: Table, context: AssessmentContext, policy: PolicyBundle, manifest: WindowManifest
) -> AssessmentDecision:
    """Judge the frozen policy on the traces of one sealed window.

    Raises:
        InputError: see step 3, a row of another split, or a manifest of another protocol, policy or membership rule.
        DigestMismatch: the manifest's set digests are not those of these sources.
    """
    _check_manifest(table, policy, manifest)
    return _frozen(table, context, policy, manifest, "window")


def confirmed(recomputed: AssessmentDecision, persisted: AssessmentDecision) -> AssessmentDecision:
    """The development decision, made again from its sources; a stored one counts only where both are one.

    Raises:
        DigestMismatch: they differ.
    """
    if recomputed.decision_digest != persisted.decision_digest:
        raise DigestMismatch(
            "the stored development decision is not what its sources give",
            where="development decision",
            field="decisionDigest",
            way_out="assess development again from the original traces, evidence and context",
        )
    return recomputed


def _frozen(
    table: Table, context: AssessmentContext, policy: PolicyBundle, manifest: WindowManifest | None, phase: Phase
) -> AssessmentDecision:
    protocol = table.sources.terms.protocol
    conflict = policy_conflict(policy, protocol)
    if conflict is not None:
        raise InputError(
            "the protocol does not allow this policy",
            where="policy",
            rule=conflict,
            way_out="use the policy that development nominated",
        )
    return _assess(table, context, Setting(protocol, manifest, phase), (policy,))


def _assess(
    table: Table, context: AssessmentContext, setting: Setting, policies: Sequence[PolicyBundle]
) -> AssessmentDecision:
    protocol, rows, phase = setting.protocol, table.rows, setting.phase
    other = np.flatnonzero(rows.executions.split != SPLITS.index(_SPLIT_OF[phase]))
    if len(other):
        raise InputError(
            f"a {phase} assessment takes traces of the split {_SPLIT_OF[phase]} only",
            where=texts(rows.executions.trace_id[other[:1]])[0],
            field="split",
            way_out="give each split's traces to its own assessment",
        )
    control = control_policy(protocol, _issued_at(protocol, context))
    frozen = None if phase == "development" else policies[0]
    stale = _stale_reasons(table, context, frozen, setting.manifest)
    if stale:
        own, candidates = stale_candidate(control, stale), tuple(stale_candidate(policy, stale) for policy in policies)
    else:
        refuse_problems(rows.problems)
        if setting.manifest is not None:
            _check_window(table, setting.manifest)
        baseline = replay(rows, control)
        own = assess_candidate(rows, baseline, baseline, setting)
        candidates = tuple(assess_candidate(rows, replay(rows, policy), baseline, setting) for policy in policies)
    status, selected = _status(phase, candidates, stale=bool(stale))
    bootstrap, dataset = protocol.bootstrap, table.dataset
    return AssessmentDecision.issue(
        phase=phase,
        status=status,
        assessment_context_digest=context.context_digest,
        protocol_digest=table.sources.terms.digest,
        dataset_digest=dataset.digest,
        trace_set_digest=dataset.trace_set_digest,
        evaluator_set_digest=dataset.evaluator_set_digest,
        window_manifest_digest=None if setting.manifest is None else setting.manifest.digest,
        estimator=Estimator(
            alpha=bootstrap.alpha, iterations=bootstrap.iterations, seed=bootstrap_seed(bootstrap.seed)
        ),
        control=own,
        candidates=candidates,
        selected_policy=selected,
        selected_policy_digest=None if selected is None else selected.policy_digest,
        stale_reasons=stale,
        warnings=_warnings(setting, candidates),
        unavailable_metrics=_unavailable(candidates),
    )


def refuse_problems(problems: Sequence[Problem]) -> None:
    """Refuse a table that rows were dropped from.

    Raises:
        InputError: names the first problem, how often it is, and a first trace.
    """
    for item in sorted(problems, key=lambda item: (item.kind, item.reason)):
        raise InputError(
            f"{item.count} {item.kind.replace('-', ' ')}; no decision is made",
            where=", ".join(item.examples),
            rule=item.reason,
            way_out="take the rows out of the input, or ask their producer which of them holds",
        )


def _issued_at(protocol: ExperimentProtocol, context: AssessmentContext) -> str:
    inside = protocol.created_at <= context.as_of < protocol.expires_at
    return context.as_of if inside else protocol.created_at


def _check_manifest(table: Table, policy: PolicyBundle, manifest: WindowManifest) -> None:
    terms = table.sources.terms
    for holds, field, rule in (
        (manifest.protocol_digest == terms.digest, "protocolDigest", "the manifest is of the assessed protocol"),
        (
            manifest.frozen_policy_digest == policy.policy_digest,
            "frozenPolicyDigest",
            "the manifest is of the assessed policy",
        ),
        (
            manifest.membership_rule == terms.protocol.online_window_membership,
            "membershipRule",
            "the window's membership rule is the protocol's",
        ),
    ):
        if not holds:
            raise InputError(
                "the manifest does not belong to this assessment",
                where=manifest.window_id,
                field=field,
                rule=rule,
                way_out="name the manifest of this window",
            )
    for field, claimed, found, what in (
        ("traceSetDigest", manifest.trace_set_digest, table.dataset.trace_set_digest, "all traces of the window"),
        (
            "evaluatorSetDigest",
            manifest.evaluator_set_digest,
            table.dataset.evaluator_set_digest,
            "all evidence of the window, and the context (instant, trust, revocations) that it was sealed under",
        ),
    ):
        if claimed != found:
            raise DigestMismatch(
                "the manifest was sealed over other sources",
                where=manifest.window_id,
                field=field,
                rule="a decision is made from exactly what the manifest lists",
                way_out=f"give {what}; or make a revision of the manifest for late ones",
            )


def _check_window(table: Table, manifest: WindowManifest) -> None:
    for place in table.rows.source.tolist():
        trace = table.sources.traces[place].record
        reason = exclusion(trace, manifest)
        if reason is not None:
            raise InputError(
                "a trace lies outside the window",
                where=trace.trace_id,
                rule=reason.value,
                way_out="take it out of the input; a window's traces are fixed by its declaration",
            )
    used = table.rows.evidence[table.rows.accepted]
    late = used[table.evidence.produced_ms[used] > timestamp_ms(manifest.ingestion_watermark)]
    if len(late):
        raise InputError(
            "evidence was produced after the window's watermark",
            where=texts(table.evidence.trace_id[late[:1]])[0],
            field="producedAt",
            rule="evidence counts until the ingestion watermark",
            way_out="make a revision of the window for late evidence",
        )


def _stale_reasons(
    table: Table, context: AssessmentContext, policy: PolicyBundle | None, manifest: WindowManifest | None
) -> tuple[str, ...]:
    protocol, as_of, rows, evidence = table.sources.terms.protocol, context.as_of, table.rows, table.evidence
    checked = [table.sources.receipts[place] for place in np.unique(evidence.check, return_index=True)[1].tolist()]
    contexts = {receipt.context.context_digest for receipt in checked}
    statuses = {receipt.status for receipt in checked}
    cutoff = timestamp_ms(as_of)
    later = evidence.produced_ms[rows.evidence[rows.evidence >= 0]] > cutoff
    found = {
        "assessment-context-drift": len(contexts) == 1 and context.context_digest not in contexts,
        "evaluator-verification-context-drift": len(contexts) > 1
        or bool(contexts - {context.context_digest})
        or EvidenceStatus.CONTEXT_MISMATCH in statuses,
        "protocol-not-yet-valid": as_of < protocol.created_at,
        "protocol-expired": as_of >= protocol.expires_at,
        "policy-not-yet-valid": policy is not None and policy.issued_at > as_of,
        "window-not-yet-sealed-at-assessment-time": manifest is not None
        and max(manifest.event_time_end_exclusive, manifest.ingestion_watermark) > as_of,
        "policy-issued-after-window-start": manifest is not None
        and policy is not None
        and policy.issued_at > manifest.event_time_start_inclusive,
        "trace-completed-after-assessment-cutoff": bool(np.any(rows.executions.completed_ms > cutoff)),
        "evaluator-evidence-produced-after-assessment-cutoff": bool(np.any(later)),
        **{f"evaluator-evidence-{status.value}": status in statuses for status in _STALE_STATUSES},
    }
    return tuple(sorted(reason for reason, holds in found.items() if holds))


def _status(
    phase: Phase, candidates: Sequence[CandidateAssessment], *, stale: bool
) -> tuple[DecisionStatus, PolicyBundle | None]:
    if phase != "development":
        return candidates[0].status, candidates[0].policy
    if stale:
        return "STALE", None
    passing = sorted((item for item in candidates if item.status == "PASS"), key=_rank)
    if passing:
        return "NOMINATED", passing[0].policy
    lacking = all(item.status == "INSUFFICIENT_EVIDENCE" for item in candidates)
    return "INSUFFICIENT_EVIDENCE" if lacking else "NO_CANDIDATE", None


def _rank(candidate: CandidateAssessment) -> tuple[float, float, str]:
    cost = candidate.metrics.cost_per_thousand_requests_usd.value
    e2e = candidate.metrics.end_to_end_latency_ms.value
    return math.inf if cost is None else cost, math.inf if e2e is None else e2e, candidate.policy_digest


def _warnings(setting: Setting, candidates: Sequence[CandidateAssessment]) -> tuple[str, ...]:
    capacity = isinstance(setting.protocol.gates.service_capacity, CapacityGate)
    manifest = setting.manifest
    found = {
        "service-capacity-gate-deferred-to-sealed-window": capacity and setting.phase != "window",
        "operator-reported-capacity-declaration-ignored": manifest is not None
        and isinstance(manifest.capacity_evidence, CapacityReported),
        "single-independent-group-produces-degenerate-bootstrap": any(
            item.inference is not None and item.inference.group_count == 1 for item in candidates
        ),
    }
    return tuple(sorted(warning for warning, holds in found.items() if holds))


def _unavailable(candidates: Sequence[CandidateAssessment]) -> tuple[str, ...]:
    return tuple(
        sorted(
            {
                name
                for item in candidates
                for name, metric in item.metrics.to_json().items()
                if metric["evidenceClass"] == "unavailable"
            }
        )
    )
