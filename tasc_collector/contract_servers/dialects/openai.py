"""OpenAI Chat Completions and Completions as the pinned builds write them.

One class writes both: they differ in the object name, in where the text stands and in the log-probability shape. The
rest is the ``OpenAiStyle`` of a runtime (from each build's ``protocol`` and ``serving`` modules, and live runs).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from tasc_collector.canonical import JsonValue
from tasc_collector.contract_servers.contract import AnswerForm
from tasc_collector.contract_servers.frames import ABSENT, DONE_FRAME, Absent, Frame, FrameKind, Maybe, Mould, put
from tasc_collector.contract_servers.generation import PROVIDER_TEXT, Ask, Generation, IdRule, UsageFigures, UsagePlace
from tasc_collector.contract_servers.plan import Headers

OPENAI_WORDS: Final[Mapping[str, str]] = {"stop": "stop", "length": "length", "tool_calls": "tool_calls"}

Decorate = Callable[[dict[str, JsonValue], FrameKind, Generation], None]
"""A runtime's own additions to a chunk (or to the JSON body), made in place."""


class RoleStyle(StrEnum):
    """How a chat stream says who speaks."""

    EMPTY_CONTENT = "empty-content"
    NULL_CONTENT = "null-content"
    EVERY_DELTA = "every-delta"


@dataclass(frozen=True, slots=True)
class OpenAiStyle:
    """What differs between the OpenAI-shaped streams of the runtimes.

    Attributes:
        id_prefix: before the id's characters.
        id_rule: how the id behaves where no fault says otherwise.
        role: first chunk with empty or null content, or the role on every delta.
        finish_carries_text: the finish chunk carries the last text (vLLM) instead of an empty delta.
        usage_place: where usage stands when it was asked for.
        usage_unasked: where it stands when it was not.
        continuous: what an absent ``continuous_usage_stats`` means once usage is asked for; None: not understood.
        usage_object: ``object`` of the usage chunk where it differs (MLX-LM).
        usage_extra: usage fields beside the three counts, as this runtime writes them.
        reasoning_field: delta field of reasoning text.
        fingerprint: ``system_fingerprint``; absent where it has none.
        pending_finish: ``finish_reason`` before the last chunk: null, "" (TGI completions) or absent.
        has_done: ``[DONE]`` ends a stream.
        done_needs_usage: without ``include_usage`` in a sent ``stream_options`` there is no ``[DONE]`` (MLX-LM).
        legacy_logprobs: completions log-probabilities are parallel lists; else they have chat shape.
        stream_logprobs: log-probabilities appear in streams.
        opening: frames before the first chunk (MLX-LM keep-alive comments).
        error: body of an error event in a stream.
        decorate: additions to chunks and bodies.
    """

    id_prefix: str
    role: RoleStyle
    error: JsonValue
    id_rule: IdRule = IdRule.CONSTANT
    finish_carries_text: bool = False
    usage_place: UsagePlace = UsagePlace.SEPARATE
    usage_unasked: UsagePlace = UsagePlace.NONE
    continuous: bool | None = None
    usage_object: str | None = None
    usage_extra: Callable[[UsageFigures], dict[str, JsonValue]] = field(default=lambda figures: {})
    reasoning_field: str = "reasoning_content"
    fingerprint: Maybe = ABSENT
    pending_finish: Maybe = None
    has_done: bool = True
    done_needs_usage: bool = False
    legacy_logprobs: bool = True
    stream_logprobs: bool = True
    opening: tuple[Frame, ...] = ()
    decorate: Decorate = field(default=lambda chunk, kind, generation: None)


def cached_details(figures: UsageFigures) -> dict[str, JsonValue]:
    """``prompt_tokens_details.cached_tokens`` where a count is reported, nothing otherwise."""
    return {} if isinstance(figures.cached, Absent) else {"prompt_tokens_details": {"cached_tokens": figures.cached}}


def usage_object(style: OpenAiStyle, figures: UsageFigures) -> dict[str, JsonValue]:
    """The ``usage`` object with the three counts, absent ones left out, and the runtime's own additions."""
    usage = put({}, prompt_tokens=figures.input, completion_tokens=figures.output, total_tokens=figures.total)
    return {**usage, **style.usage_extra(figures)}


