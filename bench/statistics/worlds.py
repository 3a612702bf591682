"""Made-up windows whose true ratio is known: what the simulations draw from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tasc_collector.contracts.comparison import ComparisonRule, Margins
from tasc_pipeline.control.observations import Observation
from tasc_pipeline.control.pairing import Floats, Ints, Pairs

MARGIN = 1.10
FAILURE_MARGIN = 0.10
Rng = np.random.Generator


@dataclass(frozen=True, slots=True)
class Size:
    """Case groups of a window and replicates of each; one case per group."""

    groups: int
    replicates: int

    def __str__(self) -> str:
        return f"{self.groups} x {self.replicates}"


Draw = tuple[Floats, Floats]
"""Log latencies of champion and candidate, one per pair, exchangeable: the true ratio of medians and of p95s is 1."""


def _case(size: Size, group: Ints, rng: Rng, spread: float) -> Floats:
    return rng.normal(0.0, spread, size.groups)[group]


def _normal(size: Size, group: Ints, rng: Rng) -> Draw:
    case, count = _case(size, group, rng, 0.5), len(group)
    return case + rng.normal(0, 0.15, count), case + _case(size, group, rng, 0.1) + rng.normal(0, 0.15, count)


def _heavy(size: Size, group: Ints, rng: Rng) -> Draw:
    case, count = _case(size, group, rng, 0.5), len(group)
    return case + 0.1 * rng.standard_t(1.5, count), case + 0.1 * rng.standard_t(1.5, count)


def _bimodal(size: Size, group: Ints, rng: Rng) -> Draw:
    case, count = _case(size, group, rng, 0.5), len(group)
    return tuple(case + rng.normal(0, 0.05, count) + (rng.random(count) < 0.3) for _ in range(2))  # type: ignore[return-value]  # two of them


def _correlated(size: Size, group: Ints, rng: Rng) -> Draw:
    case, count = _case(size, group, rng, 0.5), len(group)
    return case + rng.normal(0, 0.03, count), case + _case(size, group, rng, 0.3) + rng.normal(0, 0.03, count)


def _skewed(size: Size, group: Ints, rng: Rng) -> Draw:
    case, count = _case(size, group, rng, 0.5), len(group)
    return tuple(case + np.log(0.3 + rng.exponential(1.0, count)) for _ in range(2))  # type: ignore[return-value]  # two of them


WORLDS: dict[str, Callable[[Size, Ints, Rng], Draw]] = {
    "log-normal": _normal,
    "heavy tails (t, 1.5)": _heavy,
    "bimodal": _bimodal,
    "correlated replicates": _correlated,
    "skewed (exponential)": _skewed,
}


def pairs_of(world: str, size: Size, rng: Rng, ratio: float = 1.0) -> Pairs:
    """One window's pairs; which side is which is turned at random per group, then the candidate is made slower."""
    group = np.repeat(np.arange(size.groups), size.replicates)
    first, second = WORLDS[world](size, group, rng)
    turned = (rng.random(size.groups) < 0.5)[group]
    first, second = first.clip(-20, 20), second.clip(-20, 20)  # what a double can hold after exp
    champion, candidate = np.where(turned, second, first), np.where(turned, first, second)
    return Pairs(
        champion=np.exp(champion) * 100,
        candidate=np.exp(candidate) * 100 * ratio,
        weight=np.full(len(group), 1 / size.replicates),
        group=group,
        groups=size.groups,
    )


def failure_differences(size: Size, rates: tuple[float, float], rng: Rng) -> Floats:
    """Mean difference of failures per group, candidate minus champion."""
    shape = (size.groups, size.replicates)
    failed = [(rng.random(shape) < rate).mean(axis=1) for rate in rates]
    differences: Floats = failed[1] - failed[0]
    return differences


def observations_of(size: Size, rng: Rng, ttft_ratio: float = 1.0, failure_rate: float = 0.0) -> list[Observation]:
    """A whole window of two profiles: TTFT, token gaps, failures, all of one case set."""
    ttft, gaps = pairs_of("log-normal", size, rng, ttft_ratio), pairs_of("log-normal", size, rng)
    rows = []
    for index in range(len(ttft)):
        shared = Observation(
            case_id=f"case-{index // size.replicates:04d}",
            group_id=f"group-{index // size.replicates:04d}",
            replicate=index % size.replicates,
            profile_id="",
            state="accepted",
            dispatch_state="completed",
            status="success",
            reason=None,
            output_tokens=65,
            input_tokens=40,
            tokens_per_event=1.0,
        )
        for name, first, gap in (
            ("champion", ttft.champion[index], gaps.champion[index]),
            ("candidate", ttft.candidate[index], gaps.candidate[index]),
        ):
            if rng.random() < failure_rate:
                rows.append(replace(shared, profile_id=name, status="failure", reason="timeout"))
                continue
            itl = float(gap) / 10
            rows.append(
                replace(
                    shared,
                    profile_id=name,
                    ttft_ms=float(first),
                    itl_p50_ms=itl,
                    itl_p95_ms=itl * 1.3,
                    tpot_ms=itl * 1.02,
                    e2e_ms=float(first) + 64 * itl * 1.02,
                )
            )
    return rows


def rule(*, recurring: bool = False, draws: int = 200) -> ComparisonRule:
    """The rule of a study as ``tasc study new`` writes it, with fewer draws."""
    return ComparisonRule(
        confidence=0.95, seed="bench-1", draws=draws, minimum_groups=10, minimum_coverage=0.8, recurring=recurring
    )


def margins() -> Margins:
    """10 % on every latency, 10 points on failures."""
    return Margins(
        ttft_ratio=MARGIN, itl_ratio=MARGIN, tpot_ratio=MARGIN, e2e_ratio=MARGIN, failure_rate_difference=FAILURE_MARGIN
    )
