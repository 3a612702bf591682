"""Windows that nobody approves one by one: prepared, collected, paid and assessed under a standing authorization.

The operator's private key is removed before anything unattended runs.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from tasc_collector.contracts.operations import CostModel, ProfileCost, TokenPrice
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import InputError, NotAuthorized, SecretUnavailable, SignatureError, TascError
from tasc_collector.shadow.runner import RunResult
from tasc_pipeline.control.authorizations import Settled, Spend
from tasc_pipeline.home import keys
from tasc_pipeline.home.ledger import open_ledger, read_entries
from tasc_pipeline.home.studies import load_study
from tasc_pipeline.home.windows import APPROVAL, DECLARATION, LINK, PLAN
from tasc_pipeline.prepare_jobs import PREPARE_OP, hourly_windows
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps import assess, close, collect, publish, verify
from tasc_pipeline.steps.authorize import authorize, lines, revoke, study_lines
from tasc_pipeline.steps.fork_study import fork_study
from tasc_pipeline.steps.prepare import prepare_window
from tasc_pipeline.steps.spending import window_reserved
from tests.support.authorized import MovedClock, authorized
from tests.support.window import World, now, world

HOUR = timedelta(hours=1)


def nothing(_: object) -> None:
    """Progress that nobody looks at."""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, cases=2, recurring=True) as found:
        yield found


def no_operator(made: World) -> None:
    """What a collecting host has: every key but the operator's."""
    (made.home.keys / "operator.key").unlink()


def prepared(made: World, at: datetime | None = None, clock: MovedClock | None = None, lead_s: float = 0.2) -> str:
    at = at or now()
    made_at = clock.now() if clock else at
    return prepare_window(made.home, "first", format_timestamp(at), made_at, lead_s=lead_s).window_key


def collected(made: World, key: str, clock: MovedClock | None = None) -> RunResult:
    result = collect.collect(made.home, key, show=nothing, clock=clock)
    publish.publish(made.home, key)
    close.close(made.home, key, now=clock.now if clock else now)
    return result


def spends(made: World) -> dict[str, Spend]:
    """What the ledger counts, by reference."""
    entries = read_entries(made.home, load_study(made.home, "first").study)
    return {reference: entry.counted for reference, entry in entries.items()}


# --- forty-eight hours --------------------------------------------------------------------------------------------------


def ticks(made: World, hours: list[datetime]) -> Iterator[dict[str, str] | str]:
    """What the schedule says hour by hour: the config of the run that it requests, or why it requests none."""
    with dg.DagsterInstance.ephemeral() as instance:
        for at in hours:
            with dg.build_schedule_context(
                instance=instance,
                scheduled_execution_time=at,
                resources={"state": StateFolder(root=str(made.home.root))},
            ) as context:
                data = hourly_windows.evaluate_tick(context)
            if not data.run_requests:
                yield str(data.skip_message)
                continue
            [request] = data.run_requests
            yield dict(request.run_config["ops"][PREPARE_OP]["config"])


