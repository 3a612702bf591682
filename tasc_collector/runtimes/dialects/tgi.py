"""Text Generation Inference's native ``/generate`` and ``/generate_stream``.

Rules:

1. A frame with ``error`` is an error; in streams every failure is one, with status 200.
2. Each frame carries exactly one token. A special token (end of sequence) has no output.
3. The frame whose ``generated_text`` is not null ends the stream; there is no ``[DONE]``, and nothing follows.
4. Finish reason and counts are in ``details``, which our requests always ask for.
5. No model is named anywhere, so the answer can be read and probed but never enters a window.

Source: TGI v3.3.7 ``router/src/server.rs``, ``router/src/lib.rs``.
"""

from __future__ import annotations

from tasc_collector.canonical import JsonValue
from tasc_collector.runtimes.dialects.base import DialectReader, JsonObject, as_object, is_error, part, text_of
from tasc_collector.runtimes.usage import TGI_USAGE, read_usage
from tasc_collector.runtimes.verdict import AnswerReason, Verdict


class TgiReader(DialectReader):
    """The native routes."""

    _ended = False

    def frame(self, name: str, value: JsonValue) -> None:
        """Take one frame."""
        frame = as_object(value)
        if name == "error" or is_error(frame, self.flags):
            raise Verdict(AnswerReason.ERROR_FRAME)
        if self._ended:
            raise Verdict(AnswerReason.AFTER_TERMINATOR)
        token = part(frame.get("token"))
        self.state.choices = 1
        if token.get("special") is not True:
            self.answer(text_of(token.get("text")), self.flags.frame_tokens, timed=True)
        if frame.get("generated_text") is not None:
            text_of(frame["generated_text"])
            self._ended = True
            self._details(frame)

    @property
    def ended(self) -> bool:
        """True once the dialect's last frame was seen."""
        return self._ended

    def body(self, value: JsonValue) -> None:
        """Take a whole body."""
        body = as_object(value)
        if is_error(body, self.flags):
            raise Verdict(AnswerReason.ERROR_BODY)
        if type(body.get("generated_text")) is not str:
            raise Verdict(AnswerReason.SHAPE_INVALID)
        self.state.choices = 1
        self.answer(body["generated_text"], None, timed=False)
        self._details(body)
        self.require_evidence()

    def close(self) -> None:
        """Tell that the stream ended cleanly."""
        if not self._ended:
            raise Verdict(AnswerReason.TERMINATOR_MISSING)
        self.require_evidence()

    def _details(self, holder: JsonObject) -> None:
        state = self.state
        if holder.get("details") is None:
            return
        details = part(holder["details"])
        listed = details.get("tokens")
        state.logprobs = type(listed) is list and any(type(item) is dict and "logprob" in item for item in listed)
        raw = details.get("finish_reason")
        reason = state.canonical_reason(raw)
        if reason is not None:
            state.finished(reason, raw)
        usage = read_usage(details, TGI_USAGE)
        if usage is not None:
            state.final_usage(usage)
