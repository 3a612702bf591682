"""Synthetic windows for the warehouse benches: realistic columns, made without a Python object per row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tasc_pipeline.warehouse.schemas import TOKEN_EVENTS, TRACES

HOUR_MS = 3_600_000
START_MS = 1_795_953_600_000
BUCKETS = tuple(f"chars-{2**n}-{2 ** (n + 1) - 1}" for n in range(6, 14))
ROLES = ("champion", "candidate")


def window_key(number: int) -> str:
    return f"hourly-{number:06d}.r01-{number:08x}"


def traces(number: int, rows: int) -> pa.Table:
    """One window: half champion, half candidate, in sort order; four random 32-byte identities per row."""
    source = np.random.default_rng(number)
    pairs = rows // 2
    case = np.arange(pairs) // 2
    columns: dict[str, pa.Array] = {}
    n = pairs * 2

    def words(values: Sequence[str], index: np.ndarray) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(index.astype(np.int32)), pa.array(values)).cast(pa.string())

    def identities() -> pa.Array:
        return pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), n, [None, pa.py_buffer(source.bytes(32 * n))])

    def numbers(values: np.ndarray, missing: np.ndarray) -> pa.Array:
        return pa.array(values, mask=missing)

    role = np.repeat(np.array([1, 0]), pairs)
    both = np.concatenate([case, case])
    bucket = both % len(BUCKETS)
    scale = np.where(role == 0, 1.0, 0.9)
    failed = source.random(n) < 0.01
    ttft = np.round((60 + 25 * bucket) * scale * source.lognormal(0, 0.2, n), 6)
    itl = np.round(9 * scale * source.lognormal(0, 0.1, n), 6)
    tokens = source.integers(32, 512, n)
    started = (
        START_MS
        + number * HOUR_MS
        + np.concatenate([np.arange(pairs), np.arange(pairs)]) * max(HOUR_MS // max(pairs, 1), 1)
    )
    nothing = np.ones(n, dtype=bool)
    constants = {
        "window_key": window_key(number),
        "study_id": "bench",
        "runtime": "vllm",
        "backend": "vllm 0.26.0",
        "model_id": "qwen3-8b",
        "route": "completions",
        "framing": "sse",
        "state": "accepted",
        "dispatch_state": "completed",
        "cost_class": "modeled",
    }
    for name, value in constants.items():
        columns[name] = words([value], np.zeros(n))
    columns |= {
        "role": words(ROLES, role),
        "profile_id": words(("vllm-0-26-0", "vllm-0-33-0"), role),
        "build": words(("0.26.0", "0.33.0"), role),
        "case_id": words([f"case-{i:06d}" for i in range(pairs // 2 + 1)], both),
        "group_id": words([f"group-{i:06d}" for i in range(pairs // 2 + 1)], both),
        "replicate": pa.array(np.concatenate([np.arange(pairs) % 2] * 2).astype(np.int64)),
        "trace_id": identities(),
        "replicate_id": identities(),
        "request_identity": identities(),
        "terminal_output_identity": identities(),
        "slices": pa.array([["short"]] * n, pa.list_(pa.string())),
        "weight": pa.array(np.ones(n)),
        "input_token_estimate": pa.array((16 * 2**bucket).astype(np.int64)),
        "case_length_bucket": words(BUCKETS, bucket),
        "status": words(("success", "failure"), failed),
        "failure_category": pa.array(np.where(failed, "timeout", None), pa.string()),
        "fault_reason": pa.nulls(n, pa.string()),
        "finish_reason": pa.array(np.where(failed, None, "stop"), pa.string()),
        "attempts": pa.array(np.ones(n, dtype=np.int64)),
        "started_at": pa.array(started).cast(pa.timestamp("ms", tz="UTC")),
        "start_hour": pa.array(started - started % HOUR_MS).cast(pa.timestamp("ms", tz="UTC")),
        "ttft_ms": numbers(ttft, failed),
        "itl_p50_ms": numbers(itl, failed),
        "itl_p95_ms": numbers(np.round(itl * 1.7, 6), failed),
        "tpot_ms": numbers(np.round(itl * 1.02, 6), failed),
        "e2e_ms": numbers(np.round(ttft + itl * tokens, 6), failed),
        "queue_ms": pa.array(np.round(source.random(n), 6)),
        "connect_ms": pa.array(np.round(0.2 + source.random(n) / 10, 6)),
        "tls_ms": numbers(np.zeros(n), nothing),
        "input_tokens": numbers(16 * 2**bucket, failed),
        "input_tokens_cached": numbers(source.integers(0, 4, n) * 16, failed),
        "output_tokens": numbers(tokens, failed),
        "reasoning_tokens": numbers(np.zeros(n, dtype=np.int64), nothing),
        "token_event_count": numbers(tokens, failed),
        "tokens_per_event": numbers(np.ones(n), failed),
        "collector_lag_ms": pa.array(np.round(source.random(n) / 10, 6)),
        "arrival_uncertainty_ms": numbers(np.zeros(n), failed),
        "timing_flagged": pa.array(np.zeros(n, dtype=bool)),
        "peer": words(("peer-0", "peer-1", "peer-2"), source.integers(0, 3, n)),
        "cost_usd": numbers(tokens * 4e-7, failed),
    }
    return TRACES.from_columns(columns)


def token_events(number: int, executions: int, events: int) -> pa.Table:
    """One window's token events: ``events`` for each of ``executions``."""
    source = np.random.default_rng(number)
    n = executions * events
    of = np.repeat(np.arange(executions), events)
    index = np.tile(np.arange(events), executions)
    gaps = (9e6 * source.lognormal(0, 0.2, n)).astype(np.int64)
    first = index == 0
    offsets = np.cumsum(np.where(first, 0, gaps))
    offsets = (
        offsets
        - np.repeat(offsets[first], events)
        + np.repeat((80e6 * source.lognormal(0, 0.2, executions)).astype(np.int64), events)
    )
    role = (of >= executions // 2).astype(np.int32)
    ids = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(32), executions, [None, pa.py_buffer(source.bytes(32 * executions))]
    )

    def words(values: Sequence[str], places: np.ndarray) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int32)), pa.array(values)).cast(pa.string())

    return TOKEN_EVENTS.from_columns(
        {
            "window_key": words([window_key(number)], np.zeros(n)),
            "role": words(("candidate", "champion"), role),
            "profile_id": words(("vllm-0-33-0", "vllm-0-26-0"), role),
            "case_id": words([f"case-{i:06d}" for i in range(executions)], of % max(executions // 2, 1)),
            "replicate": pa.array(np.zeros(n, dtype=np.int64)),
            "trace_id": ids.take(pa.array(of)),
            "event_index": pa.array(index),
            "offset_ns": pa.array(offsets),
            "gap_ns": pa.array(gaps, mask=first),
            "tokens": pa.array(np.ones(n, dtype=np.int64)),
            "kind": words(("answer",), np.zeros(n)),
            "uncertainty_ns": pa.array(np.zeros(n, dtype=np.int64)),
        }
    )
