"""TensorRT-LLM 1.2.1 (``serve/openai_server.py`` and ``openai_protocol.py`` of the nearest upstream snapshots)."""

from __future__ import annotations

from tasc_collector.canonical import JsonValue
from tasc_collector.contract_servers.asking import TRT_CHECKS
from tasc_collector.contract_servers.contract import (
    AskFields,
    Contract,
    HttpStyle,
    InferenceRoute,
    ObservationRoute,
    Observed,
    Refusal,
    Reply,
    Role,
)  # fmt: skip
from tasc_collector.contract_servers.counters import exposition, family, histogram, sample
from tasc_collector.contract_servers.dialects.openai import OpenAi, OpenAiStyle, RoleStyle, cached_details, nested_error
from tasc_collector.contract_servers.dialects.responses import Responses
from tasc_collector.contract_servers.frames import FrameKind
from tasc_collector.contract_servers.generation import CREATED, Generation
from tasc_collector.contract_servers.runtimes.replies import (
    computed,
    fastapi_unknown,
    fixed,
    json_reply,
    metrics,
    model_list,
    text_reply,
)  # fmt: skip

_BUILD = "1.2.1"


def _error(refusal: Refusal) -> JsonValue:
    return {
        "object": "error",
        "message": refusal.message,
        "type": refusal.kind,
        "param": refusal.param,
        "code": refusal.status,
    }


def _decorate(chunk: dict[str, JsonValue], kind: FrameKind, generation: Generation) -> None:
    """``stop_reason`` in every choice and decoded tokens per iteration in every chunk."""
    choices = chunk["choices"]
    for choice in choices if isinstance(choices, list) else ():
        choice.setdefault("logprobs", None)
        choice["stop_reason"] = None
    if kind is not FrameKind.BODY:
        chunk["avg_decoded_tokens_per_iter"] = 1.0


def _style(prefix: str) -> OpenAiStyle:
    return OpenAiStyle(
        id_prefix=prefix,
        role=RoleStyle.EMPTY_CONTENT,
        error=nested_error(object="error", type="InternalServerError", code=500),
        continuous=True,
        usage_extra=cached_details,
        decorate=_decorate,
    )


def _iterations(observed: Observed) -> Reply:
    """The queued iteration rows; reading drains them, so two readers share them."""
    rows: list[JsonValue] = []
    queue = observed.counters.iterations
    while queue:
        tokens = queue.popleft()
        rows.append(
            {
                "iter": len(rows),
                "iterLatencyMS": 4.0,
                "numActiveRequests": observed.counters.running,
                "numQueuedRequests": 0,
                "numCompletedRequests": 1,
                "maxNumActiveRequests": 8,
                "gpuMemUsage": 1_000_000,
                "timestamp": "09-21-2026 13:00:00",
                "kvCacheStats": {"maxNumBlocks": 100, "freeNumBlocks": 90, "usedNumBlocks": 10, "tokensPerBlock": 32},
                "inflightBatchingStats": {"numScheduledRequests": 1, "numGenRequests": 1, "numGenTokens": tokens},
            }
        )
    return json_reply(rows)


def _prometheus(observed: Observed) -> bytes:
    """Five families without prefix; the labels are literally ``undefined`` at 1.2."""
    counters = observed.counters
    own = {"model_name": "undefined", "engine_type": "undefined"}
    success = [
        sample("request_success_total", count, {**own, "finished_reason": reason})
        for reason, count in counters.finish_reasons.items()
    ]
    return exposition(
        family("request_success_total", "counter", success),
        histogram("e2e_request_latency_seconds", counters.e2e_s, counters.finished, own),
        histogram("time_to_first_token_seconds", counters.ttft_s, counters.finished, own),
        histogram("time_per_output_token_seconds", counters.e2e_s - counters.ttft_s, counters.generation_tokens, own),
        histogram("request_queue_time_seconds", 0.0, counters.finished, own),
    )


CONTRACT = Contract(
    runtime="tensorrt-llm",
    build=_BUILD,
    model="contract-trt-small",
    http=HttpStyle(headers=(("server", "uvicorn"),), type_name="content-type"),
    inference={
        "/v1/chat/completions": InferenceRoute(
            OpenAi(_style("chatcmpl-"), chat=True),
            AskFields("messages", ("max_completion_tokens", "max_tokens")),
            TRT_CHECKS,
        ),
        "/v1/completions": InferenceRoute(
            OpenAi(_style("cmpl-"), chat=False), AskFields("prompt", ("max_tokens",), default_cap=16), TRT_CHECKS
        ),
        "/v1/responses": InferenceRoute(Responses(), AskFields("input", ("max_output_tokens",)), TRT_CHECKS),
    },
    observations={
        "GET /health": fixed(Role.HEALTH, Reply(media=None)),
        "GET /health_generate": fixed(Role.READINESS, text_reply("Generation health check OK"), generates=True),
        "GET /version": fixed(Role.VERSION, json_reply({"version": _BUILD})),
        "GET /v1/models": computed(Role.MODELS, lambda observed: model_list(observed, "tensorrt_llm", CREATED)),
        "GET /metrics": ObservationRoute(Role.JSON_METRICS, _iterations),
        "GET /prometheus/metrics": metrics(_prometheus),
    },
    error=_error,
    malformed=lambda request: json_reply(_error(Refusal(400, "BadRequestError", "JSON decode error")), 400),
    unknown_route=fastapi_unknown,
)
