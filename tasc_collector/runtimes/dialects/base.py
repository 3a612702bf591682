"""What every dialect reader does, and the helpers that keep them small.

A reader is fed either frames (``frame``, ``done_mark``) and then ``close``, or one ``body``. Each of them returns for
"go on" and raises ``Verdict`` for "this decides it". ``close`` and ``body`` return only for a complete answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from tasc_collector.canonical import JsonValue
from tasc_collector.runtimes.flags import DialectFlags, ErrorShape
from tasc_collector.runtimes.result import OutputKind, Usage, UsageFlag
from tasc_collector.runtimes.state import AnswerState, flagged
from tasc_collector.runtimes.verdict import OUTCOME_OF, VERDICT_OF_FINISH, AnswerReason, FinishReason, Outcome, Verdict

JsonObject = dict[str, Any]  # Any: an object of our own parser; each field is checked where it is read


class OpenText(NamedTuple):
    """Where a frame has its text, and what an equal frame with another text would add to the timeline.

    Args:
        path: keys and indices to the text.
        kind: answer or reasoning.
        tokens: tokens of each such frame, where the frame says so.
    """

    path: tuple[str | int, ...]
    kind: OutputKind
    tokens: int | None


class DialectReader(ABC):
    """Reads the frames or the body of one answer into its state.

    Args:
        state: what accumulates.
        flags: what this server does its own way.
        expected_choices: choices that were asked for; None to take as many as come.
        max_tokens: the limit that the request set, if known.
    """

    def __init__(
        self, state: AnswerState, flags: DialectFlags, *, expected_choices: int | None, max_tokens: int | None
    ) -> None:
        self.state, self.flags = state, flags
        self.expected_choices, self.max_tokens = expected_choices, max_tokens
        self.length_suspected = False
        self.done_seen = False

    @abstractmethod
    def frame(self, name: str, value: JsonValue) -> None:
        """Take one frame of a stream.

        Args:
            name: SSE event name, or "".
            value: its data.

        Raises:
            Verdict: the frame decides the answer.
        """

    def open_text(self, value: JsonValue) -> OpenText | None:
        """The text of a frame that ``frame`` has just taken, if it was the frame's only effect.

        None unless any number of equal frames with other texts, coming next, would do nothing but add their texts and
        one event each (none for an empty text).
        """
        return None

    @property
    @abstractmethod
    def ended(self) -> bool:
        """True once the dialect's last frame was seen."""

    @abstractmethod
    def body(self, value: JsonValue) -> None:
        """Take a whole JSON body; returns only if the answer is complete.

        Raises:
            Verdict: it is not complete.
        """

    @abstractmethod
    def close(self) -> None:
        """Tell that the stream ended cleanly; returns only if the answer is complete.

        Raises:
            Verdict: it is not complete.
        """

    def done_mark(self) -> None:
        """Take ``data: [DONE]``.

        Raises:
            Verdict: the dialect has none, or it was there already.
        """
        if self.done_seen or not self.flags.has_done:
            raise Verdict(AnswerReason.AFTER_TERMINATOR if self.done_seen else AnswerReason.EVENT_UNKNOWN)
        self.done_seen = True

    def require_done(self) -> None:
        """Refuse an end without ``[DONE]`` where the dialect has one."""
        if self.flags.has_done and not self.done_seen:
            raise Verdict(AnswerReason.TERMINATOR_MISSING)

    def require_evidence(self) -> None:
        """Refuse an answer without finish reason, usage or model, in that order; flag what is odd about its usage."""
        state = self.state
        if state.finish_reason is None:
            raise Verdict(AnswerReason.FINISH_REASON_MISSING)
        reason = VERDICT_OF_FINISH[state.finish_reason]
        if OUTCOME_OF[reason] is not Outcome.COMPLETED:
            raise Verdict(reason)
        if state.usage is None and self.flags.usage_required:
            raise Verdict(AnswerReason.USAGE_MISSING)
        if self.flags.names_model and state.resolved_model is None and not state.model_redacted:
            raise Verdict(AnswerReason.MODEL_MISSING)
        if state.usage is not None:
            state.usage = self._doubts(state.usage)
            if state.finish_reason is FinishReason.UNAVAILABLE and self.max_tokens is not None:
                self.length_suspected = state.usage.output is not None and state.usage.output >= self.max_tokens

    def _doubts(self, usage: Usage) -> Usage:
        if usage.output == 0 and self.state.has_output:
            usage = flagged(usage, UsageFlag.ZERO_WITH_OUTPUT)
        if self.flags.usage_first_choice_only and self.state.choices > 1:
            usage = flagged(usage, UsageFlag.FIRST_CHOICE_ONLY)
        return usage

    def answer(self, text: str, tokens: int | None, *, timed: bool) -> None:
        """Take a piece of the answer's text; with ``timed`` it is an event of the timeline."""
        if text:
            self.state.add_text(text)
            if timed:
                self.state.mark(OutputKind.ANSWER, tokens)

    def reasoning(self, text: str, tokens: int | None, *, timed: bool) -> None:
        """Count a piece of reasoning; with ``timed`` it is an event of the timeline."""
        if text:
            self.state.add_reasoning(text)
            if timed:
                self.state.mark(OutputKind.REASONING, tokens)


def as_object(value: JsonValue) -> JsonObject:
    """The value as an object.

    Raises:
        Verdict: it is something else.
    """
    if type(value) is not dict:
        raise Verdict(AnswerReason.NOT_AN_OBJECT)
    return value


def part(value: JsonValue) -> JsonObject:
    """A part of a frame as an object.

    Raises:
        Verdict: it is something else.
    """
    if type(value) is not dict:
        raise Verdict(AnswerReason.SHAPE_INVALID)
    return value


def items(value: JsonValue) -> list[Any]:  # Any: items are checked by their reader
    """A part of a frame as a list.

    Raises:
        Verdict: it is something else.
    """
    if type(value) is not list:
        raise Verdict(AnswerReason.SHAPE_INVALID)
    return value


def text_of(value: JsonValue) -> str:
    """A text, with null and absence as the empty one.

    Raises:
        Verdict: it is something else.
    """
    if value is None:
        return ""
    if type(value) is not str:
        raise Verdict(AnswerReason.SHAPE_INVALID)
    return value


def is_error(value: Mapping[str, Any], flags: DialectFlags) -> bool:  # Any: a JSON object
    """True if the object is an error: a non-null ``error`` key, or one of the profile's other shapes."""
    if value.get("error") is not None:
        return True
    shapes = flags.error_frame_shape
    if not shapes or "choices" in value:
        return False
    flat = value.get("object") == "error" or value.keys() >= {"message", "type", "code"}
    return (flat and ErrorShape.FLAT in shapes) or ("detail" in value and ErrorShape.DETAIL in shapes)
