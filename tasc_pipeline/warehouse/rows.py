"""From what the journal holds about executions to rows of four tables: traces, attempts, token_events, envelopes.

Pure. One ``Execution`` per planned execution goes in; the builders give Arrow tables. A large window is built a few
executions at a time (``row_batches``): rows as Python objects take many times the memory of their columns, and the columns
of a hundred thousand executions more than a small machine has.
An execution has either an envelope (accepted) or a fault (``not_sent``, ``not_attempted``), never both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, Self

import numpy as np
import pyarrow as pa

from tasc_collector.contracts.attempt import Attempt, UnavailableCost
from tasc_collector.contracts.collection import PlanTarget
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.fault import CollectorFault
from tasc_collector.contracts.identities import KeyedIdentity, PayloadReference
from tasc_collector.contracts.scalars import timestamp_ms
from tasc_collector.contracts.timeline import TraceTimeline
from tasc_collector.errors import InputError
from tasc_pipeline.warehouse import latency
from tasc_pipeline.warehouse.columns import identity_bytes
from tasc_pipeline.warehouse.schemas import ATTEMPTS, ENVELOPES, TOKEN_EVENTS, TRACES
from tasc_pipeline.warehouse.tables_collection import AttemptRow, EnvelopeRow, ExecutionRow, Role

HOUR_MS = 3_600_000
_CHUNK = 2_000
"""Executions that are held as Python objects at a time."""
CostClass = Literal["measured", "provider-reported", "modeled", "unavailable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """What the plan's target says about every execution of one profile."""

    role: Role
    profile_id: str
    runtime: str
    build: str
    backend: str | None
    model_id: str
    route: str
    framing: str

    @classmethod
    def of(cls, target: PlanTarget) -> Self:
        """The facts of a plan's target."""
        return cls(
            role=target.role,
            profile_id=target.profile_id,
            runtime=target.runtime.profile_id,
            build=target.runtime.build,
            backend=f"{target.backend.name} {target.backend.build}",
            model_id=target.model.id,
            route=target.route,
            framing=target.framing,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One planned execution and what became of it.

    Attributes:
        window_key: partition.
        study_id: study.
        target: what the plan's target says of this profile.
        case_id: case.
        group_id: unit of resampling.
        replicate: repetition of the case, from 0.
        replicate_id: ``replicate-<64 hex>``.
        trace_id: ``trace-<64 hex>``; null where nothing was prepared, because the id needs the case's text.
        slices: of the case.
        weight: declared traffic weight.
        input_token_estimate: declared, if any.
        length_bucket: as in the case set, such as ``chars-256-511``.
        envelope: parsed envelope where accepted.
        envelope_bytes: its canonical bytes, as signed.
        trace_digest: the envelope's digest.
        timeline: of the last attempt, where it is known (a settled ``sent_unknown`` has none).
        fault: where there is no envelope.
        modeled_cost_usd: from a cost model, where the envelope holds no cost.
    """

    window_key: str
    study_id: str
    target: TargetFacts
    case_id: str
    group_id: str
    replicate: int
    replicate_id: str
    trace_id: str | None
    slices: tuple[str, ...]
    weight: float
    input_token_estimate: int | None
    length_bucket: str
    envelope: TraceEnvelope | None = None
    envelope_bytes: bytes | None = None
    trace_digest: str | None = None
    timeline: TraceTimeline | None = None
    fault: CollectorFault | None = None
    modeled_cost_usd: float | None = None

    def __post_init__(self) -> None:
        held = (self.envelope is not None, self.envelope_bytes is not None, self.trace_digest is not None)
        unnamed = held[0] and self.trace_id is None
        spare = self.timeline is not None and not held[0]
        if len(set(held)) != 1 or held[0] == (self.fault is not None) or unnamed or spare:
            raise InputError(
                "an execution has either an envelope with its bytes and digest, or a fault",
                where="execution",
                field=self.case_id,
                way_out="pass what the journal holds about it",
            )


def execution_row(execution: Execution) -> ExecutionRow:
    """The row of ``traces`` for one planned execution."""
    target, timeline, fault = execution.target, execution.timeline, execution.fault
    last = execution.envelope.attempts[-1] if execution.envelope is not None else None
    usage = last.token_usage if last is not None else None
    output_tokens = usage.output.value if usage is not None and usage.output is not None else None
    times = None if timeline is None else latency.latencies(timeline.marks, timeline.events.offset_ns, output_tokens)
    events = len(timeline.events.offset_ns) if timeline is not None else None
    started_at = timestamp_ms(last.observer_timings.started_at) if last is not None else None
    cost_usd, cost_class = _cost(last, execution.modeled_cost_usd)
    return ExecutionRow(
        window_key=execution.window_key,
        study_id=execution.study_id,
        role=target.role,
        profile_id=target.profile_id,
        case_id=execution.case_id,
        group_id=execution.group_id,
        replicate=execution.replicate,
        trace_id=execution.trace_id,
        replicate_id=execution.replicate_id,
        runtime=target.runtime,
        build=target.build,
        backend=target.backend,
        model_id=target.model_id,
        route=target.route,
        framing=target.framing,
        slices=execution.slices,
        weight=execution.weight,
        input_token_estimate=execution.input_token_estimate,
        case_length_bucket=execution.length_bucket,
        state="accepted" if fault is None else fault.state,
        status=last.status if last is not None else None,
        dispatch_state=last.dispatch_state
        if last is not None
        else ("not_sent" if fault is not None and fault.state == "not_sent" else None),
        failure_category=_failure_category(last, fault),
        fault_reason=fault.reason if fault is not None else None,
        finish_reason=last.finish_reason if last is not None else None,
        attempts=len(execution.envelope.attempts)
        if execution.envelope is not None
        else (fault.attempts if fault is not None else 0),
        started_at=started_at,
        start_hour=None if started_at is None else started_at - started_at % HOUR_MS,
        ttft_ms=times.ttft_ms if times is not None else None,
        itl_p50_ms=times.itl_p50_ms if times is not None else None,
        itl_p95_ms=times.itl_p95_ms if times is not None else None,
        tpot_ms=times.tpot_ms if times is not None else None,
        e2e_ms=times.e2e_ms if times is not None else None,
        queue_ms=times.queue_ms if times is not None else None,
        connect_ms=times.connect_ms if times is not None else None,
        tls_ms=times.tls_ms if times is not None else None,
        input_tokens=usage.input.value if usage is not None and usage.input is not None else None,
        input_tokens_cached=timeline.cached_input_tokens if timeline is not None else None,
        output_tokens=output_tokens,
        reasoning_tokens=timeline.reasoning_tokens if timeline is not None else None,
        token_event_count=events,
        tokens_per_event=output_tokens / events if output_tokens is not None and events else None,
        collector_lag_ms=_ms(timeline.collector_lag_ns) if timeline is not None else None,
        arrival_uncertainty_ms=_ms(timeline.arrival_uncertainty_ns) if timeline is not None else None,
        timing_flagged=timeline.timing_flagged if timeline is not None else None,
        peer=timeline.peer if timeline is not None else None,
        cost_usd=cost_usd,
        cost_class=cost_class,
        request_identity=keyed_value(last.payloads.request) if last is not None else None,
        terminal_output_identity=keyed_value(execution.envelope.terminal_output_id)
        if execution.envelope is not None
        else None,
    )


def traces_table(executions: Iterable[Execution]) -> pa.Table:
    """``traces``: one row per planned execution."""
    return TRACES.from_rows(execution_row(execution) for execution in executions)


def attempts_table(executions: Iterable[Execution]) -> pa.Table:
    """``attempts``: one row per attempt of every accepted execution; marks belong to the last one."""
    rows: list[AttemptRow] = []
    for execution in executions:
        envelope, timeline = execution.envelope, execution.timeline
        if envelope is None:
            continue
        for attempt in envelope.attempts:
            known = timeline is not None and timeline.attempt_id == attempt.attempt_id
            rows.append(_attempt_row(execution, envelope.trace_id, attempt, timeline if known else None))
    return ATTEMPTS.from_rows(rows)


def envelopes_table(executions: Iterable[Execution]) -> pa.Table:
    """``envelopes``: the signed bytes of every accepted trace."""
    rows = [
        EnvelopeRow(
            window_key=execution.window_key,
            trace_id=execution.trace_id,
            trace_digest=execution.trace_digest,
            envelope=execution.envelope_bytes,
        )
        for execution in executions
        if execution.trace_id is not None
        and execution.trace_digest is not None
        and execution.envelope_bytes is not None
    ]
    return ENVELOPES.from_rows(rows)


def token_events_table(executions: Iterable[Execution]) -> pa.Table:
    """``token_events``: built column by column, because there are a hundred times more events than executions."""
    held = sorted(
        (item for item in executions if item.timeline is not None and item.timeline.events.offset_ns),
        key=lambda item: (item.target.role, item.target.profile_id, item.case_id, item.replicate),
    )
    timelines = [item.timeline for item in held if item.timeline is not None]
    counts = np.array([len(timeline.events.offset_ns) for timeline in timelines], dtype=np.int64)
    of_event = np.repeat(np.arange(len(held), dtype=np.int32), counts)
    offsets = np.array([offset for timeline in timelines for offset in timeline.events.offset_ns], dtype=np.int64)
    first = np.zeros(len(offsets), dtype=bool)
    first[np.cumsum(counts) - counts] = True
    gaps = np.diff(offsets, prepend=offsets[:1]) if len(offsets) else offsets
    starts = [timeline.marks.request_started_ns for timeline in timelines]
    unknown_start = np.array([start is None for start in starts], dtype=bool)[of_event]
    relative = offsets - np.array([start or 0 for start in starts], dtype=np.int64)[of_event]
    return TOKEN_EVENTS.from_columns(
        {
            "window_key": _spread(of_event, [item.window_key for item in held]),
            "role": _spread(of_event, [item.target.role for item in held]),
            "profile_id": _spread(of_event, [item.target.profile_id for item in held]),
            "case_id": _spread(of_event, [item.case_id for item in held]),
            "replicate": pa.array(np.array([item.replicate for item in held], dtype=np.int64)[of_event]),
            "trace_id": _spread(of_event, [_raw(timeline.trace_id, "trace-") for timeline in timelines], pa.binary(32)),
            "event_index": pa.array(
                np.arange(len(offsets), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
            ),
            "offset_ns": pa.array(relative, mask=unknown_start),
            "gap_ns": pa.array(gaps, mask=first),
            "tokens": pa.array([tokens for timeline in timelines for tokens in timeline.events.tokens], pa.int64()),
            "kind": pa.array([kind for timeline in timelines for kind in timeline.events.kind], pa.string()),
            "uncertainty_ns": pa.array(
                [width for timeline in timelines for width in timeline.events.uncertainty_ns], pa.int64()
            ),
        }
    )


FROM_JOURNAL: Mapping[str, Callable[[Iterable[Execution]], pa.Table]] = {
    "traces": traces_table,
    "attempts": attempts_table,
    "token_events": token_events_table,
    "envelopes": envelopes_table,
}
"""Tables that come from the journal, and how."""


def row_batches(table: str, executions: Iterable[Execution]) -> Iterator[pa.Table]:
    """The rows of one of ``FROM_JOURNAL``, a few executions at a time, in the order of the executions."""
    left, build = iter(executions), FROM_JOURNAL[table]
    while chunk := tuple(islice(left, _CHUNK)):
        yield build(chunk)


def keyed_value(payload: PayloadReference | None) -> str | None:
    """The 64 hex digits of a keyed identity; null of nothing and of a controlled reference, which has none."""
    return payload.value if isinstance(payload, KeyedIdentity) else None


def _attempt_row(execution: Execution, trace_id: str, attempt: Attempt, timeline: TraceTimeline | None) -> AttemptRow:
    marks = timeline.marks if timeline is not None else None
    return AttemptRow(
        window_key=execution.window_key,
        role=execution.target.role,
        profile_id=execution.target.profile_id,
        case_id=execution.case_id,
        replicate=execution.replicate,
        trace_id=trace_id,
        attempt_id=attempt.attempt_id,
        attempt_number=attempt.attempt_number,
        dispatch_state=attempt.dispatch_state,
        status=attempt.status,
        failure_category=attempt.failure_category,
        finish_reason=attempt.finish_reason,
        partial_output=attempt.partial_output,
        abort_lifecycle=attempt.abort_lifecycle,
        started_at=timestamp_ms(attempt.observer_timings.started_at),
        completed_at=timestamp_ms(attempt.observer_timings.completed_at),
        queue_ns=marks.begun_ns if marks is not None else None,
        connected_ns=marks.connected_ns if marks is not None else None,
        secured_ns=marks.secured_ns if marks is not None else None,
        leased_ns=marks.leased_ns if marks is not None else None,
        request_started_ns=marks.request_started_ns if marks is not None else None,
        request_written_ns=marks.request_written_ns if marks is not None else None,
        headers_ns=marks.headers_ns if marks is not None else None,
        first_byte_ns=marks.first_byte_ns if marks is not None else None,
        first_token_ns=marks.first_token_ns if marks is not None else None,
        last_token_ns=marks.last_token_ns if marks is not None else None,
        last_byte_ns=marks.last_byte_ns if marks is not None else None,
        request_bytes=timeline.request_bytes if timeline is not None else None,
        response_bytes=timeline.response_bytes if timeline is not None else None,
        reads=timeline.reads if timeline is not None else None,
        events_dropped=timeline.events_dropped if timeline is not None else None,
        resolved_model_id=attempt.resolved_model.id if attempt.resolved_model is not None else None,
        request_identity=keyed_value(attempt.payloads.request),
        response_identity=keyed_value(attempt.payloads.response),
        event_stream_identity=keyed_value(attempt.payloads.event_stream),
    )


def _failure_category(last: Attempt | None, fault: CollectorFault | None) -> str | None:
    if last is not None:
        return last.failure_category
    return fault.category if fault is not None else None


def _cost(last: Attempt | None, modeled_usd: float | None) -> tuple[float | None, CostClass]:
    if last is not None and not isinstance(last.cost, UnavailableCost):
        return last.cost.amount, last.cost.kind
    return (modeled_usd, "modeled") if modeled_usd is not None else (None, "unavailable")


def _ms(value_ns: int | None) -> float | None:
    return None if value_ns is None else value_ns / latency.NS_PER_MS


def _raw(value: str, prefix: str) -> bytes:
    return identity_bytes(value, prefix=prefix)


def _spread(index: np.ndarray, values: Sequence[object], kind: pa.DataType | None = None) -> pa.Array:
    """One value per execution repeated for each of its events, without a Python object per event."""
    return pa.DictionaryArray.from_arrays(pa.array(index), pa.array(values, kind or pa.string())).cast(
        kind or pa.string()
    )
