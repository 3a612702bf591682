"""``tasc status``: one screen of windows, counts that add up, who holds a lock, what expires when, and the next command."""

from __future__ import annotations

import typer
from rich.table import Table

from tasc_collector.contracts.scalars import format_timestamp
from tasc_pipeline.cli.authorize import print_next
from tasc_pipeline.cli.common import home, now, out
from tasc_pipeline.steps.authorize import study_lines
from tasc_pipeline.steps.catalogue import windows


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("status")(status)


def status() -> None:
    """Show all windows and what to do next with each."""
    found, at = home(), now()
    lines = windows(found, at)
    console = out()
    for answer in study_lines(found, format_timestamp(at)):
        print_next(answer)
    if not lines:
        console.print("no window was sealed yet; next: tasc study new, then tasc seal STUDY", markup=False)
        return
    table = Table("window", "stage", "executions", "window ends", "plan expires", "verdict")
    for line in lines:
        planned = sum(line.counts.values())
        counts = (
            f"{planned} = " + " + ".join(f"{count} {state}" for state, count in line.counts.items() if count)
            if planned
            else ""
        )
        table.add_row(line.window_key, line.stage, counts, line.ends_at, line.expires_at or "", line.verdict or "")
    console.print(table)
    for line in lines:
        if line.owner:
            console.print(f"{line.window_key}: its journal is in use by {line.owner}", markup=False)
        if line.problem:
            console.print(f"{line.window_key}: {line.problem}", markup=False)
        if line.next_command:
            console.print(f"next: {line.next_command}", markup=False)
