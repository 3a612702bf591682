"""SGLang 0.5.16.

Its oddities: ``/health`` generates a token unless the launch environment turns that off; an error frame is followed by
the usage chunk and ``[DONE]``; frames with empty ``choices`` need not be usage; a whole Responses body counts with the
old names while its stream uses the new ones; ``/server_info`` holds API keys.
"""

from __future__ import annotations

from tasc_collector.runtimes.flags import DialectFlags, ErrorShape
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
from tasc_collector.runtimes.tables import ASK_USAGE, CONFIGURATION, MODEL, NO_SEED_NO_STOP, Claims, same_path

_SOURCE = Claims("https://github.com/sgl-project/sglang/blob/v0.5.16/", "SGLang 0.5.16", Evidence.SOURCE)
_PROTOCOL = "python/sglang/srt/entrypoints/openai/protocol.py"
_CHAT = "python/sglang/srt/entrypoints/openai/serving_chat.py"
_RESPONSES = "python/sglang/srt/entrypoints/openai/serving_responses.py"
_SERVER = "python/sglang/srt/entrypoints/http_server.py"
_METRICS = "python/sglang/srt/observability/metrics_collector.py"

_FLAGS = DialectFlags(error_frame_shape=frozenset({ErrorShape.FLAT}))

PROFILE = RuntimeProfile(
    runtime="sglang",
    build="0.5.16",
    display_name="SGLang",
    tier=Tier.PRODUCTION_CANDIDATE,
    locality=Locality.REMOTE_OR_LOCAL,
    dialect=Dialect.OPENAI,
    port=30000,
    recognition=Recognition(owner="sglang", build=WireField("/server_info", "version")),
    capabilities={
        Capability.CHAT_COMPLETIONS: _SOURCE.conditional("The model needs a chat template.", _CHAT, MODEL),
        Capability.COMPLETIONS: _SOURCE.supported("Served for every generation model.", _PROTOCOL),
        Capability.RESPONSES: _SOURCE.conditional(
            "Only if its handler starts for the model; it stores answers unless told not to.",
            _RESPONSES,
            MODEL,
            CONFIGURATION,
        ),
        Capability.NATIVE_CHAT: _SOURCE.unknown(
            "Ollama look-alike routes exist; no contract is registered for them.", _SERVER
        ),
        Capability.NATIVE_GENERATE: _SOURCE.unknown(
            "/generate exists and streams cumulative text; no contract is registered for it.", _SERVER
        ),
        Capability.STREAMING: _SOURCE.supported("Server-sent events on all three routes.", _CHAT),
        Capability.FINAL_USAGE: _SOURCE.conditional(
            "A stream ends with usage only if the request asks for it, which ours always do.", _CHAT, CONFIGURATION
        ),
        Capability.LOGPROBS: _SOURCE.conditional("Limits vary with model and backend.", _PROTOCOL, MODEL),
        Capability.STRUCTURED_OUTPUT: _SOURCE.conditional(
            "A grammar backend is on by default; what it does not know fails.",
            _PROTOCOL,
            MODEL,
            CONFIGURATION,
            requirement="--grammar-backend",
        ),
        Capability.TOOLS: _SOURCE.conditional(
            "Needs a parser for the model's family.", _CHAT, MODEL, CONFIGURATION, requirement="--tool-call-parser"
        ),
        Capability.CANCELLATION: _SOURCE.conditional(
            "A closed connection aborts the request about two seconds later.",
            "python/sglang/srt/managers/tokenizer_manager.py",
            CONFIGURATION,
        ),
        Capability.MODEL_DISCOVERY: _SOURCE.supported("/v1/models lists the served name.", _SERVER),
        Capability.LIVENESS: _SOURCE.conditional(
            "/health may generate a token, so it is a billable call.",
            _SERVER,
            CONFIGURATION,
            requirement="SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION",
        ),
        Capability.READINESS: _SOURCE.conditional("/health_generate always generates a token.", _SERVER, MODEL),
        Capability.PROMETHEUS_METRICS: _SOURCE.conditional(
            "Mounted only on request.", _METRICS, CONFIGURATION, requirement="--enable-metrics"
        ),
        Capability.JSON_METRICS: _SOURCE.unsupported(
            "The build has no JSON metrics route of its own contract.", _METRICS
        ),
        Capability.SEED_DETERMINISM: _SOURCE.conditional(
            "A seed is taken; equal results need the deterministic mode.",
            _PROTOCOL,
            CONFIGURATION,
            requirement="--enable-deterministic-inference",
        ),
    },
    routes=routes(
        InvocationRoute(
            Route.CHAT_COMPLETIONS,
            Protocol.OPENAI_CHAT,
            same_path("/v1/chat/completions"),
            RequestShape("max_completion_tokens", stream_fixed=ASK_USAGE),
            _FLAGS,
            note="Any model name is accepted and echoed, so the answer does not verify it.",
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
            DialectFlags(
                has_done=False,
                event_lines=True,
                old_usage_names=True,
                error_frame_shape=frozenset({ErrorShape.FLAT}),
            ),
            note="Status is completed even when the token limit cut the answer.",
        ),
    ),
    observations=(
        ObservationRoute(
            ObservationKind.MODELS,
            "/v1/models",
            Effect.NON_MUTATING,
            Expectation.OPENAI_MODELS,
            fields=("data[].id", "data[].max_model_len"),
        ),
        ObservationRoute(
            ObservationKind.MODEL_INFO,
            "/model_info",
            Effect.NON_MUTATING,
            Expectation.FIELDS,
            fields=(
                "is_generation",
                "weight_version",
                "model_type",
                "architectures",
                "has_image_understanding",
                "has_audio_understanding",
            ),
            note="`model_path` and `tokenizer_path` are dropped.",
        ),
        ObservationRoute(
            ObservationKind.LIVENESS,
            "/health",
            Effect.INFERENCE_CANARY,
            Expectation.EMPTY_BODY,
            note="The handler of /health_generate; about 1 s, 503 in a long prefill, 200 if another call made a token.",
        ),
        ObservationRoute(
            ObservationKind.READINESS,
            "/health_generate",
            Effect.INFERENCE_CANARY,
            Expectation.EMPTY_BODY,
            note="Generates one token.",
        ),
        ObservationRoute(
            ObservationKind.VERSION,
            "/server_info",
            Effect.NON_MUTATING,
            Expectation.FIELDS,
            fields=(
                "version",
                "tp_size",
                "dp_size",
                "pp_size",
                "quantization",
                "kv_cache_dtype",
                "attention_backend",
                "max_running_requests",
                "chunked_prefill_size",
                "mem_fraction_static",
                "disable_radix_cache",
            ),
            note="Holds api_key, admin_api_key and ssl_keyfile_password in clear: only listed fields are read out.",
        ),
        ObservationRoute(
            ObservationKind.PROMETHEUS,
            "/metrics",
            Effect.NON_MUTATING,
            Expectation.PROMETHEUS_TEXT,
            requirement="--enable-metrics",
            note="Multiprocess registry: series carry pid and rank labels.",
        ),
    ),
    references=(Reference("SGLang 0.5.16 release", "https://github.com/sgl-project/sglang/releases/tag/v0.5.16"),),
    metrics={
        CanonicalMetric.REQUESTS_RUNNING: MetricSource(("sglang:num_running_reqs",), Reduce.SUM),
        CanonicalMetric.REQUESTS_WAITING: MetricSource(("sglang:num_queue_reqs",), Reduce.SUM),
        CanonicalMetric.KV_CACHE_UTILIZATION: MetricSource(
            ("sglang:full_token_usage", "sglang:token_usage"),
            Reduce.MAX,
            note="token_usage is the greatest of several pools, not the KV cache alone.",
        ),
        CanonicalMetric.PROMPT_TOKENS_TOTAL: MetricSource(("sglang:prompt_tokens_total",), Reduce.SUM),
        CanonicalMetric.GENERATION_TOKENS_TOTAL: MetricSource(("sglang:generation_tokens_total",), Reduce.SUM),
        CanonicalMetric.TTFT_SECONDS: MetricSource(("sglang:time_to_first_token_seconds",), Reduce.HISTOGRAM),
        CanonicalMetric.ITL_SECONDS: MetricSource(("sglang:inter_token_latency_seconds",), Reduce.HISTOGRAM),
        CanonicalMetric.E2E_SECONDS: MetricSource(("sglang:e2e_request_latency_seconds",), Reduce.HISTOGRAM),
    },
)
