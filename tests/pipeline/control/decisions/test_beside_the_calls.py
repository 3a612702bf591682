"""Costs by the cost model and capacity by the server's own scrapes."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from tasc_collector.contracts.operations import DevicePrice, TokenPrice
from tasc_pipeline.control.decisions.capacity import Capacity, capacity_of
from tasc_pipeline.control.decisions.costs import CostRule, Usage, ceiling_usd, costs, shared_time_ns

NAN = math.nan


def usage(**columns: list[float]) -> Usage:
    given = {
        "input_tokens": [1000.0, 1000.0, NAN],
        "cached_tokens": [NAN, 400.0, NAN],
        "output_tokens": [100.0, 200.0, NAN],
        "started_ns": [0.0, 1e9, NAN],
        "e2e_ns": [2e9, 2e9, NAN],
    } | columns
    return Usage(**{name: np.array(values) for name, values in given.items()})


def test_tokens_cost_their_price_and_cached_ones_their_own() -> None:
    price = TokenPrice(
        kind="token-price", input_usd_per_million=2.0, cached_input_usd_per_million=0.5, output_usd_per_million=10.0
    )
    rule = CostRule(price, 500, 30_000)
    found = costs(rule, usage())
    assert found[:2].tolist() == pytest.approx([0.003, 0.0034])  # 1000x2 + 100x10; 600x2 + 400x0.5 + 200x10
    assert math.isnan(found[2])
    assert ceiling_usd(rule, usage()) == pytest.approx(0.007)  # 1000x2 + 500x10
    assert ceiling_usd(CostRule(price, None, None), usage()) == math.inf


def test_calls_that_are_open_together_share_the_devices_evenly() -> None:
    shares = shared_time_ns(np.array([0.0, 1.0, 10.0]), np.array([4.0, 2.0, 1.0]))
    assert shares.tolist() == [3.0, 1.0, 1.0]  # alone 0-1 and 3-4, half of 1-3; then alone
    assert shares.sum() == 5.0, "the busy time"


def test_device_seconds_add_up_to_the_busy_time() -> None:
    rule = CostRule(DevicePrice(kind="device-second", usd_per_device_second=0.001, devices=2), 500, 30_000)
    found = costs(rule, usage())
    assert found[:2].tolist() == pytest.approx([0.003, 0.003])  # 1.5 s each of 3 busy seconds
    assert ceiling_usd(rule, usage()) == pytest.approx(0.06)


def scrape(at: str, phase: str, **values: float) -> SimpleNamespace:
    names = {"generated": "generation-tokens-total", "waiting": "requests-waiting", "cache": "kv-cache-usage"}
    return SimpleNamespace(
        endpoint_alias="one",
        phase=phase,
        scraped_at=f"2026-03-01T00:{at}.000Z",
        values=[SimpleNamespace(metric=names[name], labels=(), value=value) for name, value in values.items()],
    )


def capacity(*scrapes: SimpleNamespace) -> Capacity:
    return capacity_of(scrapes, "one")  # type: ignore[arg-type]  # reads these fields only


def test_throughput_is_what_the_counter_grew_between_the_scrapes_around_the_window() -> None:
    found = capacity(
        scrape("00:00", "before", generated=1000, waiting=0),
        scrape("00:30", "during", generated=2500, waiting=0, cache=0.2),
        scrape("01:00", "after", generated=4000, waiting=0),
    )
    assert (found.tokens_per_second, found.full, found.reason) == (50.0, False, None)
    assert found.state(50.0) == ("passed", None)
    assert found.state(51.0) == ("undecided", "server-was-not-full")


@pytest.mark.parametrize("load", [{"waiting": 3.0}, {"cache": 0.95}])
def test_a_full_server_that_makes_too_little_fails(load: dict[str, float]) -> None:
    found = capacity(
        scrape("00:00", "before", generated=0),
        scrape("00:30", "during", **load),
        scrape("01:00", "after", generated=600),
    )
    assert found.state(11.0) == ("failed", "beyond-the-bound-as-a-point")


@pytest.mark.parametrize(
    ("scrapes", "reason"),
    [
        ((), "no-metric-scrape"),
        ((scrape("00:30", "during", generated=1),), "scrapes-do-not-bracket-the-window"),
        ((scrape("00:00", "before"), scrape("01:00", "after")), "server-does-not-count-tokens"),
        (
            (
                scrape("00:00", "before", generated=900),
                scrape("00:30", "during", generated=10),
                scrape("01:00", "after", generated=1000),
            ),
            "server-restarted-inside-the-window",
        ),
    ],
)
def test_without_evidence_capacity_is_unavailable_and_says_why(
    scrapes: tuple[SimpleNamespace, ...], reason: str
) -> None:
    assert capacity(*scrapes).state(1.0) == ("unavailable", reason)