def test_an_hourly_comparison_runs_unattended_for_48_hours_stops_at_its_ceiling_and_says_so(made: World) -> None:
    clock = MovedClock()
    first = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    hours = [first + hour * HOUR for hour in range(48)]
    authorized(made.home, windows_per_day=14, windows_in_all=24, calls_per_day=84, output_tokens_per_day=1_000)
    no_operator(made)
    keys_of: list[str] = []
    skipped: Counter[str] = Counter()
    asked = ticks(made, hours)
    for at in hours:
        clock.move_to(at)
        requested = next(asked)
        if isinstance(requested, str):
            skipped[requested] += 1
            continue
        assert requested == {"study": "first", "at": format_timestamp(at)}
        key = prepare_window(made.home, requested["study"], requested["at"], clock.now(), lead_s=0.05).window_key
        assert collect.collect(made.home, key, show=nothing, clock=clock).states == {"success": 4}
        assert close.close(made.home, key, now=clock.now).link.counts.accepted == 4
        keys_of.append(key)
    assert len(keys_of) == 24 == len(set(keys_of)), "fourteen on the first day, ten more until the end of all"
    assert made.inference_calls == (72, 72), "two cases and one warm-up call each, in every window"
    day = [f"{first + timedelta(days=index):%Y-%m-%d}" for index in range(2)]
    assert skipped == {
        f"first/hourly: ceilings.windowsPerDay: 14 of 14 windows are spent on {day[0]}; 1 more would be 1 too many (rule: "
        f"at most 14 windows per UTC day) -> wait until {day[1]}T00:00:00.000Z, or allow more: tasc authorize new first": 10,
        "first/hourly: ceilings.windowsInAll: 24 of 24 windows are spent in all; 1 more would be 1 too many (rule: at "
        "most 24 windows in all) -> allow more: tasc authorize new first": 14,
    }
    assert set(spends(made)) == set(keys_of) and set(spends(made).values()) == {Spend(1, 6, 26, 0, None)}
    [status] = study_lines(made.home, format_timestamp(clock.now()))
    assert status.authorization_id is None and "24 of 24 windows are spent in all" in str(status.refusal)
    with pytest.raises(NotAuthorized, match="24 of 24 windows are spent in all"):
        prepared(made, clock.now(), clock)
    assert made.inference_calls == (72, 72)
    for number, key in enumerate(keys_of[:2], start=1):
        publish.publish(made.home, key)
        report = assess.assess(made.home, key)
        [result] = report.comparisons
        assert result.verdict in ("undecided", "no-worse", "worse") and report.window_key == key
        assert result.sequence is not None and result.sequence.windows == number
    assert verify.verify_window(made.home, keys_of[1])[0].startswith(
        "authority: declaration, plan and standing authorization are signed and agree"
    )


# --- one window ---------------------------------------------------------------------------------------------------------


def test_one_instant_of_a_schedule_makes_one_window(made: World) -> None:
    authorized(made.home)
    no_operator(made)
    at = now()
    added: list[str] = []
    first = prepare_window(made.home, "first", format_timestamp(at), at, add_partition=added.append)
    again = prepare_window(
        made.home, "first", format_timestamp(at), at + timedelta(minutes=2), add_partition=added.append
    )
    assert first.window_key == again.window_key and added == [first.window_key] * 2
    assert again.estimate is None and first.estimate is not None and first.authorization_id == "hourly"
    other = prepare_window(made.home, "first", format_timestamp(at + HOUR), at)
    assert other.window_key != first.window_key
    assert made.inference_calls == (0, 0) and spends(made) == {}


def test_no_window_is_prepared_for_an_instant_that_is_far_ahead(made: World) -> None:
    authorized(made.home)
    at = now()
    with pytest.raises(InputError) as caught:
        prepare_window(made.home, "first", format_timestamp(at + HOUR + timedelta(milliseconds=1)), at)
    assert caught.value.field == "at" and not any(made.home.windows.iterdir())


def test_windows_that_were_prepared_and_not_sent_count_until_they_are_over(made: World) -> None:
    clock = MovedClock()
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) + timedelta(days=1)
    clock.move_to(noon)
    authorized(made.home, windows_per_day=2)
    for second in range(2):
        prepare_window(made.home, "first", format_timestamp(noon + timedelta(seconds=second)), clock.now())
    with pytest.raises(NotAuthorized) as caught:
        prepare_window(made.home, "first", format_timestamp(noon + timedelta(seconds=2)), clock.now())
    assert caught.value.field == "ceilings.windowsPerDay" and caught.value.what.startswith("2 of 2 windows")
    assert len(list(made.home.windows.glob("first.*"))) == 2 and spends(made) == {}
    [line] = study_lines(made.home, format_timestamp(clock.now()))
    assert "2 of 2 windows" in str(line.refusal)
    clock.move_to(noon + 6 * HOUR)
    assert prepare_window(made.home, "first", format_timestamp(clock.now()), clock.now()).estimate is not None


