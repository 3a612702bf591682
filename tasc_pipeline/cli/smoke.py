"""``tasc smoke``: one call to a real endpoint by ``TASC_LIVE_SMOKE_*`` variables, or six contacts to contract
servers.
"""

from __future__ import annotations

import asyncio
import os

import typer

from tasc_collector.smoke import read_target, run_contacts, run_real
from tasc_collector.transport.clock import SystemClock
from tasc_pipeline.cli.common import EXIT_FAILED, out, say


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("smoke")(smoke)


def smoke() -> None:
    """Make one bounded call to a real endpoint, or without variables six contacts to contract servers.

    Real mode needs TASC_LIVE_SMOKE_ENDPOINT, _RUNTIME, _RUNTIME_BUILD, _ROUTE, _MODEL_ID, _MODEL_REVISION,
    _BACKEND_NAME, _BACKEND_BUILD and _CONFIGURATION_DIGEST; optionally _AUTH_ENV with _AUTH_HEADER, and
    _ALLOW_LOOPBACK=1 for http://127.0.0.1:<port>. It is refused under CI, sends one request of eight tokens, and ends
    non-zero unless completed.
    """
    target = read_target(os.environ)
    clock = SystemClock()
    if target is not None:
        record = asyncio.run(run_real(target, os.environ, clock=clock))
        out().print(record.line(), markup=False)
        if not record.completed:
            raise typer.Exit(EXIT_FAILED)
        return
    results = asyncio.run(run_contacts(clock=clock))
    for result in results:
        contact = result.contact
        what = f"{contact.runtime} {contact.build} {contact.route.value} {contact.framing.value}"
        out().print(f"{what}: {result.status}  {'ok' if result.good else 'NOT as expected'}", markup=False)
    if not all(result.good for result in results):
        say("a contact did not end as expected -> run `make test`, then report it")
        raise typer.Exit(EXIT_FAILED)
