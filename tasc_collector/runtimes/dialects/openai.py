"""Chat Completions and Completions of the OpenAI dialect, as eight runtimes and their neighbours speak it.

Rules of a stream:

1. Every frame is an object with a list ``choices``, an error, or ``[DONE]``.
2. A choice is open from its first frame to the first frame with a terminal finish reason; that frame may still carry
   output. A finished choice may repeat its reason and carry nothing.
3. Usage counts only where ``flags.usage_position`` says, and then the last non-null one does. Usage before that place
   is running usage: its growth tells the tokens of a frame.
4. A frame with empty ``choices`` that has no usage says nothing.
5. The answer is complete when ``[DONE]`` came where the dialect has it, at least one choice came, every choice
   finished, and usage and model are there.

``id`` and ``created`` are never looked at: they are empty (TGI), change per chunk (TensorRT-LLM, SGLang) or collide
(Ollama).
"""

from __future__ import annotations

from typing import Any, ClassVar

from tasc_collector.canonical import JsonValue
from tasc_collector.limits import ANSWER_MAX_CHOICES
from tasc_collector.runtimes.dialects.base import (
    DialectReader,
    JsonObject,
    OpenText,
    as_object,
    is_error,
    items,
    part,
    text_of,
)
from tasc_collector.runtimes.flags import DialectFlags, UsagePosition
from tasc_collector.runtimes.result import OutputKind, TimingUnit
from tasc_collector.runtimes.state import AnswerState
from tasc_collector.runtimes.usage import CHAT_USAGE, count, read_usage
from tasc_collector.runtimes.verdict import OUTCOME_OF, VERDICT_OF_FINISH, AnswerReason, FinishReason, Outcome, Verdict

_TIMINGS = {"prompt_ms": TimingUnit.MILLISECONDS, "predicted_ms": TimingUnit.MILLISECONDS}
"""llama.cpp ``timings``; its rates and counts follow from these and from usage."""
_THOUGHTS = ("reasoning", "reasoning_content")
_CALLS = ("tool_calls", "function_call")
_METRICS = dict.fromkeys(
    ("time_to_first_token_ms", "generation_time_ms", "queue_time_ms", "mean_itl_ms"), TimingUnit.MILLISECONDS
)
"""vLLM ``metrics``, present only with ``--enable-per-request-metrics``."""


