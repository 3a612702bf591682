"""A newcomer's study: two URLs and a file of prompts become a folder of small files that a person reads and keeps in git.

Only passive requests are made. Every value is marked observed, declared or unknown; every digest is computed; nothing is
invented. What the wire cannot tell and nobody declared stays ``unknown`` in the files, visibly.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from tasc_collector.canonical import digest
from tasc_collector.contracts.authority import AuthorityKey
from tasc_collector.contracts.collection import ClosedLoad, GenerationRule
from tasc_collector.contracts.comparison import Comparison, ComparisonRule, Margins
from tasc_collector.contracts.execution_profile import (
    ExecutionProfile,
    Hardware,
    NamedBuild,
    Orchestration,
    Quantization,
    Revision,
)
from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.instance import BackendBuild, ModelRevision, RuntimeBuild
from tasc_collector.contracts.operations import KeyRing
from tasc_collector.contracts.protocol import CostUnavailable, EndpointRequirement, MembershipRule, ShadowCollection
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.contracts.study import EndpointFile, Study, StudyKeys, StudyTarget, StudyWindow
from tasc_collector.contracts.trust_policy import CollectorTrustPolicy, TrustedEndpoint, TrustedRoute
from tasc_collector.errors import InputError
from tasc_collector.probes.discovery import Discovered, discover
from tasc_collector.runtimes.profile import Capability, CapabilityState, Effect, Framing, Route, RuntimeProfile
from tasc_collector.shadow.cases import Case, CaseFormat, guess_format, read_cases
from tasc_collector.transport.clock import SystemClock
from tasc_pipeline.home import keys
from tasc_pipeline.home.builds import home_profile
from tasc_pipeline.home.files import make_folder, write_file
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.toml_records import dump_toml

UNKNOWN = "unknown"
LIFE = timedelta(days=90)
"""A comparison is good for a quarter; then it is forked."""
ATTEMPT_TIMEOUT_MS = 60_000
MAXIMUM_ATTEMPTS = 2
RESPONSE_BYTES = 4 * 1024 * 1024


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


@dataclass(frozen=True, slots=True)
class NewStudy:
    """What a user asks for."""

    study_id: str
    owner: str
    champion: Server
    candidates: tuple[Server, ...]
    prompts: Path
    route: str | None = None
    stream: bool = True
    replicates: int = 2
    concurrency: int = 4
    maximum_output_tokens: int = 64
    margin: float = 1.10
    failure_margin: float = 0.02
    overlap: bool = False
    warm_up: int = 2
    seed: int | None = 1


@dataclass(frozen=True, slots=True)
class StudyOutcome:
    """What was written, and what the user should know."""

    folder: Path
    study: Study
    comparison: Comparison
    found: tuple[tuple[str, Discovered], ...]
    """Profile id and what was found out about its server."""
    cases: int


def new_study(home: Home, wanted: NewStudy, now: datetime) -> StudyOutcome:
    """Write a comparison study.

    Args:
        home: the state folder.
        wanted: what the user asks for.
        now: the wall clock.

    Raises:
        InputError: a server cannot be recognised, a case file breaks a rule, or the study exists; nothing was written.
    """
    folder = home.study(wanted.study_id)
    if folder.exists():
        raise InputError(
            "a study with this id exists",
            where=str(folder),
            way_out=f"choose another --study, or use it: tasc seal {wanted.study_id}",
        )
    form, cases = _cases(wanted)
    servers = (wanted.champion, *wanted.candidates)
    found = [asyncio.run(_discover(server)) for server in servers]
    profiles = [_known_profile(home, server, item) for server, item in zip(servers, found, strict=True)]
    route, framing = _route(wanted, profiles, cases)
    roles = [
        "champion",
        *(("candidate" if len(servers) == 2 else f"candidate-{index}") for index in range(1, len(servers))),
    ]
    ids = [f"{role}-{profile.runtime}" for role, profile in zip(roles, profiles, strict=True)]
    endpoints = [
        _endpoint(role, server, item, profile)
        for role, server, item, profile in zip(roles, servers, found, profiles, strict=True)
    ]
    policy = _policy(endpoints, profiles, route, framing)
    ring = keys.read_ring(home)
    comparison = _comparison(wanted, ring, ids, endpoints, policy, len(cases), now)
    study = _study(wanted, form, ids, endpoints, route, framing, len(cases))
    make_folder(folder / "endpoints")
    for endpoint in endpoints:
        write_file(folder / f"endpoints/{endpoint.alias}.toml", dump_toml(endpoint, _ENDPOINT_COMMENTS))
    write_file(folder / study.trust_policy, policy.canonical() + b"\n")
    write_file(folder / study.protocol, comparison.canonical() + b"\n")
    write_file(folder / "study.toml", dump_toml(study, _STUDY_COMMENTS))
    return StudyOutcome(folder, study, comparison, tuple(zip(ids, found, strict=True)), len(cases))


def _cases(wanted: NewStudy) -> tuple[CaseFormat, tuple[Case, ...]]:
    path = wanted.prompts
    if not path.is_file():
        raise InputError(
            "there is no such file",
            where=str(path),
            field="--prompts",
            way_out="name a file with one prompt per line, or JSON lines",
        )
    with path.open("rb") as lines:
        first = next((line for line in lines if line.strip()), b"")
    form = guess_format(first)
    with path.open("rb") as lines:
        return form, read_cases(lines, form, where=path.name, replicates=wanted.replicates)


async def _discover(server: Server) -> Discovered:
    return await discover(
        server.url, clock=SystemClock(), runtime=server.runtime, build=server.build, model=server.model
    )


def _known_profile(home: Home, server: Server, found: Discovered) -> RuntimeProfile:
    """The registered profile of what was found, or that of a build file of this state folder."""
    try:
        return home_profile(home, found.runtime.value, found.build.value)
    except InputError as error:
        raise InputError(
            error.what,
            where=server.url,
            field="build",
            way_out=f"run: tasc runtimes try {found.runtime.value} {found.build.value}",
        ) from None


def _route(wanted: NewStudy, profiles: Sequence[RuntimeProfile], cases: Sequence[Case]) -> tuple[Route, Framing]:
    """The route that every profile has: as asked, else one that is supported everywhere, else chat."""
    chat = any(case.messages is not None for case in cases)
    preferred = (
        [Route(wanted.route)]
        if wanted.route
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
    route = (supported or shared)[0]
    framings = set.intersection(*(set(profile.routes[route].framings) for profile in profiles))
    streamed = [framing for framing in framings if framing is not Framing.JSON]
    return route, streamed[0] if wanted.stream and streamed else Framing.JSON


def _endpoint(alias: str, server: Server, found: Discovered, profile: RuntimeProfile) -> EndpointFile:
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


def _policy(
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


def _comparison(
    wanted: NewStudy,
    ring: KeyRing,
    ids: Sequence[str],
    endpoints: Sequence[EndpointFile],
    policy: CollectorTrustPolicy,
    cases: int,
    now: datetime,
) -> Comparison:
    at = format_timestamp(now)
    dispatch, collector = keys.current(ring, "dispatch", at), keys.current(ring, "collector", at)
    executions = cases * wanted.replicates * len(ids)
    return Comparison(
        study_id=wanted.study_id,
        comparison_version="v1",
        predecessor_digest=None,
        owner=wanted.owner,
        created_at=at,
        expires_at=format_timestamp(now + LIFE),
        dispatch_authority=AuthorityKey(key_id=dispatch.key_id, public_key_spki=dispatch.public_key_spki),
        collector_authority=AuthorityKey(key_id=collector.key_id, public_key_spki=collector.public_key_spki),
        online_window_membership=MembershipRule(seed=f"{wanted.study_id[:100]}-sample-1", sample_basis_points=10_000),
        profiles=tuple(_profile(profile_id, endpoint) for profile_id, endpoint in zip(ids, endpoints, strict=True)),
        champion_profile_id=ids[0],
        candidate_profile_ids=tuple(ids[1:]),
        margins=Margins(
            ttft_ratio=wanted.margin,
            itl_ratio=wanted.margin,
            tpot_ratio=wanted.margin,
            e2e_ratio=wanted.margin,
            failure_rate_difference=wanted.failure_margin,
        ),
        rule=ComparisonRule(
            confidence=0.95,
            seed=f"{wanted.study_id[:100]}-resampling-1",
            draws=2000,
            minimum_groups=10,
            minimum_coverage=0.95,
            recurring=False,
        ),
        replicates=wanted.replicates,
        maximum_output_tokens=wanted.maximum_output_tokens,
        shadow_collection=ShadowCollection(
            maximum_logical_executions=executions,
            maximum_concurrency=wanted.concurrency * (len(ids) if wanted.overlap else 1),
            attempt_timeout_ms=ATTEMPT_TIMEOUT_MS,
            maximum_attempts=MAXIMUM_ATTEMPTS,
        ),
        cost_allocation=CostUnavailable(),
        endpoint_requirements=tuple(
            EndpointRequirement(
                runtime_name=endpoint.runtime.profile_id,
                endpoint_alias=endpoint.alias,
                transport="loopback-http" if endpoint.origin.startswith("http://") else "https",
            )
            for endpoint in sorted(endpoints, key=lambda endpoint: endpoint.alias)
        ),
        required_capabilities=(),
    )


def _profile(profile_id: str, endpoint: EndpointFile) -> ExecutionProfile:
    def unknown(field: str) -> str:
        return digest("tasc/unknown-configuration/v1", {"profile": profile_id, "field": field})

    return ExecutionProfile(
        id=profile_id,
        runtime=NamedBuild(name=endpoint.runtime.profile_id, build=endpoint.runtime.build),
        backend=NamedBuild(name=endpoint.backend.name, build=endpoint.backend.build),
        model=Revision(id=endpoint.model.id, revision=endpoint.model.revision),
        tokenizer=Revision(id=UNKNOWN, revision=UNKNOWN),
        hardware=Hardware(architecture=UNKNOWN, accelerator=UNKNOWN, accelerator_count=1),
        quantization=Quantization(format=UNKNOWN, configuration_digest=unknown("quantization")),
        chat_template_digest=unknown("chatTemplate"),
        orchestration=Orchestration(kind="direct", configuration_digest=unknown("orchestration")),
        deployment_configuration_digest=endpoint.configuration_digest,
    )


def _study(
    wanted: NewStudy,
    form: CaseFormat,
    ids: Sequence[str],
    endpoints: Sequence[EndpointFile],
    route: Route,
    framing: Framing,
    cases: int,
) -> Study:
    isolation: Literal["serial", "overlap"] = "overlap" if wanted.overlap else "serial"
    calls = cases * wanted.replicates * MAXIMUM_ATTEMPTS + wanted.warm_up
    in_flight = wanted.concurrency * (len(ids) if wanted.overlap else 1)
    worst_minutes = max(calls * len(ids) / in_flight, calls / wanted.concurrency) * ATTEMPT_TIMEOUT_MS / 60_000
    return Study(
        study_id=wanted.study_id,
        kind="comparison",
        owner=wanted.owner,
        protocol="comparison.json",
        trust_policy="trust-policy.json",
        cases=str(wanted.prompts.absolute()),
        cases_format=form,
        keys=StudyKeys(
            payload_hmac="keyfile:payload-hmac.key",
            journal_hmac="keyfile:journal-hmac.key",
            dispatch_signing="keyfile:dispatch.key",
            collector_signing="keyfile:collector.key",
            payload_key_id=f"{wanted.study_id[:100]}-payload-1",
        ),
        targets=tuple(
            StudyTarget(
                profile_id=profile_id,
                endpoint=f"endpoints/{endpoint.alias}.toml",
                route=route.value,
                framing=framing.value,
                lane_width=wanted.concurrency,
            )
            for profile_id, endpoint in zip(ids, endpoints, strict=True)
        ),
        window=StudyWindow(
            minutes=float(math.ceil(worst_minutes + 2)), watermark_minutes=5.0, window_class="observation"
        ),
        generation=GenerationRule(
            maximum_output_tokens=wanted.maximum_output_tokens, temperature=0.0, seed=_seed(wanted, route)
        ),
        load_model=ClosedLoad(kind="closed", concurrency=wanted.concurrency),
        pair_isolation=isolation,
        warm_up_calls_per_profile=wanted.warm_up,
        http_limits=HttpLimits(
            max_response_bytes=RESPONSE_BYTES,
            headers_timeout_ms=ATTEMPT_TIMEOUT_MS,
            body_timeout_ms=ATTEMPT_TIMEOUT_MS,
            deadline_ms=ATTEMPT_TIMEOUT_MS,
        ),
    )


def _seed(wanted: NewStudy, route: Route) -> int | None:
    return None if route is Route.RESPONSES else wanted.seed


_ENDPOINT_COMMENTS = {
    "origin": "Where the server is. It stands only here and in the trust policy; evidence names the alias.",
    "runtime_basis": "How each value is known: observed on the wire, declared by you, computed by a launch plan, or unknown.",
    "configuration_digest": "Identity of the server's configuration. Change it whenever you change the server.",
}
_STUDY_COMMENTS = {
    "protocol": "The comparison: profiles, margins, ceilings. It is digested; a change makes a new study.",
    "cases": "Your own file. Only the collecting step reads it; nothing of it is stored.",
    "keys": "References of the keys that collecting needs; the keys themselves lie in the state folder's keys/.",
    "window": "Defaults of a new window. It closes as soon as every planned execution is final.",
}
