"""What a closed window says: the assessment with its report, and the catalogue of all windows."""

import dagster as dg

from tasc_pipeline.assets.collection import OWNERS, window_manifests
from tasc_pipeline.assets.report_metadata import assessment_metadata, catalogue_metadata
from tasc_pipeline.partitions import one_window_per_run, sealed_windows
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps import assess, catalogue

WHEN_CLOSED = (
    dg.AutomationCondition.missing()
    & ~dg.AutomationCondition.any_deps_missing()
    & ~dg.AutomationCondition.in_progress()
    & ~dg.AutomationCondition.execution_failed()
    & dg.AutomationCondition.all_deps_blocking_checks_passed()
).with_label("missing, and its window is closed and sound")
"""Only on pure, local, free assets; never on one that sends."""


@dg.asset(
    partitions_def=sealed_windows,
    backfill_policy=one_window_per_run,
    group_name="decision",
    kinds={"json"},
    owners=OWNERS,
    code_version="1",
    deps=[window_manifests],
    automation_condition=WHEN_CLOSED,
    description="The verdict of the window: paired ratios with intervals, failures and unknowns, fairness, and one "
    "sentence. A pure function of sealed inputs.",
)
def assessments(context: dg.AssetExecutionContext, state: StateFolder) -> dg.MaterializeResult[None]:
    """Assess the window and write its report."""
    home, window_key = state.home(), context.partition_key
    report = assess.assess(home, window_key)
    return dg.MaterializeResult(metadata=assessment_metadata(home, report), data_version=dg.DataVersion(report.digest))


@dg.asset(
    group_name="decision",
    kinds={"duckdb"},
    owners=OWNERS,
    code_version="1",
    deps=[dg.AssetDep(assessments, partition_mapping=dg.AllPartitionMapping())],
    description="All sealed windows with their counts and verdicts; the newest revision of each is current.",
)
def window_catalogue(state: StateFolder) -> dg.MaterializeResult[None]:
    """Publish the table of windows."""
    windows = catalogue.publish_catalogue(state.home())
    return dg.MaterializeResult(metadata=catalogue_metadata(windows))
