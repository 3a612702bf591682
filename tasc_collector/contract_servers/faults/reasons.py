"""Faults in the terminal reason: the R rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tasc_collector.canonical import JsonValue
from tasc_collector.contract_servers.faults.model import JSON, NDJSON, SSE, STREAMS, Fault, StreamEdit
from tasc_collector.contract_servers.frames import ABSENT, Frame, FrameKind, Maybe
from tasc_collector.contract_servers.generation import Generation

Shape = Callable[[Generation], Generation]


def _finish(word: Maybe) -> Shape:
    return lambda generation: replace(generation, finish=word)


def _tool_call(generation: Generation) -> Generation:
    return replace(generation, finish=generation.words["tool_calls"], tool_call=True)


def _dialect_finish(meaning: str) -> Shape:
    """The dialect's own word for a meaning."""
    return lambda generation: replace(generation, finish=generation.words[meaning])


def _unfinished(generation: Generation) -> Generation:
    return replace(generation, unfinished=frozenset(range(generation.ask.choices)))


def _two_choices_one_finish(generation: Generation) -> Generation:
    return replace(generation, ask=replace(generation.ask, choices=2), unfinished=frozenset({1}))


def _no_terminal(edit: StreamEdit) -> list[Frame]:
    return [frame for frame in edit.frames if frame.kind not in {FrameKind.END, FrameKind.DONE, FrameKind.FINISH}]


def _terminal_response(event: str, status: str, details: JsonValue) -> Callable[[StreamEdit], list[Frame]]:
    """The terminal Responses event under another name and status; other dialects have none and stay as they are."""

    def change(edit: StreamEdit) -> list[Frame]:
        frames = []
        for frame in edit.frames:
            body = frame.body
            if frame.kind is FrameKind.END and isinstance(body, dict) and isinstance(body.get("response"), dict):
                response = {**body["response"], "status": status, "incomplete_details": details}
                frames.append(frame._replace(event=event, body={**body, "type": event, "response": response}))
            else:
                frames.append(frame)
        return frames

    return change


def _response_failed(edit: StreamEdit) -> list[Frame]:
    before = edit.frames[: edit.break_at]
    return [*before, edit.dialect.error_frame(edit.generation, len(before))]


def _not_done(body: JsonValue) -> JsonValue:
    """Ollama: the runner's channel closed early; ``done`` is false and there are no counts."""
    if not isinstance(body, dict) or "done" not in body:
        return body
    counts = {
        "done_reason",
        "total_duration",
        "load_duration",
        "prompt_eval_count",
        "prompt_eval_duration",
        "eval_count",
        "eval_duration",
    }
    return {**{key: value for key, value in body.items() if key not in counts}, "done": False}


FAULTS: Final[tuple[Fault, ...]] = (
    Fault("finish-stop", ("R01",), "the dialect's word for stop", shape=_dialect_finish("stop")),
    Fault("finish-length", ("R01",), "the dialect's word for length", shape=_dialect_finish("length")),
    Fault("finish-tool-calls", ("R01",), "one tool call instead of text", shape=_tool_call),
    Fault("raw-eos-token", ("R02",), "the reason eos_token (TGI)", shape=_finish("eos_token")),
    Fault("raw-stop-sequence", ("R02",), "the reason stop_sequence (TGI)", shape=_finish("stop_sequence")),
    Fault("finish-empty", ("R03",), "the reason is an empty text", shape=_finish("")),
    Fault("finish-null", ("T08",), "the last event's reason is null, then the terminator", shape=_finish(None)),
    Fault("done-without-finish", ("T08",), "no event has a reason, then the terminator", shape=_unfinished),
    Fault("finish-abort", ("R04",), "the reason abort (vLLM, SGLang)", shape=_finish("abort")),
    Fault("finish-error", ("R05",), "the reason error", shape=_finish("error")),
    Fault("finish-repetition", ("R05",), "the reason repetition (vLLM)", shape=_finish("repetition")),
    Fault("finish-content-filter", ("R05",), "the reason content_filter", shape=_finish("content_filter")),
    Fault("finish-unknown", ("R05",), "a reason that nobody defined", shape=_finish("moonphase")),
    Fault("done-load", ("R06",), "the reason load (Ollama)", shape=_finish("load")),
    Fault("done-unload", ("R06",), "the reason unload (Ollama)", shape=_finish("unload")),
    Fault("done-without-reason", ("R07",), "done, but no reason (Ollama)", NDJSON | JSON, shape=_finish(ABSENT)),
    Fault("done-false", ("R08",), "a JSON answer that is not done (Ollama)", JSON, body=_not_done),
    Fault(
        "completed-incomplete",
        ("R09",),
        "response.completed with status incomplete (vLLM)",
        SSE,
        frames=_terminal_response("response.completed", "incomplete", {"reason": "max_output_tokens"}),
    ),
    Fault(
        "completed-at-limit",
        ("R10",),
        "status completed although the cap ended the answer",
        SSE,
        frames=_terminal_response("response.completed", "completed", None),
    ),
    Fault(
        "response-incomplete",
        ("R11",),
        "response.incomplete (Dynamo)",
        SSE,
        frames=_terminal_response("response.incomplete", "incomplete", {"reason": "max_output_tokens"}),
    ),
    Fault(
        "response-failed",
        ("R12",),
        "response.failed, or the dialect's error event, in the middle",
        SSE,
        frames=_response_failed,
    ),
    Fault("no-terminal", ("R13",), "no reason, no terminal event, a clean end", STREAMS, frames=_no_terminal),
    Fault("two-choices-one-finish", ("R15",), "two choices, the second never ends", shape=_two_choices_one_finish),
)
"""Reason faults."""
