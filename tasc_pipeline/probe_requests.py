"""A schedule and a sensor that *request* passive probe runs. They read files and send nothing; both are off until turned on.

Nothing here requests a canary or a consumptive probe: no standing authorization exists that could name effect and count,
so a person starts those.
"""

from collections.abc import Iterator

import dagster as dg

from tasc_collector.contracts.scalars import format_timestamp
from tasc_pipeline.home.studies import study_ids
from tasc_pipeline.probe_jobs import PassiveConfig
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps.collect import utc_now
from tasc_pipeline.steps.endpoints import endpoints_view
from tasc_pipeline.steps.probe_rounds import due_studies

PASSIVE_JOB = "probe_endpoints"
"""By name: a sensor that holds the job makes Dagster 1.13 warn at every start."""


def request_for(study_id: str, run_key: str) -> dg.RunRequest:
    """A run of the passive job for one study."""
    config = dg.RunConfig(ops={"probe_study_passively": PassiveConfig(study=study_id)})
    return dg.RunRequest(run_key=run_key, run_config=config, tags={"tasc/study": study_id})


@dg.schedule(
    name="passive_probes",
    job_name=PASSIVE_JOB,
    cron_schedule="17 */6 * * *",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Requests a round of passive probes of every study, every six hours.",
)
def passive_probes(context: dg.ScheduleEvaluationContext, state: StateFolder) -> Iterator[dg.RunRequest]:
    """One request per study."""
    at = f"{context.scheduled_execution_time:%Y%m%dT%H%M}"
    for study_id in study_ids(state.home()):
        yield request_for(study_id, f"{study_id}:{at}")


@dg.sensor(
    name="receipts_run_out",
    job_name=PASSIVE_JOB,
    minimum_interval_seconds=300,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Requests passive probes of a study whose receipts are missing or soon over; once for each state of them.",
)
def receipts_run_out(state: StateFolder) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """One request per study that is due; a run that left nothing new is not requested again."""
    now = format_timestamp(utc_now())
    due = due_studies(endpoints_view(state.home(), now), now)
    if not due:
        yield dg.SkipReason("every passive receipt holds for a while")
    for study_id, known in due.items():
        yield request_for(study_id, f"{study_id}:{known.removeprefix('sha256:')[:32]}")


PROBE_SCHEDULES = (passive_probes,)
PROBE_SENSORS = (receipts_run_out,)
