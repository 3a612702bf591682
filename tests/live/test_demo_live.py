"""``tasc demo --live`` as a user runs it: a sealed window on two llama.cpp servers, then one of chat completions against
MLX-LM; whole and interrupted.

The oracle for what is left is the machine itself: the ports are free, no process of either group lives, no lease is held.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasc_compute import health
from tasc_compute.contracts import ProcessReference
from tasc_compute.lifecycle import stop
from tasc_compute.local import local_compute
from tests.support.live_engines import living, llama_recipe, needs_llama, needs_mlx

pytestmark = [pytest.mark.live, needs_llama, needs_mlx]

ROOT = Path(__file__).resolve().parents[2]
TASC = [sys.executable, "-c", "from tasc_pipeline.cli import main; main()"]
ROLES = ("champion", "candidate", "chat-candidate")
DEADLINE_S = 240
POLLS, POLL_S = 600, 0.1


def tasc(home: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "TASC_HOME": str(home), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        [*TASC, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=home.parent, env=environment
    )


def said(home: Path, *arguments: str) -> str:
    process = tasc(home, *arguments)
    out, problems = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, problems
    return out


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text("Name three colours.\nExplain rain in one sentence.\nCount from one to ten.\n")
    return path


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """A state folder whose engines are stopped at the end, whatever came of the demo."""
    folder = tmp_path / "state"
    yield folder
    if folder.exists():
        compute = local_compute(folder)
        for name in compute.store.names():
            stop(name, compute)


def groups_when_running(process: subprocess.Popen[str], home: Path, until: str) -> tuple[list[int], str]:
    """Read what the demo says until a line matches; the process groups that hold leases then, and what was said."""
    lines: list[str] = []
    groups: list[int] = []
    watchdog = threading.Timer(DEADLINE_S, process.kill)
    watchdog.start()
    try:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if re.search(until, line):
                store = local_compute(home).store
                references = [store.read(name).ref for name in store.names()]
                groups = [reference.pid for reference in references if isinstance(reference, ProcessReference)]
                break
    finally:
        watchdog.cancel()
    return groups, "".join(lines)


def wait_for_a_call(process: subprocess.Popen[str]) -> None:
    """Ask the champion's own counter until it computes an answer."""
    port = llama_recipe().port
    assert port is not None
    for _ in range(POLLS):
        assert process.poll() is None, "the demo ended before it made a call"
        answer = health.ask(port, "/metrics", 3_000)
        if answer is not None and b"\nllamacpp:requests_processing 1" in answer.body:
            return
        time.sleep(POLL_S)
    raise AssertionError("the champion never got a call")


def assert_nothing_is_left(home: Path, groups: list[int]) -> None:
    assert [living(group) for group in groups] == [[], [], []]
    assert said(home, "engines", "list") == ""  # that there is none is said beside the output
    assert local_compute(home).store.names() == ()
    for role in ROLES:
        port = llama_recipe(role).port
        assert port is not None
        with socket.socket() as probe:
            probe.settimeout(3)
            assert probe.connect_ex(("127.0.0.1", port)) != 0, f"something still listens on port {port}"


def test_a_window_on_two_real_engines_ends_in_a_table_and_leaves_nothing(state, prompts):
    process = tasc(state, "demo", "--live", "--prompts", str(prompts))
    groups, begun = groups_when_running(process, state, "Dagster job shadow_window")
    out, rest = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, begun + rest
    assert len(groups) == 3, begun
    for word in ("ttft", "itl", "e2e", "p50", "p95"):
        assert word in out.lower()
    counted = said(
        state,
        "sql",
        "--csv",
        "select route, runtime, role, status, count(*) as calls, min(output_tokens) > 0 as answered from traces "
        "group by all order by 1, 2, 3",
    )
    assert counted.split() == [
        "route,runtime,role,status,calls,answered",
        "chatCompletions,llama.cpp,champion,success,6,True",
        "chatCompletions,mlx-lm,candidate,success,6,True",
        "completions,llama.cpp,candidate,success,6,True",
        "completions,llama.cpp,champion,success,6,True",
    ]
    admitted = said(state, "sql", "--csv", "select capability, state, count(*) as receipts from receipts group by all")
    assert "chatCompletions,supported,2" in admitted.split()
    assert_nothing_is_left(state, groups)


def test_an_interrupt_stops_both_engines_and_the_same_command_finishes_the_window(state, prompts):
    process = tasc(state, "demo", "--live", "--prompts", str(prompts))
    groups, begun = groups_when_running(process, state, "Dagster job shadow_window")
    wait_for_a_call(process)
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=DEADLINE_S)
    assert len(groups) == 3, begun
    assert process.returncode == 130
    assert "interrupted: what was in flight is written down" in rest, rest
    assert "Traceback" not in rest and "Stack Trace" not in rest and "refused" not in rest, rest
    assert_nothing_is_left(state, groups)
    again = tasc(state, "demo", "--live", "--prompts", str(prompts))
    out, problems = again.communicate(timeout=DEADLINE_S)
    assert again.returncode == 0, problems
    assert "which an earlier run left" in problems
    assert "verdict" in out.lower() or "worse" in out.lower() or "undecided" in out.lower()
    assert_nothing_is_left(state, groups)