@dataclass(frozen=True, slots=True)
class OpenAi:
    """Chat Completions (``chat=True``) or Completions."""

    style: OpenAiStyle
    chat: bool
    finish_words: Mapping[str, str] = field(default_factory=lambda: OPENAI_WORDS)
    form: AnswerForm = AnswerForm.SSE

    # --- JSON ----------------------------------------------------------------------------------------------------

    def json_body(self, generation: Generation) -> JsonValue:
        """One JSON answer with all choices and usage."""
        choices: list[JsonValue] = []
        for index in range(generation.ask.choices):
            choice: dict[str, JsonValue] = {"index": index}
            if self.chat:
                message: dict[str, JsonValue] = {"role": "assistant", "content": generation.text}
                if generation.reasoning:
                    message[self.style.reasoning_field] = "".join(generation.reasoning)
                if generation.tool_call:
                    message |= {"content": None, "tool_calls": [_tool_call(generation)]}
                choice["message"] = message
            else:
                choice["text"] = generation.text
            if generation.ask.logprobs:
                choice["logprobs"] = self._logprobs(generation.pieces)
            put(choice, finish_reason=None if index in generation.unfinished else generation.finish)
            choices.append(choice)
        body = self._envelope(generation, 0, "chat.completion" if self.chat else "text_completion")
        body["choices"] = choices
        put(body, system_fingerprint=self._fingerprint(generation))
        if generation.usage_place is not UsagePlace.NONE:
            body["usage"] = usage_object(self.style, generation.usage)
        self.style.decorate(body, FrameKind.BODY, generation)
        return body

    def json_headers(self, generation: Generation) -> Headers:
        """None beyond the runtime's own."""
        return ()

    # --- stream --------------------------------------------------------------------------------------------------

    def frames(self, generation: Generation) -> list[Frame]:
        """Role, reasoning, text, finish, usage and ``[DONE]`` in this runtime's order and shape."""
        style = self.style
        place = generation.usage_place or self._usage_place(generation.ask)
        writer = _Writer(self, generation, place)
        writer.frames += style.opening
        choices = range(generation.ask.choices)
        if self.chat and style.role is not RoleStyle.EVERY_DELTA:
            content = "" if style.role is RoleStyle.EMPTY_CONTENT else None
            for index in choices:
                writer.add(FrameKind.ROLE, index, {"role": "assistant", "content": content}, 0)
        for text in generation.reasoning:
            for index in choices:
                writer.add(FrameKind.REASONING, index, {style.reasoning_field: text}, 1)
        if generation.tool_call and self.chat:
            for index in choices:
                writer.add(FrameKind.TOKEN, index, {"tool_calls": [_tool_call(generation)]}, generation.output_tokens)
        else:
            self._text(writer, generation)
        if not style.finish_carries_text or not generation.pieces or generation.tool_call:
            for index in choices:
                if index not in generation.unfinished:
                    writer.add(FrameKind.FINISH, index, {} if self.chat else {"content": ""}, 0, generation.finish)
        writer.usage(place)
        bare = style.done_needs_usage and generation.ask.bare_stream_options
        return writer.frames + ([DONE_FRAME] if style.has_done and not bare else [])

    def _usage_place(self, ask: Ask) -> UsagePlace:
        style = self.style
        if not ask.wants_usage:
            return style.usage_unasked
        if style.continuous is None:
            return style.usage_place
        running = style.continuous if ask.continuous_usage is None else ask.continuous_usage
        return UsagePlace.EVERY if running else style.usage_place

    def _text(self, writer: _Writer, generation: Generation) -> None:
        last = len(generation.pieces) - 1
        mould = writer.mould()
        for number, (text, tokens) in enumerate(zip(generation.pieces, generation.piece_tokens, strict=True)):
            for index in range(generation.ask.choices):
                if mould is not None and number != last:
                    writer.frames.append(Frame(FrameKind.TOKEN, tokens=tokens, mould=mould, text=text))
                elif number == last and self.style.finish_carries_text and index not in generation.unfinished:
                    writer.add(FrameKind.FINISH, index, {"content": text}, tokens, generation.finish)
                else:
                    writer.add(FrameKind.TOKEN, index, {"content": text}, tokens)

    def error_frame(self, generation: Generation, sent: int) -> Frame:
        """The error event of this runtime."""
        return Frame(FrameKind.ERROR, self.style.error)

    # --- parts ---------------------------------------------------------------------------------------------------

    def _envelope(self, generation: Generation, index: int, kind: str) -> dict[str, JsonValue]:
        body: dict[str, JsonValue] = {
            "id": generation.answer_id(self.style.id_prefix, index, self.style.id_rule),
            "object": kind,
            "created": generation.created(index),
        }
        put(body, model=generation.model)
        body.update(generation.extras)
        return body

    def _fingerprint(self, generation: Generation) -> Maybe:
        return self.style.fingerprint if isinstance(generation.fingerprint, Absent) else generation.fingerprint

    def _logprobs(self, pieces: tuple[str, ...]) -> JsonValue:
        if self.chat or not self.style.legacy_logprobs:
            return {
                "content": [
                    {"token": p, "logprob": -0.5, "bytes": list(p.encode()), "top_logprobs": []} for p in pieces
                ]
            }
        offsets, at = [], 0
        for piece in pieces:
            offsets.append(at)
            at += len(piece)
        return {
            "tokens": list(pieces),
            "token_logprobs": [-0.5] * len(pieces),
            "top_logprobs": [None] * len(pieces),
            "text_offset": offsets,
        }


