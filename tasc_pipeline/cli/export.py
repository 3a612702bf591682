"""``tasc export traces`` and ``tasc privacy-scan``: what leaves, and proof of what does not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import InputError
from tasc_pipeline.cli.common import EXIT_FAILED, home, now, say
from tasc_pipeline.cli.show_progress import terminal_progress
from tasc_pipeline.steps.export import export_traces
from tasc_pipeline.steps.privacy import page, search


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="Write records for other tools.")
    group.command("traces")(traces)
    app.add_typer(group, name="export")
    app.command("privacy-scan")(privacy_scan)


def traces(
    window_key: Annotated[str, typer.Argument(help="Key of the sealed window.")],
    to: Annotated[Path | None, typer.Option("--out", help="File; standard output if not given.")] = None,
) -> None:
    """Write the accepted trace envelopes of a window as canonical NDJSON."""
    if to is not None and to.exists():
        raise InputError("this file exists", where=str(to), way_out="choose another name, or remove it")
    with terminal_progress():
        lines = list(export_traces(home(), window_key))
    if to is None:
        sys.stdout.buffer.writelines(lines)
        return
    to.write_bytes(b"".join(lines))
    say(f"{len(lines)} envelopes written to {to}")


def privacy_scan(
    needles: Annotated[
        Path, typer.Option(help="File with one text per line that must not be found, of at least 8 characters.")
    ],
    leave_out: Annotated[
        list[Path] | None, typer.Option(help="File that may hold them, such as your cases; may be repeated.")
    ] = None,
) -> None:
    """Search the whole state folder for texts that must not be in it, in every form in which they could be written.

    Prints a page for a security team. Parquet, DuckDB, SQLite and gzip files are searched decoded.
    """
    if not needles.is_file():
        raise InputError(
            "there is no such file", where=str(needles), field="--needles", way_out="write one text per line into it"
        )
    texts = [line for line in needles.read_text(encoding="utf-8").splitlines() if line.strip()]
    found = home()
    with terminal_progress():
        result = search([found.root], texts, leave_out=[needles, *(leave_out or ())])
    sys.stdout.write(page(result, found.root, searched_at=format_timestamp(now())))
    if not result.clean:
        raise typer.Exit(EXIT_FAILED)
