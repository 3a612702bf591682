"""LM Studio 0.4.1, local only, known from its documents.

Its oddities: the native route has no finish reason; after an error event a ``chat.end`` with a partial result still
comes; chats are stored on disk unless told not to; a call may load a model, and an unknown route answers 200 with an
error.
"""

from __future__ import annotations

from tasc_collector.runtimes.flags import DialectFlags, UsagePosition
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
    routes,
)
from tasc_collector.runtimes.tables import ASK_USAGE, CONFIGURATION, MODEL, NO_SEED_NO_STOP, Claims, same_path

_DOCS = Claims(
    "https://github.com/lmstudio-ai/docs/blob/c244e90/", "LM Studio documentation at 0.4.1", Evidence.DOCUMENTATION
)
_CHAT = "1_developer/2_rest/chat.md"
_STREAM = "1_developer/2_rest/streaming-events.md"
_OPENAI = "1_developer/3_openai-compat/index.md"

PROFILE = RuntimeProfile(
    runtime="lm-studio",
    build="0.4.1",
    display_name="LM Studio",
    tier=Tier.APPROVED_INTERNAL,
    locality=Locality.LOCAL_ONLY,
    dialect=Dialect.OPENAI,
    port=1234,
    recognition=Recognition(owner="organization_owner"),
    residency=ResidencyRule.LOADED_INSTANCE,
    locality_note="Later versions can serve localhost requests from a linked device (LM Link), outside this profile.",
    capabilities={
        Capability.CHAT_COMPLETIONS: _DOCS.conditional("A compatible model must be loaded.", _OPENAI, MODEL),
        Capability.COMPLETIONS: _DOCS.unknown("The route is documented; no contract is registered for it.", _OPENAI),
        Capability.RESPONSES: _DOCS.conditional(
            "A compatible model must be loaded; integrations change what comes back.", _OPENAI, MODEL, CONFIGURATION
        ),
        Capability.NATIVE_CHAT: _DOCS.conditional("A compatible model must be loaded.", _CHAT, MODEL),
        Capability.NATIVE_GENERATE: _DOCS.unknown("No native generate route is documented."),
        Capability.STREAMING: _DOCS.supported("Server-sent events are documented on all registered routes.", _STREAM),
        Capability.FINAL_USAGE: _DOCS.supported("The native result holds token counts.", _CHAT),
        Capability.LOGPROBS: _DOCS.unknown("Not documented."),
        Capability.STRUCTURED_OUTPUT: _DOCS.conditional("A JSON schema on OpenAI chat only.", _OPENAI, MODEL),
        Capability.TOOLS: _DOCS.conditional(
            "Depends on the model; native tools run integrations.", _OPENAI, MODEL, CONFIGURATION
        ),
        Capability.CANCELLATION: _DOCS.unknown("Not documented."),
        Capability.MODEL_DISCOVERY: _DOCS.supported(
            "/v1/models lists models; with just-in-time loading also those that are only downloaded.", _OPENAI
        ),
        Capability.LIVENESS: _DOCS.unknown("No health route is documented, and a model list is not one."),
        Capability.READINESS: _DOCS.unknown("Not documented; a model list is not readiness."),
        Capability.PROMETHEUS_METRICS: _DOCS.unknown("Not documented."),
        Capability.JSON_METRICS: _DOCS.unknown("Not documented."),
        Capability.SEED_DETERMINISM: _DOCS.conditional("A seed exists on OpenAI chat only.", _OPENAI, MODEL),
    },
    routes=routes(
        InvocationRoute(
            Route.CHAT_COMPLETIONS,
            Protocol.OPENAI_CHAT,
            same_path("/v1/chat/completions"),
            RequestShape("max_tokens", stream_fixed=ASK_USAGE),
            DialectFlags(usage_position=UsagePosition.FINISH),
            note="A call may load a model and unload another.",
        ),
        InvocationRoute(
            Route.RESPONSES,
            Protocol.OPENAI_RESPONSES,
            same_path("/v1/responses"),
            RequestShape("max_output_tokens", fixed={"store": False}, forbids=NO_SEED_NO_STOP),
            DialectFlags(has_done=False, event_lines=True),
        ),
        InvocationRoute(
            Route.NATIVE_CHAT,
            Protocol.LM_STUDIO_CHAT,
            same_path("/api/v1/chat"),
            RequestShape("max_output_tokens", fixed={"store": False}, forbids=NO_SEED_NO_STOP, max_temperature=1.0),
            DialectFlags(has_done=False, event_lines=True),
            note="No finish reason exists: a whole answer is completed with the reason unavailable.",
        ),
    ),
    observations=(
        ObservationRoute(
            ObservationKind.MODELS,
            "/v1/models",
            Effect.NON_MUTATING,
            Expectation.OPENAI_MODELS,
            fields=("data[].id",),
            note="Lists downloaded models when just-in-time loading is on: neither liveness nor readiness.",
        ),
        ObservationRoute(
            ObservationKind.MODEL_INFO,
            "/api/v1/models",
            Effect.NON_MUTATING,
            Expectation.FIELDS,
            fields=("models[].key", "models[].loaded_instances[].id"),
            note="A model without a loaded instance would be loaded just in time, and may evict another.",
        ),
    ),
    references=(
        Reference("LM Studio developer documentation", "https://lmstudio.ai/docs/developer"),
        Reference("The same at 0.4.1", "https://github.com/lmstudio-ai/docs/tree/c244e90"),
    ),
    metrics={},
)
