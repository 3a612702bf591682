"""What importing the runner loads: start-up to the first lease is bought here (bench/collect/startup.py measures it)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UNUSED = (
    "httpx",
    "cryptography.x509",
    "tasc_collector.contracts.report",
    "tasc_collector.contracts.controller",
    "tasc_collector.contracts.protocol",
    "tasc_collector.contracts.shadow_plan",
    "tasc_collector.contract_servers",
    "tasc_pipeline",
    "tasc_compute",
)


def _run(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, timeout=120
    ).stdout


def test_the_runner_loads_nothing_that_collecting_does_not_use() -> None:
    code = f"import sys, tasc_collector.shadow.runner; print([name for name in {UNUSED!r} if name in sys.modules])"
    assert _run(code).strip() == "[]"


def test_schemas_are_built_before_calls_are_timed_and_not_at_import() -> None:
    code = (
        "from tasc_collector.contracts import base, envelope, persistence\n"
        "kinds = (envelope.TraceEnvelope, persistence.RuntimeInvocationPersistence)\n"
        "print([kind.__pydantic_complete__ for kind in kinds])\n"
        "base.build_schemas(envelope, persistence)\n"
        "print([kind.__pydantic_complete__ for kind in kinds])\n"
    )
    assert _run(code).split("\n")[:2] == ["[False, False]", "[True, True]"]
