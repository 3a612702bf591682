"""``tasc demo``: the main job with no further question, on contract servers or (``--live``) on real engines."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tasc_collector.errors import InputError
from tasc_collector.runtimes.profile import Route
from tasc_pipeline.cli.common import EXIT_INTERRUPTED, now, out, say
from tasc_pipeline.cli.show_progress import terminal_progress
from tasc_pipeline.cli.tables import print_assessment
from tasc_pipeline.demo import flow, servers
from tasc_pipeline.home import Home, default_home
from tasc_pipeline.home.files import make_folder
from tasc_pipeline.home.setup import init_home
from tasc_pipeline.steps.assess import report_path
from tasc_pipeline.steps.new_study import NewStudy, Server
from tasc_pipeline.warehouse.database import build_views

STUDY, LIVE_STUDY, CHAT_STUDY = "demo", "demo-live", "demo-chat"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    live: Annotated[
        bool, typer.Option("--live", help="Real engines: two llama.cpp servers, then a chat window against MLX-LM.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_534,
            help=f"First of two ports on loopback; 0 for any two that are free. Without it {servers.CHAMPION.port}, or "
            "any where that is in use. A study that is there keeps its ports.",
            show_default=False,
        ),
    ] = None,
    prompts: Annotated[Path | None, typer.Option(help="Prompts instead of the example's.")] = None,
    answer_prefix: Annotated[
        str, typer.Option(help="Put before every answer of the contract servers; for privacy tests.", hidden=True)
    ] = "",
) -> None:
    """Set up, compare two servers in one sealed window, and print the verdict. Run again to finish or to add a window."""
    home = default_home()
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")
    init_home(home, now(), say)
    build_views(home.root, clock=now)
    cases = prompts or flow.example_prompts()
    with ExitStack() as stack:
        studies = _live(stack, home, cases) if live else start_contract_servers(stack, home, cases, port, answer_prefix)
        show = stack.enter_context(terminal_progress())
        windows = []
        for study in studies:
            window = flow.run_window(home, study, say, show)
            if window is None:
                raise typer.Exit(EXIT_INTERRUPTED)
            windows.append(window)
    console = out()
    for key, report in windows:
        print_assessment(console, report)
        console.print(f"{'report':17} {report_path(home, key)}", markup=False)
    for name, text in (
        ("records", str(home.windows)),
        ("parquet", str(home.warehouse)),
        ("dagster instance", str(home.dagster)),
    ):
        console.print(f"{name:17} {text}", markup=False)
    for name, text in (
        ("open them with:", "make ui      (Dagster)"),
        ("", ".venv/bin/tasc sql      (DuckDB)"),
        ("", f".venv/bin/tasc report {windows[-1][0]}"),
    ):
        console.print(f"{name:17} {text}", markup=False)


def start_contract_servers(
    stack: ExitStack, home: Home, cases: Path, port: int | None, answer_prefix: str
) -> tuple[str, ...]:
    """Start the demo's two contract servers, and make their study where there is none.

    Args:
        stack: stops the servers at its end.
        home: the state folder.
        cases: prompts of a new study.
        port: the first of two; 0 for any two that are free, None for the demo's own, or any where they are in use.
        answer_prefix: put before every answer.

    Returns:
        The studies to collect a window of.

    Raises:
        InputError: a port that was asked for, or that the study keeps, is in use.
    """
    ledgers = home.root / "demo"
    make_folder(ledgers)
    kept = flow.ports_of(home, STUDY)
    first = servers.CHAMPION.port if port is None else port
    ports = kept or (first, first + 1 if first else 0)
    try:
        origins = stack.enter_context(servers.running(servers.pair(ports, answer_prefix), ledgers))
    except InputError:
        if kept or port is not None:
            raise
        say(f"port {ports[0]} or {ports[1]} is in use; taking two that are free")
        origins = stack.enter_context(servers.running(servers.pair((0, 0), answer_prefix), ledgers))
    champion, candidate = servers.CHAMPION.runtime, servers.CANDIDATE.runtime
    say(f"contract servers: {champion} at {origins['champion']}, {candidate} at {origins['candidate']}")
    flow.ensure_study(home, _wanted(STUDY, Server(origins["champion"]), Server(origins["candidate"]), cases), say)
    return (STUDY,)


def _live(stack: ExitStack, home: Home, cases: Path) -> tuple[str, ...]:
    from tasc_pipeline.demo import live

    engines = stack.enter_context(live.running(home, say))
    flow.ensure_study(home, _wanted(LIVE_STUDY, engines["champion"], engines["candidate"], cases), say)
    if live.CHAT not in engines:
        say("no chat window: MLX-LM is not installed -> run: make demo-live")
        return (LIVE_STUDY,)
    chat = _wanted(CHAT_STUDY, engines["champion"], engines[live.CHAT], cases)
    flow.ensure_study(home, replace(chat, route=Route.CHAT_COMPLETIONS, maximum_output_tokens=16), say)
    flow.admit_chat(home, CHAT_STUDY, say)
    return LIVE_STUDY, CHAT_STUDY


def _wanted(study: str, champion: Server, candidate: Server, cases: Path) -> NewStudy:
    return NewStudy(
        study_id=study,
        owner="demo",
        champion=champion,
        candidates=(candidate,),
        prompts=cases,
        maximum_output_tokens=32,
    )
