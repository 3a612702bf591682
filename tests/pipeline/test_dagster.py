"""The Dagster side on a real instance: definitions, the job in this process, and `dagster job launch` with a daemon."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from tasc_pipeline.home import Home
from tasc_pipeline.instance import add_partition, instance_of
from tasc_pipeline.steps import assess
from tests.support.window import World, with_instance, world

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as found:
        with_instance(found.home)
        yield found


@pytest.fixture(scope="module")
def defs() -> dg.Definitions:
    from tasc_pipeline.definitions import defs

    return defs


def test_the_definitions_are_the_ones_that_the_docs_describe(defs: dg.Definitions) -> None:
    graph = defs.resolve_asset_graph()
    groups = {key.to_user_string(): graph.get(key).group_name for key in graph.get_all_asset_keys()}
    assert groups == {
        "capability_receipts": "authority",
        "run_plans": "authority",
        "accepted_traces": "evidence",
        "device_snapshots": "evidence",
        "metric_samples": "evidence",
        "window_manifests": "evidence",
        "evaluator_evidence": "evidence",
        "assessments": "decision",
        "window_catalogue": "decision",
        "runtime_endpoints": "authority",
        "engine_instances": "compute",
    }
    partitioned = {name for name in groups if graph.get(dg.AssetKey(name)).partitions_def is not None}
    assert partitioned == set(groups) - {"window_catalogue", "runtime_endpoints", "engine_instances"}
    jobs = {job.name for job in defs.resolve_all_job_defs()}
    assert {"shadow_window", "assess_window", "refresh_catalogue"} <= jobs
    assert all(graph.get(dg.AssetKey(name)).description for name in groups)


def execute(defs: dg.Definitions, home: Home, job: str, key: str) -> dg.ExecuteInProcessResult:
    os.environ["TASC_HOME"] = str(home.root)
    with instance_of(home) as instance:
        return defs.resolve_job_def(job).execute_in_process(partition_key=key, instance=instance, raise_on_error=False)


def test_the_job_collects_publishes_and_closes_one_partition(
    made: World, defs: dg.Definitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASC_HOME", str(made.home.root))
    key = made.approved_window()
    add_partition(made.home, key)
    result = execute(defs, made.home, "shadow_window", key)
    assert result.success
    [traces] = [
        event
        for event in result.get_asset_materialization_events()
        if event.asset_key == dg.AssetKey("accepted_traces")
    ]
    metadata = traces.materialization.metadata
    assert (
        metadata["planned"].value == 12
        and metadata["executions_success"].value == 12
        and metadata["rows_traces"].value == 12
    )
    checks = {event.check_name: event.passed for event in result.get_asset_check_evaluations()}
    assert len(checks) == 13 and all(checks.values())
    assert made.inference_calls == (7, 7)
    by_asset = execute(defs, made.home, "assess_window", key)
    assert by_asset.success
    written = (made.home.window(key) / "assessment.json").read_bytes()
    assert assess.assess(made.home, key).canonical() == written, "command and asset agree byte for byte"
    again = execute(defs, made.home, "shadow_window", key)
    assert again.success and made.inference_calls == (7, 7), "a second run of the partition sends nothing"


def test_a_key_that_names_no_window_fails_and_sends_nothing(
    made: World, defs: dg.Definitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASC_HOME", str(made.home.root))
    add_partition(made.home, "first.20260101t000000.r01-00000000")
    result = execute(defs, made.home, "shadow_window", "first.20260101t000000.r01-00000000")
    assert not result.success
    assert result.get_asset_materialization_events() == []
    assert made.inference_calls == (0, 0)


def test_the_registry_adds_windows_that_were_sealed_from_a_shell(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasc_pipeline.resources import StateFolder
    from tasc_pipeline.sensors import window_registry

    monkeypatch.setenv("TASC_HOME", str(made.home.root))
    key = made.approved_window()
    with (
        instance_of(made.home) as instance,
        dg.build_sensor_context(instance=instance, resources={"state": StateFolder()}) as context,
    ):
        result = window_registry(context)
        assert isinstance(result, dg.SensorResult)
        assert [list(request.partition_keys) for request in result.dynamic_partitions_requests or []] == [[key]]
        assert not result.run_requests, "a sensor that adds partitions launches nothing"


def test_job_launch_with_a_daemon_collects_the_window(made: World) -> None:
    """The command of the README, with the daemon running; a run is watched through the instance, which is all a user has."""
    key = made.approved_window(lead_s=1.0)
    add_partition(made.home, key)
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(made.home.dagster),
        "TASC_HOME": str(made.home.root),
        "PYTHONPATH": str(ROOT),
    }
    binaries = Path(sys.executable).parent
    run_id = str(uuid.uuid4())
    daemon = subprocess.Popen(
        [str(binaries / "dagster-daemon"), "run", "-w", str(ROOT / "workspace.yaml")],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        launched = subprocess.run(
            [
                str(binaries / "dagster"),
                "job",
                "launch",
                "-w",
                str(ROOT / "workspace.yaml"),
                "-l",
                "tasc",
                "-j",
                "shadow_window",
                "--tags",
                f'{{"dagster/partition": "{key}"}}',
                "--run-id",
                run_id,
            ],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert launched.returncode == 0, launched.stderr
        assert wait_for_run(made.home, run_id, limit_s=240) == dg.DagsterRunStatus.SUCCESS
    finally:
        daemon.terminate()
        daemon.wait(30)
    assert (made.home.window(key) / "link.json").is_file()
    assert made.inference_calls == (7, 7)


def wait_for_run(home: Home, run_id: str, limit_s: float) -> dg.DagsterRunStatus:
    """Ask the instance until the run has ended; nothing tells another process that it did."""
    end, pause = time.monotonic() + limit_s, threading.Event()
    with instance_of(home) as instance:
        while time.monotonic() < end:
            run = instance.get_run_by_id(run_id)
            if run is not None and run.is_finished:
                return run.status
            pause.wait(0.5)
    raise AssertionError("the run did not end in time")


def test_dg_check_defs_accepts_the_project() -> None:
    dg_command = Path(sys.executable).parent / "dg"
    if not dg_command.exists():
        pytest.skip("the extra 'dg' is not installed")
    done = subprocess.run(
        [str(dg_command), "check", "defs"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
