"""A window of engines that were just launched: fresh canary receipts, then declaration and plan, on the operator's word.

A receipt says what one launch showed. So each conditional route gets a new one after every launch, and the plan pins it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from tasc_collector.contracts.scalars import format_timestamp
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.ledger import read_entries
from tasc_pipeline.home.studies import LoadedStudy
from tasc_pipeline.steps.admission import conditional_routes
from tasc_pipeline.steps.canaries import admit_routes, check_canaries
from tasc_pipeline.steps.prepare import PreparedWindow, check_next_window, prepare_window

LEAD_S: Final = 2.0
"""The engines wait: the window starts at once."""


def check_engine_window(home: Home, study: LoadedStudy, as_of: str) -> None:
    """Whether a window and the canaries before it are allowed, before an engine is started for them.

    Raises:
        NotAuthorized: no standing authorization allows both; says which rule is in the way.
    """
    check_next_window(home, study.study.study_id, as_of)
    due = _routes(home, study)
    if due:
        check_canaries(home, study, due, read_entries(home, study.study), as_of)


def prepare_engine_window(
    home: Home,
    study: LoadedStudy,
    name: str,
    now: Callable[[], datetime],
    *,
    add_partition: Callable[[str], None] | None = None,
) -> PreparedWindow:
    """Obtain the receipts that the study's routes need, then seal and plan a window.

    Args:
        home: the state folder.
        study: the study; its engines are ready.
        name: of the request; its canaries are made once.
        now: the wall clock.
        add_partition: tells Dagster's instance.

    Raises:
        NotAuthorized: no standing authorization allows it.
        TascError: a canary did not show its route.
    """
    due, as_of = _routes(home, study), format_timestamp(now())
    if due:
        word = check_canaries(home, study, due, read_entries(home, study.study), as_of)
        admit_routes(home, study.study.study_id, word, name)
    at = now()
    return prepare_window(
        home, study.study.study_id, format_timestamp(at), at, lead_s=LEAD_S, add_partition=add_partition
    )


def _routes(home: Home, study: LoadedStudy) -> dict[str, str]:
    """Alias and route of every target whose route needs a receipt."""
    return {
        study.endpoints[profile_id].alias: study.target(profile_id).route
        for profile_id in conditional_routes(home, study)
    }
