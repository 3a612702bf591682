from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasc_collector.errors import InputError
from tasc_pipeline.control.engine_v2_estimators import (
    case_medians,
    check_size,
    grouped_interval,
    row_weights,
    sorted_quantile,
    weighted_mean,
    weighted_quantile,
)
from tasc_pipeline.control.engine_v2_random import bootstrap_seed, indices, uniforms

FINITE = st.floats(-1, 1, allow_nan=False, width=32)
WEIGHT = st.floats(0.001953125, 50, allow_nan=False, width=32)


def mulberry(seed: int):
    """The generator step by step, as its own 32-bit arithmetic says."""
    state = seed
    while True:
        state = (state + 0x6D2B79F5) & 0xFFFFFFFF
        value = ((state ^ state >> 15) * (1 | state)) & 0xFFFFFFFF
        value ^= (value + ((value ^ value >> 7) * (61 | value))) & 0xFFFFFFFF
        yield (value ^ value >> 14) / 2**32


def test_published_random_numbers() -> None:
    assert uniforms(42, 0, 5).tolist() == [
        0.6011037519201636,
        0.44829055899754167,
        0.8524657934904099,
        0.6697340414393693,
        0.17481389874592423,
    ]


def test_published_seed() -> None:
    assert bootstrap_seed("synthetic-bootstrap-1") == 3191464213


@given(st.integers(0, 2**32 - 1), st.integers(0, 50), st.integers(1, 40))
def test_any_block_of_numbers_is_that_of_the_generator(seed: int, start: int, count: int) -> None:
    numbers = mulberry(seed)
    expected = [next(numbers) for _ in range(start + count)][start:]
    assert uniforms(seed, start, count).tolist() == expected


def test_two_groups_by_hand() -> None:
    # effect -1 of weight 9 and +1 of weight 1: a draw of a twice is -1, of b twice +1, of both -8 / 10
    numbers = mulberry(91)
    draws = []
    for _ in range(20):
        taken = [math.floor(next(numbers) * 2) for _ in range(2)]
        numerator, mass = sum((-9, 1)[place] for place in taken), sum((9, 1)[place] for place in taken)
        draws.append(numerator / mass)
    assert set(draws) == {-1.0, -0.8, 1.0}
    draws.sort()
    # quantiles at 0.1 and 0.9 of 20 draws: places 1.9 and 17.1
    low, high = draws[1] + (draws[2] - draws[1]) * 0.9, draws[17] + (draws[18] - draws[17]) * (17.1 - 17)
    found = grouped_interval(
        np.array([-1.0, 1.0]), np.array([9.0, 1.0]), np.array([0, 1]), alpha=0.2, iterations=20, seed=91
    )
    assert (found.estimate, found.mass, found.groups, found.cases) == (-0.8, 10.0, 2, 2)
    assert found.low == pytest.approx(low, abs=1e-15)
    assert found.high == pytest.approx(high, abs=1e-15)


def test_weighted_example() -> None:
    # one case of -0.2 with weight 90 and nine of +1 with weight 1: (-18 + 9) / 99
    effects, weights = np.array([-0.2] + [1.0] * 9), np.array([90.0] + [1.0] * 9)
    found = grouped_interval(effects, weights, np.arange(10), alpha=0.05, iterations=10, seed=1)
    assert found.estimate == -9 / 99
    assert found.mass == 99


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(FINITE, WEIGHT, st.integers(0, 5)), min_size=1, max_size=30),
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
    st.sampled_from([0.05, 0.2, 0.5]),
)
def test_the_interval_is_that_of_a_plain_loop(rows, seed: int, iterations: int, alpha: float) -> None:
    numerators: dict[int, float] = {}
    masses: dict[int, float] = {}
    total = mass = 0.0
    for effect, weight, group in sorted(rows, key=lambda row: row[2]):
        numerators[group] = numerators.get(group, 0.0) + effect * weight
        masses[group] = masses.get(group, 0.0) + weight
        total, mass = total + effect * weight, mass + weight
    names, numbers = sorted(numerators), mulberry(seed)
    draws = []
    for _ in range(iterations):
        numerator = drawn = 0.0
        for _ in names:
            taken = names[math.floor(next(numbers) * len(names))]
            numerator, drawn = numerator + numerators[taken], drawn + masses[taken]
        draws.append(numerator / drawn)
    draws.sort()

    def at(share: float) -> float:
        place = (len(draws) - 1) * share
        low, high = math.floor(place), math.ceil(place)
        return draws[low] if low == high else draws[low] + (draws[high] - draws[low]) * (place - low)

    effects, weights, groups = (np.array(column) for column in zip(*rows, strict=True))
    found = grouped_interval(effects, weights, groups, alpha=alpha, iterations=iterations, seed=seed)
    assert (found.estimate, found.mass, found.low, found.high) == (total / mass, mass, at(alpha / 2), at(1 - alpha / 2))


@given(st.lists(st.tuples(st.sampled_from([1.0, 2.0, 3.0, 10.0]), WEIGHT), min_size=1, max_size=25))
def test_the_weighted_quantile_is_the_first_value_that_reaches_its_share(rows) -> None:
    ordered = sorted(rows, key=lambda row: row[0])
    mass = 0.0
    for _, weight in ordered:
        mass += weight
    reached, place = 0.0, -1
    while reached < 0.95 * mass:
        place += 1
        reached += ordered[place][1]
    values, weights = (np.array(column) for column in zip(*rows, strict=True))
    assert weighted_quantile(values, weights, 0.95) == ordered[place][0]


def test_case_effect_is_the_median_of_its_replicates() -> None:
    cases, effects = case_medians(np.array([2, 0, 2, 2, 0]), np.array([0.5, 0.2, -0.5, 0.1, 0.4]))
    assert cases.tolist() == [0, 2]
    assert effects.tolist() == [(0.2 + 0.4) / 2, 0.1]


def test_a_row_weighs_its_case_over_the_rows_of_the_case() -> None:
    weights = row_weights(np.array([0, 0, 3]), np.array([4.0, 4.0, 1.0]))
    assert weights.tolist() == [2.0, 2.0, 1.0]
    assert weighted_mean(np.array([1.0, 0.0, 1.0]), weights) == 3 / 5


def test_indices_of_later_draws_do_not_depend_on_how_many_were_made_at_once() -> None:
    whole = indices(7, 0, 6, 5)
    assert indices(7, 4, 2, 5).tolist() == whole[4:].tolist()
    assert whole.min() >= 0
    assert whole.max() < 5
    assert sorted_quantile(np.array([1.0, 2.0, 4.0]), 0.75) == 3.0


@pytest.mark.parametrize(
    ("size", "what"),
    [
        ((100_001, 1, 1), "case effects"),
        ((1, 1_000_001, 1), "bootstrap iterations"),
        ((1, 100_000, 1_001), "iterations times groups"),
    ],
)
def test_what_the_original_refuses_is_refused(size: tuple[int, int, int], what: str) -> None:
    check_size(100_000, 1_000, 100_000)
    with pytest.raises(InputError, match=what):
        check_size(*size)
