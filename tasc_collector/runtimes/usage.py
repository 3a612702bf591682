"""Reading token counts. The names differ between dialects; the rules do not.

1. A count is an integer from 0 to a bound, or absent. A fraction, text, truth value or negative number is a violation.
2. What is absent stays None. Only a total that a dialect never reports is derived, and flagged as derived.
3. Counts that contradict each other are kept and flagged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasc_collector.canonical import JsonValue
from tasc_collector.limits import ANSWER_MAX_TOKEN_COUNT
from tasc_collector.runtimes.result import Usage, UsageFlag
from tasc_collector.runtimes.verdict import AnswerReason, Verdict


@dataclass(frozen=True, slots=True)
class UsageNames:
    """Where a dialect puts its counts; details are (object, field) pairs, with an empty object for the usage itself."""

    input: str
    output: str
    total: str | None
    cached: tuple[tuple[str, str], ...] = ()
    reasoning: tuple[tuple[str, str], ...] = ()


CHAT_USAGE = UsageNames(
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    cached=(("prompt_tokens_details", "cached_tokens"),),
    reasoning=(("completion_tokens_details", "reasoning_tokens"), ("", "reasoning_tokens")),
)
"""Chat and completions; SGLang 0.5.16 has ``reasoning_tokens`` at the top."""
RESPONSES_USAGE = UsageNames(
    "input_tokens",
    "output_tokens",
    "total_tokens",
    cached=(("input_tokens_details", "cached_tokens"),),
    reasoning=(("output_tokens_details", "reasoning_tokens"),),
)
"""Responses."""
OLLAMA_USAGE = UsageNames("prompt_eval_count", "eval_count", None)
"""Last line of Ollama's native routes; Ollama leaves a count of zero out."""
TGI_USAGE = UsageNames("input_length", "generated_tokens", None)
"""``details`` of TGI's native routes; ``input_length`` only in streams."""
LM_STUDIO_USAGE = UsageNames("input_tokens", "total_output_tokens", None, reasoning=(("", "reasoning_output_tokens"),))
"""``stats`` of LM Studio's native route."""


def count(value: JsonValue) -> int | None:
    """A token count, or None where there is none.

    Raises:
        Verdict: it is not an integer from 0 to the bound.
    """
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= ANSWER_MAX_TOKEN_COUNT:
        raise Verdict(AnswerReason.USAGE_INVALID)
    return value


def read_usage(value: JsonValue, names: UsageNames, *, zero_details_unknown: bool = False) -> Usage | None:
    """Usage of a JSON object, or None where the value is null or has neither input nor output; a total alone is none.

    Args:
        value: the object that holds the counts.
        names: the dialect's names.
        zero_details_unknown: a zero of cached or reasoning tokens is hard-coded by the server, so it is unknown.

    Raises:
        Verdict: it is not an object, or a count is not plausible.
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        raise Verdict(AnswerReason.USAGE_INVALID)
    tokens_in, tokens_out = count(value.get(names.input)), count(value.get(names.output))
    total = count(value.get(names.total)) if names.total else None
    if tokens_in is None and tokens_out is None:
        return None
    cached, reasoning = _detail(value, names.cached), _detail(value, names.reasoning)
    if zero_details_unknown:
        cached, reasoning = cached or None, reasoning or None
    flags: set[UsageFlag] = set()
    if tokens_in is not None and tokens_out is not None:
        if names.total is None:
            total = tokens_in + tokens_out
            flags.add(UsageFlag.TOTAL_DERIVED)
        elif total is not None and total != tokens_in + tokens_out:
            flags.add(UsageFlag.TOTAL_DIFFERS)
    if _exceeds(cached, tokens_in) or _exceeds(reasoning, tokens_out):
        flags.add(UsageFlag.DETAIL_EXCEEDS)
    return Usage(tokens_in, tokens_out, total, cached, reasoning, frozenset(flags))


def _detail(value: Mapping[str, Any], places: tuple[tuple[str, str], ...]) -> int | None:  # Any: a JSON object
    for place, name in places:
        holder = value.get(place) if place else value
        if isinstance(holder, dict):
            found = count(holder.get(name))
            if found is not None:
                return found
    return None


def _exceeds(part: int | None, whole: int | None) -> bool:
    return part is not None and whole is not None and part > whole
