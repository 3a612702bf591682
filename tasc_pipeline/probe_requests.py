"""Schedules and a sensor that *request* runs of probes, and of the check of what they left.

They read files and send nothing. What requests a probe is off until turned on; what requests the check is on, because the
check only reads: without it, the check's last result would stand after the receipt that it judged has expired.

A canary is requested only under a standing authorization that names the effect and a count of canary calls, and only for
a route whose receipt is missing or soon over; the run pays from the ledger. A person starts every consumptive probe.
"""

from collections.abc import Iterator

import dagster as dg

from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import TascError
from tasc_collector.runtimes.profile import Effect
from tasc_pipeline.clock import utc_now
from tasc_pipeline.home.studies import study_ids
from tasc_pipeline.probe_jobs import ActiveConfig, PassiveConfig
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps.canaries import WantedCanary, request_name, wanted_canaries
from tasc_pipeline.steps.endpoints import endpoints_view
from tasc_pipeline.steps.probe_rounds import due_studies

PASSIVE_JOB, CANARY_JOB, CHECK_JOB = "probe_endpoints", "probe_canary", "check_endpoints"
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


@dg.schedule(
    name="hourly_endpoint_check",
    job_name=CHECK_JOB,
    cron_schedule="7 * * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Requests the check of the newest receipts every hour, so that an expiry is seen. Sends nothing.",
)
def hourly_endpoint_check(
    context: dg.ScheduleEvaluationContext, state: StateFolder
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """One request, where there is a study."""
    if study_ids(state.home()):
        yield dg.RunRequest(run_key=f"{context.scheduled_execution_time:%Y%m%dT%H%M}", tags={"tasc/effect": "none"})
    else:
        yield dg.SkipReason("there is no study -> make one with: tasc study new")


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


@dg.schedule(
    name="authorized_canaries",
    job_name=CANARY_JOB,
    cron_schedule="47 * * * *",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Requests a canary of each conditional route whose receipt is missing or soon over, under a standing "
    "authorization that names effect and count; so that the next hour's window finds its receipts.",
)
def authorized_canaries(
    context: dg.ScheduleEvaluationContext, state: StateFolder
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """One request per route that is due."""
    home, at = state.home(), context.scheduled_execution_time
    refusals: list[str] = []
    requested = False
    for study_id in study_ids(home):
        try:
            wanted = list(wanted_canaries(home, study_id, format_timestamp(at)))
        except TascError as error:
            refusals.append(str(error))
            continue
        for item in wanted:
            requested = True
            yield canary_request(item, request_name(item.alias, item.route, f"{at:%Y%m%dt%H%M}"))
    if not requested:
        yield dg.SkipReason("; ".join(refusals) or "every conditional route has a receipt that holds for a while")
    elif refusals:
        context.log.info("; ".join(refusals))


def canary_request(item: WantedCanary, name: str) -> dg.RunRequest:
    """A run of the canary job under a standing authorization."""
    config = ActiveConfig(
        endpoint=f"{item.study_id}/{item.alias}",
        capability=item.route,
        effect=Effect.INFERENCE_CANARY.value,
        authorization=item.authorization_id,
        request=name,
    )
    return dg.RunRequest(
        run_key=f"{item.study_id}:{name}",
        run_config=dg.RunConfig(ops={"send_canary": config}),
        tags={"tasc/study": item.study_id, "tasc/effect": Effect.INFERENCE_CANARY.value},
    )


PROBE_SCHEDULES = (passive_probes, hourly_endpoint_check, authorized_canaries)
PROBE_SENSORS = (receipts_run_out,)
