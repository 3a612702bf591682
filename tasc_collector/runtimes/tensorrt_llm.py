"""TensorRT-LLM 1.2.1, read in the two source snapshots that bracket the release.

Its oddities: unknown request fields are refused; a failed executor answers 200 with the body ``null``, or on Responses
with only ``detail``; ids change per chunk; ``/metrics`` is JSON and each read drains it.
"""

from __future__ import annotations

from tasc_collector.runtimes.flags import OPENAI_REASONS, DialectFlags, ErrorShape
from tasc_collector.runtimes.profile import (
    CanonicalMetric,
    Capability,
    Dialect,
    Effect,
    Evidence,
    Expectation,
    InvocationRoute,
    Locality,
    MetricFormat,
    MetricSource,
    ObservationKind,
    ObservationRoute,
    Protocol,
    Recognition,
    Reduce,
    Reference,
    RequestShape,
    Route,
    RuntimeProfile,
    Tier,
    WireField,
    routes,
)
from tasc_collector.runtimes.tables import BACKEND, CONFIGURATION, MODEL, NO_SEED_NO_STOP, Claims, same_path
from tasc_collector.runtimes.verdict import FinishReason

_SOURCE = Claims("https://github.com/NVIDIA/TensorRT-LLM/blob/v1.2.1/", "TensorRT-LLM 1.2.1", Evidence.NEAREST_SOURCE)
_PROTOCOL = "tensorrt_llm/serve/openai_protocol.py"
_SERVER = "tensorrt_llm/serve/openai_server.py"

_REASONS = {**OPENAI_REASONS, "timeout": FinishReason.CANCELLED}
_FLAGS = DialectFlags(reason_map=_REASONS, error_frame_shape=frozenset({ErrorShape.FLAT}))
_ONE_USAGE = {"stream_options": {"include_usage": True, "continuous_usage_stats": False}}
"""Asking for usage alone would put it on every chunk."""

