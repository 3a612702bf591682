"""docs/decisions-explained.md lists the gates and reasons that the code has."""

from __future__ import annotations

import re
from pathlib import Path

from tasc_pipeline.control.decisions.gates import RULES
from tasc_pipeline.control.decisions.words import REASONS

DOCS = Path(__file__).resolve().parents[4] / "docs"
PAGE = DOCS / "decisions-explained.md"


def rows(head: str) -> list[list[str]]:
    """The rows of the table under a head line."""
    lines = PAGE.read_text().splitlines()
    begin = lines.index(head) + 2
    found = []
    for line in lines[begin:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_every_gate_is_on_the_page_as_it_is_in_the_code() -> None:
    table = rows("| gate | asks | holds where | kind | unit |")
    assert [re.sub("`", "", row[0]) for row in table] == list(RULES)
    for row, rule in zip(table, RULES.values(), strict=True):
        assert (row[1], row[3], row[4]) == (rule.asks, rule.kind, rule.unit)
        assert row[2].endswith("≥ bound" if rule.operator == ">=" else "≤ bound")


def test_every_reason_is_on_the_page_in_the_words_of_the_report() -> None:
    table = rows("| reason | means |")
    assert {row[0].strip("`"): row[1] for row in table} == dict(REASONS)


def test_the_page_is_linked() -> None:
    assert "(decisions-explained.md)" in (DOCS / "README.md").read_text()
