"""Killed, stopped, raced: the same command again finishes the window and sends nothing twice, by the servers' own counts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tasc_collector.errors import JournalLocked
from tasc_pipeline.steps import close, collect, publish, verify
from tests.support.window import QUICK, World, world

ROOT = Path(__file__).resolve().parents[3]
SLOW = replace(QUICK, ttft_ms=60, itl_ms=5)


def nothing(_: object) -> None:
    """Progress that nobody looks at."""


def start(made: World, key: str) -> subprocess.Popen[bytes]:
    """`tasc collect KEY` in a process of its own."""
    command = [sys.executable, "-c", "from tasc_pipeline.cli import main; main()", "collect", key]
    environment = {**os.environ, "TASC_HOME": str(made.home.root), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for_calls(made: World, process: subprocess.Popen[bytes], count: int) -> None:
    """Until the servers have counted so many calls, which they do before they answer."""
    made.champion.ledger.wait_for(
        lambda ledger: sum(made.inference_calls) >= count or process.poll() is not None, timeout_s=60
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_run_that_ends_in_the_middle_is_finished_by_the_same_command(tmp_path: Path, number: signal.Signals) -> None:
    with world(tmp_path, cases=12, champion=SLOW, candidate=SLOW) as made:
        key = made.approved_window()
        process = start(made, key)
        wait_for_calls(made, process, 6)
        process.send_signal(number)
        _, complaint = process.communicate(timeout=60)
        assert process.returncode == (-signal.SIGKILL if number is signal.SIGKILL else 1), complaint.decode()
        result = collect.collect(made.home, key, show=nothing)
        assert result.status == "complete" and result.resumed
        unknown = result.states.get("sent_unknown", 0)
        assert result.states == {"success": 24 - unknown, **({"sent_unknown": unknown} if unknown else {})}
        if number is not signal.SIGKILL:
            assert unknown == 0, "a stopped run drains what is in flight"
        assert unknown <= 4, "not more than were in flight"
        counted = made.champion.ledger.by_request | made.candidate.ledger.by_request
        assert (
            max(
                count
                for count in (*made.champion.ledger.by_request.values(), *made.candidate.ledger.by_request.values())
            )
            == 1
        ), counted
        publish.publish(made.home, key)
        close.close(made.home, key)
        assert verify.verify_window(made.home, key)


def test_two_runs_of_one_window_never_both_send(tmp_path: Path) -> None:
    with world(tmp_path, cases=12, champion=SLOW, candidate=SLOW) as made:
        key = made.approved_window()
        process = start(made, key)
        wait_for_calls(made, process, 2)
        with pytest.raises(JournalLocked, match=f"process {process.pid} "):
            collect.collect(made.home, key, show=nothing)
        _, complaint = process.communicate(timeout=60)
        assert process.returncode == 0, complaint.decode()
        assert made.inference_calls == (13, 13)


def test_settling_sends_nothing_and_names_what_is_unknown(tmp_path: Path) -> None:
    with world(tmp_path, cases=12, champion=SLOW, candidate=SLOW) as made:
        key = made.approved_window()
        process = start(made, key)
        wait_for_calls(made, process, 6)
        process.kill()
        process.communicate(timeout=60)
        before = made.inference_calls
        made.prompts.unlink()
        result = collect.collect(made.home, key, show=nothing, send=False)
        assert result.status == "partial"
        assert result.states["pending"] + result.states.get("success", 0) + result.states.get("sent_unknown", 0) == 24
        assert made.inference_calls == before
