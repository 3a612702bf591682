"""Lookups: in a thread of their own, bounded in number and time, every answer checked, the first pinned."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.errors import DispatchState, TransportError
from tasc_collector.limits import MAX_STUCK_LOOKUPS
from tasc_collector.transport.codes import Code
from tasc_collector.transport.origins import parse_origin
from tasc_collector.transport.resolver import choose, lookup
from tests.support.calls import call

NAME = parse_origin("https://api.example.com")


def test_the_first_answer_is_pinned() -> None:
    assert str(choose(NAME, ["93.184.216.34", "2606:4700:4700::1111"], ())) == "93.184.216.34"


@pytest.mark.parametrize("answers", [[], ["93.184.216.34"] * 33])
def test_no_answer_and_too_many_answers_are_failures(answers: list[str]) -> None:
    with pytest.raises(TransportError) as refusal:
        choose(NAME, answers, ())
    assert (refusal.value.code, refusal.value.state) == (Code.RESOLVE_FAILED, DispatchState.NOT_SENT)


def test_the_systems_resolver_is_asked_without_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(host: str, port: int, **kind: object) -> list[tuple[object, ...]]:
        assert (host, port) == ("api.example.com", 443)
        return [(socket.AF_INET, 1, 6, "", ("93.184.216.34", 443)), (socket.AF_INET, 1, 6, "", ("93.184.216.34", 443))]

    monkeypatch.setattr(socket, "getaddrinfo", answers)
    assert asyncio.run(lookup("api.example.com", 443)) == ["93.184.216.34"]


@pytest.mark.parametrize("error", [socket.gaierror(-2, "CANARY"), OSError("CANARY"), UnicodeError("CANARY")])
def test_a_failing_lookup_is_one_of_our_errors_without_its_text(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(TransportError) as refusal:
        asyncio.run(lookup("api.example.com", 443))
    assert "CANARY" not in str(refusal.value)
    assert refusal.value.__cause__ is None


def test_a_lookup_that_hangs_ends_by_its_own_deadline_and_hanging_ones_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = threading.Event()

    def hang(*_: object, **__: object) -> list[object]:
        release.wait(30)
        return []

    async def go() -> tuple[Code | None, list[Code | None]]:
        limits = HttpLimits(connect_timeout_ms=50)
        first = await call("https://api.example.com", limits=limits)
        more = await asyncio.gather(
            *(call("https://api.example.com", limits=limits) for _ in range(MAX_STUCK_LOOKUPS + 5))
        )
        return first.result.code, [item.result.code for item in more]

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    before = threading.active_count()
    try:
        first, more = asyncio.run(go())
        assert first is Code.RESOLVE_TIMEOUT
        assert set(more) == {Code.RESOLVE_TIMEOUT, Code.RESOLVE_FAILED}
        assert threading.active_count() - before <= MAX_STUCK_LOOKUPS
    finally:
        release.set()
        for thread in threading.enumerate():
            if thread.name == "tasc-lookup":
                thread.join(5)
