"""Checks of a window, partitioned, blocking where evidence would be wrong; and of the receipts that the next one needs."""

import dagster as dg

from tasc_collector.contracts.scalars import format_timestamp
from tasc_pipeline.assets.endpoints import RUNTIME_ENDPOINTS, problem_text
from tasc_pipeline.partitions import sealed_windows
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps import verify
from tasc_pipeline.steps.collect import utc_now
from tasc_pipeline.steps.endpoints import Problem, endpoints_view


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


@dg.asset_check(
    asset=RUNTIME_ENDPOINTS,
    description="Fails where a newest receipt is expired, of another build or identity, or where an endpoint is no longer "
    "what it was in the study's last window. An expiry alone warns: a new probe mends it.",
)
def receipts_hold(state: StateFolder) -> dg.AssetCheckResult:
    """Judge the newest receipt of every capability."""
    view = endpoints_view(state.home(), format_timestamp(utc_now()))
    found = {
        f"{line.study_id}/{line.alias} {line.capability}": problem_text(line) + " -> probe again: tasc probe "
        f"{line.study_id}/{line.alias} {line.capability}"
        for line in view.problems
    }
    found |= {f"study {study}": "cannot be read -> run: tasc status" for study in view.unreadable}
    found |= {f"receipt {name}": "cannot be trusted -> probe again" for name in view.untrusted}
    only_expired = len(found) == sum(line.problem is Problem.EXPIRED for line in view.problems)
    return dg.AssetCheckResult(
        passed=not found,
        severity=dg.AssetCheckSeverity.WARN if only_expired else dg.AssetCheckSeverity.ERROR,
        metadata={"receipts": len(view.lines), "problems": len(found), **found},
    )


CHECKS = (evidence_is_sound, coverage_floor, receipts_hold)
