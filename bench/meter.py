"""CPU of another program and of everything that it starts, orphans included. Used by the benches; also a program.

    python bench/meter.py COMMAND [ARGUMENT ...]

Runs the command in a process that adopts orphans (Linux ``PR_SET_CHILD_SUBREAPER``), waits for all of them, and prints
``{"code", "cpu_s", "wall_s", "peak_mb"}`` as the last line. What a tool's service processes use is so counted even where
the tool itself does not wait for them. A process that never ends is ended with the command's own process group.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import NamedTuple

_PR_SET_CHILD_SUBREAPER = 36
_GRACE_S = 5.0


class Used(NamedTuple):
    """What a command used, its descendants included."""

    code: int
    cpu_s: float
    wall_s: float
    peak_mb: float


def measured(command: list[str], *, limit_s: float = 600.0) -> Used:
    """Run a command through this program.

    Args:
        command: program and arguments.
        limit_s: after so many seconds it is ended.
    """
    done = subprocess.run(
        [sys.executable, __file__, *command], stdout=subprocess.PIPE, text=True, check=True, timeout=limit_s
    )
    return Used(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    start = time.perf_counter()
    process = subprocess.Popen(sys.argv[1:], stdout=sys.stderr, start_new_session=True)
    code = process.wait()
    _reap(process.pid, time.monotonic() + _GRACE_S)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        json.dumps(
            {
                "code": code,
                "cpu_s": used.ru_utime + used.ru_stime,
                "wall_s": time.perf_counter() - start,
                "peak_mb": used.ru_maxrss / 1024,
            }
        )
    )


def _reap(group: int, until: float) -> None:
    """Wait for adopted children; what is still there after the grace is ended by its group."""
    with suppress(ChildProcessError):
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0 and time.monotonic() > until:
                with suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
                until += _GRACE_S
            elif pid == 0:
                time.sleep(0.05)


if __name__ == "__main__":
    main()
