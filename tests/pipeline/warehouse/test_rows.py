from __future__ import annotations

from typing import Any

import pytest

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.fault import CollectorFault, FaultReason
from tasc_collector.contracts.timeline import TimelineMarks, TraceTimeline
from tasc_collector.errors import InputError
from tasc_pipeline.warehouse import latency, rows
from tasc_pipeline.warehouse.publish import publish
from tasc_pipeline.warehouse.rows import Execution, TargetFacts

DIGEST = "sha256:" + "1" * 64
TRACE = "trace-" + "a1" * 32
KEY = "w1.r01-0a1b2c3d"
TARGET = TargetFacts(
    role="champion",
    profile_id="champion",
    runtime="vllm",
    build="0.26.0",
    backend="vllm 0.26.0",
    model_id="m",
    route="completions",
    framing="sse",
)
MS = 1_000_000


def identity(pair: str) -> dict[str, str]:
    return {"algorithm": "hmac-sha256", "keyId": "payload", "value": pair * 32}


def attempt(number: int, **changes: Any) -> dict[str, Any]:
    value: dict[str, Any] = {
        "attemptId": "attempt-" + f"{number:064x}",
        "attemptNumber": number,
        "dispatchState": "completed",
        "observerTimings": {
            "startedAt": "2026-11-29T12:34:56.789Z",
            "headersAt": None,
            "firstByteAt": None,
            "firstMeaningfulTokenAt": None,
            "completedAt": "2026-11-29T12:34:57.789Z",
        },
        "status": "success",
        "finishReason": "stop",
        "partialOutput": False,
        "abortLifecycle": "not-aborted",
        "failureCategory": None,
        "requestedModel": {"id": "m", "revision": "r1"},
        "resolvedModel": {"id": "m", "revision": None, "source": "provider-id-only"},
        "tokenUsage": {
            "input": {"value": 64, "source": "provider-reported", "semantics": "input"},
            "output": {"value": 5, "source": "provider-reported", "semantics": "output"},
            "total": None,
        },
        "providerReported": {"timings": [], "metrics": []},
        "cost": {"kind": "unavailable"},
        "payloads": {"request": identity("0a"), "response": identity("0b"), "eventStream": identity("0c")},
    }
    return value | changes


NOT_SENT = {
    "dispatchState": "not_sent",
    "status": "failure",
    "finishReason": None,
    "failureCategory": "transport",
    "resolvedModel": None,
    "tokenUsage": {"input": None, "output": None, "total": None},
    "payloads": {"request": identity("0a"), "response": None, "eventStream": None},
    "observerTimings": {
        "startedAt": "2026-11-29T12:34:50.000Z",
        "headersAt": None,
        "firstByteAt": None,
        "firstMeaningfulTokenAt": None,
        "completedAt": "2026-11-29T12:34:51.000Z",
    },
}


def envelope(*attempts: dict[str, Any], output: bool = True) -> dict[str, Any]:
    return {
        "version": "tasc-trace-envelope-v2",
        "studyId": "study-1",
        "protocolDigest": DIGEST,
        "traceId": TRACE,
        "caseId": "case-1",
        "groupId": "group-1",
        "replicateId": "replicate-" + "b2" * 32,
        "split": "online",
        "collectionWindowId": "w1",
        "collectionWindowMembershipDigest": DIGEST,
        "sourceMode": "observed",
        "collectionBinding": None,
        "profileId": "champion",
        "executionProfileDigest": DIGEST,
        "policyDigest": DIGEST,
        "observedRoute": {"selectedProfileId": "champion", "decisionId": "route-1"},
        "workload": {"mode": "completion", "declaredTrafficWeight": 2.5, "inputTokenEstimate": 60},
        "slices": ["short"],
        "routeSignal": None,
        "dispatchIntent": {
            "version": "tasc-dispatch-intent-v1",
            "issuedAt": "2026-11-29T12:34:49.000Z",
            "authorityKeyId": "dispatch",
            "signatureAlgorithm": "ed25519",
            "signature": "A" * 86,
        },
        "attempts": list(attempts),
        "terminalOutputId": identity("0d") if output else None,
        "collectorVersion": "tasc 0.1.0",
        "collectorAttestation": {
            "version": "tasc-collector-attestation-v1",
            "collectedAt": "2026-11-29T12:34:58.000Z",
            "authorityKeyId": "collector",
            "signatureAlgorithm": "ed25519",
            "signature": "A" * 86,
        },
    }


