"""The original's shadow run plan inside a plan of purpose ``window``: built with the plan, checked whenever it is read. Pure.

The embedded plan is the original project's record, complete with controller snapshot, protocol and policy, so that its
own tools accept it; the traces of the window carry its digest. It says nothing that the collection plan does not say:
``check_embedded`` compares the two member by member.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.collection import CollectionPlan, PlanTarget
from tasc_collector.contracts.controller import ControllerSnapshot
from tasc_collector.contracts.policy import PolicyBundle
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.shadow_plan import CollectionTarget, ShadowRunPlan, ShadowWindow
from tasc_collector.contracts.window import WindowDeclaration
from tasc_collector.contracts.work_budget import WorkBudget
from tasc_collector.errors import DigestMismatch, NotAuthorized


def embedded_plan(
    protocol: ExperimentProtocol,
    policy: PolicyBundle,
    snapshot: ControllerSnapshot,
    declaration: WindowDeclaration,
    targets: Sequence[PlanTarget],
    budget: WorkBudget,
    *,
    issued_at: str,
) -> ShadowRunPlan:
    """The shadow run plan of a sealed window.

    Args:
        protocol: the study's protocol.
        policy: the policy that the controller selected.
        snapshot: of the controller, SHADOW_ASSESSING.
        declaration: of the window; it must start no earlier than ``issued_at``.
        targets: of the collection plan.
        budget: of the collection plan.
        issued_at: when both plans are issued.

    Raises:
        NotAuthorized: the original's rules do not allow such a plan; names the rule.
    """
    if declaration.event_time_start_inclusive < issued_at:
        raise NotAuthorized(
            "the window has started",
            where=declaration.window_key,
            field="shadowRunPlan",
            rule="a shadow run plan is issued before its window starts",
            way_out=f"seal a window that starts later: tasc seal {declaration.study_id} --lead 60",
        )
    try:
        return ShadowRunPlan.issue(
            controller_snapshot=snapshot,
            controller_snapshot_digest=snapshot.digest,
            protocol=protocol,
            protocol_digest=protocol.digest,
            frozen_policy=policy,
            frozen_policy_digest=policy.policy_digest,
            window=_window(declaration),
            collection_targets=tuple(map(_target, targets)),
            work_budget=budget,
            issued_at=issued_at,
            expires_at=min(declaration.ingestion_watermark, protocol.expires_at, policy.expires_at),
        )
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise NotAuthorized(
            "the original's rules do not allow this shadow run plan",
            where=declaration.window_key,
            field="shadowRunPlan",
            rule=str(problem["msg"]).removeprefix("Value error, "),
            way_out=f"see: tasc controller show {declaration.study_id}; then seal and plan a window anew",
        ) from None


def check_embedded(
    plan: CollectionPlan, declaration: WindowDeclaration, protocol: ExperimentProtocol
) -> Parsed[ShadowRunPlan] | None:
    """The embedded plan of a collection plan, valid by its own rules and saying what the plan says; None where none is.

    Raises:
        InputError: it breaks a rule of its schema.
        DigestMismatch: it and the collection plan disagree; names the member.
    """
    if plan.shadow_run_plan is None:
        return None
    parsed = ShadowRunPlan.from_value(plan.shadow_run_plan, where="plan.json shadowRunPlan")
    embedded = parsed.record
    for field, inner, outer in (
        ("protocolDigest", embedded.protocol_digest, protocol.digest),
        ("frozenPolicyDigest", embedded.frozen_policy_digest, plan.policy_digest),
        ("window", embedded.window, _window(declaration)),
        ("collectionTargets", embedded.collection_targets, tuple(map(_target, plan.targets))),
        ("workBudget", embedded.work_budget, plan.budget),
        ("issuedAt", embedded.issued_at, plan.issued_at),
    ):
        if inner != outer:
            raise DigestMismatch(
                "the embedded shadow run plan says something else than the plan",
                where=plan.window_key,
                field=f"shadowRunPlan.{field}",
                way_out=f"restore plan.json, or seal a new window: tasc seal {plan.study_id}",
            )
    return parsed


def _window(declaration: WindowDeclaration) -> ShadowWindow:
    return ShadowWindow(
        window_id=declaration.window_id,
        event_time_start_inclusive=declaration.event_time_start_inclusive,
        event_time_end_exclusive=declaration.event_time_end_exclusive,
        membership_rule=declaration.membership_rule,
        membership_digest=declaration.membership_digest,
    )


def _target(target: PlanTarget) -> CollectionTarget:
    return CollectionTarget(
        profile_id=target.profile_id,
        endpoint_alias=target.endpoint_alias,
        endpoint_binding_digest=target.endpoint_binding_digest,
        route=target.route,
        authentication_reference=target.authentication_reference,
        http_limits_digest=target.http_limits.digest,
        capability_receipt_digests=target.capability_receipt_digests,
        execution_profile_digest=target.execution_profile_digest,
        runtime_name=target.runtime.profile_id,
        transport=target.transport,
    )