class _ChoicesReader(DialectReader):
    """What both routes share; subclasses say where a choice has its output."""

    part_name: ClassVar[str | None]
    """Field of a streamed choice that holds the output, or None where the choice itself does."""
    body_part_name: ClassVar[str | None]
    """The same for a whole body."""
    text_name: ClassVar[str]
    """Field with the text."""

    def __init__(
        self, state: AnswerState, flags: DialectFlags, *, expected_choices: int | None, max_tokens: int | None
    ) -> None:
        super().__init__(state, flags, expected_choices=expected_choices, max_tokens=max_tokens)
        self._finish: dict[int, FinishReason | None] = {}
        self._open = 0
        self._running = 0

    def frame(self, name: str, value: JsonValue) -> None:
        """Take one chunk."""
        if value is None and self.flags.null_frames:
            return
        chunk = as_object(value)
        if name == "error" or ("error" in chunk and is_error(chunk, self.flags)):
            raise Verdict(AnswerReason.ERROR_FRAME)
        if self.done_seen:
            raise Verdict(AnswerReason.AFTER_TERMINATOR)
        choices = chunk.get("choices")
        if type(choices) is not list:
            raise Verdict(AnswerReason.ERROR_FRAME if is_error(chunk, self.flags) else AnswerReason.SHAPE_INVALID)
        state = self.state
        state.model(chunk.get("model"))
        if self.flags.remote_fields:
            state.remote(chunk)
        usage = chunk.get("usage")
        grown = self._growth(usage, choices) if usage is not None else None
        for choice in choices:
            self._choice(choice, grown)
        if usage is not None and self._usage_counts(choices):
            final = read_usage(usage, CHAT_USAGE, zero_details_unknown=self.flags.zero_details_unknown)
            if final is not None:
                state.final_usage(final)
        self._extras(chunk)

    def open_text(self, value: JsonValue) -> OpenText | None:
        """The text of a chunk with one open choice that has nothing else: no usage, timing, reason or call."""
        if value is None and self.flags.null_frames:
            return None
        chunk = as_object(value)
        if chunk.get("usage") is not None or "timings" in chunk or "metrics" in chunk or self.done_seen:
            return None
        choices = chunk["choices"]
        if len(choices) != 1 or choices[0].get("index", 0) != 0 or choices[0].get("finish_reason"):
            return None
        choice: JsonObject = choices[0]
        output = choice if self.part_name is None else choice.get(self.part_name)
        if type(output) is not dict or self._finish.get(0) is not None:
            return None
        said = [name for name in (self.text_name, *_THOUGHTS, *_CALLS) if output.get(name)]
        if len(said) != 1 or said[0] in _CALLS:
            return None
        kind = OutputKind.ANSWER if said[0] == self.text_name else OutputKind.REASONING
        place = () if self.part_name is None else (self.part_name,)
        return OpenText(("choices", 0, *place, said[0]), kind, _tokens(choice))

    @property
    def ended(self) -> bool:
        """True once the dialect's last frame was seen."""
        return self.done_seen

    def body(self, value: JsonValue) -> None:
        """Take a whole body."""
        body = as_object(value)
        if is_error(body, self.flags):
            raise Verdict(AnswerReason.ERROR_BODY)
        state = self.state
        state.model(body.get("model"))
        state.remote(body)
        choices = items(body.get("choices"))
        for choice in choices:
            self._body_choice(part(choice))
        usage = read_usage(body.get("usage"), CHAT_USAGE, zero_details_unknown=self.flags.zero_details_unknown)
        if usage is not None:
            state.final_usage(usage)
        self._extras(body)
        self._complete()

    def close(self) -> None:
        """Tell that the stream ended cleanly."""
        self.require_done()
        self._complete()

    def _complete(self) -> None:
        if not self._finish:
            raise Verdict(AnswerReason.NO_OUTPUT)
        if self._open or (self.expected_choices is not None and len(self._finish) < self.expected_choices):
            raise Verdict(AnswerReason.FINISH_REASON_MISSING)
        for reason in self._finish.values():
            if reason is not None and OUTCOME_OF[VERDICT_OF_FINISH[reason]] is not Outcome.COMPLETED:
                raise Verdict(VERDICT_OF_FINISH[reason])
        self.require_evidence()

    def _index(self, choice: JsonObject) -> int:
        index = choice.get("index", 0)
        limit = ANSWER_MAX_CHOICES if self.expected_choices is None else self.expected_choices
        if type(index) is not int or index < 0:
            raise Verdict(AnswerReason.SHAPE_INVALID)
        if index >= limit:
            raise Verdict(AnswerReason.CHOICE_UNEXPECTED)
        if index not in self._finish:
            self._finish[index] = None
            self._open += 1
            self.state.choices += 1
        return index

    def _choice(self, value: JsonValue, grown: int | None) -> None:
        choice = part(value)
        index = self._index(choice)
        output = choice if self.part_name is None else choice.get(self.part_name)
        if output is not None:
            had_output = self._output(choice, part(output), index, grown)
            if had_output and self._finish[index] is not None:
                raise Verdict(AnswerReason.OUTPUT_AFTER_FINISH)
        raw = choice.get("finish_reason")
        if raw is not None:
            self._finished(index, raw)

    def _output(self, choice: JsonObject, output: JsonObject, index: int, grown: int | None) -> bool:
        """Take what one streamed choice carries; True if it was anything."""
        state = self.state
        text = output.get(self.text_name)
        thought = output.get("reasoning") or output.get("reasoning_content")
        calls = output.get("tool_calls") or output.get("function_call")
        if not text and not thought and not calls:
            if text is not None and text != "":
                raise Verdict(AnswerReason.SHAPE_INVALID)
            return False
        if self._finish[index] is not None:
            return True
        tokens = _tokens(choice) or grown
        if bool(text) + bool(thought) + bool(calls) > 1:
            tokens = None
        if thought:
            state.add_reasoning(text_of(thought))
            state.mark(OutputKind.REASONING, tokens)
        if text:
            text = text_of(text)
            if index == 0:
                state.add_text(text)
            state.mark(OutputKind.ANSWER, tokens)
        if calls:
            state.mark(OutputKind.TOOL, tokens)
        return True

    def _body_choice(self, choice: JsonObject) -> None:
        seen = len(self._finish)
        index = self._index(choice)
        if len(self._finish) == seen:
            raise Verdict(AnswerReason.CHOICE_UNEXPECTED)
        output = choice if self.body_part_name is None else part(choice.get(self.body_part_name))
        self.reasoning(text_of(output.get("reasoning") or output.get("reasoning_content")), None, timed=False)
        text = text_of(output.get(self.text_name))
        if index == 0:
            self.answer(text, None, timed=False)
        self.state.logprobs = self.state.logprobs or bool(_logprobs(choice))
        self._finished(index, choice.get("finish_reason"))

    def _finished(self, index: int, raw: JsonValue) -> None:
        reason = self.state.canonical_reason(raw)
        if reason is None:
            return
        before = self._finish[index]
        if before is None:
            self._finish[index] = reason
            self._open -= 1
            if index == 0:
                self.state.finished(reason, raw)
        elif before is not reason:
            raise Verdict(AnswerReason.FINISH_REASON_CONFLICT)

    def _usage_counts(self, choices: list[Any]) -> bool:  # Any: choices that were checked before
        """True if usage on a chunk with these choices is the final one."""
        position = self.flags.usage_position
        if position is UsagePosition.ANY:
            return True
        if self._open or not self._finish:
            return False
        return not choices or position is not UsagePosition.SEPARATE

    def _growth(self, usage: JsonValue, choices: list[Any]) -> int | None:  # Any: choices are checked after this
        """Tokens that running usage says this chunk carries."""
        if len(choices) != 1 or len(self._finish) > 1:
            return None
        now = count(part(usage).get("completion_tokens")) or 0
        grown, self._running = now - self._running, max(now, self._running)
        return grown if grown > 0 else None

    def _extras(self, chunk: JsonObject) -> None:
        """Take provider timings and the fingerprint, wherever they are."""
        state = self.state
        if "timings" in chunk and type(chunk["timings"]) is dict:
            for name, unit in _TIMINGS.items():
                state.timing(name, chunk["timings"].get(name), unit)
        if "metrics" in chunk and type(chunk["metrics"]) is dict:
            for name, unit in _METRICS.items():
                state.timing(name, chunk["metrics"].get(name), unit)
        if self.flags.fingerprint is not None and "system_fingerprint" in chunk:
            state.fingerprint(chunk["system_fingerprint"])


class ChatReader(_ChoicesReader):
    """``/v1/chat/completions``."""

    part_name = "delta"
    body_part_name = "message"
    text_name = "content"


class CompletionsReader(_ChoicesReader):
    """``/v1/completions``."""

    part_name = None
    body_part_name = None
    text_name = "text"


def _tokens(choice: JsonObject) -> int | None:
    """Tokens of one streamed choice, from its token ids or its log-probabilities (chat or legacy shape)."""
    ids = choice.get("token_ids")
    if type(ids) is list and ids:
        return len(ids)
    return len(_logprobs(choice)) or None


def _logprobs(choice: JsonObject) -> list[Any]:  # Any: entries that are counted and never looked at
    """Entries of a choice's log-probabilities (chat or legacy shape); none where there are none."""
    logprobs = choice.get("logprobs")
    listed = (logprobs.get("content") or logprobs.get("tokens")) if type(logprobs) is dict else None
    return listed if type(listed) is list else []
