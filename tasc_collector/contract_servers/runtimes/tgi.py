"""Text Generation Inference 3.3.7 (``router/src/server.rs``, ``lib.rs``, ``chat.rs``; source only)."""

from __future__ import annotations

from dataclasses import replace

from tasc_collector.canonical import JsonValue
from tasc_collector.contract_servers.asking import TGI_CHAT_CHECKS, needs_prompt
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
from tasc_collector.contract_servers.counters import exposition, family, histogram, sample
from tasc_collector.contract_servers.dialects.native import Tgi
from tasc_collector.contract_servers.dialects.openai import OpenAi, OpenAiStyle, RoleStyle, nested_error
from tasc_collector.contract_servers.generation import IdRule, UsagePlace
from tasc_collector.contract_servers.runtimes.replies import computed, fixed, metrics, model_list, text_reply

_WIRE_VERSION = "3.3.6-dev0"
"""Cargo.toml at tag v3.3.7 still says so: the wire's version need not equal the pin."""


def _error(refusal: Refusal) -> JsonValue:
    return {"error": refusal.message, "error_type": refusal.kind}


_CHAT_STYLE = OpenAiStyle(
    id_prefix="",
    id_rule=IdRule.EMPTY,
    role=RoleStyle.EVERY_DELTA,
    error=nested_error(http_status_code=422),
    usage_place=UsagePlace.NULL_THEN_SEPARATE,
    fingerprint=f"{_WIRE_VERSION}-native",
)
_COMPLETIONS_STYLE = replace(
    _CHAT_STYLE,
    usage_place=UsagePlace.FINISH,
    usage_unasked=UsagePlace.FINISH,
    pending_finish="",
    finish_carries_text=True,
)
_NATIVE_FIELDS = AskFields(
    "inputs", ("parameters.max_new_tokens",), default_cap=100, seed="parameters.seed", details="parameters.details",
    forced_stream=False,
)  # fmt: skip


def _info(observed: Observed) -> JsonValue:
    return {
        "model_id": observed.model,
        "model_sha": "4c1b" * 10,
        "model_pipeline_tag": "text-generation",
        "max_concurrent_requests": 128,
        "max_best_of": 2,
        "max_stop_sequences": 4,
        "max_input_tokens": 1024,
        "max_total_tokens": 2048,
        "validation_workers": 2,
        "max_client_batch_size": 4,
        "router": "text-generation-router",
        "version": _WIRE_VERSION,
        "sha": None,
        "docker_label": None,
    }


def _metrics(observed: Observed) -> bytes:
    counters = observed.counters
    rows: tuple[tuple[str, str, float], ...] = (
        ("tgi_batch_current_size", "gauge", counters.running),
        ("tgi_queue_size", "gauge", 0),
        ("tgi_request_count", "counter", counters.started),
        ("tgi_request_success", "counter", counters.finished),
        ("tgi_batch_current_max_tokens", "gauge", 2048),
    )
    return exposition(
        *(family(name, kind, [sample(name, value)]) for name, kind, value in rows),
        histogram("tgi_request_input_length", counters.prompt_tokens, counters.started),
        histogram("tgi_request_generated_tokens", counters.generation_tokens, counters.finished),
        histogram("tgi_request_duration", counters.e2e_s, counters.finished),
        histogram("tgi_request_queue_duration", 0.0, counters.finished),
        histogram("tgi_request_mean_time_per_token_duration", counters.e2e_s, counters.finished),
    )


CONTRACT = Contract(
    runtime="tgi",
    build="3.3.7",
    model="contract/tgi-small",
    http=HttpStyle(
        stream_media="text/event-stream", stream_headers=(("x-accel-buffering", "no"),), type_name="content-type"
    ),
    inference={
        "/v1/chat/completions": InferenceRoute(
            OpenAi(_CHAT_STYLE, chat=True, finish_words={"stop": "stop", "length": "length", "tool_calls": "stop"}),
            AskFields("messages", ("max_tokens", "max_completion_tokens"), default_cap=100),
            (*TGI_CHAT_CHECKS, needs_prompt),
        ),
        "/v1/completions": InferenceRoute(
            OpenAi(
                _COMPLETIONS_STYLE,
                chat=False,
                finish_words={"stop": "eos_token", "length": "length", "tool_calls": "stop"},
            ),
            AskFields("prompt", ("max_tokens",), default_cap=100),
            (needs_prompt,),
        ),
        "/generate": InferenceRoute(Tgi(), _NATIVE_FIELDS, (needs_prompt,)),
        "/generate_stream": InferenceRoute(Tgi(), replace(_NATIVE_FIELDS, forced_stream=True), (needs_prompt,)),
    },
    observations={
        "GET /health": fixed(Role.HEALTH, Reply(media=None)),
        "GET /ping": fixed(Role.OTHER, Reply(media=None)),
        "GET /info": computed(Role.INFO, _info),
        "GET /v1/models": computed(Role.MODELS, lambda observed: model_list(observed, observed.model, 0)),
        "GET /metrics": metrics(_metrics, "text/plain; charset=utf-8"),
    },
    error=_error,
    malformed=lambda request: text_reply("Failed to parse the request body as JSON", 400),
    unknown_route=lambda request: Reply(404, b"", None),
)
