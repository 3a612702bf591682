"""The Responses dialect.

Rules of a stream:

1. Every event is an object with a ``type``; where ``flags.event_lines`` holds the SSE name is the same word. An object
   without ``type`` that has an error is an error (llama.cpp b10156).
2. ``sequence_number``, where a server has it, rises by one. llama.cpp has none.
3. Output comes in ``*.delta`` events. ``*.done`` events and snapshots repeat it and are not read, unless no delta
   came; then the text is that of the terminal snapshot.
4. The stream ends with ``response.completed``, ``response.incomplete``, ``response.failed`` or ``error``. Nothing
   follows but ``[DONE]``, where ``flags.has_done`` holds.
5. A snapshot with status ``incomplete`` is a whole answer that its token limit cut, under either event name. Status
   ``completed`` means "stop" only where ``flags.status_tells_truncation`` holds; elsewhere the reason is unavailable.
"""

from __future__ import annotations

from collections.abc import Mapping

from tasc_collector.canonical import JsonValue
from tasc_collector.runtimes.dialects.base import DialectReader, JsonObject, as_object, is_error, items, part, text_of
from tasc_collector.runtimes.flags import DialectFlags
from tasc_collector.runtimes.result import OutputKind, TimingUnit
from tasc_collector.runtimes.state import AnswerState
from tasc_collector.runtimes.usage import CHAT_USAGE, RESPONSES_USAGE, read_usage
from tasc_collector.runtimes.verdict import AnswerReason, FinishReason, Verdict

