"""What a pinned build of a runtime can do and how it spells it: the shape of the tables in this package.

Rules:

1. A profile is a table. It says what the pinned build's own source, documents or a live run showed; it proves nothing
   about an endpoint. Only a signed receipt does.
2. Every capability has a claim: a state, the reason in one sentence, what it depends on, how we know it, and where to
   read it upstream. Nothing is left out; what nobody established is ``unknown``.
3. A capability that does not exist is ``unsupported``. A number that a runtime does not have is null, never zero.
4. An observation route lists the fields that may be kept of its answer. Everything else is dropped on reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tasc_collector.canonical import JsonValue
from tasc_collector.runtimes.flags import DialectFlags
from tasc_collector.runtimes.vocabulary import (
    CanonicalMetric,
    Capability,
    CapabilityState,
    Dependency,
    Dialect,
    Effect,
    Evidence,
    Expectation,
    Framing,
    GenerationField,
    Locality,
    MetricFormat,
    ObservationKind,
    Protocol,
    Reduce,
    ResidencyRule,
    Route,
    Tier,
)

__all__ = [
    "CanonicalMetric",
    "Capability",
    "CapabilityClaim",
    "CapabilityState",
    "Dependency",
    "Dialect",
    "Effect",
    "Evidence",
    "Expectation",
    "Framing",
    "GenerationField",
    "InvocationRoute",
    "Locality",
    "MetricFormat",
    "MetricSource",
    "ObservationKind",
    "ObservationRoute",
    "Protocol",
    "Recognition",
    "Reduce",
    "Reference",
    "RequestShape",
    "ResidencyRule",
    "Route",
    "RuntimeProfile",
    "Tier",
    "WireField",
    "routes",
]
"""Everything that a table needs comes from here."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a claim can be read.

    Args:
        title: what the page is.
        url: its address, pinned to the build where the project publishes tags.
    """

    title: str
    url: str


@dataclass(frozen=True, slots=True)
class CapabilityClaim:
    """What is known about one capability of one build.

    Args:
        state: the state.
        reason: why, in one sentence.
        reference: where to read it.
        evidence: how it is known.
        depends_on: what a conditional capability depends on.
        requirement: launch option or setting that it needs, in the runtime's own spelling.
    """

    state: CapabilityState
    reason: str
    reference: Reference
    evidence: Evidence
    depends_on: tuple[Dependency, ...] = ()
    requirement: str | None = None


@dataclass(frozen=True, slots=True)
class RequestShape:
    """How a request body of one route is spelled.

    Args:
        cap_field: field that limits the output tokens and that this build honours.
        fixed: fields that every body has.
        stream_fixed: fields that a streamed body has besides.
        forbids: parts of a generation that the route does not have; asking for them is refused.
        max_temperature: greatest temperature that the route takes.
    """

    cap_field: str
    fixed: Mapping[str, JsonValue] = field(default_factory=dict)
    stream_fixed: Mapping[str, JsonValue] = field(default_factory=dict)
    forbids: frozenset[GenerationField] = frozenset()
    max_temperature: float = 2.0


@dataclass(frozen=True, slots=True)
class InvocationRoute:
    """One inference route. Its effect is always ``inference-canary`` outside a planned window.

    Args:
        route: its name.
        protocol: which builder and reader it has.
        paths: exact path for each framing it offers.
        request: how bodies are spelled.
        flags: how answers end, count and name things.
        note: what an operator should know, if anything.
    """

    route: Route
    protocol: Protocol
    paths: Mapping[Framing, str]
    request: RequestShape
    flags: DialectFlags
    note: str = ""

    @property
    def method(self) -> str:
        """Always POST."""
        return "POST"

    @property
    def effect(self) -> Effect:
        """Every inference is a real call."""
        return Effect.INFERENCE_CANARY

    @property
    def framings(self) -> tuple[Framing, ...]:
        """Framings on offer, JSON first."""
        return tuple(framing for framing in Framing if framing in self.paths)


@dataclass(frozen=True, slots=True)
class ObservationRoute:
    """One route that tells something about the server. All are GET.

    Args:
        kind: what it answers.
        path: exact path.
        effect: what a read does, as a rule.
        expects: what a good answer looks like.
        fields: dotted names that may be kept of a JSON answer; ``[]`` stands for the items of a list.
        text: the exact text of ``Expectation.EXACT_TEXT``.
        escalates_to: what a read may do in some state of the server; this is what must be authorized.
        requirement: launch option that the route needs, in the runtime's own spelling.
        note: what a reader of the answer must know.
    """

    kind: ObservationKind
    path: str
    effect: Effect
    expects: Expectation
    fields: tuple[str, ...] = ()
    text: str | None = None
    escalates_to: Effect | None = None
    requirement: str | None = None
    note: str = ""

    @property
    def method(self) -> str:
        """Always GET."""
        return "GET"

    @property
    def required_effect(self) -> Effect:
        """The effect that an operator must authorize by name before this route is read."""
        return self.escalates_to or self.effect


@dataclass(frozen=True, slots=True)
class MetricSource:
    """Where a canonical metric is read at the pinned build.

    Args:
        names: names in order of priority; the first that is present counts. For ``RATIO``, numerator and denominator.
        reduce: how several series become one number.
        format: Prometheus text or JSON.
        note: what the number really is, where the name says something else.
    """

    names: tuple[str, ...]
    reduce: Reduce
    format: MetricFormat = MetricFormat.PROMETHEUS
    note: str = ""


@dataclass(frozen=True, slots=True)
class WireField:
    """A text field of a passive route's JSON answer.

    Args:
        path: exact path; one of the profile's own passive routes, or a list that every server of the dialect has.
        field: top-level field.
        pattern: what of its text counts, one group; another text counts as nothing.
        beside_models: it is a sign only where the server also gives an OpenAI model list.
    """

    path: str
    field: str
    pattern: str = r"^(.{1,256})$"
    beside_models: bool = False


@dataclass(frozen=True, slots=True)
class Recognition:
    """By what a server of this runtime tells what it is. Evidence of a name, never of a behaviour.

    Args:
        owner: ``owned_by`` in its OpenAI model list.
        sign: a field that only this runtime has, for servers whose list names no owner of their own.
        build: where it tells its build; a text outside the pattern leaves the build unknown.
        revision: where it tells the revision of the served model.
    """

    owner: str | None = None
    sign: WireField | None = None
    build: WireField | None = None
    revision: WireField | None = None


@dataclass(frozen=True, slots=True)
class RuntimeProfile:
    """One build of one runtime.

    Args:
        runtime: id such as ``vllm``.
        build: the exact build.
        display_name: name in sentences.
        tier: how far the project stands behind it.
        locality: where an endpoint may be.
        dialect: what the runtime itself prefers.
        capabilities: a claim for every ``Capability``.
        routes: inference routes.
        observations: observation routes; a path that is not here is never asked.
        references: where to read about the build.
        metrics: sources of canonical metrics; an absent one does not exist at this build and is null, never zero.
        port: the port that the server takes by default.
        locality_note: how a local endpoint may still leave the machine, if it may.
        remote_suffixes: endings of model ids, in small letters, that the runtime passes on to a remote host.
        wire_base: for an operator's build, the (runtime, build) whose wire tables it borrows.
        recognition: by what a server of this runtime is recognised.
        residency: how a passive read shows that a call would be answered by the local model that is meant.
        resident_alias: model id that always means the model the server was started with, if it has one.
    """

    runtime: str
    build: str
    display_name: str
    tier: Tier
    locality: Locality
    dialect: Dialect
    capabilities: Mapping[Capability, CapabilityClaim]
    routes: Mapping[Route, InvocationRoute]
    observations: tuple[ObservationRoute, ...]
    references: tuple[Reference, ...]
    metrics: Mapping[CanonicalMetric, MetricSource]
    port: int
    locality_note: str = ""
    remote_suffixes: tuple[str, ...] = ()
    wire_base: tuple[str, str] | None = None
    recognition: Recognition = field(default_factory=Recognition)
    residency: ResidencyRule | None = None
    resident_alias: str | None = None

    @property
    def flags(self) -> DialectFlags:
        """Flags of the first route, which is the runtime's chat route wherever it has one."""
        return next(iter(self.routes.values())).flags

    def state(self, capability: Capability) -> CapabilityState:
        """State of one capability."""
        return self.capabilities[capability].state

    def passes_on(self, model_id: str) -> bool:
        """Whether the name alone says that a remote host would answer, however its letters are written."""
        return model_id.strip().casefold().endswith(self.remote_suffixes)

    def observation(self, kind: ObservationKind) -> ObservationRoute | None:
        """The route of a kind, if the build has one."""
        return next((route for route in self.observations if route.kind is kind), None)


def routes(*items: InvocationRoute) -> Mapping[Route, InvocationRoute]:
    """Inference routes by name."""
    return {item.route: item for item in items}
