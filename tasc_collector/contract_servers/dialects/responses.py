"""The OpenAI Responses API as the pinned builds write it: one assistant message, streamed as typed events.

What differs (sequence numbers, item indexes, how a cut answer is reported, where counts stand) is a ``ResponsesStyle``;
sources are each build's ``serving_responses`` module, llama.cpp and vLLM also live runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tasc_collector.canonical import JsonValue
from tasc_collector.contract_servers.contract import AnswerForm
from tasc_collector.contract_servers.dialects.openai import OPENAI_WORDS
from tasc_collector.contract_servers.frames import Absent, Frame, FrameKind, put
from tasc_collector.contract_servers.generation import PROVIDER_TEXT, Generation, IdRule, UsageFigures
from tasc_collector.contract_servers.plan import Headers


@dataclass(frozen=True, slots=True)
class ResponsesStyle:
    """What differs between the Responses implementations.

    Attributes:
        sequence_numbers: events are numbered from 0.
        indexes: events name ``output_index`` and ``content_index``.
        minimal_start: ``response.created`` holds id, object and status only (llama.cpp).
        cut_status: status of an answer that the cap ended: ``incomplete`` (vLLM) or ``completed`` (all others).
        changing_item_ids: the final snapshot names another item id than the deltas did (vLLM).
        old_json_usage: the JSON answer counts under ``prompt_tokens`` and ``completion_tokens`` (SGLang).
        zero_details: cached and reasoning counts are always written, as 0 (Ollama).
        reasoning_event: event type of reasoning text.
        failed_event: a failure is ``response.failed``; else a bare ``data:`` error (llama.cpp).
        beside: fields beside ``response`` in the terminal event (llama.cpp ``timings``).
    """

    sequence_numbers: bool = True
    indexes: bool = True
    minimal_start: bool = False
    cut_status: str = "completed"
    changing_item_ids: bool = False
    old_json_usage: bool = False
    zero_details: bool = False
    reasoning_event: str = "response.reasoning_text.delta"
    failed_event: bool = True
    beside: Callable[[Generation], dict[str, JsonValue]] = field(default=lambda generation: {})


@dataclass(frozen=True, slots=True)
class Responses:
    """The Responses route of one runtime. ``finish`` is not on this wire; the status is."""

    style: ResponsesStyle = field(default_factory=ResponsesStyle)
    finish_words: Mapping[str, str] = field(default_factory=lambda: OPENAI_WORDS)
    form: AnswerForm = AnswerForm.SSE

    def json_body(self, generation: Generation) -> JsonValue:
        """The finished response object."""
        body = self._response(generation, finished=True)
        if self.style.old_json_usage:
            figures = generation.usage
            body["usage"] = put(
                {}, prompt_tokens=figures.input, completion_tokens=figures.output, total_tokens=figures.total
            )
        return body

    def json_headers(self, generation: Generation) -> Headers:
        """None beyond the runtime's own."""
        return ()

    def frames(self, generation: Generation) -> list[Frame]:
        """created, in_progress, item and part added, deltas, the three ``done`` events, completed; no ``[DONE]``."""
        item_id = f"msg_{generation.digest[:24]}"
        start = self._response(generation, finished=False)
        if self.style.minimal_start:
            start = {key: start[key] for key in ("id", "object", "status")}
        empty = self._part("")
        full = self._part(generation.text)
        closed_id = f"msg_{generation.digest[24:48]}" if self.style.changing_item_ids else item_id
        kinds = FrameKind
        events: list[tuple[FrameKind, str, dict[str, JsonValue], int]] = [
            (kinds.META, "response.created", {"response": start}, 0),
            (kinds.META, "response.in_progress", {"response": start}, 0),
        ]
        if generation.reasoning:
            reasoning = {"item_id": f"rs_{generation.digest[:24]}"}
            events += [
                (kinds.REASONING, self.style.reasoning_event, {**reasoning, "delta": t}, 1)
                for t in generation.reasoning
            ]
        events += [
            (kinds.META, "response.output_item.added", {"item": self._item(item_id, None)}, 0),
            (kinds.META, "response.content_part.added", {"item_id": item_id, "part": empty}, 0),
        ]
        for text, tokens in zip(generation.pieces, generation.piece_tokens, strict=True):
            delta: dict[str, JsonValue] = {"item_id": item_id, "delta": text, "logprobs": []}
            events.append((kinds.TOKEN, "response.output_text.delta", delta, tokens))
        terminal = "response.completed"
        events += [
            (kinds.META, "response.output_text.done", {"item_id": item_id, "text": generation.text, "logprobs": []}, 0),
            (kinds.META, "response.content_part.done", {"item_id": item_id, "part": full}, 0),
            (kinds.META, "response.output_item.done", {"item": self._item(closed_id, generation.text)}, 0),
            (
                kinds.END,
                terminal,
                {"response": self._response(generation, finished=True), **self.style.beside(generation)},
                0,
            ),
        ]
        return [self._event(number, *event) for number, event in enumerate(events)]

    def error_frame(self, generation: Generation, sent: int) -> Frame:
        """``response.failed``, or the bare error of llama.cpp."""
        if not self.style.failed_event:
            return Frame(FrameKind.ERROR, {"error": {"code": 500, "message": PROVIDER_TEXT, "type": "server_error"}})
        failed = {**self._response(generation, finished=False), "status": "failed", "usage": None}
        failed["error"] = {"code": "server_error", "message": PROVIDER_TEXT}
        body: dict[str, JsonValue] = {"type": "response.failed", "response": failed}
        if self.style.sequence_numbers:
            body["sequence_number"] = sent
        return Frame(FrameKind.ERROR, body, event="response.failed")

    def _event(self, number: int, kind: FrameKind, name: str, fields: dict[str, JsonValue], tokens: int) -> Frame:
        body: dict[str, JsonValue] = {"type": name}
        if self.style.sequence_numbers:
            body["sequence_number"] = number
        if self.style.indexes and "response" not in fields:
            body["output_index"] = 0
            if "item" not in fields:
                body["content_index"] = 0
        return Frame(kind, {**body, **fields}, event=name, tokens=tokens)

    def _part(self, text: str) -> dict[str, JsonValue]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def _item(self, item_id: str, text: str | None) -> dict[str, JsonValue]:
        content: list[JsonValue] = [] if text is None else [self._part(text)]
        status = "in_progress" if text is None else "completed"
        return {"id": item_id, "type": "message", "role": "assistant", "status": status, "content": content}

    def _response(self, generation: Generation, *, finished: bool) -> dict[str, JsonValue]:
        cut = generation.truncated and self.style.cut_status == "incomplete"
        status = "in_progress" if not finished else "incomplete" if cut else "completed"
        body: dict[str, JsonValue] = {
            "id": generation.answer_id("resp_", 0, IdRule.CONSTANT),
            "object": "response",
            "created_at": generation.created(0),
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if finished and cut else None,
        }
        put(body, model=generation.model)
        body.update(generation.extras)
        output: list[JsonValue] = []
        if finished and generation.reasoning:
            content: list[JsonValue] = [{"type": "reasoning_text", "text": "".join(generation.reasoning)}]
            output.append(
                {"id": f"rs_{generation.digest[:24]}", "type": "reasoning", "summary": [], "content": content}
            )
        if finished:
            output.append(self._item(f"msg_{generation.digest[:24]}", generation.text))
        body["output"] = output
        body["usage"] = self._usage(generation.usage) if finished else None
        return body

    def _usage(self, figures: UsageFigures) -> dict[str, JsonValue]:
        usage = put({}, input_tokens=figures.input, output_tokens=figures.output, total_tokens=figures.total)
        default: JsonValue | Absent = 0 if self.style.zero_details else Absent.ABSENT
        cached = default if isinstance(figures.cached, Absent) else figures.cached
        reasoning = default if isinstance(figures.reasoning, Absent) else figures.reasoning
        usage["input_tokens_details"] = put({}, cached_tokens=cached)
        usage["output_tokens_details"] = put({}, reasoning_tokens=reasoning)
        return usage
