"""Which evaluator keys the operator trusts, for what and how long: the trust snapshot (original project, section 3.3).

It has two digests, so that a revocation does not change the policy's identity: the trust policy (version, freshness,
keys) and the revocations (version, revocations). An assessment context names both.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from tasc_collector.canonical import digest
from tasc_collector.contracts.authority import PublicKeySpki
from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.rules import require, require_unique, unique
from tasc_collector.contracts.scalars import Digest, Slug, Text, Timestamp

TRUST_POLICY_DOMAIN = "tasc/operator-evaluator-trust-policy-snapshot/v1"
REVOCATIONS_DOMAIN = "tasc/evaluator-revocation-snapshot/v1"

_DAY_MS = 24 * 60 * 60 * 1000


class Freshness(Model):
    """How old, and how far ahead of the assessment, evidence may be, in milliseconds."""

    maximum_evidence_age_ms: Annotated[int, Field(ge=0, le=365 * _DAY_MS)]
    maximum_future_skew_ms: Annotated[int, Field(ge=0, le=_DAY_MS)]


class EvaluatorKey(Model):
    """One trusted evaluator key and what it may sign."""

    key_id: Slug
    purpose: Literal["evaluator-evidence"] = "evaluator-evidence"
    algorithm: Literal["ed25519"] = "ed25519"
    public_key_spki: PublicKeySpki
    evaluator_id: Slug
    producer_id: Slug
    authorized_rubric_versions: Annotated[tuple[Text, ...], Field(min_length=1, max_length=64), AfterValidator(unique)]
    authorized_calibration_digests: Annotated[
        tuple[Digest, ...], Field(min_length=1, max_length=64), AfterValidator(unique)
    ]
    valid_from: Timestamp
    valid_until: Timestamp

    @model_validator(mode="after")
    def _interval(self) -> Self:
        require(self.valid_until > self.valid_from, "validUntil must be after validFrom")
        return self


class Revocation(Model):
    """A key that is not trusted from an instant on."""

    key_id: Slug
    revoked_at: Timestamp
    reason_code: Slug


class EvaluatorTrustSnapshot(Record):
    """``tasc-evaluator-trust-snapshot-v1``; an operator's file that no producer can write."""

    domain: ClassVar[str] = TRUST_POLICY_DOMAIN

    version: Literal["tasc-evaluator-trust-snapshot-v1"] = "tasc-evaluator-trust-snapshot-v1"
    freshness: Freshness
    keys: Annotated[tuple[EvaluatorKey, ...], Field(min_length=1, max_length=128)]
    revocations: Annotated[tuple[Revocation, ...], Field(max_length=256)]

    @model_validator(mode="after")
    def _no_duplicates(self) -> Self:
        require_unique((key.key_id for key in self.keys), "keys: keyId must not repeat")
        require_unique((key.public_key_spki for key in self.keys), "keys: one public key may stand once")
        require_unique((item.key_id for item in self.revocations), "revocations: keyId must not repeat")
        return self

    @classmethod
    def digest_of(cls, value: dict[str, Any]) -> str:  # Any: a JSON object
        """Digest of the trust policy: everything but the revocations."""
        return digest(cls.domain, {name: item for name, item in value.items() if name != "revocations"})

    @property
    def revocations_digest(self) -> str:
        """Digest of the revocations."""
        return digest(
            REVOCATIONS_DOMAIN, {"version": self.version, "revocations": [item.to_json() for item in self.revocations]}
        )

    def key(self, key_id: str) -> EvaluatorKey | None:
        """The trusted key of an id, or None."""
        return next((key for key in self.keys if key.key_id == key_id), None)
