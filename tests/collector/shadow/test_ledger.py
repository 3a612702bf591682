from __future__ import annotations

from typing import Any

import pytest

from tasc_collector.errors import JournalCorrupt
from tasc_collector.journal import RecordKind
from tasc_collector.shadow.keys import ExecutionKey
from tasc_collector.shadow.ledger import Ledger, Stage

TRACE, KEY = "trace-1", ExecutionKey("case-1", "replicate-1", "a")
INTENT = {
    "caseId": "case-1",
    "groupId": "case-1",
    "replicateId": "replicate-1",
    "replicateIndex": 0,
    "profileId": "a",
    "trace": {"traceId": TRACE},
}
LEASE = {"attemptId": "attempt-1", "attemptNumber": 1}


def outcome(state: str, status: str = "failure", category: str | None = "transport") -> dict[str, Any]:
    return {
        "attempt": {"dispatchState": state, "status": status, "failureCategory": category},
        "terminalOutputId": None,
    }


FAULT = {
    "caseId": "case-1",
    "replicateId": "replicate-1",
    "profileId": "a",
    "traceId": TRACE,
    "state": "not_sent",
    "reason": "connect-failed",
}
I, L, A, C = (  # noqa: E741 - initials of the moves
    (RecordKind.INTENT, INTENT),
    (RecordKind.LEASE, LEASE),
    (RecordKind.ACCEPTED, {}),
    (RecordKind.COMPLETE, {}),
)
SUCCESS, UNKNOWN, NOT_SENT = (
    (RecordKind.OUTCOME, outcome("completed", "success", None)),
    (RecordKind.OUTCOME, outcome("sent_unknown")),
    (RecordKind.OUTCOME, outcome("not_sent")),
)
F = (RecordKind.FAULT, FAULT)


def fold(*moves: tuple[RecordKind, dict[str, Any]]) -> Ledger:
    ledger = Ledger()
    for sequence, (kind, body) in enumerate(moves, start=1):
        ledger.note(kind, TRACE, body, sequence)
    return ledger


@pytest.mark.parametrize(
    ("moves", "stage", "final"),
    [
        ((I,), Stage.INTENT, ""),
        ((I, L), Stage.LEASED, ""),
        ((I, L, SUCCESS), Stage.OUTCOME, "success"),
        ((I, L, SUCCESS, A), Stage.ACCEPTED, "success"),
        ((I, L, SUCCESS, A, C), Stage.COMPLETE, "success"),
        ((I, L, UNKNOWN, A, C), Stage.COMPLETE, "sent_unknown"),
        ((I, NOT_SENT, L, SUCCESS, A), Stage.ACCEPTED, "success"),
        ((I, L, NOT_SENT, L, UNKNOWN, A), Stage.ACCEPTED, "sent_unknown"),
        ((I, NOT_SENT, F), Stage.FAULT, "not_sent"),
        ((F,), Stage.FAULT, "not_sent"),
    ],
)
def test_the_moves_that_are_allowed(moves: tuple, stage: Stage, final: str) -> None:  # type: ignore[type-arg]
    progress = fold(*moves).executions[KEY]
    assert (progress.stage, progress.final_state) == (stage, final)


@pytest.mark.parametrize(
    "moves",
    [
        (I, I),
        (L,),
        (I, L, L),
        (I, L, UNKNOWN, L),
        (I, L, SUCCESS, L),
        (I, SUCCESS),
        (I, A),
        (I, L, A),
        (I, L, NOT_SENT, A),
        (I, L, SUCCESS, C),
        (I, L, SUCCESS, A, A),
        (I, L, SUCCESS, A, C, C),
        (I, L, F),
        (I, L, UNKNOWN, F),
        (I, L, SUCCESS, A, F),
        (C,),
        (A,),
    ],
)
def test_every_other_move_is_corruption_and_never_repaired(moves: tuple) -> None:  # type: ignore[type-arg]
    with pytest.raises(JournalCorrupt):
        fold(*moves)


def test_bodies_are_dropped_when_an_execution_is_final() -> None:
    assert TRACE in fold(I, L).open
    assert fold(I, L).open[TRACE].lease == LEASE
    assert fold(I, L, SUCCESS).open[TRACE].lease is None
    assert fold(I, L, SUCCESS, A).open == {}
    assert fold(I, NOT_SENT, F).open == {}


def test_warm_up_calls_are_remembered_by_their_lease_and_never_counted() -> None:
    ledger = Ledger()
    ledger.note(RecordKind.INTENT, "warmup-a-0000", {}, 1)
    ledger.note(RecordKind.LEASE, "warmup-a-0000", LEASE, 2)
    ledger.note(RecordKind.OUTCOME, "warmup-a-0000", {"dispatchState": "completed"}, 3)
    assert ledger.warm_up_leased == {"warmup-a-0000"}
    assert ledger.executions == {}
    with pytest.raises(JournalCorrupt):
        ledger.note(RecordKind.LEASE, "warmup-a-0000", LEASE, 4)


def admitted(host: str | None) -> tuple[RecordKind, dict[str, Any]]:
    return RecordKind.ADMISSION, {"pairs": 1} if host is None else {"pairs": 1, "host": host}


@pytest.mark.parametrize(
    ("moves", "host"),
    [
        ((admitted("one"), I, L), "one"),
        ((admitted("one"), I, L, admitted("two")), "one"),
        ((admitted("one"), I, L, NOT_SENT, admitted("two"), L), "two"),
        ((admitted(None), I, L), "of the lock file"),
        ((admitted("one"), admitted(None), I, L), "of the lock file"),
        ((admitted(None), I, L, admitted(None)), ""),
        ((admitted(None), I, L, admitted("two")), ""),
    ],
)
def test_the_admission_before_a_lease_says_on_which_host_it_was_made(moves: tuple, host: str) -> None:  # type: ignore[type-arg]
    assert fold(*moves).leased_on(TRACE, "of the lock file") == host