def test_a_window_that_a_crash_left_without_its_plan_gets_it(made: World) -> None:
    authorized(made.home)
    at = now()
    key = prepared(made, at)
    (made.home.window(key) / PLAN).unlink()
    assert prepare_window(made.home, "first", format_timestamp(at), now()).window_key == key
    assert (made.home.window(key) / PLAN).is_file()


def test_without_an_authorization_nothing_is_prepared(made: World) -> None:
    with pytest.raises(NotAuthorized, match=r"the study has no standing authorization.*tasc authorize new first"):
        prepared(made)
    assert not any(made.home.windows.iterdir())


def test_the_operators_key_is_needed_to_give_and_to_take_back(made: World) -> None:
    from tests.support.authorized import ceilings

    word = authorized(made.home)
    no_operator(made)
    with pytest.raises(SecretUnavailable):
        authorized(made.home, authorization_id="second")
    with pytest.raises(SecretUnavailable):
        revoke(made.home, "first", "hourly", "withdrawn", now())
    assert [line.record for line in lines(made.home, "first", now())] == [word]
    assert word.ceilings == ceilings()


def test_a_worst_case_beyond_a_ceiling_writes_nothing(made: World) -> None:
    authorized(made.home, calls_per_day=5)
    with pytest.raises(NotAuthorized) as caught:
        prepared(made)
    assert caught.value.what.startswith("0 of 5 calls are spent on ") and caught.value.what.endswith(
        "6 more would be 1 too many"
    )
    assert not any(made.home.windows.iterdir())


def test_a_window_is_paid_before_it_is_sent_and_gets_back_what_it_did_not_use(made: World) -> None:
    authorized(made.home)
    no_operator(made)
    key = prepared(made)
    approved = collect.load_approved(made.home, key)
    assert not (made.home.window(key) / APPROVAL).exists() and approved.approval is None
    seen: list[Spend] = []
    collect.collect(made.home, key, show=lambda _: seen.append(spends(made)[key]))
    assert set(seen) == {Spend(1, 6, 34, 0, None)}, "the worst case: 4 calls of 8 tokens, 2 warm-up calls of 1"
    assert spends(made)[key] == Spend(1, 6, 34, 0, None), "spent until the window is closed"
    publish.publish(made.home, key)
    close.close(made.home, key)
    assert spends(made)[key] == Spend(1, 6, 26, 0, None), "each answer had 6 tokens"
    close.close(made.home, key)
    assert collect.collect(made.home, key, show=nothing).sent_calls == 0, "a closed window is not paid again"
    assert spends(made)[key] == Spend(1, 6, 26, 0, None)


def test_what_was_collected_before_a_revocation_stays_sound(made: World) -> None:
    with_key = (made.home.keys / "operator.key").read_bytes()
    authorized(made.home)
    no_operator(made)
    key = prepared(made)
    collected(made, key)
    (made.home.keys / "operator.key").write_bytes(with_key)
    (made.home.keys / "operator.key").chmod(0o600)
    revoke(made.home, "first", "hourly", "stop-it", now())
    assert verify.verify_window(made.home, key)
    assert collect.collect(made.home, key, show=nothing).sent_calls == 0
    [line] = lines(made.home, "first", now())
    assert str(line.problem).endswith("ago (stop-it)")


def priced(made: World) -> None:
    """Name a cost model in the study: 1 USD per million input tokens, 10 per million output tokens."""
    price = TokenPrice(
        kind="token-price", input_usd_per_million=1.0, cached_input_usd_per_million=None, output_usd_per_million=10.0
    )
    profiles = [target.profile_id for target in load_study(made.home, "first").study.targets]
    model = CostModel(
        model_id="prices", profiles=tuple(ProfileCost(profile_id=profile, price=price) for profile in profiles)
    )
    folder = made.home.study("first")
    (folder / "cost-model.json").write_bytes(model.canonical())
    (folder / "study.toml").write_text('cost_model = "cost-model.json"\n' + (folder / "study.toml").read_text())


