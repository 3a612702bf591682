"""Temperature sensors of Linux's hwmon; other systems tell none without root.

``hwmonN`` is renumbered at every boot, so a sensor is known by its chip's name and its label. Values outside 1 to 150
degrees are of sensors that are not there; a file that cannot be read (EIO, ENODATA, EAGAIN) is passed over.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from tasc_compute.contracts import ThermalInfo
from tasc_compute.devices.values import celsius, folders, read_small, size, text
from tasc_compute.limits import MAX_SENSORS

_SOURCES: Final[dict[str, Literal["gpu", "cpu"]]] = {
    "coretemp": "cpu",
    "k10temp": "cpu",
    "zenpower": "cpu",
    "cpu_thermal": "cpu",
    "amdgpu": "gpu",
    "nouveau": "gpu",
    "i915": "gpu",
    "xe": "gpu",
}
_MILLI: Final = 1000


def thermals(root: Path) -> tuple[ThermalInfo, ...]:
    """The sensors below ``root``/sys/class/hwmon."""
    found: list[ThermalInfo] = []
    for chip in folders(root / "sys/class/hwmon", "hwmon*"):
        name = text(read_small(chip / "name")) or "sensor"
        for reading in folders(chip, "temp*_input"):
            milli = size(read_small(reading))
            value = None if milli is None else celsius(milli / _MILLI)
            if value is None:
                continue
            stem = reading.name.removesuffix("_input")
            label = text(read_small(chip / f"{stem}_label")) or stem
            found.append(ThermalInfo(f"{name} {label}", value, _SOURCES.get(name, "chassis")))
            if len(found) == MAX_SENSORS:
                return tuple(found)
    return tuple(found)
