"""Ollama 0.32.5 (``server/routes.go``, ``api/types.go``, ``openai/openai.go``, ``openai/responses.go``)."""

from __future__ import annotations

from tasc_collector.canonical import JsonValue
from tasc_collector.contract_servers.asking import OLLAMA_CHECKS, OLLAMA_NATIVE_CHECKS
from tasc_collector.contract_servers.contract import (
    AskFields,
    Contract,
    HttpStyle,
    InferenceRoute,
    Observed,
    Refusal,
    Reply,
    Role,
)  # fmt: skip
from tasc_collector.contract_servers.dialects.native import Ollama
from tasc_collector.contract_servers.dialects.openai import OpenAi, OpenAiStyle, RoleStyle, nested_error
from tasc_collector.contract_servers.dialects.responses import Responses, ResponsesStyle
from tasc_collector.contract_servers.generation import CREATED, IdRule, UsagePlace
from tasc_collector.contract_servers.http import Request
from tasc_collector.contract_servers.runtimes.replies import computed, fixed, json_reply, model_list, text_reply

_BUILD = "0.32.5"
_JSON = "application/json; charset=utf-8"
_DIGEST = "5f1c" * 16
_KINDS = {404: "not_found_error"}


def _error(refusal: Refusal) -> JsonValue:
    kind = _KINDS.get(refusal.status, "invalid_request_error" if refusal.status < 500 else "api_error")
    return {"error": {"message": refusal.message, "type": kind, "param": None, "code": None}}


def _style(asked: UsagePlace) -> OpenAiStyle:
    return OpenAiStyle(
        id_prefix="chatcmpl-",
        id_rule=IdRule.COLLIDING,
        role=RoleStyle.EVERY_DELTA,
        error=nested_error(type="api_error", param=None, code=None),
        usage_place=asked,
        reasoning_field="reasoning",
        fingerprint="fp_ollama",
    )


def _tags(observed: Observed) -> JsonValue:
    details: dict[str, JsonValue] = {
        "format": "gguf",
        "family": "llama",
        "parameter_size": "134M",
        "quantization_level": "Q4_1",
    }
    entry: dict[str, JsonValue] = {
        "name": observed.model,
        "model": observed.model,
        "modified_at": "2026-09-21T13:00:00Z",
    }
    return {
        "models": [{**entry, "size": 91732608, "digest": _DIGEST, "details": details, "capabilities": ["completion"]}]
    }


def _malformed(request: Request) -> Reply:
    return json_reply({"error": "invalid character in request body"}, 400, _JSON)


CONTRACT = Contract(
    runtime="ollama",
    build=_BUILD,
    model="contract-small:latest",
    http=HttpStyle(json_media=_JSON, stream_media="text/event-stream"),
    inference={
        "/api/chat": InferenceRoute(
            Ollama(chat=True),
            AskFields("messages", ("options.num_predict",), stream=True, seed="options.seed"),
            OLLAMA_NATIVE_CHECKS,
        ),
        "/api/generate": InferenceRoute(
            Ollama(chat=False),
            AskFields("prompt", ("options.num_predict",), stream=True, seed="options.seed"),
            OLLAMA_NATIVE_CHECKS,
        ),
        "/v1/chat/completions": InferenceRoute(
            OpenAi(_style(UsagePlace.SEPARATE), chat=True),
            AskFields("messages", ("max_tokens",)),  # max_completion_tokens is ignored in silence
            OLLAMA_CHECKS,
        ),
        "/v1/completions": InferenceRoute(
            OpenAi(_style(UsagePlace.ZEROS_THEN_SEPARATE), chat=False),
            AskFields("prompt", ("max_tokens",)),
            OLLAMA_CHECKS,
        ),
        "/v1/responses": InferenceRoute(
            Responses(ResponsesStyle(zero_details=True, reasoning_event="response.reasoning_summary_text.delta")),
            AskFields("input", ("max_output_tokens",)),
            OLLAMA_CHECKS,
        ),
    },
    observations={
        "GET /": fixed(Role.OTHER, text_reply("Ollama is running")),
        "GET /api/version": fixed(Role.VERSION, json_reply({"version": _BUILD}, media=_JSON)),
        "GET /api/tags": computed(Role.MODELS, _tags, _JSON),
        "GET /api/ps": computed(Role.OTHER, _tags, _JSON),
        "GET /v1/models": computed(Role.MODELS, lambda observed: model_list(observed, "library", CREATED)),
    },
    error=_error,
    malformed=_malformed,
    unknown_route=lambda request: text_reply("404 page not found", 404, "text/plain"),
)
