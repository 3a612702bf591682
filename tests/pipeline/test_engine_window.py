"""`engine_window` under a standing authorization: launch, canary receipts, prepare, collect, stop; it always stops.

The engines are fake ones, as real processes; the endpoints are contract servers that stand for them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from tasc_pipeline.home import keys, receipts
from tasc_pipeline.home.ledger import read_entries
from tasc_pipeline.home.studies import load_study
from tasc_pipeline.home.window_index import window_facts
from tasc_pipeline.instance import instance_of
from tasc_pipeline.steps.new_study import NewStudy, Server, new_study
from tests.support.authorized import authorized
from tests.support.engine_recipes import Engines
from tests.support.window import QUICK, World, now, with_instance, world

ROOT = Path(__file__).resolve().parents[2]
OP = "collect_between_launch_and_stop"
CANARY = {"effects": ("inference-canary",), "canary_calls_per_day": 4}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world(tmp_path, cases=2, recurring=True, route="chatCompletions") as found:
        with_instance(found.home)
        monkeypatch.setenv("TASC_HOME", str(found.home.root))
        yield found


@pytest.fixture
def engines(tmp_path: Path, made: World) -> Iterator[Engines]:
    found = Engines(tmp_path, made.home)
    yield found
    found.stop_all()


@pytest.fixture
def execute(made: World) -> Callable[..., dg.ExecuteInProcessResult]:
    from tasc_pipeline.definitions import defs

    def run(**config: object) -> dg.ExecuteInProcessResult:
        with instance_of(made.home) as instance:
            return defs.resolve_job_def("engine_window").execute_in_process(
                run_config={"ops": {OP: {"config": config}}}, instance=instance, raise_on_error=False
            )

    return run


Execute = Callable[..., dg.ExecuteInProcessResult]


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    assert not result.success
    [event] = [item for item in result.all_events if item.event_type_value == "STEP_FAILURE"]
    failure = event.step_failure_data.user_failure_data
    assert failure is not None, "the failure is ours, not a crash"
    return str(failure.description)


def started(engines: Engines) -> tuple[str, Path]:
    """A recipe, and the file that shows that its engine was started."""
    seen = engines.folder / "started"
    return engines.recipe("one", worker="group", worker_pid_file=str(seen)), seen


def test_receipts_and_plan_are_made_between_launch_and_stop(made: World, engines: Engines, execute: Execute) -> None:
    authorized(made.home, **CANARY)  # type: ignore[arg-type]  # ceilings and effects
    (made.home.keys / "operator.key").unlink()
    result = execute(recipes=[engines.recipe("one"), engines.recipe("two")], study="first")
    assert result.success
    assert engines.names == []
    [facts] = window_facts(made.home).values()
    assert facts.closed_at is not None and tuple(facts.counts or ()) == (4, 4, 0, 0)
    assert made.inference_calls == (4, 4), "a canary, a warm-up and two cases each"
    entries = read_entries(made.home, load_study(made.home, "first").study)
    assert sorted(entry.counted.calls for entry in entries.values()) == [1, 1, 6]
    assert sum(entry.counted.canary_calls for entry in entries.values()) == 2


def test_without_an_authorization_no_engine_is_started(made: World, engines: Engines, execute: Execute) -> None:
    recipe, seen = started(engines)
    assert "the study has no standing authorization" in failure_of(execute(recipes=[recipe], study="first"))
    authorized(made.home)
    assert "does not name the effect inference-canary" in failure_of(execute(recipes=[recipe], study="first"))
    assert not seen.exists() and engines.names == []
    assert made.inference_calls == (0, 0) and window_facts(made.home) == {}


def test_a_key_and_a_study_together_are_refused(made: World, engines: Engines, execute: Execute) -> None:
    said = failure_of(execute(recipes=[engines.recipe("one")], study="first", window_key="x.r01-00000000"))
    assert "a window's key and a study are named" in said


def test_an_engine_of_another_configuration_than_the_studys_is_stopped_and_asked_nothing(
    made: World, engines: Engines, execute: Execute
) -> None:
    candidate = Server(made.candidate.origin, configuration_digest="sha256:" + "7" * 64)
    new_study(
        made.home,
        NewStudy(
            "second",
            "tests",
            Server(made.champion.origin),
            (candidate,),
            made.prompts,
            route="chatCompletions",
            recurring=True,
        ),
        now(),
    )
    authorized(made.home, "second", calls_per_day=1_000, output_tokens_per_day=100_000, **CANARY)  # type: ignore[arg-type]
    recipe, seen = started(engines)
    said = failure_of(execute(recipes=[recipe], study="second"))
    assert "no engine of the configuration that the study names was launched" in said
    assert seen.exists() and engines.names == []
    assert made.inference_calls == (0, 0) and window_facts(made.home) == {}


def test_a_server_that_answers_as_another_build_is_not_collected_from(
    made: World, engines: Engines, execute: Execute
) -> None:
    authorized(made.home, **CANARY)  # type: ignore[arg-type]
    made.candidate.behaviour = replace(QUICK, fault="fingerprint-mismatch")
    said = failure_of(execute(recipes=[engines.recipe("one")], study="first"))
    assert said.startswith("first/candidate: chatCompletions: the canary did not show the route: "), said
    assert engines.names == [] and window_facts(made.home) == {}
    assert made.inference_calls == (1, 1)
    found = {item.endpoint_alias: item.state for item in receipts.stored(made.home, keys.read_ring(made.home)).receipts}
    assert found == {"champion": "supported", "candidate": "unknown"}


CHILD = """
import sys
from pathlib import Path
from tasc_pipeline.home import Home
from tasc_pipeline.definitions import defs
from tasc_pipeline.instance import instance_of

