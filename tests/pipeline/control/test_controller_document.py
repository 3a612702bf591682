"""The controller's page says what the code does: rows, sources, plan states, diagnoses, reasons to hold, options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
import typer

from tasc_collector.contracts.controller import ControllerState
from tasc_collector.contracts.operations import KeyRole
from tasc_collector.contracts.proposal import DIAGNOSES, HoldReason
from tasc_pipeline.cli.app import build
from tasc_pipeline.control.controller_sources import OPERATOR_FACTS
from tasc_pipeline.control.controller_table import LIVE, PLAN_STATES, ROWS
from tasc_pipeline.steps.controller import FINDERS

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "controller.md").read_text(encoding="utf-8")
KEYS = (DOCS / "keys.md").read_text(encoding="utf-8")


def table(page: str, first: str) -> list[list[str]]:
    """Cells of the table whose first column has this head, without back quotes."""
    found, inside = [], False
    for line in page.splitlines():
        if line.startswith(f"| {first} |"):
            inside = True
        elif inside and not line.startswith("|"):
            return found
        elif inside and not line.startswith("|---"):
            found.append([cell.strip().replace("`", "") for cell in line.strip("|").split("|")])
    return found


def test_every_row_is_on_the_page_and_no_other() -> None:
    written = []
    for fact, state, status, leads_to in table(PAGE, "fact"):
        states = LIVE if state == "every state but RETIRED" else (state,)
        written += [(fact, item, status or None, leads_to) for item in states]
    assert sorted(written, key=str) == sorted(
        ((row.fact, row.state, row.status, row.leads_to) for row in ROWS), key=str
    )


def test_every_state_with_a_next_record_is_listed_and_the_others_have_ended() -> None:
    listed = [row[0] for row in table(PAGE, "state")]
    assert listed == list(FINDERS)
    assert set(get_args(ControllerState)) - set(listed) == {"HOLD", "STALE", "ROLLBACK_RECOMMENDED", "RETIRED"}


def test_plan_states_diagnoses_and_reasons_to_hold_are_those_of_the_code() -> None:
    assert {row[0]: tuple(row[1].split(", ")) for row in table(PAGE, "purpose")} == dict(PLAN_STATES)
    assert [(row[0], row[2]) for row in table(PAGE, "diagnosis")] == [
        (name, rule.variable) for name, rule in DIAGNOSES.items()
    ]
    told = PAGE[PAGE.index("It holds instead") :]
    assert re.findall(r"`([a-z-]+)`", told) == list(get_args(HoldReason))
    assert all(f"`{kind}`" in PAGE for kind in OPERATOR_FACTS)


@pytest.mark.parametrize(("group", "page"), [("controller", PAGE), ("keys", KEYS)])
def test_every_command_and_option_is_on_the_page(group: str, page: str) -> None:
    found = typer.main.get_command(build(group)).commands[group]  # type: ignore[attr-defined]  # a click group
    for name, command in found.commands.items():
        assert f"tasc {group} {name}" in page
        for parameter in command.params:
            for option in getattr(parameter, "opts", ()):
                if option.startswith("--") and option not in ("--help", "--json"):
                    assert option in page, f"{name} {option}"


def test_every_role_has_its_row() -> None:
    assert [row[0] for row in table(KEYS, "key")] == [*get_args(KeyRole), "payload-hmac", "journal-hmac"]
