"""What a server says it is, by passive reads only: runtime, build, model, revision.

Rules:

1. Only GET, and only of routes that the profiles' ``recognition`` and model lists name; nothing else of an answer is
   kept than the fields named there.
2. What the operator declares is not asked of the wire, but a build that the wire names differently is refused.
3. Every value has its basis. What nobody said and the wire does not tell has the pinned value with basis ``unknown``.
4. A model that a remote host would answer is no model of a local runtime: its name says so, or the server's own list.
   It is not chosen, and it is refused where the operator declares it.
5. The first runtime whose sign is found counts; owners of a model list come first, the least specific signs last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import ValidationError

from tasc_collector.contracts.instance import RuntimeBuild
from tasc_collector.contracts.trust_policy import CollectorTrustPolicy, TrustedEndpoint, TrustedRoute
from tasc_collector.errors import InputError, NotAuthorized, WireError
from tasc_collector.probes.judgement import is_remote
from tasc_collector.probes.reading import ReadTarget, read_route
from tasc_collector.runtimes.profile import Expectation, ObservationKind, RuntimeProfile, WireField
from tasc_collector.runtimes.registry import profiles
from tasc_collector.transport.clock import Clock
from tasc_collector.transport.network import NetworkAccess
from tasc_collector.wire.json import parse_json

Basis = Literal["observed", "declared", "unknown"]
_ALIAS: Final = "discovery"
_PROBED: Final = RuntimeBuild(profile_id="unrecognised", build="0")
_MODEL_LIST: Final = "/v1/models"
_BUILD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,255}")
_SIDES: Final = "champion|candidate"
_DECLARE: Final = f"say what it is: --({_SIDES})-runtime NAME --({_SIDES})-build BUILD --({_SIDES})-model MODEL"


@dataclass(frozen=True, slots=True)
class Value:
    """A value and how it is known."""

    value: str
    basis: Basis


@dataclass(frozen=True, slots=True)
class Discovered:
    """What is known about one server.

    Args:
        origin: its origin.
        runtime: runtime id.
        build: build.
        model_id: model as it goes on the wire.
        model_revision: revision, where the wire tells it.
        backend: backend, where the wire tells it.
    """

    origin: str
    runtime: Value
    build: Value
    model_id: Value
    model_revision: Value | None
    backend: Value | None


async def discover(
    origin: str,
    *,
    clock: Clock,
    network: NetworkAccess | None = None,
    runtime: str | None = None,
    build: str | None = None,
    model: str | None = None,
) -> Discovered:
    """Recognise one server.

    Args:
        origin: canonical origin; https, or plain http to literal loopback.
        clock: both clocks.
        network: lookups and sockets; the system's if None.
        runtime: what the operator declares; asked of the wire if None.
        build: declared build.
        model: declared model id.

    Raises:
        InputError: the origin breaks a rule, nobody answers, the server cannot be recognised, it names another build
            than was declared, or it lists several models and none was named; says how to go on.
        NotAuthorized: the declared model is one that the runtime passes on to a remote host.
    """
    wire = _Wire(ReadTarget(_policy(origin), _ALIAS, _PROBED.profile_id, _PROBED.build), clock, network)
    known = {profile.runtime: profile for profile in profiles()}
    if runtime is not None and runtime not in known:
        raise InputError(
            "this runtime is not registered", where=runtime[:64], way_out="choose one of " + ", ".join(known)
        )
    named = runtime or await wire.recognised()
    if named is None:
        if not wire.answered:
            raise InputError(
                "no answer from this server",
                where=origin,
                way_out="start it, or correct the address; then run the command again",
            )
        raise InputError(
            "the server answers, but none of the known runtimes was recognised",
            where=origin,
            rule="read: " + ", ".join(sorted(wire.paths)),
            way_out=_DECLARE,
        )
    profile = known[named]
    seen = await wire.text(profile.recognition.build)
    seen = seen if seen is not None and _BUILD.fullmatch(seen) else None
    if build is not None and seen is not None and seen.partition("+")[0] != build.partition("+")[0]:
        raise InputError(
            "the server names another build than was declared",
            where=origin,
            field="build",
            way_out="leave the build out, or correct it",
        )
    models = await wire.models(profile)
    if model is not None and (profile.passes_on(model) or model in models.remote):
        raise NotAuthorized(
            "this is no local endpoint of the model",
            where=origin,
            field="model",
            rule=f"{profile.display_name} passes this model on to a remote host: its name or its entry says so",
            way_out="pull a model to this host and name it: --champion-model or --candidate-model",
        )
    model_id = _model(origin, models.local, model)
    revision = models.revisions.get(model_id.value) or await wire.text(profile.recognition.revision)
    return Discovered(
        origin,
        Value(named, "declared" if runtime else "observed"),
        _build(profile, build, seen),
        model_id,
        None if revision is None else Value(revision, "observed"),
        None,
    )


def _build(profile: RuntimeProfile, declared: str | None, seen: str | None) -> Value:
    if declared is not None:
        return Value(declared, "declared")
    return Value(profile.build, "unknown") if seen is None else Value(seen, "observed")


def _model(origin: str, listed: Sequence[str], declared: str | None) -> Value:
    if declared is not None:
        return Value(declared, "observed" if declared in listed else "declared")
    if len(listed) == 1:
        return Value(listed[0], "observed")
    what = "the server lists no local model" if not listed else f"the server lists {len(listed)} models"
    raise InputError(what, where=origin, way_out="name one: --champion-model or --candidate-model")


def passive_paths() -> tuple[str, ...]:
    """Every route that discovery may read, sorted."""
    found = {_MODEL_LIST}
    for profile in profiles():
        said = profile.recognition
        found.update(item.path for item in (said.sign, said.build, said.revision) if item is not None)
        models = profile.observation(ObservationKind.MODELS)
        if models is not None:
            found.add(models.path)
    return tuple(sorted(found))


def _policy(origin: str) -> CollectorTrustPolicy:
    """Authority to read exactly the passive routes of one origin."""
    routes = tuple(
        TrustedRoute(method="GET", path_prefix=path, authentication_references=()) for path in passive_paths()
    )
    try:
        return CollectorTrustPolicy(
            local_mode="literal-loopback-only" if origin.startswith("http://") else "disabled",
            maximum_request_duration_ms=30_000,
            endpoints=(TrustedEndpoint(alias=_ALIAS, origin=origin, runtime=_PROBED, routes=routes),),
            secret_references=(),
            evaluator_key_ids=(),
            store_roots=(),
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise InputError(
            "this is no origin that may be reached",
            where=origin[:200],
            rule=first["msg"].removeprefix("Value error, "),
            way_out="give https://host[:port], or http://127.0.0.1:PORT on this machine",
        ) from None


@dataclass(frozen=True, slots=True)
class _Models:
    """What a runtime's own list says: ids of local models, their revisions where it tells them, ids of remote ones."""

    local: tuple[str, ...] = ()
    revisions: Mapping[str, str] = field(default_factory=dict)
    remote: frozenset[str] = frozenset()


