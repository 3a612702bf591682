"""Sensors request runs and add partitions; they never probe or send."""

import dagster as dg

from tasc_pipeline.home.windows import window_keys
from tasc_pipeline.partitions import PARTITIONS_NAME, sealed_windows
from tasc_pipeline.resources import StateFolder


@dg.sensor(
    name="window_registry",
    minimum_interval_seconds=15,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Adds a partition for every window that was sealed from a shell. Launches nothing.",
)
def window_registry(context: dg.SensorEvaluationContext, state: StateFolder) -> dg.SensorResult | dg.SkipReason:
    """Compare the windows' folders with the partitions."""
    known = set(context.instance.get_dynamic_partitions(PARTITIONS_NAME))
    new = [key for key in window_keys(state.home()) if key not in known]
    if not new:
        return dg.SkipReason("every sealed window is a partition")
    return dg.SensorResult(dynamic_partitions_requests=[sealed_windows.build_add_request(new)])


SENSORS = (window_registry,)
