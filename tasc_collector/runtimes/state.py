"""What accumulates while one answer is read. Dialect readers write into it; ``AnswerReader`` makes the ``Answer`` of
it.

Rules:

1. Text passes through to the sink and is kept only on request.
2. A model's name is compared with the one that was asked for and never kept otherwise.
3. An event enters the timeline only if it carried output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tasc_collector.canonical import JsonValue
from tasc_collector.runtimes.flags import DialectFlags
from tasc_collector.runtimes.result import (
    Arrival,
    BuildMatch,
    OutputKind,
    ProviderTiming,
    TimingUnit,
    TokenEvent,
    Usage,
    UsageFlag,
)
from tasc_collector.runtimes.verdict import AnswerReason, FinishReason, Verdict

_new_tuple = tuple.__new__
_PATH_MARKS = ("/", "~", ".", "file:")
_MAX_TIMING: Mapping[TimingUnit, float] = {
    TimingUnit.NANOSECONDS: 86_400e9,
    TimingUnit.MILLISECONDS: 86_400e3,
    TimingUnit.SECONDS: 86_400.0,
}


def path_like(model: str) -> bool:
    """True for what is a file's place rather than a model's name: it would tell about the server's disk."""
    return model.startswith(_PATH_MARKS) or "\\" in model or model.count("/") > 1 or model.endswith(".gguf")


