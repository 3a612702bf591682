"""A frozen routing policy: the policy bundle (original project, section 3.4).

``expert-only`` sends everything to the champion; ``fast-only`` everything to a candidate; ``cascade`` starts at a
candidate and goes to the champion where its one predicate holds, and falls back to the champion on failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasc_collector.canonical import canonical_bytes, utf16_key
from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.protocol import ExperimentProtocol, PolicyPredicate
from tasc_collector.contracts.rules import require
from tasc_collector.contracts.scalars import Digest, Slug, Timestamp

PolicyKind = Literal["expert-only", "fast-only", "cascade"]


class PolicySigner(Model):
    """The key that a policy names as its signer; the original project never fills it."""

    key_id: Slug
    signature_algorithm: Literal["ed25519"] = "ed25519"


class PolicyBundle(Record):
    """``tasc-policy-bundle-v2``; see the rules of this module."""

    domain: ClassVar[str] = "tasc/policy-bundle/v2"
    self_digest_field: ClassVar[str | None] = "policy_digest"

    version: Literal["tasc-policy-bundle-v2"] = "tasc-policy-bundle-v2"
    compatibility_version: Literal["tasc-policy-replay-v2"] = "tasc-policy-replay-v2"
    kind: PolicyKind
    primary_profile_id: Slug
    expert_profile_id: Slug
    predicates: Annotated[tuple[PolicyPredicate, ...], Field(max_length=1)]
    fallback_profile_id: Slug | None
    protocol_digest: Digest
    issued_at: Timestamp
    expires_at: Timestamp
    signer: PolicySigner | None
    policy_digest: Digest

    @model_validator(mode="after")
    def _semantics(self) -> Self:
        require(self.expires_at > self.issued_at, "expiresAt must be after issuedAt")
        if self.kind == "cascade":
            require(len(self.predicates) == 1, "a cascade has exactly one predicate")
            require(
                self.predicates[0].route_to_profile_id == self.expert_profile_id,
                "a cascade's predicate routes to the expert",
            )
            require(self.fallback_profile_id == self.expert_profile_id, "a cascade falls back to the expert")
        else:
            require(not self.predicates, f"{self.kind} has no predicate")
            require(self.fallback_profile_id is None, f"{self.kind} has no fallback")
        require(
            (self.kind == "expert-only") == (self.primary_profile_id == self.expert_profile_id),
            "primaryProfileId is expertProfileId exactly for expert-only",
        )
        return self


def policy_space(protocol: ExperimentProtocol, issued_at: str) -> tuple[PolicyBundle, ...]:
    """Every candidate policy, sorted by digest: per candidate one fast-only and one cascade per predicate."""
    predicates = sorted(protocol.candidate_policy_space.predicates, key=lambda item: canonical_bytes(item.to_json()))

    def bundles() -> Iterator[PolicyBundle]:
        for profile_id in sorted(protocol.candidate_profile_ids, key=utf16_key):
            yield _bundle(protocol, issued_at, "fast-only", profile_id, ())
            for predicate in predicates:
                yield _bundle(protocol, issued_at, "cascade", profile_id, (predicate,))

    return tuple(sorted(bundles(), key=lambda bundle: bundle.policy_digest))


def control_policy(protocol: ExperimentProtocol, issued_at: str) -> PolicyBundle:
    """The expert-only policy that candidates are compared with."""
    return _bundle(protocol, issued_at, "expert-only", protocol.champion_profile_id, ())


def _bundle(
    protocol: ExperimentProtocol,
    issued_at: str,
    kind: PolicyKind,
    primary: str,
    predicates: tuple[PolicyPredicate, ...],
) -> PolicyBundle:
    expert = protocol.champion_profile_id
    return PolicyBundle.issue(
        kind=kind,
        primary_profile_id=primary,
        expert_profile_id=expert,
        predicates=predicates,
        fallback_profile_id=expert if kind == "cascade" else None,
        protocol_digest=protocol.digest,
        issued_at=issued_at,
        expires_at=protocol.expires_at,
        signer=None,
    )


def policy_conflict(policy: PolicyBundle, protocol: ExperimentProtocol) -> str | None:
    """The rule by which a policy is not one that a protocol allows, or None where it is."""
    predicates = protocol.candidate_policy_space.predicates
    expected_primary = (
        (protocol.champion_profile_id,) if policy.kind == "expert-only" else protocol.candidate_profile_ids
    )
    for holds, rule in (
        (policy.protocol_digest == protocol.digest, "the policy must name the protocol's digest"),
        (
            policy.expert_profile_id == protocol.champion_profile_id,
            "the policy's expert must be the protocol's champion",
        ),
        (policy.expires_at == protocol.expires_at, "the policy must expire with the protocol"),
        (
            protocol.created_at <= policy.issued_at < protocol.expires_at,
            "the policy must be issued within the protocol's validity",
        ),
        (policy.primary_profile_id in expected_primary, "the policy's primary must have the role that its kind needs"),
        (
            all(item in predicates for item in policy.predicates),
            "the policy's predicate must be in the protocol's candidate policy space",
        ),
    ):
        if not holds:
            return rule
    return None
