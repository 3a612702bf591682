"""A score that was made elsewhere and signed: evaluator evidence (original project, section 3.3).

It names the terminal output by keyed identity only. The primary range of a score is exactly 0 to 1. Whether evidence is
trusted is not in it; ``evidence_trust`` decides that from the operator's snapshot.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.envelope import Split
from tasc_collector.contracts.identities import ControlledReference, KeyedIdentity
from tasc_collector.contracts.protocol import ProducerKind
from tasc_collector.contracts.rules import require, require_unique
from tasc_collector.contracts.scalars import B64u, Digest, Finite, Slug, Text, Timestamp

EVIDENCE_SIGNATURE_DOMAIN = "tasc/evaluator-evidence-signature/v2"
EVIDENCE_FIELD = "evidence"


class ScoreRange(Model):
    """Bounds of a score."""

    minimum: Finite
    maximum: Finite

    @model_validator(mode="after")
    def _range(self) -> Self:
        require(self.maximum > self.minimum, "maximum must exceed minimum")
        return self

    def holds(self, score: float) -> bool:
        """Whether a score lies within the range."""
        return self.minimum <= score <= self.maximum


class Subscore(Model):
    """A named part of a score, in its own range."""

    id: Slug
    score: Finite
    range: ScoreRange

    @model_validator(mode="after")
    def _within(self) -> Self:
        require(self.range.holds(self.score), "score must lie within its range")
        return self


class Scored(Model):
    """The evaluator gave a score."""

    kind: Literal["scored"] = "scored"
    score: Finite
    range: ScoreRange
    subscores: Annotated[tuple[Subscore, ...], Field(max_length=64)]

    @model_validator(mode="after")
    def _within(self) -> Self:
        require((self.range.minimum, self.range.maximum) == (0, 1), "the primary range must be exactly 0 to 1")
        require(self.range.holds(self.score), "score must lie within its range")
        require_unique((part.id for part in self.subscores), "subscores: ids must not repeat")
        return self


class MissingScore(Model):
    """There is no score."""

    kind: Literal["missing"] = "missing"
    reason_code: Slug


class InvalidScore(Model):
    """The score cannot be used."""

    kind: Literal["invalid"] = "invalid"
    reason_code: Slug


class AbstainedScore(Model):
    """The evaluator declined."""

    kind: Literal["abstained"] = "abstained"
    reason_code: Slug


class DigestSource(Model):
    """The evaluator's own record, by digest."""

    kind: Literal["digest"] = "digest"
    digest: Digest


class EvidenceProducer(Model):
    """What made the score."""

    kind: ProducerKind
    producer_id: Slug
    version: Text


class EvidenceEvaluator(Model):
    """Under which rubric and calibration the score was made."""

    evaluator_id: Slug
    rubric_version: Text
    calibration_digest: Digest
    producer: EvidenceProducer


class EvaluatorEvidence(Record):
    """``tasc-evaluator-evidence-v2``; see the rules of this module."""

    domain: ClassVar[str] = "tasc/evaluator-evidence/v2"

    version: Literal["tasc-evaluator-evidence-v2"] = "tasc-evaluator-evidence-v2"
    study_id: Slug
    protocol_digest: Digest
    trace_id: Slug
    case_id: Slug
    replicate_id: Slug
    profile_id: Slug
    split: Split
    terminal_output_id: KeyedIdentity
    evaluator: EvidenceEvaluator
    outcome: Annotated[Scored | MissingScore | InvalidScore | AbstainedScore, Field(discriminator="kind")]
    source: Annotated[DigestSource | ControlledReference, Field(discriminator="kind")]
    produced_at: Timestamp
    key_id: Slug
    signature_algorithm: Literal["ed25519"] = "ed25519"
    signature: B64u


def evidence_preimage(value: dict[str, Any]) -> dict[str, Any]:  # Any: JSON objects
    """What the evaluator's key signs (member ``evidence``): everything but the signature."""
    return {name: item for name, item in value.items() if name != "signature"}
