"""The native dialects: Ollama ``/api/chat`` and ``/api/generate``, TGI ``/generate``, LM Studio ``/api/v1/chat``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tasc_collector.canonical import JsonValue
from tasc_collector.contract_servers.contract import AnswerForm
from tasc_collector.contract_servers.dialects.openai import OPENAI_WORDS
from tasc_collector.contract_servers.frames import Absent, Frame, FrameKind, put
from tasc_collector.contract_servers.generation import PROVIDER_TEXT, Generation, UsageFigures
from tasc_collector.contract_servers.plan import Headers


def _nonzero(**fields: JsonValue | Absent) -> dict[str, JsonValue]:
    """Fields that are neither absent nor zero: Go's ``omitempty``, as Ollama writes counts and durations."""
    return {name: value for name, value in fields.items() if not isinstance(value, Absent) and value != 0}


@dataclass(frozen=True, slots=True)
class Ollama:
    """Ollama 0.32.5 native routes (``api/types.go``): newline-delimited JSON, ``done:true`` last; ns durations."""

    chat: bool
    finish_words: Mapping[str, str] = field(default_factory=lambda: {**OPENAI_WORDS, "tool_calls": "stop"})
    form: AnswerForm = AnswerForm.NDJSON

    def _line(
        self, generation: Generation, text: str, index: int, *, thinking: str = "", done: bool = False
    ) -> dict[str, JsonValue]:
        line: dict[str, JsonValue] = {}
        put(line, model=generation.model)
        line["created_at"] = f"2026-09-21T13:{index // 60 % 60:02d}:{index % 60:02d}.{index % 1000:03d}000001Z"
        line.update(generation.extras)
        thought: dict[str, JsonValue] = {"thinking": thinking} if thinking else {}
        if self.chat:
            line["message"] = {"role": "assistant", "content": text, **thought}
        else:
            line |= {"response": text, **thought}
        line["done"] = done
        return line

    def _closing(self, generation: Generation) -> dict[str, JsonValue]:
        figures = generation.usage
        prompt_ns, decode_ns = int(generation.ttft_ms * 1e6), int(generation.decode_ms * 1e6)
        reason: dict[str, JsonValue] = put({}, done_reason=generation.finish)
        return reason | _nonzero(
            total_duration=prompt_ns + decode_ns,
            load_duration=prompt_ns // 10,
            prompt_eval_count=figures.input,
            prompt_eval_duration=prompt_ns - prompt_ns // 10,
            eval_count=figures.output,
            eval_duration=decode_ns,
        )

    def json_body(self, generation: Generation) -> JsonValue:
        """One object with the whole text, ``done`` and counts."""
        body = self._line(generation, generation.text, 0, thinking="".join(generation.reasoning), done=True)
        return body | self._closing(generation)

    def json_headers(self, generation: Generation) -> Headers:
        """None beyond the runtime's own."""
        return ()

    def frames(self, generation: Generation) -> list[Frame]:
        """A line per event, then the ``done:true`` line with an empty text."""
        lines = [
            Frame(FrameKind.REASONING, self._line(generation, "", 0, thinking=t), tokens=1)
            for t in generation.reasoning
        ]
        for index, (text, tokens) in enumerate(zip(generation.pieces, generation.piece_tokens, strict=True)):
            lines.append(Frame(FrameKind.TOKEN, self._line(generation, text, index), tokens=tokens))
        last = self._line(generation, "", len(generation.pieces), done=True) | self._closing(generation)
        return [*lines, Frame(FrameKind.END, last)]

    def error_frame(self, generation: Generation, sent: int) -> Frame:
        """A line with ``error`` only."""
        return Frame(FrameKind.ERROR, {"error": PROVIDER_TEXT})


