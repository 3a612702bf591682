"""What our code reads of a real llama.cpp b10156, whole, refused, left and killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tasc_collector.errors import Category, DispatchState
from tasc_collector.probes.discovery import Value, discover
from tasc_collector.probes.judgement import ProbeReason
from tasc_collector.runtimes.profile import Capability, Framing, ObservationKind, Route
from tasc_collector.runtimes.result import BuildMatch, OutputKind, TimingUnit
from tasc_collector.runtimes.verdict import AnswerReason, FinishReason, Outcome
from tasc_collector.transport.clock import SystemClock
from tasc_collector.transport.codes import Code
from tasc_compute import health
from tests.support.live_calls import (
    NO_END,
    asked,
    canary_place,
    live_target,
    once_under_way,
    run,
    run_and_leave,
    until_running,
)
from tests.support.live_engines import LiveServer, living, needs_llama, start_llama
from tests.support.probing import run_canary, run_observation, subject

pytestmark = [pytest.mark.live, needs_llama]

ROUTES = (Route.CHAT_COMPLETIONS, Route.COMPLETIONS, Route.RESPONSES)
FRAMINGS = (Framing.JSON, Framing.SSE)
CUT = {
    Route.CHAT_COMPLETIONS: FinishReason.LENGTH,
    Route.COMPLETIONS: FinishReason.LENGTH,
    Route.RESPONSES: FinishReason.UNAVAILABLE,  # this build says "completed" even when the limit cut the answer
}


@pytest.fixture
def doomed(home) -> Iterator[LiveServer]:
    """A server of the test's own, to be killed."""
    server = start_llama(home)
    yield server
    server.stop()


def counters(server: LiveServer) -> dict[str, float | None]:
    """The server's own metrics by canonical name."""
    found = run_observation(subject(server), ObservationKind.PROMETHEUS)
    return {item.metric: item.value for item in found.measured}


def generated(server: LiveServer, *, since: dict[str, float | None]) -> float:
    """Output tokens that it counted since then."""
    now, then = counters(server)["generation-tokens-total"], since["generation-tokens-total"]
    assert now is not None and then is not None
    return now - then


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("route", ROUTES)
def test_an_answer_of_eight_tokens_is_read_whole(llama, route, framing):
    target = live_target(llama, route, framing)
    outcome = run(target, asked(target))
    answer = outcome.answer
    assert (outcome.state, outcome.category, outcome.persistence.status) == (DispatchState.COMPLETED, None, "completed")
    assert answer is not None
    assert (answer.outcome, answer.finish_reason) == (Outcome.COMPLETED, CUT[route])
    assert answer.length_suspected is (route is Route.RESPONSES)
    assert answer.usage is not None
    assert answer.usage.output == 8
    assert answer.usage.total == answer.usage.input + 8
    assert not answer.usage.conflict
    assert answer.resolved_model == "smollm2-135m"
    assert answer.build_match is BuildMatch.UNAVAILABLE  # the packaged binary calls itself b0-unknown
    assert answer.text_bytes == len(answer.text.encode()) > 0
    timings = {timing.name: timing.unit for timing in answer.provider_timings}
    assert timings == dict.fromkeys(
        () if (route, framing) == (Route.RESPONSES, Framing.JSON) else ("prompt_ms", "predicted_ms"),
        TimingUnit.MILLISECONDS,
    )


@pytest.mark.parametrize("route", ROUTES)
def test_a_stream_has_one_event_for_each_token_in_the_order_of_time(llama, route):
    target = live_target(llama, route, Framing.SSE)
    outcome = run(target, asked(target))
    marks, events = outcome.exchange.marks, outcome.answer.events
    assert len(events) == 8
    assert {event.kind for event in events} == {OutputKind.ANSWER}
    assert all(first.at_ns <= second.at_ns for first, second in pairwise(events))
    assert marks.request_started - marks.queued < events[0].at_ns < events[-1].at_ns <= marks.last_byte - marks.queued
    streamed = outcome.persistence.stream_timing
    assert streamed is not None


def test_a_whole_answer_has_no_token_timeline(llama):
    target = live_target(llama, Route.COMPLETIONS, Framing.JSON)
    outcome = run(target, asked(target))
    assert outcome.answer.events == ()
    assert outcome.persistence.stream_timing is None


@pytest.mark.parametrize("framing", FRAMINGS)
def test_an_answer_that_ends_by_itself_says_stop(llama, framing):
    target = live_target(llama, Route.CHAT_COMPLETIONS, framing)
    outcome = run(target, asked(target, "Say hi.", max_tokens=64))
    assert outcome.answer.finish_reason is FinishReason.STOP
    assert 0 < outcome.answer.usage.output < 64


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("route", ROUTES)
def test_a_prompt_longer_than_the_context_is_a_refusal_without_words(llama, route, framing):
    target = live_target(llama, route, framing)
    outcome = run(target, asked(target, "secretword " * 2000))
    assert (outcome.state, outcome.exchange.status) == (DispatchState.COMPLETED, 400)
    assert outcome.answer is None
    assert (outcome.persistence.status, outcome.exchange.code) == ("failed", Code.PROVIDER_ERROR)
    kept = outcome.persistence.canonical().decode()
    assert "exceed" not in kept and "secretword" not in kept


