"""One bounded inference per capability, and what its answer shows.

Rules:

1. A canary is an inference: the effect ``inference-canary`` must be named, and the route must be in the trust policy.
2. The request is ours, of a few tokens, and asks for nothing but what is to be shown. Nobody's cases are ever sent.
3. One call shows one capability. A seed alone needs two: what it promises is a repetition, and several choices of one
   call say nothing of the next call. Both are budgeted, and told beforehand (``tasc probe``). Cancellation is one call that
   is left in its midst, with passive reads before and after it (``passive_reads``).
4. ``supported`` needs a complete answer that shows the feature; a 404 is ``unsupported``; a seed with two answers is
   ``unsupported``; everything else is ``unknown`` with its reason.
5. No text is kept. A structured answer is parsed in memory and forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.observations import MetricValue
from tasc_collector.errors import DispatchState, NotAuthorized, WireError
from tasc_collector.identity import PayloadKey
from tasc_collector.invocation.admission import CanaryAdmission
from tasc_collector.invocation.dispatch import InvocationCancelled, InvocationOutcome, dispatch
from tasc_collector.invocation.prepare import CallTarget, prepare
from tasc_collector.limits import CANCEL_POLL_S, CANCEL_POLLS
from tasc_collector.probes.judgement import Finding, ProbeReason, ReceiptState, failed
from tasc_collector.probes.observations import Subject, observe, require_effect
from tasc_collector.probes.reading import can_read
from tasc_collector.probes.residency import require_resident
from tasc_collector.runtimes.features import ANSWER_FIELD, Feature
from tasc_collector.runtimes.profile import (
    Capability,
    CapabilityState,
    Effect,
    Framing,
    ObservationKind,
    Protocol,
    Route,
    RuntimeProfile,
)
from tasc_collector.runtimes.request import Generation, Message, Role, framing_for
from tasc_collector.runtimes.result import Answer, BuildMatch, OutputKind
from tasc_collector.runtimes.verdict import FinishReason, Outcome
from tasc_collector.secrets import SecretStore
from tasc_collector.transport.clock import Clock
from tasc_collector.transport.network import NetworkAccess, SystemNetwork
from tasc_collector.wire.json import parse_json

_CHAT: Final = frozenset({Protocol.OPENAI_CHAT, Protocol.OLLAMA_CHAT, Protocol.LM_STUDIO_CHAT})
_SEED: Final = 7
_PROMPT: Final = "ping"
_LONG_PROMPT: Final = "Count upwards from one, one number per line."
_PRIME_PROMPT: Final = "Report the smallest prime number."


@dataclass(frozen=True, slots=True)
class Canary:
    """How a capability is asked for.

    Args:
        max_tokens: most output tokens of each call.
        judge: what a complete answer must show.
        calls: inference calls.
        stream: True or False where the capability needs it; None takes the framing of the study's target.
        feature: feature that is asked for.
        prompt: what is said.
        sampled: the temperature is 1 instead of 0.
    """

    max_tokens: int
    judge: Callable[[Answer], bool]
    calls: int = 1
    stream: bool | None = None
    feature: Feature | None = None
    prompt: str = _PROMPT
    sampled: bool = False

    @property
    def most_tokens(self) -> int:
        """Output tokens that the probe may cost at most."""
        return self.max_tokens * self.calls


def _complete(answer: Answer) -> bool:
    return answer.choices == 1


def _streamed(answer: Answer) -> bool:
    return bool(answer.events) and answer.frames > 1


def _counted(answer: Answer) -> bool:
    usage = answer.usage
    return usage is not None and usage.input is not None and usage.output is not None and not usage.conflict


def _logprobs(answer: Answer) -> bool:
    return answer.logprobs


def _structured(answer: Answer) -> bool:
    try:
        value = parse_json((answer.text or "").strip().encode())
    except WireError:
        return False
    return isinstance(value, dict) and list(value) == [ANSWER_FIELD] and type(value[ANSWER_FIELD]) is int


def _tools(answer: Answer) -> bool:
    called = answer.finish_reason in (FinishReason.TOOL_CALLS, FinishReason.FUNCTION_CALL)
    return called or any(event.kind is OutputKind.TOOL for event in answer.events)


CANARIES: Final[Mapping[Capability, Canary]] = {
    **{route.capability: Canary(1, _complete) for route in Route},
    Capability.STREAMING: Canary(8, _streamed, stream=True),
    Capability.FINAL_USAGE: Canary(8, _counted),
    Capability.LOGPROBS: Canary(4, _logprobs, stream=False, feature=Feature.LOGPROBS),
    Capability.STRUCTURED_OUTPUT: Canary(
        64, _structured, stream=False, feature=Feature.STRUCTURED_OUTPUT, prompt=_PRIME_PROMPT
    ),
    Capability.TOOLS: Canary(64, _tools, stream=True, feature=Feature.TOOLS, prompt=_PRIME_PROMPT),
    Capability.CANCELLATION: Canary(512, _complete, stream=True, prompt=_LONG_PROMPT),
    Capability.SEED_DETERMINISM: Canary(16, _complete, calls=2, stream=False, prompt=_LONG_PROMPT, sampled=True),
}
"""Every capability that only an inference shows."""


@dataclass(frozen=True, slots=True)
class CanaryPlace:
    """Where a canary is sent and with what.

    Args:
        subject: the server.
        route: the inference route.
        framing: framing of the study's target; a capability that needs another takes its own.
        limits: bounds of each call.
        key: key of the answers' identities, by which two answers are compared.
        secrets: where a secret is looked up, at dispatch.
        authorized_by: who named the effect.
    """

    subject: Subject
    route: Route
    framing: Framing
    limits: HttpLimits
    key: PayloadKey = field(repr=False)
    secrets: SecretStore = field(repr=False)
    authorized_by: str


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """What a canary showed, and in which framing.

    Args:
        finding: state and reason.
        framing: framing of its answers.
        calls: inference calls that left this machine.
    """

    finding: Finding
    framing: Framing
    calls: int


def passive_reads(profile: RuntimeProfile, capability: Capability) -> int:
    """Most passive GETs that a canary makes beside its calls; none of them makes the server work.

    One asks whether the model is resident, where the profile has such a rule. Cancellation reads the counters before and
    until they fell back, and the health once.
    """
    reads = int(profile.residency is not None)
    if capability is Capability.CANCELLATION:
        reads += int(_passive(profile, ObservationKind.LIVENESS))
        reads += (1 + CANCEL_POLLS) * int(_passive(profile, ObservationKind.PROMETHEUS))
    return reads


def _passive(profile: RuntimeProfile, kind: ObservationKind) -> bool:
    route = profile.observation(kind)
    return route is not None and route.required_effect is Effect.NON_MUTATING


def canary_framing(place: CanaryPlace, capability: Capability) -> Framing:
    """The framing in which a capability is probed."""
    wanted = CANARIES[capability].stream
    invocation = place.subject.profile.routes[place.route]
    return place.framing if wanted is None else framing_for(invocation, stream=wanted)


async def probe_canary(
    place: CanaryPlace, capability: Capability, effect: Effect, *, clock: Clock, network: NetworkAccess | None = None
) -> CanaryResult:
    """Send the canary of a capability.

    Args:
        place: where and with what.
        capability: what is to be shown.
        effect: the effect that the operator named.
        clock: both clocks.
        network: lookups and sockets; the system's if None.

    Raises:
        NotAuthorized: the effect was not named, the build does not have capability or route, the policy does not list
            the route, or the server would load, switch or forward the model. Nothing was sent.
        InputError: the route cannot ask for this. Nothing was sent.
    """
    require_effect(Effect.INFERENCE_CANARY, effect, alias=place.subject.alias, capability=capability.value)
    _check_claim(place, capability)
    canary = CANARIES[capability]
    framing = canary_framing(place, capability)
    calls = _Calls(place, _call_target(place, framing), canary, clock, network)
    calls.check()
    await require_resident(place.subject, clock=clock, network=network)
    if capability is Capability.CANCELLATION:
        finding = await _cancelled(calls)
    else:
        outcomes = [await calls.one() for _ in range(canary.calls)]
        finding = _judged(canary, outcomes)
    return CanaryResult(finding, framing, calls.sent)


def _check_claim(place: CanaryPlace, capability: Capability) -> None:
    """Refuse what the pinned build says that it does not have, and routes that it does not have."""
    profile = place.subject.profile
    claim = profile.capabilities[capability]
    if claim.state is CapabilityState.UNSUPPORTED or place.route not in profile.routes:
        missing = capability.value if place.route in profile.routes else place.route.value
        raise NotAuthorized(
            f"{profile.display_name} {profile.build} does not have this",
            where=place.subject.alias,
            field=missing,
            rule=claim.reason,
            way_out=f"see what it has: tasc runtimes show {profile.runtime}",
        )


def _call_target(place: CanaryPlace, framing: Framing) -> CallTarget:
    subject = place.subject
    supported = subject.profile.state(place.route.capability) is CapabilityState.SUPPORTED
    admission = None if supported else CanaryAdmission(subject.instance, place.route, framing, place.authorized_by)
    return CallTarget(
        policy=subject.read.policy,
        alias=subject.alias,
        instance=subject.instance,
        profile=subject.profile,
        route=place.route,
        framing=framing,
        limits=place.limits,
        authentication=subject.read.authentication,
        admission=admission,
        extension=subject.read.extension,
        orchestration_descriptor_digest=subject.descriptor_digest,
    )


class _Calls:
    """Makes the calls of one canary and counts those that left."""

    def __init__(
        self, place: CanaryPlace, target: CallTarget, canary: Canary, clock: Clock, network: NetworkAccess | None
    ) -> None:
        self.place, self.target, self.canary, self.clock = place, target, canary, clock
        self.network = network or SystemNetwork()
        self.sent = 0

    def generation(self) -> Generation:
        """The canary's own request."""
        canary, target = self.canary, self.target
        chat = target.profile.routes[target.route].protocol in _CHAT
        return Generation(
            model_id=target.instance.model.id,
            max_tokens=canary.max_tokens,
            stream=target.framing is not Framing.JSON,
            messages=(Message(Role.USER, canary.prompt),) if chat else None,
            prompt=None if chat else canary.prompt,
            temperature=1.0 if canary.sampled else 0.0,
            seed=_SEED if canary.sampled else None,
            feature=canary.feature,
        )

    def check(self) -> None:
        """Prepare once without sending: everything that can be refused is refused here."""
        prepare(
            self.target, self.generation(), payload_key=self.place.key, secrets=self.place.secrets, clock=self.clock
        )

    async def one(self, on_read: Callable[[int], None] | None = None) -> InvocationOutcome:
        """Make one call.

        Raises:
            InvocationCancelled: it was left in its midst.
        """
        prepared = prepare(
            self.target, self.generation(), payload_key=self.place.key, secrets=self.place.secrets, clock=self.clock
        )
        return await dispatch(
            prepared,
            lease=self._leased,
            network=self.network,
            on_read=on_read,
            keep_text=self.canary.feature is Feature.STRUCTURED_OUTPUT,
        )

    async def _leased(self) -> None:
        self.sent += 1


