"""What an authorization allows, by numbers that can be checked by hand: every refusal names its rule and by how much."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tasc_collector.contracts.collection import (
    AuthorizationRevocation,
    AuthorizedTarget,
    Ceilings,
    PlanEstimate,
    StandingAuthorization,
)
from tasc_collector.contracts.operations import CostModel, DevicePrice, ProfileCost, TokenPrice
from tasc_collector.errors import InputError, NotAuthorized
from tasc_collector.signing import SigningKey
from tasc_pipeline.control.authorizations import (
    Reserved,
    Settled,
    Spend,
    added,
    canary_spend,
    check_spend,
    covers_effect,
    covers_prices,
    covers_study,
    covers_target,
    exceeds,
    first_allowed,
    fold,
    in_force,
    last_window,
    window_spend,
)

KEY = SigningKey.generate()
D1, D2, D3 = (f"sha256:{digit * 64}" for digit in "123")
NOON = "2026-03-01T12:00:00.000Z"
CEILINGS: dict[str, Any] = {
    "windows_per_day": 3,
    "windows_in_all": 5,
    "calls_per_day": 100,
    "output_tokens_per_day": 1_000,
    "canary_calls_per_day": 2,
    "cost_usd_per_day": None,
}


def given(**changes: Any) -> StandingAuthorization:
    limits = {name: changes.pop(name, value) for name, value in CEILINGS.items()}
    fields: dict[str, Any] = {
        "authorization_id": "hourly",
        "study_id": "first",
        "protocol_digest": D1,
        "purposes": ("comparison",),
        "targets": (
            AuthorizedTarget(
                profile_id="champion",
                endpoint_alias="one",
                endpoint_binding_digest=D2,
                route="completions",
                lane_width=4,
            ),
        ),
        "effects": ("inference-canary",),
        "ceilings": Ceilings(**limits),
        "cost_model_digest": None if limits["cost_usd_per_day"] is None else D3,
        "issued_at": "2026-03-01T00:00:00.000Z",
        "expires_at": "2026-04-01T00:00:00.000Z",
    }
    return StandingAuthorization.sign_with(KEY, "operator-1", **(fields | changes))


def window(reference: str, at: str, calls: int = 20, tokens: int = 160, word: str | None = None) -> Reserved:
    return Reserved(reference, word or given().digest, at, Spend(1, calls, tokens, 0, None))


def refused(
    spend: Spend, events: list[Reserved | Settled], *, reference: str = "next", **changes: Any
) -> NotAuthorized:
    with pytest.raises(NotAuthorized) as caught:
        check_spend(given(**changes), fold(events), spend, reference=reference, as_of=NOON)
    return caught.value


def test_each_ceiling_is_named_with_what_is_spent_and_by_how_much_it_would_be_passed() -> None:
    today = [window(f"w{index}", f"2026-03-01T0{index}:00:00.000Z") for index in range(3)]
    error = refused(Spend(windows=1), today)
    assert error.what == "3 of 3 windows are spent on 2026-03-01; 1 more would be 1 too many"
    assert (error.where, error.field, error.rule) == (
        "first/hourly",
        "ceilings.windowsPerDay",
        "at most 3 windows per UTC day",
    )
    assert error.way_out == "wait until 2026-03-02T00:00:00.000Z, or allow more: tasc authorize new first"
    calls = refused(Spend(calls=41), today)
    assert calls.what == "60 of 100 calls are spent on 2026-03-01; 41 more would be 1 too many"
    tokens = refused(Spend(output_tokens=600), today)
    assert tokens.what == "480 of 1000 output tokens are spent on 2026-03-01; 600 more would be 80 too many"
    canaries = refused(Spend(calls=3, canary_calls=3), [])
    assert canaries.what == "0 of 2 canary calls are spent on 2026-03-01; 3 more would be 1 too many"
    assert canaries.way_out == "allow more: tasc authorize new first", "waiting would not help"


def test_what_was_spent_on_other_days_counts_only_in_all() -> None:
    days = [window(f"d{day}", f"2026-02-2{day}T23:59:59.999Z") for day in range(5)]
    error = refused(Spend(windows=1), days)
    assert error.field == "ceilings.windowsInAll"
    assert error.what == "5 of 5 windows are spent in all; 1 more would be 1 too many"
    check_spend(given(windows_in_all=6), fold(days), Spend(1, 100, 1_000), reference="next", as_of=NOON)


def test_what_is_exactly_at_a_ceiling_passes_and_nothing_more() -> None:
    entries = fold([window("w1", NOON, calls=60)])
    check_spend(given(), entries, Spend(1, 40, 840, 0, None), reference="next", as_of=NOON)
    with pytest.raises(NotAuthorized, match="1 too many"):
        check_spend(given(), entries, Spend(1, 41, 840, 0, None), reference="next", as_of=NOON)


def test_a_settled_reservation_counts_as_what_it_used_on_the_day_on_which_it_was_made() -> None:
    events: list[Reserved | Settled] = [
        window("w1", NOON, calls=90),
        Settled("w1", "2026-03-02T00:10:00.000Z", Spend(1, 12, 50, 0, None)),
    ]
    check_spend(given(), fold(events), Spend(calls=88), reference="next", as_of=NOON)
    assert (
        refused(Spend(calls=89), events).what == "12 of 100 calls are spent on 2026-03-01; 89 more would be 1 too many"
    )


def test_one_name_never_counts_twice() -> None:
    events: list[Reserved | Settled] = [window("w1", NOON, calls=90)]
    check_spend(given(), fold(events), Spend(calls=90), reference="w1", as_of=NOON)
    again = fold([*events, window("w1", NOON, calls=90)])
    assert [entry.reserved.calls for entry in again.values()] == [90]


def test_another_authorization_pays_for_itself() -> None:
    other = [window("w1", NOON, calls=100, word=D3)]
    check_spend(given(), fold(other), Spend(calls=100), reference="next", as_of=NOON)


def test_what_costs_none_of_a_ceiling_is_not_stopped_by_it() -> None:
    today = [window(f"w{index}", NOON) for index in range(3)]
    check_spend(given(), fold(today), Spend(calls=1, output_tokens=1, canary_calls=1), reference="next", as_of=NOON)


def test_a_ceiling_on_cost_needs_a_cost_model() -> None:
    error = refused(Spend(1, 1, 1, 0, None), [], cost_usd_per_day=1.0)
    assert error.field == "ceilings.costUsdPerDay" and error.rule == "a ceiling on cost needs a cost model"
    spent = [Reserved("w1", given(cost_usd_per_day=1.0).digest, NOON, Spend(1, 1, 1, 0, 0.75))]
    check_spend(given(cost_usd_per_day=1.0), fold(spent), Spend(1, 1, 1, 0, 0.25), reference="next", as_of=NOON)
    too_much = refused(Spend(1, 1, 1, 0, 0.5), spent, cost_usd_per_day=1.0)
    assert too_much.what == "0.75 of 1 USD are spent on 2026-03-01; 0.5 more would be 0.25 too many"


def test_a_ceiling_on_cost_is_meant_by_the_prices_that_were_there() -> None:
    word = given(cost_usd_per_day=1.0)
    covers_prices(word, D3)
    covers_prices(given(), D1)
    covers_prices(given(), None)
    for other in (D1, None):
        with pytest.raises(NotAuthorized, match="was given for another cost model than the study has now") as caught:
            covers_prices(word, other)
        assert (caught.value.field, caught.value.rule) == ("costModelDigest", D3)
    for changes in ({"cost_usd_per_day": 1.0, "cost_model_digest": None}, {"cost_model_digest": D3}):
        with pytest.raises(ValidationError, match="costModelDigest is given exactly where"):
            given(**changes)


@pytest.mark.parametrize(
    ("one", "more"),
    [
        (Spend(1, 6, 26, 0, None), False),
        (Spend(1, 7, 26, 0, None), True),
        (Spend(0, 6, 27, 0, None), True),
        (Spend(1, 6, 26, 0, 0.5), True),
        (Spend(), False),
    ],
)
def test_a_spend_exceeds_another_where_anything_of_it_is_more(one: Spend, more: bool) -> None:
    assert exceeds(one, Spend(1, 6, 26, 0, None)) is more


def test_a_ledger_that_settles_what_was_never_reserved_is_refused() -> None:
    with pytest.raises(InputError, match="settles what was never reserved"):
        fold([Settled("w1", NOON, Spend())])


def test_time_and_revocation_are_said_with_how_long_ago() -> None:
    revoked = AuthorizationRevocation.sign_with(
        KEY,
        "operator-1",
        authorization_digest=D1,
        revoked_at="2026-03-01T09:30:00.000Z",
        reason_code="budget-frozen",
    )
    in_force(given(), None, NOON)
    in_force(given(), revoked, "2026-03-01T09:29:59.999Z")
    for revocation, as_of, said in (
        (None, "2026-02-28T21:00:00.000Z", "is not valid for another 3.0 h"),
        (None, "2026-04-01T00:00:00.000Z", "expired 0.0 s ago"),
        (None, "2026-04-03T12:00:00.000Z", "expired 2.5 d ago"),
        (revoked, NOON, "was revoked 2.5 h ago (budget-frozen)"),
    ):
        with pytest.raises(NotAuthorized) as caught:
            in_force(given(), revocation, as_of)
        assert caught.value.what == f"the standing authorization {said}"
        assert caught.value.way_out == "issue another: tasc authorize new first"


def test_study_protocol_purpose_target_route_and_effect_are_each_named() -> None:
    word = given(effects=("consumptive",))
    covers_study(word, "first", D1, "comparison")
    covers_target(word, "champion", "one", D2, "completions", 4)
    covers_effect(word, "consumptive")
    for check, field, said in (
        (lambda: covers_study(word, "second", D1), "studyId", "is for another study"),
        (lambda: covers_study(word, "first", D2), "protocolDigest", "another comparison or protocol"),
        (lambda: covers_study(word, "first", D1, "holdout"), "purposes", "does not speak for purpose holdout"),
        (
            lambda: covers_target(word, "other", "one", D2, "completions", 4),
            "targets",
            "does not name the profile other",
        ),
        (
            lambda: covers_target(word, "champion", "one", D3, "completions", 4),
            "targets.endpointBindingDigest",
            "is for another endpoint of champion",
        ),
        (
            lambda: covers_target(word, "champion", "two", D2, "completions", 4),
            "targets.endpointBindingDigest",
            "is for another endpoint of champion",
        ),
        (
            lambda: covers_target(word, "champion", "one", D2, "responses", 4),
            "targets.route",
            "does not allow champion to be called on responses",
        ),
        (
            lambda: covers_target(word, "champion", "one", D2, "completions", 5),
            "targets.laneWidth",
            "allows champion a lane of 4 calls at once, not 5",
        ),
        (lambda: covers_effect(word, "inference-canary"), "effects", "does not name the effect inference-canary"),
    ):
        with pytest.raises(NotAuthorized) as caught:
            check()
        assert caught.value.field == field and said in caught.value.what


def test_the_newest_authorization_that_allows_it_is_taken_and_its_refusal_is_the_one_that_is_shown() -> None:
    one, two = given(authorization_id="one"), given(authorization_id="two")

    def only_two(word: StandingAuthorization) -> None:
        if word.authorization_id != "two":
            raise NotAuthorized("not this one")

    def neither(word: StandingAuthorization) -> None:
        raise NotAuthorized(f"not {word.authorization_id}")

    assert first_allowed([one, two], only_two, study_id="first") is two
    with pytest.raises(NotAuthorized, match="not one"):
        first_allowed([one, two], neither, study_id="first")
    with pytest.raises(NotAuthorized, match="the study has no standing authorization"):
        first_allowed([], neither, study_id="first")


def test_the_worst_case_of_a_window_is_its_estimate_and_the_next_one_is_expected_to_be_like_the_last() -> None:
    estimate = PlanEstimate(calls=12, warm_up_calls=2, output_tokens=98, minutes=1.0, cost_usd=0.5)
    assert window_spend(estimate) == Spend(1, 14, 98, 0, 0.5)
    assert last_window(given(), fold([])) == Spend(windows=1)
    entries = fold([window("w1", NOON, calls=7), Reserved("probe", given().digest, NOON, Spend(0, 1, 1, 1, None))])
    assert last_window(given(), entries) == Spend(1, 7, 160, 0, None)


def test_the_cost_of_a_canary_is_an_upper_bound_by_the_cost_model() -> None:
    tokens = TokenPrice(
        kind="token-price",
        input_usd_per_million=1.0,
        cached_input_usd_per_million=None,
        output_usd_per_million=10.0,
    )
    device = DevicePrice(kind="device-second", usd_per_device_second=0.01, devices=2)
    model = CostModel(
        model_id="prices",
        profiles=(ProfileCost(profile_id="champion", price=tokens), ProfileCost(profile_id="candidate", price=device)),
    )
    by_token = canary_spend(2, 32, model, "champion", deadline_ms=30_000, lane_width=4)
    assert by_token.cost_usd == pytest.approx((2 * 512 * 1.0 + 32 * 10.0) / 1e6)
    by_device = canary_spend(1, 1, model, "candidate", deadline_ms=30_000, lane_width=4)
    assert by_device.cost_usd == pytest.approx(30 * 0.01 * 2 / 4)
    unknown = canary_spend(1, 1, None, "champion", deadline_ms=30_000, lane_width=4)
    assert unknown == Spend(0, 1, 1, 1, None)
    assert added(by_device, unknown).cost_usd is None and added(by_device, by_device).calls == 2
