"""Rows of made-up windows for the tests of the comparison statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tasc_collector.contracts.comparison import ComparisonRule, Margins
from tasc_pipeline.control.comparing import Question
from tasc_pipeline.control.observations import Observation
from tasc_pipeline.control.pairing import Pairs

BASE = Observation(
    case_id="case",
    group_id="group",
    replicate=0,
    profile_id="champion",
    state="accepted",
    dispatch_state="completed",
    status="success",
    reason=None,
    input_tokens=40,
    output_tokens=65,
    tokens_per_event=1.0,
)


def question(
    *, recurring: bool = False, window: int = 0, failure_margin: float = 0.2, margin: float = 1.05
) -> Question:
    return Question(
        rule=ComparisonRule(
            confidence=0.95,
            seed="tests-1",
            draws=200,
            minimum_groups=10,
            minimum_coverage=0.9,
            recurring=recurring,
        ),
        margins=Margins(
            ttft_ratio=margin,
            itl_ratio=margin,
            tpot_ratio=margin,
            e2e_ratio=margin,
            failure_rate_difference=failure_margin,
        ),
        window_key=f"window-{window:03d}",
        as_of=f"2026-01-01T00:{window // 60:02d}:{window % 60:02d}.000Z",
        champion="champion",
        candidate="candidate",
    )


def rows(
    seed: int,
    *,
    groups: int = 80,
    replicates: int = 2,
    ttft: float = 1.0,
    gap: float = 1.0,
    noise: float = 0.03,
) -> list[Observation]:
    """Two profiles over the same cases; case latencies differ by a factor of two, calls by ``noise``."""
    rng = np.random.default_rng(seed)
    found = []
    for case in range(groups):
        level = float(np.exp(rng.normal(0, 0.7)))
        for replicate in range(replicates):
            for name, slower, wider in (("champion", 1.0, 1.0), ("candidate", ttft, gap)):
                first = 200 * level * slower * float(np.exp(rng.normal(0, noise)))
                itl = 10 * wider * float(np.exp(rng.normal(0, noise)))
                found.append(
                    replace(
                        BASE,
                        case_id=f"case-{case:03d}",
                        group_id=f"group-{case:03d}",
                        replicate=replicate,
                        profile_id=name,
                        ttft_ms=first,
                        itl_p50_ms=itl,
                        itl_p95_ms=itl * 1.2,
                        tpot_ms=itl,
                        e2e_ms=first + 64 * itl,
                    )
                )
    return found


def swapped(observations: Sequence[Observation]) -> list[Observation]:
    """The two profiles with their names exchanged."""
    other = {"champion": "candidate", "candidate": "champion"}
    return [replace(item, profile_id=other[item.profile_id]) for item in observations]


def pairs(
    champion: Sequence[float], candidate: Sequence[float], group: Sequence[int], weight: Sequence[float] = ()
) -> Pairs:
    return Pairs(
        np.array(champion, dtype=np.float64),
        np.array(candidate, dtype=np.float64),
        np.array(weight or [1.0] * len(group), dtype=np.float64),
        np.array(group, dtype=np.int64),
        max(group) + 1,
    )
