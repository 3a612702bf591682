"""What the server and the devices were doing: metric scrapes and device snapshots, signed by the collector key."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tasc_collector.contracts.base import Model
from tasc_collector.contracts.scalars import Count, Digest, Finite, Nanoseconds, Positive, Slug, Timestamp, WindowKey
from tasc_collector.contracts.signed import SignedRecord

Label = tuple[str, str]


class MetricValue(Model):
    """One canonical metric of one label set; null where the server does not report it."""

    metric: Slug
    labels: tuple[Label, ...]
    value: Finite | None


class HistogramValue(Model):
    """Cumulative buckets of one canonical histogram and label set."""

    metric: Slug
    labels: tuple[Label, ...]
    upper_bounds: tuple[Finite, ...]
    """Finite bounds in seconds; the last count is that of +Inf."""
    cumulative_counts: tuple[Count, ...]
    sum: Finite | None


class ScrapeEntry(Model):
    """One scrape on the collector's clock, without a signature of its own: a batch signs the lines that hold it."""

    version: Literal["tasc-metrics-scrape-v1"] = "tasc-metrics-scrape-v1"
    window_key: WindowKey | None
    endpoint_alias: Slug
    endpoint_binding_digest: Digest
    phase: Literal["before", "during", "after", "alone"]
    scraped_at: Timestamp
    took_ns: Nanoseconds
    values: Annotated[tuple[MetricValue, ...], Field(max_length=4096)]
    histograms: Annotated[tuple[HistogramValue, ...], Field(max_length=512)]
    ignored_samples: Count
    non_finite_samples: Count


class MetricsScrape(ScrapeEntry, SignedRecord):
    """``tasc-metrics-scrape-v1``: one scrape. Of an entry of a batch, ``signature`` is the batch's."""

    domain: ClassVar[str] = "tasc/metrics-scrape/v1"


class MetricsScrapeBatch(SignedRecord):
    """``tasc-metrics-scrape-batch-v1``: one signature over the bytes of many scrapes, which are the lines before it.

    A signature for each would cost more than the scrapes: their canonical form is what is slow, so the bytes are signed.
    """

    domain: ClassVar[str] = "tasc/metrics-scrape-batch/v1"

    version: Literal["tasc-metrics-scrape-batch-v1"] = "tasc-metrics-scrape-batch-v1"
    window_key: WindowKey
    lines: Positive
    """How many lines before this one it covers."""
    content_digest: Digest
    """SHA-256 of these lines, each with its newline."""
    signed_at: Timestamp


class DeviceSnapshotRecord(SignedRecord):
    """``tasc-device-snapshot-v1``: what the compute package saw, as data; the pipeline converts and signs it."""

    domain: ClassVar[str] = "tasc/device-snapshot/v1"

    version: Literal["tasc-device-snapshot-v1"] = "tasc-device-snapshot-v1"
    window_key: WindowKey | None
    phase: Literal["before", "during", "after", "alone"]
    sampled_at: Timestamp
    node_id: Slug
    snapshot: dict[str, Any]  # Any: the seed's DeviceSnapshot in its own JSON names, checked by tasc_compute.contracts
