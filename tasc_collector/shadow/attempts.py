"""From the outcome of one call to the attempt block of an envelope and the draft of its timeline. Pure.

Wall-clock instants are the wall time of the first application byte plus monotonic offsets, so that a stepping wall clock
never bends a duration. Where no byte left, the attempt's begin stands for the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasc_collector.contracts.collection import PlanTarget
from tasc_collector.contracts.operations import CostModel
from tasc_collector.contracts.persistence import AbortLifecycle, RuntimeInvocationPersistence
from tasc_collector.contracts.scalars import timestamp_ms, timestamp_of_ms
from tasc_collector.errors import Category, DispatchState
from tasc_collector.invocation.dispatch import InvocationOutcome
from tasc_collector.runtimes.result import ProviderTiming, TimingUnit
from tasc_collector.runtimes.verdict import Outcome
from tasc_collector.shadow.costs import UNAVAILABLE, modeled_cost
from tasc_collector.transport.codes import Code

MS = 1_000_000
OVERLOADED = 503
_TO_MS: Mapping[TimingUnit, float] = {
    TimingUnit.NANOSECONDS: 1e-6,
    TimingUnit.MILLISECONDS: 1.0,
    TimingUnit.SECONDS: 1e3,
}
_ABORTS: Mapping[AbortLifecycle, str] = {
    "not-aborted": "not-aborted",
    "caller-cancelled-before-dispatch": "abort-confirmed",
    "caller-cancelled-after-dispatch-ambiguous": "abort-ambiguous",
}
_OUTCOMES: Mapping[Outcome, str] = {
    Outcome.TRUNCATED: "truncated",
    Outcome.PROVIDER_ERROR: "provider-error",
    Outcome.PROTOCOL_VIOLATION: "protocol-violation",
}


def attempt_of(
    outcome: InvocationOutcome,
    target: PlanTarget,
    *,
    attempt_id: str,
    number: int,
    begun_at: str,
    ended_at: str,
    not_before: str,
    cost_model: CostModel | None,
) -> dict[str, Any]:  # Any: a JSON object
    """The attempt block of a call.

    Args:
        outcome: what the call came to.
        target: where it went.
        attempt_id: its id.
        number: its number, from 1.
        begun_at: wall clock of its begin, for a call that never began to write.
        ended_at: wall clock of its end, for the same.
        not_before: end of the attempt before, or the intent. A wall clock that was set back in between moves the whole
            attempt, so that the order that is known is the order that is written, and no duration changes.
        cost_model: prices, if the study has them.
    """
    persisted, timeline = outcome.persistence, outcome.timeline
    aborted = _abort(persisted)
    status = "success" if persisted.status == "completed" else "failure" if aborted == "not-aborted" else "aborted"
    usage = persisted.provider_usage
    counts = (None, None, None) if usage is None else (usage.input_tokens, usage.output_tokens, usage.total_tokens)
    answered = outcome.state is DispatchState.COMPLETED
    return {
        "attemptId": attempt_id,
        "attemptNumber": number,
        "dispatchState": outcome.state.value,
        "observerTimings": _timings(outcome, max(begun_at, not_before), ended_at, timestamp_ms(not_before)),
        "status": status,
        "finishReason": persisted.finish_reason,
        "partialOutput": persisted.partial_output,
        "abortLifecycle": aborted,
        "failureCategory": None if status == "success" else failure_category(outcome),
        "requestedModel": {"id": target.model.id, "revision": target.model.revision},
        "resolvedModel": None if persisted.resolved_model is None else _resolved(persisted),
        "tokenUsage": {
            name: None
            if count is None
            else {"value": count, "source": "provider-reported", "semantics": f"provider-{name}-tokens"}
            for name, count in zip(("input", "output", "total"), counts, strict=True)
        },
        "providerReported": {"timings": [_timing(timing) for timing in _known(outcome)], "metrics": []},
        "cost": modeled_cost(
            cost_model,
            target.profile_id,
            input_tokens=counts[0],
            output_tokens=counts[1],
            cached_tokens=timeline.cached_input_tokens,
            service_ns=timeline.e2e_ns,
            lane_width=target.lane_width,
        )
        if answered
        else dict(UNAVAILABLE),
        "payloads": {
            "request": persisted.request_identity.to_json(),
            "response": None if persisted.response_identity is None else persisted.response_identity.to_json(),
            "eventStream": None
            if persisted.event_stream_identity is None
            else persisted.event_stream_identity.to_json(),
        },
    }


def unknown_attempt(
    lease: Mapping[str, Any], target: PlanTarget, *, settled_at: str, category: Category = Category.UNKNOWN
) -> dict[str, Any]:  # Any: JSON objects
    """The attempt of a lease without an outcome: it may have been sent, and nobody knows what came of it.

    It ends when its own deadline had passed at the latest, or when it was settled, whichever came first.

    Args:
        lease: body of the lease.
        target: where it went.
        settled_at: wall clock.
        category: why nothing is known of it.
    """
    completed = min(
        max(timestamp_ms(lease["issuedAt"]), timestamp_ms(lease["expiresAt"])),
        max(timestamp_ms(settled_at), timestamp_ms(lease["issuedAt"])),
    )
    return {
        "attemptId": lease["attemptId"],
        "attemptNumber": lease["attemptNumber"],
        "dispatchState": DispatchState.SENT_UNKNOWN.value,
        "observerTimings": {
            "startedAt": lease["issuedAt"],
            "headersAt": None,
            "firstByteAt": None,
            "firstMeaningfulTokenAt": None,
            "completedAt": timestamp_of_ms(completed),
        },
        "status": "failure",
        "finishReason": None,
        "partialOutput": False,
        "abortLifecycle": "not-aborted",
        "failureCategory": category.value,
        "requestedModel": {"id": target.model.id, "revision": target.model.revision},
        "resolvedModel": None,
        "tokenUsage": {"input": None, "output": None, "total": None},
        "providerReported": {"timings": [], "metrics": []},
        "cost": dict(UNAVAILABLE),
        "payloads": {"request": lease["requestIdentity"], "response": None, "eventStream": None},
    }


def outcome_body(
    trace: str, attempt: dict[str, Any], outcome: InvocationOutcome | None = None
) -> dict[str, Any]:  # Any: JSON objects
    """Body of an outcome record.

    Args:
        trace: trace id.
        attempt: the attempt block.
        outcome: what the call came to; None where nothing is known but the attempt.
    """
    answer = None if outcome is None else outcome.answer
    output = None if outcome is None else outcome.answer_identity
    return {
        "traceId": trace,
        "attempt": attempt,
        "code": None if outcome is None or outcome.exchange.code is None else outcome.exchange.code.value,
        "reason": None if answer is None else answer.reason.value,
        "terminalOutputId": None if output is None else output.to_json(),
        "timeline": None if outcome is None else outcome.timeline.draft(),
        "retryAfterS": None if outcome is None else outcome.exchange.retry_after_s,
    }


def failure_category(outcome: InvocationOutcome) -> str:
    """Why a call is no success, as a slug: the transport's category, overload and a server's own error apart, else what was
    wrong with the answer.
    """
    if outcome.exchange.status == OVERLOADED:
        return "overloaded"
    if outcome.exchange.code is Code.PROVIDER_ERROR and outcome.exchange.category is Category.INVALID_RESPONSE:
        return "provider-error"
    answer = outcome.answer
    if outcome.exchange.category is None and answer is not None:
        return _OUTCOMES.get(answer.outcome, "incomplete-response")
    return str(outcome.category or Category.INVALID_RESPONSE)


def _abort(persisted: RuntimeInvocationPersistence) -> str:
    if persisted.abort_lifecycle == "deadline-exceeded":
        return "abort-confirmed" if persisted.dispatch_state is DispatchState.NOT_SENT else "abort-ambiguous"
    return _ABORTS[persisted.abort_lifecycle]


def _resolved(persisted: RuntimeInvocationPersistence) -> dict[str, Any]:  # Any: a JSON object
    assert persisted.resolved_model is not None  # noqa: S101 - the caller looked
    model, revision = persisted.resolved_model.id, persisted.resolved_model.revision
    return {
        "id": model,
        "revision": revision,
        "source": "provider-id-only" if revision is None else "provider-reported",
    }


def _timings(outcome: InvocationOutcome, begun_at: str, ended_at: str, not_before_ms: int) -> dict[str, str | None]:
    timeline, started_ms = outcome.timeline, outcome.exchange.started_at_ms
    if started_ms is None or timeline.request_started_ns is None:
        return {
            "startedAt": begun_at,
            "headersAt": None,
            "firstByteAt": None,
            "firstMeaningfulTokenAt": None,
            "completedAt": max(begun_at, ended_at),
        }
    origin, started_ms = timeline.request_started_ns, max(started_ms, not_before_ms)

    def at(offset_ns: int | None) -> str | None:
        return None if offset_ns is None else timestamp_of_ms(started_ms + max(offset_ns - origin, 0) // MS)

    headers, first_byte, token = at(timeline.headers_ns), at(timeline.first_byte_ns), at(timeline.first_token_ns)
    end = at(timeline.last_byte_ns if timeline.last_byte_ns is not None else timeline.ended_ns)
    started = timestamp_of_ms(started_ms)
    return {
        "startedAt": started,
        "headersAt": headers,
        "firstByteAt": first_byte,
        "firstMeaningfulTokenAt": token,
        "completedAt": max(instant for instant in (started, headers, first_byte, token, end) if instant is not None),
    }


def _known(outcome: InvocationOutcome) -> tuple[ProviderTiming, ...]:
    return outcome.answer.provider_timings if outcome.answer is not None else ()


def _timing(timing: ProviderTiming) -> dict[str, Any]:  # Any: a JSON object
    name = "".join(
        f"-{char.lower()}" if char.isupper() else "-" if char in "_. " else char for char in timing.name
    ).strip("-")
    return {"name": name, "valueMs": timing.value * _TO_MS[timing.unit], "source": "provider-reported"}
