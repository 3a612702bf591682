"""``tasc smoke`` from the shell; endpoints and egress on a study without a home."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from tasc_collector.errors import InputError
from tasc_pipeline.cli import endpoints, smoke


def app_with(*modules: object) -> typer.Typer:
    app = typer.Typer()
    for module in modules:
        module.register(app)  # type: ignore[attr-defined]  # every module of the command line has it
    return app


@pytest.fixture
def operators_hands(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable that says that a machine is at the keyboard: there the smoke refuses first."""
    for name in ("CI", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("operators_hands")
def test_smoke_without_variables_makes_six_contacts() -> None:
    app = app_with(smoke)
    app.callback()(lambda: None)
    done = CliRunner().invoke(app, ["smoke"])
    assert done.exit_code == 0
    lines = done.stdout.strip().splitlines()
    assert len(lines) == 6
    assert all(line.endswith("ok") for line in lines)


@pytest.mark.usefixtures("operators_hands")
def test_smoke_with_a_partial_contract_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASC_LIVE_SMOKE_ENDPOINT", "https://api.example.com")
    app = app_with(smoke)
    app.callback()(lambda: None)
    done = CliRunner().invoke(app, ["smoke"])
    assert isinstance(done.exception, InputError)
    assert "missing" in str(done.exception)


def test_egress_and_check_without_a_state_folder_say_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("TASC_HOME", f"{tmp_path}/absent")
    app = app_with(endpoints)
    for words in (["egress"], ["endpoints", "check"]):
        done = CliRunner().invoke(app, words)
        assert isinstance(done.exception, InputError)
        assert done.exception.way_out