def test_a_ceiling_on_cost_counts_prompts_answers_and_warm_up_and_gives_back_what_was_not_spent(made: World) -> None:
    priced(made)
    # each prompt has 42 characters, so its bucket ends at 63; a chat template is 64 tokens at most
    worst = 2 * ((2 * (63 + 64) + 64) * 1.0 + (2 * 8 + 1) * 10.0) / 1e6
    authorized(made.home, cost_usd_per_day=0.0009)
    with pytest.raises(NotAuthorized) as caught:
        prepared(made)
    assert caught.value.field == "ceilings.costUsdPerDay"
    assert "0.000976 more would be 7.6e-05 too many" in caught.value.what and worst == pytest.approx(0.000976)
    authorized(made.home, cost_usd_per_day=0.001, authorization_id="more", at=now() + timedelta(milliseconds=5))
    key = prepared(made, now() + timedelta(milliseconds=10))
    collect.collect(made.home, key, show=nothing)
    assert spends(made)[key].cost_usd == pytest.approx(worst)
    publish.publish(made.home, key)
    close.close(made.home, key)
    assert 0 < float(spends(made)[key].cost_usd or 0) < worst


def test_other_prices_need_another_word(made: World) -> None:
    priced(made)
    word = authorized(made.home, cost_usd_per_day=1.0)
    assert word.cost_model_digest == load_study(made.home, "first").cost_model_digest is not None
    key = prepared(made)
    path = made.home.study("first") / "cost-model.json"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"outputUsdPerMillion":10', b'"outputUsdPerMillion":1'))
    assert path.read_bytes() != whole
    with pytest.raises(NotAuthorized) as caught:
        prepared(made, now() + timedelta(minutes=1))
    assert caught.value.field == "costModelDigest"
    with pytest.raises(InputError) as refused:
        collect.collect(made.home, key, show=nothing)
    assert refused.value.field == "costModelDigest" and spends(made) == {}
    path.write_bytes(whole)
    assert collected(made, key).status == "complete"


def test_a_wider_lane_needs_another_word(made: World) -> None:
    authorized(made.home)
    path = made.home.study("first") / "study.toml"
    path.write_text(path.read_text().replace("lane_width = 2", "lane_width = 3"))
    with pytest.raises(NotAuthorized) as caught:
        prepared(made)
    assert caught.value.field == "targets.laneWidth" and "a lane of 2 calls at once, not 3" in caught.value.what


def test_a_resume_keeps_its_reservation(made: World) -> None:
    authorized(made.home, windows_per_day=1, calls_per_day=6)
    whole = made.prompts.read_text()
    key = prepared(made)
    made.prompts.write_text(whole.splitlines(keepends=True)[0])
    assert collect.collect(made.home, key, show=nothing).status == "partial"
    made.prompts.write_text(whole)
    assert collected(made, key).status == "complete"
    assert made.inference_calls == (3, 3)
    assert spends(made) == {key: Spend(1, 6, 26, 0, None)}


def test_a_window_that_is_refused_before_it_sends_gives_all_back(made: World) -> None:
    authorized(made.home)
    key = prepared(made)
    made.prompts.write_text(made.prompts.read_text().replace("Case 1", "Case one"))
    with pytest.raises(InputError):
        collect.collect(made.home, key, show=nothing)
    assert spends(made) == {key: Spend()}
    assert made.inference_calls == (0, 0)


