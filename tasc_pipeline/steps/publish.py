"""Publishing a window: its Parquet, derived from what its journal says and from what was sampled beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tasc_collector.contracts.scalars import format_timestamp
from tasc_pipeline.clock import utc_now
from tasc_pipeline.home import keys, signers
from tasc_pipeline.home.layout import Home
from tasc_pipeline.steps.approved import ApprovedPlan, load_approved, verify_receipts
from tasc_pipeline.steps.collected import Executions, read_collected
from tasc_pipeline.steps.metrics import scrape_lines
from tasc_pipeline.steps.sampling import maxima, read_device_snapshots
from tasc_pipeline.steps.watch import counted
from tasc_pipeline.warehouse.compaction import compact_due
from tasc_pipeline.warehouse.database import build_views
from tasc_pipeline.warehouse.errors import PartCorruptError
from tasc_pipeline.warehouse.metric_rows import metric_histograms_table, metric_samples_table, scrape_columns
from tasc_pipeline.warehouse.publish import ManifestSigner, Rows
from tasc_pipeline.warehouse.publish import publish as publish_table
from tasc_pipeline.warehouse.record_rows import device_samples_table, receipts_table
from tasc_pipeline.warehouse.rows import FROM_JOURNAL, row_batches

ASSET_TABLES: Mapping[str, tuple[str, ...]] = {
    "accepted_traces": ("traces", "attempts", "token_events", "envelopes"),
    "device_snapshots": ("device_samples",),
    "metric_samples": ("metric_samples", "metric_histograms"),
}
"""Which tables an asset's materialization writes."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What was published of a window: SHA-256 of each table's part, rows of each, maxima of the devices."""

    sha256: Mapping[str, str]
    rows: Mapping[str, int]
    device_maxima: Mapping[str, float]

    def version(self, asset: str) -> str:
        """Data version of an asset: the digests of its tables' parts."""
        return "-".join(self.sha256[table][:16] for table in ASSET_TABLES[asset])


def publish(home: Home, window_key: str) -> Publication:
    """Derive the window's Parquet from its journal; the same journal gives the same bytes."""
    approved = load_approved(home, window_key)
    collected = read_collected(
        approved, home.run(approved.collected_as), keys.hmac_key(home, approved.study.study.keys.journal_hmac)
    )
    signer = manifest_signer(home, approved)
    executions = collected.executions
    snapshots = read_device_snapshots(home, approved.collected_as, approved.ring)
    scrapes = scrape_columns(scrape_lines(home, approved.collected_as, approved.ring))
    receipts = verify_receipts(home, approved.ring, approved.plan.record).every
    rows: dict[str, Callable[[], Rows]] = {
        **{name: partial(_batches, name, executions) for name in FROM_JOURNAL},
        "device_samples": lambda: device_samples_table(window_key, snapshots),
        "metric_samples": lambda: metric_samples_table(window_key, scrapes),
        "metric_histograms": lambda: metric_histograms_table(window_key, scrapes),
        "receipts": lambda: receipts_table(window_key, receipts),
    }
    parts = {}
    tell = counted(f"publishing {len(executions)} executions, tables", len(rows) + 1)
    for name, build in rows.items():
        parts[name] = publish_table(
            home.warehouse,
            name,
            window_key,
            build(),
            sign=signer,
            clock=utc_now,
            source_digest=collected.trace_set_digest,
        )
        tell(1)
    with suppress(PartCorruptError):  # another window's part; `tasc sql --verify` and the catalogue name it
        compact_due(home.warehouse, sign=signer, clock=utc_now, keys=keys.collector_keys(home), watch=counted)
    build_views(home.root, clock=utc_now, keys=keys.collector_keys(home))
    tell(1)
    return Publication(
        {name: part.sha256 for name, part in parts.items()},
        {name: part.rows for name, part in parts.items()},
        maxima(snapshots),
    )


def _batches(table: str, executions: Executions) -> Rows:
    return row_batches(table, executions.sorted_for(table))


def manifest_signer(home: Home, approved: ApprovedPlan) -> ManifestSigner:
    """The collector key that is valid now, for part manifests."""
    found = signers.collector(home, approved.ring, approved.study.study, format_timestamp(utc_now()))
    return ManifestSigner(found.key, found.key_id)
