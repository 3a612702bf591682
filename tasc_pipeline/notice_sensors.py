"""Sensors that tell: a run failed, a verdict changed, coverage is low, a window did not come. Window key and words only.

They keep a notice durably and request ``publish_notices``, which makes its row and, where the operator named a webhook,
its one POST. They send nothing and publish nothing themselves. What was kept and not told, because a run failed or none was
requested, ``overdue_windows`` finds at its next look and requests again.
"""

from collections.abc import Iterator

import dagster as dg

from tasc_collector.canonical import sha256_hex
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import TascError
from tasc_pipeline.clock import utc_now
from tasc_pipeline.control.due import run_key
from tasc_pipeline.failures import REASON
from tasc_pipeline.home.notices import StoredNotice
from tasc_pipeline.jobs import NO_RETRY
from tasc_pipeline.partitions import PARTITION_TAG
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps import notices
from tasc_pipeline.steps.notice_post import publish_and_post as publish_and_post_notices
from tasc_pipeline.steps.notice_post import untold

PUBLISH_JOB = "publish_notices"


@dg.op(description="Publish the rows of new notices; post each once where the study names a webhook.")
def publish_and_post(context: dg.OpExecutionContext, state: StateFolder) -> None:
    """Everything is tried; the run fails at the end where something could not be told, and names it."""
    told = publish_and_post_notices(state.home())
    context.log.info(f"notices of {told.windows} windows published")
    for post in told.posts:
        context.log.info(f"notice {post.notice_digest}: {post.state}{f' ({post.code})' if post.code else ''}")
    if told.failed:
        raise dg.Failure(
            "; ".join(f"{name}: {error}" for name, error in told.failed),
            metadata={
                "category": told.failed[0][1].category.value,
                "failed": ", ".join(name for name, _ in told.failed),
            },
            allow_retries=False,
        )


@dg.job(
    name=PUBLISH_JOB,
    tags=NO_RETRY,
    description="Publish new notices and post each once to the webhook of its study, where it names one.",
)
def publish_notices() -> None:
    """One round."""
    publish_and_post()


@dg.run_failure_sensor(
    name="run_failures",
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    request_job=publish_notices,
    description="Keeps a notice of every failed run of a window: window key and category, nothing else.",
)
def run_failures(context: dg.RunFailureSensorContext, state: StateFolder) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """One failed run."""
    run = context.dagster_run
    window_key = run.tags.get(PARTITION_TAG)
    if window_key is None:
        yield dg.SkipReason("the run belongs to no window")
        return
    told = notices.after_failure(state.home(), window_key, run.run_id, category_of(context))
    yield from _publish([] if told is None else [told])


@dg.run_status_sensor(
    name="verdict_notices",
    run_status=dg.DagsterRunStatus.SUCCESS,
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    request_job=publish_notices,
    description="Keeps a notice where a window's assessment changes the standing verdict or its coverage is under the floor.",
)
def verdict_notices(context: dg.RunStatusSensorContext, state: StateFolder) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """One finished run; only an assessed window tells something, and only once."""
    window_key = context.dagster_run.tags.get(PARTITION_TAG)
    if window_key is None:
        yield dg.SkipReason("the run belongs to no window")
        return
    try:
        told = notices.after_assessment(state.home(), window_key)
    except TascError as error:
        yield dg.SkipReason(f"looked at again by overdue_windows: {error}")
        return
    yield from _publish(told)


@dg.sensor(
    name="overdue_windows",
    job_name=PUBLISH_JOB,
    minimum_interval_seconds=300,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Keeps a notice where two periods of a recurring study have passed since its newest collected window, and "
    "requests publish_notices while a kept notice is not published or may still be posted. Launches no window.",
)
def overdue_windows(state: StateFolder) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """One look, for all that is not told; the same notices are asked for once an hour. They are written once."""
    home, now = state.home(), format_timestamp(utc_now())
    notices.look_again(home)
    notices.overdue(home, now)
    waiting = untold(home)
    if not waiting:
        yield dg.SkipReason("nothing new to tell")
        return
    names = sha256_hex("\n".join(f"{item.notice.study_id}/{item.path.stem}" for item in waiting).encode())
    yield dg.RunRequest(run_key=run_key("untold", f"sha256:{names}", now[: len("2026-11-29T10")]), job_name=PUBLISH_JOB)


def category_of(context: dg.RunFailureSensorContext) -> str:
    """Why a run failed, as a word: from the class of the error, never its text."""
    for event in context.get_step_failure_events():
        data = event.step_failure_data
        reason = None if data.user_failure_data is None else data.user_failure_data.metadata.get(REASON)
        if reason is not None:
            return str(reason.value)
        for error in (data.error, None if data.error is None else data.error.cause):
            known = None if error is None or error.cls_name is None else notices.FAILURES.get(error.cls_name)
            if known is not None:
                return known
        return notices.UNEXPECTED
    return notices.ENDED


def _publish(told: list[StoredNotice]) -> Iterator[dg.RunRequest | dg.SkipReason]:
    if not told:
        yield dg.SkipReason("nothing new to tell")
    for item in told:
        yield dg.RunRequest(run_key=item.path.stem, job_name=PUBLISH_JOB)


NOTICE_JOBS = (publish_notices,)
NOTICE_SENSORS = (run_failures, verdict_notices, overdue_windows)