def test_a_second_run_that_is_refused_gives_back_nothing_of_what_the_first_has_reserved(made: World) -> None:
    authorized(made.home)
    key = prepared(made)
    approved, at, worst = collect.load_approved(made.home, key), format_timestamp(now()), Spend(1, 6, 34, 0, None)
    with pytest.raises(InputError, match="the first"), window_reserved(made.home, approved, at):
        with pytest.raises(InputError, match="the second"), window_reserved(made.home, approved, at):
            raise InputError("the second")
        assert spends(made) == {key: worst}, "the first may be waiting for the window's start, without a journal"
        raise InputError("the first")
    assert spends(made) == {key: Spend()}
    with window_reserved(made.home, approved, at):
        assert spends(made) == {key: worst}, "reserved again by whoever sends after that"


def test_what_one_run_gives_back_is_not_free_while_another_holds_it(made: World) -> None:
    """Six runs of one window come at once; three are refused, and their ceiling is not there for another window."""
    authorized(made.home, calls_per_day=6)
    key, at = prepared(made), format_timestamp(now())
    approved, worst = collect.load_approved(made.home, key), Spend(1, 6, 34, 0, None)
    other = collect.load_approved(made.home, prepared(made, now() + HOUR))
    all_in, stay = threading.Barrier(6), threading.Event()

    def run(*, leaves_early: bool) -> None:
        with pytest.raises(InputError, match="refused"), window_reserved(made.home, approved, at):
            all_in.wait(60)
            assert leaves_early or stay.wait(60)
            raise InputError("refused")

    with ThreadPoolExecutor(6) as pool:
        early = [pool.submit(run, leaves_early=True) for _ in range(3)]
        late = [pool.submit(run, leaves_early=False) for _ in range(3)]
        for future in early:
            future.result(60)
        assert spends(made) == {key: worst}, "three runs may still be waiting for the window's start"
        with pytest.raises(NotAuthorized, match="6 of 6 calls are spent"), window_reserved(made.home, other, at):
            pass
        stay.set()
        for future in late:
            future.result(60)
    assert spends(made) == {key: Spend()}
    with window_reserved(made.home, other, at):
        assert spends(made) == {key: Spend(), other.window_key: worst}


def test_a_ledger_that_forgot_a_window_that_was_sent_pays_for_nothing_more(made: World) -> None:
    """Whoever writes the state folder puts an older copy in its place, and the ceiling would be free again."""
    authorized(made.home, windows_per_day=2)
    key, another = prepared(made), prepared(made, now() + HOUR)
    collected(made, key)
    shutil.rmtree(made.home.ledger("first"))
    with pytest.raises(NotAuthorized, match="the ledger is an older copy") as refused:
        collect.collect(made.home, another, show=nothing)
    assert refused.value.field == key and "restore the newest studies/first/ledger" in str(refused.value.way_out)
    assert made.inference_calls == (3, 3) and spends(made) == {}
    with pytest.raises(NotAuthorized, match="the ledger is an older copy"):
        prepared(made, now() + 2 * HOUR)
    [line] = study_lines(made.home, format_timestamp(now()))
    assert "the ledger is an older copy" in str(line.refusal), "the schedule requests no window"
    assert sorted(path.name for path in made.home.windows.glob("first.*")) == sorted((key, another))


def tomorrow(clock: MovedClock, hour: int = 9) -> datetime:
    """Move the clock to an hour of the next day, so that all of a test lies on one UTC day."""
    at = clock.now().replace(hour=hour, minute=0, second=0, microsecond=0) + timedelta(days=1)
    clock.move_to(at)
    return at


