"""The case set of a plan, without its cases: ids, groups, replicates and keyed identities (``tasc-case-set-v1``).

A keyed identity is an HMAC of the whole case under the study's payload key, so that who has no key learns nothing, and
who collects can prove that a case is one of those that were planned. The root in the plan commits to this list.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.scalars import Count, Hex64, Slug


class CaseEntry(Model):
    """One planned case."""

    case_id: Slug
    group_id: Slug
    replicates: Annotated[int, Field(ge=1, le=10_000)]
    identity: Hex64
    length_bucket: Slug
    """Power-of-two bucket of the prompt's characters, such as ``chars-256-511``; coarse on purpose."""
    maximum_output_tokens: Count
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    input_token_estimate: Count | None
    slices: Annotated[tuple[Slug, ...], Field(max_length=64)]


class CaseSetFile(Record):
    """All planned cases, sorted by case id."""

    domain: ClassVar[str] = "tasc/case-set/v1"

    version: Literal["tasc-case-set-v1"] = "tasc-case-set-v1"
    study_id: Slug
    key_id: Slug
    entries: Annotated[tuple[CaseEntry, ...], Field(min_length=1, max_length=10_000)]

    @model_validator(mode="after")
    def _sorted(self) -> Self:
        ids = [entry.case_id for entry in self.entries]
        if ids != sorted(set(ids)):
            raise ValueError("entries are sorted by caseId and unique")
        return self
