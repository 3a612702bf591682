"""Every way to start a window's run gives the same window: UI, `job launch`, `tasc launch`, backfill, sensor, materialize.

One daemon serves all of them, as on a user's machine; each way has a window of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import dagster as dg
import pytest
from click.testing import Result
from typer.testing import CliRunner

from tasc_collector.journal import Journal
from tasc_pipeline.cli.app import build
from tasc_pipeline.cli.common import run_guarded
from tasc_pipeline.home import Home, keys
from tasc_pipeline.home.windows import LINK
from tasc_pipeline.instance import LOCATION, add_partition, instance_of, next_run, workspace_file
from tasc_pipeline.partitions import PARTITION_TAG
from tasc_pipeline.steps import collect, publish
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.steps.collect import run_context
from tests.support.window import World, with_instance, world

ROOT = Path(__file__).resolve().parents[2]
BINARIES = Path(sys.executable).parent
LIMIT_S = 300
LAUNCH = """
mutation Launch($tags: [ExecutionTag!], $name: String!) {
  launchRun(executionParams: {
    selector: {repositoryLocationName: "tasc", repositoryName: "__repository__", jobName: $name},
    executionMetadata: {tags: $tags}
  }) { __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } }
}
"""
"""What the UI sends when somebody presses Launch."""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world(tmp_path, cases=3, warm_up=0) as found:
        with_instance(found.home)
        monkeypatch.setenv("TASC_HOME", str(found.home.root))
        yield found


def environment(home: Home) -> dict[str, str]:
    return {
        **os.environ,
        "DAGSTER_HOME": str(home.dagster),
        "TASC_HOME": str(home.root),
        "PYTHONPATH": str(ROOT),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }


def command(home: Home, *words: str) -> str:
    done = subprocess.run(
        [str(BINARIES / words[0]), *words[1:]],
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tags(key: str) -> str:
    return json.dumps({PARTITION_TAG: key})


def results(home: Home, keys_: Mapping[str, str]) -> dict[str, list[str]]:
    """What every window's run left in Dagster, once all have ended: assets and checks, by way."""
    end, pause, missing = time.monotonic() + LIMIT_S, threading.Event(), dict(keys_)
    found: dict[str, list[str]] = {}
    with instance_of(home) as instance:
        while missing and time.monotonic() < end:
            for way, key in list(missing.items()):
                runs = instance.get_runs(dg.RunsFilter(tags={PARTITION_TAG: key}))
                if not runs or not all(run.is_finished for run in runs):
                    continue
                assert [run.status for run in runs] == [dg.DagsterRunStatus.SUCCESS], (
                    f"{way}: one run, and it succeeded"
                )
                found[way] = events(instance, runs[0].run_id)
                del missing[way]
            pause.wait(0.5)
    assert not missing, f"did not end in time: {missing}"
    return found


def events(instance: dg.DagsterInstance, run_id: str) -> list[str]:
    told = []
    for entry in instance.all_logs(run_id):
        event = entry.dagster_event
        if event is not None and event.is_step_materialization:
            told.append(str(event.step_materialization_data.materialization.asset_key.to_user_string()))
        elif event is not None and event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            data = event.asset_check_evaluation_data
            told.append(f"{data.check_name}={data.passed}")
    return sorted(told)


