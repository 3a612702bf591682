"""``tasc engines`` as a person runs it: a real command in a real process, with an engine that does as it is told."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tasc_compute.lifecycle import stop
from tasc_compute.local import local_compute
from tasc_pipeline.cli import engines
from tasc_pipeline.home.layout import FOLDERS
from tests.support.processes import wait_until

FAKE_ENGINE = Path(__file__).parents[2] / "support" / "fake_engine.py"
COMMAND = "import typer; from tasc_pipeline.cli import engines; app = typer.Typer(); engines.register(app); app()"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    for name in FOLDERS:
        (root / name).mkdir(mode=0o700)
    monkeypatch.setenv("TASC_HOME", str(root))
    yield root
    compute = local_compute(root)
    for name in compute.store.names():
        stop(name, compute)


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., Path]:
    binary = tmp_path / "fake-engine"
    binary.write_text(f"#!{sys.executable} -IS\n" + FAKE_ENGINE.read_text())
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")

    def write(name: str = "one", extra: str = "", **told: object) -> Path:
        path = tmp_path / f"{name}.toml"
        path.write_text(
            f"""
schema = "tasc-engine-recipe-v1"
name = "{name}"
engine = "llamacpp"
binary = "{binary}"
model = "tiny.gguf"
served_model_name = "tiny"
ready_deadline_s = 20
{extra}
[knobs]
max_context_length = 1024
quantization = "awq"
[env]
FAKE_ENGINE = '{json.dumps(told)}'
"""
        )
        return path

    return write


def run(*arguments: str) -> tuple[int, str, str]:
    app = typer.Typer()
    engines.register(app)
    result = CliRunner().invoke(app, ["engines", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_plan_shows_the_command_the_digest_and_what_is_left_out(home, recipe):
    code, out, _ = run("plan", str(recipe(extra="port = 18111")))
    assert code == 0
    command, digest, dropped = out.splitlines()
    assert command.endswith("tiny.gguf --alias tiny --host 127.0.0.1 --port 18111 --metrics --ctx-size 1024")
    assert digest.startswith("configuration sha256:")
    assert dropped == "left out: quantization = awq: the quantization is in the model file"


def test_plan_of_a_refused_recipe_says_why_and_exits_3(home, recipe):
    code, out, _ = run("plan", str(recipe(extra='extra_args = ["--log-prompts-dir=/tmp/x"]')), "--json")
    assert code == 3
    assert json.loads(out)["refusals"] == [
        "--log-prompts-dir writes prompts or answers to disk; remove it, or say logs_content = true in the recipe"
    ]


def test_launch_list_logs_stop(home, recipe):
    code, out, err = run("launch", str(recipe(print="hello\npassword: hunter2\n")))
    assert (code, out.splitlines()[0].split(" on ")[0]) == (0, "one is ready")
    assert "stop it with: tasc engines stop one" in err
    code, out, _ = run("list")
    first_words = [line.split()[:3] for line in out.splitlines()]
    assert first_words == [["name", "state", "engine"], ["one", "ready", "llamacpp"]]
    code, out, _ = run("list", "--json")
    (shown,) = json.loads(out)["instances"]
    assert (shown["state"], shown["recipeId"], shown["ref"]["kind"]) == ("ready", "one", "process")
    assert run("logs", "one")[1] == "hello\npassword: [redacted]\n"
    assert run("stop", "one") == (0, "", "one: stopped\n")
    assert run("list") == (0, "", "no engine instances -> tasc engines launch RECIPE\n")
    assert run("stop", "one") == (0, "", "one: nothing of it was running\n")


def test_a_failed_launch_shows_the_tail_and_exits_1(home, recipe):
    code, out, err = run("launch", str(recipe(exit_code=5, print="no memory\n")))
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "one: starting llamacpp",
        "no memory",
        "one: ended before it was ready, exit code 5 -> tasc engines logs one",
    ]


def test_a_recipe_with_an_unknown_key_is_refused_by_name(home, recipe):
    code, out, err = run("launch", str(recipe(extra='colour = "red"')))
    assert (code, out) == (3, "")
    assert err == "refused: one.toml: colour: is not a key of a recipe -> correct the recipe\n"


def test_a_name_that_no_engine_had_is_refused_with_those_that_there_are(home, recipe):
    said = "there is no such instance and no log of one"
    for command in ("logs", "stop"):
        refused = f"refused: none: {said} (none is recorded) -> tasc engines list\n"
        assert run(command, "none") == (3, "", refused)
    code, _, err = run("launch", str(recipe()))
    assert code == 0, err
    for command in ("logs", "stop"):
        for name in ("none", "../logs/one", "one["):
            assert run(command, name) == (3, "", f"refused: {name}: {said} (known: one) -> tasc engines list\n")


def test_an_interrupt_while_starting_stops_the_engine(home, recipe, tmp_path):
    pid_file = tmp_path / "pid"
    path = recipe(never_ready=True, worker="group", worker_pid_file=str(pid_file))
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "engines", "launch", str(path)],
        cwd=Path(__file__).parents[3],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TASC_HOME": str(home)},
    )
    wait_until(lambda: (pid_file.exists() and bool(pid_file.read_text())) or process.poll() is not None)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "one: launch cancelled; launch it again when you like"
    assert local_compute(home).store.names() == ()
    stat_line = Path(f"/proc/{pid_file.read_text()}/stat")
    assert not stat_line.exists() or stat_line.read_text().rsplit(")", 1)[1].split()[0] in "ZX"
