"""Windows that come by themselves: a schedule requests ``prepare_window``, and ``window_launcher`` runs what it prepared.

Both are off until turned on. The schedule requests nothing without a standing authorization, and the job makes nothing
without one. The job seals and plans; it sends nothing. A tick that requests nothing says which rule is in the way.
"""

from collections.abc import Iterator

import dagster as dg

from tasc_collector.contracts.scalars import format_timestamp, parse_timestamp
from tasc_collector.errors import InputError, TascError
from tasc_pipeline.clock import utc_now
from tasc_pipeline.failures import failure_of
from tasc_pipeline.jobs import NO_RETRY
from tasc_pipeline.partitions import PARTITIONS_NAME
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps import prepare
from tasc_pipeline.steps.authorize import study_lines

PREPARE_JOB = "prepare_window"
PREPARE_OP = "seal_and_plan"


class PrepareConfig(dg.Config):
    """Which study's window is prepared.

    Args:
        study: id of the study.
        at: the instant that was scheduled, like 2026-01-31T09:00:00.000Z; this hour if empty. One instant, one window.
    """

    study: str
    at: str = ""


@dg.op(description="Seal and plan one window under the study's standing authorization. Sends nothing.")
def seal_and_plan(context: dg.OpExecutionContext, config: PrepareConfig, state: StateFolder) -> None:
    """Prepare, and add the partition."""
    now = utc_now()
    try:
        prepared = prepare.prepare_window(
            state.home(),
            config.study,
            instant(config.at) or format_timestamp(now.replace(minute=0, second=0, microsecond=0)),
            now,
            add_partition=lambda key: context.instance.add_dynamic_partitions(PARTITIONS_NAME, [key]),
        )
    except TascError as error:
        raise failure_of(error) from None
    estimate = prepared.estimate
    cost = (
        "prepared before"
        if estimate is None
        else f"{estimate.calls + estimate.warm_up_calls} calls, at most {estimate.output_tokens} output tokens"
    )
    context.log.info(f"{prepared.window_key}: {cost}, under {prepared.authorization_id}")
    context.add_output_metadata({"window_key": prepared.window_key, "authorization": prepared.authorization_id})


def instant(text: str) -> str:
    """The timestamp that a config names, or an empty text.

    Raises:
        InputError: it is no timestamp.
    """
    try:
        return format_timestamp(parse_timestamp(text)) if text else ""
    except ValueError as error:
        raise InputError(
            "this is no instant", where="config", field="at", rule=str(error), way_out="write it so, or leave it out"
        ) from None


@dg.job(
    name=PREPARE_JOB,
    tags=NO_RETRY,
    description="Seal and plan one window under a standing authorization; config: study. Sends nothing.",
)
def prepare_window() -> None:
    """One window."""
    seal_and_plan()


@dg.schedule(
    name="hourly_windows",
    job_name=PREPARE_JOB,
    cron_schedule="0 * * * *",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Requests a window of every study with a standing authorization that allows one more, every hour.",
)
def hourly_windows(
    context: dg.ScheduleEvaluationContext, state: StateFolder
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """One request per study that is allowed; where there is none, the reasons."""
    at = format_timestamp(context.scheduled_execution_time)
    lines = study_lines(state.home(), at)
    refusals = "; ".join(line.refusal for line in lines if line.refusal is not None)
    allowed = [line.study_id for line in lines if line.refusal is None]
    for study_id in allowed:
        yield dg.RunRequest(
            run_key=f"{study_id}:{at}",
            run_config=dg.RunConfig(ops={PREPARE_OP: PrepareConfig(study=study_id, at=at)}),
            tags={"tasc/study": study_id},
        )
    if not allowed:
        yield dg.SkipReason(refusals or "no study has a standing authorization -> run: tasc authorize new")
    elif refusals:
        context.log.info(refusals)


PREPARE_JOBS = (prepare_window,)
PREPARE_SCHEDULES = (hourly_windows,)
