"""Every fault by name. The tables are in the modules beside this one, by what they change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tasc_collector.contract_servers.faults import (
    framing,
    identity,
    probes,
    reasons,
    statuses,
    streams,
    transport,
    usage,
)
from tasc_collector.contract_servers.faults.model import Fault
from tasc_collector.errors import InputError

FAULTS: Final[Mapping[str, Fault]] = {
    fault.name: fault
    for module in (transport, framing, statuses, streams, usage, reasons, identity, probes)
    for fault in module.FAULTS
}
"""All faults by name; ``rows`` of each names the wire test rows that it serves."""


def find_fault(name: str | None) -> Fault | None:
    """The fault of that name, None for None.

    Raises:
        InputError: no fault has that name.
    """
    if name is None:
        return None
    if name not in FAULTS:
        raise InputError(
            f"no fault is called {name[:64]!r}",
            where="contract server",
            field="fault",
            way_out="list the names with: tasc contract-server --list-faults",
        )
    return FAULTS[name]
