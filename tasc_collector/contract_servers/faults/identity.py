"""Faults in who answers and in what an answer leaks: the I and S rows, and answers without text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tasc_collector.canonical import JsonValue
from tasc_collector.contract_servers.faults.model import SSE, Fault, StreamEdit
from tasc_collector.contract_servers.frames import ABSENT, Frame, FrameKind, Maybe
from tasc_collector.contract_servers.generation import Generation, IdRule
from tasc_collector.contract_servers.plan import Plan

MODEL_PATH: Final = "/home/operator/models/private.gguf"
"""A path where a model name should be; it must be redacted."""

ENCRYPTED: Final = "reasoning text hidden as encrypted content"
"""Ollama Responses repeats reasoning text there."""

Shape = Callable[[Generation], Generation]


def _model(value: Maybe) -> Shape:
    return lambda generation: replace(generation, model=value)


def _ids(rule: IdRule) -> Shape:
    return lambda generation: replace(generation, id_rule=rule)


def _extras(**fields: JsonValue) -> Shape:
    return lambda generation: replace(generation, extras={**generation.extras, **fields})


def _reasoning(generation: Generation) -> Generation:
    """Three reasoning events before the answer, counted in its output."""
    thoughts = (" secret", " chain", " of thought")
    return replace(generation, reasoning=thoughts, usage=replace(generation.usage, reasoning=len(thoughts)))


def _no_text(generation: Generation) -> Generation:
    """Counts and a reason, but not one character: no token time exists then."""
    return replace(generation, pieces=(), piece_tokens=())


def _encrypted(edit: StreamEdit) -> list[Frame]:
    frames = []
    for frame in edit.frames:
        body = frame.body
        if frame.kind is FrameKind.END and isinstance(body, dict) and isinstance(body.get("response"), dict):
            response = {**body["response"], "encrypted_content": ENCRYPTED}
            frames.append(frame._replace(body={**body, "response": response}))
        else:
            frames.append(frame)
    return frames


def _model_switches(edit: StreamEdit) -> list[Frame]:
    """The later half of the events name another model."""
    changed = []
    for number, frame in enumerate(edit.frames):
        late = number >= edit.break_at and isinstance(frame.body, dict) and "model" in frame.body
        changed.append(frame._replace(body={**frame.body, "model": "contract/impostor"}) if late else frame)  # type: ignore[dict-item]  # late: body is a dict
    return changed


def _echo_request_id(plan: Plan) -> Plan:
    """An id that the client could have chosen comes back in a header."""
    return replace(plan, headers=(*plan.headers, ("x-request-id", "client-chosen-text-that-nobody-may-keep")))


FAULTS: Final[tuple[Fault, ...]] = (
    Fault("model-differs", ("I01",), "another model answers", shape=_model("contract/impostor")),
    Fault("model-switches", ("I01",), "another model from the middle on", SSE, frames=_model_switches),
    Fault("model-missing", ("I02",), "no model is named", shape=_model(ABSENT)),
    Fault("model-null", ("I02",), "the model is null", shape=_model(None)),
    Fault("model-path", ("I03",), "the model is a path", shape=_model(MODEL_PATH)),
    Fault("id-empty", ("I04",), "the id is empty (TGI)", shape=_ids(IdRule.EMPTY)),
    Fault("id-changing", ("I04",), "a new id on every event (TensorRT-LLM)", shape=_ids(IdRule.CHANGING)),
    Fault("id-colliding", ("I04",), "ids from a range of 999 (Ollama)", shape=_ids(IdRule.COLLIDING)),
    Fault(
        "fingerprint-mismatch",
        ("I05",),
        "the fingerprint names another build",
        shape=lambda g: replace(g, fingerprint="vllm-0.1.0-0"),
    ),
    Fault(
        "remote-host",
        ("I06",),
        "the answer came from a remote host (Ollama)",
        shape=_extras(remote_host="https://remote.invalid"),
    ),
    Fault("remote-model", ("I06",), "a remote model answered (Ollama)", shape=_extras(remote_model="big:cloud")),
    Fault("created-changing", ("I07",), "created grows with every event", shape=lambda g: replace(g, created_step=1)),
    Fault("echo-request-id", ("S02",), "a request id comes back in a header", plan=_echo_request_id),
    Fault("reasoning-first", ("S05",), "three reasoning events before the answer", shape=_reasoning),
    Fault("encrypted-content", ("S05",), "reasoning repeated as encrypted_content (Ollama)", SSE, frames=_encrypted),
    Fault("zero-content", (), "counts and a reason, but no text", shape=_no_text),
    Fault(
        "logprobs-unasked", ("S07",), "token texts as log-probabilities", ask=lambda ask: replace(ask, logprobs=True)
    ),
)
"""Identity and content faults."""
