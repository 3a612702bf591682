from __future__ import annotations

import math
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tasc_collector.errors import InputError
from tasc_pipeline.cli import power
from tasc_pipeline.home.windows import WindowFolder
from tasc_pipeline.steps import assess, close, collect, publish
from tests.support.window import World, world

pytestmark = pytest.mark.usefixtures("undrawn")


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
    assert "A recurring study of 40 groups a window shows it in 6" in " ".join(result.stdout.split())


def test_what_lies_beyond_the_margin_is_refused_with_the_way_out() -> None:
    result = _run("--margin", "1.05", "--ratio", "1.06")
    assert isinstance(result.exception, InputError)
    assert result.exception.way_out == "expect a smaller --ratio, or allow a larger --margin"


def _assessed(found: World) -> str:
    key = found.approved_window()
    collect.collect(found.home, key, show=lambda _: None)
    publish.publish(found.home, key)
    close.close(found.home, key)
    assess.assess(found.home, key)
    return key


def test_a_studys_own_windows_say_what_its_margins_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world(tmp_path, cases=8, replicates=2, failure_margin=0.1) as found:
        monkeypatch.setenv("TASC_HOME", str(found.home.root))
        refused = _run("first").exception
        assert isinstance(refused, InputError)
        assert (refused.what, refused.way_out) == (
            "no window of this study was assessed",
            "assess one, or leave the study out and give --between and --within",
        )
        keys = [_assessed(found) for _ in range(2)]
        reports = [WindowFolder(found.home, key).report().record for key in keys]
        result = _run("first", "--groups", "20", "--chance", "0.9")
    errors = [
        figure.standard_error
        for report in reports
        for figure in report.comparisons[0].summary.figures
        if (figure.metric, figure.statistic) == ("ttft", "median")
    ]
    spread = math.sqrt(8 * (errors[0] ** 2 + errors[1] ** 2) / 2)
    # 1.959964 + 1.281552 standard errors within ln 1.1 = 0.0953102, and never below six groups
    groups = max(math.ceil((3.241516 * spread / 0.0953102) ** 2), 6)
    lines = [line.split() for line in result.stdout.replace("│", " ").splitlines()]
    [ttft] = [line for line in lines if line[:2] == ["TTFT", "median"]]
    assert ttft[2:5] == ["1.10", f"{spread:.3f}", str(groups)]
    text = " ".join(result.stdout.split())
    assert "spreads from 2 assessed windows of this study" in text
    # 0.9 ** 42 is below the 0.0125 that two sides and two kinds of gambler leave, 0.9 ** 41 is not
    assert "failure rates: 42 case groups show a difference within 10.0%" in text
    assert "A recurring study of 20 groups a window shows it in 3" in text