class AnswerState:
    """Everything that is known about one answer so far.

    Args:
        requested_model: the model id that was asked for; None where it is not known, then all frames must name one.
        build: the build of the profile, for the fingerprint.
        flags: the route's flags.
        max_events: bound of the timeline.
        text_sink: takes the answer's UTF-8 bytes as they come.
        keep_text: whether to keep the text as well.
    """

    __slots__ = (
        "_pieces",
        "_requested",
        "at_ns",
        "build",
        "build_match",
        "choices",
        "events",
        "events_dropped",
        "finish_reason",
        "flags",
        "lag_ns",
        "logprobs",
        "max_events",
        "model_loaded",
        "model_redacted",
        "raw_finish_reason",
        "reasoning_bytes",
        "resolved_model",
        "text_bytes",
        "text_sink",
        "timings",
        "uncertainty_ns",
        "usage",
    )

    def __init__(
        self,
        requested_model: str | None,
        build: str,
        flags: DialectFlags,
        max_events: int,
        *,
        text_sink: Callable[[bytes], None] | None,
        keep_text: bool,
    ) -> None:
        self._requested = requested_model
        self._pieces: list[str] | None = [] if keep_text else None
        self.build, self.flags, self.max_events, self.text_sink = build, flags, max_events, text_sink
        self.at_ns = 0
        self.uncertainty_ns: int | None = None
        self.lag_ns: int | None = None
        self.events: list[TokenEvent] = []
        self.events_dropped = 0
        self.text_bytes = 0
        self.reasoning_bytes = 0
        self.choices = 0
        self.usage: Usage | None = None
        self.finish_reason: FinishReason | None = None
        self.raw_finish_reason: str | None = None
        self.resolved_model: str | None = None
        self.model_redacted = False
        self.model_loaded = False
        self.logprobs = False
        self.build_match = BuildMatch.UNAVAILABLE
        self.timings: dict[str, ProviderTiming] = {}

    @property
    def text(self) -> str | None:
        """The answer's text, if it was to be kept."""
        return None if self._pieces is None else "".join(self._pieces)

    @property
    def has_output(self) -> bool:
        """True once any output was read."""
        return bool(self.text_bytes or self.reasoning_bytes or self.events)

    def arrived(self, arrival: Arrival, uncertainty_ns: int | None) -> None:
        """Set the time of the frames that follow."""
        self.at_ns, _, self.lag_ns = arrival
        self.uncertainty_ns = uncertainty_ns

    def mark(self, kind: OutputKind, tokens: int | None) -> None:
        """Add one event with output to the timeline."""
        if len(self.events) < self.max_events:
            self.events.append(_new_tuple(TokenEvent, (self.at_ns, tokens, kind, self.uncertainty_ns, self.lag_ns)))
        else:
            self.events_dropped += 1

    def _mark_alike(self, count: int, kind: OutputKind, tokens: int | None) -> None:
        """``mark`` so many times: events of one read that say the same are one object."""
        kept = min(count, self.max_events - len(self.events))
        event = _new_tuple(TokenEvent, (self.at_ns, tokens, kind, self.uncertainty_ns, self.lag_ns))
        self.events += [event] * kept
        self.events_dropped += count - kept

    def add_steady(
        self,
        texts: list[str],
        kind: OutputKind,
        tokens: int | None,
        arrival: Arrival,
        span: int | None,
    ) -> None:
        """Take the texts of frames that carry nothing else, all of one read.

        Args:
            texts: one per frame; an empty one is no event.
            kind: answer or reasoning.
            tokens: tokens of each frame.
            arrival: when the read arrived; its own uncertainty is that of the last frame.
            span: uncertainty of the frames before the last.
        """
        text = texts[-1]
        if len(texts) > 1:
            self.arrived(arrival, span)
            self._mark_alike(sum(map(bool, texts[:-1])), kind, tokens)
            text = "".join(texts)
        self.at_ns, self.uncertainty_ns, self.lag_ns = arrival
        if texts[-1]:
            self.mark(kind, tokens)
        if kind is OutputKind.REASONING:
            self.add_reasoning(text)
        elif text:
            self.add_text(text)

    def add_reads(self, texts: list[str], kind: OutputKind, tokens: int | None, arrivals: list[Arrival]) -> None:
        """Take the texts of frames that carry nothing else, each of a read of its own.

        Args:
            texts: one per frame; an empty one is no event.
            kind: answer or reasoning.
            tokens: tokens of each frame.
            arrivals: when each read arrived.
        """
        self.at_ns, self.uncertainty_ns, self.lag_ns = arrivals[-1]
        marked = [
            _new_tuple(TokenEvent, (at_ns, tokens, kind, uncertainty_ns, lag_ns))
            for text, (at_ns, uncertainty_ns, lag_ns) in zip(texts, arrivals, strict=True)
            if text
        ]
        kept = min(len(marked), self.max_events - len(self.events))
        self.events += marked[:kept]
        self.events_dropped += len(marked) - kept
        text = "".join(texts)
        if kind is OutputKind.REASONING:
            self.add_reasoning(text)
        elif text:
            self.add_text(text)

    def add_text(self, text: str) -> None:
        """Take a piece of the answer's text."""
        data = text.encode()
        self.text_bytes += len(data)
        if self.text_sink is not None:
            self.text_sink(data)
        if self._pieces is not None:
            self._pieces.append(text)

    def add_reasoning(self, text: str) -> None:
        """Count a piece of reasoning; it is never kept."""
        self.reasoning_bytes += len(text.encode())

    def model(self, value: JsonValue) -> None:
        """Compare the model that a frame names with the one that was asked for.

        An absent, null or empty name says nothing. A file path is dropped where the profile says that it may be one.

        Raises:
            Verdict: it is another model, or not a text.
        """
        if value == self._requested and value is not None:
            self.resolved_model = self._requested
        elif value is None or value == "":
            return
        elif not isinstance(value, str):
            raise Verdict(AnswerReason.SHAPE_INVALID)
        elif self.flags.model_paths and path_like(value):
            self.model_redacted = True
        elif self._requested is None:
            self._requested = self.resolved_model = value
        else:
            raise Verdict(AnswerReason.MODEL_MISMATCH)

    def remote(self, value: Mapping[str, Any]) -> None:  # Any: a JSON object
        """Refuse an answer that another host made, where the profile is local only."""
        if self.flags.remote_fields and (value.get("remote_model") or value.get("remote_host")):
            raise Verdict(AnswerReason.REMOTE_MODEL)

    def fingerprint(self, value: JsonValue) -> None:
        """Compare a build fingerprint with the profile's build; a difference is recorded, it decides nothing."""
        pattern, unverifiable = self.flags.fingerprint, self.flags.fingerprint_unverifiable
        if pattern is None or not isinstance(value, str) or not value:
            return
        if unverifiable is not None and value.startswith(unverifiable):
            return
        matches = value.startswith(pattern.replace("{build}", self.build))
        self.build_match = BuildMatch.MATCHES if matches else BuildMatch.DIFFERS

    def canonical_reason(self, raw: JsonValue) -> FinishReason | None:
        """The canonical reason of a provider's word; None for null and the empty string, which are not terminal.

        Raises:
            Verdict: it is not a text, or a word that the profile does not have.
        """
        if raw is None or raw == "":
            return None
        if not isinstance(raw, str):
            raise Verdict(AnswerReason.SHAPE_INVALID)
        reason = self.flags.reason_map.get(raw)
        if reason is None:
            raise Verdict(AnswerReason.FINISH_REASON_UNKNOWN)
        return reason

    def finished(self, reason: FinishReason, raw: JsonValue = None) -> None:
        """Set the answer's finish reason, with the provider's word where the profile's map has it."""
        self.finish_reason = reason
        self.raw_finish_reason = raw if isinstance(raw, str) else None

    def final_usage(self, usage: Usage) -> None:
        """Take usage from a place that the profile calls final; a second, different one is flagged and kept.

        A usage of zeros is a placeholder, so what follows it does not differ from it.
        """
        before = self.usage
        if before is not None and any(_numbers(before)) and _numbers(before) != _numbers(usage):
            usage = flagged(usage, UsageFlag.CONFLICT)
        self.usage = usage

    def timing(self, name: str, value: JsonValue, unit: TimingUnit) -> None:
        """Keep a duration that the provider reported; what is not a plausible duration is dropped."""
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _MAX_TIMING[unit]:
            self.timings[name] = ProviderTiming(name, value, unit)


def flagged(usage: Usage, *flags: UsageFlag) -> Usage:
    """The same usage with more flags."""
    return Usage(usage.input, usage.output, usage.total, usage.cached, usage.reasoning, usage.flags | frozenset(flags))


def _numbers(usage: Usage) -> tuple[int | None, ...]:
    return (usage.input, usage.output, usage.total, usage.cached, usage.reasoning)
