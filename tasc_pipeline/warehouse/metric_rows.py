"""From scrapes to what a server's own latency histograms gained between two of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import pyarrow as pa

from tasc_collector.contracts.observations import HistogramValue, MetricsScrape
from tasc_collector.contracts.scalars import timestamp_ms
from tasc_collector.probes.counters import histogram_change
from tasc_pipeline.warehouse.schemas import METRIC_HISTOGRAMS


def metric_histograms_table(window_key: str, scrapes: Iterable[MetricsScrape]) -> pa.Table:
    """``metric_histograms``: one row per endpoint, metric, pair of scrapes and bucket that gained something.

    A scrape that has no histogram (it failed, or the server was gone) is passed over: what was added meanwhile stands
    between the scrapes around it.
    """
    series: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[tuple[int, HistogramValue]]] = {}
    for scrape in sorted(scrapes, key=lambda item: item.scraped_at):
        for item in scrape.histograms:
            key = (scrape.endpoint_alias, item.metric, item.labels)
            series.setdefault(key, []).append((timestamp_ms(scrape.scraped_at), item))
    columns: dict[str, list[object]] = {column.name: [] for column in METRIC_HISTOGRAMS.columns}
    appends = [column.append for column in columns.values()]
    for (alias, metric, pairs), values in series.items():
        labels = ",".join(f"{name}={value}" for name, value in pairs)
        for (from_at, before), (until_at, after) in pairwise(values):
            for bucket, low, high, count in _gained(before, after):
                row = (window_key, alias, metric, labels, from_at, until_at, bucket, low, high, count)
                for append, value in zip(appends, row, strict=True):
                    append(value)
    return METRIC_HISTOGRAMS.from_columns(columns)


def _gained(before: HistogramValue, after: HistogramValue) -> Iterator[tuple[int, float, float | None, int]]:
    """Place, lower bound, upper bound and count of every bucket that gained something."""
    change = histogram_change(before, after)
    if change is not None:
        bounds = zip((0.0, *change.upper_bounds), (*change.upper_bounds, None), change.counts, strict=True)
        for bucket, (low, high, count) in enumerate(bounds):
            if count:
                yield bucket, low, high, count
