"""Reads an inference request with a route's field table, and the checks that the pinned builds make on it.

A check is a plain function; a route lists the ones its build makes, in its order. Sources: each build's protocol and
serving modules; those of vLLM, llama.cpp and MLX-LM also live runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson

from tasc_collector.canonical import JsonValue
from tasc_collector.contract_servers.contract import AskFields, Check, CheckInput, Refusal, Reply
from tasc_collector.contract_servers.frames import encode
from tasc_collector.contract_servers.generation import Ask

OPENAI_REQUEST_FIELDS: Final = frozenset({
    "model", "messages", "prompt", "input", "max_tokens", "max_completion_tokens", "max_output_tokens", "temperature",
    "top_p", "seed", "stop", "stream", "stream_options", "n", "logprobs", "top_logprobs", "store", "user",
    "presence_penalty", "frequency_penalty", "response_format", "tools", "tool_choice",
})  # fmt: skip
"""Fields that a strict schema (TensorRT-LLM) knows here; any other is refused there."""


_SCHEMA_FIELDS: Final = ("response_format.json_schema", "format", "text.format", "parameters.grammar")
"""Where the runtimes' dialects carry the schema of a structured answer."""


def lookup(body: Mapping[str, JsonValue], path: str) -> JsonValue:
    """The value at a dotted path, or None where any part is missing."""
    value: JsonValue = body
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _integer(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def read_ask(body: Mapping[str, JsonValue], fields: AskFields) -> Ask:
    """What the route understands of a request; everything else is ignored, as most builds do."""
    caps = (_integer(lookup(body, path)) for path in fields.caps)
    cap = next((found for found in caps if found is not None), fields.default_cap)
    if cap == 0 and fields.zero_cap_is_one:
        cap = 1
    stream = body.get("stream")
    options = body.get("stream_options")
    model = body.get("model")
    wants_usage = lookup(body, "stream_options.include_usage") is True
    continuous = lookup(body, "stream_options.continuous_usage_stats")
    return Ask(
        prompt=body.get(fields.prompt),
        model=model if isinstance(model, str) else None,
        stream=fields.forced_stream
        if fields.forced_stream is not None
        else stream
        if isinstance(stream, bool)
        else fields.stream,
        cap=cap if cap is not None and cap >= 0 else None,
        wants_usage=wants_usage,
        wants_details=fields.details is not None and lookup(body, fields.details) is True,
        bare_stream_options=isinstance(options, Mapping) and not wants_usage,
        continuous_usage=continuous if isinstance(continuous, bool) else None,
        logprobs=bool(body.get("logprobs")),
        choices=max(1, min(_integer(body.get("n")) or 1, 8)),
        seed=_integer(lookup(body, fields.seed)),
        store=body.get("store") is not False,
        structured=any(lookup(body, path) for path in _SCHEMA_FIELDS),
        tools=bool(body.get("tools")),
    )


def needs_json_content_type(given: CheckInput) -> Refusal | None:
    """VLLM 0.26.0: any other content type is a 400 "Unsupported Media Type"."""
    media = given.request.head.headers.get("content-type", "").partition(";")[0].strip().lower()
    return None if media == "application/json" else Refusal(400, "Bad Request", "Unsupported Media Type")


def needs_prompt(given: CheckInput) -> Refusal | None:
    """The prompt field is missing, or is an empty list of messages."""
    prompt = given.body.get(given.fields.prompt)
    return Refusal(400, "BadRequestError", "prompt missing", given.fields.prompt) if prompt in (None, []) else None


def needs_positive_cap(given: CheckInput) -> Refusal | None:
    """vLLM, SGLang, TensorRT-LLM: a token cap below 1 is refused."""
    for path in given.fields.caps:
        cap = lookup(given.body, path)
        if isinstance(cap, int) and cap < 1:
            return Refusal(400, "BadRequestError", f"{path} must be at least 1", path)
    return None


def stream_options_need_stream(given: CheckInput) -> Refusal | None:
    """VLLM ``protocol.py``: refused without ``stream:true``, and the message reflects the whole request body."""
    if given.body.get("stream_options") is None or given.body.get("stream") is True:
        return None
    reflected = orjson.dumps(dict(given.body)).decode()
    return Refusal(400, "Bad Request", f"stream options need stream, input_value={reflected}", "stream_options")


def needs_known_model(given: CheckInput) -> Refusal | None:
    """vLLM, Ollama: a model that is not served is a 404; without one the default is used."""
    asked = given.body.get("model")
    return None if asked in (None, given.model) else Refusal(404, "NotFoundError", "the model does not exist", "model")


def ollama_knows_model(given: CheckInput) -> Reply | None:
    """Ollama native routes: an unknown model is a 404 with a string, not with the object of its OpenAI routes."""
    known = given.body.get("model") == given.model
    return None if known else Reply(404, encode({"error": "model not found"}), "application/json; charset=utf-8")


def ollama_loads_on_empty(given: CheckInput) -> Reply | None:
    """Ollama native routes: an empty prompt loads the model and answers ``done_reason: load``; no inference result."""
    if given.body.get(given.fields.prompt):
        return None
    text: dict[str, JsonValue] = (
        {"message": {"role": "assistant", "content": ""}} if given.fields.prompt == "messages" else {"response": ""}
    )
    stamp: dict[str, JsonValue] = {"model": given.model, "created_at": "2026-09-21T13:00:00.000000001Z"}
    return Reply(200, encode({**stamp, **text, "done": True, "done_reason": "load"}), "application/json; charset=utf-8")


def needs_model(given: CheckInput) -> Refusal | None:
    """TensorRT-LLM: ``model`` is required."""
    return (
        None if isinstance(given.body.get("model"), str) else Refusal(400, "BadRequestError", "model missing", "model")
    )


def refuses_unknown_fields(given: CheckInput) -> Refusal | None:
    """TensorRT-LLM: the schema is strict."""
    unknown = sorted(set(given.body) - OPENAI_REQUEST_FIELDS)
    return Refusal(400, "BadRequestError", f"extra fields {unknown}", unknown[0]) if unknown else None


def refuses_both_caps(given: CheckInput) -> Refusal | None:
    """TGI: ``max_completion_tokens`` is an alias, so both together are a duplicate field."""
    both = "max_tokens" in given.body and "max_completion_tokens" in given.body
    return Refusal(422, "validation", "duplicate field `max_tokens`") if both else None


def needs_stop_array(given: CheckInput) -> Refusal | None:
    """TGI chat: ``stop`` must be an array."""
    stop = given.body.get("stop")
    return None if stop is None or isinstance(stop, list) else Refusal(422, "validation", "stop must be a sequence")


def closes_on_bad_types(given: CheckInput) -> Reply | None:
    """MLX-LM 0.31.3: missing messages, or a cap of the wrong type or below 0, end the connection without a byte."""
    caps = [given.body.get(path) for path in given.fields.caps]
    bad = any(cap is not None and (not isinstance(cap, int) or isinstance(cap, bool) or cap < 0) for cap in caps)
    return Reply(silent=True) if bad or given.fields.prompt not in given.body else None


def mlx_refuses_empty_messages(given: CheckInput) -> Refusal | None:
    """MLX-LM 0.31.3: whatever fails before generation is a 404 with a string."""
    return Refusal(404, "", "messages cannot be empty") if given.body.get(given.fields.prompt) == [] else None


VLLM_CHECKS: Final[tuple[Check, ...]] = (
    needs_json_content_type, stream_options_need_stream, needs_prompt, needs_positive_cap, needs_known_model,
)  # fmt: skip
SGLANG_CHECKS: Final[tuple[Check, ...]] = (needs_prompt, needs_positive_cap)
TRT_CHECKS: Final[tuple[Check, ...]] = (
    refuses_unknown_fields, needs_model, stream_options_need_stream, needs_prompt, needs_positive_cap,
)  # fmt: skip
OLLAMA_NATIVE_CHECKS: Final[tuple[Check, ...]] = (ollama_knows_model, ollama_loads_on_empty)
OLLAMA_CHECKS: Final[tuple[Check, ...]] = (needs_prompt, needs_known_model)
TGI_CHAT_CHECKS: Final[tuple[Check, ...]] = (refuses_both_caps, needs_stop_array)
MLX_CHECKS: Final[tuple[Check, ...]] = (closes_on_bad_types, mlx_refuses_empty_messages)
