"""The table of states, row by row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasc_compute.contracts import (
    EngineId,
    EngineRuntimeKind,
    HandleReference,
    InstanceRecord,
    InstanceState,
    PinnedReference,
    ProcessReference,
    RemoteReference,
)
from tasc_compute.errors import ContractError
from tasc_compute.state import Liveness, deadline, format_time, parse_time, state_of

DEADLINE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BEFORE, AFTER = DEADLINE - timedelta(milliseconds=1), DEADLINE + timedelta(hours=1)
REF = ProcessReference(1, "t")


def record(ref: HandleReference | None = REF) -> InstanceRecord:
    return InstanceRecord(
        "one",
        "self",
        EngineId.VLLM,
        "one",
        EngineRuntimeKind.PROCESS,
        ref,
        8000,
        (),
        "n",
        format_time(BEFORE),
        format_time(DEADLINE),
    )


@pytest.mark.parametrize(
    ("ref", "liveness", "healthy", "now", "state"),
    [
        (None, Liveness.GONE, False, AFTER, InstanceState.RESERVING),
        (REF, Liveness.GONE, True, BEFORE, InstanceState.EXITED),
        (REF, Liveness.GONE, False, AFTER, InstanceState.EXITED),
        (REF, Liveness.ALIVE, True, BEFORE, InstanceState.READY),
        (REF, Liveness.ALIVE, True, AFTER, InstanceState.READY),
        (REF, Liveness.UNKNOWN, True, AFTER, InstanceState.READY),
        (REF, Liveness.ALIVE, False, BEFORE, InstanceState.STARTING),
        (REF, Liveness.ALIVE, False, DEADLINE, InstanceState.UNHEALTHY),
        (REF, Liveness.ALIVE, False, AFTER, InstanceState.UNHEALTHY),
        (REF, Liveness.UNKNOWN, False, BEFORE, InstanceState.STARTING),
        (RemoteReference("n2", "one"), Liveness.UNKNOWN, False, AFTER, InstanceState.UNHEALTHY),
        (PinnedReference("speech"), Liveness.GONE, False, AFTER, InstanceState.READY),
    ],
)
def test_every_row_of_the_table(ref, liveness, healthy, now, state):
    """Lesson 42: the state is derived, so that no failure sticks."""
    assert state_of(record(ref), liveness, healthy=healthy, now=now) is state


@given(st.sampled_from(list(Liveness)), st.booleans(), st.integers(-(10**9), 10**9))
def test_a_state_exists_always_and_only_the_gone_are_exited(liveness, healthy, offset_ms):
    now = DEADLINE + timedelta(milliseconds=offset_ms)
    state = state_of(record(), liveness, healthy=healthy, now=now)
    assert (state is InstanceState.EXITED) == (liveness is Liveness.GONE)


def test_times_are_utc_with_milliseconds():
    assert format_time(datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)) == "2026-01-02T03:04:05.678Z"
    assert deadline(DEADLINE, 1500) == "2026-01-02T03:04:06.500Z"
    assert parse_time("2026-01-02T03:04:06.500Z") == datetime(2026, 1, 2, 3, 4, 6, 500_000, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "soon", "2026-01-02T03:04:05", "2026-13-02T03:04:05Z"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ContractError):
        parse_time(text)
