"""``tasc engines plan|launch|list|stop|logs``: engines of this host by recipe."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from tasc_compute import health
from tasc_compute.codec import to_json
from tasc_compute.contracts import DockerReference, InstanceRecord, InstanceState, ProcessReference
from tasc_compute.devices.snapshot import Survey, survey
from tasc_compute.errors import LaunchFailed, RecipeError
from tasc_compute.launchers.base import tail_of_file
from tasc_compute.lifecycle import check_known, observe, stop
from tasc_compute.limits import LOG_TAIL_BYTES
from tasc_compute.local import launch_recipe, local_compute, local_order
from tasc_compute.planning import configuration_digest, dropped_knobs, plan_launch, refusals, shown_command
from tasc_compute.recipes import model_sha256, read_recipe
from tasc_compute.redaction import redact
from tasc_compute.render import render
from tasc_compute.state import Liveness
from tasc_pipeline.cli.common import EXIT_FAILED, EXIT_REFUSED, home, out, run_guarded, say
from tasc_pipeline.steps.engines import STOP_TEXT, cancel_on_signal

RecipePath = Annotated[Path, typer.Argument(help="Recipe file (tasc-engine-recipe-v1).")]
InstanceName = Annotated[str, typer.Argument(help="Instance name.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_HEADINGS = ("name", "state", "engine", "port", "devices", "started", "runs as")


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    engines = typer.Typer(no_args_is_help=True, help="Plan, launch, list and stop engines on this host.")
    for name, command in (
        ("plan", plan_command),
        ("launch", launch_command),
        ("list", list_command),
        ("stop", stop_command),
        ("logs", logs_command),
    ):
        engines.command(name)(command)
    app.add_typer(engines, name="engines")


def _guarded(command: Callable[[], None]) -> None:
    def run() -> None:
        try:
            command()
        except RecipeError as error:
            say(f"refused: {error}")
            raise typer.Exit(EXIT_REFUSED) from None

    raise typer.Exit(run_guarded(run))


def plan_command(recipe: RecipePath, as_json: AsJson = False) -> None:
    """Show what a recipe would launch, what it leaves out and why it would be refused. Starts nothing."""

    def run() -> None:
        read = read_recipe(recipe)
        found = _survey()
        order = local_order(read, home().root, found.snapshot.accelerators, found.places)
        request = order.request
        plan = plan_launch(request, order.places)
        digest = configuration_digest(plan, model_sha256(read))
        dropped = dropped_knobs(request)
        reasons = refusals(request, order.places, logs_content=order.logs_content)
        if as_json:
            shown = {
                "plan": to_json(plan),
                "configurationDigest": digest,
                "dropped": [{"knob": item.knob.value, "value": item.value, "reason": item.reason} for item in dropped],
                "refusals": list(reasons),
            }
            out().print(json.dumps(shown, indent=1, sort_keys=True), markup=False)
        else:
            out().print(shown_command(plan, request, order.places), markup=False)
            out().print(f"configuration {digest}", markup=False)
            for item in dropped:
                out().print(f"left out: {item.knob.value} = {item.value}: {item.reason}", markup=False)
            for reason in reasons:
                out().print(f"would be refused: {reason}", markup=False)
        if reasons:
            raise typer.Exit(EXIT_REFUSED)

    _guarded(run)


def _survey() -> Survey:
    """This host's devices; a probe that failed is said, because its devices are missing from the choice."""
    found = survey()
    for fault in found.faults:
        say(f"warning: {fault.probe}: {fault.category}; its devices are not seen -> tasc devices")
    return found