home = Home(Path(sys.argv[1]))
config = {"ops": {"collect_between_launch_and_stop": {"config": {"recipes": [sys.argv[2]], "study": "first"}}}}
with instance_of(home) as instance:
    job = defs.resolve_job_def("engine_window")
    result = job.execute_in_process(run_config=config, instance=instance, raise_on_error=False)
    print(sorted(f"{run.job_name} {run.status.value}" for run in instance.get_runs()), flush=True)
"""


def child(made: World, recipe: str) -> subprocess.Popen[str]:
    """The job in a process of its own, which can be signalled."""
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(made.home.root), recipe],
        env={**os.environ, "TASC_HOME": str(made.home.root), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_sigterm_while_a_window_is_collected_drains_and_stops_the_engine(made: World, engines: Engines) -> None:
    authorized(made.home, **CANARY)  # type: ignore[arg-type]
    slow = replace(QUICK, ttft_ms=1_000)
    made.champion.behaviour = made.candidate.behaviour = slow
    recipe, seen = started(engines)
    process = child(made, recipe)
    # a canary each, then the warm-up: the window is being collected
    made.champion.ledger.wait_for(
        lambda ledger: ledger.inference_calls >= 2 or process.poll() is not None, timeout_s=120
    )
    assert seen.exists() and engines.names == ["one"]
    with instance_of(made.home) as instance:  # as Dagster's terminate does, before it signals
        [run] = instance.get_runs(dg.RunsFilter(job_name="engine_window"))
        instance.report_run_canceling(run)
    process.send_signal(signal.SIGTERM)
    out, complaint = process.communicate(timeout=120)
    assert engines.names == [], complaint
    assert out.strip().splitlines()[-1] == "['engine_window CANCELED', 'shadow_window FAILURE']"
    assert sum(made.inference_calls) <= 8
    [facts] = window_facts(made.home).values()
    assert facts.closed_at is None, "the same window can be finished"
    worst = read_entries(made.home, load_study(made.home, "first").study)[facts.window_key].counted
    assert worst.calls == 6, "its reservation is spent until it is"
