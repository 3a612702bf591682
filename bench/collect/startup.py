"""Start-up of the collector alone: time to the first lease, and memory (goal G13).

    python bench/collect/startup.py [--rounds 5]

A process of its own imports the runner and collects one case; the lease is when the mock server has read a request.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS_GOAL, MEMORY_GOAL_MB = 0.5, 60
CHILD = """
import resource, sys
from pathlib import Path
from tests.support.run_contexts import Setup, run_context
from tasc_collector.shadow.runner import run_blocking
origin = "http://127.0.0.1:" + sys.argv[1]
setup = Setup({"a": origin, "b": origin}, cases=["one"], plan={"attempt_timeout_ms": 2000, "maximum_attempts": 1})
run_blocking(run_context(setup, Path(sys.argv[2]) / "run"), show=lambda _: None)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "tasc_pipeline" in sys.modules, "tasc_compute" in sys.modules)
"""


def one_start() -> tuple[float, float]:
    """Seconds to the first request at the server, and peak MB of the process."""
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.TemporaryDirectory() as folder:
        arrived: list[float] = []

        def serve() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    connection.recv(65_536)
                    arrived.append(time.perf_counter())

        thread = threading.Thread(target=serve)
        thread.start()
        start = time.perf_counter()
        command = [sys.executable, "-c", CHILD, str(server.getsockname()[1]), folder]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        thread.join()
        memory, pipeline, compute = done.stdout.split()
        assert (pipeline, compute) == ("False", "False"), "the collector imports nothing above it"
        return arrived[0] - start, float(memory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    runs = [one_start() for _ in range(parser.parse_args().rounds)]
    seconds, memory = statistics.median(run[0] for run in runs), statistics.median(run[1] for run in runs)
    print(f"G13 first lease after {seconds:.2f} s (goal <= {SECONDS_GOAL}), {memory:.0f} MB (goal <= {MEMORY_GOAL_MB})")


if __name__ == "__main__":
    main()
