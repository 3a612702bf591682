"""The command tree. Each module of this package registers its own commands.

Only the module of the command that was asked for is imported: reading help or a refusal must not wait for libraries that
the command does not use. ``MODULES`` therefore says what each module registers, and its line of help.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Final

import typer

from tasc_collector.startup import begin_process
from tasc_pipeline.cli.common import EXIT_USAGE, run_guarded

MODULES: Final[Mapping[str, Mapping[str, str]]] = {
    "setup": {
        "init": "Make the state folder (TASC_HOME, default .tasc), or repair what is missing in it.",
        "ui": "Open Dagster's web server and daemon on the state folder, bound to loopback.",
        "validate": "Check record files of any kind: schema, cross-field rules, own digest.",
    },
    "demo": {"demo": "Set up, compare two servers in one sealed window, and print the verdict."},
    "study": {"study": "Studies: what is compared with what."},
    "window": {
        "seal": "Declare a window: bounds, membership and watermark are fixed before anything is collected.",
        "plan": "Issue a window's collection plan, approve it by its digest, or show what it may cost.",
        "collect": "Collect an approved window without Dagster, or finish it; then publish and close it.",
        "settle": "Give every lease without an outcome its state (sent_unknown).",
        "verify": "Check everything a window left: journal chain and MACs, signatures, counts, published parts; "
        "says what it proved.",
        "assess": "Assess a closed window and write its report.",
    },
    "controller": {"controller": "The state of a decision study: what it is, and what may come next."},
    "keys": {"keys": "Public keys with role, validity and revocation."},
    "launch": {
        "launch": "Queue a run of the Dagster job shadow_window for a window, or its resume; needs a daemon (tasc ui).",
        "notices": "List what was told: changes of verdict, low coverage, missing windows, failed runs.",
    },
    "status": {"status": "Show all windows and what to do next with each."},
    "sql": {
        "sql": "Ask the warehouse: a table, CSV, a Parquet file, or a DuckDB prompt.",
        "report": "Write a window's report and open it.",
        "show": "Show both token timelines of a pair side by side.",
    },
    "export": {
        "privacy-scan": "Search the whole state folder for texts that must not be in it, "
        "in every form in which they could be written.",
        "export": "Write records for other tools.",
    },
    "evidence": {"evidence": "Scores that were made elsewhere: sign them, take them in."},
    "file_study": {
        "assess-files": "Assess a decision study from files alone: import, join, decisions, controller, next experiment."
    },
    "wire": {"wire": "Read captured bytes as the collector would."},
    "runtimes": {"runtimes": "Registered runtimes and what their pinned builds can do."},
    "endpoints": {
        "egress": "Print every name, network and port that the studies can reach: "
        "as a table, for systemd, or for Kubernetes.",
        "endpoints": "Endpoints of a study: what would be allowed, and why.",
    },
    "authorize": {"authorize": "Standing authorizations: what may run when nobody is there."},
    "probe": {"probe": "Observe one capability of one endpoint; print and store the signed receipt."},
    "contract_server": {"contract-server": "Run one contract server until Ctrl-C."},
    "engines": {"engines": "Plan, launch, list and stop engines on this host."},
    "devices": {"devices": "Show this host's accelerators, memory, disks and sensors."},
    "smoke": {
        "smoke": "Make one bounded call to a real endpoint, or without variables six contacts to contract servers."
    },
    "power": {
        "power": "Say how many case groups show that a candidate is no worse, "
        "from a study's earlier windows or from a guess."
    },
}
"""Modules of this package in the order in which help shows them; of each, its commands and the first line of their help."""


def build(word: str | None = None) -> typer.Typer:
    """The command tree.

    Args:
        word: the command that was asked for; where it is one, only its module is imported. For any other word the tree
            holds every command's name and line of help, enough to list them and to refuse a wrong one. Without a word
            the whole tree is built.
    """
    app = typer.Typer(
        name="tasc",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help="Compare model servers in sealed windows, keep signed raw-free evidence, and read it in Dagster and DuckDB.",
    )
    app.callback()(_root)
    wanted = [name for name, commands in MODULES.items() if word is None or word in commands]
    for name in wanted:
        import_module(f"tasc_pipeline.cli.{name}").register(app)
    if not wanted:
        for commands in MODULES.values():
            for command, line in commands.items():
                app.command(command, help=line)(_root)
    return app


def _root() -> None:
    pass


def main() -> None:
    """Entry point of the ``tasc`` command."""
    begin_process(os.environ)
    word = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    command = typer.main.get_command(build(word))
    code = run_guarded(lambda: _run(command))
    sys.exit(code)


def _run(command: object) -> None:
    from click.exceptions import Abort, ClickException

    try:
        result = command.main(standalone_mode=False)  # type: ignore[attr-defined]  # a click command
    except ClickException as error:
        error.show()
        raise typer.Exit(EXIT_USAGE) from None
    except Abort:
        raise KeyboardInterrupt from None
    except SystemExit:  # click's own answer to a pipe whose reader has gone
        raise BrokenPipeError from None
    if isinstance(result, int) and result:
        raise typer.Exit(result)
