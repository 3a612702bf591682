"""llama.cpp server, build b10156.

Its oddities: after an error frame no ``[DONE]`` comes; the model field is an alias or a file path, whatever was asked
for; text completions carry usage on the finish chunk; a multi-prompt stream begins with ``data: null``; usage covers
the first choice only; Responses always says completed.
"""

from __future__ import annotations

from dataclasses import replace

from tasc_collector.runtimes.flags import DialectFlags, UsagePosition
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

_SOURCE = Claims("https://github.com/ggml-org/llama.cpp/blob/b10156/", "llama.cpp b10156", Evidence.LIVE)
_README = "tools/server/README.md"
_CONTEXT = "tools/server/server-context.cpp"
_ROUTES = "tools/server/server.cpp"

_FLAGS = DialectFlags(
    model_paths=True,
    usage_first_choice_only=True,
    fingerprint="{build}-",
    fingerprint_unverifiable="b0-",
)

PROFILE = RuntimeProfile(
    runtime="llama.cpp",
    build="b10156",
    display_name="llama.cpp",
    tier=Tier.PRODUCTION_CANDIDATE,
    locality=Locality.REMOTE_OR_LOCAL,
    dialect=Dialect.OPENAI,
    port=8080,
    recognition=Recognition(owner="llamacpp", build=WireField("/props", "build_info", r"^(b[1-9][0-9]*)-")),
    capabilities={
        Capability.CHAT_COMPLETIONS: _SOURCE.conditional(
            "The model needs a template that the server can run.", _README, MODEL, CONFIGURATION
        ),
        Capability.COMPLETIONS: _SOURCE.supported("Served for every generation model.", _README),
        Capability.RESPONSES: _SOURCE.conditional("Stands on the chat route and its template.", _README, MODEL),
        Capability.NATIVE_CHAT: _SOURCE.unknown("No native chat route is registered for this build.", _ROUTES),
        Capability.NATIVE_GENERATE: _SOURCE.unknown(
            "/completion exists and echoes the prompt; no contract is registered for it.", _ROUTES
        ),
        Capability.STREAMING: _SOURCE.supported("Server-sent events on all three routes.", _CONTEXT),
        Capability.FINAL_USAGE: _SOURCE.conditional(
            "A chat stream ends with usage only if the request asks for it; text completions always have it.",
            _CONTEXT,
            CONFIGURATION,
        ),
        Capability.LOGPROBS: _SOURCE.conditional(
            "Refused together with tools in a stream; text completions answer in the chat shape.", _README, MODEL
        ),
        Capability.STRUCTURED_OUTPUT: _SOURCE.conditional(
            "Grammar and JSON schema; what the grammar cannot say fails.", _README, MODEL, CONFIGURATION
        ),
        Capability.TOOLS: _SOURCE.conditional(
            "Needs a template with tools; otherwise a required tool is ignored.",
            _README,
            MODEL,
            CONFIGURATION,
            requirement="--jinja",
        ),
        Capability.CANCELLATION: _SOURCE.supported(
            "A closed connection ends the generation of a stream, whose tokens are then missing from the counters; a whole "
            "answer is generated to its end.",
            _CONTEXT,
        ),
        Capability.MODEL_DISCOVERY: _SOURCE.supported("/v1/models lists the one loaded model.", _README),
        Capability.LIVENESS: _SOURCE.supported("/health answers ok, and 503 while loading.", _README),
        Capability.READINESS: _SOURCE.unknown("Load state is not accepted as a promise to serve.", _README),
        Capability.PROMETHEUS_METRICS: _SOURCE.conditional(
            "501 unless asked for.", _README, CONFIGURATION, requirement="--metrics"
        ),
        Capability.JSON_METRICS: _SOURCE.unsupported(
            "The build has no JSON metrics route of its own contract.", _ROUTES
        ),
        Capability.SEED_DETERMINISM: _SOURCE.conditional(
            "A seed is honoured; reuse of a cached prefix changes the arithmetic.", _README, CONFIGURATION
        ),
    },
    routes=routes(
        InvocationRoute(
            Route.CHAT_COMPLETIONS,
            Protocol.OPENAI_CHAT,
            same_path("/v1/chat/completions"),
            RequestShape("max_tokens", stream_fixed=ASK_USAGE),
            _FLAGS,
            note="Never send X-Conversation-Id: the server then goes on generating after a disconnect.",
        ),
        InvocationRoute(
            Route.COMPLETIONS,
            Protocol.OPENAI_COMPLETIONS,
            same_path("/v1/completions"),
            RequestShape("max_tokens", stream_fixed=ASK_USAGE),
            replace(_FLAGS, usage_position=UsagePosition.FINISH, null_frames=True),
            note="/completions without /v1 is another, native route.",
        ),
        InvocationRoute(
            Route.RESPONSES,
            Protocol.OPENAI_RESPONSES,
            same_path("/v1/responses"),
            RequestShape("max_output_tokens", forbids=NO_SEED_NO_STOP),
            replace(_FLAGS, has_done=False, event_lines=True, usage_first_choice_only=False),
            note="No sequence numbers; status is completed even when the token limit cut the answer.",
        ),
    ),
    observations=(
        ObservationRoute(
            ObservationKind.MODELS,
            "/v1/models",
            Effect.NON_MUTATING,
            Expectation.OPENAI_MODELS,
            fields=(
                "data[].id",
                "data[].meta.n_ctx_train",
                "data[].meta.n_params",
                "data[].meta.size",
                "data[].meta.ftype",
            ),
            note="The id is an alias or a file path; a path is dropped.",
        ),
        ObservationRoute(
            ObservationKind.MODEL_INFO,
            "/props",
            Effect.NON_MUTATING,
            Expectation.FIELDS,
            fields=("build_info", "total_slots", "default_generation_settings.n_ctx"),
            note="Holds the chat template and the model's path: only the listed fields are ever read out.",
        ),
        ObservationRoute(
            ObservationKind.VERSION,
            "/props",
            Effect.NON_MUTATING,
            Expectation.FIELDS,
            fields=("build_info",),
            note="Binaries of the Python package say b0-unknown, so the build cannot be verified there.",
        ),
        ObservationRoute(
            ObservationKind.LIVENESS,
            "/health",
            Effect.NON_MUTATING,
            Expectation.STATUS_OK,
            note="503 while a model loads.",
        ),
        ObservationRoute(
            ObservationKind.PROMETHEUS,
            "/metrics",
            Effect.NON_MUTATING,
            Expectation.PROMETHEUS_TEXT,
            requirement="--metrics",
            note="501 without the option. The header Process-Start-Time-Unix is no Unix time.",
        ),
    ),
    references=(Reference("llama.cpp b10156 release", "https://github.com/ggml-org/llama.cpp/releases/tag/b10156"),),
    metrics={
        CanonicalMetric.REQUESTS_RUNNING: MetricSource(("llamacpp:requests_processing",), Reduce.SUM),
        CanonicalMetric.REQUESTS_WAITING: MetricSource(("llamacpp:requests_deferred",), Reduce.SUM),
        CanonicalMetric.PROMPT_TOKENS_TOTAL: MetricSource(("llamacpp:prompt_tokens_total",), Reduce.SUM),
        CanonicalMetric.GENERATION_TOKENS_TOTAL: MetricSource(
            ("llamacpp:tokens_predicted_total",), Reduce.SUM, note="Cancelled requests are not in it."
        ),
    },
)
