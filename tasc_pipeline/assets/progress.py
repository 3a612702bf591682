"""Progress of long work as observations of an asset."""

from __future__ import annotations

from collections.abc import Callable

import dagster as dg

from tasc_collector.shadow.progress import Snapshot

OBSERVE_EVERY_S = 15.0
"""A Dagster event costs milliseconds: progress is one observation per quarter minute, never one per call."""


def observing(
    context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext, asset: str
) -> Callable[[Snapshot], None]:
    """A function that records done and total, rate and time left, which are absent before something is done.

    Call it no oftener than ``OBSERVE_EVERY_S``.
    """
    run = context.op_execution_context

    def show(snapshot: Snapshot) -> None:
        speed = {"rate_per_s": (snapshot.rate_per_s, 3), "left_s": (snapshot.left_s, 1)}
        run.log_event(
            dg.AssetObservation(
                asset,
                partition=run.partition_key if run.has_partition_key else None,
                metadata={
                    "what": snapshot.what or "collecting",
                    "done": snapshot.done,
                    "total": snapshot.total,
                    **{name: round(value, digits) for name, (value, digits) in speed.items() if value is not None},
                },
            )
        )

    return show
