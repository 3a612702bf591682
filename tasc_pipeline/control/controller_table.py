"""The controller's table: which fact a state takes, and where it leads (original project, section 3.14).

What is not a row is refused. A test compares these rows with the table in ``docs/controller.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from tasc_collector.contracts.collection import Purpose
from tasc_collector.contracts.controller import ControllerSnapshot, ControllerState

FactKind = Literal[
    "protocol-registered",
    "collection-started",
    "development-evidence-ready",
    "development-assessment-recorded",
    "shadow-assessment-started",
    "holdout-assessment-recorded",
    "window-manifest-recorded",
    "window-assessment-recorded",
    "deployment-observed",
    "identity-drift-recorded",
    "protocol-expiry-observed",
    "controller-retired",
]
STATES: Final[tuple[ControllerState, ...]] = get_args(ControllerState)
FACTS: Final[tuple[FactKind, ...]] = get_args(FactKind)
LIVE: Final = tuple(state for state in STATES if state != "RETIRED")
AFTER_EXPIRY: Final[frozenset[FactKind]] = frozenset(
    ("identity-drift-recorded", "protocol-expiry-observed", "controller-retired")
)
"""Facts that are taken in every state but RETIRED, also after the protocol has expired."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    fact: FactKind
    state: ControllerState
    status: str | None
    """The assessment's, for a fact that records one."""
    leads_to: ControllerState


def _rows() -> Iterator[Row]:
    yield Row("protocol-registered", "DRAFT", None, "REGISTERED")
    yield Row("collection-started", "REGISTERED", None, "COLLECTING")
    yield Row("development-evidence-ready", "COLLECTING", None, "DEV_READY")
    yield Row("development-assessment-recorded", "DEV_READY", "NOMINATED", "NOMINATED")
    yield Row("development-assessment-recorded", "DEV_READY", "NO_CANDIDATE", "HOLD")
    yield Row("development-assessment-recorded", "DEV_READY", "INSUFFICIENT_EVIDENCE", "HOLD")
    yield Row("development-assessment-recorded", "DEV_READY", "STALE", "STALE")
    yield Row("shadow-assessment-started", "NOMINATED", None, "SHADOW_ASSESSING")
    yield Row("holdout-assessment-recorded", "SHADOW_ASSESSING", "PASS", "HOLDOUT_CONFIRMED")
    yield Row("holdout-assessment-recorded", "SHADOW_ASSESSING", "HOLD", "HOLD")
    yield Row("holdout-assessment-recorded", "SHADOW_ASSESSING", "INSUFFICIENT_EVIDENCE", "HOLD")
    yield Row("holdout-assessment-recorded", "SHADOW_ASSESSING", "STALE", "STALE")
    yield Row("window-manifest-recorded", "SHADOW_ASSESSING", None, "SHADOW_ASSESSING")
    yield Row("window-manifest-recorded", "HOLDOUT_CONFIRMED", None, "HOLDOUT_CONFIRMED")
    yield Row("window-manifest-recorded", "PROMOTION_RECOMMENDED", None, "HOLDOUT_CONFIRMED")
    yield Row("window-manifest-recorded", "MONITORING", None, "MONITORING")
    yield Row("window-assessment-recorded", "HOLDOUT_CONFIRMED", "PASS", "PROMOTION_RECOMMENDED")
    yield Row("window-assessment-recorded", "HOLDOUT_CONFIRMED", "HOLD", "HOLD")
    yield Row("window-assessment-recorded", "HOLDOUT_CONFIRMED", "INSUFFICIENT_EVIDENCE", "HOLD")
    yield Row("window-assessment-recorded", "HOLDOUT_CONFIRMED", "STALE", "STALE")
    yield Row("window-assessment-recorded", "MONITORING", "PASS", "MONITORING")
    yield Row("window-assessment-recorded", "MONITORING", "HOLD", "ROLLBACK_RECOMMENDED")
    yield Row("window-assessment-recorded", "MONITORING", "INSUFFICIENT_EVIDENCE", "HOLD")
    yield Row("window-assessment-recorded", "MONITORING", "STALE", "STALE")
    yield Row("deployment-observed", "PROMOTION_RECOMMENDED", None, "MONITORING")
    for state in LIVE:
        yield Row("identity-drift-recorded", state, None, "STALE")
        yield Row("protocol-expiry-observed", state, None, "STALE")
        yield Row("controller-retired", state, None, "RETIRED")


ROWS: Final[tuple[Row, ...]] = tuple(_rows())
"""The whole table."""
TARGETS: Final[Mapping[tuple[FactKind, ControllerState, str | None], ControllerState]] = {
    (row.fact, row.state, row.status): row.leads_to for row in ROWS
}

PLAN_STATES: Final[Mapping[Purpose, tuple[ControllerState, ...]]] = {
    "development": ("REGISTERED", "COLLECTING"),
    "holdout": ("SHADOW_ASSESSING",),
    "window": ("SHADOW_ASSESSING",),
    "monitoring": ("HOLDOUT_CONFIRMED", "PROMOTION_RECOMMENDED", "MONITORING"),
}
"""In which states a plan of a purpose may be issued. A comparison has no controller; a plan of purpose ``window``
embeds a snapshot in SHADOW_ASSESSING, and later states are fed by ``monitoring``."""


def taken_in(fact: FactKind) -> tuple[ControllerState, ...]:
    """The states that take a kind of fact, in order of the study's life."""
    found = {row.state for row in ROWS if row.fact == fact}
    return tuple(state for state in STATES if state in found)


def plan_refusal(snapshot: ControllerSnapshot, purpose: Purpose) -> str | None:
    """The rule by which no plan of a purpose may be issued in this state; None where one may."""
    states = PLAN_STATES.get(purpose)
    if states is None:
        return f"a plan for {purpose} belongs to a study without a controller"
    if snapshot.state in states:
        return None
    return f"a plan for {purpose} is issued in {either(states)}; the controller is in {snapshot.state}"


def either(states: tuple[ControllerState, ...]) -> str:
    """States as words."""
    return "every state but RETIRED" if len(states) == len(LIVE) else " or ".join(states)
