"""``tasc devices``: what this host has and what it cannot tell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated

import typer

from tasc_compute.codec import to_json
from tasc_compute.contracts import AcceleratorInfo, DeviceSnapshot, TelemetryField
from tasc_compute.devices.snapshot import Survey, memory_for_models, survey
from tasc_compute.host import is_wsl
from tasc_pipeline.cli.common import out, run_guarded, say

UNSUPPORTED = "unsupported"
_GIB = 1024**3
_HEADINGS = ("id", "name", "memory used", "of", "utilization", "temperature", "power", "limit", "driver")


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("devices")(devices_command)


def devices_command(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show this host's accelerators, memory, disks and sensors. Reads only; what cannot be told is 'unsupported'."""

    def run() -> None:
        found = survey()
        if as_json:
            out().print(json.dumps(to_json(found.snapshot), indent=1, sort_keys=True), markup=False)
        else:
            for line in lines(found, wsl=is_wsl()):
                out().print(line, markup=False)
        for fault in found.faults:
            say(f"{fault.probe}: {fault.category} -> its devices or values are missing above; run the tool by hand")

    raise typer.Exit(run_guarded(run))


def lines(found: Survey, *, wsl: bool) -> Iterator[str]:
    """The survey as text, a fact per line."""
    snapshot, host = found.snapshot, found.snapshot.host
    yield from _table([_HEADINGS, *(_row(item) for item in snapshot.accelerators)])
    total = memory_for_models(snapshot.accelerators)
    yield f"device memory in all: {_size(total) if total else UNSUPPORTED}; what is shared with the host counts once"
    known = TelemetryField.HOST_MEMORY in snapshot.capabilities
    available, whole = _size(host.memory_available_bytes), _size(host.memory_total_bytes)
    memory = f"{available} of {whole} available" if known else UNSUPPORTED
    swap = UNSUPPORTED if host.swap_total_bytes is None else _size(host.swap_total_bytes)
    system = f"{host.platform} {host.arch} {host.release}{' (WSL)' if wsl else ''}"
    yield f"host: {host.cpu_model}, {host.cpu_count} processors, {system}"
    yield f"memory: {memory}; swap: {swap}"
    for volume in snapshot.storage:
        kind = {None: "", True: ", rotating", False: ", solid state"}[volume.rotational]
        disk = f", {volume.model}" if volume.model else ""
        free = f"{_size(volume.free_bytes)} of {_size(volume.total_bytes)} free"
        yield f"storage {volume.mount}: {free}, {volume.filesystem}{disk}{kind}"
    for sensor in snapshot.thermals:
        yield f"sensor {sensor.label}: {sensor.celsius:.0f} C ({sensor.source})"
    missing = unsupported(snapshot)
    yield f"unsupported on this host: {', '.join(missing) if missing else 'nothing'}"


def unsupported(snapshot: DeviceSnapshot) -> list[str]:
    """What no probe of this host answered."""
    return [field for field in TelemetryField if field not in snapshot.capabilities]


def _row(item: AcceleratorInfo) -> tuple[str, ...]:
    told = bool(item.memory_total_bytes)
    return (
        item.id,
        item.name,
        _size(item.memory_used_bytes) if told else UNSUPPORTED,
        _size(item.memory_total_bytes) + (" shared" if item.unified_memory else "") if told else UNSUPPORTED,
        _value(item.utilization_pct, "%"),
        _value(item.temperature_c, "C"),
        _value(item.power_watts, "W"),
        _value(item.power_limit_watts, "W"),
        item.driver or UNSUPPORTED,
    )


def _value(value: float | None, unit: str) -> str:
    return UNSUPPORTED if value is None else f"{value:.0f} {unit}"


def _size(count: int) -> str:
    return f"{count / _GIB:.1f} GiB"


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """Aligned columns; no table widget: an id must stay whole also where the terminal is narrow."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