def test_a_window_that_was_settled_without_ever_being_reserved_is_not_in_the_way_of_the_next(made: World) -> None:
    clock = MovedClock()
    authorized(made.home, calls_per_day=6)
    morning = tomorrow(clock)
    one, two = prepared(made, morning, clock), prepared(made, morning + timedelta(minutes=1), clock)
    assert collect.collect(made.home, one, show=nothing, clock=clock).status == "complete"
    with pytest.raises(NotAuthorized, match="6 of 6 calls are spent"):
        collect.collect(made.home, two, show=nothing, clock=clock)
    tomorrow(clock)
    settled = collect.collect(made.home, two, show=nothing, send=False, clock=clock)
    assert (settled.status, settled.reasons) == ("complete", {"window-closed": 4})
    publish.publish(made.home, two)
    close.close(made.home, two, now=clock.now)
    three = prepared(made, clock.now(), clock)
    assert collected(made, three, clock).status == "complete"
    assert set(spends(made)) == {one, three} and made.inference_calls == (6, 6)


def test_a_window_that_was_settled_before_its_first_run_is_still_collected(made: World) -> None:
    authorized(made.home)
    key = prepared(made)
    assert collect.collect(made.home, key, show=nothing, send=False).status == "partial"
    assert collected(made, key).status == "complete"
    assert spends(made) == {key: Spend(1, 6, 26, 0, None)}


def test_a_window_that_was_launched_after_its_end_is_not_in_the_way_of_the_next(made: World) -> None:
    clock = MovedClock()
    authorized(made.home)
    late = prepared(made, tomorrow(clock), clock)
    tomorrow(clock)
    assert collected(made, late, clock).reasons == {"window-closed": 4}
    after = prepared(made, clock.now(), clock)
    assert collected(made, after, clock).status == "complete"
    assert set(spends(made)) == {after} and made.inference_calls == (3, 3)
    [segment] = made.home.run(late).glob("segment-*")
    segment.write_bytes(segment.read_bytes()[:200])  # nobody can tell any more whether it was sent
    with pytest.raises(NotAuthorized, match="not in the ledger cannot be read") as refused:
        prepared(made, clock.now() + HOUR, clock)
    assert refused.value.field == late and f"restore runs/{late}" in str(refused.value.way_out)


def test_a_reservation_of_a_run_that_died_stays_whatever_a_later_run_gives_back(made: World) -> None:
    authorized(made.home)
    key, at = prepared(made), format_timestamp(now())
    approved, worst = collect.load_approved(made.home, key), Spend(1, 6, 34, 0, None)
    with pytest.raises(KeyboardInterrupt), window_reserved(made.home, approved, at):
        raise KeyboardInterrupt
    with pytest.raises(InputError, match="later"), window_reserved(made.home, approved, at):
        raise InputError("later")
    assert spends(made) == {key: worst}


def test_calls_that_were_sent_count_though_the_reservation_was_given_back(made: World) -> None:
    authorized(made.home)
    key = prepared(made)
    collect.collect(made.home, key, show=nothing)
    with open_ledger(made.home, load_study(made.home, "first").study) as ledger:
        ledger.settle(Settled(key, format_timestamp(now()), Spend()))
    publish.publish(made.home, key)
    close.close(made.home, key)
    assert spends(made) == {key: Spend(1, 6, 26, 0, None)}


def test_two_windows_cannot_both_pass_a_ceiling_that_allows_one(made: World) -> None:
    authorized(made.home, calls_per_day=6)
    no_operator(made)
    one, two = prepared(made), prepared(made, now() + HOUR)
    assert collect.collect(made.home, one, show=nothing).status == "complete"
    with pytest.raises(NotAuthorized) as caught:
        collect.collect(made.home, two, show=nothing)
    assert caught.value.field == "ceilings.callsPerDay"
    assert made.inference_calls == (3, 3) and set(spends(made)) == {one}
    assert not made.home.run(two).exists()


# --- bad input: nothing is sent -------------------------------------------------------------------------------------------


def edited(path: Path, change: Callable[[dict[str, object]], None]) -> None:
    value = json.loads(path.read_bytes())
    change(value)
    path.write_text(json.dumps(value, sort_keys=True, separators=(",", ":")))


def word_file(made: World) -> Path:
    return made.home.authorizations("first") / "hourly.json"


