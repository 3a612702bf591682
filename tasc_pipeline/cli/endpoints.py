"""``tasc endpoints check`` and ``tasc egress``: what may be reached, why, and what a firewall must let through."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tasc_collector.contracts.study import EndpointFile
from tasc_collector.errors import InputError, TransportError
from tasc_collector.secrets import process_secrets
from tasc_collector.transport.check import CheckStep, EndpointCheck, check_endpoint
from tasc_collector.transport.clock import SystemClock
from tasc_collector.transport.egress import (
    EgressRule,
    Reach,
    WebhookPlace,
    egress_of,
    nameservers,
    network_policy,
    reachable,
    systemd_lines,
)
from tasc_collector.transport.network import SystemNetwork
from tasc_collector.transport.resolver import lookup
from tasc_pipeline.cli.common import EXIT_FAILED, home, out, say
from tasc_pipeline.home.notices import WEBHOOK_ALIAS, read_rules
from tasc_pipeline.home.studies import LoadedStudy, load_study, study_ids

_LOOKUP_S = 10
RESOLV_CONF = Path("/etc/resolv.conf")
"""Where a host names its resolvers."""
Alias = Annotated[str | None, typer.Argument(help="Endpoint alias; every endpoint of the study if not given.")]
StudyId = Annotated[str | None, typer.Option("--study", help="Id of the study; needed where there is more than one.")]
AsSystemd = Annotated[bool, typer.Option("--systemd", help="Print lines for a systemd unit.")]
AsPolicy = Annotated[bool, typer.Option("--kubernetes", help="Print a NetworkPolicy.")]
Resolve = Annotated[bool, typer.Option("--resolve", help="Look public names up now.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    endpoints = typer.Typer(no_args_is_help=True, help="Endpoints of a study: what would be allowed, and why.")
    endpoints.command("check")(check)
    app.add_typer(endpoints, name="endpoints")
    app.command("egress")(egress)


def check(alias: Alias = None, study: StudyId = None) -> None:
    """Walk the way to an endpoint up to TLS, say what is allowed and why, and send nothing."""
    loaded = _one_study(study)
    policy = loaded.policy.record
    aliases = [endpoint.alias for endpoint in policy.endpoints] if alias is None else [alias]
    good = True
    for name in aliases:
        file = next((file for file in loaded.endpoints.values() if file.alias == name), None)
        what = EndpointCheck(
            policy,
            name,
            None if loaded.extension is None else loaded.extension.record,
            _secret_source(file),
            process_secrets(home().keys),
        )
        steps = asyncio.run(check_endpoint(what, clock=SystemClock(), network=SystemNetwork()))
        _show(name, steps)
        good = good and all(step.good for step in steps)
    if not good:
        say("a step is refused -> correct what it names, then check again")
        raise typer.Exit(EXIT_FAILED)


def egress(
    study: StudyId = None, systemd: AsSystemd = False, kubernetes: AsPolicy = False, resolve: Resolve = False
) -> None:
    """Print every name, network and port that the studies can reach: as a table, for systemd, or for Kubernetes."""
    found = home()
    ids = study_ids(found) if study is None else [study]
    if not ids:
        raise InputError("there is no study yet", where="egress", way_out="make one with: tasc study new")
    loaded = [load_study(found, name) for name in ids]
    opened = [None if entry.extension is None else entry.extension.record for entry in loaded]
    webhooks = [
        WebhookPlace(webhook.origin, WEBHOOK_ALIAS, extension)
        for name, extension in zip(ids, opened, strict=True)
        if (webhook := read_rules(found, name).webhook) is not None
    ]
    rules = egress_of(zip((entry.policy.record for entry in loaded), opened, strict=True), webhooks)
    public = sorted({rule.host for rule in rules if rule.reach is Reach.PUBLIC and not rule.cidrs})
    resolved = asyncio.run(_resolve(public)) if resolve else {}
    if systemd:
        out().print("\n".join(systemd_lines(rules, resolved, _resolvers())), markup=False)
    elif kubernetes:
        out().print(network_policy(rules, name="tasc-collector"), markup=False)
    else:
        _show_rules(rules, resolved)


def _resolvers() -> tuple[str, ...]:
    """The resolvers of this host; a host without the file asks its own loopback."""
    try:
        return nameservers(RESOLV_CONF.read_text("utf-8", "replace"))
    except OSError:
        return nameservers("")


async def _resolve(names: list[str]) -> dict[str, list[str]]:
    """What each public name can be reached at now; nothing for one that nobody knows or that a call would refuse."""
    return {name: await _answers(name) for name in names}


async def _answers(name: str) -> list[str]:
    try:
        return list(reachable(await asyncio.wait_for(lookup(name, 443), _LOOKUP_S)))
    except (TransportError, TimeoutError):
        say(f"{name} was not found -> its addresses are left out; look at the resolver")
        return []


def _one_study(study: str | None) -> LoadedStudy:
    found = home()
    ids = study_ids(found)
    if study is None and len(ids) != 1:
        known = ", ".join(ids) or "none yet; make one with: tasc study new"
        raise InputError(
            "which study is meant?", where="endpoints check", field="--study", way_out=f"name one of: {known}"
        )
    return load_study(found, study or ids[0])


def _secret_source(file: EndpointFile | None) -> str | None:
    return None if file is None else file.authentication_secret


def _show(alias: str, steps: tuple[CheckStep, ...]) -> None:
    table = Table(title=alias, title_justify="left", show_edge=False)
    for heading in ("step", "", "what", "ms"):
        table.add_column(heading)
    for step in steps:
        took = "" if step.took_ms is None else f"{step.took_ms:.1f}"
        # an IPv6 origin and the names of a certificate hold brackets, which are no markup
        table.add_row(step.name, "ok" if step.good else "no", step.detail, took)
    out().print(table)


def _show_rules(rules: tuple[EgressRule, ...], resolved: dict[str, list[str]]) -> None:
    table = Table(show_edge=False)
    for heading in ("host", "port", "reach", "networks", "needed by"):
        table.add_column(heading)
    for rule in rules:
        networks = ", ".join(rule.cidrs or resolved.get(rule.host, ())) or "every public answer of its name"
        table.add_row(rule.host, str(rule.port), rule.reach.value, networks, ", ".join(rule.aliases))
    out().print(table)
