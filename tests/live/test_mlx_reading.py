"""What our code reads of a real MLX-LM 0.31.3: HTTP/1.0, and streams that end when the connection does."""

from __future__ import annotations

import os
import signal
from itertools import pairwise

import pytest

from tasc_collector.errors import Category, DispatchState
from tasc_collector.probes.judgement import ProbeReason
from tasc_collector.runtimes.profile import Framing, ObservationKind, Route
from tasc_collector.runtimes.result import BuildMatch, OutputKind
from tasc_collector.runtimes.verdict import AnswerReason, FinishReason, Outcome
from tests.support.live_calls import NO_END, asked, live_target, once_under_way, run, run_and_leave
from tests.support.live_engines import needs_mlx, start_mlx
from tests.support.probing import run_observation, subject

pytestmark = [pytest.mark.live, needs_mlx]

ROUTES = (Route.CHAT_COMPLETIONS, Route.COMPLETIONS)
FRAMINGS = (Framing.JSON, Framing.SSE)


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("route", ROUTES)
def test_an_answer_of_eight_tokens_is_read_whole(mlx, route, framing):
    target = live_target(mlx, route, framing)
    outcome = run(target, asked(target))
    answer = outcome.answer
    assert (outcome.state, outcome.category, outcome.persistence.status) == (DispatchState.COMPLETED, None, "completed")
    assert (answer.outcome, answer.finish_reason) == (Outcome.COMPLETED, FinishReason.LENGTH)
    assert answer.usage.output == 8
    assert answer.usage.total == answer.usage.input + 8
    assert answer.usage.cached is not None
    assert answer.resolved_model == "default_model"
    assert answer.build_match is BuildMatch.MATCHES  # the fingerprint begins with 0.31.3
    assert answer.text_bytes == len(answer.text.encode()) > 0
    assert answer.provider_timings == ()
    assert answer.comments == (1 if framing is Framing.SSE else 0)  # keepalive of the prompt's processing
    if framing is Framing.SSE:
        assert 1 <= len(answer.events) <= 8
        assert {event.kind for event in answer.events} == {OutputKind.ANSWER}
        assert all(first.at_ns <= second.at_ns for first, second in pairwise(answer.events))


def test_a_stream_that_is_left_leaves_the_server_well(mlx):
    target = live_target(mlx, Route.COMPLETIONS, Framing.SSE)
    left = run_and_leave(target, asked(target, max_tokens=NO_END))
    assert (left.state, left.category) == (DispatchState.SENT_UNKNOWN, Category.CANCELLED)
    assert left.answer.outcome is Outcome.TRUNCATED
    assert run(target, asked(target)).completed
    assert run_observation(subject(mlx), ObservationKind.LIVENESS).state == "supported"


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_generation_that_cannot_start_is_a_refusal(mlx, framing):
    """A model that is not here is a 404 at this build; offline, nothing is downloaded."""
    target = live_target(mlx, Route.COMPLETIONS, framing, model="no/such-model")
    outcome = run(target, asked(target))
    assert (outcome.state, outcome.exchange.status, outcome.answer) == (DispatchState.COMPLETED, 404, None)
    assert outcome.persistence.status == "failed"
    target = live_target(mlx, Route.COMPLETIONS, framing)
    assert run(target, asked(target)).completed


def test_a_server_killed_within_a_stream_is_a_truncation_though_the_connection_ends_as_it_should(home, mlx_model):
    server = start_mlx(mlx_model, home)
    try:
        target = live_target(server, Route.COMPLETIONS, Framing.SSE)
        outcome = run(
            target,
            asked(target, max_tokens=NO_END),
            on_read=once_under_way(lambda: os.killpg(server.group, signal.SIGKILL)),
        )
    finally:
        server.stop()
    assert not outcome.completed
    assert outcome.answer.outcome is Outcome.TRUNCATED
    assert outcome.answer.reason in (AnswerReason.TERMINATOR_MISSING, AnswerReason.FINISH_REASON_MISSING)
    assert outcome.persistence.status == "incomplete"
    assert outcome.persistence.partial_output
    assert outcome.answer_identity is None


def test_liveness_is_all_that_a_passive_probe_proves(mlx):
    found = run_observation(subject(mlx), ObservationKind.LIVENESS)
    assert (found.state, found.reason) == ("supported", ProbeReason.OBSERVED)
    assert not (found.build_seen or found.model_seen)


def test_the_model_list_keeps_no_path(mlx, mlx_model):
    found = run_observation(subject(mlx), ObservationKind.MODELS)
    assert str(mlx_model) not in str(found)
