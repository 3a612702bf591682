"""A decision study from answers: protocol v2, every policy of its space, analysis plan, cost model, evaluator trust. Pure.

All of it is fixed now, before the first call, and named by digest: who changes a gate later has another study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasc_collector.contracts.authority import AuthorityKey
from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.decision_answers import CostAnswers, DecisionAnswers
from tasc_collector.contracts.execution_profile import ExecutionProfile
from tasc_collector.contracts.membership import MembershipRule, SplitMembership
from tasc_collector.contracts.operations import AnalysisPlan, CostModel, ProfileCost
from tasc_collector.contracts.policy import PolicyBundle, control_policy, policy_space
from tasc_collector.contracts.protocol import (
    Bootstrap,
    CandidatePolicySpace,
    CapacityGate,
    CapacityGateDisabled,
    CostModeled,
    CostUnavailable,
    EndpointRequirement,
    EvaluatorDefinition,
    EvaluatorIdentity,
    ExperimentProtocol,
    GateBounds,
    Gates,
    PolicyPredicate,
    RouteSignalDefinition,
    ShadowCollection,
)
from tasc_collector.contracts.trust_snapshot import EvaluatorKey, EvaluatorTrustSnapshot
from tasc_collector.errors import InputError
from tasc_pipeline.home.studies import POLICIES
from tasc_pipeline.steps.study_parts import ANALYSIS_PLAN, COST_MODEL, EVALUATOR_TRUST


@dataclass(frozen=True, slots=True)
class Common:
    """What the protocol shares with a comparison."""

    study_id: str
    owner: str
    created_at: str
    expires_at: str
    dispatch_authority: AuthorityKey
    collector_authority: AuthorityKey
    profiles: Sequence[ExecutionProfile]
    """The champion first."""
    shadow_collection: ShadowCollection
    endpoint_requirements: tuple[EndpointRequirement, ...]


def protocol_of(common: Common, answers: DecisionAnswers, trust: EvaluatorTrustSnapshot) -> ExperimentProtocol:
    """The protocol of a new decision study.

    Args:
        common: what it shares with a comparison.
        answers: of the operator.
        trust: the evaluator keys that he trusts.

    Raises:
        InputError: no trusted key may sign what the answers name.
    """
    seed = common.study_id[:100]
    champion, *candidates = (profile.id for profile in common.profiles)
    signal = answers.route_signal
    model = cost_model(common, answers.cost)
    return ExperimentProtocol(
        study_id=common.study_id,
        protocol_version="v1",
        owner=common.owner,
        created_at=common.created_at,
        expires_at=common.expires_at,
        dispatch_authority=common.dispatch_authority,
        collector_authority=common.collector_authority,
        split_membership=_split(answers, f"{seed}-split-1"),
        online_window_membership=MembershipRule(
            seed=f"{seed}-sample-1", sample_basis_points=answers.split.sample_basis_points
        ),
        profiles=tuple(common.profiles),
        champion_profile_id=champion,
        candidate_profile_ids=tuple(candidates),
        route_signal=RouteSignalDefinition(**_shared(RouteSignalDefinition, signal)),
        evaluator=EvaluatorDefinition(
            **_shared(EvaluatorIdentity, answers.evaluator),
            required_trusted_key_ids=tuple(key.key_id for key in trusted_keys(answers, trust)),
        ),
        candidate_policy_space=CandidatePolicySpace(
            max_candidates=len(candidates) * (len(signal.thresholds) + 1),
            predicates=tuple(
                PolicyPredicate(
                    signal_definition_id=signal.definition_id,
                    operator=signal.operator,
                    threshold=threshold,
                    route_to_profile_id=champion,
                )
                for threshold in signal.thresholds
            ),
        ),
        gates=_gates(answers),
        critical_slices=answers.critical_slices,
        bootstrap=Bootstrap(
            seed=f"{seed}-resampling-1", iterations=answers.statistics.iterations, alpha=answers.statistics.alpha
        ),
        shadow_collection=common.shadow_collection,
        cost_allocation=CostUnavailable() if model is None else CostModeled(model_digest=model.digest),
        endpoint_requirements=common.endpoint_requirements,
        required_capabilities=answers.required_capabilities,
    )


def decision_records(
    common: Common, protocol: ExperimentProtocol, answers: DecisionAnswers, trust: EvaluatorTrustSnapshot
) -> dict[str, Record]:
    """The further records of a decision study by their name in its folder."""
    records: dict[str, Record] = {
        ANALYSIS_PLAN: analysis_plan(protocol, answers),
        EVALUATOR_TRUST: trust,
        **policy_files(protocol),
    }
    model = cost_model(common, answers.cost)
    if model is not None:
        records[COST_MODEL] = model
    return records


def policy_files(protocol: ExperimentProtocol) -> dict[str, PolicyBundle]:
    """The control and every candidate policy, issued with the protocol, by file name."""
    at = protocol.created_at
    every = (control_policy(protocol, at), *policy_space(protocol, at))
    return {f"{POLICIES}/{policy.kind}-{policy.policy_digest[7:15]}.json": policy for policy in every}


def analysis_plan(protocol: ExperimentProtocol, answers: DecisionAnswers) -> AnalysisPlan:
    """How the study is analysed, pinned before its first window."""
    return AnalysisPlan(
        study_id=protocol.study_id,
        protocol_digest=protocol.digest,
        timing_source="envelope" if answers.statistics.interval == "paired-group-percentile-v1" else "timeline",
        interval=answers.statistics.interval,
        confidence=1 - answers.statistics.alpha,
        draws=answers.statistics.iterations,
        seed=protocol.bootstrap.seed,
        sequential=answers.statistics.sequential,
        minimum_coverage=answers.gates.minimum_evidence_coverage,
        slice_gates=answers.critical_slices,
        pinned_at=protocol.created_at,
    )


def cost_model(common: Common, cost: CostAnswers) -> CostModel | None:
    """Prices by profile; None where there are none."""
    if cost.champion is None or cost.candidate is None:
        return None
    champion, *candidates = common.profiles
    return CostModel(
        model_id=f"{common.study_id[:100]}-cost-1",
        profiles=(
            ProfileCost(profile_id=champion.id, price=cost.champion),
            *(ProfileCost(profile_id=profile.id, price=cost.candidate) for profile in candidates),
        ),
    )


def trusted_keys(answers: DecisionAnswers, trust: EvaluatorTrustSnapshot) -> tuple[EvaluatorKey, ...]:
    """The keys that may sign what the answers name: this evaluator, producer, rubric and calibration.

    Raises:
        InputError: there is none.
    """
    named = answers.evaluator
    found = tuple(
        key
        for key in trust.keys
        if (key.evaluator_id, key.producer_id) == (named.evaluator_id, named.producer_id)
        and named.rubric_version in key.authorized_rubric_versions
        and named.calibration_digest in key.authorized_calibration_digests
    )
    if not found:
        raise InputError(
            "no trusted key may sign for this evaluator, producer, rubric and calibration",
            where=named.trust_file.rpartition("/")[2],
            field="keys",
            way_out="add the evaluator's public key to the trust snapshot, or correct the answers",
        )
    return found


def _split(answers: DecisionAnswers, seed: str) -> SplitMembership:
    count, held_out = answers.split.bucket_count, answers.split.holdout_buckets
    return SplitMembership(
        seed=seed,
        bucket_count=count,
        development_buckets=tuple(range(count - held_out)),
        holdout_buckets=tuple(range(count - held_out, count)),
    )


def _gates(answers: DecisionAnswers) -> Gates:
    minimum = answers.gates.minimum_output_tokens_per_second
    return Gates(
        **_shared(GateBounds, answers.gates),
        service_capacity=CapacityGateDisabled() if minimum is None else CapacityGate(minimum=minimum),
    )


def _shared(kind: type[Model], answers: Model) -> dict[str, Any]:  # Any: field values
    """What the protocol takes over from answers as it is."""
    return {name: getattr(answers, name) for name in kind.model_fields}
