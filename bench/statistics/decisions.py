"""Simulations of decisions: coverage of their intervals, false promotion under daily looks, drift and mismatch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from bench.statistics.tables import Table
from tasc_collector.contracts.report import DecisionSummary, WindowMean
from tasc_pipeline.control import betting
from tasc_pipeline.control.decisions import sequential
from tasc_pipeline.control.decisions.means import (
    SIGNED,
    UNIT,
    GroupSums,
    Resamples,
    Span,
    mean_interval,
    upper_end,
)
from tasc_pipeline.control.decisions.tails import Latencies, p95_interval
from tasc_pipeline.control.drift import DRIFT_P_VALUE, MISMATCH_EVIDENCE, mismatch_evidence
from tasc_pipeline.control.intervals import Levels, generator
from tasc_pipeline.control.pairing import Floats

SEED = "tasc-bench-decisions-1"
LEVELS = Levels(0.95)
LOOKS, DRAWS = 100, 1000
_D = "sha256:" + "0" * 64
Draw = Callable[[int, np.random.Generator], Floats]

_MEANS: tuple[tuple[str, Draw, float, Span | None], ...] = (
    ("score difference, normal", lambda groups, rng: rng.normal(0.0, 0.1, groups), 0.0, SIGNED),
    ("mean score, near 1 (beta 8, 2)", lambda groups, rng: rng.beta(8, 2, groups), 0.8, UNIT),
    ("cost, exponential", lambda groups, rng: rng.exponential(1.0, groups), 1.0, None),
    ("failure rate 0 %", lambda groups, rng: np.zeros(groups), 0.0, UNIT),
    ("failure rate 2 %", lambda groups, rng: (rng.random(groups) < 0.02).astype(np.float64), 0.02, UNIT),
    ("failure rate 10 %", lambda groups, rng: (rng.random(groups) < 0.10).astype(np.float64), 0.10, UNIT),
)


def coverage_decision_means(scale: float) -> Table:
    """Means: how often the interval holds the truth."""
    studies, sizes = max(int(400 * scale), 20), (24, 60, 100, 300)
    rows = []
    for name, draw, truth, span in _MEANS:
        cells = []
        for groups in sizes:
            rng, resamples = generator(SEED, "coverage", name, str(groups)), _resamples(groups)
            held = 0
            for _ in range(studies):
                sums = _sums(draw(groups, rng))
                found = mean_interval(sums, sums, sums, LEVELS, resamples, span)
                held += (found.low is None or found.low <= truth) and (found.high is None or truth <= found.high)
            cells.append(f"{held / studies:.1%}")
        rows.append((name, *cells))
    return Table("decision-means", ("means of a decision; groups", *map(str, sizes)), rows)


def coverage_decision_p95(scale: float) -> Table:
    """95th percentiles: coverage, and how often there is no upper end."""
    studies, sizes = max(int(100 * scale), 10), ((72, 1), (100, 1), (100, 3), (300, 1), (300, 3))
    truth = float(np.exp(0.5 * 1.6448536269514722))
    rows = []
    for unknown in (0, 1, 3):
        cells = []
        for groups, replicates in sizes:
            rng = generator(SEED, "p95", str(unknown), str(groups), str(replicates))
            resamples = _resamples(groups)
            held = unbounded = 0
            for _ in range(studies):
                group = np.repeat(np.arange(groups), replicates)
                values = np.exp(0.4 * rng.normal(size=groups)[group] + 0.3 * rng.normal(size=len(group)))
                known = np.ones(len(group), dtype=bool)
                known[rng.choice(len(group), unknown, replace=False)] = False
                calls = Latencies(np.where(known, values, np.inf), known, np.ones(len(group)), group, groups)
                bounds = p95_interval(calls, LEVELS, resamples).bounds
                unbounded += bounds.high is None
                held += (bounds.low is None or bounds.low <= truth) and (bounds.high is None or truth <= bounds.high)
            cells.append(f"{held / studies:.1%}" + (f" ({unbounded / studies:.0%} unbounded)" if unbounded else ""))
        rows.append((f"{unknown} unknown calls", *cells))
    head = ("95th percentile of a decision; groups x replicates", *(f"{groups} x {reps}" for groups, reps in sizes))
    return Table("decision-p95", head, rows)


def false_promotion(scale: float) -> Table:
    """A policy whose one figure is exactly at its bound, every other gate held, judged after each of 100 windows."""
    studies = max(int(100 * scale), 10)
    rows = []
    for name, groups, draw, margin in (
        ("score at its margin, 24 groups", 24, lambda rng: rng.normal(-0.05, 0.1, 24), -0.05),
        ("score at its margin, 100 groups", 100, lambda rng: rng.normal(-0.05, 0.1, 100), -0.05),
    ):
        rng = generator(SEED, "promotion", name)
        counts: Counter[str] = Counter()
        for _ in range(studies):
            counts.update(_score_study([draw(rng) for _ in range(LOOKS)], groups, margin))
        rows.append((name, *(f"{counts[kind] / studies:.1%}" for kind in ("sequence", "fixed"))))
    for name, bound in (("failures at their bound, 5 %, 100 groups", 0.05), ("p95 at its bound, 100 groups", 0.05)):
        rng = generator(SEED, "promotion", name)
        counts = Counter()
        for _ in range(studies):
            windows = [(rng.random(100) < bound).astype(np.float64) for _ in range(LOOKS)]
            counts.update(_share_study(windows, bound))
        rows.append((name, *(f"{counts[kind] / studies:.1%}" for kind in ("sequence", "fixed"))))
    head = (f"at the bound, {LOOKS} looks", "sequence: ever a wrong PASS", "fixed interval: ever a wrong PASS")
    return Table("promotion", head, rows)


def detection(scale: float) -> Table:
    """Drift of a score and sample-ratio mismatch: how often they warn within so many windows."""
    studies = max(int(200 * scale), 20)
    rows = []
    for name, step in (
        ("no drift", 0.0),
        ("score falls by 0.02 after 10 windows", 0.02),
        ("by 0.04", 0.04),
        ("by 0.08", 0.08),
    ):
        rng = generator(SEED, "drift", name)
        seen = [_drift_seen(rng, step) for _ in range(studies)]
        rows.append((f"drift: {name}", *_within(seen)))
    for name, champion, policy in (
        ("both lose 1 %", 0.01, 0.01),
        ("1 % and 3 %", 0.01, 0.03),
        ("1 % and 6 %", 0.01, 0.06),
    ):
        rng = generator(SEED, "mismatch", name)
        seen = [_mismatch_seen(rng, champion, policy) for _ in range(studies)]
        rows.append((f"mismatch: {name}", *_within(seen)))
    return Table("detection", ("warned within, 100 pairs a window", "15 windows", "30 windows", "100 windows"), rows)


DECISION_TABLES: tuple[Callable[[float], Table], ...] = (
    coverage_decision_means,
    coverage_decision_p95,
    false_promotion,
    detection,
)


@cache
def _resamples(groups: int) -> Resamples:
    """The same draws for all studies of a size: they do not depend on the data."""
    return Resamples.draw(groups, DRAWS, generator(SEED, "draws", str(groups)))


def _sums(values: Floats) -> GroupSums:
    return GroupSums(values, np.ones(len(values)))


def _score_study(windows: Sequence[Floats], groups: int, margin: float) -> set[str]:
    found: set[str] = set()
    resamples = _resamples(groups)
    summaries: list[DecisionSummary] = []
    for look, values in enumerate(windows):
        sums = _sums(values)
        own = mean_interval(sums, sums, sums, LEVELS, resamples, SIGNED)
        if own.low is not None and own.low >= margin:
            found.add("fixed")
        mean = sequential.window_mean("quality", None, own)
        summaries.append(_summary(look, () if mean is None else (mean,)))
        over = sequential.mean_figure(summaries, "quality", None, LEVELS)
        if over.low is not None and over.low >= margin:
            found.add("sequence")
    return found


def _share_study(windows: Sequence[Floats], bound: float) -> set[str]:
    found: set[str] = set()
    resamples = _resamples(len(windows[0]))
    merged: dict[float, int] = {}
    for values in windows:
        high, _ = upper_end(_sums(values), LEVELS.tail, resamples, UNIT)
        if high is not None and high <= bound:
            found.add("fixed")
        merged = betting.merged([merged, betting.counted(values.tolist())])
        # the upper end of ``sequential.share_figure`` is at most the bound exactly where the wealth against it is enough
        if betting.log_wealth(merged, bound) >= -math.log(LEVELS.tail):
            found.add("sequence")
    return found


def _drift_seen(rng: np.random.Generator, step: float) -> int:
    """The first window at which drift warns; a large number where none of 100 does."""
    summaries: list[DecisionSummary] = []
    for look in range(LOOKS):
        values = rng.normal(0.0 if look < 10 else -step, 0.1, 100)
        sums = _sums(values)
        middle = float(values.mean())
        mean = WindowMean(gate="quality", slice=None, lowest=middle, highest=middle, standard_error=sums.standard_error)
        summaries.append(_summary(look, (mean,)))
        drift = sequential.window_state(summaries, LEVELS, sequential=False).drift
        if any(item.p_value < DRIFT_P_VALUE for item in drift):
            return look + 1
    return LOOKS + 1


def _mismatch_seen(rng: np.random.Generator, champion: float, policy: float) -> int:
    lost = [0, 0]
    for look in range(LOOKS):
        lost = [lost[0] + int(rng.binomial(100, champion)), lost[1] + int(rng.binomial(100, policy))]
        if mismatch_evidence(*lost) >= MISMATCH_EVIDENCE:
            return look + 1
    return LOOKS + 1


def _within(seen: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"{sum(look <= limit for look in seen) / len(seen):.1%}" for limit in (15, 30, LOOKS))


def _summary(look: int, means: tuple[WindowMean, ...]) -> DecisionSummary:
    return DecisionSummary(
        window_key=f"window-{look:03d}",
        as_of=f"2026-01-01T00:{look // 60:02d}:{look % 60:02d}.000Z",
        policy_digest=_D,
        analysis_plan_digest=_D,
        means=means,
        shares=(),
        champion_missing=0,
        policy_missing=0,
    )
