"""Sensors request runs and add partitions; they never probe, send, sign or publish.

What they know comes from ``home.window_index``: one look at the folders, not at every window's files. Each that requests
runs keeps in its cursor what it has asked for, so that a tick asks for little, and nothing that it has not asked for, so
that what is over the bound of a tick follows in the next one. Each request has a run key: the same thing asked twice is
one run.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

import dagster as dg

from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.journal import OsFileSystem, held_by, journal_exists
from tasc_pipeline.clock import utc_now
from tasc_pipeline.control.due import launch_is_due, run_key, settlement_is_due
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.window_index import WindowFacts, window_facts
from tasc_pipeline.jobs import assess_window, settle_window
from tasc_pipeline.partitions import PARTITIONS_NAME, sealed_windows
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps import arrivals

REQUESTS_PER_TICK = 25
"""More than that in one tick would be a flood; the rest follows in the next ones."""


@dg.sensor(
    name="window_registry",
    minimum_interval_seconds=15,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Adds a partition for every window that was sealed from a shell. Launches nothing.",
)
def window_registry(context: dg.SensorEvaluationContext, state: StateFolder) -> dg.SensorResult | dg.SkipReason:
    """Compare the windows' folders with the partitions; there is nothing to remember between two looks."""
    facts = window_facts(state.home())
    known = set(context.instance.get_dynamic_partitions(PARTITIONS_NAME))
    new = [key for key in facts if key not in known]
    if not new:
        return dg.SkipReason("every sealed window is a partition")
    return dg.SensorResult(dynamic_partitions_requests=[sealed_windows.build_add_request(new)])


@dg.sensor(
    name="window_launcher",
    job_name="shadow_window",
    minimum_interval_seconds=15,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Requests a run of every approved window that starts within 45 seconds or has started. One run per plan: a "
    "run that failed is resumed by a person (tasc launch). Off at first, because runs cost money.",
)
def window_launcher(context: dg.SensorEvaluationContext, state: StateFolder) -> dg.SensorResult | dg.SkipReason:
    """Ask for what is due and was not asked for; the cursor holds the keys that were asked for and are not over."""
    now = format_timestamp(utc_now())
    due = [item for item in window_facts(state.home()).values() if _launch_is_due(item, now)]
    asked = read_cursor(context.cursor)
    requests = [
        dg.RunRequest(
            run_key=run_key(item.window_key, item.plan_digest or ""),
            partition_key=item.window_key,
            tags={"tasc/window": item.window_key, "tasc/plan_digest": item.plan_digest or ""},
        )
        for item in due
        if asked.get(item.window_key) != item.plan_digest
    ][:REQUESTS_PER_TICK]
    still = {item.window_key: asked[item.window_key] for item in due if item.window_key in asked}
    still |= {str(request.partition_key): request.tags["tasc/plan_digest"] for request in requests}
    return _requests(context, requests, still, "no approved window is about to start")


@dg.sensor(
    name="settlement",
    job_name="settle_window",
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Requests the settlement of every window that is over, has a journal and is not closed. Sends nothing; a "
    "window whose sender is alive is left to it.",
)
def settlement(context: dg.SensorEvaluationContext, state: StateFolder) -> dg.SensorResult | dg.SkipReason:
    """Ask once for each state of a journal; the cursor holds the state that was asked for."""
    home, now, fs = state.home(), format_timestamp(utc_now()), OsFileSystem()
    asked = read_cursor(context.cursor)
    requests: list[dg.RunRequest] = []
    still: dict[str, str] = {}
    for item in window_facts(home).values():
        if not _settlement_is_due(item, now) or not journal_exists(home.run(item.window_key)):
            continue
        if held_by(fs, home.run(item.window_key)) is not None:
            continue
        size = _journal_size(home, item.window_key)
        if asked.get(item.window_key) == size:
            still[item.window_key] = size
        elif len(requests) < REQUESTS_PER_TICK:
            still[item.window_key] = size
            requests.append(
                dg.RunRequest(
                    run_key=run_key(item.window_key, "settle", size),
                    partition_key=item.window_key,
                    tags={"tasc/window": item.window_key, "tasc/effect": "none"},
                )
            )
    return _requests(context, requests, still, "no window waits for its settlement")


