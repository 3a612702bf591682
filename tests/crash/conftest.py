"""Counts of the crash suites, printed at the end of the run; how many points a run takes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest

FULL = os.environ.get("TASC_CRASH_FULL") == "1"
_PREFIX = "crash count: "


@pytest.fixture
def count(record_property: Callable[[str, object], None]) -> Callable[[str, int], None]:
    """Add to a named count of the run's summary; it reaches the summary from parallel workers too."""
    return lambda name, number: record_property(_PREFIX + name, number)


@pytest.fixture(scope="session")
def full() -> bool:
    """Whether every point is wanted (``make test-crash FULL=1``) and not a sample."""
    return FULL


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was counted."""
    totals: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, number in getattr(report, "user_properties", []):
                if name.startswith(_PREFIX) and isinstance(number, int):
                    totals[name.removeprefix(_PREFIX)] += number
    for name, number in sorted(totals.items()):
        terminalreporter.write_line(f"crash suites: {number:>7} {name}")
