"""Probing in tests: a subject with a policy that lists exactly what a profile may be asked, and places for canaries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from tasc_collector.contract_servers import CONTRACTS, Behaviour, ContractServer
from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.instance import BackendBuild, ModelRevision, RuntimeBuild, RuntimeInstance
from tasc_collector.contracts.receipt import CapabilityReceipt
from tasc_collector.contracts.trust_policy import CollectorTrustPolicy
from tasc_collector.identity import PayloadKey
from tasc_collector.probes.canaries import CanaryPlace, CanaryResult, probe_canary
from tasc_collector.probes.judgement import Finding
from tasc_collector.probes.observations import Subject, observe
from tasc_collector.probes.reading import ReadTarget
from tasc_collector.probes.receipts import Issuer, probe
from tasc_collector.runtimes.profile import Capability, Effect, Framing, ObservationKind, Route, RuntimeProfile
from tasc_collector.runtimes.registry import get_profile
from tasc_collector.secrets import SecretStore
from tasc_collector.signing import SigningKey
from tasc_collector.transport.clock import SystemClock
from tasc_collector.transport.network import NetworkAccess

KEY = SigningKey.generate()
ISSUER = Issuer(KEY, "collector-test", 24.0)
PAYLOAD = PayloadKey("study-1", "payload-1", bytes(range(32)))
RUNTIMES = sorted(CONTRACTS)
FAST = Behaviour(ttft_ms=1, itl_ms=1, tokens=6)


def profile_of(runtime: str) -> RuntimeProfile:
    return get_profile(runtime, CONTRACTS[runtime].build)


def subject(
    server: ContractServer,
    *,
    leave_out: Iterable[str] = (),
    model: str | None = None,
    revision: str = "r1",
    origin: str | None = None,
    duration_ms: int = 30_000,
) -> Subject:
    """The server with every route of its profile in the policy, but those that are left out."""
    profile = profile_of(server.runtime)
    gets = sorted({item.path for item in profile.observations} - set(leave_out))
    posts = sorted({path for route in profile.routes.values() for path in route.paths.values()} - set(leave_out))
    routes = [("GET", path) for path in gets] + [("POST", path) for path in posts]
    policy = CollectorTrustPolicy.from_value(
        {
            "schemaVersion": "tasc-collector-trust-policy-v1",
            "localMode": "literal-loopback-only",
            "maximumRequestDurationMs": duration_ms,
            "endpoints": [
                {
                    "alias": "main",
                    "origin": origin or server.origin,
                    "runtime": {"profileId": profile.runtime, "build": profile.build},
                    "routes": [
                        {"method": method, "pathPrefix": path, "authenticationReferences": []}
                        for method, path in routes
                    ],
                }
            ],
            "secretReferences": [],
            "evaluatorKeyIds": [],
            "storeRoots": [],
        }
    ).record
    build = RuntimeBuild(profile_id=profile.runtime, build=profile.build)
    instance = RuntimeInstance(
        endpoint_descriptor_digest=policy.endpoints[0].binding_digest(None),
        runtime=build,
        backend=BackendBuild(name="cpu", build="1"),
        model=ModelRevision(id=model or server.model, revision=revision),
        configuration_digest="sha256:" + "c" * 64,
    )
    return Subject(ReadTarget(policy, "main", profile.runtime, profile.build), instance, profile)


def place(
    server: ContractServer, route: Route | None = None, framing: Framing | None = None, **changes: Any
) -> CanaryPlace:
    """A place for canaries on a route (the profile's first by default) in a framing (its last by default)."""
    found = subject(server, **changes)
    chosen = route or next(iter(found.profile.routes))
    framings = found.profile.routes[chosen].framings if chosen in found.profile.routes else (Framing.JSON,)
    limits = HttpLimits(connect_timeout_ms=1_000, headers_timeout_ms=1_500, body_timeout_ms=1_500, deadline_ms=3_000)
    return CanaryPlace(found, chosen, framing or framings[-1], limits, PAYLOAD, SecretStore({}), "test")


def run_observation(
    found: Subject, kind: ObservationKind, effect: Effect | None = None, network: NetworkAccess | None = None
) -> Finding:
    """Observe with the effect that the route needs, or another one; over a network of its own where one is given."""
    route = found.profile.observation(kind)
    named = effect or (Effect.NON_MUTATING if route is None else route.required_effect)
    return asyncio.run(observe(found, kind, named, clock=SystemClock(), network=network))


def run_canary(where: CanaryPlace, capability: Capability, effect: Effect = Effect.INFERENCE_CANARY) -> CanaryResult:
    return asyncio.run(probe_canary(where, capability, effect, clock=SystemClock()))


def run_probe(where: CanaryPlace, capability: Capability, effect: Effect) -> CapabilityReceipt:
    return asyncio.run(probe(where, capability, effect, ISSUER, clock=SystemClock()))
