"""vLLM 0.26.0.

Its oddities: the stream of a failed request ends with an error frame *and* ``[DONE]`` under status 200; the finish
chunk carries the last text; a truncated Responses answer arrives as ``response.completed`` with status ``incomplete``;
400 messages repeat the whole request, so error bodies are never kept.
"""

from __future__ import annotations

from tasc_collector.runtimes.flags import OPENAI_REASONS, DialectFlags
from tasc_collector.runtimes.profile import (
    CanonicalMetric,
    Capability,
    Dialect,
    Effect,
    Evidence,
    Expectation,
    InvocationRoute,
    Locality,
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
from tasc_collector.runtimes.tables import ASK_USAGE, BACKEND, CONFIGURATION, MODEL, NO_SEED_NO_STOP, Claims, same_path
from tasc_collector.runtimes.verdict import FinishReason

_SOURCE = Claims("https://github.com/vllm-project/vllm/blob/v0.26.0/", "vLLM 0.26.0", Evidence.LIVE)
_CHAT_PAGE = "vllm/entrypoints/openai/chat_completion/protocol.py"
_COMPLETION_PAGE = "vllm/entrypoints/openai/completion/protocol.py"
_RESPONSES_PAGE = "vllm/entrypoints/openai/responses/serving.py"
_METRICS_PAGE = "vllm/v1/metrics/loggers.py"
_HEALTH_PAGE = "vllm/entrypoints/serve/instrumentator/health.py"

_FLAGS = DialectFlags(
    reason_map={**OPENAI_REASONS, "repetition": FinishReason.REPETITION},
    fingerprint="vllm-{build}-",
)

PROFILE = RuntimeProfile(
    runtime="vllm",
    build="0.26.0",
    display_name="vLLM",
    tier=Tier.PRODUCTION_CANDIDATE,
    locality=Locality.REMOTE_OR_LOCAL,
    dialect=Dialect.OPENAI,
    port=8000,
    recognition=Recognition(owner="vllm", build=WireField("/version", "version")),
    capabilities={
        Capability.CHAT_COMPLETIONS: _SOURCE.conditional("The model needs a usable chat template.", _CHAT_PAGE, MODEL),
        Capability.COMPLETIONS: _SOURCE.supported("Served for every generate model.", _COMPLETION_PAGE),
        Capability.RESPONSES: _SOURCE.conditional(
            "Text models with a chat template; storing and background need an environment switch.",
            _RESPONSES_PAGE,
            MODEL,
        ),
        Capability.NATIVE_CHAT: _SOURCE.unknown("No native chat route is registered for this build."),
        Capability.NATIVE_GENERATE: _SOURCE.unknown(
            "A native generate route exists in the build; no contract is registered for it.",
            "vllm/entrypoints/openai/api_server.py",
        ),
        Capability.STREAMING: _SOURCE.supported("Server-sent events on all three routes.", _CHAT_PAGE),
        Capability.FINAL_USAGE: _SOURCE.conditional(
            "A stream ends with usage only if the request asks for it, which ours always do.", _CHAT_PAGE, CONFIGURATION
        ),
        Capability.LOGPROBS: _SOURCE.conditional(
            "The greatest number per token is a server setting.",
            _CHAT_PAGE,
            MODEL,
            CONFIGURATION,
            requirement="--max-logprobs",
        ),
        Capability.STRUCTURED_OUTPUT: _SOURCE.conditional(
            "Depends on the guided-decoding backend and the model.",
            "vllm/v1/structured_output/__init__.py",
            MODEL,
            CONFIGURATION,
        ),
        Capability.TOOLS: _SOURCE.conditional(
            "Needs a parser for the model's family; without it a request is refused.",
            _CHAT_PAGE,
            MODEL,
            CONFIGURATION,
            requirement="--enable-auto-tool-choice --tool-call-parser",
        ),
        Capability.CANCELLATION: _SOURCE.supported(
            "A closed connection ends the generation on chat and completions; the abort counter stays at zero.",
            "vllm/entrypoints/serve/utils/server_utils.py",
        ),
        Capability.MODEL_DISCOVERY: _SOURCE.supported(
            "/v1/models lists the served names.", "vllm/entrypoints/openai/models/protocol.py"
        ),
        Capability.LIVENESS: _SOURCE.supported(
            "/health answers 200 with an empty body; it also does while the engine hangs.", _HEALTH_PAGE
        ),
        Capability.READINESS: _SOURCE.unknown("The build has no passive readiness route.", _HEALTH_PAGE),
        Capability.PROMETHEUS_METRICS: _SOURCE.supported("/metrics is always mounted.", _METRICS_PAGE),
        Capability.JSON_METRICS: _SOURCE.unsupported("The build has no JSON metrics route.", _METRICS_PAGE),
        Capability.SEED_DETERMINISM: _SOURCE.conditional(
            "A seed is honoured; results still vary with the batch.",
            _CHAT_PAGE,
            BACKEND,
            CONFIGURATION,
            requirement="VLLM_BATCH_INVARIANT",
            evidence=Evidence.SOURCE,
        ),
    },
    routes=routes(
        InvocationRoute(
            Route.CHAT_COMPLETIONS,
            Protocol.OPENAI_CHAT,
            same_path("/v1/chat/completions"),
            RequestShape("max_completion_tokens", stream_fixed=ASK_USAGE),
            _FLAGS,
        ),
        InvocationRoute(
            Route.COMPLETIONS,
            Protocol.OPENAI_COMPLETIONS,
            same_path("/v1/completions"),
            RequestShape("max_tokens", stream_fixed=ASK_USAGE),
            _FLAGS,
        ),
        InvocationRoute(
            Route.RESPONSES,
            Protocol.OPENAI_RESPONSES,
            same_path("/v1/responses"),
            RequestShape("max_output_tokens", fixed={"store": False}, forbids=NO_SEED_NO_STOP),
            DialectFlags(has_done=False, event_lines=True, status_tells_truncation=True),
            note="When the engine dies, the stream breaks without a terminal event.",
        ),
    ),
    observations=(
        ObservationRoute(
            ObservationKind.MODELS,
            "/v1/models",
            Effect.NON_MUTATING,
            Expectation.OPENAI_MODELS,
            fields=("data[].id", "data[].max_model_len"),
            note="`root` is a path and is dropped; `created` is the time of the call.",
        ),
        ObservationRoute(
            ObservationKind.LIVENESS,
            "/health",
            Effect.NON_MUTATING,
            Expectation.EMPTY_BODY,
            note="200 while the engine hangs; after the engine died the server exits, so 503 may never be seen.",
        ),
        ObservationRoute(
            ObservationKind.VERSION, "/version", Effect.NON_MUTATING, Expectation.VERSION, fields=("version",)
        ),
        ObservationRoute(
            ObservationKind.PROMETHEUS,
            "/metrics",
            Effect.NON_MUTATING,
            Expectation.PROMETHEUS_TEXT,
            note="`vllm:` series are gone with --disable-log-stats; several front ends repeat gauges per pid.",
        ),
    ),
    references=(
        Reference("vLLM 0.26.0 release", "https://github.com/vllm-project/vllm/releases/tag/v0.26.0"),
        Reference("OpenAI-compatible server", "https://docs.vllm.ai/en/v0.26.0/serving/openai_compatible_server/"),
    ),
    metrics={
        CanonicalMetric.REQUESTS_RUNNING: MetricSource(("vllm:num_requests_running",), Reduce.SUM),
        CanonicalMetric.REQUESTS_WAITING: MetricSource(("vllm:num_requests_waiting",), Reduce.SUM),
        CanonicalMetric.KV_CACHE_UTILIZATION: MetricSource(
            ("vllm:kv_cache_usage_perc",), Reduce.MAX, note="From 0 to 1, despite its name."
        ),
        CanonicalMetric.PROMPT_TOKENS_TOTAL: MetricSource(
            ("vllm:prompt_tokens_total",), Reduce.SUM, note="Includes cached tokens."
        ),
        CanonicalMetric.GENERATION_TOKENS_TOTAL: MetricSource(("vllm:generation_tokens_total",), Reduce.SUM),
        CanonicalMetric.TTFT_SECONDS: MetricSource(("vllm:time_to_first_token_seconds",), Reduce.HISTOGRAM),
        CanonicalMetric.ITL_SECONDS: MetricSource(("vllm:inter_token_latency_seconds",), Reduce.HISTOGRAM),
        CanonicalMetric.TPOT_SECONDS: MetricSource(("vllm:request_time_per_output_token_seconds",), Reduce.HISTOGRAM),
        CanonicalMetric.E2E_SECONDS: MetricSource(("vllm:e2e_request_latency_seconds",), Reduce.HISTOGRAM),
    },
)
