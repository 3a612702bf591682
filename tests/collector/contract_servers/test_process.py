"""A server as a process: one ready line, a ledger that survives a kill, options that are refused with a way out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tasc_collector.contract_servers import FAULTS, case_digest
from tasc_collector.contract_servers.__main__ import main
from tasc_collector.contract_servers.options import fault_lines, read_calls, read_scope, read_tls
from tasc_collector.errors import InputError
from tests.support.contract_process import ROOT, ContractProcess
from tests.support.processes import next_line
from tests.support.wire_client import call, connect, request_bytes

PATH = "/v1/completions"


def test_a_killed_server_leaves_a_ledger_with_every_call_it_began_to_answer(tmp_path: Path) -> None:
    with ContractProcess("vllm", tmp_path / "ledger", "--ttft-ms", "60000") as server:
        socks = []
        for number in range(4):
            sock = connect(server.port)
            sock.sendall(request_bytes("POST", PATH, {"prompt": f"case {number % 2}", "stream": True}))
            assert sock.recv(12) == b"HTTP/1.1 200"  # the head is out, so the entry is in the file
            socks.append(sock)
        server.kill()
        for sock in socks:
            sock.close()
        assert server.ledger.by_request == {case_digest("case 0"): 2, case_digest("case 1"): 2}
        assert server.ledger.inference_calls == 4


def test_a_killed_client_is_seen_as_a_call_and_as_cancelled(tmp_path: Path) -> None:
    client = f"""
import socket, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.support.wire_client import request_bytes
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sock.sendall(request_bytes("POST", "{PATH}", {{"prompt": "ash", "stream": True}}))
sock.recv(1)
print("in the answer", flush=True)
sock.recv(1 << 20, socket.MSG_WAITALL)
"""
    with ContractProcess("vllm", tmp_path / "ledger", "--fault", "stall-body") as server:
        command = [sys.executable, "-c", client, str(server.port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
            assert next_line(victim) == "in the answer\n"
            victim.kill()
        call(server.port, "GET", "/health")
        assert server.stop() == 0
        assert (server.ledger.inference_calls, server.ledger.cancelled) == (1, 1)


def test_options_reach_the_behaviour(tmp_path: Path) -> None:
    options = (
        "--tokens",
        "3",
        "--answer-prefix",
        "CANARY",
        "--model",
        "my/model",
        "--fault",
        "server-error",
        "--fault-calls",
        "2",
    )
    with ContractProcess("llama.cpp", tmp_path / "ledger", *options) as server:
        first = call(server.port, "POST", PATH, {"prompt": "ash"})
        second = call(server.port, "POST", PATH, {"prompt": "ash"})
    assert first.json["choices"][0]["text"].startswith("CANARY")
    assert (first.json["model"], first.json["usage"]["completion_tokens"], second.status) == ("my/model", 3, 500)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nobody"], "choose one of"),
        (["vllm", "--fault", "no-such"], "--list-faults"),
        (["vllm", "--fault-calls", "one"], "as in 3,7,10-12"),
        (["vllm", "--fault-scope", "some"], "inference, observation, all"),
        (["vllm", "--tls-cert", "leaf.pem"], "--tls-cert and --tls-key"),
    ],
)
def test_bad_options_are_refused_with_a_way_out(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


def test_list_faults_names_every_fault_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list-faults"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == sorted(FAULTS)
    assert "error-then-done" in names


def test_call_numbers_are_numbers_and_ranges() -> None:
    assert read_calls("3,7,10-12") == {3, 7, 10, 11, 12}
    assert read_calls(None) is None
    with pytest.raises(InputError):
        read_calls("3,,4")


def test_absent_options_stay_absent() -> None:
    assert (read_scope(None), read_tls(None, None)) == (None, None)


def test_fault_lines_show_rows_and_summaries() -> None:
    line = next(line for line in fault_lines() if line.startswith("error-then-done "))
    assert line.split(maxsplit=2)[1:] == ["T02", "an error event in the middle, then [DONE]"]
