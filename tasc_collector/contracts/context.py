"""When and by which trust an assessment is made: the assessment context (original project, section 3.3)."""

from __future__ import annotations

from typing import ClassVar, Literal

from tasc_collector.contracts.base import OptionalDigestRecord
from tasc_collector.contracts.scalars import Digest, Timestamp


class AssessmentContext(OptionalDigestRecord):
    """``tasc-assessment-context-v2``: the clock and the trust of an assessment, both explicit."""

    domain: ClassVar[str] = "tasc/assessment-context/v2"
    self_digest_field: ClassVar[str | None] = "context_digest"

    version: Literal["tasc-assessment-context-v2"] = "tasc-assessment-context-v2"
    as_of: Timestamp
    operator_trust_policy_snapshot_digest: Digest
    evaluator_revocation_snapshot_digest: Digest
    context_digest: Digest