_DELTAS: Mapping[str, OutputKind] = {
    "response.output_text.delta": OutputKind.ANSWER,
    "response.refusal.delta": OutputKind.ANSWER,
    "response.reasoning_text.delta": OutputKind.REASONING,
    "response.reasoning.delta": OutputKind.REASONING,
    "response.reasoning_summary_text.delta": OutputKind.REASONING,
    "response.function_call_arguments.delta": OutputKind.TOOL,
}
_TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})
_INCOMPLETE: Mapping[str, FinishReason] = {
    "max_output_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}
"""``incomplete_details.reason``."""
_UNFINISHED: Mapping[str, AnswerReason] = {
    "failed": AnswerReason.RESPONSE_FAILED,
    "cancelled": AnswerReason.FINISH_ABORTED,
    "in_progress": AnswerReason.NOT_DONE,
    "queued": AnswerReason.NOT_DONE,
}
"""Other states of a snapshot that should be terminal."""


class ResponsesReader(DialectReader):
    """``/v1/responses``."""

    def __init__(
        self, state: AnswerState, flags: DialectFlags, *, expected_choices: int | None, max_tokens: int | None
    ) -> None:
        super().__init__(state, flags, expected_choices=expected_choices, max_tokens=max_tokens)
        self._sequence: int | None = None
        self._terminal = False
        self._events = 0

    def frame(self, name: str, value: JsonValue) -> None:
        """Take one event."""
        event = as_object(value)
        kind = event.get("type")
        if name == "error" or kind == "error" or (kind is None and is_error(event, self.flags)):
            raise Verdict(AnswerReason.ERROR_FRAME)
        if self._terminal:
            raise Verdict(AnswerReason.AFTER_TERMINATOR)
        if type(kind) is not str:
            raise Verdict(AnswerReason.SHAPE_INVALID)
        if name != kind if self.flags.event_lines else name not in ("", kind):
            raise Verdict(AnswerReason.EVENT_NAME_MISMATCH)
        self._events += 1
        self._check_sequence(event.get("sequence_number"))
        output = _DELTAS.get(kind)
        if output is not None:
            self._delta(output, event)
        elif kind in _TERMINAL:
            self._terminal = True
            self._snapshot(part(event.get("response")))
            self._timings(event)
        elif not kind.startswith("response."):
            raise Verdict(AnswerReason.EVENT_UNKNOWN)
        elif "response" in event:
            self.state.model(part(event["response"]).get("model"))

    @property
    def ended(self) -> bool:
        """True once the dialect's last frame was seen."""
        return self._terminal

    def body(self, value: JsonValue) -> None:
        """Take a whole body."""
        body = as_object(value)
        if is_error(body, self.flags):
            failed = body.get("status") == "failed"
            raise Verdict(AnswerReason.RESPONSE_FAILED if failed else AnswerReason.ERROR_BODY)
        self._snapshot(body, old_usage_names=self.flags.old_usage_names)
        self._timings(body)
        self.require_evidence()

    def close(self) -> None:
        """Tell that the stream ended cleanly."""
        if not self._terminal:
            raise Verdict(AnswerReason.TERMINATOR_MISSING if self._events else AnswerReason.NO_OUTPUT)
        self.require_done()
        self.require_evidence()

    def done_mark(self) -> None:
        """Take ``[DONE]``; before a terminal event it ends nothing."""
        super().done_mark()
        if not self._terminal and self._events:
            raise Verdict(AnswerReason.EVENT_ORDER)

    def _check_sequence(self, number: JsonValue) -> None:
        if number is None:
            if self._sequence is not None:
                raise Verdict(AnswerReason.SEQUENCE_BROKEN)
            return
        allowed = (0, 1) if self._sequence is None else (self._sequence + 1,)
        if type(number) is not int or number not in allowed:
            raise Verdict(AnswerReason.SEQUENCE_BROKEN)
        self._sequence = number

    def _delta(self, kind: OutputKind, event: JsonObject) -> None:
        text = text_of(event.get("delta"))
        if kind is OutputKind.TOOL:
            if text:
                self.state.mark(kind, None)
            return
        logprobs = event.get("logprobs")
        tokens = len(logprobs) if type(logprobs) is list and logprobs else None
        if kind is OutputKind.ANSWER:
            self.answer(text, tokens, timed=True)
        else:
            self.reasoning(text, tokens, timed=True)

    def _snapshot(self, response: JsonObject, *, old_usage_names: bool = False) -> None:
        """Take a Responses object that should be the last word."""
        state = self.state
        state.model(response.get("model"))
        state.remote(response)
        usage = read_usage(
            response.get("usage"),
            CHAT_USAGE if old_usage_names else RESPONSES_USAGE,
            zero_details_unknown=self.flags.zero_details_unknown,
        )
        if usage is not None:
            state.final_usage(usage)
        if is_error(response, self.flags):
            raise Verdict(AnswerReason.RESPONSE_FAILED)
        status = response.get("status")
        if status == "completed":
            tells = self.flags.status_tells_truncation
            state.finished(FinishReason.STOP if tells else FinishReason.UNAVAILABLE)
        elif status == "incomplete":
            details = response.get("incomplete_details")
            raw = details.get("reason") if isinstance(details, dict) else None
            reason = _INCOMPLETE.get(raw) if isinstance(raw, str) else None
            if reason is None:
                raise Verdict(AnswerReason.FINISH_REASON_UNKNOWN if raw else AnswerReason.FINISH_REASON_MISSING)
            state.finished(reason, raw)
        else:
            known = _UNFINISHED.get(status) if isinstance(status, str) else None
            raise Verdict(known or AnswerReason.SHAPE_INVALID)
        self._items(items(response.get("output", [])))

    def _items(self, output: list[JsonObject]) -> None:
        """Count output items; read their text only where no delta brought any."""
        state = self.state
        streamed = state.has_output
        for value in output:
            item = part(value)
            state.choices += 1
            kind = item.get("type")
            if type(kind) is not str:
                raise Verdict(AnswerReason.SHAPE_INVALID)
            if streamed or kind not in ("message", "reasoning"):
                continue
            for content in items(item.get("content") or []):
                text = text_of(part(content).get("text"))
                if kind == "message":
                    self.answer(text, None, timed=bool(self._events))
                else:
                    self.reasoning(text, None, timed=bool(self._events))
        if not state.choices and not state.has_output and (state.usage is None or not state.usage.output):
            raise Verdict(AnswerReason.NO_OUTPUT)

    def _timings(self, holder: JsonObject) -> None:
        """llama.cpp puts ``timings`` beside the response."""
        timings = holder.get("timings")
        if type(timings) is dict:
            for name in ("prompt_ms", "predicted_ms"):
                self.state.timing(name, timings.get(name), TimingUnit.MILLISECONDS)
