"""LM Studio's native ``/api/v1/chat``.

Rules of a stream:

1. The SSE name of every event is its ``type``. ``chat.start`` is first and ``chat.end`` is last.
2. After an ``error`` event a ``chat.end`` with a partial result still comes; the error decides.
3. Output comes in ``message.delta`` and ``reasoning.delta``. ``chat.end`` repeats it, with counts; its text is read
   only where no delta came.
4. ``model_load.*`` events mean that the call changed the server: it loaded a model.
5. No finish reason exists, so a whole answer has the reason "unavailable"; output as long as the limit is suspect.
6. ``response_id`` in a result means that the server stored the chat although the request forbade it.

Source: LM Studio documentation of the REST API at 0.4.1 (chat, streaming events).
"""

from __future__ import annotations

from tasc_collector.canonical import JsonValue
from tasc_collector.runtimes.dialects.base import DialectReader, JsonObject, as_object, is_error, items, part, text_of
from tasc_collector.runtimes.result import TimingUnit
from tasc_collector.runtimes.usage import LM_STUDIO_USAGE, read_usage
from tasc_collector.runtimes.verdict import AnswerReason, FinishReason, Verdict

_QUIET = frozenset(
    {
        "prompt_processing.start",
        "prompt_processing.progress",
        "prompt_processing.end",
        "reasoning.start",
        "reasoning.end",
        "message.start",
        "message.end",
    }
)
"""Events that carry nothing for us."""
_LOADS = frozenset({"model_load.start", "model_load.progress", "model_load.end"})
_TIMINGS = ("time_to_first_token_seconds", "model_load_time_seconds")


class LmStudioReader(DialectReader):
    """The native route."""

    _started = False
    _ended = False

    def frame(self, name: str, value: JsonValue) -> None:
        """Take one event."""
        event = as_object(value)
        kind = event.get("type")
        if name == "error" or kind == "error" or is_error(event, self.flags):
            raise Verdict(AnswerReason.ERROR_FRAME)
        if self._ended:
            raise Verdict(AnswerReason.AFTER_TERMINATOR)
        if type(kind) is not str or name != kind:
            raise Verdict(AnswerReason.EVENT_NAME_MISMATCH)
        if self._started is (kind == "chat.start"):
            raise Verdict(AnswerReason.EVENT_ORDER)
        if kind == "message.delta":
            self.answer(text_of(event.get("content")), None, timed=True)
        elif kind == "reasoning.delta":
            self.reasoning(text_of(event.get("content")), None, timed=True)
        elif kind == "chat.start":
            self._started = True
            self.state.model(event.get("model_instance_id"))
        elif kind == "chat.end":
            self._ended = True
            self._result(part(event.get("result")), timed=True)
        elif kind in _LOADS:
            self.state.model_loaded = True
        elif kind not in _QUIET:
            raise Verdict(AnswerReason.ITEM_UNEXPECTED if kind.startswith("tool_call.") else AnswerReason.EVENT_UNKNOWN)

    @property
    def ended(self) -> bool:
        """True once the dialect's last frame was seen."""
        return self._ended

    def body(self, value: JsonValue) -> None:
        """Take a whole body."""
        body = as_object(value)
        if is_error(body, self.flags):
            raise Verdict(AnswerReason.ERROR_BODY)
        self._result(body, timed=False)
        self.require_evidence()

    def close(self) -> None:
        """Tell that the stream ended cleanly."""
        if not self._ended:
            raise Verdict(AnswerReason.TERMINATOR_MISSING)
        self.require_evidence()

    def _result(self, result: JsonObject, *, timed: bool) -> None:
        state = self.state
        if result.get("response_id") is not None:
            raise Verdict(AnswerReason.STATE_STORED)
        state.model(result.get("model_instance_id"))
        streamed = state.has_output
        output = items(result.get("output"))
        for value in output:
            item = part(value)
            kind = item.get("type")
            if kind not in ("message", "reasoning"):
                raise Verdict(AnswerReason.ITEM_UNEXPECTED)
            state.choices += 1
            if not streamed:
                text = text_of(item.get("content"))
                if kind == "message":
                    self.answer(text, None, timed=timed)
                else:
                    self.reasoning(text, None, timed=timed)
        stats = part(result.get("stats"))
        usage = read_usage(stats, LM_STUDIO_USAGE)
        if usage is not None:
            state.final_usage(usage)
        for name in _TIMINGS:
            state.timing(name, stats.get(name), TimingUnit.SECONDS)
        if stats.get("model_load_time_seconds"):
            state.model_loaded = True
        if not output:
            raise Verdict(AnswerReason.NO_OUTPUT)
        state.finished(FinishReason.UNAVAILABLE)
