"""From an exchange and an answer to ``RuntimeInvocationPersistence``: what may be kept of a call. Pure.

Rules (original project, sections 2.2, 2.7 and 3.10):

1. ``completed`` needs all of: a complete 200 answer in time, a terminal outcome, a finish reason, usage and a
   resolved model.
2. ``failed``: the transport failed, or the answer is a provider error or a violation. ``incomplete``: everything else.
3. The category is the transport's where it failed, else ``invalid-response``; the message is the fixed text of the
   category.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tasc_collector.contracts.identities import KeyedIdentity
from tasc_collector.contracts.persistence import (
    AbortLifecycle,
    InvocationProfile,
    InvocationStatus,
    PersistedError,
    ProviderModel,
    ProviderTiming,
    ProviderUsage,
    RuntimeInvocationPersistence,
    StreamTiming,
    WireTiming,
)
from tasc_collector.contracts.scalars import timestamp_of_ms
from tasc_collector.errors import Category, DispatchState
from tasc_collector.invocation.prepare import PreparedInvocation
from tasc_collector.invocation.timeline import CallTimeline
from tasc_collector.runtimes.profile import Framing
from tasc_collector.runtimes.result import Answer, TimingUnit
from tasc_collector.runtimes.verdict import Outcome
from tasc_collector.transport.codes import TIMEOUTS, Code
from tasc_collector.transport.result import ExchangeResult

_DURATIONS: Mapping[str, str] = {
    "totalDurationNs": "total_duration_ns",
    "loadDurationNs": "load_duration_ns",
    "promptEvaluationDurationNs": "prompt_evaluation_duration_ns",
    "evaluationDurationNs": "evaluation_duration_ns",
}
_DAY_NS = 86_400_000_000_000


@dataclass(frozen=True, slots=True)
class PayloadIdentities:
    """Keyed identities of what came back; None where nothing came.

    Args:
        response: the raw body.
        output: the answer's UTF-8 text.
    """

    response: KeyedIdentity | None
    output: KeyedIdentity | None


def persistence_of(
    prepared: PreparedInvocation,
    result: ExchangeResult,
    answer: Answer | None,
    timeline: CallTimeline,
    identities: PayloadIdentities,
) -> RuntimeInvocationPersistence:
    """The persisted form of one call.

    Args:
        prepared: what was dispatched.
        result: how the exchange ended.
        answer: what was read of a 200 answer.
        timeline: when everything happened.
        identities: keyed identities of body and text.
    """
    status = _status(result, answer)
    completed = status == "completed"
    usage = answer.usage if answer is not None else None
    streamed = prepared.framing is not Framing.JSON
    return RuntimeInvocationPersistence(
        status=status,
        endpoint_binding_digest=prepared.endpoint_binding_digest,
        profile=InvocationProfile(id=prepared.runtime, build=prepared.build),
        route=prepared.route.value,
        requested_model=prepared.requested_model,
        resolved_model=None
        if answer is None or answer.resolved_model is None
        else ProviderModel(id=answer.resolved_model, revision=None),
        request_identity=prepared.request_identity,
        response_identity=identities.response,
        event_stream_identity=identities.response if streamed else None,
        terminal_output_identity=identities.output if completed else None,
        finish_reason=None if answer is None or answer.finish_reason is None else answer.finish_reason.value,
        provider_usage=None
        if usage is None
        else ProviderUsage(input_tokens=usage.input, output_tokens=usage.output, total_tokens=usage.total),
        provider_timing=_provider_timing(answer),
        final_usage="missing" if usage is None else "present",
        partial_output=answer is not None and not completed and (bool(answer.events) or answer.text_bytes > 0),
        dispatch_state=result.state,
        abort_lifecycle=_abort(result),
        wire_timing=_wire_timing(result, timeline),
        stream_timing=_stream_timing(result, timeline) if streamed else None,
        error=None if completed else _error(prepared, result),
    )


def failure_category(result: ExchangeResult, answer: Answer | None) -> Category | None:
    """The persisted category of a call, None where it completed."""
    if _status(result, answer) == "completed":
        return None
    return result.category or Category.INVALID_RESPONSE


def _status(result: ExchangeResult, answer: Answer | None) -> InvocationStatus:
    if not result.succeeded or answer is None or answer.outcome in {Outcome.PROVIDER_ERROR, Outcome.PROTOCOL_VIOLATION}:
        return "failed"
    whole = answer.finish_reason is not None and answer.usage is not None and answer.resolved_model is not None
    return "completed" if answer.outcome is Outcome.COMPLETED and whole else "incomplete"


def _abort(result: ExchangeResult) -> AbortLifecycle:
    if result.code is Code.CALLER_CANCELLED:
        sent = result.state is not DispatchState.NOT_SENT
        return "caller-cancelled-after-dispatch-ambiguous" if sent else "caller-cancelled-before-dispatch"
    return "deadline-exceeded" if result.code in TIMEOUTS else "not-aborted"


def _error(prepared: PreparedInvocation, result: ExchangeResult) -> PersistedError:
    return PersistedError.of(
        result.category or Category.INVALID_RESPONSE,
        status=result.status,
        runtime=prepared.runtime,
        request_id=result.request_id,
    )


def _provider_timing(answer: Answer | None) -> ProviderTiming:
    found: dict[str, int] = {}
    for timing in answer.provider_timings if answer is not None else ():
        name = _DURATIONS.get(timing.name)
        if name is not None and timing.unit is TimingUnit.NANOSECONDS and 0 <= timing.value <= _DAY_NS:
            found[name] = int(timing.value)
    return ProviderTiming(**found)


def _wire_timing(result: ExchangeResult, timeline: CallTimeline) -> WireTiming | None:
    start = timeline.request_started_ns
    if start is None or result.started_at_ms is None:
        return None
    return WireTiming(
        started_at=timestamp_of_ms(result.started_at_ms),
        headers_ms=_ms(timeline.headers_ns, start),
        first_byte_ms=_ms(timeline.first_byte_ns, start),
        completed_ms=_ms(timeline.ended_ns, start) or 0.0,
    )


def _stream_timing(result: ExchangeResult, timeline: CallTimeline) -> StreamTiming | None:
    start, began = timeline.request_started_ns, result.started_at_ms
    if start is None or began is None or timeline.first_byte_ns is None:
        return None
    first, meaningful, end = (
        _ms(at, start) for at in (timeline.first_byte_ns, timeline.first_token_ns, timeline.ended_ns)
    )
    duration = end or 0.0
    return StreamTiming(
        started_at_ms=began,
        first_byte_at_ms=None if first is None else began + first,
        first_meaningful_at_ms=None if meaningful is None else began + meaningful,
        completed_at_ms=began + duration,
        time_to_first_byte_ms=first,
        time_to_first_meaningful_ms=meaningful,
        duration_ms=duration,
    )


def _ms(at_ns: int | None, start_ns: int) -> float | None:
    """Milliseconds from the first byte, to the microsecond."""
    return None if at_ns is None else max(at_ns - start_ns, 0) // 1_000 / 1_000
