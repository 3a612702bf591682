"""The runner's process dies, or the machine loses power, at any call: nothing is sent twice, nothing accepted is lost.

The runner is the project's own: preflight, executor, ledger, settlement, transport and journal. The server counts.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.support.crash_world import Fault, Verdict, trial
from tests.support.real_runner import RealRunner, real_runner
from tests.support.toy_runner import ToyRunner

SEEDS = 20
BEYOND_THE_END = 10**9
Count = Callable[[str, int], None]


def _trial(runner: RealRunner, fault: Fault, rng: random.Random, *, power_loss: bool) -> Verdict:
    return trial(
        runner, executions=runner.executions, fault=fault, power_loss=power_loss, rng=rng, journal=runner.journal
    )


def kill_trials(seed: int, points: int) -> list[tuple[str, Verdict]]:
    """Kill points of one schedule; half of them with a power loss.

    A schedule has its own number of calls, concurrency, load, isolation, segment size and step, so that kills strike in
    rotations and shared commits too.
    """
    rng = random.Random(seed)
    runner = real_runner(rng)
    whole = _trial(runner, Fault(BEYOND_THE_END, "kill"), rng, power_loss=False)
    assert whole.clean, (seed, whole)
    results = []
    for point in range(points):
        at, power_loss = rng.randint(1, whole.calls), point % 2 == 1
        results.append(
            (
                f"seed {seed}, call {at}, power loss {power_loss}",
                _trial(runner, Fault(at, "kill"), rng, power_loss=power_loss),
            )
        )
    return results


def test_a_sample_of_kill_points_is_clean(count: Count) -> None:
    _all_clean(kill_trials(100, 24), count)


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_kill_points_of_a_schedule_are_clean(seed: int, count: Count, *, full: bool) -> None:
    """1,000 points over all schedules; 10,000 where every point is wanted."""
    _all_clean(kill_trials(seed, (10_000 if full else 1_000) // SEEDS), count)


@pytest.mark.crash
def test_every_call_of_one_run_is_a_clean_kill_point(count: Count) -> None:
    rng = random.Random(99)
    runner = RealRunner(1)
    whole = _trial(runner, Fault(BEYOND_THE_END, "kill"), rng, power_loss=False)
    assert whole.calls > 50
    results = [
        (f"call {at}, power loss True", _trial(runner, Fault(at, "kill"), rng, power_loss=True))
        for at in range(1, whole.calls + 1)
    ]
    _all_clean(results, count)


def test_every_call_of_the_smallest_collector_is_a_clean_kill_point() -> None:
    """The journal alone, without the runner's own care: a schedule of a few hundred bytes that rotates all the time."""
    rng = random.Random(98)
    runner = ToyRunner(segment_bytes=1024, grow_bytes=1024)
    whole = trial(runner, executions=3, fault=Fault(BEYOND_THE_END, "kill"), power_loss=False, rng=rng)
    verdicts = [
        trial(runner, executions=3, fault=Fault(at, "kill"), power_loss=True, rng=rng)
        for at in range(1, whole.calls + 1)
    ]
    assert [verdict for verdict in verdicts if not verdict.clean] == []


def _all_clean(results: list[tuple[str, Verdict]], count: Count) -> None:
    dirty = [result for result in results if not result[1].clean]
    unknown = sum(verdict.sent_unknown for _, verdict in results)
    count("kill points of the runner", len(results))
    count("of these with a power loss", sum(name.endswith("power loss True") for name, _ in results))
    count("calls settled as unknown after a kill", unknown)
    assert dirty == []
    assert unknown > 0, "no kill struck between lease and outcome: the points are badly chosen"
