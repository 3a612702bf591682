"""``tasc study new | fork``: two URLs and a file of prompts become a study; a study becomes its successor."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tasc_collector.contracts.comparison import Comparison
from tasc_collector.errors import InputError
from tasc_pipeline.cli.common import home, now, out
from tasc_pipeline.control.estimates import study_time_text
from tasc_pipeline.control.power import study_notes
from tasc_pipeline.home.studies import load_study
from tasc_pipeline.steps.admission import conditional_routes
from tasc_pipeline.steps.decision_answers import read_answers
from tasc_pipeline.steps.fork_study import fork_study
from tasc_pipeline.steps.new_study import FAILURE_MARGIN, NewStudy, Server, StudyOutcome, new_study


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help="Studies: what is compared with what.")
    group.command("new")(new)
    group.command("fork")(fork)
    app.add_typer(group, name="study")


def new(
    champion: Annotated[str, typer.Option(help="Origin of the server that serves your users today.")],
    candidate: Annotated[list[str], typer.Option(help="Origin of a server that might; may be repeated.")],
    prompts: Annotated[
        Path, typer.Option(help="Text lines, OpenAI messages, OpenAI batch lines or our own case lines.")
    ],
    study: Annotated[str, typer.Option(help="Id of the new study.")] = "first",
    owner: Annotated[str, typer.Option(help="Who answers for it.")] = "",
    route: Annotated[str | None, typer.Option(help="Route, such as completions; chosen if not given.")] = None,
    stream: Annotated[bool, typer.Option(help="Stream the answers.")] = True,
    replicates: Annotated[int, typer.Option(min=1, help="How often each prompt is sent to each server.")] = 2,
    concurrency: Annotated[int, typer.Option(min=1, help="Pairs in flight.")] = 4,
    max_tokens: Annotated[int, typer.Option(min=1, help="Output tokens per answer at most.")] = 64,
    margin: Annotated[float, typer.Option(help="Largest latency ratio that still counts as no worse.")] = 1.10,
    failure_margin: Annotated[
        float | None,
        typer.Option(
            min=0.0001,
            max=0.9999,
            help=f"Largest difference of failure rates that is no worse, of a comparison; {FAILURE_MARGIN} if not given.",
        ),
    ] = None,
    recurring: Annotated[
        bool,
        typer.Option(help="Look at every window of a comparison: intervals that stay right over all of them together."),
    ] = False,
    overlap: Annotated[bool, typer.Option(help="Send both of a pair at once instead of one after the other.")] = False,
    champion_runtime: Annotated[str | None, typer.Option(help="Declare instead of observe.")] = None,
    champion_build: Annotated[str | None, typer.Option()] = None,
    champion_model: Annotated[str | None, typer.Option()] = None,
    champion_secret: Annotated[str | None, typer.Option(help="env:NAME or keyfile:NAME.")] = None,
    candidate_runtime: Annotated[str | None, typer.Option()] = None,
    candidate_build: Annotated[str | None, typer.Option()] = None,
    candidate_model: Annotated[str | None, typer.Option()] = None,
    candidate_secret: Annotated[str | None, typer.Option()] = None,
    decision: Annotated[
        bool, typer.Option("--decision", help="A decision study: protocol, policies, gates, external scores.")
    ] = False,
    answers: Annotated[Path | None, typer.Option(help="TOML file with what a decision study asks.")] = None,
    answer: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="One answer; wins over the file; may be repeated.")
    ] = None,
) -> None:
    """Write a study: a comparison, or with --decision a decision study. Only passive requests are made."""
    found = home()
    if not decision and (answers is not None or answer):
        raise InputError(
            "a comparison asks nothing", where="tasc study new", field="--answers", way_out="add --decision"
        )
    wanted = NewStudy(
        study_id=study,
        owner=owner or getpass.getuser(),
        champion=Server(champion, champion_runtime, champion_build, champion_model, champion_secret),
        candidates=tuple(
            Server(url, candidate_runtime, candidate_build, candidate_model, candidate_secret) for url in candidate
        ),
        prompts=prompts,
        route=route,
        stream=stream,
        replicates=replicates,
        concurrency=concurrency,
        maximum_output_tokens=max_tokens,
        margin=margin,
        failure_margin=failure_margin,
        recurring=recurring,
        overlap=overlap,
        answers=read_answers(answers, answer or ()) if decision else None,
    )
    print_study(new_study(found, wanted, now()))
    needed = conditional_routes(found, load_study(found, study))
    console = out()
    for profile_id, command in needed.items():
        console.print(f"{profile_id}: this route is conditional; admit it with: {command}", markup=False)
    console.print(f"next: {'tasc controller show' if decision else 'tasc seal'} {study}", markup=False)


def fork(
    study: Annotated[str, typer.Argument(help="Id of the study that the new one goes on from.")],
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="What changes, such as champion.build=0.33.0; may be repeated."
        ),
    ] = None,
    successor: Annotated[
        str | None, typer.Option("--study", help="Id of the successor; numbered if not given.")
    ] = None,
) -> None:
    """Write the successor of a study: the same but for what --set names. Nothing is asked of any server."""
    found = home()
    outcome = fork_study(found, study, set_ or (), now(), successor=successor)
    table = Table("changed", "before", "after")
    for change in outcome.fork.changes:
        table.add_row(change.field, change.before or "", change.after or "")
    console = out()
    console.print(table)
    console.print(f"written: {outcome.folder}", markup=False)
    console.print(f"next: tasc seal {outcome.fork.study_id}", markup=False)


def print_study(outcome: StudyOutcome) -> None:
    """What was found out about each server, and what the study may cost."""
    table = Table("profile", "runtime", "build", "model", "revision")
    for profile_id, found in outcome.found:
        values = (found.runtime, found.build, found.model_id, found.model_revision)
        table.add_row(
            profile_id, *("unknown" if value is None else f"{value.value} ({value.basis})" for value in values)
        )
    console = out()
    console.print(table)
    study, calls = outcome.study, outcome.calls
    target = study.targets[0]
    console.print(
        f"{outcome.cases} cases x {outcome.replicates} replicates x {len(outcome.found)} profiles = {calls} calls, "
        f"at most {calls * study.generation.maximum_output_tokens} output tokens, route {target.route} ({target.framing})",
        markup=False,
    )
    console.print(study_time_text(study, calls, len(outcome.found)), markup=False)
    if isinstance(outcome.rules, Comparison):
        for note in study_notes(outcome.groups, outcome.rules.margins, outcome.rules.rule):
            console.print(note, markup=False)
    console.print(f"written: {outcome.folder}", markup=False)
