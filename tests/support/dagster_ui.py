"""Dagster as a user starts it: `tasc ui` in a process group of its own, and its GraphQL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.support.processes import PATIENCE_S, free_port, wait_until

ROOT = Path(__file__).resolve().parents[2]
ENDED = ("SUCCESS", "FAILURE", "CANCELED")
_LAUNCH = """mutation($p: ExecutionParams!) { launchRun(executionParams: $p) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
_AGAIN = """mutation($p: ReexecutionParams) { launchRunReexecution(reexecutionParams: $p) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
_CANCEL = """mutation($id: String!) {
  terminateRun(runId: $id, terminatePolicy: MARK_AS_CANCELED_IMMEDIATELY) { __typename } }"""
_STATUS = "query($id: ID!) { runOrError(runId: $id) { __typename ... on Run { status } } }"


@dataclass(frozen=True)
class Served:
    """A running UI."""

    url: str
    process: subprocess.Popen[bytes]

    def ask(self, query: str, **variables: object) -> Any:  # whatever GraphQL answers
        """Ask GraphQL, as the pages do."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310 - loopback
            value = json.load(answer)
        assert "errors" not in value, value
        return value["data"]

    def launch(self, job: str, partition: str) -> str:
        """Launch a job for one partition; the run's id."""
        selector = {"repositoryLocationName": "tasc", "repositoryName": "__repository__", "jobName": job}
        tags = [{"key": "dagster/partition", "value": partition}]
        params = {"selector": selector, "mode": "default", "executionMetadata": {"tags": tags}}
        return _run_id(self.ask(_LAUNCH, p=params)["launchRun"])

    def reexecute_from_failure(self, run_id: str) -> str:
        """What the button of that name does; the new run's id."""
        params = {"parentRunId": run_id, "strategy": "FROM_FAILURE"}
        return _run_id(self.ask(_AGAIN, p=params)["launchRunReexecution"])

    def force_cancel(self, run_id: str) -> None:
        """The button "Terminate" with "Force termination immediately" checked."""
        assert self.ask(_CANCEL, id=run_id)["terminateRun"]["__typename"] == "TerminateRunSuccess"

    def status(self, run_id: str) -> str:
        """Status of a run as the UI shows it."""
        return str(self.ask(_STATUS, id=run_id)["runOrError"]["status"])

    def ended(self, run_id: str) -> str:
        """Wait for the end of a run: its status."""
        wait_until(lambda: self.status(run_id) in ENDED)
        return self.status(run_id)

    def processes(self, *words: str) -> list[psutil.Process]:
        """Those of its processes whose command line holds all these words."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        return [child for child in children if all(word in " ".join(child.cmdline()) for word in words)]


def _run_id(answer: Mapping[str, Any]) -> str:  # an object of GraphQL
    assert answer["__typename"] == "LaunchRunSuccess", answer
    return str(answer["run"]["runId"])


@contextmanager
def dagster_ui(home: Path, log: Path) -> Iterator[Served]:
    """`tasc ui` on a state folder: web server, daemon and code server as a user starts them.

    Args:
        home: the state folder.
        log: where its output goes; a test that fails shows the end of it.
    """
    port = free_port()
    command = [sys.executable, "-c", "from tasc_pipeline.cli import main; main()", "ui", "--port", str(port)]
    environment = {**os.environ, "TASC_HOME": str(home), "PYTHONPATH": str(ROOT)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=home.parent, stdout=output, stderr=output, start_new_session=True
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_up(f"{url}/server_info", process, log)
            yield Served(url, process)
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C, as a user stops it; whatever is left after a while is killed, each by its own id."""
    family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.send_signal(signal.SIGINT)
    for child in family:
        _signal(child, signal.SIGINT)
    _, alive = psutil.wait_procs(family, timeout=60)
    for child in alive:
        _signal(child, signal.SIGKILL)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(60)


def _signal(child: psutil.Process, number: signal.Signals) -> None:
    try:
        child.send_signal(number)
    except psutil.NoSuchProcess:
        return


def _wait_until_up(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Ask until the web server answers; a process that has not opened its port yet cannot tell anybody."""
    end, pause = time.monotonic() + PATIENCE_S, threading.Event()
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):  # noqa: S310 - loopback
                return
        except OSError:
            pause.wait(0.2)
    raise AssertionError(f"the web server did not start:\n{log.read_text()[-4000:]}")
