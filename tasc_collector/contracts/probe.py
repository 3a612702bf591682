"""What one live probe showed about one capability of one instance (original project, section 3.11).

An identity that the operator or nobody vouches for has ``observed`` null; one that the provider reported has exactly
the configured value there. A probe never proves more than the server said.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tasc_collector.contracts.base import Model, Record
from tasc_collector.contracts.instance import BackendBuild, InstanceText, ModelRevision, RuntimeBuild
from tasc_collector.contracts.rules import require
from tasc_collector.contracts.scalars import Digest, Timestamp

ProbeCapability = Literal[
    "modelDiscovery",
    "liveness",
    "readiness",
    "prometheusMetrics",
    "jsonMetrics",
    "chatCompletions",
    "completions",
    "responses",
    "nativeChat",
    "nativeGenerate",
]
ProbeState = Literal["supported", "unsupported", "unknown"]


class _Verified(Model):
    """A value that may have been reported by the provider."""

    @model_validator(mode="after")
    def _observed_where_reported(self) -> Self:
        reported = getattr(self, "basis", None) == "provider-reported"
        require(
            reported == (getattr(self, "observed", None) is not None),
            "observed is set exactly where basis is provider-reported",
        )
        return self


class RuntimeBuildVerification(_Verified):
    """Whether the server named its own build."""

    basis: Literal["operator-policy", "provider-reported"]
    observed: InstanceText | None


class BackendVerification(_Verified):
    """Whether the server named its backend."""

    basis: Literal["unverified", "provider-reported"]
    observed: BackendBuild | None


class TextVerification(_Verified):
    """Whether the server named this value."""

    basis: Literal["unverified", "provider-reported"]
    observed: InstanceText | None


class IdentityVerification(Model):
    """Which parts of the instance's declared identity the probe confirmed."""

    endpoint_binding: Literal["operator-policy"] = "operator-policy"
    runtime_build: RuntimeBuildVerification
    backend: BackendVerification
    model_id: TextVerification
    model_revision: TextVerification
    configuration_digest: TextVerification


class CapabilityProbeEvidence(Record):
    """``tasc-runtime-capability-probe-v1``."""

    domain: ClassVar[str] = "tasc/runtime-capability-probe/v1"

    schema_version: Literal["tasc-runtime-capability-probe-v1"] = "tasc-runtime-capability-probe-v1"
    source: Literal["live-probe"] = "live-probe"
    capability: ProbeCapability
    state: ProbeState
    probed_at: Timestamp
    identity_verification: IdentityVerification
    endpoint_descriptor_digest: Digest
    runtime: RuntimeBuild
    backend: BackendBuild
    model: ModelRevision
    configuration_digest: Annotated[Digest, Field()]

    @model_validator(mode="after")
    def _observed_is_configured(self) -> Self:
        seen = self.identity_verification
        for name, observed, configured in (
            ("runtimeBuild", seen.runtime_build.observed, self.runtime.build),
            ("backend", seen.backend.observed, self.backend),
            ("modelId", seen.model_id.observed, self.model.id),
            ("modelRevision", seen.model_revision.observed, self.model.revision),
            ("configurationDigest", seen.configuration_digest.observed, self.configuration_digest),
        ):
            require(
                observed is None or observed == configured,
                f"identityVerification.{name}: observed must be the configured value",
            )
        return self
