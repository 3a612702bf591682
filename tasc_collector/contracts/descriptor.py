"""Endpoints behind an orchestrator: the endpoint descriptor (original project, section 3.8).

A descriptor says where Ray Serve, SkyPilot or SkyServe put a server. It gives no authority: deployment is ``none``
and the network stays unverified. It is bound to a trust policy's endpoint by origin and runtime, and every route of
that endpoint must lie under the base path.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from tasc_collector.contracts.base import Model, Record, SparseModel
from tasc_collector.contracts.instance import RuntimeBuild
from tasc_collector.contracts.rules import Omittable
from tasc_collector.contracts.scalars import Build, Digest, OpaqueId
from tasc_collector.contracts.trust_policy import Origin, PathPrefix, TrustedEndpoint
from tasc_collector.errors import InputError

LocatorName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$", min_length=1, max_length=128)
]


class RayServeLocator(Model):
    """A Ray Serve application and deployment."""

    application_name: LocatorName
    deployment_name: LocatorName


class SkyPilotLocator(Model):
    """A SkyPilot cluster."""

    cluster_name: LocatorName


class SkyServeLocator(Model):
    """A SkyServe service."""

    service_name: LocatorName


class _Orchestration(SparseModel):
    """Fields that every orchestrator has."""

    omitted: ClassVar[frozenset[str]] = frozenset({"authenticationReference"})

    build: Build
    configuration_digest: Digest
    authentication_reference: Omittable[OpaqueId] = None


class RayServeOrchestration(_Orchestration):
    """Served by Ray Serve."""

    kind: Literal["ray-serve"] = "ray-serve"
    locator: RayServeLocator


class SkyPilotOrchestration(_Orchestration):
    """Run on a SkyPilot cluster."""

    kind: Literal["skypilot"] = "skypilot"
    locator: SkyPilotLocator


class SkyServeOrchestration(_Orchestration):
    """Served by SkyServe."""

    kind: Literal["skyserve"] = "skyserve"
    locator: SkyServeLocator


class DescriptorAuthority(Model):
    """What the descriptor does not grant."""

    deployment: Literal["none"] = "none"
    network: Literal["unverified"] = "unverified"


class EndpointDescriptor(Record):
    """Where an orchestrator exposes one runtime."""

    domain: ClassVar[str] = "tasc/endpoint-descriptor/v1"

    schema_version: Literal["tasc-endpoint-descriptor-v1"] = "tasc-endpoint-descriptor-v1"
    origin: Origin
    base_path: PathPrefix
    runtime: RuntimeBuild
    orchestration: Annotated[
        RayServeOrchestration | SkyPilotOrchestration | SkyServeOrchestration, Field(discriminator="kind")
    ]
    authority: DescriptorAuthority

    def covers(self, path: str) -> bool:
        """Whether a path lies under the base path, by whole segments."""
        return self.base_path == "/" or path == self.base_path or path.startswith(self.base_path + "/")


def endpoint_binding(endpoint: TrustedEndpoint, descriptor: EndpointDescriptor | None = None) -> str:
    """The endpoint binding digest of a trusted endpoint, with its orchestration descriptor where there is one.

    Raises:
        InputError: the descriptor's origin, runtime or base path is not the endpoint's.
    """
    if descriptor is None:
        return endpoint.binding_digest()
    for matches, field, rule in (
        (descriptor.origin == endpoint.origin, "origin", "the origin must be the endpoint's"),
        (descriptor.runtime == endpoint.runtime, "runtime", "runtime and build must be the endpoint's"),
        (
            all(descriptor.covers(r.path_prefix) for r in endpoint.routes),
            "basePath",
            "every route must lie under the base path",
        ),
    ):
        if not matches:
            raise InputError(
                "the endpoint descriptor does not fit the trusted endpoint",
                where=endpoint.alias,
                field=field,
                rule=rule,
                way_out="correct the descriptor, or the endpoint in the trust policy",
            )
    return endpoint.binding_digest(descriptor.digest)
