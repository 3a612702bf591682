"""Dialect flags from a file, media types, and readers that are asked for what a build does not have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tasc_collector.errors import InputError
from tasc_collector.runtimes.answer import AnswerReader
from tasc_collector.runtimes.flags import UNREGISTERED, ErrorShape, UsagePosition, flags_from_value
from tasc_collector.runtimes.media import media_type_matches
from tasc_collector.runtimes.profile import Framing, Route
from tasc_collector.runtimes.registry import get_profile
from tasc_collector.runtimes.verdict import OUTCOME_OF, VERDICT_OF_FINISH, AnswerReason, FinishReason, Outcome


def test_flags_of_a_file():
    flags = flags_from_value(
        {
            "has_done": False,
            "event_lines": True,
            "usage_position": "finish",
            "reason_map": {"done": "stop"},
            "error_frame_shape": ["flat"],
            "close_delimited": True,
            "frame_tokens": 1,
            "fingerprint": None,
        }
    )
    assert flags == replace(
        UNREGISTERED,
        has_done=False,
        event_lines=True,
        usage_position=UsagePosition.FINISH,
        reason_map={"done": FinishReason.STOP},
        error_frame_shape=frozenset({ErrorShape.FLAT}),
        close_delimited=True,
        frame_tokens=1,
    )
    assert flags_from_value({}) == UNREGISTERED


@pytest.mark.parametrize(
    ("value", "field", "way_out"),
    [
        ({"has_dne": False}, "has_dne", "has_done"),
        ({"has_done": 0}, "has_done", "true or false"),
        ({"usage_position": "last"}, "usage_position", "separate"),
        ({"reason_map": {"x": "y"}}, "reason_map", "stop"),
        ({"error_frame_shape": "flat"}, "error_frame_shape", "flat"),
        ({"frame_tokens": 0}, "frame_tokens", "positive"),
        ([], None, "has_done"),
    ],
)
def test_a_wrong_flag_is_named_with_what_it_may_be(value, field, way_out):
    with pytest.raises(InputError) as refused:
        flags_from_value(value, where="flags.json")
    assert (refused.value.field, refused.value.where) == (field, "flags.json")
    assert way_out in (refused.value.way_out or "")


@pytest.mark.parametrize(
    ("header", "framing", "matches"),
    [
        ("application/json", Framing.JSON, True),
        ("application/json; charset=utf-8", Framing.JSON, True),
        ('Application/JSON;charset="UTF-8"', Framing.JSON, True),
        ("application/json; charset=latin-1", Framing.JSON, False),
        ("application/json; charset=utf-8; x=1", Framing.JSON, False),
        ("application/json, text/html", Framing.JSON, False),
        ("text/event-stream", Framing.SSE, True),
        ("text/event-stream;charset=utf-8", Framing.SSE, True),
        ("application/x-ndjson", Framing.NDJSON, True),
        ("application/ndjson", Framing.NDJSON, False),
        ("application/json", Framing.SSE, False),
        ("", Framing.JSON, False),
        (None, Framing.JSON, False),
        ("application/json;" + " " * 600, Framing.JSON, False),
    ],
)
def test_media_types(header, framing, matches):
    assert media_type_matches(header, framing) is matches


def test_a_route_or_framing_that_the_build_lacks_is_refused_with_those_it_has():
    with pytest.raises(InputError, match="chatCompletions/sse"):
        AnswerReader(get_profile("tgi", "3.3.7"), Route.RESPONSES, Framing.JSON, "m")
    with pytest.raises(InputError, match="nativeChat/ndjson"):
        AnswerReader(get_profile("ollama", "0.32.5"), Route.NATIVE_CHAT, Framing.SSE, "m")


def test_every_reason_has_one_outcome_and_only_one_is_complete():
    assert set(OUTCOME_OF) == set(AnswerReason)
    assert [reason for reason, outcome in OUTCOME_OF.items() if outcome is Outcome.COMPLETED] == [
        AnswerReason.COMPLETED
    ]
    assert set(VERDICT_OF_FINISH) == set(FinishReason)
