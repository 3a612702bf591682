"""Delete Dagster's record of runs that ended long ago: `purge_runs.py --days 90`, with DAGSTER_HOME set.

The newest success of every job and window is kept, however old: the UI shows a window's assets and checks from it. Evidence
lies in the state folder, not here, and is not touched.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime, timedelta

import dagster as dg

ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
PARTITION = "dagster/partition"


def purge(instance: dg.DagsterInstance, before: datetime) -> tuple[int, int]:
    """Delete old runs.

    Args:
        instance: Dagster's instance.
        before: runs that were made before this may go.

    Returns:
        How many were deleted, and how many old ones were kept as the newest of their kind.
    """
    newest: set[tuple[str, str]] = set()
    deleted = kept = 0
    for record in instance.get_run_records(order_by="create_timestamp"):
        run = record.dagster_run
        kind = (run.job_name, run.tags.get(PARTITION, ""))
        is_newest = kind not in newest and run.status is dg.DagsterRunStatus.SUCCESS
        if is_newest:
            newest.add(kind)
        if run.status not in ENDED or record.create_timestamp.replace(tzinfo=UTC) >= before:
            continue
        if is_newest:
            kept += 1
            continue
        instance.delete_run(run.run_id)
        deleted += 1
    return deleted, kept


def main() -> None:
    """The command."""
    words = argparse.ArgumentParser(description="Delete Dagster's record of old runs.")
    words.add_argument("--days", type=int, default=90, help="keep runs of so many days")
    before = datetime.now(UTC) - timedelta(days=words.parse_args().days)
    with dg.DagsterInstance.get() as instance:
        deleted, kept = purge(instance, before)
    sys.stdout.write(f"{deleted} runs deleted; {kept} older ones kept, each the newest success of its job and window\n")


if __name__ == "__main__":
    main()
