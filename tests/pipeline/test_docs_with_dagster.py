"""The pages whose commands need a daemon, run with one: queued runs end in success, and the sensor is on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from tasc_pipeline.instance import instance_of
from tests.support.dagster_ui import Served, dagster_ui
from tests.support.doc_pages import DOCS, ELSEWHERE, Reader
from tests.support.processes import wait_until
from tests.support.window import World, world

pytestmark = pytest.mark.crash
HERE = "tests/pipeline/test_docs_with_dagster.py"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Served]]:
    folder = tmp_path_factory.mktemp("docs")
    with world(folder) as made, dagster_ui(made.home.root, folder / "ui.log") as ui:
        yield made, ui


@pytest.fixture
def reader(served: tuple[World, Served], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    elsewhere = {begin: test for begin, test in ELSEWHERE.items() if test != HERE}
    return Reader(served[0], tmp_path, monkeypatch, elsewhere=elsewhere)


def test_a_shell_queues_runs_that_the_daemon_finishes(reader: Reader) -> None:
    reader.read(DOCS / "use-shell.md")
    assert [command.split()[0:2] for command in reader.ran if "launch" in command] == [
        ["tasc", "launch"],
        ["dagster", "job"],
    ]
    with instance_of(reader.made.home) as instance:
        wait_until(lambda: all(run.is_finished for run in instance.get_runs()))
        runs = instance.get_runs()
    assert [(run.job_name, run.status) for run in runs] == [("shadow_window", dg.DagsterRunStatus.SUCCESS)] * 2
    [key] = {run.tags["dagster/partition"] for run in runs}
    assert (reader.made.home.window(key) / "link.json").is_file()
    assert reader.made.inference_calls == (14, 14), "the queued window, and the one that CI collected; each once"


def test_a_sensor_is_turned_on_from_a_shell(reader: Reader) -> None:
    reader.read(DOCS / "use-sensors.md")
    with instance_of(reader.made.home) as instance:
        states = {state.name: state.status for state in instance.all_instigator_state()}
    assert states["window_launcher"].value == "RUNNING"
