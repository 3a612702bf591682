"""Input files of the original project's command line (original project, sections 6.5 and 10).

They hold no secret: authentication is a reference, a header name and the *name* of an environment variable.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from tasc_collector.contracts.base import Model, Record, SparseModel, SparseRecord
from tasc_collector.contracts.descriptor import EndpointDescriptor
from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.instance import RuntimeInstance
from tasc_collector.contracts.persistence import RouteName
from tasc_collector.contracts.rules import Omittable, require
from tasc_collector.contracts.scalars import Count, OpaqueId, Slug
from tasc_collector.limits import MAX_PROFILES

AuthEnvironmentName = Annotated[str, StringConstraints(pattern=r"^TASC_RUNTIME_AUTH_[A-Z][A-Z0-9_]{0,63}$")]
HmacEnvironmentName = Annotated[str, StringConstraints(pattern=r"^TASC_SHADOW_HMAC_[A-Z][A-Z0-9_]{0,63}$")]
SigningEnvironmentName = Annotated[str, StringConstraints(pattern=r"^TASC_SHADOW_SIGNING_[A-Z][A-Z0-9_]{0,63}$")]


class EndpointAuthentication(Model):
    """Which header carries the secret of which reference."""

    reference: OpaqueId
    header: Literal["authorization", "x-api-key"]
    environment_variable: AuthEnvironmentName


class RuntimeEndpointFile(SparseRecord):
    """``tasc-cli-runtime-endpoint-v1``: an endpoint of the trust policy and how to authenticate to it."""

    domain: ClassVar[str] = "tasc/cli-runtime-endpoint/v1"
    omitted: ClassVar[frozenset[str]] = frozenset({"endpointDescriptor", "authentication"})

    schema_version: Literal["tasc-cli-runtime-endpoint-v1"] = "tasc-cli-runtime-endpoint-v1"
    endpoint_alias: OpaqueId
    endpoint_descriptor: Omittable[EndpointDescriptor] = None
    authentication: Omittable[EndpointAuthentication] = None


class ShadowProfileTarget(SparseModel):
    """What serves one profile of the protocol."""

    omitted: ClassVar[frozenset[str]] = frozenset({"httpLimits"})

    profile_id: Slug
    endpoint: RuntimeEndpointFile
    instance: RuntimeInstance
    route: RouteName
    http_limits: Omittable[HttpLimits] = None


class ShadowProfilesFile(Record):
    """``tasc-cli-shadow-profiles-v2``: what serves every profile of the protocol."""

    domain: ClassVar[str] = "tasc/cli-shadow-profiles/v2"

    schema_version: Literal["tasc-cli-shadow-profiles-v2"] = "tasc-cli-shadow-profiles-v2"
    targets: Annotated[tuple[ShadowProfileTarget, ...], Field(min_length=2, max_length=MAX_PROFILES)]


class ShadowIdentityFile(Record):
    """``tasc-cli-shadow-identity-v2``: where the study's three keys are found."""

    domain: ClassVar[str] = "tasc/cli-shadow-identity/v2"

    schema_version: Literal["tasc-cli-shadow-identity-v2"] = "tasc-cli-shadow-identity-v2"
    study_id: Slug
    key_id: Slug
    hmac_key_environment_variable: HmacEnvironmentName
    dispatch_private_key_environment_variable: SigningEnvironmentName
    collector_private_key_environment_variable: SigningEnvironmentName

    @model_validator(mode="after")
    def _two_keys(self) -> Self:
        require(
            self.dispatch_private_key_environment_variable != self.collector_private_key_environment_variable,
            "the dispatch and the collector key are two keys",
        )
        return self


class AssessmentWorkBudget(Record):
    """The most that one assessment may compute."""

    domain: ClassVar[str] = "tasc/assessment-work-budget/v1"

    max_candidates: Count
    max_trace_rows: Count
    max_evidence_rows: Count
    max_bootstrap_draws: Count
    max_independent_groups: Count
    max_assessment_work: Count
