"""The Dagster instance of a state folder, for commands: add a partition, launch a job, ask how a run ended."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import dagster as dg

from tasc_collector.errors import NotAuthorized
from tasc_collector.journal import OsFileSystem, held_by, journal_exists
from tasc_pipeline.home import Home
from tasc_pipeline.home.files import write_file
from tasc_pipeline.home.windows import LINK, window_folder
from tasc_pipeline.partitions import PARTITION_TAG, PARTITIONS_NAME
from tasc_pipeline.steps.approved import load_approved

LOCATION: Final = "tasc"
"""Name of the code location; a queued run fails where the daemon knows it under another."""
_RUNS: Final = uuid.UUID("6b6c0f34-6f8a-5d3a-9a41-7d1f0b1f5c2e")
"""Name space of run ids; any constant will do."""
_UNFINISHED: Final = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.MANAGED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


@dataclass(frozen=True, slots=True)
class NextRun:
    """The run that a window may have next.

    Attributes:
        run_id: made from the plan's digest and the number; launching it twice is refused by Dagster itself.
        number: 0 for the first run under this plan; above, it is a resume.
        begun: whether a journal of the window is there already.
    """

    run_id: str
    number: int
    begun: bool


@contextmanager
def instance_of(home: Home) -> Iterator[dg.DagsterInstance]:
    """The instance in ``dagster/``, closed at the end."""
    instance = dg.DagsterInstance.from_config(str(home.dagster))
    try:
        yield instance
    finally:
        instance.dispose()


def add_partition(home: Home, window_key: str) -> None:
    """Make a sealed window a partition; adding it again is fine."""
    with instance_of(home) as instance:
        instance.add_dynamic_partitions(PARTITIONS_NAME, [window_key])


def next_run(home: Home, window_key: str) -> NextRun:
    """Which run of ``shadow_window`` a window may have next.

    Raises:
        InputError: there is no such window, or its plan is not approved.
        NotAuthorized: the window is complete, a run of it is alive, or somebody holds its journal; nothing was launched.
    """
    plan_digest = load_approved(home, window_key).digest
    if window_folder(home, window_key).has(LINK):
        raise NotAuthorized(
            "the window is complete",
            where=window_key,
            way_out=f"run: tasc assess {window_key}, or tasc report {window_key}",
        )
    folder = home.run(window_key)
    begun = folder.is_dir() and journal_exists(folder)
    owner = held_by(OsFileSystem(), folder) if begun else None
    if owner is not None:
        raise NotAuthorized(
            f"its journal is in use by {owner}", where=window_key, way_out="wait until that run has ended: tasc status"
        )
    with instance_of(home) as instance:
        alive = instance.get_runs(dg.RunsFilter(tags={PARTITION_TAG: window_key}, statuses=_UNFINISHED), limit=1)
        if alive:
            raise NotAuthorized(
                f"run {alive[0].run_id} of this window is {alive[0].status.value.lower()}",
                where=window_key,
                way_out="wait until it has ended, or terminate it in the UI: tasc ui",
            )
        number = 0
        while instance.has_run(run_id := str(uuid.uuid5(_RUNS, f"{plan_digest}:{number}"))):
            number += 1
    return NextRun(run_id, number, begun)


def workspace_file(home: Home) -> Path:
    """The workspace file of a state folder, for web server, daemon and launches: one location, always of the same name."""
    path = home.dagster / "workspace.yaml"
    text = (
        "load_from:\n  - python_module:\n      module_name: tasc_pipeline.definitions\n"
        f"      location_name: {LOCATION}\n"
    )
    write_file(path, text.encode(), replace=True)
    return path


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job of this process ended.

    Attributes:
        succeeded: every step did.
        interrupted: by Ctrl-C or SIGTERM; what was in flight has been written down.
        reason: what the first step that failed said, one line; empty where none did.
    """

    succeeded: bool
    interrupted: bool = False
    reason: str = ""


_QUIET: Final = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""Stacks of failed steps go to the run's events, which the UI shows; a command says one line."""


def run_job(home: Home, job_name: str, window_key: str) -> JobEnd:
    """Run a job for one window in this process.

    The step that collects owns its signal handling, so this must be called on the main thread.
    """
    from tasc_pipeline.definitions import defs

    job = defs.resolve_job_def(job_name)
    with instance_of(home) as instance:
        result = job.execute_in_process(
            partition_key=window_key, instance=instance, raise_on_error=False, run_config=_QUIET
        )
    errors = [
        event.step_failure_data.error
        for event in result.all_events
        if event.is_step_failure and event.step_failure_data.error is not None
    ]
    interrupted = any(error.cls_name == dg.DagsterExecutionInterruptedError.__name__ for error in errors)
    causes = [(error.cause or error).message.strip() for error in errors]
    # a message begins with the class of the exception, which is no news to a reader
    reason = re.sub(r"^[\w.]+: ", "", causes[0].splitlines()[0]) if causes and causes[0] else ""
    return JobEnd(result.success, interrupted, reason)
