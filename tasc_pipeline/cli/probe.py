"""``tasc probe``: one observation of one endpoint, one signed receipt."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from tasc_collector.contracts.receipt import CapabilityReceipt
from tasc_collector.errors import InputError
from tasc_collector.limits import RECEIPT_HOURS, RECEIPT_HOURS_MAX
from tasc_collector.runtimes.profile import Capability, Effect, Framing, Route
from tasc_pipeline.cli.common import EXIT_FAILED, home, out, say
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import study_ids
from tasc_pipeline.steps.probe import ProbeOptions, StoredProbe, probe_endpoint


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("probe")(probe)


def probe(
    endpoint: Annotated[str, typer.Argument(help="STUDY/ALIAS, or ALIAS where there is one study.")],
    capability: Annotated[Capability, typer.Argument(help="What is to be shown.")],
    effect: Annotated[Effect, typer.Option(help="The effect that you allow; must be exactly the probe's own.")],
    route: Annotated[Route | None, typer.Option(help="Inference route of a canary; the study's if not given.")] = None,
    framing: Annotated[Framing | None, typer.Option(help="Framing of its answer; the study's if not given.")] = None,
    valid_hours: Annotated[
        float, typer.Option(help=f"How long the receipt holds, at most {RECEIPT_HOURS_MAX:g}.")
    ] = RECEIPT_HOURS,
) -> None:
    """Observe one capability of one endpoint; print and store the signed receipt."""
    found = home()
    study_id, alias = _endpoint(found, endpoint)
    options = ProbeOptions(effect, route, framing, valid_hours)
    done = probe_endpoint(found, study_id, alias, capability, options, tell=say)
    print_receipt(done)
    if done.receipt.state != "supported":
        say(
            f"not shown: {done.receipt.reason} -> see what it needs: tasc runtimes show {done.receipt.runtime.profile_id}"
        )
        raise typer.Exit(EXIT_FAILED)


def print_receipt(done: StoredProbe) -> None:
    """One receipt as a table of what was and was not proved."""
    receipt = done.receipt
    table = Table(show_header=False, show_edge=False)
    for name, value in _rows(receipt):
        table.add_row(name, value)
    out().print(table)
    out().print(f"stored: {done.path}", markup=False)


def _rows(receipt: CapabilityReceipt) -> list[tuple[str, str]]:
    identity = receipt.identity_verification
    shown = f"{receipt.route} ({receipt.framing})" if receipt.route else "-"
    rows = [
        ("receipt", receipt.digest),
        ("endpoint", receipt.endpoint_alias),
        ("capability", f"{receipt.capability}: {receipt.state} ({receipt.reason})"),
        ("effect", f"{receipt.effect}, {receipt.calls} inference call(s)"),
        ("route", shown),
        ("build", f"{receipt.runtime.profile_id} {receipt.runtime.build} ({identity.runtime_build.basis})"),
        ("model", f"{receipt.model.id} ({identity.model_id.basis})"),
        ("revision", f"{receipt.model.revision} ({identity.model_revision.basis})"),
        ("not proved", ", ".join(receipt.not_proved)),
        ("observed", receipt.observed_at),
        ("valid until", receipt.valid_until),
    ]
    measured = [
        f"{item.metric} {item.value:g}" for item in receipt.measured if item.value is not None and not item.labels
    ]
    return [*rows, ("measured", ", ".join(measured))] if measured else rows


def _endpoint(found: Home, endpoint: str) -> tuple[str, str]:
    study, slash, alias = endpoint.rpartition("/")
    if slash:
        return study, alias
    ids = study_ids(found)
    if len(ids) != 1:
        known = ", ".join(ids) or "none yet; make one with: tasc study new"
        raise InputError(
            "which study is meant?",
            where="probe",
            field=endpoint[:64],
            way_out=f"write STUDY/{endpoint[:64]}; studies: {known}",
        )
    return ids[0], endpoint
