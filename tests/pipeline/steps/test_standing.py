"""A window that is being sent when its word is taken back: what leaves after that, and what becomes of the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tasc_collector.contracts.operations import KeyRing
from tasc_collector.contracts.scalars import format_timestamp, parse_timestamp
from tasc_collector.errors import NotAuthorized, TascError
from tasc_collector.shadow.progress import Snapshot
from tasc_collector.shadow.runner import RunResult
from tasc_pipeline.control.authorizations import Spend
from tasc_pipeline.home import key_changes, keys
from tasc_pipeline.home.ledger import read_entries
from tasc_pipeline.home.studies import load_study
from tasc_pipeline.steps import close, collect, publish, verify
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.steps.authorize import revoke
from tasc_pipeline.steps.prepare import prepare_window
from tests.support.authorized import MovedClock, authorized
from tests.support.window import World, now, world

CASES = 6


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    """One pair at a time, so that nothing is in flight when progress is shown."""
    with world(tmp_path, cases=CASES, recurring=True, warm_up=0, concurrency=1) as found:
        yield found


def prepared(made: World) -> str:
    return prepare_window(made.home, "first", format_timestamp(now()), now(), lead_s=0.2).window_key


def collected(
    made: World, key: str, *, at: int, event: Callable[[], object], clock: MovedClock | None = None
) -> tuple[RunResult, int]:
    """Collect, with an event when so many executions are done; also what the servers had counted then."""
    counted: list[int] = []

    def show(snapshot: Snapshot) -> None:
        if snapshot.done == at and not counted:
            counted.append(sum(made.inference_calls))
            event()

    result = collect.collect(made.home, key, show=show, show_every_s=0, clock=clock, look_every_s=0)
    return result, counted[0]


def finished(made: World, key: str) -> list[str]:
    """Publish, close and verify the window."""
    publish.publish(made.home, key)
    close.close(made.home, key)
    return verify.verify_window(made.home, key)


def role_key(made: World, role: str) -> str:
    return next(entry.key_id for entry in keys.read_ring(made.home).keys if entry.role == role)


def test_a_revocation_stops_a_window_that_is_being_sent_and_the_states_add_up(made: World) -> None:
    authorized(made.home)
    key = prepared(made)
    result, calls = collected(made, key, at=5, event=lambda: revoke(made.home, "first", "hourly", "stop-it", now()))
    assert calls == 5 and sum(made.inference_calls) == 5, "no request leaves after the revocation"
    assert result.states == {"success": 5, "not_attempted": 2 * CASES - 5} and result.planned == 2 * CASES
    assert result.reasons == {"authorization-revoked": 7}
    assert (result.status, result.stop_reason) == ("complete", "authorization-revoked")
    assert finished(made, key)
    spent = read_entries(made.home, load_study(made.home, "first").study)[key].counted
    assert spent == Spend(1, 5, 30, 0, None), "what it did not use is given back: 6 tokens in each of 5 answers"
    assert collect.collect(made.home, key, show=lambda _: None).sent_calls == 0
    assert sum(made.inference_calls) == 5


def test_an_authorization_that_expires_stops_a_window_that_is_being_sent(made: World) -> None:
    clock = MovedClock()
    word = authorized(made.home, days=1 / 1_440)
    key = prepared(made)
    end = parse_timestamp(word.expires_at)
    assert parse_timestamp(load_approved(made.home, key).declaration.record.event_time_end_exclusive) > end
    result, calls = collected(made, key, at=3, event=lambda: clock.move_to(end), clock=clock)
    assert calls == 3 == sum(made.inference_calls) and result.states == {"success": 3, "not_attempted": 9}
    assert result.reasons == {"authorization-expired": 9} and result.stop_reason == "authorization-expired"


@pytest.mark.parametrize("role", ["operator", "dispatch", "collector"])
def test_a_key_that_is_revoked_stops_a_window_that_is_being_sent(made: World, role: str) -> None:
    key = made.approved_window(lead_s=0.2)
    since = format_timestamp(now() - timedelta(days=1)) if role == "operator" else None
    result, calls = collected(
        made, key, at=4, event=lambda: key_changes.revoke(made.home, role_key(made, role), now(), since=since)
    )
    assert calls == 4 == sum(made.inference_calls)
    assert result.states == {"success": 4, "not_attempted": 8} and result.reasons == {"key-ended": 8}


def test_an_operators_key_that_is_revoked_from_now_on_leaves_what_it_signed_before(made: World) -> None:
    authorized(made.home)
    key = prepared(made)
    result, _ = collected(
        made, key, at=4, event=lambda: key_changes.revoke(made.home, role_key(made, "operator"), now())
    )
    assert result.states == {"success": 2 * CASES}


def without(role: str) -> Callable[[KeyRing], KeyRing]:
    """The key ring without its key of a role."""
    return lambda ring: ring.model_copy(update={"keys": tuple(key for key in ring.keys if key.role != role)})


def another_role(ring: KeyRing) -> KeyRing:
    """The key ring whose dispatch key has the collector's role."""
    changed = [key.model_copy(update={"role": "collector"}) if key.role == "dispatch" else key for key in ring.keys]
    return ring.model_copy(update={"keys": tuple(changed)})


@pytest.mark.parametrize("change", [without("dispatch"), without("operator"), another_role])
def test_a_key_that_the_ring_does_not_know_stops_the_run_and_the_rest_is_sent_when_it_is_back(
    made: World, change: Callable[[KeyRing], KeyRing]
) -> None:
    key, ring = made.approved_window(lead_s=0.2), keys.read_ring(made.home)
    with pytest.raises(NotAuthorized, match=r"may not sign now|is not in the key ring"):
        collected(made, key, at=5, event=lambda: keys.save_ring(made.home, change(ring)))
    assert sum(made.inference_calls) == 5
    keys.save_ring(made.home, ring)
    result = collect.collect(made.home, key, show=lambda _: None)
    assert (result.status, result.states) == ("complete", {"success": 2 * CASES})


def test_a_clock_that_stepped_back_before_the_keys_stops_the_run_and_nothing_is_lost(made: World) -> None:
    clock, key = MovedClock(), made.approved_window(lead_s=0.2)
    with pytest.raises(NotAuthorized, match="may not sign now") as refused:
        collected(made, key, at=5, event=lambda: clock.move_to(now() - timedelta(days=1)), clock=clock)
    assert "valid from" in str(refused.value.rule)
    result = collect.collect(made.home, key, show=lambda _: None)
    assert (result.status, result.states) == ("complete", {"success": 2 * CASES})


def test_an_authorization_that_is_removed_stops_the_run_and_the_rest_is_sent_when_it_is_back(made: World) -> None:
    authorized(made.home)
    key = prepared(made)
    path = made.home.authorizations("first") / "hourly.json"
    whole = path.read_bytes()
    with pytest.raises(TascError, match="is not in the study's folder"):
        collected(made, key, at=5, event=path.unlink)
    assert sum(made.inference_calls) == 5
    path.write_bytes(whole)
    result = collect.collect(made.home, key, show=lambda _: None)
    assert (result.status, result.states) == ("complete", {"success": 2 * CASES})
    assert sum(made.inference_calls) == 2 * CASES
    assert finished(made, key)
