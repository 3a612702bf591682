from __future__ import annotations

from types import SimpleNamespace

import pytest

from tasc_pipeline.steps.conditions import over_loopback, throttled_share


def snapshot(phase: str, *throttled: bool | None, count: int | None = None) -> SimpleNamespace:
    """What the share reads of a snapshot's record."""
    devices = [
        {"id": str(place)} | ({} if value is None else {"throttled": value}) for place, value in enumerate(throttled)
    ]
    host = {} if count is None else {"cpuThrottleCount": count}
    return SimpleNamespace(phase=phase, snapshot={"accelerators": devices, "host": host})


@pytest.mark.parametrize(("transport", "loopback"), [("loopback-http", True), ("https", False)])
def test_the_plan_says_which_server_is_reached_over_loopback(transport: str, *, loopback: bool) -> None:
    assert over_loopback(SimpleNamespace(transport=transport)) is loopback  # type: ignore[arg-type]  # reads this field only


def test_devices_that_tell_are_counted_while_the_window_is_open() -> None:
    records = [
        snapshot("before", True, True),
        snapshot("during", True, False),
        snapshot("during", False, None),
        snapshot("after", True),
    ]
    assert throttled_share(records) == pytest.approx(1 / 3)  # type: ignore[arg-type]  # reads these two fields only


def test_a_processor_was_throttled_where_its_count_has_grown() -> None:
    records = [
        snapshot("before", count=5),
        snapshot("during", count=5),
        snapshot("during", count=9),
        snapshot("after", count=9),
    ]
    assert throttled_share(records) == pytest.approx(1 / 3)  # type: ignore[arg-type]  # reads these two fields only


def test_nobody_tells() -> None:
    assert throttled_share([snapshot("during", None), snapshot("after")]) is None  # type: ignore[list-item]  # as above