def marks(**changes: int | None) -> TimelineMarks:
    values: dict[str, int | None] = {
        "begun_ns": 2 * MS,
        "resolved_ns": 2 * MS,
        "connected_ns": 5 * MS,
        "secured_ns": None,
        "leased_ns": 6 * MS,
        "request_started_ns": 10 * MS,
        "request_written_ns": 11 * MS,
        "headers_ns": 40 * MS,
        "first_byte_ns": 40 * MS,
        "first_token_ns": 110 * MS,
        "first_visible_token_ns": 110 * MS,
        "last_token_ns": 150 * MS,
        "last_byte_ns": 160 * MS,
    }
    return TimelineMarks(**(values | changes))


def timeline(number: int, **changes: Any) -> TraceTimeline:
    values: dict[str, Any] = {
        "trace_id": TRACE,
        "trace_digest": DIGEST,
        "attempt_id": "attempt-" + f"{number:064x}",
        "framing": "sse",
        "marks": marks(),
        "events": {
            "offset_ns": (110 * MS, 118 * MS, 130 * MS, 150 * MS),
            "tokens": (1, 1, 2, None),
            "kind": ("reasoning", "answer", "answer", "answer"),
            "uncertainty_ns": (0, 0, 500, None),
        },
        "events_dropped": 0,
        "arrival_uncertainty_ns": 0,
        "collector_lag_ns": 250_000,
        "timing_flagged": False,
        "request_bytes": 300,
        "response_bytes": 900,
        "reads": 5,
        "peer": "peer-1",
        "cached_input_tokens": 16,
        "reasoning_tokens": 1,
    }
    return TraceTimeline(**(values | changes))


def accepted(
    *attempts: dict[str, Any], output: bool = True, timed: TraceTimeline | None = None, **changes: Any
) -> Execution:
    value = envelope(*attempts, output=output)
    parsed = TraceEnvelope.from_value(value)
    return Execution(
        **(
            {
                "window_key": KEY,
                "study_id": "study-1",
                "target": TARGET,
                "case_id": "case-1",
                "group_id": "group-1",
                "replicate": 0,
                "replicate_id": "replicate-" + "b2" * 32,
                "trace_id": TRACE,
                "slices": ("short",),
                "weight": 2.5,
                "input_token_estimate": 60,
                "length_bucket": "chars-256-511",
                "envelope": parsed.record,
                "envelope_bytes": canonical_bytes(value),
                "trace_digest": TraceEnvelope.digest_of(value),
                "timeline": timed,
            }
            | changes
        )
    )


def faulted(state: str, reason: str, attempts: int) -> Execution:
    fault = CollectorFault(
        window_key=KEY,
        plan_digest=DIGEST,
        trace_id=TRACE,
        case_id="case-1",
        replicate_id="replicate-" + "b2" * 32,
        group_id="group-1",
        replicate_index=0,
        profile_id="champion",
        state=state,
        reason=FaultReason(reason),
        category=None,
        attempts=attempts,
        recorded_at="2026-11-29T12:35:00.000Z",
    )
    return accepted(attempt(1), envelope=None, envelope_bytes=None, trace_digest=None, fault=fault)


def test_a_success_has_every_figure_in_milliseconds() -> None:
    row = rows.execution_row(accepted(attempt(1, **NOT_SENT), attempt(2), timed=timeline(2)))
    assert (row.state, row.status, row.dispatch_state, row.finish_reason, row.attempts) == (
        "accepted",
        "success",
        "completed",
        "stop",
        2,
    )
    assert (row.ttft_ms, row.e2e_ms, row.tpot_ms) == (100.0, 150.0, 10.0)
    assert (row.itl_p50_ms, row.itl_p95_ms) == (12.0, pytest.approx(19.2))
    assert (row.queue_ms, row.connect_ms, row.tls_ms) == (2.0, 3.0, None)
    assert (row.input_tokens, row.input_tokens_cached, row.output_tokens, row.reasoning_tokens) == (64, 16, 5, 1)
    assert (row.token_event_count, row.tokens_per_event) == (4, 1.25)
    assert (row.collector_lag_ms, row.arrival_uncertainty_ms, row.peer) == (0.25, 0.0, "peer-1")
    assert (row.started_at, row.start_hour) == (1_795_955_696_789, 1_795_953_600_000)
    assert (row.request_identity, row.terminal_output_identity) == ("0a" * 32, "0d" * 32)
    assert (row.cost_usd, row.cost_class) == (None, "unavailable")


def test_a_settled_unknown_has_no_figure_and_is_not_zero() -> None:
    unknown = attempt(
        1,
        dispatchState="sent_unknown",
        status="failure",
        finishReason=None,
        failureCategory="unknown",
        resolvedModel=None,
        tokenUsage={"input": None, "output": None, "total": None},
    )
    row = rows.execution_row(accepted(unknown, output=False))
    assert (row.state, row.dispatch_state, row.failure_category) == ("accepted", "sent_unknown", "unknown")
    assert (row.ttft_ms, row.e2e_ms, row.output_tokens, row.timing_flagged, row.terminal_output_identity) == (None,) * 5


