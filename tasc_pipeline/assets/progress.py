"""Progress of long work as observations of an asset."""

from __future__ import annotations

from collections.abc import Callable

import dagster as dg

from tasc_collector.shadow.progress import Snapshot

OBSERVE_EVERY_S = 15.0
"""A Dagster event costs milliseconds: progress is one observation per quarter minute, never one per call."""


def observing(context: dg.AssetExecutionContext, asset: str) -> Callable[[Snapshot], None]:
    """A function that records done and total, rate and time left; call it no oftener than ``OBSERVE_EVERY_S``."""

    def show(snapshot: Snapshot) -> None:
        context.log_event(
            dg.AssetObservation(
                asset,
                partition=context.partition_key if context.has_partition_key else None,
                metadata={
                    "what": snapshot.what or "collecting",
                    "done": snapshot.done,
                    "total": snapshot.total,
                    "rate_per_s": snapshot.rate_per_s or 0.0,
                    "left_s": snapshot.left_s or 0.0,
                },
            )
        )

    return show
