"""The observation routes of a profile: one read each, with the effect that it has named and authorized.

Rules:

1. The effect that the caller names must be exactly the route's ``required_effect``: a read that may make the server work
   in some state of it (TGI ``/health``) is authorized as what it may do, not as what it usually does.
2. A capability that the pinned build does not have, or has no route for, is refused before contact.
3. The trust policy must list exactly this route.
4. Routes of kinds ``version`` and ``model-info`` are read for identity; they make no receipt of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tasc_collector.contracts.instance import RuntimeInstance
from tasc_collector.errors import NotAuthorized
from tasc_collector.limits import PASSIVE_DEADLINE_MS, PASSIVE_MAX_BYTES, PROMETHEUS_MAX_BYTES
from tasc_collector.probes.judgement import Finding, judge
from tasc_collector.probes.reading import ReadTarget, read_route
from tasc_collector.runtimes.profile import (
    Capability,
    CapabilityState,
    Effect,
    Expectation,
    ObservationKind,
    ObservationRoute,
    RuntimeProfile,
)
from tasc_collector.transport.clock import Clock
from tasc_collector.transport.network import NetworkAccess

KIND_OF: Mapping[Capability, ObservationKind] = {
    Capability.MODEL_DISCOVERY: ObservationKind.MODELS,
    Capability.LIVENESS: ObservationKind.LIVENESS,
    Capability.READINESS: ObservationKind.READINESS,
    Capability.PROMETHEUS_METRICS: ObservationKind.PROMETHEUS,
    Capability.JSON_METRICS: ObservationKind.JSON_METRICS,
}
"""Capabilities that one observation route shows."""
ALSO_NOT_PROVED: Mapping[Capability, tuple[str, ...]] = {
    Capability.MODEL_DISCOVERY: ("model-loaded", "inference"),
    Capability.LIVENESS: ("inference",),
    Capability.READINESS: (),
    Capability.PROMETHEUS_METRICS: ("inference",),
    Capability.JSON_METRICS: ("inference",),
}
"""What a good answer still does not show."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The server that is probed, and as what.

    Args:
        read: policy, alias and authentication.
        instance: what the operator declares to run there.
        profile: the build's profile.
        descriptor_digest: digest of the endpoint's orchestration descriptor, if it has one.
    """

    read: ReadTarget = field(repr=False)
    instance: RuntimeInstance
    profile: RuntimeProfile = field(repr=False)
    descriptor_digest: str | None = None

    @property
    def alias(self) -> str:
        """The endpoint's alias."""
        return self.read.alias


def observation_route(profile: RuntimeProfile, capability: Capability, *, alias: str) -> ObservationRoute:
    """The route that shows a capability (rule 2).

    Raises:
        NotAuthorized: the build does not have the capability, or no route shows it.
    """
    route = profile.observation(KIND_OF[capability])
    claim = profile.capabilities[capability]
    if claim.state is CapabilityState.UNSUPPORTED or route is None:
        raise NotAuthorized(
            f"{profile.display_name} {profile.build} has no route that shows this",
            where=alias,
            field=capability.value,
            rule=claim.reason,
            way_out=f"see what it has: tasc runtimes show {profile.runtime}",
        )
    return route


def require_effect(needed: Effect, named: Effect, *, alias: str, capability: str) -> None:
    """Refuse an effect that is not exactly the one that is needed (rule 1).

    Raises:
        NotAuthorized: it is another one; nothing was sent.
    """
    if needed is not named:
        raise NotAuthorized(
            "the probe's effect is not the one that was named",
            where=alias,
            field=capability,
            rule=f"needs {needed.value}, named {named.value}",
            way_out=f"name it: --effect {needed.value}",
        )


async def observe(
    subject: Subject, kind: ObservationKind, effect: Effect, *, clock: Clock, network: NetworkAccess | None = None
) -> Finding:
    """Read one observation route once and judge it.

    Args:
        subject: the server.
        kind: which of its routes.
        effect: the effect that the operator named.
        clock: both clocks.
        network: lookups and sockets; the system's if None.

    Raises:
        NotAuthorized: the build has no such route, its effect was not named, or the policy does not list it. Nothing
            was sent.
    """
    route = subject.profile.observation(kind)
    if route is None:
        raise NotAuthorized(
            f"{subject.profile.display_name} {subject.profile.build} has no such route",
            where=subject.alias,
            field=kind.value,
            way_out=f"see what it has: tasc runtimes show {subject.profile.runtime}",
        )
    require_effect(route.required_effect, effect, alias=subject.alias, capability=kind.value)
    text = route.expects is Expectation.PROMETHEUS_TEXT
    answer = await read_route(
        subject.read,
        route.path,
        clock=clock,
        network=network,
        deadline_ms=PASSIVE_DEADLINE_MS,
        max_bytes=PROMETHEUS_MAX_BYTES if text else PASSIVE_MAX_BYTES,
    )
    return judge(route, subject.profile, subject.instance, answer.result, answer.body)