def more_calls(value: dict[str, object]) -> None:
    value["ceilings"] = {**dict(value["ceilings"]), "callsPerDay": 10_000}  # type: ignore[call-overload]  # JSON


def other_word(made: World) -> None:
    word_file(made).unlink()
    authorized(made.home, calls_per_day=199)


def other_route(made: World) -> None:
    path = made.home.study("first") / "study.toml"
    path.write_text(path.read_text().replace('route = "completions"', 'route = "chatCompletions"'))


@pytest.mark.parametrize(
    ("spoil", "error", "said"),
    [
        (
            lambda made: revoke(made.home, "first", "hourly", "stop-it", now()),
            NotAuthorized,
            r"was revoked .* ago \(stop-it\)",
        ),
        (lambda made: edited(word_file(made), more_calls), SignatureError, "hourly.json"),
        (lambda made: word_file(made).unlink(), NotAuthorized, "is not in the study's folder"),
        (other_word, NotAuthorized, "is not in the study's folder"),
        (
            lambda made: edited(
                made.home.window(next(made.home.windows.iterdir()).name) / PLAN,
                lambda value: value.update(authorizationDigest=None),
            ),
            TascError,
            "plan.json|approval.json",
        ),
    ],
    ids=["revoked", "tampered", "removed", "another", "plan-without-it"],
)
def test_a_prepared_window_whose_authorization_no_longer_holds_sends_nothing(
    made: World, spoil: Callable[[World], object], error: type[Exception], said: str
) -> None:
    authorized(made.home)
    key = prepared(made)
    spoil(made)
    with pytest.raises(error, match=said):
        collect.collect(made.home, key, show=nothing)
    assert made.inference_calls == (0, 0)
    assert not made.home.run(key).exists() and not (made.home.window(key) / LINK).exists()


def test_an_authorization_that_expires_between_plan_and_call_sends_nothing(made: World) -> None:
    at = now()
    authorized(made.home, at=at, days=10 / 86_400)
    key = prepared(made, at)
    clock = MovedClock()
    clock.move_to(at + timedelta(seconds=70.5))
    with pytest.raises(NotAuthorized) as caught:
        collect.collect(made.home, key, show=nothing, clock=clock)
    assert "expired 1.0 min ago" in caught.value.what and "tasc settle" in str(caught.value.way_out)
    assert made.inference_calls == (0, 0)


def test_an_expired_authorization_prepares_nothing(made: World) -> None:
    authorized(made.home, at=now(), days=1)
    with pytest.raises(NotAuthorized, match=r"expired 1.0 d ago"):
        prepared(made, now() + timedelta(days=2))
    [line] = lines(made.home, "first", now() + timedelta(days=2))
    assert line.problem == "the standing authorization expired 1.0 d ago"


def test_an_authorization_of_another_study_is_refused(made: World) -> None:
    from tasc_pipeline.steps.new_study import NewStudy, Server, new_study

    new_study(
        made.home,
        NewStudy(
            "second",
            "tests",
            Server(made.champion.origin),
            (Server(made.candidate.origin),),
            made.prompts,
            replicates=1,
            recurring=True,
        ),
        now(),
    )
    authorized(made.home, "second")
    shutil.copytree(made.home.authorizations("second"), made.home.authorizations("first"))
    with pytest.raises(InputError, match="is for another study"):
        prepared(made)
    assert made.inference_calls == (0, 0)


def test_another_route_than_the_authorized_one_is_refused(made: World) -> None:
    authorized(made.home)
    other_route(made)
    with pytest.raises(NotAuthorized, match=r"does not allow .* to be called on chatCompletions"):
        prepared(made)
    assert made.inference_calls == (0, 0)


