"""Which cases belong where, by seeded hashes (original project, section 3.1): fields of protocols and declarations.

A module of its own, so that what only samples a window does not load the decision records.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from tasc_collector.canonical import digest
from tasc_collector.contracts.base import Model
from tasc_collector.contracts.rules import require, unique
from tasc_collector.contracts.scalars import Slug

MEMBERSHIP_RULE_DOMAIN = "tasc/window-membership-rule/v2"

_Bucket = Annotated[int, Field(ge=0, le=255)]
_Buckets = Annotated[tuple[_Bucket, ...], Field(min_length=1, max_length=256), AfterValidator(unique)]


class SplitMembership(Model):
    """Which case groups are for development and which are held out, by a seeded hash of the group id."""

    algorithm: Literal["tasc-seeded-sha256-group-bucket-v1"] = "tasc-seeded-sha256-group-bucket-v1"
    seed: Slug
    bucket_count: Annotated[int, Field(ge=2, le=256)]
    development_buckets: _Buckets
    holdout_buckets: _Buckets

    @model_validator(mode="after")
    def _partition(self) -> Self:
        require(
            sorted((*self.development_buckets, *self.holdout_buckets)) == list(range(self.bucket_count)),
            "developmentBuckets and holdoutBuckets must partition 0..bucketCount-1",
        )
        return self


class MembershipRule(Model):
    """Which case replicates belong to a window, by a seeded hash; 10 000 basis points select all."""

    algorithm: Literal["tasc-seeded-sha256-case-replicate-basis-points-v1"] = (
        "tasc-seeded-sha256-case-replicate-basis-points-v1"
    )
    seed: Slug
    sample_basis_points: Annotated[int, Field(ge=0, le=10_000)]


def membership_digest(window_id: str, protocol_digest: str, rule: MembershipRule) -> str:
    """Digest of a window's membership rule, as traces of the window carry it."""
    return digest(
        MEMBERSHIP_RULE_DOMAIN,
        {"windowId": window_id, "protocolDigest": protocol_digest, "membershipRule": rule.to_json()},
    )
