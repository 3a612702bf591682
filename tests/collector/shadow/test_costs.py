from __future__ import annotations

import pytest

from tasc_collector.contracts.operations import CostModel
from tasc_collector.shadow.costs import modeled_cost

MODEL = CostModel.from_value(
    {
        "version": "tasc-cost-model-v1",
        "modelId": "prices-1",
        "currency": "USD",
        "profiles": [
            {
                "profileId": "tokens",
                "price": {
                    "kind": "token-price",
                    "inputUsdPerMillion": 2,
                    "cachedInputUsdPerMillion": 0.5,
                    "outputUsdPerMillion": 8,
                },
            },
            {
                "profileId": "uncached",
                "price": {
                    "kind": "token-price",
                    "inputUsdPerMillion": 2,
                    "cachedInputUsdPerMillion": None,
                    "outputUsdPerMillion": 8,
                },
            },
            {"profileId": "devices", "price": {"kind": "device-second", "usdPerDeviceSecond": 0.001, "devices": 4}},
        ],
    },
    where="cost-model",
).record


def cost(profile: str, **changes: int | None) -> dict[str, object]:
    values: dict[str, int | None] = {
        "input_tokens": 1_000,
        "cached_tokens": 400,
        "output_tokens": 100,
        "service_ns": 2_000_000_000,
    } | changes
    return modeled_cost(MODEL, profile, **values, lane_width=8)  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize(
    ("profile", "changes", "amount"),
    [
        ("tokens", {}, (600 * 2 + 400 * 0.5 + 100 * 8) / 1e6),
        ("tokens", {"cached_tokens": None}, (1_000 * 2 + 100 * 8) / 1e6),
        ("tokens", {"cached_tokens": 5_000}, (1_000 * 0.5 + 100 * 8) / 1e6),
        ("uncached", {}, (1_000 * 2 + 100 * 8) / 1e6),
        ("devices", {}, 2 * 0.001 * 4 / 8),
    ],
)
def test_a_price_gives_a_modeled_cost(profile: str, changes: dict[str, int | None], amount: float) -> None:
    assert cost(profile, **changes) == {
        "kind": "modeled",
        "amount": pytest.approx(amount),
        "currency": "USD",
        "modelDigest": MODEL.digest,
    }


@pytest.mark.parametrize(
    ("profile", "changes"),
    [
        ("tokens", {"input_tokens": None}),
        ("tokens", {"output_tokens": None}),
        ("devices", {"service_ns": None}),
        ("nobody", {}),
    ],
)
def test_without_a_price_or_what_it_needs_the_cost_is_unavailable_and_never_zero(
    profile: str, changes: dict[str, int | None]
) -> None:
    assert cost(profile, **changes) == {"kind": "unavailable"}


def test_a_study_without_prices_has_none() -> None:
    assert modeled_cost(
        None, "tokens", input_tokens=1, cached_tokens=0, output_tokens=1, service_ns=1, lane_width=1
    ) == {"kind": "unavailable"}


def test_an_amount_beyond_every_number_is_no_cost() -> None:
    price = {"kind": "device-second", "usdPerDeviceSecond": 1.7e308, "devices": 4}
    beyond = CostModel.from_value({**MODEL.to_json(), "profiles": [{"profileId": "devices", "price": price}]}).record
    made = modeled_cost(
        beyond, "devices", input_tokens=1, cached_tokens=0, output_tokens=1, service_ns=2_000_000_000, lane_width=1
    )
    assert made == {"kind": "unavailable"}
