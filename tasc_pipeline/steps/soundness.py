"""What must hold of a window, or its evidence is wrong: six named outcomes, each with what was checked.

They are the blocking checks of the UI. Most of each is ``steps.verify``; here its findings get their names, and three more
are made: no execution that the plan does not have, no more work than the budget, and no column that is not declared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tasc_collector.errors import TascError
from tasc_collector.journal import scan
from tasc_collector.shadow.executions import planned_pairs
from tasc_collector.shadow.ledger import Ledger
from tasc_pipeline.home import keys
from tasc_pipeline.home.layout import Home
from tasc_pipeline.steps.approved import ApprovedPlan, load_approved
from tasc_pipeline.steps.collect import run_context
from tasc_pipeline.steps.collected import telling
from tasc_pipeline.steps.verify import Finding, findings
from tasc_pipeline.warehouse.forbidden import undeclared_columns

PLAN_MATCHES: Final = "plan_digest_matches_key"
SIGNATURES: Final = "signatures_verify"
MEMBERS: Final = "no_unsealed_member"
BUDGET: Final = "budget_kept"
COLUMNS: Final = "forbidden_columns_absent"
PARQUET: Final = "journal_equals_parquet"
OF_EVIDENCE: Final = (SIGNATURES, MEMBERS, BUDGET, COLUMNS, PARQUET)
"""What is checked when a window is closed; ``PLAN_MATCHES`` is checked before it is collected."""

_FINDINGS: Final[Mapping[str, str]] = {"journal": SIGNATURES, "signatures": SIGNATURES, "counts": SIGNATURES}
"""Which outcome a finding of ``steps.verify`` belongs to; all that are about Parquet belong to ``PARQUET``."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One thing that must hold.

    Attributes:
        name: which.
        sound: whether it does.
        details: what was checked, by name.
    """

    name: str
    sound: bool
    details: Mapping[str, str]


def plan_matches(home: Home, window_key: str) -> Outcome:
    """Whether key, declaration, plan and the operator's pin name each other."""
    try:
        approved = load_approved(home, window_key)
    except TascError as error:
        return Outcome(PLAN_MATCHES, False, {"authority": str(error)})
    return Outcome(PLAN_MATCHES, True, {"declaration": approved.declaration.record.digest, "plan": approved.digest})


def evidence_outcomes(home: Home, window_key: str) -> list[Outcome]:
    """Everything that must hold of what a window left; what cannot be checked is not sound."""
    made = [*findings(home, window_key), *_own(home, window_key)]
    by_name: dict[str, list[Finding]] = {name: [] for name in OF_EVIDENCE}
    authority = [item for item in made if item.name == "authority"]
    for item in made:
        name = _FINDINGS.get(item.name, PARQUET if item.name.startswith("parquet") else item.name)
        if name in by_name:
            by_name[name].append(item)
    return [_outcome(name, [*authority, *found], checked=bool(found)) for name, found in by_name.items()]


def _outcome(name: str, found: list[Finding], *, checked: bool) -> Outcome:
    details = {item.name: item.detail if item.sound else f"NOT SOUND: {item.detail}" for item in found}
    if not checked:
        details[name] = "NOT SOUND: could not be checked, because of what is above"
    return Outcome(name, checked and all(item.sound for item in found), details)


def _own(home: Home, window_key: str) -> Iterator[Finding]:
    try:
        approved = load_approved(home, window_key)
        ledger = _ledger(home, approved)
    except TascError:
        return  # `findings` says what is wrong with them
    yield _members(approved, ledger)
    yield _budget(approved, ledger)
    try:
        found = undeclared_columns(home.warehouse, window_key)
    except TascError as error:
        yield Finding(COLUMNS, False, str(error))
        return
    detail = ", ".join(found) if found else "every column of every part is declared; none holds what a user wrote"
    yield Finding(COLUMNS, not found, detail)


def _ledger(home: Home, approved: ApprovedPlan) -> Ledger:
    binding = run_context(home, approved, ()).binding
    key = keys.hmac_key(home, approved.study.study.keys.journal_hmac)
    ledger = Ledger()
    with telling(approved, "reading what was planned and sent") as each:
        for record in scan(home.run(approved.collected_as), binding, key):
            ledger.apply(record)
            each(record)
    return ledger


def _members(approved: ApprovedPlan, ledger: Ledger) -> Finding:
    plan = approved.plan.record
    planned = {
        key for pair in planned_pairs(plan, approved.collected_under, approved.case_set) for key in pair.executions()
    }
    strangers = [key for key in ledger.executions if key not in planned]
    if strangers:
        return Finding(MEMBERS, False, f"{len(strangers)} executions of the journal are not in the plan")
    return Finding(MEMBERS, True, f"{len(ledger.executions)} executions, all of the {len(planned)} that the plan has")


def _budget(approved: ApprovedPlan, ledger: Ledger) -> Finding:
    budget = approved.plan.record.budget
    leases = sum(progress.leases for progress in ledger.executions.values())
    used = (
        ("executions", len(ledger.executions), budget.max_logical_executions),
        ("attempts", leases, budget.max_attempts),
        ("network calls", leases + len(ledger.warm_up_leased), budget.max_network_calls),
    )
    over = [f"{count} {name}, at most {most}" for name, count, most in used if count > most]
    return Finding(BUDGET, not over, "; ".join(over or (f"{count} of {most} {name}" for name, count, most in used)))
