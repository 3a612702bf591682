"""The experiment protocol of a decision study: everything that is fixed before data (original project, section 3.1).

Rules:

1. Dispatch and collector authority are two different keys.
2. The development and holdout buckets partition all buckets exactly.
3. Every profile has exactly one role: the champion or one candidate.
4. A policy predicate uses the protocol's route signal with a threshold inside its range and routes to the champion;
   candidates times (predicates + 1) stay within ``maxCandidates``.
5. Endpoint requirements name runtimes of the profiles; an alias stands once.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from tasc_collector.contracts.authority import AuthorityKey
from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.execution_profile import ExecutionProfile
from tasc_collector.contracts.membership import MembershipRule, SplitMembership
from tasc_collector.contracts.rules import UniqueSlugs, require, require_unique, unique
from tasc_collector.contracts.scalars import (
    Count,
    Digest,
    Finite,
    NonNegative,
    OpaqueId,
    Positive,
    Ratio,
    Slug,
    Text,
    Timestamp,
    TraceText,
)
from tasc_collector.limits import MAX_ATTEMPTS, MAX_PROFILES, MAX_SLICES

Operator = Literal["less-than", "less-than-or-equal", "greater-than", "greater-than-or-equal"]
Transport = Literal["https", "loopback-http"]
RequiredCapability = Literal["chat-completions", "streaming", "final-usage"]
ProducerKind = Literal["human", "deterministic", "external-model"]


class RouteSignalDefinition(Model):
    """The value that a router decides on, its range and calibration."""

    definition_id: Slug
    version: TraceText
    minimum: Finite
    maximum: Finite
    direction: Literal["higher-is-more-confident", "lower-is-more-confident"]
    calibration_digest: Digest

    @model_validator(mode="after")
    def _range(self) -> Self:
        require(self.maximum > self.minimum, "maximum must exceed minimum")
        return self


class EvaluatorIdentity(Model):
    """Whose scores count, under which rubric and calibration."""

    evaluator_id: Slug
    rubric_version: Text
    calibration_digest: Digest
    producer_kind: ProducerKind
    producer_id: Slug
    producer_version: Text


class EvaluatorDefinition(EvaluatorIdentity):
    """The evaluator of a study, and which keys must be trusted for its scores."""

    required_trusted_key_ids: Annotated[UniqueSlugs, Field(min_length=1, max_length=32)]


class PolicyPredicate(Model):
    """When a request goes to another profile than the primary."""

    signal_definition_id: Slug
    operator: Operator
    threshold: Finite
    route_to_profile_id: Slug


class CandidatePolicySpace(Model):
    """The predicates from which candidate policies are made."""

    version: Literal["tasc-declarative-policy-space-v1"] = "tasc-declarative-policy-space-v1"
    max_candidates: Annotated[int, Field(ge=1, le=10_000)]
    predicates: Annotated[tuple[PolicyPredicate, ...], Field(min_length=1, max_length=128), AfterValidator(unique)]


class CapacityGateDisabled(Model):
    """No capacity gate."""

    kind: Literal["disabled"] = "disabled"


class CapacityGate(Model):
    """Least measured throughput of a window, in output tokens per second."""

    kind: Literal["minimum-measured-window-throughput"] = "minimum-measured-window-throughput"
    metric: Literal["aggregate-output-tokens-per-second"] = "aggregate-output-tokens-per-second"
    minimum: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class GateBounds(Model):
    """What a policy must reach; latencies in milliseconds, cost in US dollars."""

    minimum_mean_score: Ratio
    non_inferiority_margin: Annotated[float, Field(ge=-1, le=0)]
    maximum_failure_rate: Ratio
    maximum_p95_ttft_ms: NonNegative
    maximum_p95_end_to_end_ms: NonNegative
    maximum_cost_per_thousand_requests_usd: NonNegative
    minimum_evidence_coverage: Ratio
    minimum_independent_groups: Positive
    minimum_critical_slice_groups: Count


class Gates(GateBounds):
    """The gates of a study: the bounds, and the capacity of a window."""

    service_capacity: Annotated[CapacityGateDisabled | CapacityGate, Field(discriminator="kind")]


class Bootstrap(Model):
    """The paired resampling of groups."""

    algorithm: Literal["paired-group-percentile-v1"] = "paired-group-percentile-v1"
    seed: Slug
    iterations: Annotated[int, Field(ge=1, le=1_000_000)]
    alpha: Annotated[float, Field(gt=0, lt=1)]


class ShadowCollection(Model):
    """Ceilings of collection that a plan may only lower."""

    maximum_logical_executions: Positive
    maximum_concurrency: Annotated[int, Field(ge=1, le=10_000)]
    attempt_timeout_ms: Positive
    maximum_attempts: Annotated[int, Field(ge=1, le=MAX_ATTEMPTS)]
    payload_policy: Literal["keyed-identities-only"] = "keyed-identities-only"


class CostUnavailable(Model):
    """The study has no cost model."""

    kind: Literal["unavailable"] = "unavailable"


class CostModeled(Model):
    """The study's cost model by digest."""

    kind: Literal["modeled"] = "modeled"
    model_digest: Digest
    currency: Literal["USD"] = "USD"


