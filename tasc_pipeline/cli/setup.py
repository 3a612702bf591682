"""``tasc init``, ``tasc ui``, ``tasc validate``, ``tasc keys``: the state folder, its web server, its files and keys."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from tasc_collector.contracts.catalogue import record_class
from tasc_collector.errors import InputError
from tasc_collector.wire.json import parse_json
from tasc_pipeline.cli.common import home, now, out, say
from tasc_pipeline.home import default_home, keys
from tasc_pipeline.home.setup import init_home
from tasc_pipeline.warehouse.database import build_views


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("init")(init)
    app.command("ui")(ui)
    app.command("validate")(validate)
    app.command("keys")(list_keys)


def init() -> None:
    """Make the state folder (TASC_HOME, default .tasc), or repair what is missing in it."""
    found = default_home()
    init_home(found, now(), say)
    build_views(found.root, clock=now)
    out().print(f"state folder: {found.root}", markup=False)


def ui(port: Annotated[int, typer.Option(help="Port on loopback.")] = 3000) -> None:
    """Open Dagster's web server and daemon on the state folder, bound to loopback."""
    found = home()
    workspace = Path(__file__).resolve().parents[2] / "workspace.yaml"
    where = ["-w", str(workspace)] if workspace.is_file() else ["-m", "tasc_pipeline.definitions"]
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(found.dagster),
        "TASC_HOME": str(found.root),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }
    say(f"http://127.0.0.1:{port}   (stop with Ctrl-C)")
    command = [sys.executable, "-m", "dagster", "dev", "-h", "127.0.0.1", "-p", str(port), *where]
    raise typer.Exit(subprocess.run(command, env=environment, check=False).returncode)


def validate(files: Annotated[list[Path], typer.Argument(help="Record files, JSON.")]) -> None:
    """Check record files of any kind: schema, cross-field rules, own digest."""
    for path in files:
        if not path.is_file():
            raise InputError("there is no such file", where=str(path), way_out="check the name")
        value = parse_json(path.read_bytes())
        if not isinstance(value, dict):
            raise InputError("a record is a JSON object", where=str(path), way_out="correct the file")
        cls = record_class(value, where=str(path))
        parsed = cls.from_value(value, where=str(path))
        out().print(f"{path}: {cls.__name__} {parsed.record.digest_of(parsed.value)}", markup=False)


def list_keys() -> None:
    """Show the public keys with role, validity and revocation."""
    from rich.table import Table

    table = Table("role", "key id", "valid from", "valid until", "revoked")
    for key in keys.read_ring(home()).keys:
        table.add_row(key.role, key.key_id, key.valid_from, key.valid_until, key.revoked_at or "")
    out().print(table)
