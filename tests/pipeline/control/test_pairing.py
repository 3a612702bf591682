from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tasc_pipeline.control.pairing import BEYOND_LOG_RATIO, by_profile, latency_pairs
from tests.support.comparison_rows import BASE


def _pairs(*rows):
    return latency_pairs(by_profile(rows, "champion"), by_profile(rows, "candidate"), "ttft")


def _unit(case: str, replicate: int, before: float | None, after: float | None, weight: float = 1.0, **candidate):
    shared = replace(BASE, case_id=case, group_id="g-" + case[0], replicate=replicate, weight=weight)
    return (
        replace(shared, profile_id="champion", ttft_ms=before),
        replace(shared, profile_id="candidate", ttft_ms=after, **candidate),
    )


def test_a_case_weighs_the_same_however_many_replicates_paired() -> None:
    found = _pairs(*_unit("a1", 0, 10, 20), *_unit("a1", 1, 10, 20), *_unit("b1", 0, 10, 20, weight=3.0))
    assert found.weight.tolist() == [0.5, 0.5, 3.0]
    assert (found.groups, found.group.tolist()) == (2, [0, 0, 1])


def test_only_units_where_both_succeeded_and_both_are_known_pair() -> None:
    found = _pairs(
        *_unit("a1", 0, 10, 20),
        *_unit("a2", 0, None, 20),
        *_unit("a3", 0, 10, 20, status="failure"),
        *_unit("a4", 0, 10, 20, state="not_sent", dispatch_state=None, status=None),
        *_unit("a5", 0, 10, 30)[:1],
    )
    assert (found.champion.tolist(), found.candidate.tolist()) == ([10.0], [20.0])


def test_a_zero_is_a_value_with_its_rank() -> None:
    found = _pairs(*_unit("a1", 0, 0, 0), *_unit("a2", 0, 0, 5), *_unit("a3", 0, 5, 0), *_unit("a4", 0, 5, 10))
    assert found.log_ratio.tolist() == pytest.approx([0.0, BEYOND_LOG_RATIO, -BEYOND_LOG_RATIO, np.log(2)])
    assert found.zero_share == 0.75
