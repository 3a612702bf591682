"""Start-up of the collector alone: time to the first lease, and memory (goal G13).

    python bench/collect/startup.py [--rounds 9]

A process of its own imports the runner and collects one case; the lease is when the mock server has read a request. Beside
the wall clock stands the CPU that the process had used by then, and, in the same rounds, what a process uses that only
imports the libraries that the collector rests on: on a busy machine the wall clock says little, their ratio holds.
The first round fills Python's cache of compiled modules and is not counted.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
SECONDS_GOAL, MEMORY_GOAL_MB = 0.5, 60
CHILD = """
import os, resource, sys
from pathlib import Path
from tasc_collector.startup import begin_process
begin_process(os.environ)
from tests.support.run_contexts import Setup, run_context
from tasc_collector.shadow.runner import run_blocking
origin = "http://127.0.0.1:" + sys.argv[1]
setup = Setup({"a": origin, "b": origin}, cases=["one"], plan={"attempt_timeout_ms": 2000, "maximum_attempts": 1})
run_blocking(run_context(setup, Path(sys.argv[2]) / "run"), show=lambda _: None)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "tasc_pipeline" in sys.modules, "tasc_compute" in sys.modules)
"""
LIBRARIES = """
import asyncio, ssl, subprocess, time
import orjson, pydantic, rfc8785
from cryptography.hazmat.primitives.asymmetric import ed25519
print(time.process_time())
"""


def one_start() -> tuple[float, float, float]:
    """Seconds to the first request at the server, CPU seconds by then, and peak MB of the process."""
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.TemporaryDirectory() as folder:
        arrived: list[tuple[float, float]] = []
        start = time.perf_counter()
        command = [sys.executable, "-c", CHILD, str(server.getsockname()[1]), folder]
        child = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True)

        def serve() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    connection.recv(65_536)
                    used = psutil.Process(child.pid).cpu_times()
                    arrived.append((time.perf_counter(), used.user + used.system))

        thread = threading.Thread(target=serve)
        thread.start()
        said, _ = child.communicate()
        thread.join()
        memory, pipeline, compute = said.split()
        assert (pipeline, compute) == ("False", "False"), "the collector imports nothing above it"
        return arrived[0][0] - start, arrived[0][1], float(memory)


def libraries() -> float:
    """CPU seconds of a process that imports what the collector rests on, and nothing of ours."""
    done = subprocess.run(
        [sys.executable, "-c", LIBRARIES], capture_output=True, text=True, check=True, env=environment()
    )
    return float(done.stdout)


def environment() -> dict[str, str]:
    """This process's environment, with compiled modules kept as in any installation."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    one_start()
    rounds = range(parser.parse_args().rounds)
    runs, floors = zip(*((one_start(), libraries()) for _ in rounds), strict=True)
    wall, memory = (statistics.median(run[index] for run in runs) for index in (0, 2))
    cpu, floor = min(run[1] for run in runs), min(floors)
    print(
        f"G13 first lease after {wall:.2f} s, least {min(run[0] for run in runs):.2f} s (goal <= {SECONDS_GOAL}), "
        f"{memory:.0f} MB (goal <= {MEMORY_GOAL_MB}); least CPU {cpu:.2f} s, of which libraries alone {floor:.2f} s"
    )


if __name__ == "__main__":
    main()
