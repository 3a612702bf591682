"""The command tree: what is listed without importing a command is what the commands say, and help costs no library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from tasc_pipeline.cli.app import MODULES, build

ROOT = Path(__file__).resolve().parents[3]
HEAVY = ("dagster", "pyarrow", "duckdb", "numpy", "matplotlib", "psutil")


def _lines(app: typer.Typer) -> dict[str, str]:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # a click group
    return {name: command.get_short_help_str(1_000) for name, command in commands.items()}


def test_the_listed_commands_are_those_that_the_modules_register() -> None:
    listed = {name: line for commands in MODULES.values() for name, line in commands.items()}
    assert _lines(build("no such command")) == listed
    assert _lines(build()) == listed


def test_a_command_brings_only_its_own_module() -> None:
    assert set(_lines(build("egress"))) == {"egress", "endpoints"}


@pytest.mark.parametrize("words", [("--help",), ("sttus",), ("collect", "--help")], ids=" ".join)
def test_help_and_a_wrong_command_load_no_library_that_they_do_not_use(words: tuple[str, ...]) -> None:
    code = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print([name for name in {HEAVY!r} if name in sys.modules]))\n"
        "from tasc_pipeline.cli import main\n"
        "sys.argv[0] = 'tasc'\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
    assert done.returncode == (2 if words == ("sttus",) else 0)
