"""A table of the page docs/statistics.md."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the page."""

    name: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def markdown(self) -> str:
        """As Markdown."""
        lines = [self.head, tuple("---" for _ in self.head), *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)
