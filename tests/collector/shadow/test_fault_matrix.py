"""The faults by which measuring peers count broken streams as success, each with the verdict that ours must have.

Every row is a whole window on loopback: a server with the fault, a sound one beside it, the runner, the signed envelope. Two rows
are whole processes: a kill and an interrupt in the middle are ``pipeline/steps/test_resume.py``. Whether a stream without its
last ``[DONE]`` is whole is the profile's word (``has_done``): vLLM's stream is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tasc_collector.contract_servers import Behaviour, ContractServer
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.journal import RecordKind
from tasc_collector.runtimes.profile import Route
from tests.support.run_contexts import Setup, run_context
from tests.support.runs import envelopes, records, run

MODEL = "org/model"
SOUND = Behaviour(tokens=6, model=MODEL)
RETRY_AFTER_S = {"overloaded-429": 7, "unavailable-503": 7}
"""What a refusal says of the next try stands in the journal; the window does not try again."""


class Row(NamedTuple):
    """What the envelope of the call must say."""

    fault: str
    status: str
    state: str
    category: str | None
    output_tokens: int | None
    first_token: bool
    """Whether there is a time of the first token; where none came it is null, never zero."""
    reason: str | None


MATRIX = (
    Row("body-cut", "failure", "sent_unknown", "transport", None, True, "transport-cut"),
    Row("reset-mid-body", "failure", "sent_unknown", "transport", None, True, "transport-cut"),
    Row("no-terminal", "failure", "completed", "truncated", None, True, "terminator-missing"),
    Row("usage-absent", "failure", "completed", "truncated", None, True, "usage-missing"),
    Row("no-done", "failure", "completed", "truncated", 6, True, "terminator-missing"),
    Row("error-then-done", "failure", "completed", "provider-error", None, True, "error-frame"),
    Row("error-then-eof", "failure", "completed", "provider-error", None, True, "error-frame"),
    Row("error-first", "failure", "completed", "provider-error", None, False, "error-frame"),
    Row("malformed-event", "failure", "completed", "protocol-violation", None, True, "json-invalid"),
    Row("zero-content", "success", "completed", None, 6, False, "completed"),
    Row("reset-before-status", "failure", "sent_unknown", "transport", None, False, None),
    Row("server-error", "failure", "completed", "provider-error", None, False, None),
    Row("overloaded-429", "failure", "completed", "rate-limit", None, False, None),
    Row("unavailable-503", "failure", "completed", "overloaded", None, False, None),
    Row("stall-body", "aborted", "sent_unknown", "timeout", None, True, "transport-cut"),
    Row("stall-headers", "aborted", "sent_unknown", "timeout", None, False, None),
)


def _collect(folder: Path, faulty: Behaviour, **target: Any) -> tuple[TraceEnvelope, dict[str, Any], int]:
    """Envelope and outcome of the faulty server's call, and how often it was called."""
    with ContractServer("vllm", behaviour=faulty) as first, ContractServer("llama.cpp", behaviour=SOUND) as second:
        plan = {"attempt_timeout_ms": 800, "maximum_attempts": 3}
        setup = Setup(
            {"a": first.origin, "b": second.origin},
            cases=["one"],
            plan=plan,
            targets={"a": target, "b": {"runtime": "llama.cpp"}},
        )
        context = run_context(setup, folder / "run")
        result = run(context)
        assert result.status == "complete"
        by_profile = {envelope.profile_id: envelope for envelope in envelopes(context)}
        assert by_profile["b"].attempts[-1].status == "success", "a broken server harms nobody else"
        outcomes = {record.trace_id: record.body for record in records(context, RecordKind.OUTCOME)}
        return by_profile["a"], outcomes[by_profile["a"].trace_id], first.ledger.inference_calls


@pytest.mark.parametrize("row", MATRIX, ids=[row.fault for row in MATRIX])
def test_a_broken_answer_is_never_a_success_and_never_sent_again(row: Row, tmp_path: Path) -> None:
    envelope, outcome, calls = _collect(
        tmp_path, Behaviour(tokens=6, ttft_ms=1, itl_ms=1, model=MODEL, fault=row.fault, retry_after_s=7)
    )
    (attempt,) = envelope.attempts
    assert (attempt.status, attempt.dispatch_state, attempt.failure_category) == (row.status, row.state, row.category)
    assert outcome["reason"] == row.reason
    assert (None if attempt.token_usage.output is None else attempt.token_usage.output.value) == row.output_tokens
    assert (outcome["timeline"]["marks"]["firstTokenNs"] is not None) is row.first_token
    assert outcome["retryAfterS"] == RETRY_AFTER_S.get(row.fault)
    assert (attempt.observer_timings.first_meaningful_token_at is not None) is row.first_token
    assert (envelope.terminal_output_id is not None) is (row.status == "success")
    assert calls == 1


def test_several_tokens_in_one_event_are_one_arrival_and_are_counted_by_the_server(tmp_path: Path) -> None:
    """Nothing is tokenised again: where the server counts otherwise than the text looks, its count stands, marked as its own."""
    envelope, outcome, _ = _collect(tmp_path, Behaviour(tokens=8, tokens_per_event=4, itl_ms=2, model=MODEL))
    events = outcome["timeline"]["events"]
    assert len(events["offsetNs"]) == 2, "gaps are gaps between events"
    usage = envelope.attempts[-1].token_usage.output
    assert usage is not None
    assert (usage.value, usage.source, usage.tokenizer_digest) == (8, "provider-reported", None), "the server's count"
    assert events["tokens"] == [None, None], "how many came with an event is not guessed from its text"


def test_reasoning_first_gives_the_first_token_of_any_kind_and_the_first_visible_one(tmp_path: Path) -> None:
    behaviour = Behaviour(tokens=4, ttft_ms=1, itl_ms=5, model=MODEL, fault="reasoning-first")
    _, outcome, _ = _collect(tmp_path, behaviour, route=Route.CHAT_COMPLETIONS)
    marks, events = outcome["timeline"]["marks"], outcome["timeline"]["events"]
    visible = events["kind"].index("answer")
    assert events["kind"][0] == "reasoning"
    assert (marks["firstTokenNs"], marks["firstVisibleTokenNs"]) == (events["offsetNs"][0], events["offsetNs"][visible])
    read_together_ns = events["uncertaintyNs"][0] or 0
    assert marks["firstVisibleTokenNs"] - marks["firstTokenNs"] + read_together_ns >= 5_000_000


def test_an_event_that_is_named_error_is_the_providers_error(tmp_path: Path) -> None:
    behaviour = Behaviour(tokens=4, ttft_ms=1, itl_ms=1, model=MODEL, fault="error-then-end")
    with (
        ContractServer("lm-studio", behaviour=behaviour) as first,
        ContractServer("llama.cpp", behaviour=SOUND) as second,
    ):
        targets = {"a": {"runtime": "lm-studio", "route": Route.NATIVE_CHAT}, "b": {"runtime": "llama.cpp"}}
        setup = Setup({"a": first.origin, "b": second.origin}, cases=["one"], targets=targets)
        context = run_context(setup, tmp_path / "run")
        assert run(context).states == {"failure": 1, "success": 1}
        calls = first.ledger.inference_calls
    (broken,) = (envelope.attempts for envelope in envelopes(context) if envelope.profile_id == "a")
    assert [(attempt.dispatch_state, attempt.failure_category) for attempt in broken] == [
        ("completed", "provider-error")
    ]
    assert calls == 1
