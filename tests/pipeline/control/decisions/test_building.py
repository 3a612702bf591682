"""From executions to arrays: scores from the joined table, prices, and units in a fixed order whatever order they came in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tasc_pipeline.control.decisions.building import CallBlocks, Row, calls_of, priced, scored, units_of
from tasc_pipeline.control.decisions.costs import CostRule
from tasc_pipeline.control.decisions.units import Lack, Outcome
from tests.support.comparison_rows import BASE
from tests.support.decision_windows import PRICE
from tests.support.engine_v2_world import CANDIDATE, CHAMPION, FAILED, attempt, receipt, table, trace


def row(case: str, profile: str, *, replicate: int = 0, **fields: object) -> Row:
    """One execution of group ``group-<case>``."""
    own = {name: fields.pop(name) for name in ("slices", "route_signal", "started_ms", "enveloped") if name in fields}
    observation = replace(
        BASE,
        case_id=case,
        group_id=f"group-{case}",
        replicate=replicate,
        profile_id=profile,
        **fields,  # type: ignore[arg-type]  # fields of it
    )
    return Row(observation, **({"slices": (), "route_signal": None, "started_ms": None} | own))  # type: ignore[arg-type]  # fields of it


def test_scores_come_from_the_joined_table_by_place_and_what_is_not_in_it_has_none() -> None:
    traces = [
        trace("b", CANDIDATE),
        trace("a", CHAMPION),
        trace("a", CANDIDATE, attempts=[attempt(CANDIDATE, **FAILED)]),
        trace("b", CHAMPION),
    ]
    joined = table(traces, [receipt(traces[0], 0.25), receipt(traces[1], "abstained")]).rows
    calls = calls_of(
        [
            row("b", CANDIDATE, enveloped=True),
            row("b", CANDIDATE, replicate=1, state="not_sent"),
            row("a", CHAMPION, enveloped=True),
            row("a", CANDIDATE, enveloped=True),
            row("b", CHAMPION, enveloped=True),
        ]
    )
    found = scored(calls, joined)
    assert np.array_equal(found.score, [0.25, np.nan, np.nan, 0.0, np.nan], equal_nan=True)
    assert found.lack.tolist() == [Lack.NONE, Lack.MISSING, Lack.ABSTAINED, Lack.NONE, Lack.MISSING]


def test_a_window_without_an_envelope_has_no_score() -> None:
    calls = calls_of([row("a", CHAMPION, state="not_attempted")])
    found = scored(calls, table([], []).rows)
    assert np.isnan(found.score).all() and found.lack.tolist() == [Lack.MISSING]


def test_blocks_of_rows_are_the_columns_of_all_rows() -> None:
    rows = [
        row("case-10", CHAMPION, slices=("long",)),
        row("b", CANDIDATE, slices=("hard", "long")),
        row("c", CHAMPION, replicate=3, slices=()),
    ]
    blocks = CallBlocks()
    blocks.add(rows[:1])
    blocks.add(rows[1:])
    found, whole = blocks.done(), calls_of(rows)
    assert (
        (found.profile_ids, found.slice_ids)
        == (whole.profile_ids, whole.slice_ids)
        == ((CANDIDATE, CHAMPION), ("hard", "long"))
    )
    assert found.case_id.tolist() == [b"case-10", b"b", b"c"]
    assert found.slices.tolist() == [[False, True], [True, True], [False, False]]
    assert found.replicate.tolist() == [0, 0, 3]


def test_units_are_ordered_by_group_case_and_replicate_and_have_every_side() -> None:
    cost = {CHAMPION: CostRule(PRICE, 128, 30_000)}
    calls = calls_of(
        [
            row("b", CANDIDATE, replicate=1, ttft_ms=7.0, slices=("hard",)),
            row("a", CHAMPION, ttft_ms=1.0, route_signal=0.25, input_tokens=100, output_tokens=10),
            row("b", CHAMPION, ttft_ms=3.0, replicate=1, slices=("hard",), input_tokens=300, output_tokens=20),
            row("a", CANDIDATE, ttft_ms=2.0),
            row("b", CHAMPION, ttft_ms=5.0, replicate=0, slices=("hard",), input_tokens=1_000, output_tokens=None),
        ]
    )
    found = units_of(priced(calls, cost), cost, ("hard", "unheard-of"))
    assert (len(found), found.groups) == (3, 2)
    assert found.case.tolist() == [0, 1, 1] and found.group.tolist() == [0, 1, 1]
    champion, candidate = found.sides[CHAMPION], found.sides[CANDIDATE]
    assert champion.ttft_ns.tolist() == [1e6, 5e6, 3e6]
    assert np.array_equal(candidate.ttft_ns, [2e6, np.nan, 7e6], equal_nan=True)
    assert candidate.outcome.tolist() == [Outcome.SUCCESS, Outcome.ABSENT, Outcome.SUCCESS]
    assert np.array_equal(found.route_signal, [0.25, np.nan, np.nan], equal_nan=True)
    assert {name: flags.tolist() for name, flags in found.slices.items()} == {
        "hard": [False, True, True],
        "unheard-of": [False, False, False],
    }
    # 1 USD a million input tokens, 2 USD a million output tokens; unknown tokens have no cost, but a ceiling
    assert np.array_equal(champion.cost_usd, [120e-6, np.nan, 340e-6], equal_nan=True)
    assert champion.ceiling_usd.tolist() == [(1_000 + 2 * 128) / 1e6] * 3
    assert np.isinf(candidate.ceiling_usd).all() and np.isnan(candidate.cost_usd).all()
