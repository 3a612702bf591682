"""What Dagster's side costs where there are many windows: every sensor's tick, the catalogue, and a run's own overhead.

Run: python bench/dagster/ticks.py [--windows 20000] [--runs 3]

Windows are copies of one real, assessed window under other keys, with hard links, so that their files are of the true size.
Times are wall and process time; on a busy machine the second is the one to compare.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import dagster as dg

from tasc_pipeline import sensors
from tasc_pipeline.definitions import defs
from tasc_pipeline.engine_sensor import engine_states
from tasc_pipeline.home.window_index import INDEX, WindowFacts, window_facts
from tasc_pipeline.instance import add_partition, instance_of
from tasc_pipeline.notice_sensors import overdue_windows
from tasc_pipeline.partitions import PARTITIONS_NAME
from tasc_pipeline.probe_requests import receipts_run_out
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps import assess, catalogue, close, collect, notices, publish
from tasc_pipeline.steps.earlier import earlier_windows
from tests.support.window import World, now, world


def timed(label: str, work: Callable[[], Any], times: int = 3) -> Any:
    wall: list[float] = []
    cpu: list[float] = []
    result = None
    for _ in range(times):
        begun, used = time.perf_counter(), time.process_time()
        result = work()
        wall.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - used)
    print(f"{label:44} {min(wall):8.3f} s wall   {min(cpu):8.3f} s cpu")
    return result


def domain(made: World, key: str) -> None:
    collect.collect(made.home, key, show=lambda _: None)
    publish.publish(made.home, key)
    close.close(made.home, key)


def by_dagster(made: World, key: str, instance: dg.DagsterInstance) -> None:
    result = defs.resolve_job_def("shadow_window").execute_in_process(partition_key=key, instance=instance)
    assert result.success


def overhead(made: World, runs: int) -> str:
    """A window by the domain calls, and by the job; returns a window that was assessed."""
    keys = [made.approved_window(lead_s=0.3) for _ in range(2 * runs)]
    plain, jobs = keys[:runs], keys[runs:]
    for key in keys:
        add_partition(made.home, key)
    each = iter(plain)
    timed("a window by the domain calls", lambda: domain(made, next(each)), runs)
    with instance_of(made.home) as instance:
        later = iter(jobs)
        timed("a window by the job, 13 checks included", lambda: by_dagster(made, next(later), instance), runs)
    assess.assess(made.home, keys[0])
    return keys[0]


def multiply(made: World, key: str, windows: int) -> None:
    source = made.home.window(key)
    for number in range(windows):
        folder = made.home.windows / f"copy.w{number:06d}.r01-{number:08x}"
        folder.mkdir()
        for file in source.iterdir():
            os.link(file, folder / file.name)
    old = time.time() - 60
    for folder in made.home.windows.iterdir():
        os.utime(folder, (old, old))


def read_anew(made: World) -> dict[str, WindowFacts]:
    """As a process does that starts: it remembers nothing of the index."""
    os.utime(made.home.windows / INDEX)
    return window_facts(made.home)


def one_changed(made: World, key: str) -> dict[str, WindowFacts]:
    """After a window's folder has another time, far enough back for its facts to be kept."""
    changed_ns = made.home.window(key).stat().st_mtime_ns - 1_000_000
    os.utime(made.home.window(key), ns=(changed_ns, changed_ns))
    return window_facts(made.home)


def published(made: World) -> str:
    """What the asset does, in a process of its own: its tables, its lines and their version."""
    os.utime(made.home.windows / INDEX)
    return catalogue.version(catalogue.publish_catalogue(made.home))


def tick(made: World, sensor: Callable[..., Any]) -> Callable[[], Any]:
    def once() -> Any:
        with (
            instance_of(made.home) as instance,
            dg.build_sensor_context(instance=instance, resources={"state": StateFolder()}, definitions=defs) as context,
        ):
            result = sensor(context)
            return list(result) if hasattr(result, "__next__") else result

    return once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3)
    words = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder, world(Path(folder), cases=6, warm_up=0) as made:
        os.environ["TASC_HOME"] = str(made.home.root)
        key = overhead(made, words.runs)
        multiply(made, key, words.windows)
        timed("index from nothing", lambda: window_facts(made.home), 1)
        size = (made.home.windows / INDEX).stat().st_size
        print(f"{words.windows} windows, index {size / 1e6:.1f} MB")
        timed("index again, by another process", lambda: read_anew(made))
        timed("index again, remembered", lambda: window_facts(made.home))
        timed("index after one window changed", lambda: one_changed(made, key))
        with instance_of(made.home) as instance:
            timed(
                "partitions added",
                lambda: instance.add_dynamic_partitions(PARTITIONS_NAME, list(window_facts(made.home))),
                1,
            )
        for sensor in (
            sensors.window_registry,
            sensors.window_launcher,
            sensors.settlement,
            sensors.evidence_arrival,
            overdue_windows,
            receipts_run_out,
            engine_states,
        ):
            timed(f"tick of {sensor.name}", tick(made, sensor))
        timed("earlier windows of another study", lambda: earlier_windows(made.home, "sha256:" + "0" * 64))
        timed("verdict_notices, its rule and store", lambda: notices.after_assessment(made.home, key))
        timed("run_failures, its rule and store", lambda: notices.after_failure(made.home, key, "run", "transport"))
        timed("window_catalogue, lines", lambda: catalogue.windows(made.home, now()))
        timed("window_catalogue, all of it", lambda: published(made))


if __name__ == "__main__":
    main()
