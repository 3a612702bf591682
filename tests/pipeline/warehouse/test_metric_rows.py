"""Latency histograms of servers: what is added between two scrapes, and the quantiles that a report shows of it."""

from __future__ import annotations

import json
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasc_collector.contracts.observations import HistogramValue, MetricValue, ScrapeEntry
from tasc_collector.contracts.scalars import timestamp_ms, timestamp_of_ms
from tasc_collector.errors import InputError
from tasc_collector.probes.counters import histogram_change
from tasc_pipeline.warehouse.database import build_views, connect
from tasc_pipeline.warehouse.metric_rows import metric_histograms_table, metric_samples_table, scrape_columns
from tasc_pipeline.warehouse.publish import publish
from tasc_pipeline.warehouse.report_data import ServerLatency, load
from tests.support import sample_warehouse

KEY = "morning.r01-5f0c1a2b"
BOUNDS = (0.01, 0.1, 1.0)


def scrape(second: int, counts: tuple[int, ...] | None, *, alias: str = "champion", **changes: Any) -> ScrapeEntry:
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
    return ScrapeEntry(**(values | changes))


def columns(*scrapes: ScrapeEntry) -> Any:
    return scrape_columns([item.model_dump_json(by_alias=True).encode() for item in scrapes])


def rows(*scrapes: ScrapeEntry) -> list[tuple[Any, ...]]:
    names = ("lower_bound_s", "upper_bound_s", "observations")
    return [tuple(row[name] for name in names) for row in metric_histograms_table(KEY, columns(*scrapes)).to_pylist()]


def test_a_scrape_gives_one_row_per_metric_and_null_where_the_server_says_nothing() -> None:
    values = (
        MetricValue(metric="requests-running", labels=(), value=3.0),
        MetricValue(metric="kv-cache-usage", labels=(("engine", "0"), ("model_name", "m")), value=None),
    )
    found = metric_samples_table(
        KEY, columns(scrape(1, None, values=values, took_ns=2_500_000), scrape(2, None), scrape(3, None, values=values))
    ).to_pylist()
    assert [(row["metric"], row["labels"], row["value"], row["took_ms"]) for row in found[:2]] == [
        ("requests-running", "", 3.0, 2.5),
        ("kv-cache-usage", "engine=0,model_name=m", None, 2.5),
    ]
    assert [row["sampled_at"].second for row in found] == [1, 1, 3, 3]
    assert {(row["window_key"], row["endpoint_alias"], row["phase"]) for row in found} == {(KEY, "champion", "during")}


def test_no_scrape_gives_no_row() -> None:
    assert metric_samples_table(KEY, columns()).num_rows == 0
    assert metric_histograms_table(KEY, columns()).num_rows == 0
    assert metric_histograms_table(KEY, columns(scrape(0, None), scrape(1, (1, 1, 1, 1)))).num_rows == 0


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),  # seconds: several scrapes may share one
            st.sampled_from([(("engine", "0"),), ()]),
            st.sampled_from([BOUNDS, (0.02, 0.1, 1.0), (0.1,), ()]),
            st.lists(st.integers(0, 4), min_size=4, max_size=4),
        ),
        max_size=8,
    )
)
@settings(max_examples=150, deadline=None)
def test_columns_say_what_the_collectors_own_change_of_two_histograms_says(made: list[tuple[Any, ...]]) -> None:
    scrapes = []
    for second, labels, bounds, steps in made:
        value = HistogramValue(
            metric="ttft-seconds",
            labels=labels,
            upper_bounds=bounds,
            cumulative_counts=tuple(accumulate(steps[: len(bounds) + 1])),
            sum=None,
        )
        scrapes.append(scrape(second, None, histograms=(value,)))
    expected = []
    for labels in {item.histograms[0].labels for item in scrapes}:
        own = sorted((s for s in scrapes if s.histograms[0].labels == labels), key=lambda s: s.scraped_at)
        for before, after in pairwise(own):
            change = histogram_change(before.histograms[0], after.histograms[0])
            if change is None:
                continue
            edges = zip((0.0, *change.upper_bounds), (*change.upper_bounds, None), change.counts, strict=True)
            for bucket, (low, high, count) in enumerate(edges):
                if count:
                    text = ",".join("=".join(pair) for pair in labels)
                    expected.append((text, timestamp_ms(after.scraped_at), bucket, low, str(high), count))
    found = [
        (
            row["labels"],
            round(row["until_at"].timestamp() * 1000),
            row["bucket"],
            row["lower_bound_s"],
            str(row["upper_bound_s"]),
            row["observations"],
        )
        for row in metric_histograms_table(KEY, columns(*scrapes)).to_pylist()
    ]
    assert sorted(found) == sorted(expected)


LINE = scrape(0, (1, 2, 3, 4), values=(MetricValue(metric="a", labels=(("engine", "0"),), value=1.0),)).to_json()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"surplus": 1}, "no scrape, or has an unknown field"),
        ({"tookNs": 1.5}, "no scrape, or has an unknown field"),
        ({"endpointAlias": 7}, "no scrape, or has an unknown field"),
        ({"phase": None}, "phase is missing"),
        ({"version": "tasc-metrics-scrape-v2"}, "another version"),
        ({"scrapedAt": "yesterday"}, "scrapedAt is no instant"),
        ({"values": [{"metric": None, "labels": [], "value": 1.0}]}, "metric is missing"),
        ({"values": [{"metric": "a", "labels": [["one"]], "value": 1.0}]}, "no pair|not a pair"),
        ({"values": [{"metric": "a", "labels": [["one", None]], "value": 1.0}]}, "label is missing"),
        (
            {"histograms": [{"metric": "a", "labels": [], "upperBounds": [1.0], "cumulativeCounts": [1], "sum": None}]},
            "another number of counts",
        ),
    ],
)
def test_a_line_that_breaks_the_schema_is_refused(change: dict[str, Any], says: str) -> None:
    good = json.dumps(LINE).encode()
    with pytest.raises(InputError, match=says):
        metric_samples_table(KEY, scrape_columns([good, json.dumps(LINE | change).encode(), good]))


def test_a_missing_field_a_number_that_is_none_and_two_scrapes_in_a_line_are_refused() -> None:
    text = json.dumps(LINE)
    for line, says in (
        (json.dumps({name: value for name, value in LINE.items() if name != "tookNs"}), "tookNs is missing"),
        (text.replace('"value": 1.0', '"value": NaN'), "value is not finite"),
        (text.replace('"value": 1.0', '"value": 1e999'), "no scrape"),
        (text + text, "more than one scrape"),
        ("{", "no scrape"),
    ):
        with pytest.raises(InputError, match=says):
            scrape_columns([line.encode()])


@pytest.mark.parametrize("slice_bytes", [1, 800, 1 << 20])
def test_lines_are_parsed_in_slices_of_whole_lines(slice_bytes: int) -> None:
    lines = [json.dumps(LINE | {"tookNs": number}).encode() for number in range(20)]
    sliced = scrape_columns(lines, slice_bytes=slice_bytes)
    assert sliced.column("tookNs").to_pylist() == list(range(20))
    assert sliced.equals(scrape_columns(lines))
    assert metric_samples_table(KEY, sliced).equals(metric_samples_table(KEY, scrape_columns(lines)))
    with pytest.raises(InputError, match="more than one scrape"):
        scrape_columns([*lines, lines[0] + lines[1]], slice_bytes=slice_bytes)


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
        KEY, columns(scrape(0, (0, 0, 0, 0)), scrape(2, (50, 90, 90, 90)), scrape(4, (50, 90, 100, 100)))
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
