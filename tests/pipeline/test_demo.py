"""`tasc demo` as a newcomer runs it: it prints what a query gives, and running it again adds a window."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tasc_collector.errors import InputError
from tasc_pipeline.cli.demo import start_contract_servers
from tasc_pipeline.demo import flow, servers
from tasc_pipeline.home import Home
from tasc_pipeline.home.windows import WindowFolder, window_keys
from tasc_pipeline.warehouse.database import connect
from tests.support.processes import wait_until
from tests.support.window import fresh_home

ROOT = Path(__file__).resolve().parents[2]


def demo(folder: Path) -> subprocess.Popen[str]:
    """On any two ports that are free; the second run takes those of the first, because its study names them."""
    environment = {**os.environ, "TASC_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    command = [sys.executable, "-c", "from tasc_pipeline.cli import main; main()", "demo", "--port", "0"]
    return subprocess.Popen(
        command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finished(process: subprocess.Popen[str]) -> str:
    out, complaint = process.communicate(timeout=400)
    assert process.returncode == 0, complaint
    return out


def ledger(folder: Path, name: str) -> list[dict[str, object]]:
    lines = (folder / "home" / "demo" / f"{name}.jsonl").read_text().splitlines()
    return [entry for line in lines if (entry := json.loads(line))["kind"] == "request" and entry["inference"]]


def test_the_demo_prints_what_a_query_gives_and_again_adds_a_window(tmp_path: Path) -> None:
    out = finished(demo(tmp_path))
    home = Home(tmp_path / "home")
    [key] = window_keys(home)
    session = connect(home.root)
    for profile, p50, p95 in session.execute(
        "SELECT profile_id, quantile_cont(ttft_ms, 0.5), quantile_cont(ttft_ms, 0.95) FROM traces WHERE status = 'success' GROUP BY ALL"
    ).fetchall():
        row = next(line for line in out.splitlines() if profile in line and f"{p50:.2f}" in line)
        assert f"{p95:.2f}" in row
    report = WindowFolder(home, key).report().record
    assert report.comparisons[0].sentence in out
    assert f"tasc report {key}" in out and "make ui" in out and "tasc sql" in out
    sent = dict(
        session.execute(
            "SELECT role, sum(attempts) FROM traces WHERE dispatch_state <> 'not_sent' GROUP BY ALL"
        ).fetchall()
    )
    for role in ("champion", "candidate"):
        assert len(ledger(tmp_path, role)) == sent[role] + 2, (
            "attempts that were not proved unsent, and two warm-up calls"
        )
    finished(demo(tmp_path))
    assert len(window_keys(home)) == 2


def test_a_killed_demo_is_finished_by_the_same_command_and_sends_no_case_twice(tmp_path: Path) -> None:
    process = demo(tmp_path)
    journal = tmp_path / "home" / "demo" / "champion.jsonl"
    wait_until(lambda: (journal.is_file() and len(journal.read_text().splitlines()) > 20) or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    finished(demo(tmp_path))
    home = Home(tmp_path / "home")
    [key] = window_keys(home)
    report = WindowFolder(home, key).report().record
    assert report.counts.planned == 96 == report.counts.success + report.counts.sent_unknown
    assert report.counts.sent_unknown <= 8
    for role in ("champion", "candidate"):
        per_case = Counter(str(entry["digest"]) for entry in ledger(tmp_path, role))
        assert max(per_case.values()) == 2, "two replicates of each case, and never a third call"


def test_an_occupied_port_is_said_and_others_are_taken_which_the_study_then_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, prompts = fresh_home(tmp_path), tmp_path / "prompts.txt"
    prompts.write_text("Name three colours.\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(servers, "CHAMPION", replace(servers.CHAMPION, port=port))
        with ExitStack() as stack, pytest.raises(InputError, match=f"could not start on port {port}"):
            start_contract_servers(stack, home, prompts, port, "")
        with ExitStack() as stack:
            assert start_contract_servers(stack, home, prompts, None, "") == ("demo",)
    assert f"port {port} or {port + 1} is in use; taking two that are free" in capsys.readouterr().err
    ports = flow.ports_of(home, "demo")
    assert ports is not None and port not in ports
    with ExitStack() as stack:
        start_contract_servers(stack, home, prompts, None, "")
    said = capsys.readouterr().err
    assert all(f"http://127.0.0.1:{number}" in said for number in ports)


def test_the_commands_of_the_readme_exist() -> None:
    """Every `tasc ...` line of the README is a command that the command line knows."""
    import typer

    from tasc_pipeline.cli.app import build

    tree = typer.main.get_command(build())
    words = {
        tuple(match.split())
        for match in re.findall(r"tasc ([a-z][a-z-]*(?: [a-z][a-z-]*)?)", (ROOT / "README.md").read_text())
    }
    assert len(words) > 6
    for first, *rest in words:
        command = tree.commands.get(first)  # type: ignore[attr-defined]  # a click group
        assert command is not None, first
        if rest and hasattr(command, "commands"):
            assert rest[0] in command.commands, (first, rest[0])