PROFILE = RuntimeProfile(
    runtime="tensorrt-llm",
    build="1.2.1",
    display_name="TensorRT-LLM",
    tier=Tier.PRODUCTION_CANDIDATE,
    locality=Locality.REMOTE_OR_LOCAL,
    dialect=Dialect.OPENAI,
    port=8000,
    recognition=Recognition(owner="tensorrt_llm", build=WireField("/version", "version")),
    capabilities={
        Capability.CHAT_COMPLETIONS: _SOURCE.conditional("The model needs a chat template.", _SERVER, MODEL),
        Capability.COMPLETIONS: _SOURCE.supported("Served for every generation model.", _SERVER),
        Capability.RESPONSES: _SOURCE.conditional(
            "Around this release it serves either one model family or all.", _SERVER, MODEL
        ),
        Capability.NATIVE_CHAT: _SOURCE.unknown("No native chat route is known.", _SERVER),
        Capability.NATIVE_GENERATE: _SOURCE.unknown("No native generate route is known.", _SERVER),
        Capability.STREAMING: _SOURCE.supported("Server-sent events on all three routes.", _SERVER),
        Capability.FINAL_USAGE: _SOURCE.conditional(
            "A stream has usage only if the request asks for it, which ours always do.", _PROTOCOL, CONFIGURATION
        ),
        Capability.LOGPROBS: _SOURCE.conditional(
            "Chat only; the TensorRT backend needs gathered logits.",
            _PROTOCOL,
            BACKEND,
            MODEL,
            requirement="gather_generation_logits",
        ),
        Capability.STRUCTURED_OUTPUT: _SOURCE.conditional(
            "Needs a guided-decoding backend.", _PROTOCOL, BACKEND, MODEL, requirement="guided_decoding_backend"
        ),
        Capability.TOOLS: _SOURCE.conditional(
            "Needs a parser for the model's family.", _SERVER, MODEL, CONFIGURATION, requirement="--tool_parser"
        ),
        Capability.CANCELLATION: _SOURCE.conditional(
            "A closed connection is noticed within a second and the request aborted.", _SERVER, BACKEND
        ),
        Capability.MODEL_DISCOVERY: _SOURCE.supported("/v1/models lists the served name.", _SERVER),
        Capability.LIVENESS: _SOURCE.supported("/health answers with an empty body.", _SERVER),
        Capability.READINESS: _SOURCE.conditional("/health_generate runs a one-token chat.", _SERVER, MODEL),
        Capability.PROMETHEUS_METRICS: _SOURCE.conditional(
            "Mounted only with performance metrics on.", _SERVER, CONFIGURATION, requirement="return_perf_metrics: true"
        ),
        Capability.JSON_METRICS: _SOURCE.conditional(
            "Iteration statistics must be on for the backend; otherwise every read is an empty list, and no error.",
            _SERVER,
            BACKEND,
            CONFIGURATION,
            requirement="enable_iter_perf_stats: true",
        ),
        Capability.SEED_DETERMINISM: _SOURCE.conditional(
            "A seed is taken; equal results across batches are not promised.", _PROTOCOL, BACKEND, CONFIGURATION
        ),
    },
    routes=routes(
        InvocationRoute(
            Route.CHAT_COMPLETIONS,
            Protocol.OPENAI_CHAT,
            same_path("/v1/chat/completions"),
            RequestShape("max_completion_tokens", stream_fixed=_ONE_USAGE),
            _FLAGS,
        ),
        InvocationRoute(
            Route.COMPLETIONS,
            Protocol.OPENAI_COMPLETIONS,
            same_path("/v1/completions"),
            RequestShape("max_tokens", stream_fixed=_ONE_USAGE),
            _FLAGS,
        ),
        InvocationRoute(
            Route.RESPONSES,
            Protocol.OPENAI_RESPONSES,
            same_path("/v1/responses"),
            RequestShape("max_output_tokens", fixed={"store": False}, forbids=NO_SEED_NO_STOP),
            DialectFlags(
                has_done=False,
                event_lines=True,
                error_frame_shape=frozenset({ErrorShape.FLAT, ErrorShape.DETAIL}),
            ),
            note="Conditional at this release: the early snapshot serves one model family only.",
        ),
    ),
    observations=(
        ObservationRoute(
            ObservationKind.MODELS,
            "/v1/models",
            Effect.NON_MUTATING,
            Expectation.OPENAI_MODELS,
            fields=("data[].id",),
        ),
        ObservationRoute(
            ObservationKind.LIVENESS,
            "/health",
            Effect.NON_MUTATING,
            Expectation.EMPTY_BODY,
            note="May answer 200 whatever the engine's state; after a rank crashed it may stay at 503.",
        ),
        ObservationRoute(
            ObservationKind.READINESS,
            "/health_generate",
            Effect.INFERENCE_CANARY,
            Expectation.EXACT_TEXT,
            text="Generation health check OK",
            note="Runs a one-token chat.",
        ),
        ObservationRoute(
            ObservationKind.VERSION,
            "/version",
            Effect.NON_MUTATING,
            Expectation.VERSION,
            fields=("version",),
        ),
        ObservationRoute(
            ObservationKind.JSON_METRICS,
            "/metrics",
            Effect.CONSUMPTIVE,
            Expectation.ITERATION_STATS,
            fields=(
                "gpuMemUsage",
                "cpuMemUsage",
                "iter",
                "iterLatencyMS",
                "numActiveRequests",
                "numQueuedRequests",
                "numCompletedRequests",
                "maxNumActiveRequests",
                "kvCacheStats.allocNewBlocks",
                "kvCacheStats.allocTotalBlocks",
                "kvCacheStats.cacheHitRate",
                "kvCacheStats.freeNumBlocks",
                "kvCacheStats.maxNumBlocks",
                "kvCacheStats.missedBlocks",
                "kvCacheStats.reusedBlocks",
                "kvCacheStats.tokensPerBlock",
                "kvCacheStats.usedNumBlocks",
                "inflightBatchingStats.numScheduledRequests",
                "inflightBatchingStats.numContextRequests",
                "inflightBatchingStats.numGenRequests",
                "inflightBatchingStats.numPausedRequests",
            ),
            requirement="enable_iter_perf_stats: true",
            note="A read drains the queue of iteration records and may take about 2 s; an empty list is no error.",
        ),
        ObservationRoute(
            ObservationKind.PROMETHEUS,
            "/prometheus/metrics",
            Effect.NON_MUTATING,
            Expectation.PROMETHEUS_TEXT,
            requirement="return_perf_metrics: true",
            note="Families have no prefix; the model label is the word undefined.",
        ),
    ),
    references=(Reference("TensorRT-LLM 1.2.1 release", "https://github.com/NVIDIA/TensorRT-LLM/releases/tag/v1.2.1"),),
    metrics={
        CanonicalMetric.REQUESTS_RUNNING: MetricSource(("numActiveRequests",), Reduce.SUM, MetricFormat.JSON),
        CanonicalMetric.REQUESTS_WAITING: MetricSource(("numQueuedRequests",), Reduce.SUM, MetricFormat.JSON),
        CanonicalMetric.KV_CACHE_UTILIZATION: MetricSource(
            ("kvCacheStats.usedNumBlocks", "kvCacheStats.maxNumBlocks"), Reduce.RATIO, MetricFormat.JSON
        ),
        CanonicalMetric.TTFT_SECONDS: MetricSource(("time_to_first_token_seconds",), Reduce.HISTOGRAM),
        CanonicalMetric.TPOT_SECONDS: MetricSource(("time_per_output_token_seconds",), Reduce.HISTOGRAM),
        CanonicalMetric.E2E_SECONDS: MetricSource(("e2e_request_latency_seconds",), Reduce.HISTOGRAM),
    },
)
