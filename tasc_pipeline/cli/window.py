"""``tasc seal | plan | collect | settle | verify | assess | launch``: a window's life from the shell.

Each command imports the steps that it takes: collecting must not wait for what only charts need. What publishes a window
is imported when its last call is over: a first call must not wait for Arrow and DuckDB.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import typer

from tasc_collector.contracts.collection import Purpose
from tasc_collector.errors import InputError
from tasc_pipeline.cli.common import EXIT_FAILED, home, now, out, say
from tasc_pipeline.cli.show_progress import terminal_progress
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.windows import APPROVAL, PLAN, window_folder

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
    study: Annotated[str | None, typer.Argument(help="Id of the study.")] = None,
    start: Annotated[
        str | None,
        typer.Option(help="First instant, UTC, like 2026-01-31T09:30:00.000Z; five seconds from now if not given."),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Length; the study's default if not given.")] = None,
    window_id: Annotated[str | None, typer.Option(help="Readable id; made from study and start if not given.")] = None,
    lead: Annotated[float, typer.Option(help="Seconds until the start, where --start is not given.")] = 5.0,
    decisive: Annotated[
        bool | None,
        typer.Option(
            "--decisive/--observation", help="Whether it may move a controller; the study's default if not given."
        ),
    ] = None,
    revise: Annotated[
        str | None, typer.Option(metavar="KEY", help="Revise this closed window for late evidence; sends nothing.")
    ] = None,
    watermark: Annotated[
        str | None, typer.Option(help="Until when late evidence counts, with --revise; now if not given.")
    ] = None,
) -> None:
    """Declare a window: bounds, membership and watermark are fixed before anything is collected."""
    from tasc_pipeline.instance import add_partition
    from tasc_pipeline.steps import seal as sealing

    found = home()
    if (study is None) == (revise is None):
        raise InputError(
            "seal a study's new window, or revise a closed one",
            where="tasc seal",
            way_out="tasc seal STUDY, or tasc seal --revise KEY",
        )
    if study is not None:
        window_class: Literal["observation", "decisive"] | None = (
            None if decisive is None else "decisive" if decisive else "observation"
        )
        options = sealing.SealOptions(start, lead, minutes, window_id, window_class)
        made = sealing.seal(found, study, options, now(), add_partition=lambda key: add_partition(found, key))
    else:
        made = sealing.revise(
            found, str(revise), now(), watermark=watermark, add_partition=lambda key: add_partition(found, key)
        )
    out().print(made.window_key, markup=False)


def plan_window(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY | approve KEY DIGEST | show KEY", help="Issue the plan of a window, pin it, or show it."
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would cost; write nothing.")] = False,
    purpose: Annotated[
        str | None,
        typer.Option(
            help="comparison, development, holdout, window or monitoring; the only one that is possible now if not given."
        ),
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="With --dry-run: what a day costs on a schedule, such as 1h or 30m.")
    ] = None,
    tokens_per_second: Annotated[
        float | None,
        typer.Option(
            min=0.001, help="Speed of one call, for the expected minutes; as an earlier window measured if not given."
        ),
    ] = None,
) -> None:
    """Issue a window's collection plan, approve it by its digest, or show what it may cost."""
    from tasc_pipeline.control.estimates import estimate_text, per_day
    from tasc_pipeline.control.pace import given
    from tasc_pipeline.steps import plan

    found, console = home(), out()
    match words:
        case ["approve", key, digest]:
            approval = plan.approve(found, key, digest, now())
            console.print(f"approved {approval.plan_digest} until {approval.expires_at}", markup=False)
            console.print(f"next: tasc collect {key}, or the Dagster job shadow_window on this partition", markup=False)
        case ["show", key]:
            _show_plan(found, key)
        case [key]:
            pace = plan.measured_pace(found, key) if tokens_per_second is None else given(tokens_per_second)
            made, estimate = plan.make_plan(found, key, now(), write=not dry_run, purpose=_purpose(purpose), pace=pace)
            rated = made.load_model.kind == "open"
            console.print(f"purpose {made.purpose}: {estimate_text(estimate, pace, rated=rated)}", markup=False)
            if every is not None:
                day = estimate_text(per_day(estimate, every), pace, rated=rated)
                console.print(f"per day, every {every}: {day}", markup=False)
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
                way_out="tasc plan KEY [--purpose PURPOSE] [--dry-run], tasc plan approve KEY DIGEST, tasc plan show KEY",
            )


def _purpose(word: str | None) -> Purpose | None:
    from tasc_pipeline.control.purposes import PURPOSES

    if word is None:
        return None
    if word not in PURPOSES:
        raise InputError(
            "there is no such purpose",
            where="tasc plan",
            field="--purpose",
            rule=f"one of {', '.join(PURPOSES)}",
            way_out="name one of them, or leave it out",
        )
    return next(purpose for purpose in PURPOSES if purpose == word)


