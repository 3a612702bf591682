"""The issued collection plan: ``tasc-collection-plan-v1``, and the operator's approval of it.

One plan covers one window. Everything that decides what may be sent is in it or named by digest: targets, receipts,
lanes, load model, warm-up, case root, budget, validity. Its digest gives integrity only; the operator pins the digest
separately (``PlanApproval``) or in advance (``StandingAuthorization``), and the runner compares the pin first.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasc_collector.contracts.base import Model
from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.instance import BackendBuild, ModelRevision, RuntimeBuild
from tasc_collector.contracts.scalars import Count, Digest, Positive, Slug, Timestamp, WindowKey
from tasc_collector.contracts.signed import SignedRecord
from tasc_collector.contracts.work_budget import WorkBudget

Purpose = Literal["comparison", "development", "holdout", "window", "monitoring"]
Route = Literal["chatCompletions", "completions", "responses", "nativeChat", "nativeGenerate"]
Framing = Literal["json", "sse", "ndjson"]


class PlanTarget(Model):
    """Where one profile is reached, by which route, and what admits it."""

    profile_id: Slug
    role: Literal["champion", "candidate"]
    endpoint_alias: Slug
    endpoint_binding_digest: Digest
    execution_profile_digest: Digest
    transport: Literal["https", "loopback-http"]
    runtime: RuntimeBuild
    wire_base: RuntimeBuild | None
    """Set where the build is known only by an operator's build file: the built-in profile whose wire it follows."""
    backend: BackendBuild
    model: ModelRevision
    configuration_digest: Digest
    route: Route
    framing: Framing
    authentication_reference: Slug | None
    http_limits: HttpLimits
    capability_receipt_digests: Annotated[tuple[Digest, ...], Field(max_length=16)]
    lane_width: Annotated[int, Field(ge=1, le=10_000)]

    @model_validator(mode="after")
    def _sorted(self) -> Self:
        if list(self.capability_receipt_digests) != sorted(set(self.capability_receipt_digests)):
            raise ValueError("capabilityReceiptDigests are sorted and unique")
        return self


class ClosedLoad(Model):
    """A fixed number of calls in flight; the next starts when one ends."""

    kind: Literal["closed"]
    concurrency: Annotated[int, Field(ge=1, le=10_000)]


class OpenLoad(Model):
    """Pairs arrive on a schedule that does not wait for answers (no coordinated omission)."""

    kind: Literal["open"]
    arrival: Literal["constant", "poisson", "trace"]
    rate_per_second: Annotated[float, Field(gt=0.0, le=100_000.0, allow_inf_nan=False)] | None = None
    seed: Slug | None = None
    trace_digest: Digest | None = None
    maximum_concurrency: Annotated[int, Field(ge=1, le=10_000)]

    @model_validator(mode="after")
    def _by_arrival(self) -> Self:
        if (self.arrival == "trace") != (self.trace_digest is not None):
            raise ValueError("traceDigest is given exactly for arrival 'trace'")
        if (self.arrival != "trace") != (self.rate_per_second is not None):
            raise ValueError("ratePerSecond is given exactly for arrivals 'constant' and 'poisson'")
        if (self.arrival == "poisson") != (self.seed is not None):
            raise ValueError("seed is given exactly for arrival 'poisson'")
        return self


LoadModel = Annotated[ClosedLoad | OpenLoad, Field(discriminator="kind")]


class GenerationRule(Model):
    """Sampling that is the same for every case and profile; a case's own cap may only be lower."""

    maximum_output_tokens: Positive
    temperature: Annotated[float, Field(ge=0.0, le=2.0, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)] | None = None
    seed: int | None = None


class CaseSet(Model):
    """Which cases may be sent, without saying what they are: count and a keyed root over their keyed identities."""

    count: Positive
    root: Digest
    """HMAC root (``sha256:`` form) over the sorted keyed identities of all cases."""
    key_id: Slug


