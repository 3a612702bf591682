"""Receipts, plan, collection and manifest of a sealed window.

The collecting step is synchronous and owns its event loop: on terminate it stops new sends, drains, writes, restores the
signal handlers and raises Dagster's interruption. It never retries at any layer; the journal's lock decides who may send.
"""

from collections.abc import Iterator
from datetime import timedelta

import dagster as dg

from tasc_collector.limits import RECEIPT_HOURS, RECEIPT_HOURS_MAX
from tasc_pipeline.assets.described import CLOSED, TARGETS, columns
from tasc_pipeline.assets.metadata import collection_metadata, plan_metadata, receipts_metadata, window_metadata
from tasc_pipeline.assets.progress import OBSERVE_EVERY_S, observing
from tasc_pipeline.failures import in_words, window_of
from tasc_pipeline.partitions import one_window_per_run, sealed_windows
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps import close, collect, publish
from tasc_pipeline.steps.approved import load_approved, load_receipts
from tasc_pipeline.steps.watch import also_watching
from tasc_pipeline.warehouse.schemas import (
    ATTEMPTS,
    DEVICE_SAMPLES,
    ENVELOPES,
    METRIC_HISTOGRAMS,
    METRIC_SAMPLES,
    RECEIPTS,
    TOKEN_EVENTS,
    TRACES,
)

OWNERS = ["team:inference-platform"]
SETTLE_JOB = "settle_window"
"""The job over the same assets that sends nothing."""
RECEIPTS_FRESH = dg.FreshnessPolicy.time_window(
    warn_window=timedelta(hours=RECEIPT_HOURS), fail_window=timedelta(hours=RECEIPT_HOURS_MAX)
)
"""Dagster looks at the newest window: after the longest validity, every receipt that it loaded is over."""


@dg.asset(
    partitions_def=sealed_windows,
    backfill_policy=one_window_per_run,
    group_name="authority",
    kinds={"json"},
    owners=OWNERS,
    code_version="1",
    freshness_policy=RECEIPTS_FRESH,
    metadata=columns(RECEIPTS),
    description="The capability receipts that the window's plan pins, each loaded by digest and verified. A missing one fails.",
)
def capability_receipts(context: dg.AssetExecutionContext, state: StateFolder) -> dg.MaterializeResult[None]:
    """Load exactly the receipts that the plan pins."""
    with in_words():
        loaded = load_receipts(state.home(), window_of(context))
    return dg.MaterializeResult(metadata=receipts_metadata(loaded), data_version=dg.DataVersion(loaded.digest))


@dg.asset(
    partitions_def=sealed_windows,
    backfill_policy=one_window_per_run,
    group_name="authority",
    kinds={"json"},
    owners=OWNERS,
    code_version="1",
    deps=[capability_receipts],
    metadata={"dagster/column_schema": TARGETS},
    description="The issued collection plan: loaded, verified and compared with the operator's pin. Never issued here.",
)
def run_plans(context: dg.AssetExecutionContext, state: StateFolder) -> dg.MaterializeResult[None]:
    """Load the approved plan."""
    with in_words():
        approved = load_approved(state.home(), window_of(context))
    return dg.MaterializeResult(metadata=plan_metadata(approved), data_version=dg.DataVersion(approved.digest))


@dg.multi_asset(
    name="collection",
    specs=[
        dg.AssetSpec(
            "accepted_traces",
            deps=[run_plans],
            metadata=columns(TRACES, ATTEMPTS, TOKEN_EVENTS, ENVELOPES),
            group_name="evidence",
            kinds={"parquet"},
            owners=OWNERS,
            code_version="1",
            skippable=True,
            description="Every planned execution of the window: signed envelopes, attempts and token timelines; what was "
            "certainly not sent; what is unknown.",
        ),
        dg.AssetSpec(
            "device_snapshots",
            deps=[run_plans],
            metadata=columns(DEVICE_SAMPLES),
            group_name="evidence",
            kinds={"parquet"},
            owners=OWNERS,
            code_version="1",
            skippable=True,
            description="What the devices of the collecting host were doing before, during and after the window.",
        ),
        dg.AssetSpec(
            "metric_samples",
            deps=[run_plans],
            metadata=columns(METRIC_SAMPLES, METRIC_HISTOGRAMS),
            group_name="evidence",
            kinds={"parquet"},
            owners=OWNERS,
            code_version="1",
            skippable=True,
            description="What the servers said about themselves before, during and after the window.",
        ),
    ],
    partitions_def=sealed_windows,
    backfill_policy=one_window_per_run,
    can_subset=False,
)
def collection(context: dg.AssetExecutionContext, state: StateFolder) -> Iterator[dg.MaterializeResult[None]]:
    """Collect the window, or finish it; publish what it left."""
    show = observing(context, "accepted_traces")
    # a run has its job from the start: neither a tag nor a config can make a settlement send
    send = context.run.job_name != SETTLE_JOB
    with in_words():
        home, window_key = state.home(), window_of(context)
        result = collect.collect(home, window_key, show=show, show_every_s=OBSERVE_EVERY_S, send=send)
        if result.stopped_by_signal:
            raise dg.DagsterExecutionInterruptedError
        # every durable write is done before the first yield: a consumer that fails at a yield closes this generator
        with also_watching(show, OBSERVE_EVERY_S):
            published = publish.publish(home, window_key)
    for name in ("accepted_traces", "device_snapshots", "metric_samples"):
        yield dg.MaterializeResult(
            asset_key=name,
            metadata=collection_metadata(name, result, published),
            data_version=dg.DataVersion(published.version(name)),
        )


@dg.asset(
    partitions_def=sealed_windows,
    backfill_policy=one_window_per_run,
    group_name="evidence",
    kinds={"json"},
    owners=OWNERS,
    code_version="1",
    deps=["accepted_traces", "device_snapshots", "metric_samples"],
    metadata={"dagster/column_schema": CLOSED},
    description="The closed window: manifest v2 and the link that binds it to its declaration and plan.",
)
def window_manifests(context: dg.AssetExecutionContext, state: StateFolder) -> dg.MaterializeResult[None]:
    """Close the window."""
    with in_words(), also_watching(observing(context, "window_manifests"), OBSERVE_EVERY_S):
        closed = close.close(state.home(), window_of(context))
    return dg.MaterializeResult(metadata=window_metadata(closed), data_version=dg.DataVersion(closed.link.digest))
