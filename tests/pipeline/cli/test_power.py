from __future__ import annotations

import typer
from typer.testing import CliRunner

from tasc_collector.errors import InputError
from tasc_pipeline.cli import power


def _run(*words: str):
    app = typer.Typer()
    app.callback()(lambda: None)
    power.register(app)
    return CliRunner().invoke(app, ["power", *words])


def test_a_guess_says_groups_calls_and_windows() -> None:
    # replicates 2: 1.2533 * sqrt(0.01 + 0.04) = 0.2802; (2.801585 * 0.2802 / ln 1.1)^2 = 67.9;
    # windows of 40 groups: error 0.0443, times (radius(t) + 0.8416 / sqrt(t)) below 0.0953: 0.103 at t = 3, 0.088 at 4
    result = _run("--between", "0.1", "--within", "0.2", "--groups", "40")
    lines = [line.split() for line in result.stdout.replace("│", " ").splitlines()]
    assert ["2", "68", "136", "4"] in lines
    assert "failure rates: 217 case groups show a difference within 2.0%" in result.stdout


def test_what_lies_beyond_the_margin_is_refused_with_the_way_out() -> None:
    result = _run("--margin", "1.05", "--ratio", "1.06")
    assert isinstance(result.exception, InputError)
    assert result.exception.way_out == "expect a smaller --ratio, or allow a larger --margin"
