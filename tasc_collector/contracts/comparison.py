"""A comparison study: champion, candidates and margins on paired latencies; it needs no scores and never promotes.

It carries profiles, keys, membership seed and ceilings in the protocol's shapes, and its digest stands where envelope
and manifest want a protocol or policy digest.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasc_collector.contracts.authority import AuthorityKey
from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.execution_profile import ExecutionProfile
from tasc_collector.contracts.membership import MembershipRule
from tasc_collector.contracts.protocol import CostAllocation, EndpointRequirement, RequiredCapability, ShadowCollection
from tasc_collector.contracts.scalars import Digest, Positive, Slug, Text, Timestamp

MarginRatio = Annotated[float, Field(gt=1.0, le=10.0, allow_inf_nan=False)]
"""Largest candidate/champion ratio that still counts as no worse, such as 1.1."""


class Margins(Model):
    """What "no worse" means."""

    ttft_ratio: MarginRatio
    itl_ratio: MarginRatio
    tpot_ratio: MarginRatio
    e2e_ratio: MarginRatio
    failure_rate_difference: Annotated[float, Field(gt=0.0, lt=1.0, allow_inf_nan=False)]


class ComparisonRule(Model):
    """How the verdict is made; fixed before the first window."""

    confidence: Annotated[float, Field(gt=0.5, lt=1.0, allow_inf_nan=False)]
    seed: Slug
    """Seed of the resampling."""
    draws: Annotated[int, Field(ge=200, le=100_000)]
    minimum_groups: Annotated[int, Field(ge=2, le=100_000)]
    """Fewer independent case groups than this leave the verdict undecided."""
    minimum_coverage: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
    recurring: bool
    """True for a study that is looked at window after window: only anytime-valid sequences decide."""


class Comparison(Record):
    """``tasc-comparison-v1``."""

    domain: ClassVar[str] = "tasc/comparison/v1"

    version: Literal["tasc-comparison-v1"] = "tasc-comparison-v1"
    study_id: Slug
    comparison_version: Slug
    predecessor_digest: Digest | None
    """Of the comparison this one was forked from, if any."""
    owner: Text
    created_at: Timestamp
    expires_at: Timestamp
    dispatch_authority: AuthorityKey
    collector_authority: AuthorityKey
    online_window_membership: MembershipRule
    profiles: Annotated[tuple[ExecutionProfile, ...], Field(min_length=2, max_length=16)]
    champion_profile_id: Slug
    candidate_profile_ids: Annotated[tuple[Slug, ...], Field(min_length=1, max_length=15)]
    margins: Margins
    rule: ComparisonRule
    replicates: Annotated[int, Field(ge=1, le=10_000)]
    maximum_output_tokens: Positive
    shadow_collection: ShadowCollection
    cost_allocation: CostAllocation
    endpoint_requirements: Annotated[tuple[EndpointRequirement, ...], Field(max_length=16)]
    required_capabilities: Annotated[tuple[RequiredCapability, ...], Field(max_length=128)]

    @model_validator(mode="after")
    def _rules(self) -> Self:
        ids = [profile.id for profile in self.profiles]
        roles = [self.champion_profile_id, *self.candidate_profile_ids]
        if len(set(ids)) != len(ids):
            raise ValueError("profiles: ids are unique")
        if sorted(roles) != sorted(ids):
            raise ValueError("every profile is the champion or exactly one candidate")
        if self.expires_at <= self.created_at:
            raise ValueError("expiresAt is after createdAt")
        first, second = self.dispatch_authority, self.collector_authority
        if first.key_id == second.key_id or first.public_key_spki == second.public_key_spki:
            raise ValueError("dispatchAuthority and collectorAuthority are two different keys")
        return self

    def profile(self, profile_id: str) -> ExecutionProfile:
        """The profile with that id; raises ``KeyError`` where there is none."""
        return {profile.id: profile for profile in self.profiles}[profile_id]

    def role(self, profile_id: str) -> Literal["champion", "candidate"]:
        """The role that the comparison gives a profile."""
        return "champion" if profile_id == self.champion_profile_id else "candidate"