def test_every_way_to_start_a_run_gives_the_same_window(made: World) -> None:
    home = made.home
    ways = ("job launch", "graphql", "backfill", "tasc launch", "sensor", "materialize")
    # the sensor asks for every window that is due, so its own comes when the others are closed; it adds the partition itself
    windows = {way: made.approved_window(lead_s=30) for way in ways if way != "sensor"}
    for key in windows.values():
        add_partition(home, key)
    workspace = str(workspace_file(home))
    daemon = subprocess.Popen(
        [str(BINARIES / "dagster-daemon"), "run", "-w", workspace],
        env=environment(home),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    job = ("-w", workspace, "-l", LOCATION, "-j", "shadow_window")
    try:
        command(home, "dagster", "job", "launch", *job, "--tags", tags(windows["job launch"]))
        variables = {"name": "shadow_window", "tags": [{"key": PARTITION_TAG, "value": windows["graphql"]}]}
        answer = command(home, "dagster-graphql", "-w", workspace, "-t", LAUNCH, "-v", json.dumps(variables))
        # the code server's own lines stand around the answer
        launched, _ = json.JSONDecoder().raw_decode(answer[answer.index("{") :])
        assert launched["data"]["launchRun"]["__typename"] == "LaunchRunSuccess", answer
        command(home, "dagster", "job", "backfill", *job, "--partitions", windows["backfill"], "--noprompt")
        said = tasc("launch", windows["tasc launch"])
        assert said.exit_code == 0 and "queued run" in said.output
        select = "capability_receipts,run_plans,accepted_traces,device_snapshots,metric_samples,window_manifests"
        command(
            home,
            *("dagster", "asset", "materialize", "-m", "tasc_pipeline.definitions"),
            *("--select", select, "--partition", windows["materialize"]),
        )
        found = results(home, windows)
        windows["sensor"] = made.approved_window(lead_s=30)
        command(home, "dagster", "sensor", "start", "window_launcher", "-w", workspace)
        found |= results(home, {"sensor": windows["sensor"]})
    finally:
        daemon.terminate()
        daemon.wait(LIMIT_S)
    assert len({tuple(told) for told in found.values()}) == 1, found
    assert found["graphql"][:2] == ["accepted_traces", "budget_kept=True"] and len(found["graphql"]) == 6 + 13
    assert all((home.window(key) / LINK).is_file() for key in windows.values())
    assert made.inference_calls == (3 * len(ways), 3 * len(ways)), (
        "every case was sent once to each server, by each way"
    )


def tasc(*words: str) -> Result:
    """The command line in this process."""
    runner = CliRunner()
    outcome: list[Result] = []
    code = run_guarded(lambda: outcome.append(runner.invoke(build(words[0]), list(words), catch_exceptions=False)))
    return outcome[0] if outcome else Result(runner, b"", b"", b"", None, code, None)  # type: ignore[arg-type]


def test_a_launch_is_refused_while_a_run_is_alive_and_is_a_resume_after_it(made: World) -> None:
    key = made.approved_window()
    add_partition(made.home, key)
    first = next_run(made.home, key)
    assert (first.number, first.begun) == (0, False) and next_run(made.home, key) == first, (
        "the same plan, the same run id"
    )
    with instance_of(made.home) as instance:
        run = instance.create_run_for_job(
            _job(), run_id=first.run_id, tags={PARTITION_TAG: key}, status=dg.DagsterRunStatus.STARTED
        )
        with pytest.raises(Exception, match=f"run {first.run_id} of this window is started"):
            next_run(made.home, key)
        instance.report_run_failed(run)
    again = next_run(made.home, key)
    assert again.number == 1 and again.run_id != first.run_id
    assert next_run(made.home, made.approved_window()).run_id not in (first.run_id, again.run_id)


def _job() -> dg.JobDefinition:
    from tasc_pipeline.definitions import defs

    return defs.resolve_job_def("shadow_window")


def test_a_launch_is_refused_while_somebody_holds_the_journal_and_says_who(made: World) -> None:
    key = made.approved_window()
    approved = load_approved(made.home, key)
    journal_key = keys.hmac_key(made.home, approved.study.study.keys.journal_hmac)
    journal = Journal.open(made.home.run(key), run_context(made.home, approved, ()).binding, journal_key)
    try:
        with pytest.raises(Exception, match=f"in use by.*{os.getpid()}"):
            next_run(made.home, key)
    finally:
        journal.close()
    assert next_run(made.home, key).begun


def test_a_launch_is_refused_where_the_window_is_complete(made: World) -> None:
    from tasc_pipeline.steps import close

    key = made.approved_window()
    collect.collect(made.home, key, show=lambda _: None)
    publish.publish(made.home, key)
    close.close(made.home, key)
    with pytest.raises(Exception, match="the window is complete"):
        next_run(made.home, key)


def test_a_launch_of_a_forged_or_unapproved_window_is_refused(made: World) -> None:
    from tasc_pipeline.steps import seal
    from tests.support.window import now

    sealed = seal.seal(made.home, "first", seal.SealOptions(), now()).window_key
    for key, text in ((sealed, "no plan.json"), ("forged.r01-00000000", "no window with this key")):
        with pytest.raises(Exception, match=text):
            next_run(made.home, key)
    assert tasc("launch", "forged.r01-00000000").exit_code == 3
