"""``tasc sql``, ``tasc report`` and ``tasc show``: what an analyst and a reader use. They only read."""

from __future__ import annotations

import shutil
import subprocess
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tasc_collector.errors import InputError, TascError
from tasc_collector.signing import PublicKey
from tasc_pipeline.cli.common import home, out, say
from tasc_pipeline.cli.show_progress import terminal_progress
from tasc_pipeline.home import default_home
from tasc_pipeline.home.files import write_file
from tasc_pipeline.home.keys import read_ring
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.windows import window_folder
from tasc_pipeline.steps.watch import counted
from tasc_pipeline.warehouse import sql
from tasc_pipeline.warehouse.database import SQL_FILE, Session, connect
from tasc_pipeline.warehouse.manifests import verify_parts
from tasc_pipeline.warehouse.side_by_side import load_pair, render_pair
from tasc_pipeline.warehouse.window_report import render_window

HTML_REPORT = "report.html"

Query = Annotated[str | None, typer.Argument(help="SQL, or @name of a question. Without it a prompt opens.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Write all rows as CSV to standard output.")]
ToParquet = Annotated[Path | None, typer.Option("--parquet", help="Write all rows to this Parquet file.")]
OneWindow = Annotated[str | None, typer.Option("--window", help="Ask a named question about this window only.")]
ListQuestions = Annotated[bool, typer.Option("--list", help="List the named questions.")]
Verify = Annotated[bool, typer.Option("--verify", help="Check every byte and signature of the warehouse.")]
WindowKey = Annotated[str, typer.Argument(help="Window key.")]
CaseId = Annotated[str, typer.Argument(help="Case id.")]
Replicate = Annotated[int, typer.Option("--replicate", min=0, help="Which repetition, from 0.")]
AllEvents = Annotated[bool, typer.Option("--all", help="Show all token events.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the report as Markdown.")]
Open = Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("sql")(sql_command)
    app.command("report")(report_command)
    app.command("show")(show_command)


def sql_command(
    query: Query = None,
    as_csv: AsCsv = False,
    parquet: ToParquet = None,
    window: OneWindow = None,
    list_questions: ListQuestions = False,
    verify: Verify = False,
) -> None:
    """Ask the warehouse: a table, CSV, a Parquet file, or a DuckDB prompt."""
    if list_questions:
        out().print(_question_table())
        return
    if as_csv and parquet is not None:
        raise InputError("one result has one form", field="--csv", way_out="choose --csv or --parquet")
    state = default_home()  # reading works in a copied folder too, so nothing else of it is asked for
    if verify:
        _verify(state)
        return
    if query is None and sys.stdin.isatty():
        _prompt(state)
        return
    text = query if query is not None else sys.stdin.read()
    with connect(state.root) as session:
        if window is not None:
            _check_window(session, text, window)
        if parquet is not None:
            rows = sql.write_parquet(session, text, parquet, window_key=window)
            say(f"{rows} rows written to {parquet}")
        elif as_csv:
            sql.write_csv(sql.ask(session, text, window_key=window), sys.stdout)
        else:
            _print(session, text, window)


def report_command(window_key: WindowKey, markdown: Markdown = False, open_page: Open = True) -> None:
    """Write a window's report and open it."""
    state = home()
    folder = window_folder(state, window_key)
    rendered = render_window(state.root, folder.report().record)
    if markdown:
        sys.stdout.write(rendered.markdown)
        return
    page = folder.path / HTML_REPORT
    write_file(page, rendered.html.encode(), replace=True)
    out().print(str(page), markup=False)
    if open_page and sys.stdout.isatty():
        webbrowser.open(page.as_uri())


def show_command(
    window_key: WindowKey, case_id: CaseId, replicate: Replicate = 0, all_events: AllEvents = False
) -> None:
    """Show both token timelines of a pair side by side."""
    with connect(default_home().root) as session:
        sides = load_pair(session, window_key, case_id, replicate=replicate)
    out().print(render_pair(sides, limit=None) if all_events else render_pair(sides))


def _check_window(session: Session, text: str, key: str) -> None:
    """A question about a window that is not there has an empty answer, which reads like a result."""
    if not text.startswith("@") and "getvariable('window_key')" not in text:
        raise InputError(
            "this query does not ask about one window",
            field="--window",
            rule="for named questions, and for SQL that says getvariable('window_key')",
            way_out="write the window into the query: WHERE window_key = 'KEY'",
        )
    tables = ("traces", "windows", "decisions")  # a revision has no traces of its own
    published = " UNION ALL ".join(
        f"(SELECT 1 FROM {name} WHERE window_key = $key LIMIT 1)"  # noqa: S608 - names of ours
        for name in tables
    )
    if not session.execute(published, {"key": key}).fetchall():
        known = session.execute("SELECT DISTINCT window_key FROM windows ORDER BY ALL DESC LIMIT 3").fetchall()
        raise InputError(
            "nothing is published for this window",
            where=key,
            way_out=f"choose one of {', '.join(name for (name,) in known)}" if known else "see: tasc status",
        )


def _print(session: Session, text: str, window_key: str | None) -> None:
    table, more = sql.terminal_table(sql.ask(session, text, window_key=window_key))
    out().print(table)
    if more:
        say(f"the first {sql.SHOWN_ROWS} rows; all of them: add --csv or --parquet FILE")


def _prompt(state: Home) -> None:
    shell = shutil.which("duckdb")
    if shell is not None and (state.root / SQL_FILE).is_file():
        subprocess.run([shell, "-init", SQL_FILE], cwd=state.root, check=False)
        return
    with connect(state.root) as session:
        say("DuckDB on the views. End a query with ; - ask @latency, list questions with @, leave with Ctrl-D.")
        lines: list[str] = []
        while True:
            try:
                lines.append(input("tasc> " if not lines else "  ... "))
            except EOFError:
                return
            text = "\n".join(lines).strip()
            if not text or (not text.startswith("@") and not text.endswith(";")):
                continue
            lines = []
            try:
                if text == "@":
                    out().print(_question_table())
                else:
                    _print(session, text, None)
            except TascError as error:
                say(str(error))


def _question_table() -> Table:
    table = Table("question", "asks", show_edge=False, pad_edge=False)
    for question in sql.questions():
        table.add_row(f"@{question.name}", question.title)
    return table


def _verify(state: Home) -> None:
    ring = read_ring(state)
    keys = {key.key_id: PublicKey.from_spki(key.public_key_spki) for key in ring.keys if key.role == "collector"}
    with terminal_progress():
        checked = verify_parts(state.warehouse, keys=keys, watch=counted)
    out().print(f"{checked} parts: every byte and signature is what was published")
