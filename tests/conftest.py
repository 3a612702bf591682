"""Rules for every test: no socket but loopback, no proxy, no telemetry; data by others comes from the shared folder."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")
SHARED = Path(__file__).resolve().parents[2] / "shared"


REQUIRED = ("live", "ui")
"""Marks of tests that may skip on a person's machine and not in CI, which installs what they need (`.ci/run`)."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With ``TASC_REQUIRE`` set, a test of ``REQUIRED`` that skips is a failure with the reason."""
    report = yield
    if report.skipped and os.environ.get("TASC_REQUIRE") and any(item.get_closest_marker(name) for name in REQUIRED):
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be absent: {report.longreprtext or report.longrepr}"
    return report


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of conformance data beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip("the folder 'shared' with conformance data is not beside the checkout")
    return SHARED


@pytest.fixture(autouse=True)
def only_loopback(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Refuse every connection that is not to this machine."""
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def checked(address: object) -> None:
        if isinstance(address, tuple) and str(address[0]) not in ("127.0.0.1", "::1", "localhost"):
            raise AssertionError("a test tried to leave this machine")

    def guarded(self: socket.socket, address: object) -> None:
        checked(address)
        connect(self, address)  # type: ignore[arg-type]

    def guarded_ex(self: socket.socket, address: object) -> int:
        checked(address)
        return connect_ex(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", guarded)
    monkeypatch.setattr(socket.socket, "connect_ex", guarded_ex)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    yield


@pytest.fixture(autouse=True)
def no_context_left_open() -> Iterator[None]:
    """Fail the test that leaves a Dagster context open.

    Dagster keeps the storage of the newest open instance in a variable of the process. After a context that nobody
    closed it stays there, and once that instance is collected every later test that resolves definitions fails.
    """
    yield
    states = sys.modules.get("dagster._core.storage.defs_state.base")
    if states is not None and states._current_storage.get() is not None:
        states._current_storage.set(None)
        raise AssertionError("a Dagster context was left open -> build it in a with statement")