@dg.sensor(
    name="evidence_arrival",
    jobs=[settle_window, assess_window],
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Requests the assessment of a window once its evidence is in and its watermark has passed, and the closing "
    "and assessment of a sealed revision. Evidence after the watermark is shown with the command that revises. Sends nothing.",
)
def evidence_arrival(context: dg.SensorEvaluationContext, state: StateFolder) -> dg.SensorResult | dg.SkipReason:
    """Read what came since the last tick; the cursor holds up to when, which windows wait, and what revisions were asked for."""
    before, now = arrivals.Seen.parse(context.cursor), format_timestamp(utc_now())
    seen = arrivals.look(state.home(), before, now, most=REQUESTS_PER_TICK)
    requests = [
        dg.RunRequest(
            run_key=run_key(wanted.window_key, wanted.why),
            job_name=settle_window.name if wanted.close else assess_window.name,
            partition_key=wanted.window_key,
            tags={"tasc/window": wanted.window_key, "tasc/effect": "none"},
        )
        for wanted in seen.wanted
    ]
    return dg.SensorResult(
        run_requests=requests,
        asset_events=[
            dg.AssetObservation(
                "evaluator_evidence",
                partition=key,
                metadata={"late_evidence": digest, "next": f"tasc seal --revise {key}"},
            )
            for key, digest in seen.late.items()
        ],
        skip_reason=None if requests or seen.late else dg.SkipReason("no evidence came that asks for anything"),
        dynamic_partitions_requests=missing_partitions(
            context, [*(str(item.partition_key) for item in requests), *seen.late]
        ),
        cursor=seen.after.text(),
    )


def read_cursor(cursor: str | None) -> dict[str, str]:
    """What was asked for last, by window; nothing where the cursor is empty or was edited."""
    try:
        value = json.loads(cursor or "{}")
        return {str(key): str(item) for key, item in value.items()}
    except (ValueError, AttributeError):
        return {}


def missing_partitions(
    context: dg.SensorEvaluationContext, keys: Iterable[str]
) -> Sequence[dg.AddDynamicPartitionsRequest]:
    """Requests for the partitions that a run needs and that nobody added yet."""
    new = [key for key in keys if not context.instance.has_dynamic_partition(PARTITIONS_NAME, key)]
    return [sealed_windows.build_add_request(new)] if new else []


def _requests(
    context: dg.SensorEvaluationContext, requests: Sequence[dg.RunRequest], cursor: Mapping[str, str], otherwise: str
) -> dg.SensorResult | dg.SkipReason:
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else dg.SkipReason(otherwise),
        dynamic_partitions_requests=missing_partitions(context, [str(item.partition_key) for item in requests]),
        cursor=json.dumps(cursor, sort_keys=True),
    )


def _launch_is_due(item: WindowFacts, now: str) -> bool:
    return item.readable and launch_is_due(
        approved=item.approved,
        closed=item.closed_at is not None,
        starts_at=item.starts_at,
        ends_at=item.ends_at,
        now=now,
    )


def _settlement_is_due(item: WindowFacts, now: str) -> bool:
    return item.readable and settlement_is_due(
        approved=item.approved, closed=item.closed_at is not None, ends_at=item.ends_at, now=now
    )


def _journal_size(home: Home, window_key: str) -> str:
    """Bytes of a window's journal; it changes with every record."""
    return str(sum(entry.stat().st_size for entry in home.run(window_key).iterdir() if entry.is_file()))


SENSORS = (window_registry, window_launcher, settlement, evidence_arrival)
