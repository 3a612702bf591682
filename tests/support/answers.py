"""Answers written by hand, one file per runtime, and a short way to read them.

A section begins with ``=== route framing variant | outcome reason finish input output total events text`` and holds the
body as it is on the wire; ``-`` stands for none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tasc_collector.canonical import canonical_bytes
from tasc_collector.runtimes.answer import AnswerReader
from tasc_collector.runtimes.profile import Framing, Route, RuntimeProfile
from tasc_collector.runtimes.registry import profiles
from tasc_collector.runtimes.result import Answer, Arrival

FOLDER = Path(__file__).resolve().parent.parent / "collector" / "runtimes" / "answers"
MODEL = "demo-1"
AT_ONCE = Arrival(1_000, 0, 0)


@dataclass(frozen=True)
class Written:
    """One answer and what must be read of it."""

    profile: RuntimeProfile
    route: Route
    framing: Framing
    variant: str
    expected: tuple[str, ...]
    text: str | None
    body: bytes

    @property
    def name(self) -> str:
        """Test id."""
        return f"{self.profile.runtime}-{self.route}-{self.framing}-{self.variant}"


@cache
def all_written() -> tuple[Written, ...]:
    """Every section of every file."""
    return tuple(item for profile in profiles() for item in _sections(profile))


def written(variant: str) -> tuple[Written, ...]:
    """All sections of one variant."""
    return tuple(item for item in all_written() if item.variant == variant)


def one(runtime: str, route: Route, framing: Framing, variant: str = "success") -> Written:
    """One section."""
    (found,) = (
        item
        for item in all_written()
        if (item.profile.runtime, item.route, item.framing, item.variant) == (runtime, route, framing, variant)
    )
    return found


def _sections(profile: RuntimeProfile) -> Iterator[Written]:
    path = FOLDER / f"{profile.runtime}.txt"
    if not path.is_file():
        return
    for part in path.read_bytes().split(b"=== ")[1:]:
        head, _, body = part.partition(b"\n")
        place, _, expected = head.decode().partition(" | ")
        route, framing, variant = place.split()
        words = expected.split(" ", 7)
        text = None if words[7] == "-" else words[7]
        yield Written(profile, Route(route), Framing(framing), variant, tuple(words[:7]), text, body)


def summary(answer: Answer) -> tuple[str, ...]:
    """What a section's head says, of an answer."""
    usage = answer.usage
    numbers = (None, None, None) if usage is None else (usage.input, usage.output, usage.total)
    return (
        answer.outcome.value,
        answer.reason.value,
        answer.finish_reason.value if answer.finish_reason else "-",
        *("-" if number is None else str(number) for number in numbers),
        str(len(answer.events)),
    )


def reader_for(item: Written, **options: Any) -> AnswerReader:
    """A reader for one section."""
    kept: dict[str, Any] = {"keep_text": True, "opened_at_ns": AT_ONCE.at_ns, **options}
    return AnswerReader(item.profile, item.route, item.framing, MODEL, **kept)


def read(
    item: Written, body: bytes | None = None, *, cuts: tuple[int, ...] = (), clean_end: bool = True, **options: Any
) -> Answer:
    """Read a section, or another body in its place, in the chunks that the cuts give, all at one time."""
    data = item.body if body is None else body
    reader = reader_for(item, **options)
    for start, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        if end > start:
            reader.feed(data[start:end], AT_ONCE)
    return reader.finish(clean_end=clean_end)


def sse(*frames: Any) -> bytes:
    """Server-sent events: a dict is JSON, a pair is a named event, a text is data as it is."""
    lines = []
    for frame in frames:
        name, data = frame if isinstance(frame, tuple) else ("", frame)
        shown = data.encode() if isinstance(data, str) else canonical_bytes(data)
        lines.append((f"event: {name}\n".encode() if name else b"") + b"data: " + shown + b"\n\n")
    return b"".join(lines)
