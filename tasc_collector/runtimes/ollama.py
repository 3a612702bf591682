"""Ollama 0.32.5, local only.

Its oddities: native routes stream unless told not to; a count of zero is left out; the OpenAI routes swallow an error
in an empty chunk and end without ``[DONE]``; ``max_completion_tokens`` is ignored; cached and reasoning counts of
Responses are a constant zero; models whose name ends in ``cloud``, or that have a remote host, leave the machine.
"""

from __future__ import annotations

from tasc_collector.runtimes.flags import DialectFlags
from tasc_collector.runtimes.profile import (
    Capability,
    Dialect,
    Effect,
    Evidence,
    Expectation,
    Framing,
    InvocationRoute,
    Locality,
    ObservationKind,
    ObservationRoute,
    Protocol,
    Recognition,
    Reference,
    RequestShape,
    ResidencyRule,
    Route,
    RuntimeProfile,
    Tier,
    WireField,
    routes,
)
from tasc_collector.runtimes.tables import ASK_USAGE, CONFIGURATION, MODEL, NO_SEED_NO_STOP, Claims, same_path
from tasc_collector.runtimes.verdict import FinishReason

_SOURCE = Claims("https://github.com/ollama/ollama/blob/v0.32.5/", "Ollama 0.32.5", Evidence.SOURCE)
_ROUTES = "server/routes.go"
_TYPES = "api/types.go"
_OPENAI = "openai/openai.go"
_MIDDLEWARE = "middleware/openai.go"

_OPENAI_FLAGS = DialectFlags(remote_fields=True)
_NATIVE_FLAGS = DialectFlags(
    has_done=False,
    remote_fields=True,
    reason_map={
        "stop": FinishReason.STOP,
        "length": FinishReason.LENGTH,
        "load": FinishReason.LOAD,
        "unload": FinishReason.UNLOAD,
    },
)


def _native(path: str) -> dict[Framing, str]:
    return {Framing.JSON: path, Framing.NDJSON: path}


PROFILE = RuntimeProfile(
    runtime="ollama",
    build="0.32.5",
    display_name="Ollama",
    tier=Tier.PRODUCTION_CANDIDATE,
    locality=Locality.LOCAL_ONLY,
    dialect=Dialect.OLLAMA_NATIVE,
    port=11434,
    recognition=Recognition(
        sign=WireField("/api/version", "version"),
        build=WireField("/api/version", "version", r"^(?!0\.0\.0$)(.{1,256})$"),
    ),
    residency=ResidencyRule.LOCAL_ENTRY,
    locality_note="A model with a remote host is passed on to it even on 127.0.0.1; such ids and answers are refused.",
    remote_suffixes=(":cloud", "-cloud"),
    capabilities={
        Capability.CHAT_COMPLETIONS: _SOURCE.conditional("The installed model needs a chat template.", _OPENAI, MODEL),
        Capability.COMPLETIONS: _SOURCE.conditional("Depends on the installed model.", _OPENAI, MODEL),
        Capability.RESPONSES: _SOURCE.conditional("Depends on the installed model.", "openai/responses.go", MODEL),
        Capability.NATIVE_CHAT: _SOURCE.supported("/api/chat is the build's own contract.", _ROUTES),
        Capability.NATIVE_GENERATE: _SOURCE.supported("/api/generate is the build's own contract.", _ROUTES),
        Capability.STREAMING: _SOURCE.supported(
            "Lines of JSON on native routes, server-sent events on OpenAI routes.", _ROUTES
        ),
        Capability.FINAL_USAGE: _SOURCE.supported(
            "The last native line has the counts; a count of zero is left out.", _TYPES
        ),
        Capability.LOGPROBS: _SOURCE.conditional("Depends on the runner of the model.", _TYPES, MODEL),
        Capability.STRUCTURED_OUTPUT: _SOURCE.conditional(
            "JSON or a schema; a thinking model runs twice and the first run is not counted.", _TYPES, MODEL
        ),
        Capability.TOOLS: _SOURCE.conditional("The model's template must have tools.", _TYPES, MODEL),
        Capability.CANCELLATION: _SOURCE.supported("A closed connection cancels the generation.", _ROUTES),
        Capability.MODEL_DISCOVERY: _SOURCE.supported("/api/tags lists installed models with their digests.", _ROUTES),
        Capability.LIVENESS: _SOURCE.conditional("/api/version proves that the server answers, no more.", _ROUTES),
        Capability.READINESS: _SOURCE.unknown("The build has no readiness route.", _ROUTES),
        Capability.PROMETHEUS_METRICS: _SOURCE.unsupported("The build has no metrics route.", _ROUTES),
        Capability.JSON_METRICS: _SOURCE.unsupported("Durations of one request are not service metrics.", _ROUTES),
        Capability.SEED_DETERMINISM: _SOURCE.conditional(
            "A seed is honoured; parallel requests and cache reuse change the arithmetic.",
            _TYPES,
            MODEL,
            CONFIGURATION,
            requirement="OLLAMA_NUM_PARALLEL",
        ),
    },
    routes=routes(
        InvocationRoute(
            Route.CHAT_COMPLETIONS,
            Protocol.OPENAI_CHAT,
            same_path("/v1/chat/completions"),
            RequestShape("max_tokens", stream_fixed=ASK_USAGE),
            _OPENAI_FLAGS,
            note="max_completion_tokens would be ignored, which leaves the output unbounded.",
        ),
        InvocationRoute(
            Route.COMPLETIONS,
            Protocol.OPENAI_COMPLETIONS,
            same_path("/v1/completions"),
            RequestShape("max_tokens", stream_fixed=ASK_USAGE),
            _OPENAI_FLAGS,
            note="Every chunk has a usage of zeros; only the last one with empty choices counts.",
        ),
        InvocationRoute(
            Route.RESPONSES,
            Protocol.OPENAI_RESPONSES,
            same_path("/v1/responses"),
            RequestShape("max_output_tokens", forbids=NO_SEED_NO_STOP),
            DialectFlags(has_done=False, event_lines=True, zero_details_unknown=True, remote_fields=True),
            note="An error ends the stream without a terminal event; status is always completed.",
        ),
        InvocationRoute(
            Route.NATIVE_CHAT,
            Protocol.OLLAMA_CHAT,
            _native("/api/chat"),
            RequestShape("num_predict"),
            _NATIVE_FLAGS,
            note="Empty messages load the model instead of answering.",
        ),
        InvocationRoute(
            Route.NATIVE_GENERATE,
            Protocol.OLLAMA_GENERATE,
            _native("/api/generate"),
            RequestShape("num_predict"),
            _NATIVE_FLAGS,
            note="An empty prompt loads the model instead of answering.",
        ),
    ),
    observations=(
        ObservationRoute(
            ObservationKind.MODELS,
            "/api/tags",
            Effect.NON_MUTATING,
            Expectation.OLLAMA_MODELS,
            fields=("models[].name", "models[].digest"),
            note="An entry with remote_model or remote_host is not local and is refused.",
        ),
        ObservationRoute(
            ObservationKind.LIVENESS,
            "/api/version",
            Effect.NON_MUTATING,
            Expectation.VERSION,
            fields=("version",),
            note="Development builds say 0.0.0.",
        ),
        ObservationRoute(
            ObservationKind.VERSION,
            "/api/version",
            Effect.NON_MUTATING,
            Expectation.VERSION,
            fields=("version",),
        ),
    ),
    references=(Reference("Ollama 0.32.5 release", "https://github.com/ollama/ollama/releases/tag/v0.32.5"),),
    metrics={},
)
