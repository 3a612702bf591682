"""The Dagster instance of a state folder, for commands: add a partition, launch a job, ask how a run ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from tasc_pipeline.home import Home
from tasc_pipeline.partitions import PARTITIONS_NAME


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


def run_job(home: Home, job_name: str, window_key: str) -> bool:
    """Run a job for one window in this process; True where it succeeded.

    The step that collects owns its signal handling, so this must be called on the main thread.
    """
    from tasc_pipeline.definitions import defs

    job = defs.resolve_job_def(job_name)
    with instance_of(home) as instance:
        result = job.execute_in_process(partition_key=window_key, instance=instance, raise_on_error=False)
    return result.success
