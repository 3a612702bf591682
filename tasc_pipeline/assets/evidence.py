"""Scores of a window: made elsewhere, signed, checked as of the window's watermark. Never made here."""

import dagster as dg

from tasc_pipeline.assets.collection import OWNERS, window_manifests
from tasc_pipeline.assets.described import WHEN_CLOSED, columns
from tasc_pipeline.assets.progress import OBSERVE_EVERY_S, observing
from tasc_pipeline.failures import in_words, window_of
from tasc_pipeline.partitions import one_window_per_run, sealed_windows
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps.evidence_tables import publish_evidence
from tasc_pipeline.steps.watch import also_watching
from tasc_pipeline.warehouse.schemas import EVIDENCE, REPORTED_SCORES


@dg.asset(
    partitions_def=sealed_windows,
    backfill_policy=one_window_per_run,
    group_name="evidence",
    kinds={"parquet"},
    owners=OWNERS,
    code_version="1",
    deps=[window_manifests],
    automation_condition=WHEN_CLOSED,
    metadata=columns(EVIDENCE, REPORTED_SCORES),
    description="Evaluator evidence about the window's answers, each piece with what its verification found as of the "
    "watermark. A comparison has none.",
)
def evaluator_evidence(context: dg.AssetExecutionContext, state: StateFolder) -> dg.MaterializeResult[None]:
    """Check and publish the window's evidence."""
    with in_words(), also_watching(observing(context, "evaluator_evidence"), OBSERVE_EVERY_S):
        published = publish_evidence(state.home(), window_of(context))
    checked = published.checked
    return dg.MaterializeResult(
        metadata={
            "as_of": published.as_of,
            "pieces": 0 if checked is None else len(checked.receipts),
            **{f"status_{status.replace('-', '_')}": count for status, count in published.statuses.items()},
            "evaluator_set_digest": "none" if checked is None else checked.evaluator_set_digest,
            "dagster/row_count": published.rows["evidence"],
            "rows_reported_scores": published.rows["reported_scores"],
        },
        data_version=dg.DataVersion(published.version),
    )
