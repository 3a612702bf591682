"""MLX-LM 0.31.3 (``mlx_lm/server.py``; shapes as seen on a live CPU server): HTTP/1.0, streams end by closing."""

from __future__ import annotations

from tasc_collector.canonical import JsonValue
from tasc_collector.contract_servers.asking import MLX_CHECKS
from tasc_collector.contract_servers.contract import (
    AskFields,
    Contract,
    HttpStyle,
    InferenceRoute,
    Refusal,
    Reply,
    Role,
)
from tasc_collector.contract_servers.dialects.openai import OpenAi, OpenAiStyle, RoleStyle, cached_details
from tasc_collector.contract_servers.frames import comment
from tasc_collector.contract_servers.generation import CREATED, PROVIDER_TEXT
from tasc_collector.contract_servers.runtimes.replies import computed, fixed, json_reply, model_list


def _error(refusal: Refusal) -> JsonValue:
    return {"error": refusal.message}


_STYLE = OpenAiStyle(
    id_prefix="chatcmpl-",
    role=RoleStyle.EVERY_DELTA,
    error={"error": PROVIDER_TEXT},
    usage_object="chat.completion",
    usage_extra=cached_details,
    reasoning_field="reasoning",
    fingerprint="0.31.3-0.31.1-macOS-arm64",
    done_needs_usage=True,
    stream_logprobs=False,
    legacy_logprobs=False,
    opening=(comment("keepalive 1/1"),),
)
_CAPS = ("max_completion_tokens", "max_tokens")
_CHAT = InferenceRoute(
    OpenAi(_STYLE, chat=True), AskFields("messages", _CAPS, default_cap=512, zero_cap_is_one=True), MLX_CHECKS
)

CONTRACT = Contract(
    runtime="mlx-lm",
    build="0.31.3",
    model="contract/mlx-small",
    http=HttpStyle(
        headers=(("Server", "BaseHTTP/0.6 Python/3.12.7"), ("Access-Control-Allow-Origin", "*")),
        stream_media="text/event-stream",
        stream_headers=(("Cache-Control", "no-cache"),),
        type_name="Content-type",
        version="1.0",
        keep_alive=False,
        spaced_json=True,
    ),
    inference={
        "/v1/chat/completions": _CHAT,
        "/chat/completions": _CHAT,
        "/v1/completions": InferenceRoute(
            OpenAi(_STYLE, chat=False), AskFields("prompt", _CAPS, default_cap=512, zero_cap_is_one=True), MLX_CHECKS
        ),
    },
    observations={
        "GET /health": fixed(Role.HEALTH, json_reply({"status": "ok"})),
        "GET /v1/models": computed(Role.MODELS, lambda observed: model_list(observed, "", CREATED)),
    },
    error=_error,
    malformed=lambda request: json_reply(_error(Refusal(400, "", "Invalid JSON in request body")), 400),
    unknown_route=lambda request: Reply(404, b"Not Found", "application/json"),
    prefix_paths=("/v1/models",),
    exact_query=True,
)
