"""docs/dagster.md names every job, sensor and schedule, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import dagster as dg

from tasc_pipeline.definitions import defs

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "dagster.md").read_text()


def test_the_page_names_the_jobs_sensors_and_schedules_that_exist() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", TEXT, flags=re.MULTILINE)
    repository = defs.get_repository_def()
    automation = {*repository.sensor_defs, *repository.schedule_defs}
    exist = {job.name for job in repository.get_all_jobs() if not job.name.startswith("__")}
    assert sorted(rows) == sorted(exist | {item.name for item in automation})


def test_the_page_says_what_is_on_at_first() -> None:
    repository = defs.get_repository_def()
    on = {item.name for item in repository.sensor_defs if item.default_status is dg.DefaultSensorStatus.RUNNING}
    on |= {item.name for item in repository.schedule_defs if item.default_status is dg.DefaultScheduleStatus.RUNNING}
    assert set(re.findall(r"^\| `(\w+)` \| on \|", TEXT, flags=re.MULTILINE)) == on
