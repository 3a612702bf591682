"""A sensor that looks at every engine of this host and reports changes of state. It starts, stops and removes nothing.

It asks nothing that makes an engine generate, so it may run beside a window. What it saw last is in its cursor.
"""

import json
from collections.abc import Mapping

import dagster as dg

from tasc_compute.contracts import InstanceState
from tasc_compute.errors import ComputeError
from tasc_compute.lifecycle import Observation, StateChange, supervise
from tasc_compute.local import local_compute
from tasc_pipeline.assets.collection import OWNERS
from tasc_pipeline.assets.described import ENGINE_CHANGES
from tasc_pipeline.resources import StateFolder

ENGINE_INSTANCES = "engine_instances"
engine_instances = dg.AssetSpec(
    ENGINE_INSTANCES,
    group_name="compute",
    kinds={"json"},
    owners=OWNERS,
    code_version="1",
    metadata={
        "dagster/column_schema": ENGINE_CHANGES,
        # Dagster finds the source of a function; this asset has none, the sensor below observes it
        "dagster/code_references": dg.CodeReferencesMetadataValue(
            code_references=[dg.LocalFileCodeReference(file_path=__file__, line_number=1)]
        ),
    },
    description="Engines that were launched on this host. Each observation is a change of one engine's state.",
)


@dg.sensor(
    name="engine_states",
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Reports every change of an engine's state as an observation. Launches and stops nothing.",
)
def engine_states(context: dg.SensorEvaluationContext, state: StateFolder) -> dg.SensorResult | dg.SkipReason:
    """One look; what changed since the last one."""
    try:
        seen = supervise(local_compute(state.home().root), read_cursor(context.cursor), reap=False)
    except ComputeError as error:
        return dg.SkipReason(str(error))
    for name in seen.unreadable:
        context.log.warning(f"{name} is damaged and counts as held -> tasc engines list")
    return dg.SensorResult(
        asset_events=[_event(change) for change in seen.changes],
        skip_reason=None if seen.changes else dg.SkipReason("no engine changed its state"),
        cursor=write_cursor(seen.observations),
    )


def read_cursor(cursor: str | None) -> dict[str, Observation]:
    """What was seen last; nothing where the cursor is empty or was edited."""
    try:
        known = json.loads(cursor or "{}")
        return {
            name: Observation(str(nonce), InstanceState(state), int(misses))
            for name, (nonce, state, misses) in known.items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}


def write_cursor(observations: Mapping[str, Observation]) -> str:
    """The observations as a cursor."""
    known = {name: [item.nonce, item.state.value, item.misses] for name, item in observations.items()}
    return json.dumps(known, sort_keys=True)


def _event(change: StateChange) -> dg.AssetObservation:
    return dg.AssetObservation(
        ENGINE_INSTANCES,
        metadata={
            "engine": change.name,
            "before": "none" if change.before is None else change.before.value,
            "after": change.after.value,
            "at": dg.MetadataValue.timestamp(change.at),
        },
    )


ENGINE_SENSORS = (engine_states,)
