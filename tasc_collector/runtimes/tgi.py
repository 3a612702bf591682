"""Text Generation Inference 3.3.7, archived upstream.

Its oddities: chat streams end with raw reasons (``eos_token``, ``stop_sequence``) and an empty ``id``; an error frame
is followed by ``[DONE]``; the native stream ends with the frame that has ``generated_text`` and names no model;
``/health`` runs a prefill once the server was unhealthy.
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
    Framing,
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
from tasc_collector.runtimes.tables import ASK_USAGE, CONFIGURATION, MODEL, Claims, same_path
from tasc_collector.runtimes.verdict import FinishReason

_SOURCE = Claims("https://github.com/huggingface/text-generation-inference/blob/v3.3.7/", "TGI 3.3.7", Evidence.SOURCE)
_SERVER = "router/src/server.rs"
_LIB = "router/src/lib.rs"
_CHAT = "router/src/chat.rs"
_BACKEND = "backends/v3/src/backend.rs"

_REASONS = {**OPENAI_REASONS, "eos_token": FinishReason.STOP, "stop_sequence": FinishReason.STOP}

PROFILE = RuntimeProfile(
    runtime="tgi",
    build="3.3.7",
    display_name="Text Generation Inference",
    tier=Tier.LEGACY,
    locality=Locality.REMOTE_OR_LOCAL,
    dialect=Dialect.OPENAI,
    port=3000,
    recognition=Recognition(
        sign=WireField("/info", "model_id"),
        build=WireField("/info", "version", r"^([0-9]+\.[0-9]+\.[0-9]+)$"),
        revision=WireField("/info", "model_sha", r"^([0-9a-f]{40})$"),
    ),
    capabilities={
        Capability.CHAT_COMPLETIONS: _SOURCE.conditional("The model needs a chat template.", _CHAT, MODEL),
        Capability.COMPLETIONS: _SOURCE.unknown(
            "/v1/completions exists in the source; no contract is registered for it.", _SERVER
        ),
        Capability.RESPONSES: _SOURCE.unsupported("The archived server has no Responses route.", _SERVER),
        Capability.NATIVE_CHAT: _SOURCE.unknown("The build has no native chat route that is registered.", _SERVER),
        Capability.NATIVE_GENERATE: _SOURCE.supported(
            "/generate and /generate_stream are the build's own contract; no model is named, so no window admits them.",
            _SERVER,
        ),
        Capability.STREAMING: _SOURCE.supported("Server-sent events on chat and /generate_stream.", _SERVER),
        Capability.FINAL_USAGE: _SOURCE.supported(
            "Chat has a usage chunk on request; native routes have details.", _LIB
        ),
        Capability.LOGPROBS: _SOURCE.conditional("Limits vary with the model.", _LIB, MODEL),
        Capability.STRUCTURED_OUTPUT: _SOURCE.conditional(
            "Needs grammar support, and excludes tools.",
            _LIB,
            MODEL,
            CONFIGURATION,
            requirement="without --disable-grammar-support",
        ),
        Capability.TOOLS: _SOURCE.conditional(
            "A hidden second generation may run, and usage covers only that one.", _CHAT, MODEL
        ),
        Capability.CANCELLATION: _SOURCE.supported("A dropped receiver ends the generation.", _BACKEND),
        Capability.MODEL_DISCOVERY: _SOURCE.supported("/v1/models lists one entry.", _SERVER),
        Capability.LIVENESS: _SOURCE.supported(
            "/health is passive while the server is healthy; after that it runs a one-token prefill.", _BACKEND
        ),
        Capability.READINESS: _SOURCE.unknown("The build has no separate readiness route.", _SERVER),
        Capability.PROMETHEUS_METRICS: _SOURCE.supported("/metrics is always mounted.", _SERVER),
        Capability.JSON_METRICS: _SOURCE.unsupported("The build has no JSON metrics route.", _SERVER),
        Capability.SEED_DETERMINISM: _SOURCE.conditional(
            "A seed is honoured; results vary with the batch.", _LIB, CONFIGURATION
        ),
    },
    routes=routes(
        InvocationRoute(
            Route.CHAT_COMPLETIONS,
            Protocol.OPENAI_CHAT,
            same_path("/v1/chat/completions"),
            RequestShape("max_tokens", stream_fixed=ASK_USAGE),
            DialectFlags(reason_map=_REASONS),
            note="max_completion_tokens is an alias; both together are refused.",
        ),
        InvocationRoute(
            Route.NATIVE_GENERATE,
            Protocol.TGI_GENERATE,
            {Framing.JSON: "/generate", Framing.SSE: "/generate_stream"},
            RequestShape("max_new_tokens"),
            DialectFlags(has_done=False, names_model=False, frame_tokens=1, reason_map=_REASONS),
            note="Names no model: it can be read and probed, and is never admitted to a window.",
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
            ObservationKind.MODEL_INFO,
            "/info",
            Effect.NON_MUTATING,
            Expectation.FIELDS,
            fields=(
                "model_sha",
                "model_pipeline_tag",
                "max_concurrent_requests",
                "max_best_of",
                "max_stop_sequences",
                "max_input_tokens",
                "max_total_tokens",
                "validation_workers",
                "max_client_batch_size",
                "router",
                "version",
                "sha",
                "docker_label",
            ),
        ),
        ObservationRoute(
            ObservationKind.VERSION,
            "/info",
            Effect.NON_MUTATING,
            Expectation.FIELDS,
            fields=("version", "sha", "docker_label"),
            note="The tag v3.3.7 reports 3.3.6-dev0, so the version cannot verify the build.",
        ),
        ObservationRoute(
            ObservationKind.LIVENESS,
            "/health",
            Effect.NON_MUTATING,
            Expectation.EMPTY_BODY,
            escalates_to=Effect.INFERENCE_CANARY,
            note="After any unhealthy observation each read runs a one-token prefill until the server is healthy again"
            " (v3.3.7 backends/v3/src/backend.rs), so a canary must be authorized.",
        ),
        ObservationRoute(ObservationKind.PROMETHEUS, "/metrics", Effect.NON_MUTATING, Expectation.PROMETHEUS_TEXT),
    ),
    references=(
        Reference("TGI 3.3.7 release", "https://github.com/huggingface/text-generation-inference/releases/tag/v3.3.7"),
    ),
    metrics={
        CanonicalMetric.REQUESTS_RUNNING: MetricSource(
            ("tgi_batch_current_size",), Reduce.SUM, note="Sequences in the batch, not HTTP requests."
        ),
        CanonicalMetric.REQUESTS_WAITING: MetricSource(("tgi_queue_size",), Reduce.SUM),
        CanonicalMetric.PROMPT_TOKENS_TOTAL: MetricSource(("tgi_request_input_length_sum",), Reduce.SUM),
        CanonicalMetric.GENERATION_TOKENS_TOTAL: MetricSource(("tgi_request_generated_tokens_sum",), Reduce.SUM),
        CanonicalMetric.TPOT_SECONDS: MetricSource(
            ("tgi_request_mean_time_per_token_duration",), Reduce.HISTOGRAM, note="A mean per request."
        ),
        CanonicalMetric.E2E_SECONDS: MetricSource(("tgi_request_duration",), Reduce.HISTOGRAM),
    },
)
