"""Prepare and dispatch against a server of raw bytes: what is persisted, what is timed, what is never shown."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import hmac
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tasc_collector.contracts.timeline import TraceTimeline
from tasc_collector.errors import Category, DispatchState, InputError, JournalFailed, NotAuthorized
from tasc_collector.invocation.admission import CanaryAdmission, CapabilityAdmission
from tasc_collector.invocation.dispatch import InvocationCancelled, InvocationOutcome, dispatch
from tasc_collector.invocation.prepare import Authentication, CallTarget, PreparedInvocation, prepare
from tasc_collector.invocation.timeline import TRACE_FIELDS
from tasc_collector.runtimes.profile import Framing, Route
from tasc_collector.runtimes.request import Generation, Message, Role
from tasc_collector.secrets import SecretStore
from tasc_collector.transport.clock import SystemClock
from tasc_collector.transport.codes import Code
from tests.support.raw_server import Peer, RawServer
from tests.support.targets import KEY, generation_for, target_for

FRAME = 'data: {"id":"c","object":"text_completion","created":1,"model":"org/model","choices":[%s],"usage":%s}\n\n'
TEXT = '{"index":0,"text":"%s","logprobs":null,"finish_reason":%s}'


def frame(choice: str = "", usage: str = "null") -> bytes:
    return (FRAME % (choice, usage)).encode()


STREAM = (
    frame(TEXT % ("Hello", "null")),
    frame(TEXT % (" world", "null")),
    frame(TEXT % ("", '"stop"')),
    frame(usage='{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}'),
    b"data: [DONE]\n\n",
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def streaming(*frames: bytes, end: bytes = b"0\r\n\r\n") -> RawServer:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(HEAD)
        for item in frames:
            peer.send(chunk(item))
            peer.server.stopping.wait(0.002)
        peer.send(end)
        peer.fin()

    return RawServer(script)


async def no_lease() -> None:
    return


def prepared_for(target: CallTarget, generation: Generation | None = None, **arguments: Any) -> PreparedInvocation:
    defaults: dict[str, Any] = {"payload_key": KEY, "secrets": SecretStore({}), "clock": SystemClock()}
    return prepare(target, generation or generation_for(target), **{**defaults, **arguments})


def run(target: CallTarget, generation: Generation | None = None, **arguments: Any) -> InvocationOutcome:
    async def go() -> InvocationOutcome:
        return await dispatch(prepared_for(target, generation, **arguments), lease=no_lease)

    return asyncio.run(go())


def identity(content: bytes) -> str:
    message = b"tasc/payload-identity/v1\0study-1\0payload-1\0" + content
    return hmac.new(bytes(range(32)), message, hashlib.sha256).hexdigest()


def test_a_finished_stream_is_completed_with_identities_usage_and_timeline() -> None:
    with streaming(*STREAM) as server:
        outcome = run(target_for(server.origin))
    kept = outcome.persistence
    assert (kept.status, kept.dispatch_state, kept.finish_reason, kept.final_usage) == (
        "completed",
        DispatchState.COMPLETED,
        "stop",
        "present",
    )
    assert kept.provider_usage is not None
    assert (kept.provider_usage.input_tokens, kept.provider_usage.output_tokens, kept.provider_usage.total_tokens) == (
        3,
        2,
        5,
    )
    assert kept.resolved_model is not None
    assert (kept.resolved_model.id, kept.resolved_model.revision) == ("org/model", None)
    assert kept.request_identity.value == identity(server.requests[0].partition(b"\r\n\r\n")[2])
    assert kept.response_identity is not None
    assert kept.response_identity.value == identity(b"".join(STREAM))
    assert kept.event_stream_identity == kept.response_identity
    assert kept.terminal_output_identity is not None
    assert kept.terminal_output_identity.value == identity(b"Hello world")
    assert (kept.error, outcome.category, outcome.completed) == (None, None, True)
    line = outcome.timeline
    assert len(line.events) == 2
    assert line.ttft_ns is not None
    assert line.request_started_ns is not None
    assert 0 < line.ttft_ns == line.events[0].at_ns - line.request_started_ns
    assert line.e2e_ns is not None
    assert line.ttft_ns < line.e2e_ns
    first, second = line.events
    assert second.at_ns - first.at_ns + (first.uncertainty_ns or 0) > 1_000_000, "read together: the first came earlier"
    own = dict(zip(TRACE_FIELDS, ("tasc-trace-timeline-v1", "trace-1", "sha256:" + "a" * 64, "attempt-1"), strict=True))
    record = TraceTimeline.from_value({**own, **line.draft()}).record
    assert record.events.offset_ns == tuple(event.at_ns for event in line.events)
    assert record.events.uncertainty_ns == tuple(event.uncertainty_ns for event in line.events)
    assert record.marks.first_token_ns == line.events[0].at_ns
    assert record.events.kind == ("answer", "answer")
    assert record.peer is not None
    assert record.peer.startswith("peer-")


@pytest.mark.parametrize(
    ("frames", "end", "status", "state", "category"),
    [
        (STREAM[:2], b"0\r\n\r\n", "incomplete", DispatchState.COMPLETED, Category.INVALID_RESPONSE),
        (STREAM[:2], b"", "failed", DispatchState.SENT_UNKNOWN, Category.TRANSPORT),
        (
            (STREAM[0], b'data: {"error":{"message":"boom"}}\n\n', *STREAM[1:]),
            b"0\r\n\r\n",
            "failed",
            DispatchState.COMPLETED,
            Category.INVALID_RESPONSE,
        ),
        (
            (STREAM[0], b"data: {not json\n\n"),
            b"0\r\n\r\n",
            "failed",
            DispatchState.COMPLETED,
            Category.INVALID_RESPONSE,
        ),
    ],
    ids=["no terminator", "cut", "error frame", "malformed"],
)
def test_a_stream_without_all_evidence_is_never_completed(
    frames: tuple[bytes, ...], end: bytes, status: str, state: DispatchState, category: Category
) -> None:
    with streaming(*frames, end=end) as server:
        outcome = run(target_for(server.origin))
    kept = outcome.persistence
    assert (kept.status, kept.dispatch_state, outcome.category) == (status, state, category)
    assert kept.terminal_output_identity is None
    assert kept.partial_output
    assert kept.error is not None
    assert kept.error.category is category


def test_a_refused_connection_is_not_sent_and_has_no_timing() -> None:
    with streaming() as server:
        origin = server.origin
    outcome = run(target_for(origin))
    kept = outcome.persistence
    assert (kept.status, kept.dispatch_state, kept.wire_timing, kept.response_identity) == (
        "failed",
        DispatchState.NOT_SENT,
        None,
        None,
    )
    assert (outcome.exchange.code, outcome.category) == (Code.CONNECT_REFUSED, Category.TRANSPORT)
    assert outcome.timeline.ttft_ns is None
    assert outcome.timeline.request_started_ns is None


def test_a_deadline_is_a_timeout_with_its_lifecycle() -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.hold()

    with RawServer(script) as server:
        outcome = run(target_for(server.origin), deadline_ms=60)
    assert (outcome.persistence.abort_lifecycle, outcome.category) == ("deadline-exceeded", Category.TIMEOUT)
    assert outcome.state is DispatchState.SENT_UNKNOWN


def test_a_cancelled_call_carries_its_outcome() -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.hold()

    async def go() -> InvocationOutcome:
        caught: list[InvocationOutcome] = []

        async def inner() -> None:
            try:
                await dispatch(prepared_for(target_for(server.origin)), lease=no_lease)
            except InvocationCancelled as error:
                caught.append(error.outcome)
                raise

        task = asyncio.create_task(inner())
        await server.asked()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return caught[0]

    with RawServer(script) as server:
        outcome = asyncio.run(go())
    assert outcome.persistence.abort_lifecycle == "caller-cancelled-after-dispatch-ambiguous"
    assert (outcome.state, outcome.category) == (DispatchState.SENT_UNKNOWN, Category.CANCELLED)


def test_a_failing_lease_passes_through_and_the_server_saw_nothing() -> None:
    async def lease() -> None:
        raise JournalFailed("the journal cannot be written")

    with streaming(*STREAM) as server:
        prepared = prepared_for(target_for(server.origin))
        with pytest.raises(JournalFailed):
            asyncio.run(dispatch(prepared, lease=lease))
        with pytest.raises(NotAuthorized):
            asyncio.run(dispatch(prepared, lease=no_lease))
    assert server.requests == []


def test_a_handle_is_spent_once() -> None:
    async def go() -> None:
        prepared = prepared_for(target_for(server.origin))
        await dispatch(prepared, lease=no_lease)
        with pytest.raises(NotAuthorized):
            await dispatch(prepared, lease=no_lease)

    with streaming(*STREAM) as server:
        asyncio.run(go())
    assert len(server.requests) == 1


def through_pickle(prepared: PreparedInvocation) -> PreparedInvocation:
    copied: PreparedInvocation = pickle.loads(pickle.dumps(prepared))  # noqa: S301 - our own bytes
    return copied


def rebuilt(prepared: PreparedInvocation) -> PreparedInvocation:
    return PreparedInvocation(
        **{name: getattr(prepared, name) for name in PreparedInvocation.__slots__ if not name.startswith("__")}
    )


@pytest.mark.parametrize("forge", [copy.copy, copy.deepcopy, through_pickle, rebuilt])
def test_a_copy_of_a_handle_has_no_authority(forge: Callable[[PreparedInvocation], PreparedInvocation]) -> None:
    prepared = prepared_for(target_for("http://127.0.0.1:9"))
    with pytest.raises((TypeError, NotAuthorized)):
        asyncio.run(dispatch(forge(prepared), lease=no_lease))


def test_a_handle_expires() -> None:
    class Later:
        def __init__(self) -> None:
            self.now = 0

        def now_ns(self) -> int:
            return self.now

        def wall_ns(self) -> int:
            return 0

    clock = Later()
    prepared = prepared_for(target_for("http://127.0.0.1:9"), clock=clock, expires_in_ms=10)
    clock.now = 10_000_000
    with pytest.raises(NotAuthorized, match="expired"):
        asyncio.run(dispatch(prepared, lease=no_lease))


def test_preparing_shows_no_payload_and_opens_nothing() -> None:
    with streaming(*STREAM) as server:
        target = target_for(server.origin)
        prepared = prepared_for(target, generation_for(target, prompt="CANARY prompt"))
    assert server.connections == 0
    assert "CANARY" not in repr(prepared)
    assert server.origin not in repr(prepared) + repr(target)
    assert prepared.request_bytes > 50


def test_a_secret_is_read_at_dispatch_and_its_absence_is_not_sent() -> None:
    routes = [{"method": "POST", "pathPrefix": "/", "authenticationReferences": ["main-key"]}]
    changes = {"endpoint": {"routes": routes}, "secretReferences": ["main-key"]}
    environ: dict[str, str] = {}
    with streaming(*STREAM) as server:
        target = target_for(
            server.origin,
            policy_changes=changes,
            authentication=Authentication("main-key", "authorization", "env:TASC_RUNTIME_AUTH_MAIN"),
        )
        missing = run(target, secrets=SecretStore(environ))
        assert (missing.state, missing.category, server.connections) == (
            DispatchState.NOT_SENT,
            Category.AUTHENTICATION,
            0,
        )
        environ["TASC_RUNTIME_AUTH_MAIN"] = "Bearer CANARY"
        outcome = run(target, secrets=SecretStore(environ))
    assert outcome.completed
    assert b"\r\nauthorization: Bearer CANARY\r\n" in server.requests[0]
    assert "CANARY" not in repr(outcome) + repr(target)
    assert "TASC_RUNTIME" not in repr(target)


def chat_target(origin: str, **changes: Any) -> CallTarget:
    return target_for(origin, route=Route.CHAT_COMPLETIONS, **changes)


def chat(target: CallTarget) -> Generation:
    return Generation(
        model_id=target.instance.model.id, max_tokens=8, stream=True, messages=(Message(Role.USER, "Hi"),)
    )


def test_a_conditional_route_needs_exactly_its_own_receipt() -> None:
    origin = "http://127.0.0.1:9"
    bare = chat_target(origin)
    with pytest.raises(NotAuthorized, match="tasc probe main"):
        prepared_for(bare, chat(bare))
    fits = CapabilityAdmission(bare.instance, Route.CHAT_COMPLETIONS, Framing.SSE, 2**53, ("sha256:" + "a" * 64,))
    admitted = chat_target(origin, admission=fits)
    assert prepared_for(admitted, chat(admitted)).route is Route.CHAT_COMPLETIONS
    other = CapabilityAdmission(bare.instance, Route.CHAT_COMPLETIONS, Framing.JSON, 2**53, ())
    with pytest.raises(NotAuthorized, match="another"):
        prepared_for(chat_target(origin, admission=other), chat(bare))
    canary = chat_target(
        origin, admission=CanaryAdmission(bare.instance, Route.CHAT_COMPLETIONS, Framing.SSE, "probe-1")
    )
    assert prepared_for(canary, chat(canary)).route is Route.CHAT_COMPLETIONS
    with pytest.raises(NotAuthorized, match="takes none"):
        prepared_for(target_for(origin, admission=fits))


def test_a_receipt_that_ends_before_the_call_would_is_refused_at_dispatch() -> None:
    bare = chat_target("http://127.0.0.1:9")
    soon = CapabilityAdmission(
        bare.instance, Route.CHAT_COMPLETIONS, Framing.SSE, SystemClock().wall_ns() // 1_000_000 + 5_000, ()
    )
    target = chat_target("http://127.0.0.1:9", admission=soon)
    with pytest.raises(NotAuthorized, match="receipt ends"):
        asyncio.run(dispatch(prepared_for(target, chat(target)), lease=no_lease))


@pytest.mark.parametrize(
    ("arguments", "field"), [({"deadline_ms": 0}, "deadlineMs"), ({"deadline_ms": 30_001}, "deadlineMs")]
)
def test_a_deadline_out_of_bounds_is_refused(arguments: dict[str, int], field: str) -> None:
    with pytest.raises(InputError) as refusal:
        prepared_for(target_for("http://127.0.0.1:9"), **arguments)
    assert refusal.value.field == field


def test_a_changed_endpoint_is_not_the_one_that_was_bound() -> None:
    bound = target_for("http://127.0.0.1:9")
    moved = target_for("http://127.0.0.1:10", instance=bound.instance)
    with pytest.raises(NotAuthorized) as refusal:
        prepared_for(moved)
    assert refusal.value.field == "endpointBindingDigest"


def test_a_local_only_runtime_is_reached_by_loopback_only() -> None:
    target = target_for(
        "https://api.example.com", runtime="ollama", route=Route.NATIVE_GENERATE, framing=Framing.NDJSON
    )
    with pytest.raises(NotAuthorized):
        prepared_for(target)
