"""Endpoints behind Ray Serve, SkyPilot or SkyServe: descriptors that add provenance to a registered runtime. Pure.

Rules (original project, section 3.8):

1. An orchestrator is no wire protocol: the runtime behind it owns requests and answers.
2. The locator is the mode's own: Ray Serve names application and deployment, SkyPilot a cluster, SkyServe a service.
   The draft shape that put a service under plain SkyPilot is refused, never reinterpreted: another locator would
   silently be another provenance and another fingerprint.
3. The fingerprint (the descriptor's digest) covers origin, base path, runtime, build and orchestration, and enters the
   endpoint binding digest. It grants nothing: deployment stays ``none``, the network ``unverified``.
4. A bound endpoint's routes lie under the base path, and each covers at least one route of the runtime's profile. The
   profile's paths are called as they are: a prefix that rewrites them needs a host of its own.

No SDK is imported, no cluster is asked, no job is run. ``direct`` and ``kubernetes`` endpoints have no descriptor: what
a study says about them stands in its execution profile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.descriptor import EndpointDescriptor, endpoint_binding
from tasc_collector.contracts.instance import RuntimeBuild
from tasc_collector.contracts.trust_policy import TrustedEndpoint, TrustedRoute
from tasc_collector.errors import InputError
from tasc_collector.runtimes.profile import RuntimeProfile

Kind = Literal["ray-serve", "skypilot", "skyserve"]

LOCATORS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "ray-serve": ("applicationName", "deploymentName"),
    "skypilot": ("clusterName",),
    "skyserve": ("serviceName",),
}
"""Exactly the fields of each mode's locator."""


@dataclass(frozen=True, slots=True)
class OrchestratedEndpoint:
    """What an operator knows of one endpoint behind an orchestrator.

    Args:
        origin: canonical origin.
        route_prefix: path under which the runtime's routes lie; ``/`` for the root.
        runtime: runtime and build behind it.
        build: the orchestrator's own build.
        configuration_digest: digest of its configuration.
        authentication_reference: name of the secret reference, if calls authenticate.
    """

    origin: str
    route_prefix: str
    runtime: RuntimeBuild
    build: str
    configuration_digest: str
    authentication_reference: str | None = None


def ray_serve(endpoint: OrchestratedEndpoint, *, application_name: str, deployment_name: str) -> EndpointDescriptor:
    """Descriptor of a Ray Serve deployment.

    Raises:
        InputError: a value breaks its rule; names the field.
    """
    return _build("ray-serve", endpoint, {"applicationName": application_name, "deploymentName": deployment_name})


def skypilot(endpoint: OrchestratedEndpoint, *, cluster_name: str) -> EndpointDescriptor:
    """Descriptor of a server on a SkyPilot cluster.

    Raises:
        InputError: a value breaks its rule; names the field.
    """
    return _build("skypilot", endpoint, {"clusterName": cluster_name})


def skyserve(endpoint: OrchestratedEndpoint, *, service_name: str) -> EndpointDescriptor:
    """Descriptor of a SkyServe service.

    Raises:
        InputError: a value breaks its rule; names the field.
    """
    return _build("skyserve", endpoint, {"serviceName": service_name})


def read_descriptor(value: Mapping[str, Any], *, where: str) -> Parsed[EndpointDescriptor]:  # Any: a JSON object
    """Read a descriptor; a locator of another mode is refused with the mode that it belongs to (rule 2).

    Args:
        value: the JSON object.
        where: its file, for messages.

    Raises:
        InputError: a field breaks its rule.
    """
    orchestration = value.get("orchestration")
    if isinstance(orchestration, Mapping):
        _check_locator(orchestration.get("kind"), orchestration.get("locator"), where)
    return EndpointDescriptor.from_value(dict(value), where=where)


def bind(endpoint: TrustedEndpoint, descriptor: EndpointDescriptor, profile: RuntimeProfile) -> str:
    """The endpoint binding digest of an endpoint behind an orchestrator (rules 3 and 4).

    Args:
        endpoint: the trust policy's endpoint.
        descriptor: its descriptor.
        profile: profile of the runtime behind it.

    Raises:
        InputError: origin, runtime or a route of the endpoint does not fit; names it.
    """
    binding = endpoint_binding(endpoint, descriptor)
    declared = tuple(_profile_routes(profile))
    for index, route in enumerate(endpoint.routes):
        if not any(_covers(route, method, path) for method, path in declared):
            raise InputError(
                "a trusted route covers no route of the runtime",
                where=endpoint.alias,
                field=f"routes.{index}",
                rule=f"each covers a route of {profile.runtime} {profile.build}",
                way_out="remove the route, or correct the base path",
            )
    return binding


def _build(kind: Kind, endpoint: OrchestratedEndpoint, locator: Mapping[str, str]) -> EndpointDescriptor:
    reference = endpoint.authentication_reference
    return EndpointDescriptor.from_value(
        {
            "schemaVersion": "tasc-endpoint-descriptor-v1",
            "origin": endpoint.origin,
            "basePath": endpoint.route_prefix,
            "runtime": endpoint.runtime.to_json(),
            "orchestration": {
                "kind": kind,
                "build": endpoint.build,
                "configurationDigest": endpoint.configuration_digest,
                **({} if reference is None else {"authenticationReference": reference}),
                "locator": dict(locator),
            },
            "authority": {"deployment": "none", "network": "unverified"},
        },
        where=f"{kind} descriptor",
    ).record


def _check_locator(kind: object, locator: object, where: str) -> None:
    known = next((name for name in LOCATORS if name == kind), None)
    if known is None or not isinstance(locator, Mapping):
        return
    foreign = [name for name in locator if name not in LOCATORS[known]]
    owner = next((mode for mode, names in LOCATORS.items() if foreign and foreign[0] in names), None)
    if owner is not None:
        raise InputError(
            f"{foreign[0]} is no locator of {known}",
            where=where,
            field=f"orchestration.locator.{foreign[0]}",
            rule=f"{known} is located by " + " and ".join(LOCATORS[known]),
            way_out=f"set kind to {owner}, or give {' and '.join(LOCATORS[known])}",
        )


def _profile_routes(profile: RuntimeProfile) -> Iterable[tuple[str, str]]:
    for route in profile.routes.values():
        yield from ((route.method, path) for path in route.paths.values())
    for observation in profile.observations:
        yield observation.method, observation.path


def _covers(route: TrustedRoute, method: str, path: str) -> bool:
    prefix = route.path_prefix
    return route.method == method and (prefix == "/" or path == prefix or path.startswith(prefix + "/"))
