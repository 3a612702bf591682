"""How many points a whole run of the crash suites takes at least, so that the counts that it prints are kept. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Floor:
    """Points of one kind.

    Args:
        what: how a shortfall names them.
        counts: beginnings of the names of the counts that are added up.
        sample: least number of a run that takes a sample.
        full: least number of a run that takes every point.
        tool: what the points need on the machine; without it they have no floor.
    """

    what: str
    counts: tuple[str, ...]
    sample: int
    full: int
    tool: str | None = None


FLOORS = (
    Floor("kill points", ("kill points of the runner",), 1_000, 10_000),
    Floor("power losses", ("of these with a power loss", "power losses under real system calls"), 300, 300),
    Floor("kills at system calls", ("kills at system calls of a real process",), 12, 300, tool="strace"),
    Floor("flipped bits", ("flipped bits of ",), 2_000, 2_000),
)
"""Least numbers that a whole run keeps."""


def missed(totals: Mapping[str, int], *, full: bool, tools: Collection[str]) -> list[str]:
    """What a whole run fell short of, one sentence each.

    Args:
        totals: counts of the run by name.
        full: whether every point was wanted.
        tools: what the machine has of the tools that floors name.
    """
    found = []
    for floor in FLOORS:
        least = floor.full if full else floor.sample
        number = sum(count for name, count in totals.items() if name.startswith(floor.counts))
        if number < least and (floor.tool is None or floor.tool in tools):
            found.append(f"{number} {floor.what}, at least {least} are promised")
    return found


def is_whole(folder: Path, start: Path, args: Sequence[str], *, marked: str, keyword: str) -> bool:
    """Whether a run takes the whole crash suites: its folder or one above was named, its mark, and nothing narrower.

    Args:
        folder: where the crash suites lie.
        start: where the run was started.
        args: files and folders that were named.
        marked: expression of ``-m``.
        keyword: expression of ``-k``.
    """
    named = [(start / arg).resolve() for arg in args]
    return marked == "crash" and not keyword and any(path == folder or path in folder.parents for path in named)
