"""vLLM 0.26.0 (``entrypoints/openai`` protocol and serving modules; shapes as seen on a live CPU server)."""

from __future__ import annotations

from tasc_collector.canonical import JsonValue
from tasc_collector.contract_servers.asking import VLLM_CHECKS
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
from tasc_collector.contract_servers.dialects.openai import (
    Decorate,
    OpenAi,
    OpenAiStyle,
    RoleStyle,
    cached_details,
    nested_error,
)  # fmt: skip
from tasc_collector.contract_servers.dialects.responses import Responses, ResponsesStyle
from tasc_collector.contract_servers.frames import FrameKind
from tasc_collector.contract_servers.generation import CREATED, Generation
from tasc_collector.contract_servers.runtimes.replies import (
    computed,
    fastapi_unknown,
    fixed,
    json_reply,
    metrics,
    model_list,
)  # fmt: skip

_BUILD = "0.26.0"
_FINGERPRINT = "vllm-0.26.0-3f9a1c"


def _error(refusal: Refusal) -> JsonValue:
    return {"error": {"message": refusal.message, "type": refusal.kind, "param": refusal.param, "code": refusal.status}}


def _decorate_chat(chunk: dict[str, JsonValue], kind: FrameKind, generation: Generation) -> None:
    """Extra top-level fields on the role chunk, token ids on later ones, fingerprint on the last chunk."""
    if kind is FrameKind.BODY:
        chunk |= {"service_tier": None, "prompt_logprobs": None, "kv_transfer_params": None, "metrics": None}
        return
    if kind is FrameKind.ROLE:
        chunk |= {"prompt_token_ids": None, "prompt_text": None}
    fingerprinted = FrameKind.USAGE if generation.ask.wants_usage else FrameKind.FINISH
    if kind is not fingerprinted:
        chunk.pop("system_fingerprint", None)
    choices = chunk["choices"]
    for choice in choices if isinstance(choices, list) else ():
        choice.setdefault("logprobs", None)
        choice["token_ids"] = None
        if kind is FrameKind.FINISH:
            choice["stop_reason"] = None


def _decorate_completion(chunk: dict[str, JsonValue], kind: FrameKind, generation: Generation) -> None:
    """``stop_reason`` beside every finish reason; no fingerprint before the usage chunk."""
    if kind not in {FrameKind.USAGE, FrameKind.BODY}:
        chunk.pop("system_fingerprint", None)
    choices = chunk["choices"]
    for choice in choices if isinstance(choices, list) else ():
        choice.setdefault("logprobs", None)
        choice["stop_reason"] = None


def _style(decorate: Decorate, prefix: str) -> OpenAiStyle:
    return OpenAiStyle(
        id_prefix=prefix,
        role=RoleStyle.EMPTY_CONTENT,
        error=nested_error(type="InternalServerError", param=None, code=500),
        finish_carries_text=True,
        continuous=False,
        usage_extra=cached_details,
        reasoning_field="reasoning",
        fingerprint=_FINGERPRINT,
        decorate=decorate,
    )


def _metrics(observed: Observed) -> bytes:
    counters = observed.counters
    own = {"model_name": observed.model, "engine": "0"}
    reasons = ("stop", "length", "abort", "error", "repetition")  # abort stays 0 when a client leaves
    success = [
        sample("vllm:request_success_total", counters.finish_reasons[reason], {"finished_reason": reason, **own})
        for reason in reasons
    ]
    busy = min(1.0, counters.running / 256)
    tokens = counters.generation_tokens + counters.partial_tokens
    return exposition(
        family("vllm:num_requests_running", "gauge", [sample("vllm:num_requests_running", counters.running, own)]),
        family("vllm:num_requests_waiting", "gauge", [sample("vllm:num_requests_waiting", 0, own)]),
        family("vllm:kv_cache_usage_perc", "gauge", [sample("vllm:kv_cache_usage_perc", busy, own)]),
        family(
            "vllm:prompt_tokens_total", "counter", [sample("vllm:prompt_tokens_total", counters.prompt_tokens, own)]
        ),
        family("vllm:prompt_tokens_created", "gauge", [sample("vllm:prompt_tokens_created", CREATED, own)]),
        family("vllm:generation_tokens_total", "counter", [sample("vllm:generation_tokens_total", tokens, own)]),
        family("vllm:request_success_total", "counter", success),
        histogram("vllm:time_to_first_token_seconds", counters.ttft_s, counters.finished, own),
        histogram(
            "vllm:inter_token_latency_seconds", counters.e2e_s - counters.ttft_s, counters.generation_tokens, own
        ),
        histogram("vllm:e2e_request_latency_seconds", counters.e2e_s, counters.finished, own),
    )


CONTRACT = Contract(
    runtime="vllm",
    build=_BUILD,
    model="contract/vllm-small",
    http=HttpStyle(headers=(("server", "uvicorn"), ("vary", "Origin")), type_name="content-type"),
    inference={
        "/v1/chat/completions": InferenceRoute(
            OpenAi(_style(_decorate_chat, "chatcmpl-"), chat=True),
            AskFields("messages", ("max_completion_tokens", "max_tokens")),
            VLLM_CHECKS,
        ),
        "/v1/completions": InferenceRoute(
            OpenAi(_style(_decorate_completion, "cmpl-"), chat=False),
            AskFields("prompt", ("max_tokens",), default_cap=16),
            VLLM_CHECKS,
        ),
        "/v1/responses": InferenceRoute(
            Responses(ResponsesStyle(cut_status="incomplete", changing_item_ids=True)),
            AskFields("input", ("max_output_tokens",)),
            VLLM_CHECKS,
        ),
    },
    observations={
        "GET /health": fixed(Role.HEALTH, Reply(media=None)),
        "GET /ping": fixed(Role.OTHER, Reply(media=None)),
        "GET /version": fixed(Role.VERSION, json_reply({"version": _BUILD})),
        "GET /load": fixed(Role.OTHER, json_reply({"server_load": 0})),  # zero also while calls run: tracking is off
        "GET /v1/models": computed(
            Role.MODELS,
            lambda observed: model_list(
                observed,
                "vllm",
                CREATED + observed.counters.reads,
                root="/srv/weights/small",
                parent=None,
                max_model_len=4096,
            ),
        ),
        "GET /metrics": metrics(_metrics, "text/plain; version=1.0.0; charset=utf-8"),
    },
    error=_error,
    malformed=lambda request: json_reply(_error(Refusal(400, "Bad Request", "JSON decode error")), 400),
    unknown_route=fastapi_unknown,
)
