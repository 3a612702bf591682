"""The command tree. Each module of this package registers its own commands."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

import typer

from tasc_pipeline.cli.common import EXIT_USAGE, run_guarded

_MODULES: Final = (
    "setup",
    "demo",
    "study",
    "window",
    "status",
    "sql",
    "export",
    "wire",
    "runtimes",
    "endpoints",
    "probe",
    "contract_server",
    "engines",
    "devices",
    "smoke",
    "power",
)
"""Modules of this package, in the order in which help shows their commands."""


def build() -> typer.Typer:
    """The whole command tree."""
    app = typer.Typer(
        name="tasc",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help="Compare model servers in sealed windows, keep signed raw-free evidence, and read it in Dagster and DuckDB.",
    )
    for name in _MODULES:
        import_module(f"tasc_pipeline.cli.{name}").register(app)
    return app


def main() -> None:
    """Entry point of the ``tasc`` command."""
    command = typer.main.get_command(build())
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
    if isinstance(result, int) and result:
        raise typer.Exit(result)
