"""LM Studio 0.4.1 (developer documents only: REST API, OpenAI compatibility, streaming events)."""

from __future__ import annotations

from tasc_collector.canonical import JsonValue
from tasc_collector.contract_servers.asking import needs_prompt
from tasc_collector.contract_servers.contract import (
    AskFields,
    Contract,
    HttpStyle,
    InferenceRoute,
    Observed,
    Refusal,
    Role,
)
from tasc_collector.contract_servers.dialects.native import LmStudio
from tasc_collector.contract_servers.dialects.openai import OpenAi, OpenAiStyle, RoleStyle, nested_error
from tasc_collector.contract_servers.dialects.responses import Responses
from tasc_collector.contract_servers.generation import CREATED
from tasc_collector.contract_servers.runtimes.replies import computed, json_reply, model_list


def _error(refusal: Refusal) -> JsonValue:
    return {"error": {"type": "invalid_request", "message": refusal.message, "param": refusal.param}}


_STYLE = OpenAiStyle(
    id_prefix="chatcmpl-",
    role=RoleStyle.EVERY_DELTA,
    error=nested_error(type="internal_error"),
    fingerprint="contract-small",
)


def _native_models(observed: Observed) -> JsonValue:
    loaded: list[JsonValue] = [{"id": observed.model, "config": {"context_length": 4096}}]
    return {"models": [{"type": "llm", "key": observed.model, "loaded_instances": loaded}]}


CONTRACT = Contract(
    runtime="lm-studio",
    build="0.4.1",
    model="contract-small",
    http=HttpStyle(
        headers=(("X-Powered-By", "Express"),),
        json_media="application/json; charset=utf-8",
        stream_media="text/event-stream",
    ),
    inference={
        "/v1/chat/completions": InferenceRoute(
            OpenAi(_STYLE, chat=True), AskFields("messages", ("max_tokens",)), (needs_prompt,)
        ),
        "/v1/completions": InferenceRoute(
            OpenAi(_STYLE, chat=False), AskFields("prompt", ("max_tokens",)), (needs_prompt,)
        ),
        "/v1/responses": InferenceRoute(Responses(), AskFields("input", ("max_output_tokens",)), (needs_prompt,)),
        "/api/v1/chat": InferenceRoute(LmStudio(), AskFields("input", ("max_output_tokens",)), (needs_prompt,)),
    },
    observations={
        "GET /v1/models": computed(Role.MODELS, lambda observed: model_list(observed, "organization_owner", CREATED)),
        "GET /api/v1/models": computed(Role.INFO, _native_models),
    },
    error=_error,
    malformed=lambda request: json_reply(_error(Refusal(400, "", "invalid JSON")), 400),
    unknown_route=lambda request: json_reply({"error": "Unexpected endpoint or method."}),
)
"""An unknown route is a 200 with an error, as its public reports say."""
