"""Rows of what collection leaves: executions, attempts, token events, envelopes, receipts, metric and device samples.

Latency names follow the field. All latencies start at the first application byte written (``started_at``), so waiting
for a turn, connecting and TLS are never part of a runtime's latency; they stand in columns of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from tasc_pipeline.warehouse.columns import flag, identity, instant, integer, number, octets, word, words

Role = Literal["champion", "candidate"]
State = Literal["accepted", "not_sent", "not_attempted"]

WINDOW_KEY = word("Partition key of the sealed window.")
TRACE_ID = identity("Keyed id of the execution; joins traces, attempts, token_events and envelopes.", prefix="trace-")
PROFILE_ID = word("Execution profile of the study.")
ROLE = word("champion or candidate.")
CASE_ID = word("Case of the study's case set.")
REPLICATE = integer("Which repetition of the case, from 0.", "count")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRow:
    """One planned execution: a case, a replicate, a profile. Accepted or not, it has a row."""

    window_key: Annotated[str, WINDOW_KEY]
    study_id: Annotated[str, word("Study.")]
    role: Annotated[Role, ROLE]
    profile_id: Annotated[str, PROFILE_ID]
    case_id: Annotated[str, CASE_ID]
    group_id: Annotated[str, word("Group of cases that are not independent of each other; the unit of resampling.")]
    replicate: Annotated[int, REPLICATE]
    trace_id: Annotated[str | None, TRACE_ID] = None
    replicate_id: Annotated[
        str, identity("Id of case, replicate and window; the same for all profiles.", prefix="replicate-")
    ]

    runtime: Annotated[str, word("Wire dialect, such as vllm.")]
    build: Annotated[str, word("Build of the runtime.")]
    backend: Annotated[str | None, word("Backend name and version as declared or observed.")] = None
    model_id: Annotated[str, word("Model as requested on the wire.")]
    route: Annotated[str, word("Route of the dialect, such as chatCompletions.")]
    framing: Annotated[str, word("json, sse or ndjson.")]
    slices: Annotated[tuple[str, ...], words("Slices the case belongs to.")] = ()
    weight: Annotated[float, number("Declared traffic weight of the case.", "weight")]
    input_token_estimate: Annotated[int | None, integer("Declared estimate of the case's input tokens.", "tokens")] = (
        None
    )
    case_length_bucket: Annotated[str, word("Prompt length in powers of two of characters, such as chars-256-511.")]

    state: Annotated[
        State, word("accepted (has an envelope), not_sent (proved) or not_attempted; they add up to planned.")
    ]
    status: Annotated[str | None, word("success, failure or aborted; null without an envelope.")] = None
    dispatch_state: Annotated[str | None, word("completed, sent_unknown or not_sent, as the write ledger proves.")] = (
        None
    )
    failure_category: Annotated[str | None, word("Category of a failure, null on success.")] = None
    fault_reason: Annotated[str | None, word("Why there is no envelope, null where there is one.")] = None
    finish_reason: Annotated[str | None, word("Canonical finish reason.")] = None
    attempts: Annotated[int, integer("Attempts made.", "count")]

    started_at: Annotated[int | None, instant("First application byte written, on the wall clock.")] = None
    start_hour: Annotated[int | None, instant("started_at cut to the hour.")] = None
    ttft_ms: Annotated[float | None, number("Time to first token.", "ms")] = None
    itl_p50_ms: Annotated[float | None, number("Median gap between this call's token events.", "ms")] = None
    itl_p95_ms: Annotated[float | None, number("95th percentile gap between this call's token events.", "ms")] = None
    tpot_ms: Annotated[float | None, number("Time per output token: (last - first token) / (tokens - 1).", "ms")] = None
    e2e_ms: Annotated[float | None, number("End to end: first byte written to last byte read.", "ms")] = None
    queue_ms: Annotated[float | None, number("Waiting for a turn in the lane.", "ms")] = None
    connect_ms: Annotated[float | None, number("TCP connect.", "ms")] = None
    tls_ms: Annotated[float | None, number("TLS handshake; null on plain loopback.", "ms")] = None

    input_tokens: Annotated[int | None, integer("Input tokens as the provider reports them.", "tokens")] = None
    input_tokens_cached: Annotated[int | None, integer("Of these, read from the prefix cache.", "tokens")] = None
    output_tokens: Annotated[int | None, integer("Output tokens as the provider reports them.", "tokens")] = None
    reasoning_tokens: Annotated[int | None, integer("Of these, reasoning.", "tokens")] = None
    token_event_count: Annotated[int | None, integer("Events that carried output.", "count")] = None
    tokens_per_event: Annotated[
        float | None, number("Output tokens per token event; 1 is one token at a time.", "tokens")
    ] = None

    collector_lag_ms: Annotated[
        float | None, number("Largest delay between a byte's arrival and its reading.", "ms")
    ] = None
    arrival_uncertainty_ms: Annotated[
        float | None, number("Width of the interval that holds the first token.", "ms")
    ] = None
    timing_flagged: Annotated[
        bool | None, flag("True where the collector's own delay spoils the first token's time.")
    ] = None

    peer: Annotated[str | None, word("Keyed identity of the answering address: which replica, never where.")] = None
    cost_usd: Annotated[float | None, number("Cost of the execution.", "USD")] = None
    cost_class: Annotated[str, word("measured, provider-reported, modeled or unavailable.")] = "unavailable"
    request_identity: Annotated[str | None, identity("Keyed identity of the request bytes.")] = None
    terminal_output_identity: Annotated[str | None, identity("Keyed identity of the answer; scores join on it.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """One attempt: one connection, at most one request."""

    window_key: Annotated[str, WINDOW_KEY]
    role: Annotated[Role, ROLE]
    profile_id: Annotated[str, PROFILE_ID]
    case_id: Annotated[str, CASE_ID]
    replicate: Annotated[int, REPLICATE]
    trace_id: Annotated[str, TRACE_ID]
    attempt_id: Annotated[str, identity("Keyed id of the attempt.", prefix="attempt-")]
    attempt_number: Annotated[int, integer("From 1.", "count")]
    dispatch_state: Annotated[str, word("completed, sent_unknown or not_sent, as the write ledger proves.")]
    status: Annotated[str, word("success, failure or aborted.")]
    failure_category: Annotated[str | None, word("Category of a failure.")] = None
    finish_reason: Annotated[str | None, word("Canonical finish reason.")] = None
    partial_output: Annotated[bool, flag("True where output began and did not end well.")]
    abort_lifecycle: Annotated[str, word("How far an abort came.")]
    started_at: Annotated[int, instant("First application byte written, or the lease where none was journaled.")]
    completed_at: Annotated[int, instant("Outcome known.")]
    queue_ns: Annotated[int | None, integer("Waiting for a turn.", "ns")] = None
    connected_ns: Annotated[int | None, integer("Queued to connected.", "ns")] = None
    secured_ns: Annotated[int | None, integer("Queued to TLS finished.", "ns")] = None
    leased_ns: Annotated[int | None, integer("Queued to the durable lease.", "ns")] = None
    request_started_ns: Annotated[int | None, integer("Queued to the first application byte written.", "ns")] = None
    request_written_ns: Annotated[int | None, integer("Queued to the last request byte written.", "ns")] = None
    headers_ns: Annotated[int | None, integer("Queued to complete response headers.", "ns")] = None
    first_byte_ns: Annotated[int | None, integer("Queued to the first response byte.", "ns")] = None
    first_token_ns: Annotated[int | None, integer("Queued to the first token.", "ns")] = None
    last_token_ns: Annotated[int | None, integer("Queued to the last token.", "ns")] = None
    last_byte_ns: Annotated[int | None, integer("Queued to the last response byte.", "ns")] = None
    request_bytes: Annotated[int | None, integer("Request bytes on the wire.", "bytes")] = None
    response_bytes: Annotated[int | None, integer("Response bytes on the wire.", "bytes")] = None
    reads: Annotated[int | None, integer("Reads that returned data.", "count")] = None
    events_dropped: Annotated[int | None, integer("Token events beyond the bound.", "count")] = None
    resolved_model_id: Annotated[str | None, word("Model that the answer names.")] = None
    request_identity: Annotated[str | None, identity("Keyed identity of the request bytes.")] = None
    response_identity: Annotated[str | None, identity("Keyed identity of the response bytes.")] = None
    event_stream_identity: Annotated[str | None, identity("Keyed identity of the event stream.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEventRow:
    """One event that carried output, of the last attempt of an accepted execution."""

    window_key: Annotated[str, WINDOW_KEY]
    role: Annotated[Role, ROLE]
    profile_id: Annotated[str, PROFILE_ID]
    case_id: Annotated[str, CASE_ID]
    replicate: Annotated[int, REPLICATE]
    trace_id: Annotated[str, TRACE_ID]
    event_index: Annotated[int, integer("From 0.", "count")]
    offset_ns: Annotated[int | None, integer("First application byte written to the event's arrival.", "ns")]
    gap_ns: Annotated[int | None, integer("Since the event before; null for the first.", "ns")]
    tokens: Annotated[int | None, integer("Tokens in the event where the dialect tells.", "tokens")]
    kind: Annotated[str, word("answer, reasoning or tool.")]
    uncertainty_ns: Annotated[int | None, integer("Width of the interval that holds the arrival.", "ns")]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeRow:
    """The canonical bytes of one accepted trace's envelope, as signed."""

    window_key: Annotated[str, WINDOW_KEY]
    trace_id: Annotated[str, TRACE_ID]
    trace_digest: Annotated[str, identity("Digest of the envelope.", prefix="sha256:")]
    envelope: Annotated[bytes, octets("Canonical JSON of the trace envelope v2, with both signatures.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptRow:
    """One capability receipt that the window's plan pins."""

    window_key: Annotated[str, WINDOW_KEY]
    receipt_digest: Annotated[str, identity("Digest of the receipt.", prefix="sha256:")]
    capability: Annotated[str, word("What was observed.")]
    state: Annotated[str, word("supported, unsupported or unknown.")]
    effect: Annotated[str, word("non-mutating, consumptive or inference-canary.")]
    endpoint_alias: Annotated[str, word("Endpoint by its alias.")]
    runtime: Annotated[str, word("Wire dialect.")]
    build: Annotated[str, word("Build of the runtime.")]
    backend: Annotated[str | None, word("Backend name and version.")] = None
    model_id: Annotated[str, word("Model.")]
    route: Annotated[str | None, word("Route, where the capability has one.")] = None
    framing: Annotated[str | None, word("Framing, where the capability has one.")] = None
    configuration_digest: Annotated[str, identity("Digest of the endpoint's configuration.", prefix="sha256:")]
    observed_at: Annotated[int, instant("When it was observed.")]
    valid_until: Annotated[int, instant("Until when it admits a route.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSampleRow:
    """One canonical metric of one scrape of a server."""

    window_key: Annotated[str, WINDOW_KEY]
    endpoint_alias: Annotated[str, word("Endpoint by its alias.")]
    phase: Annotated[str, word("before, during, after or alone.")]
    sampled_at: Annotated[int, instant("Scrape time on the collector's clock.")]
    took_ms: Annotated[float | None, number("Duration of the scrape.", "ms")] = None
    metric: Annotated[str, word("Canonical metric name; its unit is in the name.")]
    labels: Annotated[str, word("Allowed labels as name=value, comma-separated; empty where there are none.")] = ""
    value: Annotated[float | None, number("Value; null where the server does not report it.", "of the metric")]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricHistogramRow:
    """What a server itself measured between two scrapes: how many of its latencies fell into one bucket."""

    window_key: Annotated[str, WINDOW_KEY]
    endpoint_alias: Annotated[str, word("Endpoint by its alias.")]
    metric: Annotated[str, word("ttft-seconds, itl-seconds, tpot-seconds or e2e-seconds.")]
    labels: Annotated[str, word("Allowed labels as name=value, comma-separated; empty where there are none.")] = ""
    from_at: Annotated[int, instant("Scrape before; a server that was reset since counts from its reset.")]
    until_at: Annotated[int, instant("Scrape after.")]
    bucket: Annotated[int, integer("Bucket of the server's histogram, from 0.", "count")]
    lower_bound_s: Annotated[float, number("Lower bound of the bucket.", "s")]
    upper_bound_s: Annotated[float | None, number("Upper bound of the bucket; null above every bound.", "s")]
    observations: Annotated[int, integer("Latencies in the bucket; buckets without any have no row.", "count")]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSampleRow:
    """One quantity of one device of one snapshot."""

    window_key: Annotated[str, WINDOW_KEY]
    node_id: Annotated[str, word("Host by its keyed or declared id.")]
    device_id: Annotated[str, word("Stable device id; 'host' for the host itself.")]
    device_kind: Annotated[str, word("accelerator, host, storage or sensor.")]
    phase: Annotated[str, word("before, during, after or alone.")]
    sampled_at: Annotated[int, instant("Snapshot time.")]
    metric: Annotated[str, word("What was measured, such as power.")]
    value: Annotated[float | None, number("Value; null where the platform cannot say, zero is zero.", "of the metric")]
    unit: Annotated[str, word("Unit of the value.")]
