"""Calls to a real engine through prepare and dispatch, whole or left in their midst."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.invocation.admission import CanaryAdmission
from tasc_collector.invocation.dispatch import InvocationCancelled, InvocationOutcome, dispatch
from tasc_collector.invocation.prepare import CallTarget, prepare
from tasc_collector.probes.canaries import CanaryPlace
from tasc_collector.probes.observations import observe
from tasc_collector.runtimes.profile import CapabilityState, Effect, Framing, ObservationKind, Route
from tasc_collector.runtimes.request import Generation, Message, Role
from tasc_collector.secrets import SecretStore
from tasc_collector.transport.clock import SystemClock
from tests.support.live_engines import LiveServer
from tests.support.probing import place, subject
from tests.support.targets import KEY, generation_for, target_for

LIMITS = HttpLimits(headers_timeout_ms=60_000, body_timeout_ms=60_000, deadline_ms=60_000)
"""Generous: a busy machine of two cores computes the answers."""
COUNTING = "Count upwards from one, one number per line."
NO_END = 512
"""Output tokens of an answer that is left, or killed, long before it is whole."""
UNDER_WAY = 3
"""Events with output after which a stream is under way."""
POLLS, POLL_S = 200, 0.1


def live_target(server: LiveServer, route: Route, framing: Framing, *, model: str | None = None) -> CallTarget:
    """The server's route; a conditional one is admitted as a canary's would be."""
    target = target_for(
        server.origin,
        runtime=server.runtime,
        route=route,
        framing=framing,
        model=model or server.model,
        limits=LIMITS,
    )
    if target.profile.state(route.capability) is CapabilityState.SUPPORTED:
        return target
    return dataclasses.replace(target, admission=CanaryAdmission(target.instance, route, framing, "live tier"))


def asked(target: CallTarget, prompt: str = COUNTING, *, max_tokens: int = 8) -> Generation:
    """A greedy request, as messages where the route wants them."""
    chat = target.route is Route.CHAT_COMPLETIONS
    return generation_for(
        target,
        prompt=None if chat else prompt,
        messages=(Message(Role.USER, prompt),) if chat else None,
        max_tokens=max_tokens,
        temperature=0.0,
    )


async def call(
    target: CallTarget, generation: Generation, *, on_read: Callable[[int], None] | None = None
) -> InvocationOutcome:
    """One call."""
    prepared = prepare(target, generation, payload_key=KEY, secrets=SecretStore({}), clock=SystemClock())
    return await dispatch(prepared, lease=_no_lease, on_read=on_read, keep_text=True)


def run(
    target: CallTarget,
    generation: Generation,
    *,
    on_read: Callable[[int], None] | None = None,
    beside: Callable[[], Awaitable[None]] | None = None,
) -> InvocationOutcome:
    """``call`` in an event loop of its own, with something that happens beside it."""

    async def go() -> InvocationOutcome:
        started = asyncio.ensure_future(call(target, generation, on_read=on_read))
        if beside is not None:
            await beside()
        return await started

    return asyncio.run(go())


def once_under_way(act: Callable[[], None]) -> Callable[[int], None]:
    """An ``on_read`` that acts once, when the third event with output has come."""
    done = False

    def note(events: int) -> None:
        nonlocal done
        if events >= UNDER_WAY and not done:
            done = True
            act()

    return note


def run_and_leave(
    target: CallTarget, generation: Generation, *, when: Callable[[], Awaitable[object]] | None = None
) -> InvocationOutcome:
    """Start a call and cancel it: when ``when`` returns, or else once its stream is under way."""

    async def go() -> InvocationOutcome:
        reading = asyncio.Event()
        task = asyncio.ensure_future(call(target, generation, on_read=once_under_way(reading.set)))
        moment = asyncio.ensure_future(reading.wait() if when is None else when())
        await asyncio.wait({task, moment}, return_when=asyncio.FIRST_COMPLETED)
        moment.cancel()
        task.cancel()
        try:
            return await task
        except InvocationCancelled as cancelled:
            return cancelled.outcome

    return asyncio.run(go())


async def until_running(server: LiveServer, wanted: int) -> int:
    """Ask the server's own counter until that many requests run, or the last time is over; what it said last."""
    where = subject(server)
    running = -1
    for _ in range(POLLS):
        found = await observe(where, ObservationKind.PROMETHEUS, Effect.NON_MUTATING, clock=SystemClock())
        running = next(int(item.value or 0) for item in found.measured if item.metric == "requests-running")
        if running == wanted:
            break
        await asyncio.sleep(POLL_S)
    return running


def canary_place(server: LiveServer, route: Route, framing: Framing) -> CanaryPlace:
    """A place for canaries with time for a busy machine."""
    limits = HttpLimits(headers_timeout_ms=30_000, body_timeout_ms=30_000, deadline_ms=30_000)
    return dataclasses.replace(place(server, route, framing), limits=limits)


async def _no_lease() -> None:
    return
