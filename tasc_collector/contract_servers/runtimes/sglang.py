"""SGLang 0.5.16 (``srt/entrypoints/http_server.py`` and ``openai/serving_*.py``; source only, no live run)."""

from __future__ import annotations

from tasc_collector.canonical import JsonValue
from tasc_collector.contract_servers.asking import SGLANG_CHECKS
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
from tasc_collector.contract_servers.dialects.openai import OpenAi, OpenAiStyle, RoleStyle, nested_error
from tasc_collector.contract_servers.dialects.responses import Responses, ResponsesStyle
from tasc_collector.contract_servers.frames import ABSENT, FrameKind, put
from tasc_collector.contract_servers.generation import CREATED, Generation, UsageFigures
from tasc_collector.contract_servers.runtimes.replies import (
    SECRET_MARKER,
    computed,
    fastapi_unknown,
    fixed,
    json_reply,
    metrics,
    model_list,
    text_reply,
)  # fmt: skip


def _error(refusal: Refusal) -> JsonValue:
    return {
        "object": "error",
        "message": refusal.message,
        "type": refusal.kind,
        "param": refusal.param,
        "code": refusal.status,
    }


def _usage_extra(figures: UsageFigures) -> dict[str, JsonValue]:
    """Reasoning tokens stand at the top level; cached ones only when reported and above 0."""
    extra: dict[str, JsonValue] = put({}, reasoning_tokens=0 if figures.reasoning is ABSENT else figures.reasoning)
    cached = figures.cached
    extra["prompt_tokens_details"] = {"cached_tokens": cached} if isinstance(cached, int) and cached > 0 else None
    return extra


def _decorate(chunk: dict[str, JsonValue], kind: FrameKind, generation: Generation) -> None:
    """``matched_stop`` in every choice, ``reasoning_content`` in every delta, ``metadata`` in JSON bodies."""
    choices = chunk["choices"]
    for choice in choices if isinstance(choices, list) else ():
        choice.setdefault("logprobs", None)
        choice["matched_stop"] = None
        if "delta" in choice:
            choice["delta"].setdefault("reasoning_content", None)
    if kind is FrameKind.BODY:
        chunk["metadata"] = {"weight_version": "default"}


def _style(prefix: str) -> OpenAiStyle:
    return OpenAiStyle(
        id_prefix=prefix,
        role=RoleStyle.EMPTY_CONTENT,
        error=nested_error(object="error", type="InternalServerError", param=None, code=500),
        usage_extra=_usage_extra,
        decorate=_decorate,
    )


def _metrics(observed: Observed) -> bytes:
    counters = observed.counters
    own = {"model_name": observed.model, "engine_type": "unified", "tp_rank": "0", "pp_rank": "0", "pid": "1"}
    tokens = counters.generation_tokens + counters.partial_tokens
    rows: tuple[tuple[str, str, float], ...] = (
        ("num_running_reqs", "gauge", counters.running),
        ("num_queue_reqs", "gauge", 0),
        ("token_usage", "gauge", min(1.0, counters.running / 256)),
        ("prompt_tokens_total", "counter", counters.prompt_tokens),
        ("generation_tokens_total", "counter", tokens),
        ("num_requests_total", "counter", counters.started),
        ("num_aborted_requests_total", "counter", counters.cancelled),
    )
    return exposition(
        *(family(f"sglang:{n}", kind, [sample(f"sglang:{n}", value, own)]) for n, kind, value in rows),
        histogram("sglang:time_to_first_token_seconds", counters.ttft_s, counters.finished, own),
        histogram(
            "sglang:inter_token_latency_seconds", counters.e2e_s - counters.ttft_s, counters.generation_tokens, own
        ),
        histogram("sglang:e2e_request_latency_seconds", counters.e2e_s, counters.finished, own),
    )


def _model_info(observed: Observed) -> JsonValue:
    return {
        "model_path": f"/srv/{SECRET_MARKER}/small",
        "tokenizer_path": f"/srv/{SECRET_MARKER}/small",
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
    }


def _server_info(observed: Observed) -> JsonValue:
    """Every launch argument, keys included, as 0.5.16 really answers."""
    return {
        "version": "0.5.16",
        "served_model_name": observed.model,
        "model_path": f"/srv/{SECRET_MARKER}/small",
        "api_key": SECRET_MARKER,
        "admin_api_key": SECRET_MARKER,
        "ssl_keyfile_password": SECRET_MARKER,
        "tp_size": 1,
        "dtype": "bfloat16",
        "internal_states": [{"last_gen_throughput": 0.0}],
    }


CONTRACT = Contract(
    runtime="sglang",
    build="0.5.16",
    model="contract/sglang-small",
    http=HttpStyle(headers=(("server", "uvicorn"),), type_name="content-type", late_head=True),
    inference={
        "/v1/chat/completions": InferenceRoute(
            OpenAi(_style(""), chat=True), AskFields("messages", ("max_completion_tokens", "max_tokens")), SGLANG_CHECKS
        ),
        "/v1/completions": InferenceRoute(
            OpenAi(_style(""), chat=False), AskFields("prompt", ("max_tokens",), default_cap=16), SGLANG_CHECKS
        ),
        "/v1/responses": InferenceRoute(
            Responses(ResponsesStyle(old_json_usage=True)), AskFields("input", ("max_output_tokens",)), SGLANG_CHECKS
        ),
    },
    observations={
        "GET /health": fixed(Role.HEALTH, Reply(media=None), generates=True),
        "GET /health_generate": fixed(Role.READINESS, Reply(media=None), generates=True),
        "GET /model_info": computed(Role.INFO, _model_info),
        "GET /server_info": computed(Role.VERSION, _server_info),
        "GET /v1/models": computed(
            Role.MODELS, lambda observed: model_list(observed, "sglang", CREATED, max_model_len=4096)
        ),
        "GET /metrics": metrics(_metrics),
        "GET /flush_cache": fixed(Role.OTHER, text_reply("Cache flushed."), mutating=True),
    },
    error=_error,
    malformed=lambda request: json_reply(_error(Refusal(400, "Bad Request", "JSON decode error")), 400),
    unknown_route=fastapi_unknown,
)
