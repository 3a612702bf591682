"""Latency histograms of servers: what is added between two scrapes, and the quantiles that a report shows of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasc_collector.contracts.observations import HistogramValue, MetricsScrape
from tasc_collector.contracts.scalars import timestamp_of_ms
from tasc_collector.signing import SigningKey
from tasc_pipeline.warehouse.database import build_views, connect
from tasc_pipeline.warehouse.metric_rows import metric_histograms_table
from tasc_pipeline.warehouse.publish import publish
from tasc_pipeline.warehouse.report_data import ServerLatency, load
from tests.support import sample_warehouse

KEY = "morning.r01-5f0c1a2b"
SIGNING = SigningKey.generate()
BOUNDS = (0.01, 0.1, 1.0)


def scrape(second: int, counts: tuple[int, ...] | None, *, alias: str = "champion", **changes: Any) -> MetricsScrape:
    histogram = (
        None
        if counts is None
        else HistogramValue(metric="ttft-seconds", labels=(), upper_bounds=BOUNDS, cumulative_counts=counts, sum=None)
    )
    values: dict[str, Any] = {
        "window_key": KEY,
        "endpoint_alias": alias,
        "endpoint_binding_digest": "sha256:" + "0" * 64,
        "phase": "during",
        "scraped_at": timestamp_of_ms(1_795_953_600_000 + 1000 * second),
        "took_ns": 1,
        "values": (),
        "histograms": () if histogram is None else (histogram,),
        "ignored_samples": 0,
        "non_finite_samples": 0,
    }
    return MetricsScrape.sign_with(SIGNING, "collector-1", **(values | changes))


def rows(*scrapes: MetricsScrape) -> list[tuple[Any, ...]]:
    names = ("lower_bound_s", "upper_bound_s", "observations")
    return [tuple(row[name] for name in names) for row in metric_histograms_table(KEY, scrapes).to_pylist()]


def test_a_row_is_what_a_bucket_gained_and_empty_buckets_have_none() -> None:
    assert rows(scrape(0, (5, 5, 5, 5)), scrape(2, (5, 8, 8, 9))) == [(0.01, 0.1, 3), (1.0, None, 1)]


def test_what_was_added_while_a_scrape_failed_is_not_lost() -> None:
    assert rows(scrape(0, (1, 1, 1, 1)), scrape(2, None), scrape(4, (4, 4, 4, 4))) == [(0.0, 0.01, 3)]


def test_a_server_that_was_restarted_counts_from_its_restart() -> None:
    assert rows(scrape(0, (50, 50, 50, 50)), scrape(2, (2, 2, 2, 2))) == [(0.0, 0.01, 2)]


def test_two_servers_are_never_subtracted_from_each_other() -> None:
    other = scrape(1, (100, 100, 100, 100), alias="candidate")
    assert rows(scrape(0, (0, 0, 0, 0)), other, scrape(2, (1, 1, 1, 1))) == [(0.0, 0.01, 1)]


def test_the_report_reads_count_and_quantiles_from_the_view(tmp_path: Path) -> None:
    table = metric_histograms_table(
        KEY, [scrape(0, (0, 0, 0, 0)), scrape(2, (50, 90, 90, 90)), scrape(4, (50, 90, 100, 100))]
    )
    build_views(tmp_path, clock=sample_warehouse.clock)
    publish(
        tmp_path / "warehouse",
        "metric_histograms",
        KEY,
        table,
        sign=sample_warehouse.SIGNER,
        clock=sample_warehouse.clock,
    )
    build_views(tmp_path, clock=sample_warehouse.clock)
    with connect(tmp_path) as session:
        [found] = load(session, KEY).servers
    assert found == ServerLatency("champion", "ttft-seconds", 100, pytest.approx(10.0), pytest.approx(550.0))  # type: ignore[arg-type]  # stands for the number
