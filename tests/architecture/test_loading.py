"""What a process loads before it sends its first call: modules that only publish, draw or serve are not among it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LATER = (
    "pyarrow",
    "duckdb",
    "numpy",
    "matplotlib",
    "dagster",
    "httpx",
    "tasc_pipeline.warehouse",
    "tasc_pipeline.assets",
)
"""Libraries and packages that no call waits for."""


def loaded(imports: str) -> list[str]:
    """Of ``LATER``, what a new process has after these imports."""
    code = f"import sys, {imports}; print(*(name for name in {LATER!r} if name in sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, timeout=120
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    "imports",
    [
        "tasc_collector.shadow.runner",
        "tasc_pipeline.cli.window, tasc_pipeline.steps.collect, tasc_pipeline.steps.approved",
        "tasc_pipeline.cli.window, tasc_pipeline.steps.plan",
        "tasc_pipeline.cli.probe, tasc_pipeline.steps.probe",
    ],
    ids=["the runner", "tasc collect up to its last call", "tasc plan", "tasc probe"],
)
def test_what_sends_calls_loads_nothing_that_only_comes_after_them(imports: str) -> None:
    assert loaded(imports) == []


def test_publishing_is_what_loads_arrow_and_duckdb() -> None:
    assert {"pyarrow", "duckdb", "tasc_pipeline.warehouse"} <= set(loaded("tasc_pipeline.steps.publish"))
