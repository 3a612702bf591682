"""The files of examples/deployment: units that systemd accepts, a read-only UI, a backup that restores, a purge."""

from __future__ import annotations

import configparser
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import dagster as dg
import pytest

from tests.support.dagster_ui import Served
from tests.support.processes import free_port, wait_until
from tests.support.window import fresh_home

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "deployment"
SERVICES = sorted(FOLDER.glob("*.service"))


def unit(path: Path) -> configparser.SectionProxy:
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]  # keys of a unit have capitals
    parsed.read(path)
    return parsed["Service"]


def local(text: str, home: Path, run: Path) -> str:
    """A unit's text for this machine."""
    return (
        text.replace("/opt/tasc/.venv/bin/", f"{Path(sys.executable).parent}/")
        .replace("/opt/tasc", str(ROOT))
        .replace("/var/lib/tasc", str(home))
        .replace("/etc/tasc/workspace.yaml", str(run / "workspace.yaml"))
        .replace("/run/tasc", str(run))
    )


def test_systemd_accepts_every_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    for path in (*SERVICES, *FOLDER.glob("*.timer")):
        (tmp_path / path.name).write_text(
            re.sub(r"^(User|Group)=.*$", r"\1=root", local(path.read_text(), tmp_path, tmp_path), flags=re.MULTILINE)
        )
    units = sorted(str(path) for path in tmp_path.glob("tasc-*"))
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False, timeout=120
    )
    told = [line for line in done.stderr.splitlines() if "tasc-" in line]
    assert told == [] and len(units) == 7


def test_only_the_code_service_may_leave_the_machine_and_none_may_gain_a_privilege() -> None:
    denied = {path.stem for path in SERVICES if unit(path).get("IPAddressDeny") == "any"}
    assert {path.stem for path in SERVICES} - denied == {"tasc-code"}
    for path in SERVICES:
        service = unit(path)
        assert (service["User"], service["NoNewPrivileges"], service["ProtectSystem"]) == ("tasc", "yes", "strict"), (
            path.name
        )
    assert "--read-only" in unit(FOLDER / "tasc-webserver.service")["ExecStart"]
    assert "-h 127.0.0.1" in unit(FOLDER / "tasc-webserver.service")["ExecStart"]


@contextmanager
def started(name: str, home: Path, run: Path, *changes: tuple[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The command of a unit, started here."""
    command = local(unit(FOLDER / name)["ExecStart"], home, run)
    for old, new in changes:
        command = command.replace(old, new)
    environment = {
        **os.environ,
        "TASC_HOME": str(home),
        "DAGSTER_HOME": str(home / "dagster"),
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "PYTHONPATH": str(ROOT),
    }
    with (run / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(shlex.split(command), env=environment, cwd=ROOT, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


@pytest.mark.crash
def test_the_services_start_together_and_the_ui_is_read_only(tmp_path: Path) -> None:
    home = fresh_home(tmp_path)
    (tmp_path / "workspace.yaml").write_text(local((FOLDER / "workspace.yaml").read_text(), home.root, tmp_path))
    port = free_port()
    with (
        started("tasc-code.service", home.root, tmp_path),
        started("tasc-webserver.service", home.root, tmp_path, ("-p 3000", f"-p {port}")) as web,
    ):
        ui = Served(f"http://127.0.0.1:{port}", web)
        wait_until(lambda: locations(ui) == {"tasc": "LOADED"} or web.poll() is not None)
        assert web.poll() is None, (tmp_path / "tasc-webserver.service.log").read_text()[-2000:]
        mutation = """mutation($p: ExecutionParams!) { launchRun(executionParams: $p) { __typename } }"""
        selector = {
            "repositoryLocationName": "tasc",
            "repositoryName": "__repository__",
            "jobName": "refresh_catalogue",
        }
        refused = ui.ask(mutation, p={"selector": selector, "mode": "default"})
        assert refused["launchRun"]["__typename"] == "UnauthorizedError"


def locations(ui: Served) -> dict[str, str]:
    """Code locations and their states, as the UI shows them; none while it does not answer yet."""
    query = "{ workspaceOrError { ... on Workspace { locationEntries { name loadStatus } } } }"
    try:
        entries = ui.ask(query)["workspaceOrError"]["locationEntries"]
    except OSError:
        return {}
    return {entry["name"]: entry["loadStatus"] for entry in entries}


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_old_runs_go_and_the_newest_success_of_every_window_stays() -> None:
    @dg.op
    def nothing() -> None:
        pass

    @dg.job
    def small() -> None:
        nothing()

    purge = script("purge_runs").purge
    with dg.DagsterInstance.local_temp() as instance:
        runs = [
            small.execute_in_process(instance=instance, tags={"dagster/partition": key}).run_id
            for key in ("first", "first", "second")
        ]
        now = datetime.now(UTC)
        assert purge(instance, now - timedelta(days=1)) == (0, 0)
        assert purge(instance, now + timedelta(days=1)) == (1, 2)
        assert {run.run_id for run in instance.get_runs()} == set(runs[1:])
