"""What every command shares, in real processes: pipes whose reader goes, names that look like markup, narrow terminals."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from rich.table import Table

from tasc_collector.contract_servers import ContractServer
from tasc_pipeline.cli.common import PLAIN_WIDTH, out
from tests.support import sample_warehouse
from tests.support.window import QUICK, fresh_home

TASC = (sys.executable, "-c", "from tasc_pipeline.cli import main; main()")


@pytest.mark.parametrize("form", [["--csv"], []])
def test_a_reader_that_goes_ends_a_command_quietly(form, tmp_path):
    sample_warehouse.build(tmp_path / "state")
    command = [*TASC, "sql", "SELECT range, repeat('x', 1000) AS text FROM range(5000)", *form]
    environment = {**os.environ, "TASC_HOME": str(tmp_path / "state"), "COLUMNS": "2000"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.read(10)
        process.stdout.close()
        said = process.stderr.read().decode()
        assert process.wait(60) == 0
    assert "Traceback" not in said and "refused" not in said and "Exception" not in said


@pytest.mark.parametrize("name", ["[bold]x[/bold]", "[/]", "model:b:7", "a[0]"])
def test_a_name_is_shown_as_it_is(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    table = Table("model")
    table.add_row(name)
    out().print(table)
    out().print(name)
    shown = capsys.readouterr().out.splitlines()
    assert [line.strip("│ ") for line in shown if name in line] == [name, name]


def test_a_narrow_terminal_cuts_nothing(capsys, monkeypatch):
    key, digest = "first.20261130t094750.r01-13e93aa3", "sha256:" + "ab" * 32
    monkeypatch.setenv("COLUMNS", "40")
    table = Table("window", "digest")
    table.add_row(key, digest)
    out().print(table)
    rows = [line.split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert ["".join(row[column].strip() for row in rows) for column in (1, 2)] == [key, digest]


def test_a_pipe_has_room_for_a_window_and_its_two_instants(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    table = Table("window", "stage", "executions", "window ends", "plan expires", "verdict")
    at = "2026-11-30T11:09:45.509Z"
    table.add_row("first.20261130t094750.r01-13e93aa3", "collecting", "96 = 75 success + 21 pending", at, at, "worse")
    out().print(table)
    assert max(len(line) for line in capsys.readouterr().out.splitlines()) <= PLAIN_WIDTH
    out().print(table)
    assert len(capsys.readouterr().out.splitlines()) == 5, "each window has one line"


def test_a_second_ui_on_one_port_is_refused_before_it_starts_a_daemon(tmp_path):
    home = fresh_home(tmp_path)
    with ContractServer("vllm", behaviour=QUICK) as holder:
        ran = subprocess.run(
            [*TASC, "ui", "--port", str(holder.port)],
            env={**os.environ, "TASC_HOME": str(home.root), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert ran.returncode == 3
    assert ran.stderr == (
        f"refused: tasc ui: {holder.port}: something listens on this port; nothing was started -> if it is this UI, open "
        f"http://127.0.0.1:{holder.port}; else choose another port: tasc ui --port {holder.port + 1}\n"
    )