@pytest.mark.parametrize(
    ("state", "reason", "attempts", "dispatch"),
    [("not_sent", "connect-failed", 3, "not_sent"), ("not_attempted", "overloaded", 0, None)],
)
def test_an_execution_without_an_envelope_has_a_row_with_its_reason(
    state: str, reason: str, attempts: int, dispatch: str | None
) -> None:
    row = rows.execution_row(faulted(state, reason, attempts))
    assert (row.state, row.status, row.dispatch_state, row.fault_reason, row.attempts) == (
        state,
        None,
        dispatch,
        reason,
        attempts,
    )
    assert (row.started_at, row.ttft_ms, row.request_identity) == (None, None, None)


def test_an_execution_is_accepted_or_faulted_never_both() -> None:
    with pytest.raises(InputError, match="either an envelope with its bytes and digest, or a fault"):
        accepted(attempt(1), envelope=None)


def test_cost_says_how_it_is_known() -> None:
    measured = attempt(1, cost={"kind": "measured", "amount": 0.25, "currency": "USD", "evidenceDigest": DIGEST})
    assert rows.execution_row(accepted(measured, modeled_cost_usd=9.0)).cost_class == "measured"
    modeled = rows.execution_row(accepted(attempt(1), modeled_cost_usd=0.5))
    assert (modeled.cost_usd, modeled.cost_class) == (0.5, "modeled")


def test_attempts_keep_marks_of_the_last_one_only() -> None:
    table = rows.attempts_table([accepted(attempt(1, **NOT_SENT), attempt(2), timed=timeline(2))]).to_pylist()
    assert [(row["attempt_number"], row["dispatch_state"], row["request_started_ns"]) for row in table] == [
        (1, "not_sent", None),
        (2, "completed", 10 * MS),
    ]
    assert table[1]["event_stream_identity"] == b"\x0c" * 32
    assert table[0]["response_identity"] is None


def test_token_events_are_offsets_from_the_first_byte_written() -> None:
    late = timeline(1, marks=marks(request_started_ns=None))
    table = rows.token_events_table(
        [
            accepted(attempt(1), timed=timeline(1)),
            accepted(attempt(1), timed=late, case_id="case-0"),
            accepted(attempt(1)),
        ]
    ).to_pylist()
    assert [
        (row["case_id"], row["event_index"], row["offset_ns"], row["gap_ns"], row["tokens"], row["kind"])
        for row in table[4:]
    ] == [
        ("case-1", 0, 100 * MS, None, 1, "reasoning"),
        ("case-1", 1, 108 * MS, 8 * MS, 1, "answer"),
        ("case-1", 2, 120 * MS, 12 * MS, 2, "answer"),
        ("case-1", 3, 140 * MS, 20 * MS, None, "answer"),
    ]
    assert [row["offset_ns"] for row in table[:4]] == [None] * 4
    assert [row["gap_ns"] for row in table[:4]] == [None, 8 * MS, 12 * MS, 20 * MS]
    assert [row["uncertainty_ns"] for row in table[4:]] == [0, 0, 500, None]


def test_all_tables_of_nothing_are_empty_and_publishable(house) -> None:
    for name, table in (
        ("traces", rows.traces_table([])),
        ("attempts", rows.attempts_table([])),
        ("token_events", rows.token_events_table([])),
        ("envelopes", rows.envelopes_table([])),
    ):
        assert publish(house.root, name, KEY, table, sign=house.signer, clock=house.clock).rows == 0


def test_envelopes_keep_the_signed_bytes(house) -> None:
    execution = accepted(attempt(1), timed=timeline(1))
    (row,) = rows.envelopes_table([execution, faulted("not_sent", "internal", 1)]).to_pylist()
    assert row["envelope"] == execution.envelope_bytes
    assert "sha256:" + row["trace_digest"].hex() == execution.trace_digest


def test_latencies_of_nothing_are_null_and_one_token_has_no_tpot() -> None:
    empty = latency.latencies(marks(first_token_ns=None, last_token_ns=None, last_byte_ns=None), (), None)
    assert (empty.ttft_ms, empty.itl_p50_ms, empty.tpot_ms, empty.e2e_ms) == (None,) * 4
    assert latency.latencies(marks(), (110 * MS,), 1).tpot_ms is None
    assert latency.latencies(marks(secured_ns=9 * MS), (), None).tls_ms == 4.0


def test_quantiles_interpolate_as_duckdb_does() -> None:
    assert [latency.quantile([10, 20, 40], share) for share in (0.0, 0.25, 0.5, 0.95, 1.0)] == [
        10,
        15.0,
        20.0,
        38.0,
        40,
    ]
    assert latency.quantile([], 0.5) is None
