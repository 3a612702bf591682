"""What a closed window says: the assessment with its report, and the catalogue of all windows."""

import dagster as dg

from tasc_pipeline.assets.collection import OWNERS, window_manifests
from tasc_pipeline.assets.described import WHEN_ASSESSED, WHEN_CLOSED, columns
from tasc_pipeline.assets.evidence import evaluator_evidence
from tasc_pipeline.assets.progress import OBSERVE_EVERY_S, observing
from tasc_pipeline.assets.report_metadata import assessment_metadata, catalogue_metadata
from tasc_pipeline.control import verdicts
from tasc_pipeline.control.decisions import deciding
from tasc_pipeline.failures import in_words, window_of
from tasc_pipeline.partitions import one_window_per_run, sealed_windows
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps import assess, catalogue
from tasc_pipeline.steps.watch import also_watching
from tasc_pipeline.warehouse.schemas import DECISIONS, GATES, WINDOWS


@dg.asset(
    partitions_def=sealed_windows,
    backfill_policy=one_window_per_run,
    group_name="decision",
    kinds={"json"},
    owners=OWNERS,
    code_version="+".join((verdicts.ENGINE, deciding.ENGINE)),
    deps=[window_manifests, evaluator_evidence],
    metadata=columns(DECISIONS, GATES),
    automation_condition=WHEN_CLOSED,
    description="The verdict of the window: paired ratios with intervals, failures and unknowns, fairness, and one "
    "sentence. A pure function of sealed inputs.",
)
def assessments(context: dg.AssetExecutionContext, state: StateFolder) -> dg.MaterializeResult[None]:
    """Assess the window and write its report."""
    with in_words():
        home, window_key = state.home(), window_of(context)
        with also_watching(observing(context, "assessments"), OBSERVE_EVERY_S):
            report = assess.assess(home, window_key)
        metadata = assessment_metadata(home, report)
    return dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(report.digest))


@dg.asset(
    group_name="decision",
    kinds={"duckdb"},
    owners=OWNERS,
    code_version="1",
    deps=[dg.AssetDep(assessments, partition_mapping=dg.AllPartitionMapping())],
    automation_condition=WHEN_ASSESSED,
    metadata=columns(WINDOWS),
    description="All sealed windows with their counts and verdicts; the newest revision of each is current.",
)
def window_catalogue(context: dg.AssetExecutionContext, state: StateFolder) -> dg.MaterializeResult[None]:
    """Publish the table of windows."""
    with in_words(), also_watching(observing(context, "window_catalogue"), OBSERVE_EVERY_S):
        windows = catalogue.publish_catalogue(state.home())
    return dg.MaterializeResult(
        metadata=catalogue_metadata(windows), data_version=dg.DataVersion(catalogue.version(windows))
    )