@dataclass(frozen=True, slots=True)
class Tgi:
    """TGI 3.3.7 ``/generate`` and ``/generate_stream`` (``router/src/lib.rs``): no model; counts need ``details``."""

    finish_words: Mapping[str, str] = field(
        default_factory=lambda: {"stop": "eos_token", "length": "length", "tool_calls": "eos_token"}
    )
    form: AnswerForm = AnswerForm.SSE

    def _token(self, index: int, text: str) -> dict[str, JsonValue]:
        return {"id": 1000 + index, "text": text, "logprob": -0.5, "special": False}

    def json_body(self, generation: Generation) -> JsonValue:
        """``generated_text`` and, where asked for, ``details``."""
        body: dict[str, JsonValue] = {"generated_text": generation.text, **generation.extras}
        if generation.ask.wants_details:
            tokens: list[JsonValue] = [self._token(i, text) for i, text in enumerate(generation.pieces)]
            details = put({}, finish_reason=generation.finish, generated_tokens=generation.usage.output)
            body["details"] = {**details, "seed": generation.ask.seed, "prefill": [], "tokens": tokens}
        return body

    def json_headers(self, generation: Generation) -> Headers:
        """Compute time in float seconds, the other times in integer milliseconds, and counts (``server.rs``)."""
        prompt_ms, decode_ms = round(generation.ttft_ms), round(generation.decode_ms)
        total_ms = prompt_ms + decode_ms
        return (
            ("x-compute-type", "cpu"),
            ("x-compute-time", f"{total_ms / 1000}"),
            ("x-compute-characters", str(len(str(generation.ask.prompt)))),
            ("x-total-time", str(total_ms)),
            ("x-validation-time", "0"),
            ("x-queue-time", "0"),
            ("x-inference-time", str(total_ms)),
            ("x-time-per-token", str(round(total_ms / max(1, generation.output_tokens)))),
            ("x-prompt-tokens", _count(generation.usage.input)),
            ("x-generated-tokens", _count(generation.usage.output)),
        )

    def frames(self, generation: Generation) -> list[Frame]:
        """One frame per event; the last one has the whole text and, where asked for, details. No ``[DONE]``."""
        frames: list[Frame] = []
        pieces, counts = generation.pieces or ("",), generation.piece_tokens or (0,)
        last = len(pieces) - 1
        for index, (text, tokens) in enumerate(zip(pieces, counts, strict=True)):
            body: dict[str, JsonValue] = {"index": index + 1, "token": self._token(index, text), **generation.extras}
            body |= {"generated_text": None, "details": None}
            if index == last:
                body["generated_text"] = generation.text
                if generation.ask.wants_details:
                    details = put({}, finish_reason=generation.finish, generated_tokens=generation.usage.output)
                    details["seed"] = generation.ask.seed
                    body["details"] = put(details, input_length=generation.usage.input)
            frames.append(Frame(FrameKind.END if index == last else FrameKind.TOKEN, body, tokens=tokens))
        return frames

    def error_frame(self, generation: Generation, sent: int) -> Frame:
        """``error`` and ``error_type``, with status 200."""
        return Frame(FrameKind.ERROR, {"error": PROVIDER_TEXT, "error_type": "generation"})


def _count(value: JsonValue | Absent) -> str:
    return str(value) if isinstance(value, int) else "0"


@dataclass(frozen=True, slots=True)
class LmStudio:
    """LM Studio 0.4.1 ``/api/v1/chat`` (developer documents, REST API): typed events, no finish reason anywhere."""

    finish_words: Mapping[str, str] = field(default_factory=lambda: OPENAI_WORDS)
    form: AnswerForm = AnswerForm.SSE

    def json_body(self, generation: Generation) -> JsonValue:
        """``output`` items and ``stats``; ``response_id`` only where the server was not told to keep nothing."""
        output: list[JsonValue] = []
        if generation.reasoning:
            output.append({"type": "reasoning", "content": "".join(generation.reasoning)})
        output.append({"type": "message", "content": generation.text})
        body: dict[str, JsonValue] = put({}, model_instance_id=generation.model)
        body |= {"output": output, "stats": self._stats(generation, generation.usage), **generation.extras}
        if generation.ask.store:
            body["response_id"] = f"resp_{generation.digest[:32]}"
        return body

    def _stats(self, generation: Generation, figures: UsageFigures) -> dict[str, JsonValue]:
        reasoning = len(generation.reasoning) if isinstance(figures.reasoning, Absent) else figures.reasoning
        stats = put(
            {}, input_tokens=figures.input, total_output_tokens=figures.output, reasoning_output_tokens=reasoning
        )
        seconds = generation.decode_ms / 1000
        stats["tokens_per_second"] = generation.output_tokens / seconds if seconds else 0.0
        stats["time_to_first_token_seconds"] = generation.ttft_ms / 1000
        return stats

    def json_headers(self, generation: Generation) -> Headers:
        """None beyond the runtime's own."""
        return ()

    def frames(self, generation: Generation) -> list[Frame]:
        """chat.start, prompt_processing, reasoning, message and chat.end with the whole JSON answer."""
        instance = put({}, model_instance_id=generation.model)
        events: list[tuple[FrameKind, str, dict[str, JsonValue], int]] = [
            (FrameKind.META, "chat.start", instance, 0),
            (FrameKind.META, "prompt_processing.start", {}, 0),
            (FrameKind.META, "prompt_processing.progress", {"progress": 1.0}, 0),
            (FrameKind.META, "prompt_processing.end", {}, 0),
        ]
        if generation.reasoning:
            events.append((FrameKind.META, "reasoning.start", {}, 0))
            events += [(FrameKind.REASONING, "reasoning.delta", {"content": text}, 1) for text in generation.reasoning]
            events.append((FrameKind.META, "reasoning.end", {}, 0))
        events.append((FrameKind.META, "message.start", {}, 0))
        for text, tokens in zip(generation.pieces, generation.piece_tokens, strict=True):
            events.append((FrameKind.TOKEN, "message.delta", {"content": text}, tokens))
        events.append((FrameKind.META, "message.end", {}, 0))
        events.append((FrameKind.END, "chat.end", {"result": self.json_body(generation)}, 0))
        return [Frame(kind, {"type": name, **body}, name, tokens) for kind, name, body, tokens in events]

    def error_frame(self, generation: Generation, sent: int) -> Frame:
        """The ``error`` event; ``chat.end`` may still follow it."""
        error: dict[str, JsonValue] = {"type": "internal_error", "message": PROVIDER_TEXT}
        return Frame(FrameKind.ERROR, {"type": "error", "error": error}, "error")
