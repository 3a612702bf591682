"""``tasc init``, ``tasc ui``, ``tasc validate``: the state folder, its web server, its files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from tasc_collector.errors import InputError
from tasc_pipeline.cli.common import EXIT_REFUSED, home, now, out, say
from tasc_pipeline.home import default_home
from tasc_pipeline.home.setup import init_home
from tasc_pipeline.steps.validate import check_files
from tasc_pipeline.warehouse.database import build_views


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("init")(init)
    app.command("ui")(ui)
    app.command("validate")(validate)


def init() -> None:
    """Make the state folder (TASC_HOME, default .tasc), or repair what is missing in it."""
    found = default_home()
    init_home(found, now(), say)
    build_views(found.root, clock=now)
    out().print(f"state folder: {found.root}", markup=False)


def ui(port: Annotated[int, typer.Option(help="Port on loopback.")] = 3000) -> None:
    """Open Dagster's web server and daemon on the state folder, bound to loopback."""
    found = home()
    from tasc_compute.health import port_is_free
    from tasc_pipeline.instance import workspace_file

    if not port_is_free(port):  # Dagster would start a second daemon on this state folder before it finds out
        raise InputError(
            "something listens on this port; nothing was started",
            where="tasc ui",
            field=str(port),
            way_out=f"if it is this UI, open http://127.0.0.1:{port}; else choose another port: tasc ui --port {port + 1}",
        )

    where = ["-w", str(workspace_file(found))]
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(found.dagster),
        "TASC_HOME": str(found.root),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }
    say(f"http://127.0.0.1:{port}   (stop with Ctrl-C)")
    command = [sys.executable, "-m", "dagster", "dev", "-h", "127.0.0.1", "-p", str(port), *where]
    raise typer.Exit(subprocess.run(command, env=environment, check=False).returncode)


def validate(files: Annotated[list[Path], typer.Argument(help="Record files: JSON, NDJSON, TOML.")]) -> None:
    """Check record files of any kind: schema, cross-field rules, own digest. Every file is checked."""
    wrong = 0
    for checked in check_files(files):
        if checked.error is not None:
            wrong += 1
            say(f"refused: {checked.error}")
        else:
            out().print(f"{checked.path}: {checked.kind} {checked.digest}", markup=False)
    if wrong:
        raise typer.Exit(EXIT_REFUSED)
