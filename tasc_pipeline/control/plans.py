"""Issuing a collection plan and saying beforehand what it may cost. Pure.

A plan is made from the study's files, the declaration and the keyed case set. Its budget is the worst case of exactly
that; whoever wants more makes a new window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tasc_collector.contracts.case_set import CaseEntry, CaseSetFile
from tasc_collector.contracts.collection import (
    CaseSet,
    ClosedLoad,
    CollectionPlan,
    OpenLoad,
    PlanEstimate,
    PlanTarget,
    Purpose,
)
from tasc_collector.contracts.comparison import Comparison
from tasc_collector.contracts.controller import ControllerSnapshot
from tasc_collector.contracts.execution_profile import ExecutionProfile
from tasc_collector.contracts.operations import CostModel, TokenPrice
from tasc_collector.contracts.policy import PolicyBundle
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.scalars import timestamp_ms, timestamp_of_ms
from tasc_collector.contracts.study import EndpointFile, Study, StudyTarget
from tasc_collector.contracts.window import WindowDeclaration
from tasc_collector.contracts.work_budget import WorkBudget
from tasc_collector.errors import NotAuthorized
from tasc_collector.shadow.budget import Work, worst_case
from tasc_collector.shadow.executions import PlannedPair, planned_pairs
from tasc_collector.signing import SigningKey
from tasc_pipeline.control.pace import Pace
from tasc_pipeline.control.shadow_plans import embedded_plan

REQUEST_OVERHEAD_BYTES = 2048
"""Upper bound of a request body beyond its prompt: fields, escapes and ids."""
OVERLOAD_STOP_AFTER = 5
"""Consecutive 429, 503 or refused connects after which a lane stops."""
TEMPLATE_TOKENS = 64
"""Upper bound of what a chat template adds to a prompt, in tokens."""


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """What a plan is made from."""

    study: Study
    rules: Comparison | ExperimentProtocol
    declaration: WindowDeclaration
    endpoints: Mapping[str, EndpointFile]
    bindings: Mapping[str, str]
    case_set: CaseSetFile
    case_root: str
    longest_request_characters: int
    receipts: Mapping[str, Sequence[str]]
    """Receipt digests by profile id."""
    analysis_plan_digest: str | None = None
    cost_model_digest: str | None = None
    network_extension_digest: str | None = None
    policy: PolicyBundle | None = None
    """The frozen policy of a decision study; None for a comparison, whose own digest stands for it."""
    snapshot: ControllerSnapshot | None = None
    """Of the study's controller, for purpose ``window``."""


def issue_plan(
    inputs: PlanInputs,
    *,
    purpose: Purpose,
    issued_at: str,
    key: SigningKey,
    key_id: str,
    authorization_digest: str | None = None,
) -> CollectionPlan:
    """Issue and sign the plan of a window; purpose ``window`` embeds a shadow run plan.

    Args:
        inputs: the study, its window, cases, receipts and, of a decision study, policy and controller.
        purpose: what the collection is for.
        issued_at: instant of the signature.
        key: the operator's, or the dispatch key under a standing authorization.
        key_id: of that key in the key ring.
        authorization_digest: the standing authorization that allows it, where nobody approves by hand.

    Raises:
        NotAuthorized: the study's ceilings are too small for what was asked, or the original's rules allow no shadow run
            plan for it; names the ceiling or the rule.
    """
    study, rules, declaration = inputs.study, inputs.rules, inputs.declaration
    collection = rules.shadow_collection
    fields: dict[str, Any] = {  # Any: fields of the record, checked by it
        "study_id": study.study_id,
        "purpose": purpose,
        "window_key": declaration.window_key,
        "declaration_digest": declaration.digest,
        "protocol_digest": rules.digest,
        "policy_digest": rules.digest if inputs.policy is None else inputs.policy.policy_digest,
        "targets": tuple(
            sorted((_target(inputs, target) for target in study.targets), key=lambda target: target.profile_id)
        ),
        "pair_isolation": study.pair_isolation,
        "load_model": study.load_model,
        "generation": study.generation,
        "cases": CaseSet(count=len(inputs.case_set.entries), root=inputs.case_root, key_id=inputs.case_set.key_id),
        "replicates": max(entry.replicates for entry in inputs.case_set.entries),
        "warm_up_calls_per_profile": study.warm_up_calls_per_profile,
        "maximum_attempts": collection.maximum_attempts,
        "attempt_timeout_ms": collection.attempt_timeout_ms,
        "overload_stop_after": OVERLOAD_STOP_AFTER,
        "network_extension_digest": inputs.network_extension_digest,
        "analysis_plan_digest": inputs.analysis_plan_digest,
        "cost_model_digest": inputs.cost_model_digest,
        "issued_at": issued_at,
        "expires_at": declaration.ingestion_watermark,
        "authorization_digest": authorization_digest,
    }
    unfilled: dict[str, Any] | None = {} if purpose == "window" else None  # Any: the embedded record, made last
    draft = CollectionPlan.sign_with(key, key_id, **fields, budget=_one_of_each(), shadow_run_plan=unfilled)
    work = work_of(draft, declaration, inputs.case_set, inputs.longest_request_characters)
    _within_sample(work, declaration)
    _within_ceilings(rules, work)
    budget = _budget(work, draft, declaration)
    embedded = _embedded(inputs, draft, budget) if purpose == "window" else None
    return CollectionPlan.sign_with(key, key_id, **fields, budget=budget, shadow_run_plan=embedded)