def _tool_call(generation: Generation) -> dict[str, JsonValue]:
    return {
        "index": 0,
        "id": f"call_{generation.digest[:8]}",
        "type": "function",
        "function": {"name": "lookup", "arguments": '{"word": "maple"}'},
    }


class _Writer:
    """Collects the chunks of one stream and counts them."""

    def __init__(self, dialect: OpenAi, generation: Generation, place: UsagePlace) -> None:
        self._dialect, self._generation, self._place = dialect, generation, place
        self._kind = "chat.completion.chunk" if dialect.chat else "text_completion"
        self._sent = 0
        self.frames: list[Frame] = []

    def mould(self) -> Mould | None:
        """A mould for the text chunks, where they differ in nothing else."""
        ask = self._generation.ask
        if not self._generation.moulded or ask.choices != 1 or ask.logprobs or self._place is UsagePlace.EVERY:
            return None
        return Mould(lambda text: self._chunk(FrameKind.TOKEN, 0, {"content": text}, ABSENT))

    def add(
        self, kind: FrameKind, index: int, delta: dict[str, JsonValue], tokens: int, finish: Maybe = ABSENT
    ) -> None:
        """One chunk of one choice; ``delta`` is the chat delta, of which completions take ``content``."""
        self._sent += tokens
        self.frames.append(Frame(kind, self._chunk(kind, index, delta, finish), tokens=tokens))

    def _chunk(self, kind: FrameKind, index: int, delta: dict[str, JsonValue], finish: Maybe) -> JsonValue:
        dialect, generation = self._dialect, self._generation
        style = dialect.style
        choice: dict[str, JsonValue] = {"index": index}
        if dialect.chat:
            if style.role is RoleStyle.EVERY_DELTA:
                delta = (
                    {"role": "assistant", **delta} if kind is not FrameKind.FINISH or delta else {"role": "assistant"}
                )
            choice["delta"] = delta
        else:
            choice["text"] = delta.get("content", "")
        text = delta.get("content")
        if generation.ask.logprobs and style.stream_logprobs and kind in {FrameKind.TOKEN, FrameKind.FINISH}:
            choice["logprobs"] = dialect._logprobs((text,)) if isinstance(text, str) and text else None
        put(choice, finish_reason=finish if kind is FrameKind.FINISH else style.pending_finish)
        body = dialect._envelope(generation, len(self.frames), self._kind)
        body["choices"] = [choice]
        match self._place:
            case UsagePlace.EVERY:
                body["usage"] = usage_object(style, self._running_usage())
            case UsagePlace.FINISH if kind is FrameKind.FINISH:
                body["usage"] = usage_object(style, generation.usage)
            case UsagePlace.ZEROS_THEN_SEPARATE:
                body["usage"] = usage_object(style, UsageFigures(0, 0, 0))
            case UsagePlace.NULL_THEN_SEPARATE:
                body["usage"] = None
        put(body, system_fingerprint=dialect._fingerprint(generation))
        style.decorate(body, kind, generation)
        return body

    def _running_usage(self) -> UsageFigures:
        whole = self._generation.usage
        total = whole.input + self._sent if isinstance(whole.input, int) else ABSENT
        return UsageFigures(whole.input, self._sent, total, whole.cached)

    def usage(self, place: UsagePlace) -> None:
        """The separate usage chunk or chunks, where the place has one."""
        separate = {
            UsagePlace.SEPARATE,
            UsagePlace.EVERY,
            UsagePlace.ZEROS_THEN_SEPARATE,
            UsagePlace.NULL_THEN_SEPARATE,
        }
        figures = [self._generation.usage] if place in separate else []
        if self._generation.extra_usage is not None:
            figures.append(self._generation.extra_usage)
        style = self._dialect.style
        for item in figures:
            body = self._dialect._envelope(self._generation, len(self.frames), style.usage_object or self._kind)
            body["choices"] = []
            body["usage"] = usage_object(style, item)
            put(body, system_fingerprint=self._dialect._fingerprint(self._generation))
            style.decorate(body, FrameKind.USAGE, self._generation)
            self.frames.append(Frame(FrameKind.USAGE, body))


def nested_error(**fields: JsonValue) -> JsonValue:
    """``{"error": {...}}`` with the provider's text and the given fields."""
    return {"error": {"message": PROVIDER_TEXT, **fields}}