def _judged(canary: Canary, outcomes: list[InvocationOutcome]) -> Finding:
    """The finding of complete calls (rule 4)."""
    for outcome in outcomes:
        answer = outcome.answer
        if answer is None or outcome.exchange.status != 200 or not outcome.exchange.succeeded:
            return failed(outcome.exchange)
        if answer.outcome is not Outcome.COMPLETED:
            return Finding("unknown", answer.reason.value, outcome.exchange.status)
        if answer.build_match is BuildMatch.DIFFERS:
            return Finding("unknown", ProbeReason.BUILD_DIFFERS, outcome.exchange.status)
        if not canary.judge(answer):
            return Finding("unknown", ProbeReason.FEATURE_ABSENT, outcome.exchange.status)
    last = outcomes[-1].answer
    identities = {outcome.answer_identity for outcome in outcomes}
    repeated = len(identities) == 1 and (len(outcomes) == 1 or None not in identities)
    state: ReceiptState = "supported" if repeated else "unsupported"
    return Finding(
        state,
        ProbeReason.OBSERVED if repeated else ProbeReason.SEED_NOT_REPEATED,
        200,
        build_seen=last is not None and last.build_match is BuildMatch.MATCHES,
        model_seen=last is not None and last.resolved_model is not None,
    )


async def _cancelled(calls: _Calls) -> Finding:
    """Leave a stream in its midst, and see whether the server stopped and is well.

    Needs output before the abort; afterwards the liveness route (where passive and listed) must be good, and
    the number of running requests (where the server has that metric) must fall to what it was.
    """
    before = await _running(calls)
    token = asyncio.Event()

    def note(events: int) -> None:
        if events > 1:
            token.set()

    call = asyncio.ensure_future(calls.one(note))
    waiter = asyncio.ensure_future(token.wait())
    await asyncio.wait({call, waiter}, return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    call.cancel()
    try:
        ended = await call
    except InvocationCancelled as cancelled:
        outcome = cancelled.outcome
    else:
        found = _judged(calls.canary, [ended])
        return Finding("unknown", ProbeReason.ENDED_BEFORE_ABORT, found.status) if found.state == "supported" else found
    if outcome.answer is None or not outcome.answer.events:
        return Finding("unknown", ProbeReason.ENDED_BEFORE_ABORT, outcome.exchange.status, outcome.exchange.state)
    return await _after_abort(calls, before, outcome)


async def _after_abort(calls: _Calls, before: tuple[MetricValue, ...], outcome: InvocationOutcome) -> Finding:
    status, subject = outcome.exchange.status, calls.place.subject
    unproved: list[str] = []
    if not _can_read(subject, ObservationKind.LIVENESS):
        unproved.append("healthy-afterwards")
    else:
        seen = await observe(
            subject, ObservationKind.LIVENESS, Effect.NON_MUTATING, clock=calls.clock, network=calls.network
        )
        if seen.state != "supported":
            return Finding("unknown", ProbeReason.UNHEALTHY_AFTER_ABORT, status, DispatchState.SENT_UNKNOWN)
    idle = _of(before, "requests-running")
    after = before
    if idle is None:
        unproved.append("generation-stopped")
    else:
        for _ in range(CANCEL_POLLS):
            after = await _running(calls)
            running = _of(after, "requests-running")
            if running is not None and running <= idle:
                break
            await asyncio.sleep(CANCEL_POLL_S)
        else:
            return Finding(
                "unknown", ProbeReason.STILL_RUNNING_AFTER_ABORT, status, DispatchState.SENT_UNKNOWN, measured=after
            )
    return Finding(
        "supported",
        ProbeReason.OBSERVED,
        status,
        DispatchState.SENT_UNKNOWN,
        measured=after,
        not_proved=tuple(unproved),
        model_seen=outcome.answer is not None and outcome.answer.resolved_model is not None,
    )


async def _running(calls: _Calls) -> tuple[MetricValue, ...]:
    """The server's own counters, where they can be read passively; else nothing."""
    subject = calls.place.subject
    if not _can_read(subject, ObservationKind.PROMETHEUS):
        return ()
    found = await observe(
        subject, ObservationKind.PROMETHEUS, Effect.NON_MUTATING, clock=calls.clock, network=calls.network
    )
    return found.measured


def _can_read(subject: Subject, kind: ObservationKind) -> bool:
    """Whether the server has this route, it is passive, and the policy lists it."""
    route = subject.profile.observation(kind)
    return route is not None and _passive(subject.profile, kind) and can_read(subject.read, route.path)


def _of(values: tuple[MetricValue, ...], metric: str) -> float | None:
    return next((item.value for item in values if item.metric == metric and not item.labels), None)
