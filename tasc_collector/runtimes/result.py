"""What one answer came to: outcome, usage, timings, timeline. It holds no text unless its caller asked for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tasc_collector.runtimes.verdict import AnswerReason, FinishReason, Outcome


class Arrival(NamedTuple):
    """When a chunk of the body arrived, on the monotonic clock of its call.

    Args:
        at_ns: arrival of the chunk's last byte, as offset in ns.
        uncertainty_ns: uncertainty of ``at_ns`` itself; None where no kernel time stands behind it.
        lag_ns: how much later the collector read it; None where unknown.
    """

    at_ns: int
    uncertainty_ns: int | None = None
    lag_ns: int | None = None


class OutputKind(StrEnum):
    """What an event carried."""

    ANSWER = "answer"
    REASONING = "reasoning"
    TOOL = "tool"


class TokenEvent(NamedTuple):
    """One event of a stream that carried output. Roles, comments, empty deltas and usage are none.

    Args:
        at_ns: arrival of the chunk that completed the event.
        tokens: tokens it carried, where the server says so; None where it does not.
        kind: answer, reasoning or tool call.
        uncertainty_ns: how much earlier the event may have arrived; None without kernel times.
        lag_ns: how much later the collector read it.
    """

    at_ns: int
    tokens: int | None
    kind: OutputKind
    uncertainty_ns: int | None
    lag_ns: int | None


class UsageFlag(StrEnum):
    """What is odd about reported usage. The numbers stand as the provider reported them."""

    CONFLICT = "conflict"
    """Two reports that should both be final differ; the last one is kept."""
    TOTAL_DIFFERS = "total-differs"
    """The total is not input plus output."""
    TOTAL_DERIVED = "total-derived"
    """The provider reports no total; it is input plus output."""
    ZERO_WITH_OUTPUT = "zero-with-output"
    """Zero output tokens, and yet there was output."""
    FIRST_CHOICE_ONLY = "first-choice-only"
    """There were several choices and usage covers the first."""
    DETAIL_EXCEEDS = "detail-exceeds"
    """Cached tokens exceed input, or reasoning tokens exceed output."""


CONFLICTS = frozenset(UsageFlag) - {UsageFlag.TOTAL_DERIVED}
"""Flags that make usage doubtful."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as the provider reported them; None where it did not, never zero by default.

    Args:
        input: prompt tokens.
        output: generated tokens.
        total: both together.
        cached: prompt tokens that came from a cache.
        reasoning: generated tokens that were reasoning.
        flags: what is odd about them.
    """

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cached: int | None = None
    reasoning: int | None = None
    flags: frozenset[UsageFlag] = frozenset()

    @property
    def conflict(self) -> bool:
        """True if the counts contradict each other or the answer."""
        return bool(self.flags & CONFLICTS)


class TimingUnit(StrEnum):
    """Unit of a provider's timing."""

    NANOSECONDS = "ns"
    MILLISECONDS = "ms"
    SECONDS = "s"


class ProviderTiming(NamedTuple):
    """A duration that the provider reported about its own work; its clock is not ours.

    Args:
        name: allowlisted name.
        value: the number as reported.
        unit: its unit.
    """

    name: str
    value: float
    unit: TimingUnit


class BuildMatch(StrEnum):
    """What the answer's fingerprint says about the build."""

    MATCHES = "matches"
    DIFFERS = "differs"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Answer:
    """What was read of one answer.

    Args:
        outcome: what it is as evidence.
        reason: why; an allowlisted word.
        wire_code: which rule of a framing or bound was broken, if one was.
        finish_reason: canonical; None unless a choice, in dialects with choices the first, ended.
        raw_finish_reason: the provider's word, only where the profile's map has it.
        usage: provider-reported usage; None if there was none.
        resolved_model: the model that the answer named; None if it named none or a file path.
        model_redacted: the answer named a file path, which was dropped.
        build_match: what the fingerprint says about the build.
        model_loaded: the call made the server load a model.
        logprobs: the answer has log-probabilities of its tokens; they are never kept.
        length_suspected: the output is as long as its limit, and the dialect cannot say that it was cut.
        choices: number of choices or answer items seen.
        events: the token timeline.
        events_dropped: events with output beyond the bound of the timeline.
        provider_timings: durations that the provider reported.
        text_bytes: length of the answer's text in UTF-8, reasoning excluded.
        reasoning_bytes: length of its reasoning in UTF-8.
        frames: frames that were read.
        comments: SSE comments that were skipped.
        body_bytes: bytes of the body that were fed.
        text: the answer's text, only if it was asked for; never shown in ``repr``.
    """

    outcome: Outcome
    reason: AnswerReason
    wire_code: str | None = None
    finish_reason: FinishReason | None = None
    raw_finish_reason: str | None = None
    usage: Usage | None = None
    resolved_model: str | None = None
    model_redacted: bool = False
    build_match: BuildMatch = BuildMatch.UNAVAILABLE
    model_loaded: bool = False
    logprobs: bool = False
    length_suspected: bool = False
    choices: int = 0
    events: tuple[TokenEvent, ...] = ()
    events_dropped: int = 0
    provider_timings: tuple[ProviderTiming, ...] = ()
    text_bytes: int = 0
    reasoning_bytes: int = 0
    frames: int = 0
    comments: int = 0
    body_bytes: int = 0
    text: str | None = field(default=None, repr=False)

    @property
    def first_token_ns(self) -> int | None:
        """Arrival of the first event that carried output, whatever its kind."""
        return self.events[0].at_ns if self.events else None

    @property
    def last_token_ns(self) -> int | None:
        """Arrival of the last event that carried output."""
        return self.events[-1].at_ns if self.events else None

    @property
    def reasoning_events(self) -> int:
        """Number of events in the timeline that carried reasoning."""
        return sum(event.kind is OutputKind.REASONING for event in self.events)

    @property
    def partial_output(self) -> bool:
        """True if there was output and the answer is not complete."""
        return self.outcome is not Outcome.COMPLETED and (bool(self.events) or self.text_bytes > 0)
