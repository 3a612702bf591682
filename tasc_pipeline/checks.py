"""Checks of a window, partitioned; blocking where evidence would be wrong."""

import dagster as dg

from tasc_pipeline.partitions import sealed_windows
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps import verify


@dg.asset_check(
    asset="window_manifests",
    blocking=True,
    partitions_def=sealed_windows,
    description="Journal chain and MACs, every signature, counts, and that the Parquet says what the journal says.",
)
def evidence_is_sound(context: dg.AssetCheckExecutionContext, state: StateFolder) -> dg.AssetCheckResult:
    """Verify everything the window left."""
    findings = verify.findings(state.home(), context.partition_key)
    return dg.AssetCheckResult(
        passed=all(finding.sound for finding in findings),
        severity=dg.AssetCheckSeverity.ERROR,
        metadata={
            finding.name: ("sound: " if finding.sound else "NOT SOUND: ") + finding.detail for finding in findings
        },
    )


@dg.asset_check(
    asset="accepted_traces",
    partitions_def=sealed_windows,
    description="Share of planned executions that have an answer; missing coverage is honest, so this warns.",
)
def coverage_floor(context: dg.AssetCheckExecutionContext, state: StateFolder) -> dg.AssetCheckResult:
    """Warn where too little of the window is known."""
    coverage, floor = verify.coverage(state.home(), context.partition_key)
    return dg.AssetCheckResult(
        passed=coverage >= floor,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"coverage": coverage, "floor": floor},
    )


CHECKS = (evidence_is_sound, coverage_floor)