class CollectionPlan(SignedRecord):
    """``tasc-collection-plan-v1``, signed by the operator's key, or under a standing authorization by the dispatch key."""

    domain: ClassVar[str] = "tasc/collection-plan/v1"

    version: Literal["tasc-collection-plan-v1"] = "tasc-collection-plan-v1"
    study_id: Slug
    purpose: Purpose
    window_key: WindowKey
    declaration_digest: Digest
    protocol_digest: Digest
    policy_digest: Digest
    """The frozen policy, or the comparison's digest."""
    targets: Annotated[tuple[PlanTarget, ...], Field(min_length=2, max_length=16)]
    pair_isolation: Literal["serial", "overlap"]
    load_model: LoadModel
    generation: GenerationRule
    cases: CaseSet
    replicates: Annotated[int, Field(ge=1, le=10_000)]
    warm_up_calls_per_profile: Annotated[int, Field(ge=0, le=1_000)]
    maximum_attempts: Annotated[int, Field(ge=1, le=8)]
    attempt_timeout_ms: Annotated[int, Field(ge=1, le=300_000)]
    overload_stop_after: Annotated[int, Field(ge=1, le=1_000)]
    """Consecutive 429, 503 or refused connects after which an endpoint's lane stops."""
    network_extension_digest: Digest | None
    analysis_plan_digest: Digest | None
    cost_model_digest: Digest | None
    budget: WorkBudget
    issued_at: Timestamp
    expires_at: Timestamp
    authorization_digest: Digest | None
    shadow_run_plan: dict[str, Any] | None  # Any: the embedded original record, checked by ShadowRunPlan

    @model_validator(mode="after")
    def _rules(self) -> Self:
        ids = [target.profile_id for target in self.targets]
        if ids != sorted(set(ids)):
            raise ValueError("targets are sorted by profileId and unique")
        if [target.role for target in self.targets].count("champion") != 1:
            raise ValueError("exactly one target is the champion")
        if self.expires_at <= self.issued_at:
            raise ValueError("expiresAt is after issuedAt")
        if (self.purpose == "window") != (self.shadow_run_plan is not None):
            raise ValueError("shadowRunPlan is given exactly for purpose 'window'")
        return self

    @property
    def champion(self) -> PlanTarget:
        """The champion's target."""
        return next(target for target in self.targets if target.role == "champion")

    def target(self, profile_id: str) -> PlanTarget:
        """The target of a profile; raises ``KeyError`` where there is none."""
        return {target.profile_id: target for target in self.targets}[profile_id]


class PlanApproval(SignedRecord):
    """The operator's pin: this plan digest, for this window, until then."""

    domain: ClassVar[str] = "tasc/plan-approval/v1"

    version: Literal["tasc-plan-approval-v1"] = "tasc-plan-approval-v1"
    study_id: Slug
    window_key: WindowKey
    plan_digest: Digest
    approved_at: Timestamp
    expires_at: Timestamp


class AuthorizedTarget(Model):
    """A profile's endpoint and route that a standing authorization covers."""

    profile_id: Slug
    endpoint_alias: Slug
    endpoint_binding_digest: Digest
    route: Route
    lane_width: Positive
    """Most calls at once; the price of a device is divided by it."""


class Ceilings(Model):
    """What may be spent under a standing authorization; per day means per UTC day."""

    windows_per_day: Positive
    windows_in_all: Positive
    calls_per_day: Positive
    output_tokens_per_day: Positive
    canary_calls_per_day: Count
    """Inference calls of probes, which count as calls, too; zero where no canary is allowed."""
    cost_usd_per_day: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None


class StandingAuthorization(SignedRecord):
    """The operator's word in advance: an unattended study within ceilings, until it expires or is revoked."""

    domain: ClassVar[str] = "tasc/standing-authorization/v1"

    version: Literal["tasc-standing-authorization-v1"] = "tasc-standing-authorization-v1"
    authorization_id: Slug
    study_id: Slug
    protocol_digest: Digest
    purposes: Annotated[tuple[Purpose, ...], Field(min_length=1, max_length=5)]
    targets: Annotated[tuple[AuthorizedTarget, ...], Field(min_length=1, max_length=16)]
    effects: Annotated[tuple[Literal["non-mutating", "consumptive", "inference-canary"], ...], Field(max_length=3)]
    ceilings: Ceilings
    cost_model_digest: Digest | None
    """Of the prices that the ceiling on cost is meant by; given exactly where there is one."""
    issued_at: Timestamp
    expires_at: Timestamp

    @model_validator(mode="after")
    def _rules(self) -> Self:
        if self.expires_at <= self.issued_at:
            raise ValueError("expiresAt is after issuedAt")
        if (self.ceilings.cost_usd_per_day is None) != (self.cost_model_digest is None):
            raise ValueError("costModelDigest is given exactly where ceilings.costUsdPerDay is")
        return self


class AuthorizationRevocation(SignedRecord):
    """The operator takes a standing authorization back."""

    domain: ClassVar[str] = "tasc/authorization-revocation/v1"

    version: Literal["tasc-authorization-revocation-v1"] = "tasc-authorization-revocation-v1"
    authorization_digest: Digest
    revoked_at: Timestamp
    reason_code: Slug


class PlanEstimate(Model):
    """What a plan will cost at most, for ``tasc plan --dry-run``."""

    calls: Count
    warm_up_calls: Count
    output_tokens: Count
    minutes: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    cost_usd: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None
