"""What is kept of one call to a runtime: no prompt, no output, no header (original project, sections 2.7 and 3.10)."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from tasc_collector.contracts.base import Model, Record, SparseModel
from tasc_collector.contracts.identities import KeyedIdentity
from tasc_collector.contracts.instance import ModelRevision
from tasc_collector.contracts.rules import Omittable, require
from tasc_collector.contracts.scalars import Build, Count, Digest, ModelId, NonNegative, Slug, Timestamp
from tasc_collector.errors import Category, DispatchState

RouteName = Literal["chatCompletions", "completions", "responses", "nativeChat", "nativeGenerate"]
InvocationStatus = Literal["completed", "incomplete", "failed"]
AbortLifecycle = Literal[
    "not-aborted", "caller-cancelled-before-dispatch", "caller-cancelled-after-dispatch-ambiguous", "deadline-exceeded"
]
_CREDENTIAL_WORD = re.compile(
    r"\b(?:bearer|basic)\b|api[-_ ]?key|password|passwd|secret|\bsk-[a-z0-9_-]{8,}\b", re.IGNORECASE | re.ASCII
)


def no_credential_word(text: str) -> str:
    """``text``, or ``ValueError`` where one of its words is a word for a credential."""
    require(_CREDENTIAL_WORD.search(text) is None, "looks like a credential")
    return text


ErrorId = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$", min_length=1, max_length=128),
    AfterValidator(no_credential_word),
]
_DayNs = Annotated[int, Field(ge=0, le=86_400_000_000_000)]

ERROR_MESSAGES: dict[Category, str] = {
    Category.AUTHENTICATION: "Inference runtime authentication failed.",
    Category.AUTHORIZATION: "Inference runtime authorization failed.",
    Category.TIMEOUT: "Inference request timed out.",
    Category.RATE_LIMIT: "Inference runtime rate limit was reached.",
    Category.TRANSPORT: "Inference transport failed.",
    Category.INVALID_RESPONSE: "Inference runtime returned an invalid response.",
    Category.CANCELLED: "Inference request was cancelled.",
    Category.INTERNAL: "Inference runtime failed.",
    Category.UNKNOWN: "Inference request failed.",
}
"""The one sentence that is kept per category (error allowlist v1 of the original); a provider's own text never is."""


class PersistedError(Model):
    """A failure as it may be kept: an allowlisted category and its fixed sentence."""

    version: Literal["tasc-persisted-error-v1"] = "tasc-persisted-error-v1"
    category: Category
    message: str
    status: Annotated[int, Field(ge=100, le=599)] | None
    runtime: ErrorId | None
    request_id: ErrorId | None

    @model_validator(mode="after")
    def _fixed_message(self) -> Self:
        require(self.message == ERROR_MESSAGES[self.category], "message must be the fixed text of its category")
        return self

    @classmethod
    def of(
        cls, category: Category, *, status: int | None = None, runtime: str | None = None, request_id: str | None = None
    ) -> Self:
        """The persisted form of a failure category."""
        return cls(
            category=category, message=ERROR_MESSAGES[category], status=status, runtime=runtime, request_id=request_id
        )


class InvocationProfile(Model):
    """Runtime profile that was spoken."""

    id: Slug
    build: Build


class ProviderModel(Model):
    """The model that the answer named; a revision is never on the wire of a generation."""

    id: ModelId
    revision: ModelId | None
    verification: Literal["provider-reported"] = "provider-reported"


class ProviderUsage(Model):
    """Token counts that the answer reported."""

    input_tokens: Count | None
    output_tokens: Count | None
    total_tokens: Count | None


class ProviderTiming(SparseModel):
    """Durations that the answer reported, in nanoseconds."""

    omitted: ClassVar[frozenset[str]] = frozenset(
        {"totalDurationNs", "loadDurationNs", "promptEvaluationDurationNs", "evaluationDurationNs"}
    )

    total_duration_ns: Omittable[_DayNs] = None
    load_duration_ns: Omittable[_DayNs] = None
    prompt_evaluation_duration_ns: Omittable[_DayNs] = None
    evaluation_duration_ns: Omittable[_DayNs] = None


class WireTiming(SparseModel):
    """Wall-clock start and offsets of one exchange, in milliseconds."""

    omitted: ClassVar[frozenset[str]] = frozenset({"headersMs", "firstByteMs"})

    started_at: Timestamp
    headers_ms: Omittable[NonNegative] = None
    first_byte_ms: Omittable[NonNegative] = None
    completed_ms: NonNegative


class StreamTiming(Model):
    """When the body came, in milliseconds since 1970 and as offsets."""

    started_at_ms: NonNegative
    first_byte_at_ms: NonNegative | None
    first_meaningful_at_ms: NonNegative | None
    completed_at_ms: NonNegative
    time_to_first_byte_ms: NonNegative | None
    time_to_first_meaningful_ms: NonNegative | None
    duration_ms: NonNegative


class RuntimeInvocationPersistence(Record):
    """The raw-free remainder of one call. ``completed`` means: clean end, finish reason, usage and model all there."""

    domain: ClassVar[str] = "tasc/runtime-invocation-persistence/v1"

    schema_version: Literal["tasc-runtime-invocation-persistence-v1"] = "tasc-runtime-invocation-persistence-v1"
    status: InvocationStatus
    endpoint_binding_digest: Digest
    profile: InvocationProfile
    route: RouteName
    requested_model: ModelRevision
    resolved_model: ProviderModel | None
    request_identity: KeyedIdentity
    response_identity: KeyedIdentity | None
    event_stream_identity: KeyedIdentity | None
    terminal_output_identity: KeyedIdentity | None
    finish_reason: Slug | None
    provider_usage: ProviderUsage | None
    provider_timing: ProviderTiming
    final_usage: Literal["present", "missing"]
    partial_output: bool
    dispatch_state: DispatchState
    abort_lifecycle: AbortLifecycle
    wire_timing: WireTiming | None
    stream_timing: StreamTiming | None
    error: PersistedError | None

    @model_validator(mode="after")
    def _semantics(self) -> Self:
        completed = self.status == "completed"
        require(
            completed == (self.terminal_output_identity is not None),
            "terminalOutputIdentity is set exactly when status is completed",
        )
        if completed:
            require(self.dispatch_state is DispatchState.COMPLETED, "a completed call has dispatchState completed")
            require(self.finish_reason is not None, "a completed call has a finishReason")
            require(self.resolved_model is not None, "a completed call has a resolvedModel")
            require(self.final_usage == "present", "a completed call has finalUsage present")
            require(not self.partial_output, "a completed call has no partial output")
            require(self.error is None, "a completed call has no error")
            require(self.abort_lifecycle == "not-aborted", "a completed call was not aborted")
        else:
            require(self.error is not None, "a call that did not complete has an error")
        if self.dispatch_state is DispatchState.NOT_SENT:
            require(self.response_identity is None, "a call that was not sent has no responseIdentity")
        return self