def launch_command(recipe: RecipePath) -> None:
    """Launch a recipe's engine, wait until it is ready, and leave it running. Ctrl-C gives up and stops it."""

    def run() -> None:
        read = read_recipe(recipe)
        root = home().root
        say(f"{read.name}: starting {read.engine}")
        try:
            with cancel_on_signal() as cancel:
                found = _survey()
                launched = launch_recipe(
                    read, root, accelerators=found.snapshot.accelerators, places=found.places, cancel=cancel
                )
        except LaunchFailed as failed:
            rendered = render(failed, read.name)
            if rendered.log_tail:
                say(rendered.log_tail.rstrip())
            say(rendered.text)
            raise typer.Exit(rendered.exit_code) from None
        record = launched.record
        out().print(f"{record.name} is ready on 127.0.0.1:{record.port}", markup=False)
        out().print(f"configuration {launched.configuration_digest}", markup=False)
        for item in launched.dropped:
            out().print(f"left out: {item.knob.value} = {item.value}: {item.reason}", markup=False)
        promised, given = read.knobs.max_context_length, health.context_per_request(record.port)
        if promised and given is not None and given < promised:
            say(f"warning: each request gets {given} tokens of context, the recipe promises {promised}")
        say(f"stop it with: tasc engines stop {record.name}")

    _guarded(run)


def list_command(as_json: AsJson = False) -> None:
    """List engine instances with their state. Asks nothing that makes an engine generate."""

    def run() -> None:
        compute = local_compute(home().root)
        records, damaged = compute.store.all()
        states = {record.name: observe(record, compute) for record in records}
        if as_json:
            shown = [{**_object(record), "state": states[record.name].value} for record in records]
            out().print(
                json.dumps({"instances": shown, "damaged": list(damaged)}, indent=1, sort_keys=True), markup=False
            )
        elif records:
            rows = [_HEADINGS, *(_row(record, states[record.name]) for record in records)]
            widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
            for row in rows:
                # no table widget: a name must stay whole also where the terminal is narrow
                line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
                out().print(line.rstrip(), markup=False)
        else:
            say("no engine instances -> tasc engines launch RECIPE")
        for name in damaged:
            say(f"{name} is damaged and counts as held -> make sure that its engine is gone, then remove the file")

    _guarded(run)


def _row(record: InstanceRecord, state: InstanceState) -> tuple[str, ...]:
    devices = ", ".join(record.devices) or "-"
    fixed = (record.name, state.value, record.engine.value, str(record.port))
    return (*fixed, devices, record.started_at, _runs_as(record))


def _object(record: InstanceRecord) -> dict[str, object]:
    shown = to_json(record)
    return dict(shown) if isinstance(shown, dict) else {}


def _runs_as(record: InstanceRecord) -> str:
    if isinstance(record.ref, ProcessReference):
        return f"pid {record.ref.pid}"
    if isinstance(record.ref, DockerReference):
        return f"container {record.ref.container[:12]}"
    return record.ref.kind if record.ref else "-"


def stop_command(
    name: InstanceName,
    grace_s: Annotated[
        float | None, typer.Option(help="Seconds between SIGTERM and SIGKILL; default: the engine's.")
    ] = None,
) -> None:
    """Stop an engine and give its devices and port back."""

    def run() -> None:
        compute = local_compute(home().root)
        check_known(name, compute)
        outcome = stop(name, compute, grace_ms=None if grace_s is None else int(grace_s * 1000))
        say(f"{name}: {STOP_TEXT[outcome]}")
        if not outcome.proved:
            raise typer.Exit(EXIT_FAILED)

    _guarded(run)


def logs_command(
    name: InstanceName,
    size: Annotated[
        int, typer.Option("--bytes", min=1, max=1 << 20, help="Bytes of the end to show.")
    ] = LOG_TAIL_BYTES,
) -> None:
    """Show the end of an engine's own log, keys and passwords taken out. Engines may log what users wrote."""

    def run() -> None:
        compute = local_compute(home().root)
        check_known(name, compute)
        path, record = compute.log_path(name), compute.store.read(name)
        if record is None or isinstance(record.ref, ProcessReference) or record.ref is None:
            text = tail_of_file(path, size)
        else:
            text = compute.launchers[record.runtime].log_tail(record, path, size)
        out().print(redact(text), markup=False, end="")
        if record is not None and compute.liveness(record) is Liveness.GONE:
            say(f"{name} has ended -> tasc engines stop {name} gives its lease back")

    _guarded(run)
