"""``tasc contract-server`` as a person runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import typer
from typer.testing import CliRunner

from tasc_collector.contract_servers import FAULTS, Ledger
from tasc_pipeline.cli import contract_server
from tests.support.processes import next_line
from tests.support.wire_client import call

COMMAND = "import sys; from tasc_pipeline.cli import main; sys.argv[0] = 'tasc'; main()"
ROOT = Path(__file__).resolve().parents[3]


def run(*arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    contract_server.register(app)
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_a_fault_by_name_is_served_until_ctrl_c_and_the_end_says_what_came(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    command = [
        sys.executable,
        "-c",
        COMMAND,
        "contract-server",
        "vllm",
        "--fault",
        "error-then-done",
        "--tokens",
        "4",
        "--ledger",
        str(ledger),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as server:
        ready = json.loads(next_line(server))
        answer = call(ready["port"], "POST", "/v1/completions", {"prompt": "ash", "stream": True}, timeout_s=20)
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=30)
    assert ["error" in event for event in answer.events if event != "[DONE]"] == [False, False, True]
    assert (server.returncode, errors) == (0, "stopped: 1 requests, 1 of them inference\n")
    assert Ledger.read(ledger).inference_calls == 1


def test_list_faults_prints_every_name() -> None:
    code, output = run("--list-faults")
    assert code == 0
    assert [line.split()[0] for line in output.splitlines()] == sorted(FAULTS)


def test_no_runtime_and_an_unknown_fault_are_refused_with_a_way_out() -> None:
    code, output = run()
    assert (code, "name one of: llama.cpp" in output) == (3, True)
    code, output = run("vllm", "--fault", "no-such")
    assert (code, "--list-faults" in output) == (3, True)