def _embedded(inputs: PlanInputs, draft: CollectionPlan, budget: WorkBudget) -> dict[str, Any]:  # Any: a JSON object
    """The shadow run plan with the targets, budget and instants of the collection plan."""
    if not isinstance(inputs.rules, ExperimentProtocol) or inputs.policy is None or inputs.snapshot is None:
        raise NotAuthorized(
            "purpose window needs a protocol, a selected policy and the controller's snapshot",
            where=inputs.study.study_id,
            field="purpose",
            way_out=f"see: tasc controller show {inputs.study.study_id}",
        )
    return embedded_plan(
        inputs.rules,
        inputs.policy,
        inputs.snapshot,
        inputs.declaration,
        draft.targets,
        budget,
        issued_at=draft.issued_at,
    ).to_json()


def work_of(
    plan: CollectionPlan, declaration: WindowDeclaration, case_set: CaseSetFile, longest_request_characters: int
) -> Work:
    """Worst case of a plan over its sampled pairs: calls, attempts, bytes, tokens.

    Args:
        plan: with targets, replicates and limits.
        declaration: whose membership rule samples the pairs.
        case_set: the planned cases.
        longest_request_characters: of any case; a character takes up to 6 bytes in JSON (``\\uXXXX``).
    """
    pairs = list(planned_pairs(plan, declaration, case_set))
    largest = 6 * longest_request_characters + REQUEST_OVERHEAD_BYTES
    return worst_case(
        plan,
        cases=len({pair.case_id for pair in pairs}),
        replicates=len(pairs),
        request_bytes=[largest] * (len(pairs) * len(plan.targets)),
    )


def estimate(
    plan: CollectionPlan,
    pairs: Sequence[PlannedPair],
    case_set: CaseSetFile,
    cost_model: CostModel | None,
    pace: Pace | None = None,
) -> PlanEstimate:
    """Calls, most output tokens, expected minutes and most modeled cost of a plan.

    Args:
        plan: the plan.
        pairs: its sampled pairs.
        case_set: its cases.
        cost_model: prices, if the study has them.
        pace: how long a call takes; assumed if None.
    """
    caps = {entry.case_id: entry.maximum_output_tokens for entry in case_set.entries}
    profiles = len(plan.targets)
    warm_up = plan.warm_up_calls_per_profile * profiles
    tokens = sum(caps[pair.case_id] for pair in pairs) * profiles + warm_up
    load = plan.load_model
    per_pair = profiles if plan.pair_isolation == "serial" else 1
    seconds_per_call = (pace or Pace()).call_s((min(caps.values(), default=1) + max(caps.values(), default=1)) / 2)
    if isinstance(load, ClosedLoad):
        seconds = len(pairs) * per_pair * seconds_per_call / load.concurrency
    else:
        assert isinstance(load, OpenLoad)  # noqa: S101 - the union has two members
        seconds = len(pairs) / load.rate_per_second if load.rate_per_second else 0.0
    return PlanEstimate(
        calls=len(pairs) * profiles,
        warm_up_calls=warm_up,
        output_tokens=tokens,
        minutes=round(seconds / 60, 2),
        cost_usd=_cost(plan, pairs, case_set, cost_model),
    )


def _cost(
    plan: CollectionPlan, pairs: Sequence[PlannedPair], case_set: CaseSetFile, model: CostModel | None
) -> float | None:
    """Most modeled cost of a window, warm-up calls included; None where no model prices every profile."""
    if model is None:
        return None
    entries = {entry.case_id: entry for entry in case_set.entries}
    warm_up = plan.warm_up_calls_per_profile
    output = sum(entries[pair.case_id].maximum_output_tokens for pair in pairs) + warm_up
    prompt = sum(most_prompt_tokens(entries[pair.case_id]) for pair in pairs) + warm_up * TEMPLATE_TOKENS
    prices = {entry.profile_id: entry.price for entry in model.profiles}
    total = 0.0
    for target in plan.targets:
        price = prices.get(target.profile_id)
        if price is None:
            return None
        if isinstance(price, TokenPrice):
            total += (output * price.output_usd_per_million + prompt * price.input_usd_per_million) / 1e6
        else:
            total += (
                (len(pairs) + warm_up)
                * plan.attempt_timeout_ms
                / 1000
                * price.usd_per_device_second
                * price.devices
                / target.lane_width
            )
    return round(total, 6)


