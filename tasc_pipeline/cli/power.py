"""``tasc power``: how many cases, replicates and windows a margin needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table

from tasc_collector.contracts.comparison import Comparison
from tasc_collector.errors import InputError
from tasc_pipeline.cli.common import home, out
from tasc_pipeline.control.power import (
    Spread,
    Wanted,
    failure_groups_needed,
    groups_needed,
    guessed_spread,
    spreads_of,
    windows_needed,
)
from tasc_pipeline.control.sentences import NAMES
from tasc_pipeline.home.studies import load_study
from tasc_pipeline.steps.earlier import earlier_windows

_REPLICATES = (1, 2, 3, 5, 10)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("power")(power)


def power(
    study: Annotated[
        str | None, typer.Argument(help="A study whose earlier windows say how much latencies vary.")
    ] = None,
    margin: Annotated[float, typer.Option(min=1.0001, max=10, help="Largest ratio that is no worse.")] = 1.10,
    ratio: Annotated[float, typer.Option(min=0.01, max=10, help="Candidate over champion that you expect.")] = 1.0,
    between: Annotated[
        float, typer.Option(min=0, max=5, help="Guess: relative spread of the ratio between cases.")
    ] = 0.10,
    within: Annotated[float, typer.Option(min=0, max=5, help="Guess: relative spread of a repeated call.")] = 0.20,
    failure_margin: Annotated[
        float, typer.Option(min=0.0001, max=0.9999, help="Largest difference of failure rates.")
    ] = 0.02,
    failure_rate: Annotated[
        float, typer.Option(min=0, max=0.5, help="Failure rate that you expect on both sides.")
    ] = 0.0,
    groups: Annotated[int, typer.Option(min=6, help="Case groups per window of a recurring study.")] = 100,
    confidence: Annotated[float, typer.Option(min=0.51, max=0.999, help="Of the two-sided interval.")] = 0.95,
    chance: Annotated[float, typer.Option(min=0.5, max=0.999, help="Chance of the verdict no-worse (power).")] = 0.8,
) -> None:
    """Say how many case groups show that a candidate is no worse, from a study's earlier windows or from a guess."""
    wanted = Wanted(confidence, chance, ratio)
    if study is None:
        if wanted.room(margin) <= 0:
            raise InputError(
                "a candidate that is beyond the margin cannot be shown to be within it",
                field="ratio",
                rule=f"below {margin:g}",
                way_out="expect a smaller --ratio, or allow a larger --margin",
            )
        _print_guess(margin, between, within, groups, wanted)
    else:
        rules, spreads = _measured(study)
        failure_margin, confidence = rules.margins.failure_rate_difference, rules.rule.confidence
        wanted = Wanted(confidence, chance, ratio)
        _print_measured(rules, spreads, groups, wanted)
    needed = failure_groups_needed(failure_margin, failure_rate, wanted)
    out().print(
        f"failure rates: {needed} case groups show a difference within {failure_margin:.1%} where both sides fail "
        f"{failure_rate:.1%} of the time; with fewer a window stays undecided or worse. A recurring study of {groups} "
        f"groups a window shows it in {math.ceil(needed / groups)}",
        markup=False,
    )


def _measured(study: str) -> tuple[Comparison, Sequence[Spread]]:
    state = home()
    loaded = load_study(state, study)
    if loaded.comparison is None:
        raise InputError(
            "this is a decision study; its power is that of its scores",
            where=study,
            way_out="name a comparison, or leave the study out and give --between and --within",
        )
    rules = loaded.comparison.record
    per_candidate = earlier_windows(state, rules.digest, complete=False)
    spreads = spreads_of([summary for summaries in per_candidate.values() for summary in summaries])
    if not spreads:
        raise InputError(
            "no window of this study was assessed",
            where=study,
            way_out="assess one, or leave the study out and give --between and --within",
        )
    return rules, spreads


def _print_measured(rules: Comparison, spreads: Sequence[Spread], groups: int, wanted: Wanted) -> None:
    table = Table("figure", "margin", "spread per group", "groups, one window", f"windows of {groups} groups")
    for spread in spreads:
        margin: float = getattr(rules.margins, f"{spread.metric}_ratio")
        table.add_row(
            f"{NAMES[spread.metric]} {spread.statistic}",
            f"{margin:.2f}",
            f"{spread.per_group:.3f}",
            _count(groups_needed(spread, margin, wanted)),
            _count(windows_needed(spread, margin, groups, wanted)),
        )
    out().print(table)
    out().print(
        f"spreads from {max(spread.windows for spread in spreads)} assessed windows of this study", markup=False
    )


def _print_guess(margin: float, between: float, within: float, groups: int, wanted: Wanted) -> None:
    table = Table("replicates", "groups, one window", "calls per profile", f"windows of {groups} groups")
    for replicates in _REPLICATES:
        spread = Spread("ttft", "median", guessed_spread(between, within, replicates), 0)
        needed = groups_needed(spread, margin, wanted)
        table.add_row(
            str(replicates),
            _count(needed),
            "never" if needed is None else str(needed * replicates),
            _count(windows_needed(spread, margin, groups, wanted)),
        )
    out().print(table)
    out().print("medians, from a guess; what a 95th percentile needs is known after a first window", markup=False)


def _count(value: int | None) -> str:
    return "never" if value is None else str(value)
