"""Each figure that may warn, on both sides of its limit; the numbers are written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tasc_pipeline.control import window_quality as quality
from tasc_pipeline.control.observations import Observation

START, END = "2026-11-29T10:00:00.000Z", "2026-11-29T10:30:00.000Z"


def seen(**changes: Any) -> Observation:
    values: dict[str, Any] = {
        "case_id": "c",
        "group_id": "g",
        "replicate": 0,
        "profile_id": "champion",
        "state": "accepted",
        "dispatch_state": "completed",
        "status": "success",
        "reason": None,
        "output_tokens": 7,
    }
    return Observation(**(values | changes))


def test_coverage_warns_below_its_floor() -> None:
    assert quality.coverage(0.95, 0.95).passed and not quality.coverage(0.949, 0.95).passed


def test_one_unknown_in_a_hundred_is_the_limit() -> None:
    unknown = seen(status="aborted", dispatch_state="sent_unknown")
    assert quality.unknown_rate([unknown, *[seen()] * 99]).passed
    found = quality.unknown_rate([unknown, unknown, *[seen()] * 98])
    assert (found.value, found.passed) == (0.02, False)


def test_missing_token_counts_are_counted_over_successes_only() -> None:
    failed = seen(status="failure", output_tokens=None)
    assert quality.usage_null_rate([failed] * 50 + [seen()]).passed
    found = quality.usage_null_rate([seen(output_tokens=None), *[seen()] * 9])
    assert (found.value, found.passed) == (0.1, False)
    assert quality.usage_null_rate([]).value is None and quality.usage_null_rate([]).passed


@pytest.mark.parametrize(
    ("started", "in_order", "skew_ms", "passed"),
    [
        (["2026-11-29T10:00:00.000Z"], [["2026-11-29T10:00:00.000Z", "2026-11-29T10:00:01.000Z"]], 0.0, True),
        (["2026-11-29T09:59:59.500Z"], [], 500.0, True),
        (["2026-11-29T09:59:58.000Z"], [], 2_000.0, False),
        (["2026-11-29T10:30:05.000Z"], [], 5_000.0, False),
        ([], [["2026-11-29T10:10:00.000Z", "2026-11-29T10:09:00.000Z"]], 60_000.0, False),
        ([], [], 0.0, True),
    ],
)
def test_a_wall_clock_that_was_set_is_seen(
    started: list[str], in_order: list[list[str]], skew_ms: float, passed: bool
) -> None:
    found = quality.clock_skew(started, in_order, start=START, end=END)
    assert (found.value, found.passed) == (skew_ms, passed)


def test_a_server_that_never_answered_is_named() -> None:
    gone = seen(profile_id="candidate", state="not_sent", status=None, dispatch_state=None)
    found = quality.servers_answered([seen(), gone])
    assert (found.value, found.passed) == (1.0, False)
    assert found.note == "no answer in the whole window from candidate"
    assert quality.servers_answered([seen(), seen(profile_id="candidate", status="failure")]).passed


def test_throttling_is_that_of_the_worst_device_and_silence_is_no_warning() -> None:
    assert not quality.throttling([0.0, 0.06, None]).passed
    assert quality.throttling([0.05]).passed
    assert quality.throttling([None]).passed and quality.throttling([None]).note == "no device tells"


def test_a_receipt_of_the_day_before_yesterday_is_old() -> None:
    found = quality.receipt_age(["2026-11-29T09:00:00.000Z", "2026-11-27T10:00:00.000Z"], START, limit_h=24.0)
    assert (found.value, found.passed) == (48.0, False)
    assert quality.receipt_age(["2026-11-28T10:00:00.000Z"], START, limit_h=24.0).passed
    assert quality.receipt_age([], START, limit_h=24.0).value is None
