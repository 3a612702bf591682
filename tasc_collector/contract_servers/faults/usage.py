"""Faults in the counts that an answer reports: the U rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tasc_collector.canonical import JsonValue
from tasc_collector.contract_servers.faults.model import JSON, SSE, Fault, StreamEdit
from tasc_collector.contract_servers.frames import ABSENT, Frame, FrameKind
from tasc_collector.contract_servers.generation import Generation, UsageFigures, UsagePlace

Shape = Callable[[Generation], Generation]


def _at(place: UsagePlace) -> Shape:
    return lambda generation: replace(generation, usage_place=place)


def _counts(change: Callable[[UsageFigures], UsageFigures]) -> Shape:
    return lambda generation: replace(generation, usage=change(generation.usage))


def _output(value: JsonValue) -> Shape:
    """The output count is this value; the total is kept, as a careless server would."""
    return _counts(lambda usage: replace(usage, output=value))


def _conflict(generation: Generation) -> Generation:
    other = replace(generation.usage, output=1, total=ABSENT)
    return replace(generation, extra_usage=other, usage_place=UsagePlace.SEPARATE)


def _one_more(generation: Generation) -> Generation:
    total = generation.usage.total
    return replace(generation, usage=replace(generation.usage, total=total + 1 if isinstance(total, int) else 1))


def _first_choice(generation: Generation) -> Generation:
    """Two choices, of which the counts cover the first."""
    tokens = generation.output_tokens
    prompt = generation.usage.input
    total = prompt + tokens if isinstance(prompt, int) else ABSENT
    usage = replace(generation.usage, output=tokens, total=total)
    return replace(generation, ask=replace(generation.ask, choices=2), usage=usage)


def _sglext(edit: StreamEdit) -> list[Frame]:
    """SGLang: an event with empty choices that is not usage, before the usage event."""
    at = next(
        (i for i, frame in enumerate(edit.frames) if frame.kind in {FrameKind.USAGE, FrameKind.DONE}), len(edit.frames)
    )
    template = edit.frames[0].body
    body: dict[str, JsonValue] = {**template} if isinstance(template, dict) else {}
    body |= {"choices": [], "sglext": {"cached_tokens_details": {"device": 0, "host": 0}}}
    return [*edit.frames[:at], Frame(FrameKind.META, body), *edit.frames[at:]]


def _no_counts(generation: Generation) -> Generation:
    usage = UsageFigures(ABSENT, ABSENT, ABSENT)
    return replace(generation, usage=usage, usage_place=UsagePlace.NONE)


def _object_chat(edit: StreamEdit) -> list[Frame]:
    frames = []
    for frame in edit.frames:
        renamed = frame.kind is FrameKind.USAGE and isinstance(frame.body, dict)
        frames.append(frame._replace(body={**frame.body, "object": "chat.completion"}) if renamed else frame)  # type: ignore[dict-item]  # renamed: body is a dict
    return frames


def _old_names(body: JsonValue) -> JsonValue:
    """SGLang Responses JSON counts under the Completions names."""
    if not isinstance(body, dict) or not isinstance(body.get("usage"), dict):
        return body
    usage = body["usage"]
    renamed = {"prompt_tokens": usage.get("input_tokens"), "completion_tokens": usage.get("output_tokens")}
    return (
        {**body, "usage": {**renamed, "total_tokens": usage.get("total_tokens")}} if "input_tokens" in usage else body
    )


FAULTS: Final[tuple[Fault, ...]] = (
    Fault("usage-separate", ("U01",), "usage on its own event", SSE, shape=_at(UsagePlace.SEPARATE)),
    Fault("usage-on-finish", ("U02",), "usage on the finish event", SSE, shape=_at(UsagePlace.FINISH)),
    Fault("usage-every-chunk", ("U03",), "running usage on every event", SSE, shape=_at(UsagePlace.EVERY)),
    Fault(
        "usage-zeros-then-real",
        ("U04",),
        "zeros on every event, then the real counts",
        SSE,
        shape=_at(UsagePlace.ZEROS_THEN_SEPARATE),
    ),
    Fault("usage-absent", ("U05",), "no usage at all", shape=_no_counts),
    Fault(
        "usage-null-until-last",
        ("U06",),
        "usage null on all events but the last",
        SSE,
        shape=_at(UsagePlace.NULL_THEN_SEPARATE),
    ),
    Fault("usage-conflict", ("U07",), "two usage events with different counts", SSE, shape=_conflict),
    Fault(
        "empty-choices-extra", ("U08",), "an event with empty choices that is not usage (SGLang)", SSE, frames=_sglext
    ),
    Fault(
        "usage-object-chat", ("U09",), "the usage event calls itself chat.completion (MLX-LM)", SSE, frames=_object_chat
    ),
    Fault(
        "responses-old-usage-names", ("U10",), "Responses JSON with the old count names (SGLang)", JSON, body=_old_names
    ),
    Fault("usage-sum-wrong", ("U11",), "the total is one too many", shape=_one_more),
    Fault("usage-first-choice", ("U12",), "two choices, counted as one", shape=_first_choice),
    Fault(
        "counts-zero",
        ("U13",),
        "counts are 0; Ollama leaves them out",
        shape=_counts(lambda u: replace(u, input=0, output=0, total=0)),
    ),
    Fault(
        "cached-zero",
        ("U14",),
        "cached and reasoning counts hard-coded to 0",
        shape=_counts(lambda u: replace(u, cached=0, reasoning=0)),
    ),
    Fault("usage-negative", ("U15",), "a negative count", shape=_output(-3)),
    Fault("usage-float", ("U15",), "a count with a fraction", shape=_output(3.5)),
    Fault("usage-huge", ("U15",), "a count past 2^53", shape=_output(2**53 + 1)),
    Fault("usage-bool", ("U15",), "a count that is true", shape=_output(True)),
    Fault("usage-string", ("U15",), "a count that is text", shape=_output("3")),
)
"""Usage faults."""