def test_another_endpoint_than_the_authorized_one_is_refused_before_and_after_the_plan(made: World) -> None:
    authorized(made.home)
    key = prepared(made)
    folder = made.home.study("first")
    for path in (folder / "endpoints" / "candidate.toml", folder / load_study(made.home, "first").study.trust_policy):
        path.write_text(path.read_text().replace(made.candidate.origin, "http://127.0.0.1:9"))
    with pytest.raises(NotAuthorized, match=r"is for another endpoint of candidate-llama.cpp"):
        prepared(made, now() + HOUR)
    with pytest.raises(InputError, match="endpoint or profile was changed"):
        collect.collect(made.home, key, show=nothing)
    assert made.inference_calls == (0, 0)


def test_a_dispatch_key_alone_cannot_approve_its_own_window(made: World) -> None:
    """Whoever holds the collecting host's keys may sign a plan; without the operator's word it is collected by nobody."""
    from tasc_pipeline.home import signers
    from tasc_pipeline.home.windows import WindowFolder
    from tasc_pipeline.steps.plan import approve, draft_plan
    from tasc_pipeline.steps.seal import SealOptions, declared

    at, loaded, ring = format_timestamp(now()), load_study(made.home, "first"), keys.read_ring(made.home)
    signer = signers.dispatch(made.home, ring, loaded.study, at)
    declaration = declared(loaded, SealOptions(lead_s=0.1), at, signer)
    folder = WindowFolder(made.home, declaration.window_key)
    folder.write(DECLARATION, declaration)
    draft = draft_plan(made.home, loaded, declaration, at, signer)
    draft.write(folder)
    approve(made.home, declaration.window_key, draft.plan.digest, now())
    with pytest.raises(NotAuthorized, match="dispatch key and names no standing authorization"):
        collect.collect(made.home, declaration.window_key, show=nothing)
    assert made.inference_calls == (0, 0)


def test_a_comparison_that_is_not_recurring_gets_no_authorization_and_no_window_under_one(tmp_path: Path) -> None:
    refused = (
        r"a comparison that is not recurring runs under no standing authorization.*"
        r"tasc study fork first --set rule.recurring=true, or make it with: tasc study new --recurring"
    )
    with world(tmp_path, cases=2) as found:
        with pytest.raises(NotAuthorized, match=refused):
            authorized(found.home)
        assert not found.home.authorizations("first").exists()
        with pytest.raises(NotAuthorized, match=refused):
            prepared(found)
        successor = fork_study(found.home, "first", ["rule.recurring=true"], now()).fork.study_id
        authorized(found.home, successor)
        at = now()
        key = prepare_window(found.home, successor, format_timestamp(at), at).window_key
        assert key.startswith("first-2.")
        # an authorization from before this rule allows nothing more
        path = found.home.study(successor) / load_study(found.home, successor).study.protocol
        path.write_text(path.read_text().replace('"recurring":true', '"recurring":false'))
        [line] = study_lines(found.home, format_timestamp(now()))
        assert line.authorization_id is None and "is not recurring" in str(line.refusal)
        assert found.inference_calls == (0, 0)


def test_an_id_is_given_once_and_values_that_break_a_rule_are_refused(made: World) -> None:
    authorized(made.home)
    with pytest.raises(InputError, match="a different file is already there"):
        authorized(made.home, calls_per_day=7)
    with pytest.raises(InputError, match="a ceiling on cost needs a cost model"):
        authorized(made.home, authorization_id="cost", cost_usd_per_day=1.0)
    with pytest.raises(InputError, match="this instant is over"):
        authorized(made.home, authorization_id="late", days=-1)
    from tasc_pipeline.steps.authorize import Wanted
    from tests.support.authorized import ceilings

    with pytest.raises(InputError, match="collects nothing for purpose holdout"):
        authorize(
            made.home,
            "first",
            Wanted(ceilings(), "2030-01-01T00:00:00.000Z", "holdout", purposes=("holdout",)),
            now(),
        )
    assert [line.record.authorization_id for line in lines(made.home, "first", now())] == ["hourly"]
