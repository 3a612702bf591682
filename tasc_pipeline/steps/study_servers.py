"""The servers of a new study: found out by passive requests, written as endpoint files and as a trust policy.

Every value of an endpoint file says how it is known: observed on the wire, declared, computed by a launch plan, or unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasc_collector.canonical import digest
from tasc_collector.contracts.instance import BackendBuild, ModelRevision, RuntimeBuild
from tasc_collector.contracts.study import EndpointFile
from tasc_collector.contracts.trust_policy import CollectorTrustPolicy, TrustedEndpoint, TrustedRoute
from tasc_collector.errors import InputError
from tasc_collector.probes.discovery import Discovered, discover
from tasc_collector.runtimes.profile import Capability, CapabilityState, Effect, Framing, Route, RuntimeProfile
from tasc_collector.shadow.cases import Case
from tasc_collector.transport.clock import SystemClock
from tasc_pipeline.home.builds import home_profile
from tasc_pipeline.home.layout import Home

UNKNOWN = "unknown"
ATTEMPT_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class Server:
    """One server as the user named it; None where he did not say."""

    url: str
    runtime: str | None = None
    build: str | None = None
    model: str | None = None
    secret: str | None = None
    configuration_digest: str | None = None
    """From a launch plan, where our own compute package launched it."""


async def discovered(server: Server) -> Discovered:
    """What passive requests tell about a server."""
    return await discover(
        server.url, clock=SystemClock(), runtime=server.runtime, build=server.build, model=server.model
    )


def known_profile(home: Home, server: Server, found: Discovered) -> RuntimeProfile:
    """The registered profile of what was found, or that of a build file of this state folder.

    Raises:
        InputError: neither knows the build; the way out declares it with ``tasc runtimes try``.
    """
    try:
        return home_profile(home, found.runtime.value, found.build.value)
    except InputError as error:
        raise InputError(
            error.what,
            where=server.url,
            field="build",
            way_out=f"run: tasc runtimes try {found.runtime.value} {found.build.value}",
        ) from None


def shared_route(
    profiles: Sequence[RuntimeProfile], cases: Sequence[Case], *, route: str | None, stream: bool
) -> tuple[Route, Framing]:
    """The route and framing that every profile has: as asked, else one that is supported everywhere, else chat.

    Raises:
        InputError: the servers share no such route; names those that they share.
    """
    if route is not None and route not in set(Route):
        raise InputError(
            "there is no such route",
            field="--route",
            way_out="choose one of " + ", ".join(item.value for item in Route),
        )
    chat = any(case.messages is not None for case in cases)
    preferred = (
        [Route(route)]
        if route
        else [Route.CHAT_COMPLETIONS]
        if chat
        else [Route.COMPLETIONS, Route.NATIVE_GENERATE, Route.CHAT_COMPLETIONS]
    )
    shared = [route for route in preferred if all(route in profile.routes for profile in profiles)]
    if not shared:
        raise InputError(
            "the servers share no such route",
            field="--route",
            way_out="choose one of "
            + ", ".join(sorted(set.intersection(*({route.value for route in profile.routes} for profile in profiles)))),
        )
    supported = [
        route
        for route in shared
        if all(profile.capabilities[Capability(route.value)].state is CapabilityState.SUPPORTED for profile in profiles)
    ]
    chosen = (supported or shared)[0]
    framings = set.intersection(*(set(profile.routes[chosen].framings) for profile in profiles))
    streamed = [framing for framing in framings if framing is not Framing.JSON]
    return chosen, streamed[0] if stream and streamed else Framing.JSON


def endpoint_file(alias: str, server: Server, found: Discovered, profile: RuntimeProfile) -> EndpointFile:
    """The endpoint file of a server under an alias."""
    launched = server.configuration_digest is not None
    base = profile.wire_base
    return EndpointFile(
        alias=alias,
        origin=found.origin,
        runtime=RuntimeBuild(profile_id=found.runtime.value, build=found.build.value),
        runtime_basis=found.build.basis,
        wire_base=None if base is None else RuntimeBuild(profile_id=base[0], build=base[1]),
        backend=BackendBuild(name=found.backend.value if found.backend else UNKNOWN, build=UNKNOWN),
        backend_basis=found.backend.basis if found.backend else "unknown",
        model=ModelRevision(
            id=found.model_id.value, revision=found.model_revision.value if found.model_revision else UNKNOWN
        ),
        model_basis=found.model_id.basis,
        configuration_digest=server.configuration_digest
        or digest("tasc/declared-configuration/v1", {"alias": alias, "declared": []}),
        configuration_basis="launch-plan" if launched else "declared",
        authentication_reference=f"{alias}-auth" if server.secret else None,
        authentication_header="authorization" if server.secret else None,
        authentication_secret=server.secret,
    )


def trust_policy(
    endpoints: Sequence[EndpointFile], profiles: Sequence[RuntimeProfile], route: Route, framing: Framing
) -> CollectorTrustPolicy:
    """Exactly the inference route and the passive routes of each server; nothing else can be reached."""
    trusted = []
    for endpoint, profile in zip(endpoints, profiles, strict=True):
        references = (endpoint.authentication_reference,) if endpoint.authentication_reference else ()
        passive = {
            observation.path
            for observation in profile.observations
            if observation.required_effect is Effect.NON_MUTATING
        }
        paths = {
            profile.routes[route].paths[framing],
            profile.routes[route].paths.get(Framing.JSON, profile.routes[route].paths[framing]),
        }
        trusted.append(
            TrustedEndpoint(
                alias=endpoint.alias,
                origin=endpoint.origin,
                runtime=endpoint.runtime,
                routes=(
                    *(
                        TrustedRoute(method="POST", path_prefix=path, authentication_references=references)
                        for path in sorted(paths)
                    ),
                    *(
                        TrustedRoute(method="GET", path_prefix=path, authentication_references=references)
                        for path in sorted(passive)
                    ),
                ),
            )
        )
    local = any(endpoint.origin.startswith("http://") for endpoint in endpoints)
    return CollectorTrustPolicy(
        local_mode="literal-loopback-only" if local else "disabled",
        maximum_request_duration_ms=ATTEMPT_TIMEOUT_MS,
        endpoints=tuple(trusted),
        secret_references=tuple(
            sorted(endpoint.authentication_reference for endpoint in endpoints if endpoint.authentication_reference)
        ),
        evaluator_key_ids=(),
        store_roots=(),
    )
