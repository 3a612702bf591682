"""The word that a run stands on, looked at while it sends: how often, what ends, what stays."""

from __future__ import annotations

import dataclasses

import pytest

from tasc_collector.contracts.fault import FaultReason
from tasc_collector.errors import SignatureError, TascError
from tasc_collector.journal import RecordKind
from tasc_collector.limits import STANDING_LOOK_EVERY_S
from tasc_collector.transport.clock import SystemClock
from tests.support.memory_server import MemoryServer
from tests.support.run_contexts import Setup
from tests.support.runs import ORIGINS, faults, memory_run, records, run

REVOKED = FaultReason.AUTHORIZATION_REVOKED
ONE_AT_A_TIME = {"load_model": {"kind": "closed", "concurrency": 1}}


def window(**plan: object) -> Setup:
    return Setup(ORIGINS, plan={**ONE_AT_A_TIME, **plan})


class MovedClock(SystemClock):
    """The machine's clocks, with the monotonic one moved on by the test."""

    def __init__(self) -> None:
        self._ahead_ns = 0

    def advance(self, seconds: float) -> None:
        self._ahead_ns += round(seconds * 1e9)

    def now_ns(self) -> int:  # type: ignore[override]  # it has a state here
        return SystemClock.now_ns() + self._ahead_ns


class Word:
    """A word that is over from the n-th look on."""

    def __init__(self, server: MemoryServer, over_after_calls: int) -> None:
        self._server, self._calls, self.looks = server, over_after_calls, 0

    def __call__(self) -> FaultReason | None:
        self.looks += 1
        return REVOKED if sum(self._server.sent.values()) >= self._calls else None


def test_a_word_that_is_over_stops_the_run_for_good_and_the_rest_gets_its_reason() -> None:
    server = MemoryServer()
    context = memory_run(server, setup=window(), look=Word(server, 2), look_every_s=0)
    result = run(context)
    assert sum(server.sent.values()) == 2, "the third call is connected, and not leased"
    assert (result.states, result.reasons) == (
        {"success": 2, "not_attempted": 4},
        {"authorization-revoked": 4},
    )
    assert (result.status, result.stop_reason) == ("complete", "authorization-revoked")
    assert result.seal is not None and {fault.reason for fault in faults(context)} == {REVOKED}
    assert len(records(context, RecordKind.LEASE)) == 2
    assert run(dataclasses.replace(context, look=None)).sent_calls == 0, "another run sends nothing of it any more"
    assert sum(server.sent.values()) == 2


def test_a_word_that_is_over_before_the_first_call_sends_nothing_not_even_a_warm_up() -> None:
    server = MemoryServer()
    context = memory_run(server, setup=window(warm_up_calls_per_profile=2), look=lambda: REVOKED)
    result = run(context)
    assert result.states == {"not_attempted": 6} and not server.sent and result.sent_calls == 0


def test_the_word_is_looked_at_before_a_send_and_no_more_often_than_its_interval() -> None:
    server, clock = MemoryServer(), MovedClock()
    word = Word(server, 99)
    server.on_request = lambda: clock.advance(STANDING_LOOK_EVERY_S / 2)
    assert run(memory_run(server, setup=window(), clock=clock, look=word)).states == {"success": 6}
    assert word.looks == 3, "at 0, 5 and 10 s: six calls, one every 2.5 s"


def test_a_call_in_flight_is_read_to_its_end_when_the_word_is_over() -> None:
    server = MemoryServer()
    setup = window(load_model={"kind": "closed", "concurrency": 3}, pair_isolation="overlap")
    context = memory_run(server, setup=setup, look=Word(server, 1), look_every_s=0)
    result = run(context)
    sent = sum(server.sent.values())
    assert 1 <= sent <= 6 and result.states == {"success": sent} | ({"not_attempted": 6 - sent} if sent < 6 else {})


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (
            SignatureError("the signature is not right", where="hourly.json", way_out="restore the file"),
            r"hourly\.json",
        ),
        (OSError(5, "Input/output error", "/somewhere/secret"), r"^it cannot be told .* -> check the state folder"),
    ],
)
def test_a_word_that_cannot_be_read_fails_the_run_and_leaves_the_rest_to_be_sent_later(
    failure: Exception, said: str
) -> None:
    server = MemoryServer()

    def unreadable() -> FaultReason | None:
        if sum(server.sent.values()) == 3:
            raise failure
        return None

    context = memory_run(server, setup=window(), look=unreadable, look_every_s=0)
    with pytest.raises(TascError, match=said):
        run(context)
    assert sum(server.sent.values()) == 3 and not faults(context)
    later = run(dataclasses.replace(context, look=lambda: None))
    assert (later.status, later.states) == ("complete", {"success": 6}) and set(server.sent.values()) == {1}
