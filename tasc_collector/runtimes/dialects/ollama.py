"""Ollama's native ``/api/chat`` and ``/api/generate``.

Rules:

1. Every line is an object. One with ``error`` is an error, whatever the status was.
2. Output comes in lines with ``done`` false; the line with ``done`` true ends the answer and carries reason, counts and
   durations. Nothing follows it.
3. ``done_reason`` ``load`` or ``unload`` means that no inference took place; none at all means that the runner's
   connection closed early, so the answer is not whole.
4. A count that is zero is left out by the server; it stays unknown. At least one count must be there.
5. ``remote_model`` or ``remote_host`` means that another host answered.

Durations are integer nanoseconds (v0.32.5 ``api/types.go``).
"""

from __future__ import annotations

from typing import Any

from tasc_collector.canonical import JsonValue
from tasc_collector.runtimes.dialects.base import DialectReader, JsonObject, as_object, is_error, part, text_of
from tasc_collector.runtimes.result import OutputKind, TimingUnit
from tasc_collector.runtimes.usage import OLLAMA_USAGE, read_usage
from tasc_collector.runtimes.verdict import AnswerReason, Verdict

_DURATIONS = {
    "total_duration": "totalDurationNs",
    "load_duration": "loadDurationNs",
    "prompt_eval_duration": "promptEvaluationDurationNs",
    "eval_duration": "evaluationDurationNs",
}
"""Field -> name in the persisted record."""


class OllamaReader(DialectReader):
    """Both native routes; they differ in where a line has its text."""

    _done = False

    def frame(self, name: str, value: JsonValue) -> None:
        """Take one line."""
        line = as_object(value)
        if is_error(line, self.flags):
            raise Verdict(AnswerReason.ERROR_FRAME)
        if self._done:
            raise Verdict(AnswerReason.AFTER_TERMINATOR)
        self._line(line, timed=True)

    @property
    def ended(self) -> bool:
        """True once the dialect's last frame was seen."""
        return self._done

    def body(self, value: JsonValue) -> None:
        """Take a whole body."""
        body = as_object(value)
        if is_error(body, self.flags):
            raise Verdict(AnswerReason.ERROR_BODY)
        self._line(body, timed=False)
        if not self._done:
            raise Verdict(AnswerReason.NOT_DONE)
        self.require_evidence()

    def close(self) -> None:
        """Tell that the stream ended cleanly."""
        if not self._done:
            raise Verdict(AnswerReason.TERMINATOR_MISSING)
        self.require_evidence()

    def _line(self, line: JsonObject, *, timed: bool) -> None:
        state = self.state
        state.model(line.get("model"))
        state.remote(line)
        message = line.get("message")
        if message is None:
            text, thought, calls = line.get("response"), line.get("thinking"), line.get("tool_calls")
        else:
            holder = part(message)
            text, thought, calls = holder.get("content"), holder.get("thinking"), holder.get("tool_calls")
        state.choices = 1
        state.logprobs = state.logprobs or _tokens(line) is not None
        several = bool(text) + bool(thought) + bool(calls) > 1
        tokens = None if several else _tokens(line)
        self.reasoning(text_of(thought), tokens, timed=timed)
        self.answer(text_of(text), tokens, timed=timed)
        if calls and timed:
            state.mark(OutputKind.TOOL, tokens)
        done = line.get("done", False)
        if type(done) is not bool:
            raise Verdict(AnswerReason.SHAPE_INVALID)
        if done:
            self._done = True
            self._end(line)

    def _end(self, line: JsonObject) -> None:
        state = self.state
        reason = state.canonical_reason(line.get("done_reason"))
        if reason is not None:
            state.finished(reason, line["done_reason"])
        usage = read_usage(line, OLLAMA_USAGE)
        if usage is not None:
            state.final_usage(usage)
        for field, name in _DURATIONS.items():
            state.timing(name, line.get(field), TimingUnit.NANOSECONDS)


def _tokens(line: dict[str, Any]) -> int | None:  # Any: a JSON object
    """Tokens of a line, from its log-probabilities where they were asked for; a line may merge several tokens."""
    logprobs = line.get("logprobs")
    return len(logprobs) if type(logprobs) is list and logprobs else None