def most_prompt_tokens(entry: CaseEntry) -> int:
    """Most prompt tokens of a case: one per character of its length bucket's upper end, and a chat template."""
    return int(entry.length_bucket.rpartition("-")[2]) + TEMPLATE_TOKENS


def _target(inputs: PlanInputs, target: StudyTarget) -> PlanTarget:
    endpoint = inputs.endpoints[target.profile_id]
    profile: ExecutionProfile = {profile.id: profile for profile in inputs.rules.profiles}[target.profile_id]
    transport: Literal["https", "loopback-http"] = "loopback-http" if endpoint.origin.startswith("http://") else "https"
    return PlanTarget(
        profile_id=target.profile_id,
        role="champion" if target.profile_id == inputs.rules.champion_profile_id else "candidate",
        endpoint_alias=endpoint.alias,
        endpoint_binding_digest=inputs.bindings[target.profile_id],
        execution_profile_digest=profile.digest,
        transport=transport,
        runtime=endpoint.runtime,
        wire_base=endpoint.wire_base,
        backend=endpoint.backend,
        model=endpoint.model,
        configuration_digest=endpoint.configuration_digest,
        route=target.route,
        framing=target.framing,
        authentication_reference=endpoint.authentication_reference,
        http_limits=inputs.study.http_limits,
        capability_receipt_digests=tuple(sorted(inputs.receipts.get(target.profile_id, ()))),
        lane_width=target.lane_width,
    )


def _one_of_each() -> WorkBudget:
    return WorkBudget(**dict.fromkeys(WorkBudget.model_fields, 1))


def _budget(work: Work, plan: CollectionPlan, declaration: WindowDeclaration) -> WorkBudget:
    length_ms = timestamp_ms(declaration.event_time_end_exclusive) - timestamp_ms(
        declaration.event_time_start_inclusive
    )
    if work.wall_clock_ms > length_ms:
        raise NotAuthorized(
            f"the worst case takes {work.wall_clock_ms / 60_000:.1f} minutes, the window has {length_ms / 60_000:.1f}",
            where=plan.window_key,
            field="budget.maxWallClockMs",
            rule="calls times time-out, divided by concurrency, fits the window",
            way_out="seal a longer window, shorten the attempt time-out, raise the concurrency or use fewer cases",
        )
    return WorkBudget(
        max_cases=work.cases,
        max_profiles=work.profiles,
        max_replicates=work.replicates,
        max_logical_executions=work.logical_executions,
        max_attempts=work.attempts,
        max_network_calls=work.network_calls,
        max_durable_records=work.durable_records,
        max_request_bytes=work.request_bytes,
        max_response_bytes=work.response_bytes,
        max_wall_clock_ms=work.wall_clock_ms,
        max_concurrency=work.concurrency,
    )


def _within_sample(work: Work, declaration: WindowDeclaration) -> None:
    if work.logical_executions == 0:
        raise NotAuthorized(
            "no case is in the window's sample",
            where=declaration.window_key,
            field="membershipRule.sampleBasisPoints",
            rule=f"a seeded hash of case and replicate takes {declaration.membership_rule.sample_basis_points} of 10,000",
            way_out="add cases to the file, or make a study with a larger sample: tasc study new",
        )


def _within_ceilings(rules: Comparison | ExperimentProtocol, work: Work) -> None:
    ceilings = rules.shadow_collection
    for name, needed, allowed in (
        ("maximumLogicalExecutions", work.logical_executions, ceilings.maximum_logical_executions),
        ("maximumConcurrency", work.concurrency, ceilings.maximum_concurrency),
    ):
        if needed > allowed:
            raise NotAuthorized(
                f"the plan needs {needed}, the study allows {allowed}",
                where=rules.study_id,
                field=f"shadowCollection.{name}",
                way_out="make a new study with fewer cases, replicates or lanes: tasc study new",
            )


def validity_left_ms(plan: CollectionPlan, now_ms: int) -> int:
    """Milliseconds until the plan expires; negative after."""
    return timestamp_ms(plan.expires_at) - now_ms


def default_start(now_ms: int, lead_s: float) -> str:
    """A window start a few seconds ahead."""
    return timestamp_of_ms(now_ms + round(lead_s * 1000))
