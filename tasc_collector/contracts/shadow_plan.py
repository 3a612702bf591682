"""The self-contained shadow run plan of a sealed window (original project, section 3.6).

Rules:

1. It embeds the controller's snapshot, the protocol and the frozen policy, and every digest is derived again from them.
2. The controller is SHADOW_ASSESSING and selected exactly this policy, for exactly this protocol.
3. The window's membership rule is the protocol's; its bounds lie between issue and expiry; the plan does not outlive
   protocol or policy and is not issued before the controller's last event or the policy.
4. There is one target per profile, sorted by profile id, each at an endpoint that the protocol requires.
5. The budget stays within the protocol's ceilings, the plan's validity and the window's length.

The digest gives integrity only: the operator pins it separately.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.controller import ControllerSnapshot
from tasc_collector.contracts.membership import MembershipRule, membership_digest
from tasc_collector.contracts.persistence import RouteName
from tasc_collector.contracts.policy import PolicyBundle, policy_conflict
from tasc_collector.contracts.protocol import ExperimentProtocol, Transport
from tasc_collector.contracts.rules import AscendingDigests, require, require_in_order
from tasc_collector.contracts.scalars import Digest, OpaqueId, Slug, Timestamp, timestamp_ms
from tasc_collector.contracts.work_budget import WorkBudget
from tasc_collector.limits import MAX_CAPABILITY_RECEIPTS, MAX_PROFILES


class ShadowWindow(Model):
    """Bounds and membership of the window that the plan collects."""

    window_id: Slug
    event_time_start_inclusive: Timestamp
    event_time_end_exclusive: Timestamp
    membership_rule: MembershipRule
    membership_digest: Digest


class CollectionTarget(Model):
    """Where one profile is reached."""

    profile_id: Slug
    endpoint_alias: OpaqueId
    endpoint_binding_digest: Digest
    route: RouteName
    authentication_reference: OpaqueId | None
    http_limits_digest: Digest
    capability_receipt_digests: Annotated[AscendingDigests, Field(max_length=MAX_CAPABILITY_RECEIPTS)]
    execution_profile_digest: Digest
    runtime_name: Slug
    transport: Transport


class ShadowRunPlan(Record):
    """``tasc-shadow-run-plan-v1``; see the rules of this module."""

    domain: ClassVar[str] = "tasc/shadow-run-plan/v1"
    self_digest_field: ClassVar[str | None] = "plan_digest"

    version: Literal["tasc-shadow-run-plan-v1"] = "tasc-shadow-run-plan-v1"
    authority: Literal["out-of-band-controller-only-no-deployment-authority"] = (
        "out-of-band-controller-only-no-deployment-authority"
    )
    controller_snapshot: ControllerSnapshot
    controller_snapshot_digest: Digest
    protocol: ExperimentProtocol
    protocol_digest: Digest
    frozen_policy: PolicyBundle
    frozen_policy_digest: Digest
    window: ShadowWindow
    collection_targets: Annotated[tuple[CollectionTarget, ...], Field(min_length=1, max_length=MAX_PROFILES)]
    work_budget: WorkBudget
    issued_at: Timestamp
    expires_at: Timestamp
    plan_digest: Digest

    @model_validator(mode="after")
    def _derived_digests(self) -> Self:
        snapshot, policy = self.controller_snapshot, self.frozen_policy
        require(
            snapshot.snapshot_digest == snapshot.digest,
            "controllerSnapshot.snapshotDigest must be that of the snapshot",
        )
        require(policy.policy_digest == policy.digest, "frozenPolicy.policyDigest must be that of the policy")
        require(
            self.controller_snapshot_digest == snapshot.snapshot_digest,
            "controllerSnapshotDigest must be the snapshot's",
        )
        require(self.protocol_digest == self.protocol.digest, "protocolDigest must be the protocol's")
        require(self.frozen_policy_digest == policy.policy_digest, "frozenPolicyDigest must be the policy's")
        return self

    @model_validator(mode="after")
    def _controller_selected_this(self) -> Self:
        snapshot, protocol, policy = self.controller_snapshot, self.protocol, self.frozen_policy
        selected = snapshot.selected_policy
        require(
            snapshot.state == "SHADOW_ASSESSING" and selected is not None,
            "controllerSnapshot must be SHADOW_ASSESSING with a policy",
        )
        require(
            (snapshot.study_id, snapshot.protocol_digest, snapshot.protocol_created_at, snapshot.protocol_expires_at)
            == (protocol.study_id, self.protocol_digest, protocol.created_at, protocol.expires_at),
            "controllerSnapshot must be of the embedded protocol",
        )
        require(
            selected is not None
            and (selected.policy_digest, selected.issued_at, selected.expires_at)
            == (policy.policy_digest, policy.issued_at, policy.expires_at),
            "frozenPolicy must be the policy that the controller selected",
        )
        conflict = policy_conflict(policy, protocol)
        require(conflict is None, f"frozenPolicy: {conflict}")
        return self

    @model_validator(mode="after")
    def _window_and_time(self) -> Self:
        window, protocol = self.window, self.protocol
        require(
            window.membership_rule == protocol.online_window_membership, "window.membershipRule must be the protocol's"
        )
        require(
            window.membership_digest
            == membership_digest(window.window_id, self.protocol_digest, window.membership_rule),
            "window.membershipDigest must be that of the window, protocol and rule",
        )
        require(self.issued_at < self.expires_at, "expiresAt must be after issuedAt")
        require_in_order(
            (self.controller_snapshot.last_event_at, self.issued_at),
            "issuedAt must not be before the controller's last event",
        )
        require_in_order(
            (self.frozen_policy.issued_at, self.issued_at), "issuedAt must not be before the policy's issue"
        )
        require_in_order((self.expires_at, protocol.expires_at), "expiresAt must not be after the protocol's expiry")
        require_in_order(
            (self.expires_at, self.frozen_policy.expires_at), "expiresAt must not be after the policy's expiry"
        )
        require(
            window.event_time_start_inclusive < window.event_time_end_exclusive,
            "window: the end must be after the start",
        )
        require_in_order(
            (self.issued_at, window.event_time_start_inclusive), "the window must not start before issuedAt"
        )
        require_in_order((window.event_time_end_exclusive, self.expires_at), "the window must not end after expiresAt")
        return self

    @model_validator(mode="after")
    def _targets(self) -> Self:
        profiles = {profile.id: profile for profile in self.protocol.profiles}
        needs = {need.endpoint_alias: need for need in self.protocol.endpoint_requirements}
        require(
            [target.profile_id for target in self.collection_targets] == sorted(profiles),
            "collectionTargets: one per protocol profile, sorted by profileId",
        )
        for target in self.collection_targets:
            profile, need = profiles[target.profile_id], needs.get(target.endpoint_alias)
            require(
                need is not None and (need.runtime_name, need.transport) == (target.runtime_name, target.transport),
                "collectionTargets: endpoint, runtime and transport must be one of the protocol's endpointRequirements",
            )
            require(target.runtime_name == profile.runtime.name, "collectionTargets: runtimeName must be the profile's")
            require(
                target.execution_profile_digest == profile.digest,
                "collectionTargets: executionProfileDigest must be the profile's",
            )
        return self

    @model_validator(mode="after")
    def _budget(self) -> Self:
        budget, ceiling, window = self.work_budget, self.protocol.shadow_collection, self.window
        validity_ms = timestamp_ms(self.expires_at) - timestamp_ms(self.issued_at)
        window_ms = timestamp_ms(window.event_time_end_exclusive) - timestamp_ms(window.event_time_start_inclusive)
        require(budget.max_profiles >= len(self.collection_targets), "workBudget.maxProfiles must admit every target")
        require(
            budget.max_logical_executions <= ceiling.maximum_logical_executions,
            "workBudget.maxLogicalExecutions must not exceed the protocol's ceiling",
        )
        require(
            budget.max_concurrency <= ceiling.maximum_concurrency,
            "workBudget.maxConcurrency must not exceed the protocol's ceiling",
        )
        require(budget.max_wall_clock_ms <= validity_ms, "workBudget.maxWallClockMs must fit the plan's validity")
        require(budget.max_wall_clock_ms <= window_ms, "workBudget.maxWallClockMs must fit the window")
        return self
