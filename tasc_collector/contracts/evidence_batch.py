"""A file of evidence that was taken in: ``tasc-evidence-batch-v1``, signed with the collector key.

It is the memory of a check. Every signature in the file was verified once, each under the public key that is listed for
its key id; whoever finds file and batch unchanged need not verify them again. It says nothing about trust, revocation or
freshness: those are asked anew, as of every assessment.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasc_collector.contracts.base import Model
from tasc_collector.contracts.rules import require_unique
from tasc_collector.contracts.scalars import B64u, Digest, Positive, Slug, Timestamp, WindowKey
from tasc_collector.contracts.signed import SignedRecord


class VerifiedKey(Model):
    """A key id that evidence of the file names, and the public key under which its signatures hold."""

    key_id: Slug
    public_key_spki: B64u


class EvidenceBatch(SignedRecord):
    """``tasc-evidence-batch-v1``; see this module."""

    domain: ClassVar[str] = "tasc/evidence-batch/v1"

    version: Literal["tasc-evidence-batch-v1"] = "tasc-evidence-batch-v1"
    study_id: Slug
    protocol_digest: Digest
    content_digest: Digest
    """SHA-256 of the file's bytes."""
    rows: Positive
    window_keys: Annotated[tuple[WindowKey, ...], Field(min_length=1)]
    """Windows whose traces the evidence is about, sorted; of a revised window, revision 1."""
    keys: Annotated[tuple[VerifiedKey, ...], Field(min_length=1, max_length=128)]
    added_at: Timestamp

    @model_validator(mode="after")
    def _unique(self) -> Self:
        require_unique((key.key_id for key in self.keys), "keys: keyId must not repeat")
        require_unique(self.window_keys, "windowKeys must not repeat")
        return self
