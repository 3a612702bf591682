"""MLX-LM 0.31.3, experimental and local only.

Its oddities: HTTP/1.0 with streams that end when the connection does, so a killed server looks like a clean end and
only ``[DONE]`` tells; the usage chunk names itself ``chat.completion`` on every route; ``stream_options`` without the
usage key ends a stream early; bad parameters close the connection without an answer; another model name loads that
model.
"""

from __future__ import annotations

from tasc_collector.runtimes.flags import DialectFlags
from tasc_collector.runtimes.profile import (
    Capability,
    Dialect,
    Effect,
    Evidence,
    Expectation,
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
from tasc_collector.runtimes.tables import ASK_USAGE, CONFIGURATION, MODEL, Claims, same_path

_SOURCE = Claims("https://github.com/ml-explore/mlx-lm/blob/v0.31.3/", "MLX-LM 0.31.3", Evidence.LIVE)
_SERVER = "mlx_lm/server.py"

_FLAGS = DialectFlags(close_delimited=True, fingerprint="{build}-")

PROFILE = RuntimeProfile(
    runtime="mlx-lm",
    build="0.31.3",
    display_name="MLX-LM",
    tier=Tier.EXPERIMENTAL,
    locality=Locality.LOCAL_ONLY,
    dialect=Dialect.OPENAI,
    port=8080,
    recognition=Recognition(sign=WireField("/health", "status", beside_models=True)),
    residency=ResidencyRule.LISTED,
    resident_alias="default_model",
    capabilities={
        Capability.CHAT_COMPLETIONS: _SOURCE.conditional("The model needs a chat template.", _SERVER, MODEL),
        Capability.COMPLETIONS: _SOURCE.conditional("Depends on the model.", _SERVER, MODEL),
        Capability.RESPONSES: _SOURCE.unknown("The pinned server has no such route; a plugin may add one.", _SERVER),
        Capability.NATIVE_CHAT: _SOURCE.unknown("No native chat route is known.", _SERVER),
        Capability.NATIVE_GENERATE: _SOURCE.unknown("No native generate route is known.", _SERVER),
        Capability.STREAMING: _SOURCE.supported("Server-sent events on both routes, delimited by the close.", _SERVER),
        Capability.FINAL_USAGE: _SOURCE.conditional(
            "A stream ends with usage only if the request asks for it, which ours always do.", _SERVER, CONFIGURATION
        ),
        Capability.LOGPROBS: _SOURCE.conditional("Whole answers only; streams drop them.", _SERVER, MODEL),
        Capability.STRUCTURED_OUTPUT: _SOURCE.unsupported(
            "The server parses no response format and no grammar.", _SERVER
        ),
        Capability.TOOLS: _SOURCE.conditional("Depends on tokenizer and template.", _SERVER, MODEL),
        Capability.CANCELLATION: _SOURCE.supported("A failed write ends the generation; the server goes on.", _SERVER),
        Capability.MODEL_DISCOVERY: _SOURCE.supported(
            "/v1/models scans the model cache; the body is empty where there is none.", _SERVER
        ),
        Capability.LIVENESS: _SOURCE.supported("/health answers ok even before a model is loaded.", _SERVER),
        Capability.READINESS: _SOURCE.unknown("The build has no readiness route.", _SERVER),
        Capability.PROMETHEUS_METRICS: _SOURCE.unsupported("The build has no metrics route.", _SERVER),
        Capability.JSON_METRICS: _SOURCE.unsupported("The build has no metrics route.", _SERVER),
        Capability.SEED_DETERMINISM: _SOURCE.conditional(
            "A seed is honoured, and such requests run one after another.", _SERVER, MODEL, CONFIGURATION
        ),
    },
    routes=routes(
        InvocationRoute(
            Route.CHAT_COMPLETIONS,
            Protocol.OPENAI_CHAT,
            same_path("/v1/chat/completions"),
            RequestShape("max_tokens", stream_fixed=ASK_USAGE),
            _FLAGS,
            note="Another model name loads, or downloads, that model in place of the current one. A query is a 404.",
        ),
        InvocationRoute(
            Route.COMPLETIONS,
            Protocol.OPENAI_COMPLETIONS,
            same_path("/v1/completions"),
            RequestShape("max_tokens", stream_fixed=ASK_USAGE),
            _FLAGS,
        ),
    ),
    observations=(
        ObservationRoute(
            ObservationKind.MODELS,
            "/v1/models",
            Effect.NON_MUTATING,
            Expectation.OPENAI_MODELS,
            fields=("data[].id",),
            note="Lists the whole model cache: not liveness. Without a cache the body is empty: a failed probe.",
        ),
        ObservationRoute(
            ObservationKind.LIVENESS,
            "/health",
            Effect.NON_MUTATING,
            Expectation.STATUS_OK,
            note="Says ok before any model is loaded.",
        ),
    ),
    references=(Reference("MLX-LM 0.31.3 release", "https://github.com/ml-explore/mlx-lm/releases/tag/v0.31.3"),),
    metrics={},
)
