"""Counts of the crash suites, printed at the end of the run; how many points a run takes, and takes at least."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.crash_floors import is_whole, missed

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


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A whole run that counted less than it promises fails; parallel workers leave that to their controller."""
    if exitstatus == pytest.ExitCode.OK and not hasattr(session.config, "workerinput") and _shortfall(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was counted, and what is missing of it."""
    for name, number in sorted(_totals(terminalreporter).items()):
        terminalreporter.write_line(f"crash suites: {number:>7} {name}")
    for line in _shortfall(terminalreporter.config):
        terminalreporter.write_line(f"crash suites: too few points: {line}", red=True)


def _shortfall(config: pytest.Config) -> list[str]:
    """What a whole run fell short of; nothing where only a part was selected, or the first failures may end it."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    option, start = config.option, config.invocation_params.dir
    if reporter is None or option.collectonly or config.getoption("lf", False) or option.deselect or option.maxfail:
        return []
    if not is_whole(Path(__file__).parent, start, config.args, marked=option.markexpr, keyword=option.keyword):
        return []
    return missed(_totals(reporter), full=FULL, tools={tool for tool in ("strace",) if shutil.which(tool)})


def _totals(terminalreporter: pytest.TerminalReporter) -> Counter[str]:
    totals: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, number in getattr(report, "user_properties", []):
                if name.startswith(_PREFIX) and isinstance(number, int):
                    totals[name.removeprefix(_PREFIX)] += number
    return totals
