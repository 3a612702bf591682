"""What every command shares: the home, the clock, saying things, and turning errors into one message and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

import typer
from rich.console import Console

from tasc_collector.errors import InputError, JournalError, TascError, WireError
from tasc_compute.errors import ComputeError
from tasc_pipeline.home import Home, default_home

EXIT_FAILED, EXIT_USAGE, EXIT_REFUSED, EXIT_OUTPUT, EXIT_INTERRUPTED = 1, 2, 3, 4, 130


def home() -> Home:
    """The state folder, checked; ``InputError`` where there is none."""
    found = default_home()
    found.check()
    return found


def now() -> datetime:
    """The wall clock, UTC."""
    return datetime.now(UTC)


PLAIN_WIDTH = 160
"""Columns of a table where nobody looks at a terminal: a file or pipe has no width of its own."""


def _fold(item: object) -> None:
    from rich.table import Table

    for column in item.columns if isinstance(item, Table) else ():
        column.overflow = "fold"


def out() -> Console:
    """Standard output: results."""
    return _Console(sys.stdout)


def err() -> Console:
    """Standard error: progress and refusals."""
    return _Console(sys.stderr)


class _Console(Console):
    """Text as it is: brackets and colons of names that others chose are no markup and no emoji, and nothing is cut."""

    def __init__(self, stream: TextIO) -> None:
        width = None if stream.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH
        super().__init__(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True, width=width)

    def print(self, *objects: Any, **options: Any) -> None:  # Any: whatever rich prints, and how
        """As rich does, but a long word in a table goes on in the next line: keys and digests are there to be copied."""
        for item in objects:
            if not isinstance(item, str):
                _fold(item)
        super().print(*objects, **options)

    def on_broken_pipe(self) -> None:
        """Leave the end to ``run_guarded``; rich would exit with 1."""
        raise BrokenPipeError


def say(text: str) -> None:
    """One line of progress."""
    err().print(text, markup=False)


def run_guarded(command: Callable[[], object]) -> int:
    """Run a command; one of our errors becomes one message and its exit code."""
    try:
        code = _code_of(command)
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader of a pipe has gone (`tasc sql ... | head`): not an error of ours
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _code_of(command: Callable[[], object]) -> int:
    try:
        command()
    except (InputError, WireError) as error:
        return _refuse(error, EXIT_REFUSED)
    except (TascError, ComputeError) as error:
        return _refuse(error, EXIT_FAILED if not isinstance(error, JournalError) else EXIT_OUTPUT)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        say("interrupted")
        return EXIT_INTERRUPTED
    except typer.Exit as exit_:
        return exit_.exit_code
    except OSError as error:
        say(
            f"refused: the system said: {os.strerror(error.errno or 0).lower()} -> make room or give access, then run the command again"
        )
        return EXIT_OUTPUT
    return 0


def _refuse(error: Exception, code: int) -> int:
    err().print(f"refused: {error}", markup=False)
    return code
