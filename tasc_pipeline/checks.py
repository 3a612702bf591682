"""Checks of a window, partitioned, blocking where evidence would be wrong; and of the receipts that the next one needs."""

from collections.abc import Iterator, Mapping

import dagster as dg

from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import TascError
from tasc_pipeline.assets.endpoints import RUNTIME_ENDPOINTS, problem_text
from tasc_pipeline.assets.progress import OBSERVE_EVERY_S, observing
from tasc_pipeline.clock import utc_now
from tasc_pipeline.control.window_quality import Figure, Quality
from tasc_pipeline.failures import in_words, window_of
from tasc_pipeline.partitions import sealed_windows
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps import quality, soundness
from tasc_pipeline.steps.endpoints import Problem, endpoints_view
from tasc_pipeline.steps.watch import also_watching

_BLOCKING = {
    soundness.SIGNATURES: "Journal chain and MACs, both signatures of every envelope, and the signed link and manifest.",
    soundness.MEMBERS: "No execution in the journal that the sealed plan does not have.",
    soundness.BUDGET: "No more executions, attempts, calls or records than the plan's budget.",
    soundness.COLUMNS: "No column in a published part that its table does not declare: no prompt, no answer.",
    soundness.PARQUET: "Every row of the published Parquet is what the journal says.",
}
_WARNING = {
    Figure.COVERAGE: "Share of planned executions that have an answer; missing coverage is honest, so this warns.",
    Figure.UNKNOWN: "Share of executions of which nobody knows whether the server did them.",
    Figure.USAGE: "Share of successes without a count of output tokens.",
    Figure.CLOCK: "How far the collecting host's wall clock was set during the window, in milliseconds.",
    Figure.ANSWERS: "Servers that gave no single answer: engines that were gone when the window came.",
}


def _spec(asset: str, name: str, description: str, *, blocking: bool) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(
        name, asset=asset, description=description, blocking=blocking, partitions_def=sealed_windows
    )


@dg.asset_check(
    name=soundness.PLAN_MATCHES,
    asset="run_plans",
    blocking=True,
    partitions_def=sealed_windows,
    description="Key, declaration, plan and the operator's pin name each other; nothing is collected otherwise.",
)
def plan_digest_matches_key(context: dg.AssetCheckExecutionContext, state: StateFolder) -> dg.AssetCheckResult:
    """Compare before anything is collected."""
    with in_words():
        return _sound(soundness.plan_matches(state.home(), window_of(context)))


@dg.multi_asset_check(
    name="evidence_is_sound",
    specs=[_spec("window_manifests", name, text, blocking=True) for name, text in _BLOCKING.items()],
    description="Verifies everything that the window left, once, and says it check by check.",
)
def evidence_is_sound(context: dg.AssetCheckExecutionContext, state: StateFolder) -> Iterator[dg.AssetCheckResult]:
    """Verify everything the window left."""
    with in_words(), also_watching(observing(context, "window_manifests"), OBSERVE_EVERY_S):
        outcomes = soundness.evidence_outcomes(state.home(), window_of(context))
    yield from (_sound(outcome, asset="window_manifests") for outcome in outcomes)


@dg.multi_asset_check(
    name="traces_are_good",
    specs=[_spec("accepted_traces", name.value, text, blocking=False) for name, text in _WARNING.items()],
    description="Figures of the collected executions that may warn.",
)
def traces_are_good(context: dg.AssetCheckExecutionContext, state: StateFolder) -> Iterator[dg.AssetCheckResult]:
    """Warn where a figure is beyond its limit."""
    try:
        with also_watching(observing(context, "accepted_traces"), OBSERVE_EVERY_S):
            results = [_good(found) for found in quality.of_traces(state.home(), window_of(context))]
    except TascError as error:
        results = [_untold(figure, error) for figure in _WARNING]
    yield from (result._replace(asset_key=dg.AssetKey("accepted_traces")) for result in results)


@dg.asset_check(
    name=Figure.THROTTLING.value,
    asset="device_snapshots",
    partitions_def=sealed_windows,
    description="Largest share of throttled samples among the devices that tell.",
)
def device_throttling(context: dg.AssetCheckExecutionContext, state: StateFolder) -> dg.AssetCheckResult:
    """Warn where a device was slowed down."""
    try:
        return _good(quality.of_devices(state.home(), window_of(context)))
    except TascError as error:
        return _untold(Figure.THROTTLING, error)


@dg.asset_check(
    name=Figure.RECEIPTS.value,
    asset="capability_receipts",
    partitions_def=sealed_windows,
    description="Age of the oldest pinned receipt when the window began, in hours.",
)
def receipt_age(context: dg.AssetCheckExecutionContext, state: StateFolder) -> dg.AssetCheckResult:
    """Warn where what was shown was shown long ago."""
    try:
        return _good(quality.of_receipts(state.home(), window_of(context)))
    except TascError as error:
        return _untold(Figure.RECEIPTS, error)


def _sound(outcome: soundness.Outcome, *, asset: str | None = None) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=asset,
        check_name=outcome.name,
        passed=outcome.sound,
        severity=dg.AssetCheckSeverity.ERROR,
        metadata=dict(outcome.details),
    )


def _good(found: Quality) -> dg.AssetCheckResult:
    """A figure as a number, so that it becomes a plot over windows; what cannot be told is left out."""
    value = {} if found.value is None else {"value": found.value}
    note = {"note": found.note} if found.note else {}
    return _warning(found.figure, passed=found.passed, metadata={**value, "limit": found.limit, **note})


def _untold(figure: Figure, error: TascError) -> dg.AssetCheckResult:
    """A figure that could not be computed warns; what is wrong is the business of the blocking checks."""
    return _warning(figure, passed=False, metadata={"note": str(error)})


def _warning(figure: Figure, *, passed: bool, metadata: Mapping[str, str | float]) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        check_name=figure.value, passed=passed, severity=dg.AssetCheckSeverity.WARN, metadata=metadata
    )


@dg.asset_check(
    asset=RUNTIME_ENDPOINTS,
    description="Fails where a newest receipt is expired, of another build or identity, or where an endpoint is no longer "
    "what it was in the study's last window. An expiry alone warns: a new probe mends it.",
)
def receipts_hold(state: StateFolder) -> dg.AssetCheckResult:
    """Judge the newest receipt of every capability."""
    with in_words():
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


CHECKS = (
    plan_digest_matches_key,
    evidence_is_sound,
    traces_are_good,
    device_throttling,
    receipt_age,
    receipts_hold,
)