CostAllocation = Annotated[CostUnavailable | CostModeled, Field(discriminator="kind")]


class EndpointRequirement(Model):
    """An endpoint that the study needs, under the trust policy's alias."""

    runtime_name: Slug
    endpoint_alias: OpaqueId
    transport: Transport


class ExperimentProtocol(Record):
    """``tasc-experiment-protocol-v2``; see the rules of this module."""

    domain: ClassVar[str] = "tasc/experiment-protocol/v2"

    version: Literal["tasc-experiment-protocol-v2"] = "tasc-experiment-protocol-v2"
    study_id: Slug
    protocol_version: Slug
    owner: Text
    created_at: Timestamp
    expires_at: Timestamp
    dispatch_authority: AuthorityKey
    collector_authority: AuthorityKey
    split_membership: SplitMembership
    online_window_membership: MembershipRule
    profiles: Annotated[tuple[ExecutionProfile, ...], Field(min_length=2, max_length=MAX_PROFILES)]
    champion_profile_id: Slug
    candidate_profile_ids: Annotated[UniqueSlugs, Field(min_length=1, max_length=MAX_PROFILES - 1)]
    route_signal: RouteSignalDefinition
    evaluator: EvaluatorDefinition
    candidate_policy_space: CandidatePolicySpace
    gates: Gates
    critical_slices: Annotated[UniqueSlugs, Field(max_length=MAX_SLICES)]
    bootstrap: Bootstrap
    shadow_collection: ShadowCollection
    cost_allocation: CostAllocation
    endpoint_requirements: Annotated[tuple[EndpointRequirement, ...], Field(max_length=MAX_PROFILES)]
    required_capabilities: Annotated[tuple[RequiredCapability, ...], Field(max_length=128), AfterValidator(unique)]

    @model_validator(mode="after")
    def _time_and_keys(self) -> Self:
        require(self.expires_at > self.created_at, "expiresAt must be after createdAt")
        require(
            self.dispatch_authority.key_id != self.collector_authority.key_id,
            "the two authorities must have different key ids",
        )
        require(
            self.dispatch_authority.public_key_spki != self.collector_authority.public_key_spki,
            "the two authorities must have different keys",
        )
        return self

    @model_validator(mode="after")
    def _roles(self) -> Self:
        ids = [profile.id for profile in self.profiles]
        require_unique(ids, "profiles: ids must be unique")
        require(
            sorted((self.champion_profile_id, *self.candidate_profile_ids)) == sorted(ids),
            "every profile must be the champion or exactly one candidate",
        )
        runtimes = {profile.runtime.name for profile in self.profiles}
        require_unique(
            (need.endpoint_alias for need in self.endpoint_requirements),
            "endpointRequirements: an alias may stand once",
        )
        require(
            all(need.runtime_name in runtimes for need in self.endpoint_requirements),
            "endpointRequirements: runtimeName must be a profile's runtime",
        )
        return self

    @model_validator(mode="after")
    def _policy_space(self) -> Self:
        signal, space = self.route_signal, self.candidate_policy_space
        for predicate in space.predicates:
            require(
                predicate.signal_definition_id == signal.definition_id,
                "candidatePolicySpace: a predicate must use the protocol's routeSignal",
            )
            require(
                signal.minimum <= predicate.threshold <= signal.maximum,
                "candidatePolicySpace: a threshold must lie within the routeSignal's range",
            )
            require(
                predicate.route_to_profile_id == self.champion_profile_id,
                "candidatePolicySpace: a predicate must route to the champion",
            )
        require(
            len(self.candidate_profile_ids) * (len(space.predicates) + 1) <= space.max_candidates,
            "candidatePolicySpace: candidates times (predicates + 1) must not exceed maxCandidates",
        )
        require(
            bool(self.critical_slices) or self.gates.minimum_critical_slice_groups == 0,
            "gates: minimumCriticalSliceGroups must be 0 where there are no criticalSlices",
        )
        return self

    def profile(self, profile_id: str) -> ExecutionProfile:
        """The profile with that id; raises ``KeyError`` where there is none."""
        return {profile.id: profile for profile in self.profiles}[profile_id]
