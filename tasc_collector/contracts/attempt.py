"""One transport attempt inside a trace envelope (original project, section 3.2).

Rules: a success was completely dispatched and received, has a finish reason and a resolved model, no failure
category, no partial output, and was not aborted. Anything else has a failure category; an aborted attempt says how
the abort ended. Known instants never decrease. What a provider reports about itself is operational only: a metric
whose name speaks of scores or quality is refused, because scores come from evaluators.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from tasc_collector.contracts.base import Model, SparseModel
from tasc_collector.contracts.identities import PayloadReference
from tasc_collector.contracts.rules import Omittable, require, require_in_order
from tasc_collector.contracts.scalars import Count, Digest, Finite, NonNegative, Slug, Timestamp, TraceText
from tasc_collector.errors import DispatchState
from tasc_collector.limits import MAX_ATTEMPTS, MAX_PROVIDER_VALUES

AttemptStatus = Literal["success", "failure", "aborted"]
AttemptAbort = Literal["not-aborted", "abort-requested", "abort-confirmed", "abort-ambiguous"]
CountSource = Literal["observer-derived", "provider-reported", "modeled"]

_SCORE_WORDS = frozenset({"evaluator", "judge", "quality", "reward", "score", "taskscore"})


def _operational(name: str) -> str:
    require(_SCORE_WORDS.isdisjoint(re.split(r"[._-]", name)), "a provider metric may not be named as a score")
    return name


class ObserverTimings(Model):
    """Wall-clock instants of one attempt as the collector saw them."""

    started_at: Timestamp
    headers_at: Timestamp | None
    first_byte_at: Timestamp | None
    first_meaningful_token_at: Timestamp | None
    completed_at: Timestamp

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        require_in_order(
            (self.started_at, self.headers_at, self.first_byte_at, self.first_meaningful_token_at, self.completed_at),
            "startedAt, headersAt, firstByteAt, firstMeaningfulTokenAt, completedAt must not decrease",
        )
        return self


class RequestedModel(Model):
    """The model that was asked for."""

    id: TraceText
    revision: TraceText


class ReportedModel(Model):
    """The model and revision that the provider reported."""

    id: TraceText
    revision: TraceText
    source: Literal["provider-reported"] = "provider-reported"


class ReportedModelId(Model):
    """The model id that the provider reported, without a revision."""

    id: TraceText
    revision: None = None
    source: Literal["provider-id-only"] = "provider-id-only"


class TokenCount(SparseModel):
    """One token count, where it came from, and what it counts."""

    omitted: ClassVar[frozenset[str]] = frozenset({"tokenizerDigest"})

    value: Count
    source: CountSource
    semantics: Slug
    tokenizer_digest: Omittable[Digest] = None


class TokenUsage(Model):
    """Token counts of one attempt; null where unknown."""

    input: TokenCount | None
    output: TokenCount | None
    total: TokenCount | None


class ProviderReportedTiming(Model):
    """A duration that the provider reported, in milliseconds."""

    name: Slug
    value_ms: NonNegative
    source: Literal["provider-reported"] = "provider-reported"


class ProviderReportedMetric(Model):
    """An operational value that the provider reported."""

    name: Annotated[Slug, AfterValidator(_operational)]
    value: Finite
    unit: Slug
    source: Literal["provider-reported"] = "provider-reported"


class ProviderReported(Model):
    """What the provider said about its own work."""

    timings: Annotated[tuple[ProviderReportedTiming, ...], Field(max_length=MAX_PROVIDER_VALUES)]
    metrics: Annotated[tuple[ProviderReportedMetric, ...], Field(max_length=MAX_PROVIDER_VALUES)]


class UnavailableCost(Model):
    """Nobody knows what the attempt cost."""

    kind: Literal["unavailable"] = "unavailable"


class MeasuredCost(Model):
    """A cost with the evidence of its measurement."""

    kind: Literal["measured"] = "measured"
    amount: NonNegative
    currency: Literal["USD"] = "USD"
    evidence_digest: Digest


class ModeledCost(Model):
    """A cost from the study's cost model."""

    kind: Literal["modeled"] = "modeled"
    amount: NonNegative
    currency: Literal["USD"] = "USD"
    model_digest: Digest


class ProviderReportedCost(Model):
    """A cost that the provider reported."""

    kind: Literal["provider-reported"] = "provider-reported"
    amount: NonNegative
    currency: Literal["USD"] = "USD"


AttemptCost = Annotated[
    UnavailableCost | MeasuredCost | ModeledCost | ProviderReportedCost, Field(discriminator="kind")
]
ResolvedModel = Annotated[ReportedModel | ReportedModelId, Field(discriminator="source")]


class AttemptPayloads(Model):
    """What was sent and received, by identity only."""

    request: PayloadReference
    response: PayloadReference | None
    event_stream: PayloadReference | None


class Attempt(Model):
    """One try to get an answer over one connection."""

    attempt_id: Slug
    attempt_number: Annotated[int, Field(ge=1, le=MAX_ATTEMPTS)]
    dispatch_state: DispatchState
    observer_timings: ObserverTimings
    status: AttemptStatus
    finish_reason: Slug | None
    partial_output: bool
    abort_lifecycle: AttemptAbort
    failure_category: Slug | None
    requested_model: RequestedModel
    resolved_model: ResolvedModel | None
    token_usage: TokenUsage
    provider_reported: ProviderReported
    cost: AttemptCost
    payloads: AttemptPayloads

    @model_validator(mode="after")
    def _semantics(self) -> Self:
        if self.status == "success":
            require(self.dispatch_state is DispatchState.COMPLETED, "a success has dispatchState completed")
            require(self.failure_category is None, "a success has no failureCategory")
            require(self.abort_lifecycle == "not-aborted", "a success was not aborted")
            require(not self.partial_output, "a success has no partial output")
            require(self.finish_reason is not None, "a success has a finishReason")
            require(self.resolved_model is not None, "a success has a resolvedModel")
        else:
            require(self.failure_category is not None, "an attempt that is no success has a failureCategory")
        if self.status == "aborted":
            require(self.abort_lifecycle != "not-aborted", "an aborted attempt has an abortLifecycle")
        return self
