from __future__ import annotations

import math

import pytest

from tasc_collector.contracts.report import DifferenceCount, WindowFigure, WindowSummary
from tasc_pipeline.control.drift import chi_square_tail, drift, mismatch_evidence
from tasc_pipeline.control.intervals import Levels
from tasc_pipeline.control.sequences import failure_sequence, log_ratio_sequence, radius, spent, up_to


def _figure(log_ratio: float, error: float) -> WindowFigure:
    return WindowFigure(
        metric="ttft", statistic="median", log_ratio=log_ratio, standard_error=error, pairs=20, groups=10
    )


def _window(
    number: int, log_ratio: float = 0.0, error: float = 0.1, differences: dict[float, int] | None = None
) -> WindowSummary:
    counts = tuple(DifferenceCount(value=value, count=count) for value, count in (differences or {0.0: 10}).items())
    return WindowSummary(
        window_key=f"w{number}",
        as_of=f"2026-01-{number:02d}T00:00:00.000Z",
        figures=(_figure(log_ratio, error),),
        differences_best=counts,
        differences_worst=counts,
        planned_pairs=20,
        champion_missing=0,
        candidate_missing=0,
    )


def test_radius_by_hand() -> None:
    # alpha 0.05: -2 ln = 5.9915, r = (5.9915 + ln 5.9915 + 1) / 10 = 0.87818; at t = 1: sqrt(2 * 1.87818 / 0.87818 *
    # ln(sqrt(1.87818) / 0.05)) = sqrt(4.27744 * 3.31088) = 3.7633
    assert radius(1, 0.05) == pytest.approx(3.7633, abs=1e-4)
    assert radius(10, 0.05) * math.sqrt(10) == pytest.approx(3.0354, abs=1e-4)


def test_a_sequence_is_the_mean_with_the_radius_of_the_mean_square_error() -> None:
    found = log_ratio_sequence([_figure(0.1, 0.03), _figure(0.3, 0.04)], Levels(0.95, 9))
    error = math.sqrt((0.03**2 + 0.04**2) / 2)
    assert found.bounds.estimate == pytest.approx(0.2)
    assert found.bounds.high == pytest.approx(0.2 + error * radius(2, 0.05))
    assert found.bounds.joint_low == pytest.approx(0.2 - error * radius(2, 0.05 / 9))
    assert log_ratio_sequence([], Levels(0.95)).bounds.estimate is None


def test_a_sequence_is_wider_than_a_fixed_interval_and_narrows() -> None:
    widths = [radius(windows, 0.05) for windows in range(1, 200)]
    assert widths == sorted(widths, reverse=True)
    assert all(width > 1.96 / math.sqrt(windows) for windows, width in enumerate(widths, start=1))


def test_spent_grows_and_never_passes_alpha() -> None:
    # the first look: both tails of the normal beyond 3.7633
    assert spent(1, 0.05) == pytest.approx(math.erfc(3.76326 / math.sqrt(2)), rel=0.02)
    used = [spent(windows, 0.05) for windows in (0, 1, 5, 20, 100)]
    assert used == sorted(used)
    assert used[0] == 0.0
    assert used[-1] < 0.05


def test_only_windows_that_closed_before_count_and_in_their_order() -> None:
    later, one, two, last = _window(9), _window(1), _window(2), _window(5)
    assert [window.window_key for window in up_to(last, [later, two, one, last])] == ["w1", "w2", "w5"]


def test_failures_add_up_over_windows() -> None:
    few = failure_sequence([_window(1)], Levels(0.95))
    many = failure_sequence([_window(number) for number in range(1, 21)], Levels(0.95))
    assert few.high > 0.3
    assert many.estimate == 0.0
    # 200 groups without a difference: at most 1 - 0.0125^(1/200) = 0.02168, which the full stake alone gives
    assert 0.021 < many.high <= 0.02168


def test_drift_by_hand() -> None:
    # three windows at 0, 0, 0.3 with error 0.1: mean 0.1, Q = (0.01 + 0.01 + 0.04) / 0.01 = 6, two degrees: exp(-3)
    (item,) = drift([_window(1), _window(2), _window(3, 0.3)])
    assert item.q == pytest.approx(6)
    assert item.p_value == pytest.approx(math.exp(-3), abs=2e-3)
    assert drift([_window(1), _window(2)]) == ()


def test_chi_square_tail_is_close_to_the_tables() -> None:
    assert chi_square_tail(3.841, 1) == pytest.approx(0.05, abs=0.003)
    assert chi_square_tail(18.307, 10) == pytest.approx(0.05, abs=0.0005)
    assert chi_square_tail(0.0, 5) == 1.0


def test_mismatch_evidence_by_hand() -> None:
    # Beta(1/2, 1/2) mixture of one missing on one side: B(1.5, 0.5) / B(0.5, 0.5) * 2 = 1
    assert mismatch_evidence(0, 0) == pytest.approx(1)
    assert mismatch_evidence(1, 0) == pytest.approx(1)
    # two on one side: B(2.5, 0.5) / B(0.5, 0.5) = 3/8, times 4
    assert mismatch_evidence(2, 0) == pytest.approx(1.5)
    assert mismatch_evidence(0, 15) > 1000
    assert mismatch_evidence(20, 20) < 1
