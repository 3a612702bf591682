"""llama.cpp server, build b10156 (``tools/server``; shapes as seen on the live binary)."""

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
    Reply,
    Role,
)  # fmt: skip
from tasc_collector.contract_servers.counters import exposition, family, sample
from tasc_collector.contract_servers.dialects.openai import OpenAi, OpenAiStyle, RoleStyle, cached_details, nested_error
from tasc_collector.contract_servers.dialects.responses import Responses, ResponsesStyle
from tasc_collector.contract_servers.frames import FrameKind
from tasc_collector.contract_servers.generation import CREATED, Generation, UsagePlace
from tasc_collector.contract_servers.http import Request
from tasc_collector.contract_servers.runtimes.replies import SECRET_MARKER, computed, fixed, json_reply, metrics

_JSON = "application/json; charset=utf-8"


def _error(refusal: Refusal) -> JsonValue:
    return {"error": {"code": refusal.status, "message": refusal.message, "type": refusal.kind}}


def _timings(generation: Generation) -> dict[str, JsonValue]:
    prompt_n = generation.usage.input if isinstance(generation.usage.input, int) else 0
    cached_n = generation.usage.cached if isinstance(generation.usage.cached, int) else 0
    predicted_n = generation.output_tokens
    prompt_ms, predicted_ms = generation.ttft_ms, generation.decode_ms
    return {
        "cache_n": cached_n,
        "prompt_n": prompt_n - cached_n,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / prompt_n if prompt_n else None,
        "prompt_per_second": prompt_n / prompt_ms * 1000 if prompt_ms else None,
        "predicted_n": predicted_n,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": predicted_ms / predicted_n if predicted_n else None,
        "predicted_per_second": predicted_n / predicted_ms * 1000 if predicted_ms else None,
    }


def _decorate(chunk: dict[str, JsonValue], kind: FrameKind, generation: Generation) -> None:
    """``timings`` beside usage, or on the finish chunk where there is none."""
    if kind is FrameKind.BODY or "usage" in chunk or (kind is FrameKind.FINISH and not generation.ask.wants_usage):
        chunk["timings"] = _timings(generation)


def _style(asked: UsagePlace, unasked: UsagePlace) -> OpenAiStyle:
    return OpenAiStyle(
        id_prefix="chatcmpl-",
        role=RoleStyle.NULL_CONTENT,
        error=nested_error(code=500, type="server_error"),
        usage_place=asked,
        usage_unasked=unasked,
        usage_extra=cached_details,
        fingerprint="b0-unknown",
        legacy_logprobs=False,
        decorate=_decorate,
    )


def _malformed(request: Request) -> Reply:
    """b10156 answers 500 and reflects a fragment of the body."""
    fragment = request.body[:40].decode("utf-8", "replace")
    return json_reply(_error(Refusal(500, "server_error", f"parse error, last read: '{fragment}'")), 500, _JSON)


def _models(observed: Observed) -> JsonValue:
    meta: dict[str, JsonValue] = {"n_ctx_train": 8192, "n_params": 134515008, "size": 91732608, "ftype": "Q4_1"}
    entry: dict[str, JsonValue] = {
        "id": observed.model,
        "object": "model",
        "created": CREATED,
        "owned_by": "llamacpp",
        "meta": meta,
    }
    return {"models": [{"name": observed.model, "model": observed.model}], "object": "list", "data": [entry]}


def _props(observed: Observed) -> JsonValue:
    return {
        "default_generation_settings": {"n_ctx": 4096},
        "total_slots": 2,
        "model_alias": observed.model,
        "model_path": f"/srv/{SECRET_MARKER}/model.gguf",
        "chat_template": f"{{# {SECRET_MARKER} #}}",
        "build_info": "b0-unknown",
    }


def _metrics(observed: Observed) -> bytes:
    counters = observed.counters
    rows: tuple[tuple[str, str, float], ...] = (
        ("prompt_tokens_total", "counter", counters.prompt_tokens),
        ("prompt_seconds_total", "counter", counters.ttft_s),
        ("tokens_predicted_total", "counter", counters.generation_tokens),  # nothing of cancelled calls
        ("tokens_predicted_seconds_total", "counter", counters.e2e_s - counters.ttft_s),
        ("requests_processing", "gauge", counters.running),
        ("requests_deferred", "gauge", 0),
    )
    return exposition(*(family(f"llamacpp:{n}", kind, [sample(f"llamacpp:{n}", value)]) for n, kind, value in rows))


_CHAT = InferenceRoute(
    OpenAi(_style(UsagePlace.SEPARATE, UsagePlace.NONE), chat=True),
    AskFields("messages", ("max_completion_tokens", "max_tokens", "n_predict"), zero_cap_is_one=True),
)
_RESPONSES = InferenceRoute(
    Responses(
        ResponsesStyle(
            sequence_numbers=False,
            indexes=False,
            minimal_start=True,
            failed_event=False,
            beside=lambda generation: {"timings": _timings(generation)},
        )
    ),
    AskFields("input", ("max_output_tokens",), zero_cap_is_one=True),
    (needs_prompt,),
)

CONTRACT = Contract(
    runtime="llama.cpp",
    build="b10156",
    model="contract-small.gguf",
    http=HttpStyle(
        headers=(("Server", "llama.cpp"),),
        json_media=_JSON,
        stream_media="text/event-stream",
        stream_headers=(("X-Accel-Buffering", "no"),),
    ),
    inference={
        "/v1/chat/completions": _CHAT,
        "/chat/completions": _CHAT,
        "/v1/completions": InferenceRoute(
            OpenAi(_style(UsagePlace.FINISH, UsagePlace.FINISH), chat=False),
            AskFields("prompt", ("max_tokens", "max_completion_tokens", "n_predict"), zero_cap_is_one=True),
            (needs_prompt,),
        ),
        "/v1/responses": _RESPONSES,
        "/responses": _RESPONSES,
    },
    observations={
        "GET /health": fixed(Role.HEALTH, json_reply({"status": "ok"}, media=_JSON)),
        "GET /v1/models": computed(Role.MODELS, _models, _JSON),
        "GET /props": computed(Role.INFO, _props, _JSON),
        "GET /slots": fixed(Role.OTHER, json_reply([{"id": 0, "is_processing": False}], media=_JSON)),
        "GET /metrics": metrics(_metrics, "text/plain; version=0.0.4"),
    },
    error=_error,
    malformed=_malformed,
    unknown_route=lambda request: json_reply(_error(Refusal(404, "not_found_error", "File Not Found")), 404, _JSON),
    model_of=lambda ask, served: served,
    usage_sums_choices=False,
)
