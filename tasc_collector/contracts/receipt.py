"""``tasc-capability-receipt-v1``: what one server could do, proved by one observation and dated."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasc_collector.contracts.collection import Framing, Route
from tasc_collector.contracts.instance import BackendBuild, ModelRevision, RuntimeBuild
from tasc_collector.contracts.observations import MetricValue
from tasc_collector.contracts.probe import IdentityVerification
from tasc_collector.contracts.scalars import Digest, Slug, Timestamp
from tasc_collector.contracts.signed import SignedRecord

Capability = Literal[
    "chatCompletions",
    "completions",
    "responses",
    "nativeChat",
    "nativeGenerate",
    "streaming",
    "finalUsage",
    "logprobs",
    "structuredOutput",
    "tools",
    "cancellation",
    "modelDiscovery",
    "liveness",
    "readiness",
    "prometheusMetrics",
    "jsonMetrics",
    "seedDeterminism",
]
"""The sixteen of the matrix and seed determinism."""


class CapabilityReceipt(SignedRecord):
    """One observation, scoped to endpoint, build, backend, model, configuration, route and framing; signed by the collector."""

    domain: ClassVar[str] = "tasc/capability-receipt/v1"

    version: Literal["tasc-capability-receipt-v1"] = "tasc-capability-receipt-v1"
    capability: Capability
    state: Literal["supported", "unsupported", "unknown"]
    effect: Literal["non-mutating", "consumptive", "inference-canary"]
    endpoint_alias: Slug
    endpoint_binding_digest: Digest
    runtime: RuntimeBuild
    backend: BackendBuild
    model: ModelRevision
    configuration_digest: Digest
    route: Route | None
    framing: Framing | None
    identity_verification: IdentityVerification
    not_proved: Annotated[tuple[Slug, ...], Field(max_length=64)]
    """What this observation could not show, although a reader might think so."""
    reason: Slug = "observed"
    """Why the state is what it is: a word of the probes, the transport or the reading of an answer."""
    status: Annotated[int, Field(ge=100, le=599)] | None = None
    dispatch_state: Literal["not_sent", "sent_unknown", "completed"] = "completed"
    calls: Annotated[int, Field(ge=0, le=8)] = 1
    """Inference calls that the probe made, or 0 for a read."""
    measured: Annotated[tuple[MetricValue, ...], Field(max_length=256)] = ()
    """Canonical metrics that the probe read."""
    observed_at: Timestamp
    valid_until: Timestamp
    evidence: (
        dict[str, Any] | None
    )  # Any: the wrapped probe evidence of the original, checked by CapabilityProbeEvidence

    @model_validator(mode="after")
    def _order(self) -> Self:
        if self.valid_until <= self.observed_at:
            raise ValueError("validUntil is after observedAt")
        return self
