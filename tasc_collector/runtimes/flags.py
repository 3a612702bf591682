"""What differs between two servers that speak the same dialect, as data.

A dialect reader is one small state machine; these flags are all that it knows about a runtime. The same flags in a JSON
file let ``tasc wire answer --flags FILE`` read a stream of a runtime that has no profile.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from tasc_collector.canonical import JsonValue
from tasc_collector.errors import InputError
from tasc_collector.runtimes.verdict import FinishReason


class UsagePosition(StrEnum):
    """Where a stream of the chat and completions dialects carries the usage that counts; see ``MEANING``."""

    SEPARATE = "separate"
    FINISH = "finish"
    EVERY = "every"
    ANY = "any"


class ErrorShape(StrEnum):
    """Shapes of an error object besides a non-null ``error`` key, an error in every dialect; see ``MEANING``."""

    FLAT = "flat"
    DETAIL = "detail"


MEANING: Mapping[UsagePosition | ErrorShape, str] = {
    UsagePosition.SEPARATE: "on a chunk of its own with empty `choices`, after the finish reason",
    UsagePosition.FINISH: "on the chunk with the finish reason, or after it",
    UsagePosition.EVERY: "on every chunk, running; the one on or after the finish reason counts",
    UsagePosition.ANY: "on any chunk; the last one counts",
    ErrorShape.FLAT: 'an object whose `object` is "error", or with `message`, `type` and `code`',
    ErrorShape.DETAIL: "an object with `detail`, as the web framework writes it",
}
"""What each position and shape is."""

OPENAI_REASONS: Mapping[str, FinishReason] = types.MappingProxyType(
    {
        "stop": FinishReason.STOP,
        "length": FinishReason.LENGTH,
        "tool_calls": FinishReason.TOOL_CALLS,
        "function_call": FinishReason.FUNCTION_CALL,
        "content_filter": FinishReason.CONTENT_FILTER,
        "abort": FinishReason.CANCELLED,
        "cancelled": FinishReason.CANCELLED,
        "error": FinishReason.ERROR,
    }
)
"""Finish reasons of the OpenAI dialects, with the two that servers use for a generation that they stopped."""


@dataclass(frozen=True, slots=True)
class DialectFlags:
    """How one server ends, counts and names things on one route.

    Args:
        has_done: a stream ends with ``data: [DONE]``; necessary, never sufficient. False for Responses almost
            everywhere.
        event_lines: the SSE event name equals the ``type`` inside the data (Responses, LM Studio).
        usage_position: where a chat or completions stream carries the usage that counts.
        usage_required: an answer without usage is not complete.
        reason_map: provider's finish reason -> canonical one; the empty string is never terminal, any other word a
            violation.
        error_frame_shape: error shapes besides a non-null ``error`` key.
        close_delimited: HTTP/1.0, the end of the connection is the end of a streamed body.
        names_model: answers name a model; False only where the dialect has no such field.
        model_paths: the model field may hold a file path, which is then dropped instead of compared.
        null_frames: ``data: null`` is skipped.
        status_tells_truncation: a Responses object that is cut by its token limit does not say ``completed``.
        old_usage_names: a Responses JSON body counts with prompt and completion names.
        zero_details_unknown: a zero count of cached or reasoning tokens is hard-coded, so it is unknown.
        usage_first_choice_only: usage covers the first choice only.
        frame_tokens: tokens that each frame with output carries, where the dialect guarantees it.
        remote_fields: ``remote_model`` or ``remote_host`` in an answer means that another host made it.
        fingerprint: ``system_fingerprint`` begins with this, with ``{build}`` in the place of the build.
        fingerprint_unverifiable: a fingerprint that begins with this says nothing about the build.
    """

    has_done: bool = True
    event_lines: bool = False
    usage_position: UsagePosition = UsagePosition.SEPARATE
    usage_required: bool = True
    reason_map: Mapping[str, FinishReason] = field(default_factory=lambda: OPENAI_REASONS)
    error_frame_shape: frozenset[ErrorShape] = frozenset()
    close_delimited: bool = False
    names_model: bool = True
    model_paths: bool = False
    null_frames: bool = False
    status_tells_truncation: bool = False
    old_usage_names: bool = False
    zero_details_unknown: bool = False
    usage_first_choice_only: bool = False
    frame_tokens: int | None = None
    remote_fields: bool = False
    fingerprint: str | None = None
    fingerprint_unverifiable: str | None = None


UNREGISTERED = DialectFlags(
    usage_position=UsagePosition.ANY,
    model_paths=True,
    error_frame_shape=frozenset(ErrorShape),
)
"""What a flags file starts from: about a server without a profile, the reader assumes as little as it can."""

_HINTS: Mapping[str, Any] = typing.get_type_hints(DialectFlags)  # Any: get_type_hints gives types and generic aliases


def flags_from_value(value: JsonValue, *, where: str | None = None) -> DialectFlags:
    """Flags of a JSON object; what is absent is as in ``UNREGISTERED``.

    Args:
        value: an object with the field names of ``DialectFlags``; ``reason_map`` is an object of words,
            ``error_frame_shape`` a list of shapes.
        where: name of the file, for messages.

    Raises:
        InputError: a flag is unknown or has a wrong value; names the flag and what it may be.
    """
    if not isinstance(value, Mapping):
        raise InputError("dialect flags are a JSON object", where=where, way_out='write one like {"has_done": false}')
    known = [item.name for item in fields(DialectFlags)]
    chosen: dict[str, Any] = {}  # Any: each value is checked against its own field below
    for name, item in value.items():
        if name not in known:
            raise InputError("unknown flag", where=where, field=name, way_out="use one of " + ", ".join(known))
        chosen[name] = _flag(name, item, where)
    return replace(UNREGISTERED, **chosen)


def _flag(name: str, value: JsonValue, where: str | None) -> object:
    """One flag's value in its own type."""
    hint = _HINTS[name]
    if hint is bool and isinstance(value, bool):
        return value
    if hint is UsagePosition and value in list(UsagePosition):
        return UsagePosition(str(value))
    if (
        name == "reason_map"
        and isinstance(value, Mapping)
        and all(item in list(FinishReason) for item in value.values())
    ):
        return types.MappingProxyType({key: FinishReason(str(item)) for key, item in value.items()})
    if name == "error_frame_shape" and isinstance(value, list) and all(item in list(ErrorShape) for item in value):
        return frozenset(ErrorShape(str(item)) for item in value)
    if name.startswith("fingerprint") and (value is None or isinstance(value, str)):
        return value
    if name == "frame_tokens" and (value is None or (type(value) is int and value > 0)):
        return value
    raise InputError("wrong value", where=where, field=name, way_out=_WAY_OUT.get(name, "write true or false"))


_WAY_OUT: Mapping[str, str] = {
    "usage_position": "use one of " + ", ".join(UsagePosition),
    "reason_map": "map each word to one of " + ", ".join(FinishReason),
    "error_frame_shape": "list any of " + ", ".join(ErrorShape),
    "fingerprint": 'write a text such as "vllm-{build}-", or null',
    "fingerprint_unverifiable": "write a text, or null",
    "frame_tokens": "write a positive integer, or null",
}