class _Wire:
    """Reads each passive route once and keeps the named fields only."""

    def __init__(self, target: ReadTarget, clock: Clock, network: NetworkAccess | None) -> None:
        self._target, self._clock, self._network = target, clock, network
        self._read: dict[str, Mapping[str, Any]] = {}  # Any: JSON objects
        self.answered = False

    @property
    def paths(self) -> tuple[str, ...]:
        """Routes that were read so far."""
        return tuple(self._read)

    async def recognised(self) -> str | None:
        """The runtime that the tables recognise (rule 4)."""
        listing = await self._object(_MODEL_LIST)
        owners = {str(entry.get("owned_by")) for entry in _entries(listing.get("data"))}
        for profile in profiles():
            if profile.recognition.owner in owners:
                return profile.runtime
        signs = [(profile.recognition.sign, profile.runtime) for profile in profiles()]
        found = [(sign, runtime) for sign, runtime in signs if sign is not None]
        for sign, runtime in sorted(found, key=lambda item: item[0].beside_models):
            if sign.beside_models and listing.get("object") != "list":
                continue
            if await self.text(sign) is not None:
                return runtime
        return None

    async def text(self, where: WireField | None) -> str | None:
        """What a field of a passive route says, if its text fits the pattern."""
        if where is None:
            return None
        said = (await self._object(where.path)).get(where.field)
        match = re.match(where.pattern, said) if isinstance(said, str) else None
        return None if match is None else match[1]

    async def models(self, profile: RuntimeProfile) -> _Models:
        """The models that the runtime's own list has."""
        route = profile.observation(ObservationKind.MODELS)
        if route is None:
            return _Models()
        native = route.expects is Expectation.OLLAMA_MODELS
        name, entries = ("name", "models") if native else ("id", "data")
        found = _entries((await self._object(route.path)).get(entries))
        local = [entry for entry in found if not is_remote(entry, profile)]
        ids = [str(entry[name]) for entry in local if isinstance(entry.get(name), str) and 0 < len(entry[name]) <= 512]
        remote = {str(entry[name]) for entry in found if name in entry and is_remote(entry, profile)}
        if native:  # Ollama takes a name without a tag for the tag latest
            remote |= {item.removesuffix(":latest") for item in remote}
        digests = {str(entry.get(name)): str(entry.get("digest")).removeprefix("sha256:") for entry in local if native}
        revisions = {
            model: f"sha256:{digest}" for model, digest in digests.items() if re.fullmatch(r"[0-9a-f]{64}", digest)
        }
        return _Models(tuple(dict.fromkeys(ids)), revisions, frozenset(remote))

    async def _object(self, path: str) -> Mapping[str, Any]:  # Any: a JSON object
        if path not in self._read:
            answer = await read_route(self._target, path, clock=self._clock, network=self._network)
            self.answered = self.answered or answer.result.status is not None
            self._read[path] = _parsed(answer.body)
        return self._read[path]


def _parsed(body: bytes | None) -> Mapping[str, Any]:  # Any: a JSON object
    if body is None:
        return {}
    try:
        value = parse_json(body)
    except WireError:
        return {}
    return value if isinstance(value, dict) else {}


def _entries(value: object) -> list[dict[str, Any]]:  # Any: JSON objects
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