@pytest.mark.parametrize("route", ROUTES)
def test_a_stream_that_is_left_frees_the_only_slot(llama, route):
    target = live_target(llama, route, Framing.SSE)
    left = run_and_leave(target, asked(target, max_tokens=NO_END))
    assert (left.state, left.category) == (DispatchState.SENT_UNKNOWN, Category.CANCELLED)
    assert left.persistence.abort_lifecycle == "caller-cancelled-after-dispatch-ambiguous"
    assert (left.answer.outcome, left.answer.reason) == (Outcome.TRUNCATED, AnswerReason.TRANSPORT_CUT)
    assert 0 < len(left.answer.events) < NO_END
    # the one slot is free again: the next call gets it, and then nothing runs
    assert run(target, asked(target)).completed
    assert health.ask(llama.record.port, "/health", 3_000).status == 200
    assert asyncio.run(until_running(llama, 0)) == 0


def test_a_whole_answer_that_is_left_is_generated_to_its_end(llama):
    """This build watches the connection of a stream only: whoever leaves a whole answer still loads the server."""
    target = live_target(llama, Route.COMPLETIONS, Framing.JSON)
    before = counters(llama)
    left = run_and_leave(target, asked(target, max_tokens=96), when=lambda: until_running(llama, 1))
    assert (left.state, left.category, left.answer) == (DispatchState.SENT_UNKNOWN, Category.CANCELLED, None)
    assert asyncio.run(until_running(llama, 0)) == 0
    assert generated(llama, since=before) == 96


def test_the_cancellation_canary_is_supported(llama):
    found = run_canary(canary_place(llama, Route.COMPLETIONS, Framing.SSE), Capability.CANCELLATION).finding
    assert (found.state, found.reason) == ("supported", ProbeReason.OBSERVED)
    assert found.not_proved == ()


@pytest.mark.parametrize("route", ROUTES)
def test_a_server_killed_within_a_stream_is_a_truncation_and_never_a_success(doomed, route):
    target = live_target(doomed, route, Framing.SSE)
    outcome = run(
        target,
        asked(target, max_tokens=NO_END),
        on_read=once_under_way(lambda: os.killpg(doomed.group, signal.SIGKILL)),
    )
    assert not outcome.completed
    assert outcome.state is DispatchState.SENT_UNKNOWN
    assert (outcome.answer.outcome, outcome.answer.reason) == (Outcome.TRUNCATED, AnswerReason.TRANSPORT_CUT)
    assert outcome.persistence.status == "failed"
    assert outcome.persistence.partial_output
    assert outcome.answer_identity is None


def test_a_server_killed_before_a_whole_answer_is_sent_unknown(doomed):
    target = live_target(doomed, Route.COMPLETIONS, Framing.JSON)

    async def kill() -> None:
        await until_running(doomed, 1)
        os.killpg(doomed.group, signal.SIGKILL)

    outcome = run(target, asked(target, max_tokens=NO_END), beside=kill)
    assert (outcome.state, outcome.answer) == (DispatchState.SENT_UNKNOWN, None)
    assert outcome.exchange.code in (Code.CONNECTION_CLOSED, Code.CONNECTION_RESET)
    assert living(doomed.group) == []


def test_a_call_to_a_server_that_is_gone_was_not_sent(doomed):
    target = live_target(doomed, Route.COMPLETIONS, Framing.SSE)
    doomed.stop()
    outcome = run(target, asked(target))
    assert (outcome.state, outcome.exchange.code) == (DispatchState.NOT_SENT, Code.CONNECT_REFUSED)


OBSERVED = {
    ObservationKind.MODELS: {"data.0.id": "smollm2-135m", "data.0.meta.ftype": "Q4_1"},
    ObservationKind.MODEL_INFO: {"total_slots": 1, "default_generation_settings.n_ctx": 1024},
    ObservationKind.VERSION: {"build_info": "b0-unknown"},
    ObservationKind.LIVENESS: {},
    ObservationKind.PROMETHEUS: {},
}


@pytest.mark.parametrize("kind", OBSERVED)
def test_passive_probes_read_what_is_there_and_no_more(llama, kind):
    found = run_observation(subject(llama), kind)
    assert (found.state, found.reason) == ("supported", ProbeReason.OBSERVED)
    assert {name: found.facts[name] for name in OBSERVED[kind]} == OBSERVED[kind]
    assert "/" not in "".join(str(value) for value in found.facts.values())
    assert not found.build_seen  # b0-unknown proves no build
    assert found.model_seen is (kind is ObservationKind.MODELS)


def test_the_metrics_probe_counts_the_calls_tokens(llama):
    target = live_target(llama, Route.COMPLETIONS, Framing.JSON)
    before = counters(llama)
    assert run(target, asked(target)).completed
    assert asyncio.run(until_running(llama, 0)) == 0
    assert generated(llama, since=before) == 8
    after = counters(llama)
    assert after["kv-cache-usage"] is None  # this build has no such gauge; that is not zero
    assert after["requests-waiting"] == 0


def test_discovery_recognises_it_and_leaves_the_build_unknown(llama):
    found = asyncio.run(discover(llama.origin, clock=SystemClock()))
    assert found.runtime == Value("llama.cpp", "observed")
    assert found.build == Value("b10156", "unknown")
    assert found.model_id == Value("smollm2-135m", "observed")
