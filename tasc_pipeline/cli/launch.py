"""``tasc launch KEY`` and ``tasc notices``: queue a window's run, and read what was told."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Annotated

import typer
from rich.table import Table

from tasc_collector.errors import TascError
from tasc_pipeline.cli.common import EXIT_FAILED, home, out, say
from tasc_pipeline.home.layout import Home
from tasc_pipeline.steps import notices

_JOB = "shadow_window"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("launch")(launch_window)
    app.command("notices")(list_notices)


def launch_window(window_key: Annotated[str, typer.Argument(help="Key of a window whose plan is approved.")]) -> None:
    """Queue a run of the Dagster job shadow_window for a window, or its resume; needs a daemon (tasc ui)."""
    from tasc_pipeline.instance import add_partition, next_run

    found = home()
    run = next_run(found, window_key)
    add_partition(found, window_key)
    done = _job_launch(found, window_key, run.run_id)
    if done.returncode:
        raise TascError(
            "dagster job launch refused; nothing was queued",
            where=window_key,
            way_out=f"run: tasc status; or collect without Dagster: tasc collect {window_key}",
        )
    kind = (
        f"resume {run.number} of" if run.number else "resumes what a run without Dagster began;" if run.begun else "of"
    )
    out().print(f"queued run {run.run_id} {kind} window {window_key}", markup=False)
    say("a daemon on this state folder starts it: tasc ui")


def _job_launch(found: Home, window_key: str, run_id: str) -> subprocess.CompletedProcess[bytes]:
    from tasc_pipeline.instance import LOCATION, workspace_file
    from tasc_pipeline.partitions import PARTITION_TAG

    command = [sys.executable, "-m", "dagster", "job", "launch", "-w", str(workspace_file(found)), "-l", LOCATION]
    command += ["-j", _JOB, "--tags", f'{{"{PARTITION_TAG}": "{window_key}"}}', "--run-id", run_id]
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(found.dagster),
        "TASC_HOME": str(found.root),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }
    return subprocess.run(command, env=environment, check=False, capture_output=True)


def list_notices(
    publish: Annotated[
        bool, typer.Option("--publish", help="Publish their rows, and post each once where a study names a webhook.")
    ] = False,
) -> None:
    """List what was told: changes of verdict, low coverage, missing windows, failed runs."""
    found = home()
    if publish:
        _publish(found)
    told = notices.every(found)
    if not told:
        out().print("nothing was told yet", markup=False)
        return
    table = Table("at", "study", "window", "what", "before", "after", "posted")
    for item in told:
        notice, post = item.notice, item.post()
        table.add_row(
            notice.at,
            notice.study_id,
            notice.window_key or "",
            notice.kind,
            notice.before or "",
            notice.after or "",
            "" if post is None else post.state if post.code is None else f"{post.state} ({post.code})",
        )
    out().print(table)


def _publish(found: Home) -> None:
    from tasc_pipeline.steps.notice_post import publish_and_post

    told = publish_and_post(found)
    say(f"notices of {told.windows} windows published")
    for post in told.posts:
        say(f"{post.notice_digest}: {post.state}{f' ({post.code})' if post.code else ''}")
    for name, error in told.failed:
        say(f"{name}: {error}")
    if told.failed or any(post.state != "completed" or post.code is not None for post in told.posts):
        raise typer.Exit(EXIT_FAILED)
