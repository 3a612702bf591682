"""``tasc authorize new|show|revoke``: the operator's word in advance, within ceilings, until it expires."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, get_args

import typer
from rich.table import Table

from tasc_collector.contracts.collection import Purpose, StandingAuthorization
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import InputError
from tasc_collector.runtimes.profile import Effect
from tasc_pipeline.cli.common import home, now, out
from tasc_pipeline.home.studies import study_ids
from tasc_pipeline.steps import authorize as authorizing
from tasc_pipeline.steps.authorize import Wanted

Study = Annotated[str, typer.Argument(help="Id of the study.")]
DAYS = 30
"""A new authorization is good for a month."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Standing authorizations: what may run when nobody is there.", no_args_is_help=True)
    group.command("new")(new)
    group.command("show")(show)
    group.command("revoke")(revoke)
    app.add_typer(group, name="authorize")


def new(
    study: Study,
    windows_per_day: Annotated[int, typer.Option(min=1, help="Windows on one UTC day.")],
    calls_per_day: Annotated[int, typer.Option(min=1, help="Inference calls on one UTC day, canaries included.")],
    output_tokens_per_day: Annotated[int, typer.Option(min=1, help="Output tokens on one UTC day, at most.")],
    windows_in_all: Annotated[
        int | None, typer.Option(min=1, help="Windows until it expires; thirty days' worth if not given.")
    ] = None,
    canary_calls_per_day: Annotated[
        int, typer.Option(min=0, help="Inference calls of canaries on one UTC day; needs --effect inference-canary.")
    ] = 0,
    cost_usd_per_day: Annotated[
        float | None, typer.Option(min=0.0, help="US dollars on one UTC day, by the study's cost model.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help=f"UTC, like 2026-12-31T00:00:00.000Z; {DAYS} days from now if not given.")
    ] = None,
    effect: Annotated[
        list[Effect] | None, typer.Option(help="Effect of probes that may be made; may be repeated.")
    ] = None,
    purpose: Annotated[
        list[str] | None, typer.Option(help="Purpose that may be collected; all of the study's kind if not given.")
    ] = None,
    authorization_id: Annotated[str | None, typer.Option("--id", help="Readable id; made if not given.")] = None,
) -> None:
    """Sign a standing authorization with the operator's key; print what it allows."""
    found, at = home(), now()
    effects = tuple(item.value for item in effect or ())
    if canary_calls_per_day and Effect.INFERENCE_CANARY.value not in effects:
        raise InputError(
            "a count of canary calls without their effect",
            where="--canary-calls-per-day",
            way_out="add --effect inference-canary, or leave the count out",
        )
    expires_at = expires or format_timestamp(at + timedelta(days=DAYS))
    ceilings = authorizing.ceilings(
        windows_per_day=windows_per_day,
        windows_in_all=windows_in_all or windows_per_day * DAYS,
        calls_per_day=calls_per_day,
        output_tokens_per_day=output_tokens_per_day,
        canary_calls_per_day=canary_calls_per_day,
        cost_usd_per_day=cost_usd_per_day,
    )
    made = authorizing.authorize(
        found, study, Wanted(ceilings, expires_at, authorization_id, _purposes(purpose or []), effects), at
    )
    print_authorization(made)
    others = [
        line.record.authorization_id
        for line in authorizing.lines(found, study, at)
        if line.problem is None and line.record.digest != made.digest
    ]
    if others:
        out().print(
            f"in force beside it: {', '.join(others)}; what they allow adds up. Revoke what it was meant to replace",
            markup=False,
        )
    out().print(f"take it back with: tasc authorize revoke {study} {made.authorization_id}", markup=False)


def show(
    study: Annotated[str | None, typer.Argument(help="Id of the study; every study if not given.")] = None,
) -> None:
    """Show authorizations, what is spent of each ceiling now, and whether one more window is allowed."""
    found, console, at = home(), out(), now()
    studies = [study] if study else [item for item in study_ids(found) if authorizing.has_authorization(found, item)]
    for study_id in studies:
        for line in authorizing.lines(found, study_id, at):
            print_authorization(line.record, line)
    if not studies or not any(authorizing.has_authorization(found, item) for item in studies):
        console.print("there is no standing authorization; next: tasc authorize new STUDY", markup=False)
    for answer in authorizing.study_lines(found, format_timestamp(at)):
        if answer.study_id in studies:
            print_next(answer)


def revoke(
    study: Study,
    authorization_id: Annotated[str, typer.Argument(help="Its id, as `tasc authorize show` prints it.")],
    reason: Annotated[str, typer.Option(help="One word for the record.")] = "withdrawn",
) -> None:
    """Take an authorization back: no run or probe begins under it from now on. A run that sends goes on; stop it by SIGTERM."""
    revoked = authorizing.revoke(home(), study, authorization_id, reason, now())
    out().print(
        f"{study}/{authorization_id} is revoked since {revoked.revoked_at}: no run or probe begins under it. One that has "
        "begun goes on to its end; stop it with SIGTERM, or cancel its run in Dagster",
        markup=False,
    )


def print_authorization(record: StandingAuthorization, line: authorizing.AuthorizationLine | None = None) -> None:
    """What an authorization allows, and what is spent of it where that was asked."""
    table = Table(show_header=False, show_edge=False)
    table.add_row("authorization", f"{record.study_id}/{record.authorization_id}")
    if line is not None:
        table.add_row("state", line.problem or "in force")
    table.add_row("purposes", ", ".join(record.purposes))
    for target in record.targets:
        table.add_row("target", f"{target.profile_id}: {target.endpoint_alias} on {target.route}")
    table.add_row("effects of probes", ", ".join(record.effects) or "none")
    spent = {} if line is None else {item.field: item.spent for item in line.ceilings}
    for name, allowed in record.ceilings.to_json().items():
        used = f"{spent[name]:g} of " if name in spent else ""
        table.add_row(name, "no ceiling" if allowed is None else f"{used}{allowed}")
    table.add_row("from", record.issued_at)
    table.add_row("until", record.expires_at)
    table.add_row("digest", record.digest)
    out().print(table)


def print_next(line: authorizing.StudyLine) -> None:
    """Whether a study's next window is allowed, in one line."""
    if line.refusal is None:
        out().print(f"{line.study_id}: one more window is allowed by {line.authorization_id}", markup=False)
    else:
        out().print(f"{line.study_id}: no further window now: {line.refusal}", markup=False)


def _purposes(words: list[str]) -> tuple[Purpose, ...]:
    known = {str(item): item for item in get_args(Purpose)}
    strange = [word for word in words if word not in known]
    if strange:
        raise InputError(
            "there is no such purpose", where="--purpose", field=strange[0][:64], way_out=f"one of {', '.join(known)}"
        )
    return tuple(known[word] for word in words)
