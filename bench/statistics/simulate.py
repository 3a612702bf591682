"""Simulations behind docs/statistics.md: coverage, daily looks, A/A windows, power. Seeded; prints tables.

python -m bench.statistics.simulate             all of it, some minutes on one core; prints
python -m bench.statistics.simulate --write     the same, and puts the tables into docs/statistics.md
python -m bench.statistics.simulate --quick     a twentieth of the studies, to try the script
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from bench.statistics.decisions import DECISION_TABLES
from bench.statistics.others import growthbook_log_interval, two_sample_log_interval
from bench.statistics.tables import Table
from bench.statistics.worlds import (
    FAILURE_MARGIN,
    MARGIN,
    WORLDS,
    Size,
    failure_differences,
    margins,
    observations_of,
    pairs_of,
    rule,
)
from tasc_collector.contracts.report import ComparisonResult, WindowFigure
from tasc_pipeline.control import betting
from tasc_pipeline.control.comparing import Question, compare
from tasc_pipeline.control.failures import FailurePairs, failure_bounds
from tasc_pipeline.control.intervals import Levels, LogRatio, generator, median_log_ratio, p95_log_ratio
from tasc_pipeline.control.sequences import log_ratio_sequence

DOCS = Path(__file__).resolve().parents[2] / "docs" / "statistics.md"
SEED = "tasc-bench-statistics-1"
LEVELS = Levels(0.95)
LOOKS = 100
LOG_MARGIN = math.log(MARGIN)


def coverage_median(scale: float) -> Table:
    studies = max(int(2000 * scale), 20)
    sizes = (Size(8, 2), Size(12, 2), Size(24, 2), Size(60, 3), Size(200, 1))
    rows = []
    for world in WORLDS:
        cells = []
        for size in sizes:
            rng = generator(SEED, "coverage-median", world, str(size))
            held = [_holds(median_log_ratio(pairs_of(world, size, rng), LEVELS)) for _ in range(studies)]
            cells.append(_share(held))
        rows.append((world, *cells))
    return Table("coverage-median", ("median of the ratio; groups x replicates", *map(str, sizes)), rows)


def coverage_p95(scale: float) -> Table:
    studies = max(int(500 * scale), 10)
    sizes = (Size(60, 2), Size(100, 2), Size(300, 1), Size(300, 3))
    rows = []
    for world in WORLDS:
        cells = []
        for size in sizes:
            rng = generator(SEED, "coverage-p95", world, str(size))
            held = [
                _holds(p95_log_ratio(pairs_of(world, size, rng), LEVELS, draws=200, rng=rng)) for _ in range(studies)
            ]
            cells.append(_share(held))
        rows.append((world, *cells))
    return Table("coverage-p95", ("ratio of p95s; groups x replicates", *map(str, sizes)), rows)


def coverage_failures(scale: float) -> Table:
    studies = max(int(1000 * scale), 20)
    sizes = (Size(24, 2), Size(100, 2), Size(400, 1))
    rows = []
    for rates in ((0.0, 0.0), (0.01, 0.01), (0.05, 0.05), (0.10, 0.10), (0.05, 0.15)):
        cells = []
        for size in sizes:
            rng = generator(SEED, "coverage-failures", str(rates), str(size))
            held = [_failures_hold(size, rates, rng) for _ in range(studies)]
            cells.append(_share(held))
        rows.append((f"{rates[0]:.0%} and {rates[1]:.0%}", *cells))
    return Table("coverage-failures", ("failure rates; groups x replicates", *map(str, sizes)), rows)


def daily_looks(scale: float) -> Table:
    """False verdicts of one figure whose true ratio is exactly the margin, looked at after each of 100 windows."""
    studies = max(int(600 * scale), 10)
    rows = []
    for world, size in (
        ("log-normal", Size(24, 2)),
        ("heavy tails (t, 1.5)", Size(24, 2)),
        ("bimodal", Size(24, 2)),
        ("log-normal", Size(8, 2)),
    ):
        rng = generator(SEED, "daily", world, str(size))
        counts: Counter[str] = Counter()
        for _ in range(studies):
            counts.update(
                _one_daily_study([median_log_ratio(pairs_of(world, size, rng), LEVELS) for _ in range(LOOKS)])
            )
        rows.append((f"median, {world}, {size}", *(f"{counts[name] / studies:.1%}" for name in _DAILY)))
    rng = generator(SEED, "daily", "failures")
    size, counts = Size(100, 2), Counter()
    for _ in range(studies):
        windows = [
            betting.counted(failure_differences(size, (0.02, 0.02 + FAILURE_MARGIN), rng).tolist())
            for _ in range(LOOKS)
        ]
        counts.update(_one_daily_failure_study(windows))
    rows.append((f"failures 2 % and 12 %, {size}", *(f"{counts[name] / studies:.1%}" for name in _DAILY)))
    return Table(
        "daily",
        (
            "at the margin, 100 looks",
            "sequence: false worse",
            "sequence: false no-worse",
            "fixed interval: false worse",
            "fixed interval: false no-worse",
        ),
        rows,
    )


_DAILY = ("sequence-worse", "sequence-no-worse", "fixed-worse", "fixed-no-worse")


def _one_daily_study(windows: Sequence[LogRatio]) -> set[str]:
    found: set[str] = set()
    figures: list[WindowFigure] = []
    for own in windows:
        bounds = own.bounds
        if own.standard_error is None or bounds.estimate is None or bounds.low is None or bounds.high is None:
            continue
        figures.append(_figure(bounds.estimate, own.standard_error))
        found |= {"fixed-worse"} if bounds.low > 0 else {"fixed-no-worse"} if bounds.high < 0 else set()
        over = log_ratio_sequence(figures, LEVELS).bounds
        assert over.low is not None and over.high is not None
        found |= {"sequence-worse"} if over.low > 0 else {"sequence-no-worse"} if over.high < 0 else set()
    return found


def _one_daily_failure_study(windows: Sequence[dict[float, int]]) -> set[str]:
    found: set[str] = set()
    for look, window in enumerate(windows, start=1):
        merged = betting.merged(windows[:look])
        turned = {-value: count for value, count in merged.items()}
        if betting.log_wealth(turned, -FAILURE_MARGIN) >= -math.log(LEVELS.tail):
            found.add("sequence-worse")
        if betting.log_wealth(merged, FAILURE_MARGIN) >= -math.log(LEVELS.tail):
            found.add("sequence-no-worse")
        bounds, _ = failure_bounds(FailurePairs(window, window, window, 0, 0, 0, 0), LEVELS)
        assert bounds.low is not None and bounds.high is not None
        found |= (
            {"fixed-worse"}
            if bounds.low > FAILURE_MARGIN
            else {"fixed-no-worse"}
            if bounds.high < FAILURE_MARGIN
            else set()
        )
    return found


def whole_windows(scale: float) -> Table:
    """Whole comparisons, all figures: A/A, and TTFT exactly at its margin, as single windows and as daily looks."""
    studies, size = max(int(10 * scale), 1), Size(60, 2)
    looks = LOOKS if scale >= 1 else 10
    rows = []
    for name, ratio in (("A/A", 1.0), (f"TTFT at its margin, {MARGIN:.2f}", MARGIN)):
        single: Counter[str] = Counter()
        ever: Counter[str] = Counter()
        for study in range(studies):
            rng = generator(SEED, "whole", name, str(study))
            earlier: list[ComparisonResult] = []
            seen: set[str] = set()
            for look in range(looks):
                rows_of_window = observations_of(size, rng, ratio, failure_rate=0.005)
                single[compare(_question(look, recurring=False), rows_of_window).verdict] += 1
                result = compare(
                    _question(look, recurring=True), rows_of_window, [item.summary for item in earlier if item.summary]
                )
                earlier.append(result)
                seen.add(result.verdict)
            ever.update(seen)
        total = studies * looks
        rows.append(
            (
                name,
                str(total),
                *(f"{single[verdict] / total:.1%}" for verdict in ("no-worse", "worse", "undecided")),
                f"{ever['no-worse']} of {studies}",
                f"{ever['worse']} of {studies}",
            )
        )
    return Table(
        "whole",
        (
            "whole comparison, 60 x 2",
            "windows",
            "single: no-worse",
            "single: worse",
            "single: undecided",
            f"sequence, ever no-worse in {looks} looks",
            "sequence, ever worse",
        ),
        rows,
    )


def power(scale: float) -> Table:
    """Chance of the right verdict on TTFT alone, same data for every method."""
    studies, size = max(int(400 * scale), 10), Size(40, 2)
    rows = []
    for name, ratio in (("same, ratio 1.00: no-worse", 1.0), ("10 % slower than the margin, 1.21: worse", 1.21)):
        rng = generator(SEED, "power", name)
        counts: Counter[str] = Counter()
        first: dict[str, list[int]] = {"sequence": [], "growthbook": []}
        for _ in range(studies):
            windows = [pairs_of("log-normal", size, rng, ratio) for _ in range(20)]
            own = [median_log_ratio(pairs, LEVELS) for pairs in windows]
            counts["paired"] += _right(own[0].bounds.low, own[0].bounds.high, ratio)
            counts["two-sample"] += _right(*two_sample_log_interval(windows[0]), ratio)
            counts["growthbook"] += _right(*growthbook_log_interval(windows[:1]), ratio)
            figures = [_figure(item.bounds.estimate or 0.0, item.standard_error or 0.0) for item in own]
            ours = (_span(log_ratio_sequence(figures[:look], LEVELS)) for look in range(1, 21))
            theirs = (growthbook_log_interval(windows[:look]) for look in range(1, 21))
            first["sequence"].append(_first(ours, ratio))
            first["growthbook"].append(_first(theirs, ratio))
        rows.append(
            (
                name,
                *(f"{counts[method] / studies:.0%}" for method in ("paired", "two-sample", "growthbook")),
                *(_windows_until(first[method]) for method in ("sequence", "growthbook")),
            )
        )
    return Table(
        "power",
        (
            "TTFT, 40 x 2, margin 1.10",
            "ours, one window",
            "two-sample, one window",
            "GrowthBook, one window",
            "ours, windows until said (median)",
            "GrowthBook, windows until said (median)",
        ),
        rows,
    )


def speed(scale: float) -> Table:
    """A million traces: every interval of one latency, median and p95."""
    size = Size(int(100_000 * min(scale, 1.0)), 5)
    rng = generator(SEED, "speed")
    pairs = pairs_of("log-normal", size, rng)
    begin = time.process_time()
    median_log_ratio(pairs, LEVELS)
    middle = time.process_time()
    p95_log_ratio(pairs, LEVELS, draws=2000, rng=rng)
    end = time.process_time()
    return Table(
        "speed",
        ("one latency of, CPU time", "median", "p95, draws as of 2,000 asked"),
        [(f"{2 * len(pairs):,} traces in {size.groups:,} groups", f"{middle - begin:.2f} s", f"{end - middle:.1f} s")],
    )


TABLES: tuple[Callable[[float], Table], ...] = (
    coverage_median,
    coverage_p95,
    coverage_failures,
    daily_looks,
    whole_windows,
    power,
    *DECISION_TABLES,
    speed,
)


def main() -> None:
    arguments = argparse.ArgumentParser(description="Simulations behind docs/statistics.md")
    arguments.add_argument("--write", action="store_true", help="put the tables into docs/statistics.md")
    arguments.add_argument("--quick", action="store_true", help="a twentieth of the studies")
    arguments.add_argument("--only", help="one table by name")
    options = arguments.parse_args()
    for table in _tables(0.05 if options.quick else 1.0, options.only):
        print(table.markdown(), end="\n\n", flush=True)
        if options.write:
            DOCS.write_text(placed(DOCS.read_text(), table))


def placed(page: str, table: Table) -> str:
    """The page with a table between its two marks."""
    begin, end = f"<!-- {table.name} -->", f"<!-- end of {table.name} -->"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"docs/statistics.md has no place for the table {table.name}")
    return f"{before}{begin}\n\n{table.markdown()}\n\n{end}{after}"


def _tables(scale: float, only: str | None) -> Iterator[Table]:
    for make in TABLES:
        if only is None or make.__name__ == only:
            yield make(scale)


def _share(held: Sequence[bool]) -> str:
    return f"{sum(held) / len(held):.1%}"


def _failures_hold(size: Size, rates: tuple[float, float], rng: np.random.Generator) -> bool:
    found = betting.counted(failure_differences(size, rates, rng).tolist())
    bounds, _ = failure_bounds(FailurePairs(found, found, found, 0, 0, 0, 0), LEVELS)
    assert bounds.low is not None and bounds.high is not None
    return bounds.low <= rates[1] - rates[0] <= bounds.high


def _holds(found: LogRatio) -> bool:
    """Whether the interval holds the truth, 0; a side without a bound is unbounded."""
    low, high = found.bounds.low, found.bounds.high
    return (low is None or low <= 0) and (high is None or high >= 0)


def _figure(log_ratio: float, error: float) -> WindowFigure:
    return WindowFigure(metric="ttft", statistic="median", log_ratio=log_ratio, standard_error=error, pairs=0, groups=0)


def _span(found: LogRatio) -> tuple[float | None, float | None]:
    return found.bounds.low, found.bounds.high


def _right(low: float | None, high: float | None, ratio: float) -> bool:
    if low is None or high is None:
        return False
    return high <= LOG_MARGIN if ratio <= MARGIN else low > LOG_MARGIN


def _first(spans: Iterable[tuple[float | None, float | None]], ratio: float) -> int:
    """The first look at which the right verdict stands; 99 where none of them has it."""
    return next((look for look, span in enumerate(spans, start=1) if _right(*span, ratio)), 99)


def _windows_until(looks: Sequence[int]) -> str:
    median = float(np.median(looks))
    return f"{median:.0f}" if median <= 20 else "more than 20"


def _question(look: int, *, recurring: bool) -> Question:
    return Question(
        rule(recurring=recurring),
        margins(),
        f"window-{look:03d}",
        f"2026-01-01T00:{look // 60:02d}:{look % 60:02d}.000Z",
        "champion",
        "candidate",
    )


if __name__ == "__main__":
    main()
