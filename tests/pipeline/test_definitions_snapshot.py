"""All definitions against a text that people review: names, groups, kinds, what depends on what, checks, jobs, automation.

After a wanted change, write the text anew and read the difference: ``TASC_WRITE_SNAPSHOT=1 pytest`` on this file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from tasc_pipeline.assets.described import WHEN_ASSESSED, WHEN_CLOSED
from tasc_pipeline.definitions import defs

SNAPSHOT = Path(__file__).with_name("definitions.txt")
SENDING = {
    "capability_receipts",
    "run_plans",
    "accepted_traces",
    "device_snapshots",
    "metric_samples",
    "window_manifests",
}


def described() -> Iterator[str]:
    graph = defs.resolve_asset_graph()
    for key in sorted(graph.get_all_asset_keys()):
        node = graph.get(key)
        parts = "by window" if node.partitions_def is not None else "unpartitioned"
        deps = ", ".join(sorted(parent.to_user_string() for parent in node.parent_keys)) or "nothing"
        owners, kinds = ", ".join(sorted(node.owners)), ", ".join(sorted(node.kinds)) or "-"
        by_itself = "-" if node.automation_condition is None else node.automation_condition.get_label()
        yield f"asset {key.to_user_string()}: {node.group_name}; {kinds}; {owners}; {parts}; code {node.code_version}"
        yield f"    from {deps}; by itself: {by_itself}"
        names = ", ".join(column.name for column in node.metadata["dagster/column_schema"].columns)
        table = node.metadata.get("dagster/table_name")
        yield f"    shows {names}" if table is None else f"    writes the table {table}"
        for check in sorted(graph.get_check_keys_for_assets({key}), key=lambda item: item.name):
            yield f"    check {check.name}: {'blocks' if graph.get(check).blocking else 'warns'}"
    repository = defs.get_repository_def()
    for job in sorted(repository.get_all_jobs(), key=lambda item: item.name):
        if not job.name.startswith("__"):
            nodes = ", ".join(sorted(node.name for node in job.nodes))
            yield f"job {job.name}: {nodes}; {dict(sorted(job.tags.items()))}"
    for sensor in sorted(repository.sensor_defs, key=lambda item: item.name):
        targets = ", ".join(sorted(target.job_name for target in sensor.targets)) or "-"
        yield (
            f"sensor {sensor.name}: {sensor.default_status.value}; every {sensor.minimum_interval_seconds} s; asks for {targets}"
        )
    for schedule in sorted(repository.schedule_defs, key=lambda item: item.name):
        yield f"schedule {schedule.name}: {schedule.default_status.value}; {schedule.cron_schedule}; asks for {schedule.job_name}"


def test_the_definitions_are_those_that_were_reviewed() -> None:
    text = "\n".join(described()) + "\n"
    if os.environ.get("TASC_WRITE_SNAPSHOT"):
        SNAPSHOT.write_text(text)
    assert text.splitlines() == SNAPSHOT.read_text().splitlines()


def test_every_asset_says_what_it_is_and_where_its_code_is() -> None:
    graph = defs.resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        node, name = graph.get(key), key.to_user_string()
        assert node.description and node.owners and node.group_name != "default", name
        assert node.kinds and node.code_version, name
        references = node.metadata["dagster/code_references"]
        assert isinstance(references, dg.CodeReferencesMetadataValue)
        assert Path(references.code_references[0].file_path).is_file(), name  # type: ignore[union-attr]


def test_every_asset_shows_its_columns_and_one_that_writes_a_table_names_it() -> None:
    graph = defs.resolve_asset_graph()
    tables = {}
    for key in graph.get_all_asset_keys():
        metadata = graph.get(key).metadata
        columns = metadata["dagster/column_schema"].columns
        assert columns and all(column.description and column.type != "string" for column in columns), key
        if "dagster/table_name" in metadata:
            tables[key.to_user_string()] = metadata["dagster/table_name"]
    assert tables == {
        "accepted_traces": "traces",
        "assessments": "decisions",
        "capability_receipts": "receipts",
        "device_snapshots": "device_samples",
        "evaluator_evidence": "evidence",
        "metric_samples": "metric_samples",
        "window_catalogue": "windows",
    }
    [ttft] = [
        column
        for column in graph.get(dg.AssetKey("accepted_traces")).metadata["dagster/column_schema"].columns
        if column.name == "ttft_ms"
    ]
    assert (ttft.type, ttft.description) == ("DOUBLE", "Time to first token. [ms]")


def test_nothing_that_sends_runs_by_itself() -> None:
    graph = defs.resolve_asset_graph()
    automated = {
        key.to_user_string() for key in graph.get_all_asset_keys() if graph.get(key).automation_condition is not None
    }
    assert automated == {"evaluator_evidence", "assessments", "window_catalogue"} and not automated & SENDING
    assert WHEN_CLOSED.get_label() and WHEN_ASSESSED.get_label()
