"""``tasc controller show | advance | propose``: what a decision study's controller says and takes next."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tasc_collector.contracts.proposal import HeldExperiment
from tasc_pipeline.cli.common import home, now, out
from tasc_pipeline.control.proposals import Proposal
from tasc_pipeline.steps import controller as steps
from tasc_pipeline.steps.proposals import ProposalFiles, propose_next

Study = Annotated[str, typer.Argument(help="Id of a decision study.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="The state of a decision study: what it is, and what may come next.")
    group.command("show")(show)
    group.command("advance")(advance)
    group.command("propose")(propose)
    app.add_typer(group, name="controller")


def show(
    study: Study,
    anchor: Annotated[
        Path | None, typer.Option(help="An anchor that you kept: the log must pass through it.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the snapshot record alone.")] = False,
    pin: Annotated[bool, typer.Option("--pin", help="Print the anchor record alone, to keep it elsewhere.")] = False,
) -> None:
    """Show the state, what is allowed next and why the rest is not, and the history."""
    view = steps.show(home(), study, now(), anchor=anchor)
    snapshot, console = view.chain.current, out()
    if as_json or pin:
        record = view.anchor if pin else snapshot
        console.print(record.canonical().decode(), markup=False)
        return
    console.print(
        f"{snapshot.state} after {snapshot.sequence} events; snapshot {snapshot.snapshot_digest}", markup=False
    )
    if snapshot.selected_policy is not None:
        console.print(f"policy {snapshot.selected_policy.policy_digest}", markup=False)
    for reason in snapshot.stale_reasons:
        console.print(f"stale: {reason}", markup=False)
    _print_next(view)
    _print_history(view)


def _print_next(view: steps.ControllerView) -> None:
    from rich.table import Table

    console = out()
    table = Table("next fact", "leads to", "allowed", "why not")
    for item in sorted(view.outlooks, key=lambda outlook: not outlook.allowed):
        table.add_row(item.fact, ", ".join(item.leads_to), "yes" if item.allowed else "no", item.rule or "")
    console.print(table)
    if view.next_fact is None:
        console.print(f"waits for: {view.waiting_for}", markup=False)
    else:
        study = view.chain.current.study_id
        console.print(f"next: tasc controller advance {study}   (records {view.next_fact.kind})", markup=False)


def _print_history(view: steps.ControllerView) -> None:
    from rich.table import Table

    if not view.chain.events:
        return
    table = Table("#", "at", "fact", "state", "event")
    for event, snapshot in zip(view.chain.events, view.chain.snapshots[1:], strict=True):
        table.add_row(str(event.sequence), event.occurred_at, event.fact.kind, snapshot.state, event.event_id[:19])
    out().print(table)


def advance(
    study: Study,
    window: Annotated[
        str | None, typer.Option(help="Record this window's manifest, or its decision if that stands.", metavar="KEY")
    ] = None,
    decision: Annotated[
        Path | None, typer.Option(help="Record this decision, which was made elsewhere.", metavar="FILE")
    ] = None,
    fact: Annotated[
        Path | None,
        typer.Option(help="Record what only you know: a deployment, a drift, the protocol's expiry.", metavar="FILE"),
    ] = None,
    retire: Annotated[
        str | None, typer.Option(help="End the controller for good, for this reason.", metavar="REASON")
    ] = None,
) -> None:
    """Record the next fact that the records hold, or the one that is named."""
    done = steps.advance(home(), study, now(), steps.Wanted(window, decision, fact, retire))
    snapshot, event = done.chain.current, done.event
    if done.new:
        text = f"event {event.sequence}: {event.fact.kind}; the controller is in {snapshot.state}"
    else:
        text = (
            f"already recorded as event {event.sequence} at {event.occurred_at}; the controller is in {snapshot.state}"
        )
    out().print(text, markup=False)


def propose(
    study: Study,
    decision: Annotated[
        Path | None, typer.Option(help="The decision; that of the last assessment if not given.", metavar="FILE")
    ] = None,
    budget: Annotated[
        Path | None,
        typer.Option(help="The most that the experiment may use; the study's if not given.", metavar="FILE"),
    ] = None,
    history: Annotated[
        Path | None, typer.Option(help="Experiments and findings so far; the study's if not given.", metavar="FILE")
    ] = None,
) -> None:
    """Propose the next experiment, or say why none is proposed; registers nothing."""
    proposal, path = propose_next(home(), study, ProposalFiles(decision, budget, history))
    console = out()
    print_proposal(console, proposal)
    console.print(f"kept: {path}", markup=False)


def print_proposal(console: Console, proposal: Proposal) -> None:
    """A proposal in a few lines: what is changed, what it needs, or why there is none."""
    if isinstance(proposal, HeldExperiment):
        console.print(f"HOLD: {proposal.hold_reason}", markup=False)
    else:
        changed = proposal.changed_variable
        console.print(f"PROPOSED: {proposal.diagnosis}: {proposal.hypothesis}", markup=False)
        console.print(f"changes {changed.kind} {changed.target_id}, and nothing else", markup=False)
        console.print(f"needs {', '.join(item.kind for item in proposal.evidence_requirements)}", markup=False)
        console.print("it registers nothing: make a successor with tasc study fork, if you agree", markup=False)
