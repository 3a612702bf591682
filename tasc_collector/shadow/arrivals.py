"""A trace of arrivals: when each pair of an open load starts, in seconds after the first.

The file has one decimal number per line, not decreasing; empty lines are left out. Its digest is over the numbers, so that
line ends and spelling do not matter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from tasc_collector import limits
from tasc_collector.canonical import digest
from tasc_collector.errors import InputError

_NUMBER = re.compile(rb"[0-9]{1,15}(?:\.[0-9]{1,32})?(?:[eE][+-]?[0-9]{1,2})?")
ARRIVALS_DOMAIN = "tasc/arrival-trace/v1"


def read_arrivals(lines: Iterable[bytes], *, where: str) -> tuple[float, ...]:
    """Offsets in seconds, the first one becoming 0.

    Raises:
        InputError: a line is no number, the numbers decrease, or there are too many; names the line.
    """
    found: list[float] = []
    for number, raw in enumerate(lines, start=1):
        line = raw.strip()
        if not line:
            continue
        value = float(line) if _NUMBER.fullmatch(line) else math.nan
        if not math.isfinite(value) or (found and value < found[-1]):
            raise InputError(
                "not a time of arrival",
                where=f"{where}:{number}",
                rule="seconds from 0 on, one decimal number per line, not decreasing",
                way_out="correct the line",
            )
        found.append(value)
        if len(found) > limits.MAX_LOGICAL_EXECUTIONS:
            raise InputError(f"more than {limits.MAX_LOGICAL_EXECUTIONS} arrivals", where=where, way_out="cut the file")
    return tuple(value - found[0] for value in found)


def arrivals_digest(arrivals: Sequence[float]) -> str:
    """What a plan pins: ``sha256:<hex>`` over the offsets."""
    return digest(ARRIVALS_DOMAIN, list(arrivals))
