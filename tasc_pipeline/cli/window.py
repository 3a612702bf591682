"""``tasc seal | plan | collect | settle | verify | assess | launch``: a window's life from the shell."""

from __future__ import annotations

from typing import Annotated

import typer

from tasc_collector.errors import InputError
from tasc_pipeline.cli.common import EXIT_FAILED, home, now, out
from tasc_pipeline.cli.show_progress import terminal_progress
from tasc_pipeline.cli.tables import print_assessment
from tasc_pipeline.home.windows import PLAN, window_folder
from tasc_pipeline.steps import assess as assessing
from tasc_pipeline.steps import close, collect, plan, verify
from tasc_pipeline.steps import seal as sealing

WindowKey = Annotated[str, typer.Argument(help="Key of the sealed window, as `tasc status` shows it.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for name, command in (
        ("seal", seal),
        ("plan", plan_window),
        ("collect", collect_window),
        ("settle", settle_window),
        ("verify", verify_window),
        ("assess", assess_window),
    ):
        app.command(name)(command)


def seal(
    study: Annotated[str, typer.Argument(help="Id of the study.")],
    start: Annotated[
        str | None,
        typer.Option(help="First instant, UTC, like 2026-01-31T09:30:00.000Z; five seconds from now if not given."),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Length; the study's default if not given.")] = None,
    window_id: Annotated[str | None, typer.Option(help="Readable id; made from study and start if not given.")] = None,
    lead: Annotated[float, typer.Option(help="Seconds until the start, where --start is not given.")] = 5.0,
) -> None:
    """Declare a window: bounds, membership and watermark are fixed before anything is collected."""
    from tasc_pipeline.instance import add_partition

    found = home()
    declaration = sealing.seal(
        found,
        study,
        sealing.SealOptions(start, lead, minutes, window_id),
        now(),
        add_partition=lambda key: add_partition(found, key),
    )
    out().print(declaration.window_key, markup=False)


def plan_window(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY | approve KEY DIGEST | show KEY", help="Issue the plan of a window, pin it, or show it."
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would cost; write nothing.")] = False,
) -> None:
    """Issue a window's collection plan, approve it by its digest, or show what it may cost."""
    found, console = home(), out()
    match words:
        case ["approve", key, digest]:
            approval = plan.approve(found, key, digest, now())
            console.print(f"approved {approval.plan_digest} until {approval.expires_at}", markup=False)
            console.print(f"next: tasc collect {key}, or the Dagster job shadow_window on this partition", markup=False)
        case ["show", key]:
            folder = window_folder(found, key)
            console.print(folder.plan(plan.key_ring(found)).record.digest, markup=False)
        case [key]:
            made, estimate = plan.make_plan(found, key, now(), write=not dry_run)
            cost = "no cost model" if estimate.cost_usd is None else f"at most {estimate.cost_usd:.2f} USD (modeled)"
            console.print(
                f"{estimate.calls} calls and {estimate.warm_up_calls} warm-up calls, at most {estimate.output_tokens} output tokens, "
                f"about {estimate.minutes:g} minutes, {cost}",
                markup=False,
            )
            if dry_run:
                console.print("nothing was written", markup=False)
                missing = plan.missing_receipt(found, key, now())
                if missing is not None:
                    console.print(f"the plan needs a receipt first; {missing}", markup=False)
            else:
                console.print(f"plan {made.digest}", markup=False)
                console.print(f"next: tasc plan approve {key} {made.digest}", markup=False)
        case _:
            raise InputError(
                "these words are no form of this command",
                where=PLAN,
                way_out="tasc plan KEY [--dry-run], tasc plan approve KEY DIGEST, tasc plan show KEY",
            )


def collect_window(window_key: WindowKey) -> None:
    """Collect an approved window without Dagster, or finish it; then publish and close it."""
    found = home()
    with terminal_progress() as show:
        result = collect.collect(found, window_key, show=show)
    published = collect.publish(found, window_key)
    console = out()
    console.print(", ".join(f"{count} {state}" for state, count in sorted(result.states.items())), markup=False)
    if result.status != "complete":
        console.print(
            f"{result.status}{f' ({result.stop_reason})' if result.stop_reason else ''}; finish with: tasc collect {window_key}",
            markup=False,
        )
        raise typer.Exit(EXIT_FAILED)
    close.close(found, window_key)
    console.print(f"closed; {published.rows['traces']} rows published; next: tasc assess {window_key}", markup=False)


def settle_window(window_key: WindowKey) -> None:
    """Give every lease without an outcome its state (sent_unknown). Sends nothing."""
    found = home()
    with terminal_progress() as show:
        result = collect.collect(found, window_key, show=show, send=False)
    collect.publish(found, window_key)
    out().print(", ".join(f"{count} {state}" for state, count in sorted(result.states.items())), markup=False)
    if result.status == "complete":
        close.close(found, window_key)
        out().print("closed", markup=False)


def verify_window(window_key: WindowKey) -> None:
    """Check everything a window left: journal chain and MACs, signatures, counts, published parts; says what it proved."""
    for line in verify.verify_window(home(), window_key):
        out().print(line, markup=False)


def assess_window(window_key: WindowKey) -> None:
    """Assess a closed window and write its report."""
    found = home()
    report = assessing.assess(found, window_key)
    print_assessment(out(), report)
    out().print(f"report: {assessing.report_path(found, window_key)}", markup=False)
