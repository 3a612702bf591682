from __future__ import annotations

import pytest

from tasc_collector.contracts.collection import PlanEstimate
from tasc_collector.errors import InputError
from tasc_pipeline.control.estimates import estimate_text, per_day
from tasc_pipeline.control.pace import Pace, given

ONE = PlanEstimate(calls=12, warm_up_calls=2, output_tokens=98, minutes=0.25, cost_usd=0.004)


@pytest.mark.parametrize(("every", "windows"), [("1h", 24), ("30m", 48), ("1d", 1), ("7m", 205), ("24h", 1)])
def test_a_day_holds_as_many_windows_as_begin_in_it(every: str, windows: int) -> None:
    day = per_day(ONE, every)
    assert (day.calls, day.warm_up_calls, day.output_tokens) == (12 * windows, 2 * windows, 98 * windows)
    assert day.minutes == pytest.approx(0.25 * windows)
    assert day.cost_usd == pytest.approx(0.004 * windows)


@pytest.mark.parametrize("every", ["", "1", "h", "0h", "1.5h", "2d", "25h", "1w", "-1h"])
def test_no_other_period_is_taken(every: str) -> None:
    with pytest.raises(InputError) as refusal:
        per_day(ONE, every)
    assert refusal.value.field == "--every" and "1h or 30m" in (refusal.value.way_out or "")


def test_a_pace_is_assumed_until_somebody_says_or_measures_better() -> None:
    assert Pace().call_s(64) == 64 / 20 and Pace().call_s(0.5) == 1 / 20
    assert given(40).call_s(64) == 64 / 40 and Pace(seconds_per_call=0.3).call_s(64) == 0.3
    assert "about 0.25 minutes (at 40 tokens/s, as given), at most" in estimate_text(ONE, given(40))


def test_an_estimate_says_where_there_is_no_cost_model() -> None:
    assert estimate_text(ONE) == (
        "12 calls and 2 warm-up calls, at most 98 output tokens, about 0.25 minutes (assuming 20 tokens/s; "
        "say better with --tokens-per-second), "
        "at most 0.0040 USD (modeled)"
    )
    assert "about 0.25 minutes, at most" in estimate_text(ONE, rated=True), "an open load has its rate"
    assert estimate_text(ONE.model_copy(update={"cost_usd": None})).endswith("no cost model")


@pytest.mark.parametrize(
    ("usd", "said"),
    [
        (0.0, "0.00"),
        (0.000001, "0.0000010"),
        (0.0000761, "0.000077"),
        (0.0991, "0.100"),
        (0.101, "0.11"),
        (1.0, "1.00"),
        (1.001, "1.01"),
        (0.1, "0.10"),
        (1234.561, "1234.57"),
    ],
)
def test_a_cost_at_most_is_rounded_up(usd: float, said: str) -> None:
    assert estimate_text(ONE.model_copy(update={"cost_usd": usd})).endswith(f", at most {said} USD (modeled)")
