"""How a process begins that runs a command."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

from tasc_collector.startup import begin_process

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = """
class Plugin:
    def new_schema_validator(self, *_):
        print("shown to a plugin")
        return None, None, None

plugin = Plugin()
"""
READ = """
import os
{begin}
from tasc_collector.contracts.work_budget import WorkBudget
WorkBudget.model_rebuild()
"""


def _read(folder: Path, begin: str) -> str:
    """What a process says that reads a record, where a package with a plugin for pydantic is installed."""
    (folder / "seen_by_plugin.py").write_text(PLUGIN)
    facts = folder / "seen_by_plugin-1.0.dist-info"
    facts.mkdir(exist_ok=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: seen-by-plugin\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[pydantic]\nseen = seen_by_plugin:plugin\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYDANTIC_DISABLE_PLUGINS"}
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(folder)))
    command = [sys.executable, "-c", READ.format(begin=begin)]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=120).stdout


def test_no_plugin_of_another_package_is_shown_a_record(tmp_path: Path) -> None:
    begin = "from tasc_collector.startup import begin_process; begin_process(os.environ)"
    assert "shown to a plugin" in _read(tmp_path, "")
    assert _read(tmp_path, begin) == ""


def test_who_wants_a_plugin_sets_the_variable() -> None:
    environ = {"PYDANTIC_DISABLE_PLUGINS": "other"}
    before = gc.get_threshold()
    try:
        begin_process(environ)
    finally:
        gc.set_threshold(*before)
    assert environ == {"PYDANTIC_DISABLE_PLUGINS": "other"}


def test_garbage_is_looked_for_less_often() -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(700, 10, 10)
        begin_process({})
        assert gc.get_threshold()[0] == 10_000
        assert gc.isenabled()
    finally:
        gc.set_threshold(*before)


def test_beginning_loads_no_library() -> None:
    code = "import sys, tasc_collector.startup; print([name for name in ('pydantic', 'asyncio', 'cryptography') if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, timeout=120
    )
    assert done.stdout.strip() == "[]"