def _show_plan(found: Home, key: str) -> None:
    """What a plan says: digest, purpose, bounds, targets, budget, and whether it is approved."""
    from tasc_pipeline.steps.approved import key_ring

    ring = key_ring(found)
    folder = window_folder(found, key)
    source = folder.origin(ring)
    record, console = source.plan(ring).record, out()
    budget = record.budget
    lines = [
        f"plan {record.digest}",
        f"purpose {record.purpose}, study {record.study_id}, issued {record.issued_at}, expires {record.expires_at}",
        (
            f"at most {budget.max_cases} cases, {budget.max_replicates} case replicates, {budget.max_network_calls} calls, "
            f"{budget.max_wall_clock_ms / 60_000:g} minutes"
        ),
    ]
    lines += [
        f"{target.role} {target.profile_id}: {target.runtime.profile_id} {target.runtime.build}, {target.route} "
        f"({target.framing}), {len(target.capability_receipt_digests)} receipts"
        for target in record.targets
    ]
    if record.shadow_run_plan is not None:
        lines.append(f"shadow run plan {record.shadow_run_plan['planDigest']}")
    if source is not folder:
        lines.append(f"collected as {source.window_key}; this revision sends nothing")
    if record.authorization_digest is not None:
        lines.append(f"under the standing authorization {record.authorization_digest}")
    elif source.has(APPROVAL):
        lines.append(f"approved at {source.approval(ring).record.approved_at}")
    else:
        lines.append(f"next: tasc plan approve {source.window_key} {record.digest}")
    for line in lines:
        console.print(line, markup=False)


def collect_window(window_key: WindowKey) -> None:
    """Collect an approved window without Dagster, or finish it; then publish and close it.

    Exits 1 where it is not complete, and where it was cut off because its authorization or a key ended.
    """
    from tasc_pipeline.steps import collect
    from tasc_pipeline.steps.approved import load_approved

    found = home()
    with terminal_progress() as show:
        result = collect.collect(found, window_key, show=show)
        rows = _publish_and_close(found, window_key, complete=result.status == "complete")
    console = out()
    console.print(", ".join(f"{count} {state}" for state, count in sorted(result.states.items())), markup=False)
    if result.status == "complete" and result.stop_reason:
        words = result.stop_reason.replace("-", " ")
        console.print(f"stopped: {words}; nothing more of this window is sent, by any run", markup=False)
    if result.status != "complete":
        console.print(
            f"{result.status}{f' ({result.stop_reason})' if result.stop_reason else ''}; finish with: tasc collect {window_key}",
            markup=False,
        )
        raise typer.Exit(EXIT_FAILED)
    if load_approved(found, window_key).is_revision:
        from tasc_pipeline.steps.evidence_tables import publish_evidence

        publish_evidence(found, window_key)  # of its own watermark; that of revision 1 was published when it came
    console.print(f"closed; {rows['traces']} rows published; next: tasc assess {window_key}", markup=False)
    if result.stop_reason:
        raise typer.Exit(EXIT_FAILED)


def _publish_and_close(found: Home, window_key: str, *, complete: bool) -> Mapping[str, int]:
    """Publish a window and close it where it is complete; rows of each table. What this loads, no call has waited for."""
    from tasc_pipeline.steps import close, publish

    published = publish.publish(found, window_key)
    if complete:
        close.close(found, window_key)
    return published.rows


def settle_window(window_key: WindowKey) -> None:
    """Give every lease without an outcome its state (sent_unknown). Sends nothing.

    Before the window's end, executions without an intent stay pending: collect them, or settle again after the end.
    """
    from tasc_pipeline.steps import collect

    found = home()
    with terminal_progress() as show:
        result = collect.collect(found, window_key, show=show, send=False)
        _publish_and_close(found, window_key, complete=result.status == "complete")
    out().print(", ".join(f"{count} {state}" for state, count in sorted(result.states.items())), markup=False)
    if result.status == "complete":
        out().print("closed", markup=False)


def verify_window(window_key: WindowKey) -> None:
    """Check everything a window left: journal chain and MACs, signatures, counts, published parts; says what it proved.

    What is sound is printed before the first thing that is not.
    """
    from tasc_pipeline.steps import verify

    window_folder(home(), window_key)  # a key that was mistyped is no damaged window
    lines: list[str] = []
    try:
        with terminal_progress():
            lines.extend(verify.proved(home(), window_key))
    finally:
        for line in lines:
            out().print(line, markup=False)


def assess_window(
    window_key: WindowKey,
    as_of: Annotated[
        str | None,
        typer.Option(help="Instant that a decision is assessed for, UTC; its watermark if not given."),
    ] = None,
) -> None:
    """Assess a closed window and write its report."""
    from tasc_pipeline.cli.tables import print_assessment
    from tasc_pipeline.steps import assess as assessing
    from tasc_pipeline.steps import notices

    found = home()
    with terminal_progress():
        report = assessing.assess(found, window_key, as_of)
    print_assessment(out(), report)
    out().print(f"report: {assessing.report_path(found, window_key)}", markup=False)
    told = notices.after_assessment(found, window_key)
    for item in told:
        words = f": {item.notice.before} -> {item.notice.after}" if item.notice.after else ""
        out().print(f"notice: {item.notice.kind}{words}; all of them: tasc notices", markup=False)
    if told:
        for name, error in notices.publish_notices(found, only=window_key).failed:
            say(f"the rows of its notices are not published ({name}: {error}) -> run: tasc notices --publish")
