"""Engines under Dagster on a real instance, with an engine that does as it is told, as real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from tasc_pipeline.engine_sensor import engine_states, read_cursor
from tasc_pipeline.home import Home
from tasc_pipeline.instance import instance_of
from tasc_pipeline.resources import StateFolder
from tests.support.engine_recipes import Engines
from tests.support.window import World, fresh_home, with_instance, world


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engines]:
    made = Engines(tmp_path, fresh_home(tmp_path))
    monkeypatch.setenv("TASC_HOME", str(made.home.root))
    yield made
    made.stop_all()


@pytest.fixture(scope="module")
def defs() -> dg.Definitions:
    from tasc_pipeline.definitions import defs

    return defs


@pytest.fixture
def execute(defs: dg.Definitions) -> Callable[..., dg.ExecuteInProcessResult]:
    def run(home: Home, job: str, op: str, **config: object) -> dg.ExecuteInProcessResult:
        with instance_of(home) as instance:
            return defs.resolve_job_def(job).execute_in_process(
                run_config={"ops": {op: {"config": config}}}, instance=instance, raise_on_error=False
            )

    return run


Execute = Callable[..., dg.ExecuteInProcessResult]


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    assert not result.success
    [event] = [item for item in result.all_events if item.event_type_value == "STEP_FAILURE"]
    failure = event.step_failure_data.user_failure_data
    assert failure is not None, "the failure is ours, not a crash"
    return str(failure.description)


def look(home: Home, cursor: str | None) -> tuple[list[tuple[str, str, str]], str]:
    """One tick of the sensor: the changes that it reports, and its cursor."""
    with (
        instance_of(home) as instance,
        dg.build_sensor_context(instance=instance, cursor=cursor, resources={"state": StateFolder()}) as context,
    ):
        data = engine_states.evaluate_tick(context)
    assert data.run_requests is None or not data.run_requests, "it only reports"
    changes = [
        tuple(str(event.metadata[name].value) for name in ("engine", "before", "after")) for event in data.asset_events
    ]
    return changes, data.cursor or ""


def test_an_engine_is_launched_reported_once_per_state_and_stopped(engines: Engines, execute: Execute) -> None:
    assert execute(engines.home, "launch_engine", "launch", recipe=engines.recipe("one")).success
    assert engines.names == ["one"], "it outlives the run"
    changes, cursor = look(engines.home, None)
    assert changes == [("one", "none", "ready")]
    changes, cursor = look(engines.home, cursor)
    assert changes == []
    assert execute(engines.home, "stop_engine", "stop", instance="one").success
    assert engines.names == []
    changes, cursor = look(engines.home, cursor)
    assert changes == [("one", "ready", "exited")]
    assert look(engines.home, cursor)[0] == []
    assert execute(engines.home, "stop_engine", "stop", instance="one").success, "stopping again is fine"
    assert not execute(engines.home, "stop_engine", "stop", instance="oen").success, "a name that none had is refused"


def test_an_edited_cursor_is_read_as_nothing_known() -> None:
    assert read_cursor(None) == {} == read_cursor("[1]") == read_cursor("{") == read_cursor('{"one": ["n", "gone", 0]}')


def test_a_launch_that_fails_says_how_without_the_engines_log(engines: Engines, execute: Execute) -> None:
    recipe = engines.recipe("one", exit_code=5, print="a prompt that somebody wrote\n")
    result = execute(engines.home, "launch_engine", "launch", recipe=recipe)
    assert failure_of(result) == "one: ended before it was ready, exit code 5 -> tasc engines logs one"
    with instance_of(engines.home) as instance:
        events = str([item.dagster_event for item in instance.all_logs(result.run_id)])
    assert "somebody wrote" not in events
    assert engines.names == []


def test_a_recipe_that_breaks_a_rule_is_refused(engines: Engines, execute: Execute) -> None:
    missing = execute(engines.home, "launch_engine", "launch", recipe="nowhere.toml")
    assert failure_of(missing).startswith("nowhere.toml: cannot be read")


# --- a window between launch and stop -----------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world(tmp_path, cases=2) as found:
        with_instance(found.home)
        monkeypatch.setenv("TASC_HOME", str(found.home.root))
        yield found


@pytest.fixture
def beside(tmp_path: Path, made: World) -> Iterator[Engines]:
    found = Engines(tmp_path, made.home)
    yield found
    found.stop_all()


OP = "collect_between_launch_and_stop"


def test_a_window_is_collected_between_launch_and_stop(made: World, beside: Engines, execute: Execute) -> None:
    key = made.approved_window(lead_s=1.0)
    recipes = [beside.recipe("one"), beside.recipe("two")]
    result = execute(made.home, "engine_window", OP, recipes=recipes, window_key=key)
    assert result.success
    assert (made.home.window(key) / "link.json").is_file()
    assert made.inference_calls == (3, 3), "two cases and one warm-up"
    assert beside.names == []
    with instance_of(made.home) as instance:
        runs = {run.job_name: run.status for run in instance.get_runs()}
        assert runs == {"engine_window": dg.DagsterRunStatus.SUCCESS, "shadow_window": dg.DagsterRunStatus.SUCCESS}
        assert instance.get_latest_materialization_event(dg.AssetKey("window_manifests")) is not None


def test_a_second_engine_that_fails_stops_the_first_and_collects_nothing(
    made: World, beside: Engines, execute: Execute
) -> None:
    key = made.approved_window()
    recipes = [beside.recipe("one"), beside.recipe("two", exit_code=5)]
    result = execute(made.home, "engine_window", OP, recipes=recipes, window_key=key)
    assert failure_of(result).startswith("two: ended before it was ready, exit code 5")
    assert beside.names == []
    assert made.inference_calls == (0, 0)


def test_a_window_that_fails_stops_the_engines(made: World, beside: Engines, execute: Execute) -> None:
    key = made.approved_window()
    made.home.run(key).parent.mkdir(mode=0o700, exist_ok=True)
    made.home.run(key).write_text("no folder for a journal")
    result = execute(made.home, "engine_window", OP, recipes=[beside.recipe("one")], window_key=key)
    assert "the window's run failed; the engines are stopped" in failure_of(result)
    assert beside.names == []
    assert made.inference_calls == (0, 0)


def test_an_engine_that_was_running_before_is_not_taken_over_and_not_stopped(
    made: World, beside: Engines, execute: Execute
) -> None:
    key = made.approved_window()
    recipe = beside.recipe("one")
    assert execute(made.home, "launch_engine", "launch", recipe=recipe).success
    result = execute(made.home, "engine_window", OP, recipes=[recipe], window_key=key)
    assert failure_of(result).startswith("one is already running")
    assert beside.names == ["one"]
    assert made.inference_calls == (0, 0)


def test_a_window_without_an_approved_plan_starts_no_engine(made: World, beside: Engines, execute: Execute) -> None:
    ready = beside.folder / "started"
    recipe = beside.recipe("one", worker="group", worker_pid_file=str(ready))
    result = execute(made.home, "engine_window", OP, recipes=[recipe], window_key="first.20260101t000000.r01-00000000")
    assert "no window with this key was sealed" in failure_of(result)
    assert not ready.exists() and beside.names == []
